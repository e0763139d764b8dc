package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/internal/batch"
	"github.com/waybill-run/waybill/internal/batchrun"
	"github.com/waybill-run/waybill/internal/console"
	"github.com/waybill-run/waybill/internal/console/onkafka"
	"github.com/waybill-run/waybill/internal/instance"
	"github.com/waybill-run/waybill/internal/intakerun"
)

// defaultConsole is the default address of a console, and the address where tools look for one.
const defaultConsole = "127.0.0.1:8080"

// consoleFlags are the flags of a console.
type consoleFlags struct {
	listen    string
	tokens    string
	cert, key string
	origins   []string
	operator  bool              // without tokens: local users may send commands
	schemas   intakerun.Schemas // to map dead letters of intakes again; may be nil
}

func (o *consoleFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.cert, "http-tls-cert", "", "PEM file of the console's certificate chain; reloaded when it changes")
	f.StringVar(&o.key, "http-tls-key", "", "PEM file of the private key of --http-tls-cert")
	f.StringArrayVar(&o.origins, "trusted-origin", nil, "origin, scheme://host[:port], whose pages may post even if a proxy forwards another Host header; needs --tokens (repeatable)")
	f.BoolVar(&o.operator, "allow-loopback-operator", o.operator, "without --tokens: let local users submit tasks and send commands")
	f.StringVar(&o.listen, "listen", defaultConsole, "address of the HTTP API; any address but loopback needs --tokens")
	f.StringVar(&o.tokens, "tokens", "", "file of bearer tokens, one line each: role (viewer, signaller, submitter, operator or undo_processed), name, token; reloaded when it changes")
}

func newConsole() *cobra.Command {
	r := roleFlags{reads: true, drains: true}
	var registry registryFlags
	var o consoleFlags
	cmd := &cobra.Command{
		Use:   "console",
		Short: "Serve the HTTP API and the web console",
		Long: `Serve the HTTP API and the web console of a namespace: task lists with filters, timelines, agents,
partitions, alerts, event streams, and the commands of operators. GET /api/v1/openapi.json describes
the API. A console keeps an index of the log in --data-dir, so that queries don't read the log.

Run one or more processes, behind one address if you like: each indexes all tasks and needs no other console.
With an empty --data-dir a console first reads the whole log; /readyz says when it is done.

Without --tokens a console listens on loopback only, and local users may read everything. With
--allow-loopback-operator they may also submit tasks and send commands. To reach a console from other
machines, give --listen and --tokens.`,
		Example: `  waybill console --brokers kafka:9092 --data-dir /var/lib/waybill/c1
  waybill console --brokers kafka:9092 --listen 0.0.0.0:8443 --tokens tokens --http-tls-cert cert.pem --http-tls-key key.pem`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := o.check(); err != nil {
				return err
			}
			schemas, err := registry.open()
			if err != nil {
				return err
			}
			o.schemas = schemas
			return r.runRole(cmd, "console", func(ctx context.Context, n *instance.Instance) error {
				url, err := o.start(ctx, n, !cmd.Flags().Changed("listen"), cmd.ErrOrStderr())
				if err == nil {
					fmt.Fprintf(cmd.OutOrStdout(), "console  %s\n", url)
				}
				return err
			})
		},
	}
	r.flags(cmd, true)
	cmd.Flags().Lookup("instance").Usage = "name of this process, in the records that it writes"
	o.flags(cmd)
	registry.flags(cmd)
	return cmd
}

// check checks the flags without a broker, and reads the tokens; nil if there are none.
func (o *consoleFlags) check() (*console.Tokens, error) {
	if err := checkListen("listen", o.listen); err != nil {
		return nil, err
	}
	if (o.cert == "") != (o.key == "") {
		return nil, usage("--http-tls-cert and --http-tls-key need each other: give both or neither")
	}
	for _, origin := range o.origins {
		if err := console.CheckOrigin(origin); err != nil {
			return nil, usage("--trusted-origin %q: %v; give scheme://host[:port], as in https://waybill.example.com", origin, err)
		}
	}
	if o.cert != "" {
		if err := new(certificate).load(o.cert, o.key); err != nil {
			return nil, err
		}
	}
	tokens, err := o.readTokens()
	if err == nil && tokens == nil && !isLoopback(o.listen) {
		err = usage("--listen %s is reachable from other machines: give --tokens, or listen on loopback (%s)", o.listen, defaultConsole)
	}
	return tokens, err
}

// start listens, starts the index, and serves until ctx ends. It returns the console's URL. With anyPort it
// takes a free port if the default one is in use, and says so on stderr.
func (o *consoleFlags) start(ctx context.Context, n *instance.Instance, anyPort bool, stderr io.Writer) (string, error) {
	tokens, err := o.check()
	if err != nil {
		return "", err
	}
	listener, err := listenConsole(ctx, o.listen, anyPort, stderr)
	if err != nil {
		return "", err
	}
	url := o.scheme() + "://" + reachableAddr(listener.Addr())
	c, err := o.open(ctx, n, tokens)
	if err == nil && o.cert != "" {
		listener, err = o.listenTLS(ctx, n, listener)
	}
	if err == nil && tokens != nil {
		err = o.watchTokens(ctx, n, tokens)
	}
	if err != nil {
		return "", errors.Join(err, listener.Close())
	}
	n.Go(func() error {
		defer c.close()
		return c.Serve(ctx, listener)
	})
	return url, nil
}

