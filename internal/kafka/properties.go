package kafka

import (
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/magiconair/properties"
)

// propertyFixes has the Java and librdkafka names that ParseProperties rejects though a working file may contain them,
// and what to do instead.
var propertyFixes = map[string]string{
	"acks":                         "remove it: records are always acknowledged by all in-sync replicas",
	"enable.idempotence":           "remove it: producers are always idempotent",
	"enable.auto.commit":           "remove it: offsets are committed only for finished work",
	"group.id":                     "remove it: groups are named by --namespace",
	"group.instance.id":            "remove it and use --instance",
	"transactional.id":             "remove it: transactional ids are named by --namespace",
	"isolation.level":              "remove it: committed records only are read wherever it matters",
	"auto.offset.reset":            "remove it: positions are part of the state",
	"key.serializer":               "remove it: it concerns Java only",
	"value.serializer":             "remove it: it concerns Java only",
	"key.deserializer":             "remove it: it concerns Java only",
	"value.deserializer":           "remove it: it concerns Java only",
	"metadata.broker.list":         "use bootstrap.servers",
	"sasl.mechanisms":              "use sasl.mechanism",
	"ssl.truststore.password":      "remove it: PEM files have none; use ssl.truststore.type=PEM",
	"ssl.keystore.password":        "remove it: PEM files have none; use ssl.keystore.type=PEM",
	"ssl.key.password":             "write the key in the clear with `openssl pkcs8 -in KEY -out CLEAR` and protect the file",
	"ssl.certificate.location":     "use ssl.keystore.type=PEM with ssl.keystore.location, one file with certificate and key",
	"ssl.key.location":             "use ssl.keystore.type=PEM with ssl.keystore.location, one file with certificate and key",
	"sasl.kerberos.service.name":   "Kerberos is not supported; use PLAIN or SCRAM over SASL_SSL",
	"sasl.oauthbearer.token":       "OAuth is not supported; use PLAIN or SCRAM over SASL_SSL",
	"sasl.login.callback.handler":  "use sasl.jaas.config with a user name and a password",
	"sasl.client.callback.handler": "use sasl.jaas.config with a user name and a password",
}

var propertyNames = []string{
	"bootstrap.servers", "client.id", "security.protocol",
	"sasl.mechanism", "sasl.jaas.config", "sasl.username", "sasl.password",
	"ssl.ca.location", "ssl.endpoint.identification.algorithm",
	"ssl.truststore.type", "ssl.truststore.location", "ssl.truststore.certificates",
	"ssl.keystore.type", "ssl.keystore.location", "ssl.keystore.certificate.chain", "ssl.keystore.key",
}

// ParseProperties reads a client.properties file of Kafka's Java tools, in their syntax and with their names. What the
// file doesn't set is zero in the result (see Config.With). File names in it are relative to the working directory, as
// in Java. All faults are reported at once, each with its fix. An unknown name is a fault, because ignoring a setting
// silently is worse than rejecting it.
func ParseProperties(file string) (Config, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return Config{}, fmt.Errorf("Kafka client properties: %w", err)
	}
	props, err := scanProperties(text)
	if err == nil {
		err = checkMode(file, props)
	}
	if err == nil {
		var c Config
		if c, err = configOf(props); err == nil {
			return c, nil
		}
	}
	return Config{}, fmt.Errorf("Kafka client properties in %s:\n%w", file, err)
}

// checkMode rejects a file with credentials that other users may use or its group may change.
func checkMode(file string, props map[string]string) error {
	secret := slices.ContainsFunc(slices.Collect(maps.Keys(props)), func(name string) bool {
		return name == "sasl.jaas.config" || strings.Contains(name, "password") || name == "ssl.keystore.key"
	})
	if !secret {
		return nil
	}
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	if perm := info.Mode().Perm(); info.Mode().IsRegular() && perm&0o037 != 0 {
		return fmt.Errorf("it holds credentials, and others may use it, or its group change it (mode %04o): chmod 600 fixes that, or 640 (in Kubernetes: defaultMode 0440)", perm)
	}
	return nil
}

