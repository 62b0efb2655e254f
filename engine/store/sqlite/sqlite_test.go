package sqlite

import (
	"testing"
)

func open(t testing.TB, cfg Config) *Store {
	t.Helper()
	cfg.Create = true
	s, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Every statement of the .sql files prepares against the latest schema, so none
// waits for its first use to be found wrong.
func TestStatementsPrepare(t *testing.T) {
	s := open(t, Config{Path: Memory})
	err := s.w.do(t.Context(), func(tx *tx) error {
		for name, st := range statements {
			if q := tx.use(st); q.err != nil {
				t.Errorf("%s: %v", name, q.err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
