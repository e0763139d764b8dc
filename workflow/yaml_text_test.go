package workflow

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The text of a definition is YAML as a person would write it, and gives the same definition.
func TestYAML(t *testing.T) {
	d, err := ParseYAML("x.yaml", []byte(`{workflow: order, version: 1, complete_within: 30m, steps: {
  reserve: {agent: stock, operation: reserve, complete_within: 1m, input: {id: "${ input.id }", n: 12345678901234567, f: 5.0, no: "no", empty: {}, list: [], deep: [{a: 1}, [2, x]], text: "a\nb: #c", "null": null}, undo: {operation: free}},
  ship: {needs: [reserve], agent: parcels, operation: ship, complete_within: 90s, when: "${ input.n > 1 }"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	const want = `workflow: order
version: 1
complete_within: 30m
on_error: undo
steps:
  reserve:
    agent: stock
    operation: reserve
    input:
      deep:
        -
          a: 1
        - [2, x]
      empty: {}
      f: 5.0
      id: "${ input.id }"
      list: []
      "n": 12345678901234567
      "no": "no"
      "null": null
      text: "a\nb: #c"
    complete_within: 1m
    undo:
      operation: free
      agent: stock
  ship:
    agent: parcels
    operation: ship
    needs: [reserve]
    when: "${ input.n > 1 }"
    complete_within: 1m30s
`
	if got := string(d.YAML()); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// Each example comes back from its text.
func TestYAMLOfExamples(t *testing.T) {
	files, err := filepath.Glob("../docs/examples/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, file := range files {
		if strings.HasSuffix(file, ".test.yaml") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		d, err := ParseYAML(file, text)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseYAML(file, d.YAML())
		if err != nil || !bytes.Equal(again.JSON(), d.JSON()) {
			t.Errorf("%s: %v\n%s", file, err, d.YAML())
		}
		n++
	}
	if n < 5 {
		t.Errorf("%d examples", n)
	}
}