// With returns c with the fields that patch sets replaced.
func (c Config) With(patch Config) Config {
	if len(patch.Brokers) > 0 {
		c.Brokers, c.OneBroker, c.Reached = patch.Brokers, patch.OneBroker, patch.Reached
	}
	if patch.Namespace != "" {
		c.Namespace = patch.Namespace
	}
	if patch.ClientID != "" {
		c.ClientID = patch.ClientID
	}
	if patch.TLS != nil {
		c.TLS = patch.TLS
	}
	if len(patch.SASL) > 0 {
		c.SASL = patch.SASL
	}
	if patch.Dial != nil {
		c.Dial = patch.Dial
	}
	if patch.Clock != nil {
		c.Clock = patch.Clock
	}
	if len(patch.Hooks) > 0 {
		c.Hooks = patch.Hooks
	}
	return c
}

func configOf(props map[string]string) (Config, error) {
	faults := unknownProperties(props)
	c := Config{ClientID: props["client.id"]}
	for _, b := range strings.Split(props["bootstrap.servers"], ",") {
		if b = strings.TrimSpace(b); b != "" {
			c.Brokers = append(c.Brokers, b)
		}
	}
	var useTLS, useSASL bool
	switch p := strings.ToUpper(props["security.protocol"]); p {
	case "", "PLAINTEXT":
	case "SSL":
		useTLS = true
	case "SASL_PLAINTEXT":
		useSASL = true
	case "SASL_SSL":
		useTLS, useSASL = true, true
	default:
		faults = append(faults, fmt.Errorf("security.protocol=%s: use PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL", p))
	}
	faults = append(faults, ineffectiveProperties(props, useTLS, useSASL)...)
	if useTLS {
		t, errs := tlsOf(props)
		c.TLS, faults = t, append(faults, errs...)
	}
	if useSASL {
		user, pass, err := credentialsOf(props)
		if err == nil {
			mechanism, merr := SASL(props["sasl.mechanism"], user, pass)
			c.SASL, err = append(c.SASL, mechanism), merr
		}
		if err != nil {
			faults = append(faults, err)
		}
	}
	return c, errors.Join(faults...)
}

func unknownProperties(props map[string]string) []error {
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(props)) {
		if slices.Contains(propertyNames, name) {
			continue
		}
		fix, ok := propertyFixes[name]
		if !ok {
			fix = "remove it; known are " + strings.Join(propertyNames, ", ")
		}
		faults = append(faults, fmt.Errorf("%s is not understood: %s", name, fix))
	}
	return faults
}

// ineffectiveProperties returns an error for each property that has no effect with the security protocol. Java ignores
// those, and the author of the file may believe in an encryption that isn't used.
func ineffectiveProperties(props map[string]string, useTLS, useSASL bool) []error {
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(props)) {
		known := slices.Contains(propertyNames, name)
		switch {
		case known && !useTLS && strings.HasPrefix(name, "ssl."):
			faults = append(faults, fmt.Errorf("%s has no effect without TLS: set security.protocol to SSL or SASL_SSL, or remove it", name))
		case known && !useSASL && strings.HasPrefix(name, "sasl."):
			faults = append(faults, fmt.Errorf("%s has no effect without SASL: set security.protocol to SASL_SSL, or remove it", name))
		}
	}
	return faults
}

func tlsOf(props map[string]string) (*tls.Config, []error) {
	var faults []error
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	for _, store := range []string{"ssl.truststore.type", "ssl.keystore.type"} {
		if v, ok := props[store]; ok && !strings.EqualFold(v, "PEM") {
			faults = append(faults, fmt.Errorf("%s=%s: only PEM is read; convert the store with keytool and openssl", store, v))
		}
	}
	ca, err := textOf(props, "ssl.truststore.certificates", "ssl.truststore.location", "ssl.ca.location")
	if err == nil && ca != nil {
		cfg.RootCAs, err = certPool(ca)
	}
	if err != nil {
		faults = append(faults, fmt.Errorf("trust store: %w", err))
	}
	chain, err := textOf(props, "ssl.keystore.certificate.chain", "ssl.keystore.location")
	key := chain
	if err == nil && props["ssl.keystore.key"] != "" {
		key = []byte(props["ssl.keystore.key"])
	}
	if err == nil && (chain != nil || key != nil) {
		var pair tls.Certificate
		pair, err = keyPair(chain, key)
		cfg.Certificates = []tls.Certificate{pair}
	}
	if err != nil {
		faults = append(faults, fmt.Errorf("key store: %w", err))
	}
	switch v, ok := props["ssl.endpoint.identification.algorithm"]; {
	case ok && v == "":
		skipHostnameCheck(cfg)
	case ok && !strings.EqualFold(v, "https"):
		faults = append(faults, fmt.Errorf("ssl.endpoint.identification.algorithm=%s: use https, or nothing to leave the host name unchecked", v))
	}
	return cfg, faults
}

