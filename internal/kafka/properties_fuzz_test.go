package kafka

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// storeProperties encodes properties as java.util.Properties.store does, with all syntax characters escaped.
func storeProperties(props map[string]string) string {
	var b strings.Builder
	escape := func(s string, key bool) {
		for i, r := range s {
			switch {
			case r == ' ' && (key || i == 0), strings.ContainsRune("=:#!\\", r):
				b.WriteString(`\` + string(r))
			case r == '\t':
				b.WriteString(`\t`)
			case r == '\n':
				b.WriteString(`\n`)
			case r == '\r':
				b.WriteString(`\r`)
			case r == '\f':
				b.WriteString(`\f`)
			case r < 0x20 || r > 0x7e && r < 0x10000:
				fmt.Fprintf(&b, `\u%04X`, r)
			default:
				b.WriteRune(r)
			}
		}
	}
	for _, k := range slices.Sorted(maps.Keys(props)) {
		escape(k, true)
		b.WriteByte('=')
		escape(props[k], false)
		b.WriteByte('\n')
	}
	return b.String()
}

// FuzzProperties checks that the properties read from a file stay the same after Java's encoding. Each unknown name is
// a fault, and nothing else is.
func FuzzProperties(f *testing.F) {
	for _, s := range []string{
		"", "# comment\n! comment\n\nsecurity.protocol=SSL\n", "a = b \\\n    c", "a:b\\:c", `a\ b=c`, "a", "=b", `\u0041=\u00e9`, `\u12`, "a=1\r\na=2",
		"bootstrap.servers=a:9092, b:9092\nclient.id=x\n", `a=b\`, "a=\\\\\nb=c", "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=u\nsasl.password=p",
		"\fa\f=\fb", `a=\ b`, "acks=all\ngroup.id=g\nfoo=bar", "security.protocol=SSL\nssl.truststore.certificates=-----BEGIN CERTIFICATE-----",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		props, err := scanProperties([]byte(text))
		if err != nil {
			if !strings.Contains(err.Error(), "Line ") {
				t.Fatalf("a fault without its line: %v", err)
			}
			return
		}
		if utf8.ValidString(text) {
			again, err := scanProperties([]byte(storeProperties(props)))
			if err != nil || !maps.Equal(again, props) {
				t.Fatalf("%q\nread    %q\nwritten %q\nread    %q, %v", text, props, storeProperties(props), again, err)
			}
		}
		checkConfig(t, props)
	})
}

func checkConfig(t *testing.T, props map[string]string) {
	for name := range props {
		if strings.HasSuffix(name, ".location") {
			return // an arbitrary path names no valid file
		}
	}
	c, err := configOf(props)
	for name := range props {
		known := slices.Contains(propertyNames, name)
		if named := err != nil && strings.Contains(err.Error(), name+" is not understood: "); !known && !named {
			t.Fatalf("%q is not understood and passes: %v", name, err)
		}
	}
	if err != nil {
		return
	}
	switch strings.ToUpper(props["security.protocol"]) {
	case "", "PLAINTEXT":
		if c.TLS != nil || len(c.SASL) > 0 {
			t.Fatalf("%q: more security than asked for", props)
		}
	case "SSL", "SASL_SSL":
		if c.TLS == nil {
			t.Fatalf("%q: no TLS", props)
		}
	}
	if sasl := strings.HasPrefix(strings.ToUpper(props["security.protocol"]), "SASL"); sasl != (len(c.SASL) > 0) {
		t.Fatalf("%q: %d ways to log in", props, len(c.SASL))
	}
}

// FuzzJAAS checks that any quoted user and password are read unchanged. Any other input is read or is a fault, and the
// fault doesn't reveal the password.
func FuzzJAAS(f *testing.F) {
	f.Add("alice", "se\"cr\\et;", `org.apache.kafka.common.security.plain.PlainLoginModule required username=a password='b c';`)
	f.Add("", " ", `x.ScramLoginModule required username="a`)
	f.Add("a=b", "c d", `x.PlainLoginModule required username = "a" password;`)
	f.Fuzz(func(t *testing.T, user, pass, text string) {
		quoted := func(s string) string { return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"` }
		s := "org.apache.kafka.common.security.scram.ScramLoginModule required username=" + quoted(user) + "  password=" + quoted(pass) + " ; "
		if u, p, err := parseJAAS(s); err != nil || u != user || p != pass {
			t.Fatalf("%s: read as user %q, password %q, %v", s, u, p, err)
		}
		if u, p, err := parseJAAS(text); err != nil && (u != "" || p != "") {
			t.Fatalf("%s: %v, and yet %q, %q", text, err, u, p)
		}
	})
}
