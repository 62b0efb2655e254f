package guest

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"
)

type node struct {
	Name     string
	Children []node
	Parent   *node
	ByName   map[string]*node
	Any      any
	Raw      json.RawMessage
	At       time.Time
	Bytes    []byte
	Pair     [2]*int
	Func     func() `json:"-"`
	hidden   *int
}

// temperamental panics whenever JSON looks at it.
type temperamental struct{}

func (temperamental) MarshalJSON() ([]byte, error) { panic("not now") }

func TestWarmUpBearsAnyTypeAndCallsNoHandler(t *testing.T) {
	called := false
	Job(t.Name(), func(*Ctx, node) (temperamental, error) {
		called = true
		return temperamental{}, nil
	})
	Warm[*node]()
	Warm[chan int]()
	Warm[func()]()
	Warm[any]()
	Warm[map[string][]map[int]*node]()
	if got := warm(); got != 0 || called {
		t.Errorf("answered %d, handler called %v", got, called)
	}
}

func TestFillReachesEveryTypeOnceAndEnds(t *testing.T) {
	var n node
	fill(reflect.ValueOf(&n).Elem(), 0)
	if len(n.Children) != 1 || n.Parent == nil || len(n.ByName) != 1 || n.Pair[0] == nil || n.hidden != nil || n.Raw != nil {
		t.Errorf("%+v", n)
	}
	b, err := json.Marshal(n)
	if err != nil {
		t.Fatal(err)
	}
	var again node
	if err := json.Unmarshal(b, &again); err != nil {
		t.Error(err)
	}
}
