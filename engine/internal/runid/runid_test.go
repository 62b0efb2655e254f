package runid

import (
	"bytes"
	"strings"
	"testing"
)

func FuzzID(f *testing.F) {
	for _, s := range []string{"01970000-0000-7000-8000-0123456789ab", "01970000-0000-7000-8000-0123456789AB", "", "-", "01970000", strings.Repeat("0", 36)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		u, ok := Parse(s)
		if ok && u.String() != s {
			t.Fatalf("%q is kept as %q", s, u)
		}
		low, high, prefix := Range(s)
		if ok && (!prefix || low != u || high != u) {
			t.Fatalf("the range of the whole id %q is %s to %s", s, low, high)
		}
		if !prefix {
			return
		}
		if bytes.Compare(low[:], high[:]) > 0 {
			t.Fatalf("the range of %q is %s to %s", s, low, high)
		}
		if !strings.HasPrefix(low.String(), s) || !strings.HasPrefix(high.String(), s) {
			t.Fatalf("the range of %q is %s to %s", s, low, high)
		}
	})
}

func TestStoredOrderIsTextOrder(t *testing.T) {
	ids := []string{"01970000-0000-7000-8000-000000000009", "01970000-0000-7000-8000-00000000000a", "0197a000-0000-7000-8000-000000000000", "f0000000-0000-7000-8000-000000000000"}
	for i := 1; i < len(ids); i++ {
		a, _ := Parse(ids[i-1])
		b, _ := Parse(ids[i])
		if bytes.Compare(a[:], b[:]) >= 0 {
			t.Errorf("%s is stored after %s", ids[i-1], ids[i])
		}
	}
}
