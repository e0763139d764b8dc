package schemaregistry

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/twmb/avro"
	"github.com/twmb/franz-go/pkg/sr"

	"github.com/waybill-run/waybill/events"
)

const (
	// askTimeout bounds a question to the registry.
	askTimeout = 10 * time.Second
	// unknownFor is how long an id counts as unknown, so that many records with it don't ask each.
	unknownFor = time.Minute
	// schemasMax bounds the schemas that are kept. Past it all are read again.
	schemasMax = 10_000
	// referencesMax bounds the schemas that one refers to.
	referencesMax = 100
	// headerBytes is the length of the wire format's header.
	headerBytes = 5
)

// Options configure a Client.
type Options struct {
	URLs           []string
	User, Password string // empty: no authentication
	HTTP           *http.Client
}

// Client decodes values. It is safe for concurrent use.
type Client struct {
	sr  *sr.Client
	now func() time.Time

	mu      sync.Mutex
	schemas map[int]*schema
}

// schema is what is known of an id.
type schema struct {
	avro    *avro.Schema
	unknown *events.Unusable // why there is no schema
	until   time.Time        // of unknown
}

// Open returns a client; it connects when it is first used.
func Open(o Options) (*Client, error) {
	opts := []sr.ClientOpt{sr.URLs(o.URLs...), sr.UserAgent("waybill")}
	if o.User != "" {
		opts = append(opts, sr.BasicAuth(o.User, o.Password))
	}
	if o.HTTP != nil {
		opts = append(opts, sr.HTTPClient(o.HTTP))
	}
	client, err := sr.NewClient(opts...)
	if err != nil {
		return nil, fmt.Errorf("schema registry: %w", err)
	}
	return &Client{sr: client, now: time.Now, schemas: map[int]*schema{}}, nil
}

// Decode returns a value as JSON, or why it can't be used, or an error if the registry can't be asked now.
func (c *Client) Decode(ctx context.Context, value []byte) (json.RawMessage, *events.Unusable, error) {
	if len(value) < headerBytes || value[0] != 0 {
		return nil, badAvro("no value of a schema registry: it doesn't begin with a zero and the id of a schema"), nil
	}
	id := int(binary.BigEndian.Uint32(value[1:headerBytes]))
	s, err := c.find(ctx, id)
	if err != nil {
		return nil, nil, fmt.Errorf("ask the schema registry for the schema %d: %w", id, err)
	}
	if s.unknown != nil {
		return nil, s.unknown, nil
	}
	body, u := decode(s.avro, value[headerBytes:])
	if u != nil {
		u.Detail = fmt.Sprintf("schema %d: %s", id, u.Detail)
	}
	return body, u, nil
}

func badAvro(detail string) *events.Unusable {
	return &events.Unusable{Reason: events.ReasonBadAvro, Detail: detail}
}

func (c *Client) find(ctx context.Context, id int) (*schema, error) {
	c.mu.Lock()
	s := c.schemas[id]
	c.mu.Unlock()
	if s != nil && (s.unknown == nil || c.now().Before(s.until)) {
		return s, nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	s, err := c.read(ctx, id)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.schemas) >= schemasMax {
		clear(c.schemas)
	}
	c.schemas[id] = s
	return s, nil
}

// read reads a schema, with those that it refers to.
func (c *Client) read(ctx context.Context, id int) (*schema, error) {
	unknown := func(detail string) *schema {
		return &schema{unknown: &events.Unusable{Reason: events.ReasonUnknownSchema, Detail: detail}, until: c.now().Add(unknownFor)}
	}
	got, err := c.sr.SchemaByID(ctx, id)
	if isNotFound(err) {
		return unknown(fmt.Sprintf("the registry has no schema %d: %v", id, err)), nil
	}
	if err != nil {
		return nil, err
	}
	if got.Type != sr.TypeAvro {
		return unknown(fmt.Sprintf("schema %d is of the type %s; the intake's format is avro", id, got.Type)), nil
	}
	cache, left := &avro.SchemaCache{}, referencesMax
	if err := c.readReferences(ctx, cache, got.References, map[string]bool{}, &left); err != nil {
		if isNotFound(err) || errors.Is(err, errReferences) {
			return unknown(fmt.Sprintf("schema %d: %v", id, err)), nil
		}
		return nil, err
	}
	parsed, err := cache.Parse(got.Schema, conversions...)
	if err != nil {
		return unknown(fmt.Sprintf("schema %d can't be read: %v", id, err)), nil
	}
	return &schema{avro: parsed}, nil
}

// errReferences is wrapped by errors of references that no other try can fix.
var errReferences = errors.New("what it refers to can't be read")

func (c *Client) readReferences(ctx context.Context, cache *avro.SchemaCache, references []sr.SchemaReference, seen map[string]bool, left *int) error {
	for _, r := range references {
		key := fmt.Sprintf("%s/%d", r.Subject, r.Version)
		if seen[key] {
			continue
		}
		seen[key] = true
		if *left--; *left < 0 {
			return fmt.Errorf("%w: more than %d schemas", errReferences, referencesMax)
		}
		got, err := c.sr.SchemaByVersion(ctx, r.Subject, r.Version)
		if err != nil {
			return err
		}
		if err := c.readReferences(ctx, cache, got.References, seen, left); err != nil {
			return err
		}
		if _, err := cache.Parse(got.Schema.Schema, conversions...); err != nil {
			return fmt.Errorf("%w: %s: %w", errReferences, key, err)
		}
	}
	return nil
}

// isNotFound reports whether the registry has answered that it doesn't have a schema. A 404 without an error code of the
// registry is another server's, such as a proxy's whose registry is gone.
func isNotFound(err error) bool {
	answer, is := errors.AsType[*sr.ResponseError](err)
	return is && answer.StatusCode == http.StatusNotFound && answer.ErrorCode != 0
}