func (o *consoleFlags) scheme() string {
	if o.cert != "" {
		return "https"
	}
	return "http"
}

// listenTLS wraps a listener in TLS. The certificate is reloaded when its files change.
func (o *consoleFlags) listenTLS(ctx context.Context, n *instance.Instance, l net.Listener) (net.Listener, error) {
	var c certificate
	files := &watchedFiles{paths: []string{o.cert, o.key}, load: func() error { return c.load(o.cert, o.key) }, log: n.Logger(), what: "the console's certificate"}
	files.last = files.content()
	if err := files.load(); err != nil {
		return l, err
	}
	n.Go(func() error { return files.run(ctx) })
	return tls.NewListener(l, c.config()), nil
}

// watchTokens reloads the tokens when their file changes.
func (o *consoleFlags) watchTokens(ctx context.Context, n *instance.Instance, tokens *console.Tokens) error {
	files := &watchedFiles{paths: []string{o.tokens}, log: n.Logger(), what: "the console's tokens", load: func() error {
		again, err := o.readTokens()
		if err == nil {
			tokens.Replace(again)
		}
		return err
	}}
	files.last = files.content()
	if err := files.load(); err != nil { // it may have changed since it was read
		return err
	}
	n.Go(func() error { return files.run(ctx) })
	return nil
}

func (o *consoleFlags) readTokens() (*console.Tokens, error) {
	if o.tokens == "" {
		return nil, nil
	}
	text, err := readSecret("tokens", o.tokens)
	if err != nil {
		return nil, err
	}
	t, err := console.ParseTokens(bytes.NewReader(text))
	if err != nil {
		return nil, exit(exitUsage, "--tokens %s: %w", o.tokens, err)
	}
	return t, nil
}

// isLoopback reports whether only this machine reaches an address.
func isLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// listenConsole listens on an address. With anyPort it takes a free port of the host if that of the address is in use, and
// says so on stderr.
func listenConsole(ctx context.Context, addr string, anyPort bool, stderr io.Writer) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil && anyPort && errors.Is(err, syscall.EADDRINUSE) {
		host, _, splitErr := net.SplitHostPort(addr)
		if splitErr != nil {
			return nil, splitErr
		}
		if l, err = (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(host, "0")); err == nil {
			fmt.Fprintf(stderr, "%s is in use: the console listens on %s\n", addr, l.Addr())
		}
	}
	if err != nil {
		return nil, exit(exitUsage, "--listen %s: %w; give another, port 0 for any", addr, err)
	}
	return l, nil
}

// reachableAddr returns the address for clients: the host's name replaces an unspecified address.
func reachableAddr(addr net.Addr) string {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok || !tcp.IP.IsUnspecified() {
		return addr.String()
	}
	host, err := os.Hostname()
	if err != nil {
		return addr.String()
	}
	return net.JoinHostPort(host, fmt.Sprint(tcp.Port))
}

// consoleServer is a console and the connections that it closes.
type consoleServer struct {
	*console.Console
	log *onkafka.Log
}

func (o *consoleFlags) open(ctx context.Context, n *instance.Instance, tokens *console.Tokens) (*consoleServer, error) {
	definitions, err := n.Catalog(ctx)
	if err != nil {
		return nil, err
	}
	index, err := n.StartIndex(ctx, nil)
	if err != nil {
		return nil, err
	}
	log, err := onkafka.OpenLog(n)
	if err != nil {
		return nil, err
	}
	source := string(n.Kafka.Namespace) + "console/" + n.Name
	batches := batchrun.New(batchrun.Config{Kafka: n.Kafka, Admin: n.Admin, Producer: n.Producer, Source: source, Log: n.Logger(),
		Listener: batchrun.Listener{Commanded: func(result batch.Status) { n.CountBatchCommand(string(result)) }, Open: n.SetBatches}})
	schedules := onkafka.NewSchedules(n, source)
	c := console.New(console.Config{Schedules: schedules, Intakes: &onkafka.Intakes{Kafka: n.Kafka, Admin: n.Admin, Schemas: o.schemas, DefinitionsChanged: n.DefinitionsChanged},
		ClusterID: n.ClusterID, Namespace: n.Kafka.Namespace, Partitions: n.Partitions, Source: source, Batches: batches,
		Index: index, Log: log, Cluster: onkafka.NewCluster(n, definitions), Tokens: tokens, Health: n.Health(), Now: n.Clock.Now,
		LoopbackOperator: o.operator, TrustedOrigins: o.origins, Denied: deniedLog(n.Logger(), n.CountDenied),
		Failed: func(r *http.Request, err error) { n.Logger().Warn("console", "path", r.URL.Path, "error", err) },
	})
	batches.SetLook(c.Look)
	n.Go(func() error { return batches.Run(ctx) })
	n.Go(func() error { return schedules.Run(ctx) })
	return &consoleServer{c, log}, nil
}

func (c *consoleServer) close() {
	c.Close()
	c.log.Close()
}