// textOf returns the PEM text in the property inline, or the contents of the file that one of the others names; nil if
// none is set. More than one is an error.
func textOf(props map[string]string, inline string, files ...string) ([]byte, error) {
	var set []string
	for _, name := range append([]string{inline}, files...) {
		if props[name] != "" {
			set = append(set, name)
		}
	}
	switch {
	case len(set) == 0:
		return nil, nil
	case len(set) > 1:
		return nil, fmt.Errorf("%s are set together; keep one", strings.Join(set, " and "))
	case set[0] == inline:
		return []byte(props[inline]), nil
	}
	b, err := os.ReadFile(props[set[0]])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", set[0], err)
	}
	return b, nil
}

func credentialsOf(props map[string]string) (user, pass string, err error) {
	if props["sasl.mechanism"] == "" {
		return "", "", errors.New("sasl.mechanism is missing: set it to SCRAM-SHA-512, SCRAM-SHA-256 or PLAIN")
	}
	jaas := props["sasl.jaas.config"]
	user, pass = props["sasl.username"], props["sasl.password"]
	if jaas != "" && (user != "" || pass != "") {
		return "", "", errors.New("sasl.jaas.config is set together with sasl.username or sasl.password; keep one of the two")
	}
	if jaas != "" {
		if user, pass, err = parseJAAS(jaas); err != nil {
			return "", "", fmt.Errorf("sasl.jaas.config: %w", err)
		}
	}
	if user == "" || pass == "" {
		return "", "", errors.New("SASL needs a user and a password: set sasl.jaas.config, or sasl.username and sasl.password")
	}
	return user, pass, nil
}

// parseJAAS reads `org...PlainLoginModule required username="u" password="p";`.
func parseJAAS(s string) (user, pass string, err error) {
	const example = `org.apache.kafka.common.security.scram.ScramLoginModule required username="NAME" password="SECRET";`
	module, rest, _ := strings.Cut(strings.TrimSpace(s), " ")
	if !strings.HasSuffix(module, ".PlainLoginModule") && !strings.HasSuffix(module, ".ScramLoginModule") {
		return "", "", fmt.Errorf("login module %q is not supported; write %s", module, example)
	}
	rest, ended := strings.CutSuffix(strings.TrimSpace(rest), ";")
	flag, rest, _ := strings.Cut(strings.TrimSpace(rest), " ")
	if !ended || flag != "required" {
		return "", "", fmt.Errorf("write %s", example)
	}
	for rest = strings.TrimSpace(rest); rest != ""; rest = strings.TrimSpace(rest) {
		name, after, ok := strings.Cut(rest, "=")
		if !ok {
			return "", "", fmt.Errorf("option %q has no value; write %s", name, example)
		}
		var value string
		if value, rest, ok = jaasValue(strings.TrimSpace(after)); !ok {
			return "", "", fmt.Errorf("the quote of option %q is not closed; write %s", strings.TrimSpace(name), example)
		}
		switch strings.TrimSpace(name) {
		case "username":
			user = value
		case "password":
			pass = value
		default:
			return "", "", fmt.Errorf("option %q is not understood; write %s", strings.TrimSpace(name), example)
		}
	}
	return user, pass, nil
}

// jaasValue splits one value off s. It may be quoted, with backslash escapes.
func jaasValue(s string) (value, rest string, ok bool) {
	if s == "" || (s[0] != '"' && s[0] != '\'') {
		value, rest, _ = strings.Cut(s, " ")
		return value, rest, true
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == s[0]:
			return b.String(), s[i+1:], true
		case s[i] == '\\' && i+1 < len(s):
			i++
			b.WriteByte(s[i])
		default:
			b.WriteByte(s[i])
		}
	}
	return "", "", false
}

// scanProperties parses the syntax of java.util.Properties. Of two equal keys the last counts. ${ } is literal text, as
// in Java.
func scanProperties(text []byte) (map[string]string, error) {
	loader := properties.Loader{Encoding: properties.UTF8, DisableExpansion: true}
	read, err := loader.LoadBytes(text)
	if err != nil {
		return nil, fmt.Errorf("it isn't a Java properties file: %w", err)
	}
	props := read.Map()
	for name, value := range props {
		// Java keeps trailing blanks, but they are never intended.
		props[name] = strings.TrimRight(value, " \t")
	}
	return props, nil
}
