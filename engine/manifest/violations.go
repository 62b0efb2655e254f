package manifest

import (
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	violated "github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// maxViolations bounds what one refusal lists; the rest is counted.
const maxViolations = 8

// violations are the leaves of a validation error in words, sorted by place:
// the library walks maps, so its own order differs from run to run.
func violations(err *jsonschema.ValidationError) []string {
	var all []string
	collect(err, &all)
	slices.Sort(all)
	all = slices.Compact(all)
	if extra := len(all) - maxViolations; extra > 0 {
		all = append(all[:maxViolations], fmt.Sprintf("and %d more", extra))
	}
	return all
}

func collect(err *jsonschema.ValidationError, all *[]string) {
	// Of alternatives, or of items, each failed in its own way: to list them all
	// says less.
	switch err.ErrorKind.(type) {
	case *violated.AnyOf, *violated.OneOf, *violated.Contains, *violated.MinContains:
	default:
		if len(err.Causes) > 0 {
			for _, c := range err.Causes {
				collect(c, all)
			}
			return
		}
	}
	*all = append(*all, pointer(err.InstanceLocation)+" "+inWords(err))
}

// pointer is a JSON Pointer for a person, bounded.
func pointer(tokens []string) string {
	if len(tokens) == 0 {
		return "it"
	}
	var b strings.Builder
	for i, t := range tokens {
		if i == 12 {
			b.WriteString("/…")
			break
		}
		b.WriteByte('/')
		b.WriteString(clip(strings.NewReplacer("~", "~0", "/", "~1").Replace(t)))
	}
	return b.String()
}

// inWords says what is wrong at a place. The texts are ours because the
// library's repeat the value, and a value may be a secret.
func inWords(err *jsonschema.ValidationError) string {
	switch k := err.ErrorKind.(type) {
	case *violated.Type:
		want := make([]string, len(k.Want))
		for i, typ := range k.Want {
			want[i] = article(typ)
		}
		return "must be " + strings.Join(want, " or ") + ", not " + article(k.Got)
	case *violated.Required:
		return "lacks " + names(k.Missing)
	case *violated.AdditionalProperties:
		return "may not hold " + names(k.Properties)
	case *violated.Enum:
		return "must be one of " + values(k.Want)
	case *violated.Const:
		return "must be " + values([]any{k.Want})
	case *violated.Format:
		return "must be a valid " + k.Want
	case *violated.Pattern:
		return "must match the pattern " + clip(k.Want)
	case *violated.MinLength:
		return fmt.Sprintf("must be at least %d characters long, not %d", k.Want, k.Got)
	case *violated.MaxLength:
		return fmt.Sprintf("must be at most %d characters long, not %d", k.Want, k.Got)
	case *violated.Minimum:
		return "must be at least " + number(k.Want)
	case *violated.Maximum:
		return "must be at most " + number(k.Want)
	case *violated.ExclusiveMinimum:
		return "must be more than " + number(k.Want)
	case *violated.ExclusiveMaximum:
		return "must be less than " + number(k.Want)
	case *violated.MultipleOf:
		return "must be a multiple of " + number(k.Want)
	case *violated.MinItems:
		return fmt.Sprintf("must hold at least %d items, not %d", k.Want, k.Got)
	case *violated.MaxItems:
		return fmt.Sprintf("must hold at most %d items, not %d", k.Want, k.Got)
	case *violated.MinProperties:
		return fmt.Sprintf("must hold at least %d properties, not %d", k.Want, k.Got)
	case *violated.MaxProperties:
		return fmt.Sprintf("must hold at most %d properties, not %d", k.Want, k.Got)
	case *violated.UniqueItems:
		return fmt.Sprintf("holds the same item at %d and %d", k.Duplicates[0], k.Duplicates[1])
	case *violated.Contains, *violated.MinContains:
		return "lacks an item that the schema asks for (contains)"
	case *violated.MaxContains:
		return "holds too many items of one sort (maxContains)"
	case *violated.DependentRequired:
		return fmt.Sprintf("lacks %s, which go with %s", names(k.Missing), clip(k.Prop))
	case *violated.PropertyNames:
		return "may not hold a property of the name " + clip(k.Property)
	case *violated.AnyOf:
		return "fits none of the alternatives (anyOf)"
	case *violated.OneOf:
		if len(k.Subschemas) > 0 {
			return "fits more than one of the alternatives (oneOf)"
		}
		return "fits none of the alternatives (oneOf)"
	case *violated.Not:
		return "fits what the schema excludes (not)"
	case *violated.FalseSchema:
		return "may not be there"
	}
	return "does not fit " + strings.Join(err.ErrorKind.KeywordPath(), " ")
}

func article(typ string) string {
	switch {
	case typ == "null":
		return typ
	case strings.HasPrefix(typ, "a"), strings.HasPrefix(typ, "o"), strings.HasPrefix(typ, "i"):
		return "an " + typ
	}
	return "a " + typ
}

// names lists properties, sorted and bounded.
func names(of []string) string {
	of = slices.Clone(of)
	slices.Sort(of)
	more := ""
	if len(of) > maxViolations {
		more = fmt.Sprintf(" and %d more", len(of)-maxViolations)
		of = of[:maxViolations]
	}
	for i := range of {
		of[i] = clip(of[i])
	}
	return strings.Join(of, ", ") + more
}

// values lists what a schema allows.
func values(of []any) string {
	var texts []string
	for i, v := range of {
		if i == maxViolations {
			texts = append(texts, "…")
			break
		}
		switch v := v.(type) {
		case string:
			texts = append(texts, quote(v))
		case nil:
			texts = append(texts, "null")
		case map[string]any:
			texts = append(texts, "an object")
		case []any:
			texts = append(texts, "a list")
		default:
			texts = append(texts, clip(fmt.Sprint(v)))
		}
	}
	return strings.Join(texts, ", ")
}

func number(r *big.Rat) string {
	if r.IsInt() {
		return clip(r.Num().String())
	}
	f, _ := r.Float64()
	return strconv.FormatFloat(f, 'g', -1, 64)
}
