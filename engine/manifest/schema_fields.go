package manifest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// fieldProblem says why a template may not rely on a field of inputs that fit
// the schema: what it says of itself at load is not found out by the first
// customer whose input lacks it. "" is no problem, also for a nil schema.
func (s *Schema) fieldProblem(path []string) string {
	if s == nil {
		return ""
	}
	at := expand(s.compiled)
	for i, segment := range path {
		name := strings.Join(path[:i+1], ".")
		if !some(at, func(s *jsonschema.Schema) bool { return only(s, "object") }) {
			what := "the input"
			if i > 0 {
				what = strings.Join(path[:i], ".")
			}
			return fmt.Sprintf("the schema %s does not say that %s is an object", s.path, what)
		}
		var next []*jsonschema.Schema
		for _, a := range at {
			if p := a.Properties[segment]; p != nil {
				next = append(next, expand(p)...)
			}
		}
		if len(next) == 0 {
			var known []string
			for _, a := range at {
				for k := range a.Properties {
					known = append(known, k)
				}
			}
			hint := ""
			if h := didYouMean(segment, slices.Values(known)); h != "" {
				hint = "; " + h
			}
			return fmt.Sprintf("the schema %s has no property %s%s", s.path, name, hint)
		}
		if !some(at, func(s *jsonschema.Schema) bool {
			for _, r := range s.Required {
				if r == segment {
					return true
				}
			}
			return false
		}) {
			return fmt.Sprintf("the schema %s does not require %s", s.path, name)
		}
		at = next
	}
	if !some(at, scalar) {
		return fmt.Sprintf("the schema %s does not say that %s is a text, a number, true or false", s.path, strings.Join(path, "."))
	}
	return ""
}

func some(of []*jsonschema.Schema, is func(*jsonschema.Schema) bool) bool {
	for _, s := range of {
		if is(s) {
			return true
		}
	}
	return false
}

// expand is s and every schema that always applies with it: through $ref and
// allOf. anyOf, oneOf and if are not followed: a field that only some branches
// promise is not promised.
func expand(s *jsonschema.Schema) []*jsonschema.Schema {
	var all []*jsonschema.Schema
	seen := map[*jsonschema.Schema]bool{}
	var walk func(s *jsonschema.Schema)
	walk = func(s *jsonschema.Schema) {
		if s == nil || seen[s] {
			return
		}
		seen[s] = true
		all = append(all, s)
		walk(s.Ref)
		for _, a := range s.AllOf {
			walk(a)
		}
	}
	walk(s)
	return all
}

// only reports whether all values of s have one of the types.
func only(s *jsonschema.Schema, types ...string) bool {
	if s.Types == nil || s.Types.IsEmpty() {
		return false
	}
	for _, t := range s.Types.ToStrings() {
		ok := false
		for _, want := range types {
			ok = ok || t == want
		}
		if !ok {
			return false
		}
	}
	return true
}

// scalar reports whether s lets through texts, numbers and booleans only.
func scalar(s *jsonschema.Schema) bool {
	if only(s, "string", "number", "integer", "boolean") {
		return true
	}
	values := []any{}
	switch {
	case s.Const != nil:
		values = append(values, *s.Const)
	case s.Enum != nil:
		values = s.Enum.Values
	default:
		return false
	}
	for _, v := range values {
		switch v.(type) {
		case nil, map[string]any, []any:
			return false
		}
	}
	return true
}
