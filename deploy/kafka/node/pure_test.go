package node

import (
	"bytes"
	"encoding/xml"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPomNamesTheVersion(t *testing.T) {
	var p struct {
		Dependencies []struct {
			ArtifactID string `xml:"artifactId"`
			Version    string `xml:"version"`
		} `xml:"dependencies>dependency"`
	}
	if err := xml.Unmarshal(pom, &p); err != nil {
		t.Fatal(err)
	}
	for _, d := range p.Dependencies {
		if d.ArtifactID == "kafka_2.13" && d.Version == Version {
			return
		}
	}
	t.Errorf("pom.xml fetches %+v, Version is %s", p.Dependencies, Version)
}

func TestJavaMajor(t *testing.T) {
	for out, want := range map[string]int{
		"openjdk version \"17.0.15\" 2025-04-15\nOpenJDK Runtime":         17,
		`java version "1.8.0_292"`:                                        8,
		`openjdk version "21" 2023-09-19`:                                 21,
		`openjdk version "26-ea" 2026-03-17`:                              26,
		"Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version \"25.0.1\"": 25,
		`openjdk version "`:                                               0,
		"no":                                                              0,
	} {
		if got, ok := javaMajor(out); got != want || ok != (want != 0) {
			t.Errorf("javaMajor(%q) = %d, %v; want %d", out, got, ok, want)
		}
	}
}

func TestLineWatchFindsALineInPieces(t *testing.T) {
	text := "first\nKafka Server sta\nit said Kafka Server started (x)\nlast\n"
	for size := 1; size <= len(text); size++ {
		var copied bytes.Buffer
		w := &lineWatch{to: &copied, want: []byte(readyLine), seen: make(chan struct{})}
		end := strings.Index(text, readyLine) + len(readyLine)
		for i := 0; i < len(text); i += size {
			piece := text[i:min(i+size, len(text))]
			if _, err := io.WriteString(w, piece); err != nil {
				t.Fatal(err)
			}
			select {
			case <-w.seen:
				if i+len(piece) < end {
					t.Fatalf("pieces of %d: seen in %q", size, text[:i+len(piece)])
				}
			default:
				if i+len(piece) >= end {
					t.Fatalf("pieces of %d: not seen in %q", size, text[:i+len(piece)])
				}
			}
		}
		if copied.String() != text {
			t.Fatalf("pieces of %d: copied %q", size, &copied)
		}
	}
}

func TestPropertiesOfThreeNodes(t *testing.T) {
	m := manifest{Nodes: 3, Port: 9092, Directories: []string{"A", "B", "C"}}
	o := &Options{Listeners: map[string]string{"Z": "SSL", "S": "SASL_SSL"}, Overrides: map[string]string{"min.insync.replicas": "1"},
		Advertised: map[string][]string{"PLAINTEXT": {"p:1", "p:2", "p:3"}, "S": {"s:1", "s:2", "s:3"}}}
	p := m.properties(1, o, "/data")
	for k, want := range map[string]string{
		"node.id":                             "2",
		"listeners":                           "PLAINTEXT://127.0.0.2:9092,CONTROLLER://127.0.0.2:9093,S://127.0.0.2:9094,Z://127.0.0.2:9095",
		"advertised.listeners":                "PLAINTEXT://p:2,CONTROLLER://127.0.0.2:9093,S://s:2,Z://127.0.0.2:9095",
		"listener.security.protocol.map":      "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,S:SASL_SSL,Z:SSL",
		"controller.quorum.bootstrap.servers": "127.0.0.1:9093,127.0.0.2:9093,127.0.0.3:9093",
		"offsets.topic.replication.factor":    "3",
		"transaction.state.log.min.isr":       "2",
		"min.insync.replicas":                 "1",
	} {
		if p[k] != want {
			t.Errorf("%s = %q, want %q", k, p[k], want)
		}
	}
	if got, want := m.voters(), "1@127.0.0.1:9093:A,2@127.0.0.2:9093:B,3@127.0.0.3:9093:C"; got != want {
		t.Errorf("voters %s, want %s", got, want)
	}
	c := &Cluster{manifest: m, options: *o}
	if got := c.Listener("Z"); len(got) != 3 || got[1] != "127.0.0.2:9095" {
		t.Errorf("listener Z is at %v", got)
	}
}

func TestAdvertisedNeedsItsListenerAndEachNode(t *testing.T) {
	for _, advertised := range []map[string][]string{{"PLAINTEXT": {"a:1"}}, {"OTHER": {"a:1", "a:2", "a:3"}}} {
		_, err := Start(t.Context(), Options{Nodes: 3, Advertised: advertised})
		if err == nil || !strings.Contains(err.Error(), "one address for each of the 3 nodes") {
			t.Errorf("advertised %v: %v", advertised, err)
		}
	}
}

func TestEncodeEscapes(t *testing.T) {
	if got, want := string(encode(map[string]string{"b": `C:\x`, "a": "1\n2"})), "a=1\\n2\nb=C:\\\\x\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestComplaintPrefersErrors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	log := "x INFO a\nx ERROR b\njava.lang.Exception: c\n\tat d.Exception\nx INFO e\n"
	if err := os.WriteFile(path, []byte(log), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, want := LogErrors(path), "x ERROR b\njava.lang.Exception: c"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
