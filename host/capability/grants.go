package capability

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/jobrunner/runner/abi"
)

// CodeGrantInvalid: a grant does not mean anything.
const CodeGrantInvalid = "X_GRANT_INVALID"

// Grants are what one module was given. The zero value is nothing.
type Grants struct {
	HTTP    []string          // patterns of URLs
	Secrets []string          // names
	Env     map[string]string // variables, by name
}

// Key is the same text for grants that allow the same.
func (g Grants) Key() string {
	var b strings.Builder
	list := func(kind string, in []string) {
		in = slices.Compact(slices.Sorted(slices.Values(in)))
		for _, s := range in {
			b.WriteString(kind + strconv.Quote(s))
		}
	}
	list("h", g.HTTP)
	list("s", g.Secrets)
	list("e", g.environ())
	return b.String()
}

// environ are the variables as "name=value", sorted.
func (g Grants) environ() []string {
	var env []string
	for _, name := range slices.Sorted(maps.Keys(g.Env)) {
		env = append(env, name+"="+g.Env[name])
	}
	return env
}

func (g Grants) check() error {
	for name, value := range g.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(value, "\x00") {
			return &abi.Error{Code: CodeGrantInvalid, Message: "env: " + strconv.Quote(name) + " is no name of a variable, or its value has a NUL",
				Fix: "use a name without = and NUL"}
		}
	}
	for _, name := range g.Secrets {
		if name == "" || len(name) > abi.MaxName {
			return &abi.Error{Code: CodeGrantInvalid, Message: "secrets: " + strconv.Quote(name) + " is no name", Fix: "name a secret in 1 to 255 bytes"}
		}
	}
	return nil
}
