package manifest

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pelletier/go-toml/v2"
)

// plain turns a tree into what the library's decoder makes of the same file.
func plain(t *testing.T, n *node) any {
	switch n.kind {
	case kindTable:
		m := map[string]any{}
		for _, k := range n.keys {
			m[k] = plain(t, n.children[k])
		}
		return m
	case kindList:
		l := []any{}
		for _, item := range n.items {
			l = append(l, plain(t, item))
		}
		return l
	case kindString:
		return n.text
	case kindBool:
		return n.text == "true"
	case kindInt:
		i, err := strconv.ParseInt(n.text, 0, 64)
		if err != nil {
			t.Fatalf("integer %q: %v", n.text, err)
		}
		return i
	case kindFloat:
		f, err := strconv.ParseFloat(strings.ReplaceAll(n.text, "_", ""), 64)
		if err != nil {
			t.Fatalf("float %q: %v", n.text, err)
		}
		return fmt.Sprint(f)
	}
	return "a date or time"
}

// normal makes values of the decoder comparable to plain's.
func normal(v any) any {
	switch v := v.(type) {
	case map[string]any:
		m := map[string]any{}
		for k, e := range v {
			m[k] = normal(e)
		}
		return m
	case []any:
		l := []any{}
		for _, e := range v {
			l = append(l, normal(e))
		}
		return l
	case float64:
		return fmt.Sprint(v)
	case time.Time, toml.LocalDate, toml.LocalTime, toml.LocalDateTime:
		return "a date or time"
	}
	return v
}

// The tree that carries places holds the same values as the library's decoder
// reads, and refuses whatever that refuses.
func FuzzTreeAgreesWithTheDecoder(f *testing.F) {
	for _, seed := range []string{
		"a = 1\n[b]\nc = 'x'\n[b.d]\ne = [1, {f = 2.5}]\n",
		"a.b.c = true\na.b.d = 0x1F\n[[l]]\nx = 1\n[[l]]\nx = 2\n[l.sub]\ny = inf\n",
		"[a]\n[a.b]\n[a]\n", "[a]\nb = 1\n[a.b]\n", "a = {b = 1}\na.c = 2\n", "[[a]]\n[a]\n",
		"a.b = 1\n[a]\n", "[a.b]\n[a]\nb.c = 1\n", "\"quoted key\" = '''\nx'''\n", "d = 1979-05-27T07:32:00Z\n", "[x.y.z]\n[x]\n",
		"[fruit]\napple.color = 1\napple.taste.sweet = true\n[fruit.apple.texture]\nsmooth = true\n", "[fruit]\napple.taste.sweet = true\n[fruit.apple.taste]\n",
		"[a.b.c.d]\nz = 9\n[a]\nb.c.d.k.t = 8\n", "[a.b]\n[a]\nc.d = 1\nc.e = 2\n", "a.b = 1\na.b.c = 2\n", "[[a]]\nb.c = 1\n[[a]]\nb.c = 1\n[a.b.d]\n", "a = {b.c = 1, b.d = 2}\n", "a = {b = {c = 1}, b.d = 2}\n",
		"a = 1_000\nb = 1__0\n", "[[a.b]]\n[a.b.c]\n[[a.b]]\n[a.b.c]\n", "a = []\n[[a]]\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		data := []byte(text)
		c := &checker{file: "f", places: newPlaces(data)}
		tree := c.tree(data)
		var want map[string]any
		err := toml.Unmarshal(data, &want)
		if len(text) > maxPath {
			return // beyond what the tree bounds and the decoder does not
		}
		if (tree == nil) != (err != nil) {
			t.Fatalf("tree: %v; decoder: %v", c.problems, err)
		}
		if tree == nil {
			if len(c.problems) == 0 {
				t.Fatal("refused without a problem")
			}
			return
		}
		if d := cmp.Diff(normal(any(want)), plain(t, tree)); d != "" {
			t.Error(d)
		}
	})
}

func TestPlacesCountLinesAndCharacters(t *testing.T) {
	p := newPlaces([]byte("é = 1\nß\n\n"))
	for _, c := range []struct{ offset, line, column int }{{-1, 1, 1}, {0, 1, 1}, {2, 1, 2}, {6, 1, 6}, {7, 2, 1}, {9, 2, 2}, {10, 3, 1}, {11, 4, 1}, {99, 4, 1}} {
		if line, column := p.of(c.offset); line != c.line || column != c.column {
			t.Errorf("offset %d is %d:%d, want %d:%d", c.offset, line, column, c.line, c.column)
		}
	}
}

func TestAValueThatNestsTooDeepIsRefusedWhereItStands(t *testing.T) {
	deep := strings.Repeat("[", 400) + "1" + strings.Repeat("]", 400)
	for text, line := range map[string]int{
		"\n\nx = " + deep:                            3,
		"\n[a]\n\nx = [\n1,\n" + deep + "]":          4,
		"\nx." + strings.Repeat("a.", 600) + "a = 1": 2,
		"\n\n\n[" + strings.Repeat("a.", 600) + "a]": 4,
	} {
		_, report := Parse("jobs.toml", []byte(text))
		if report == nil || report.Problems[0].Code != CodeName || report.Problems[0].Line != line {
			t.Errorf("%.20q: %v, want it in line %d", text, report, line)
		}
	}
}
