package manifest

import (
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// nameProblem says what is wrong with the name of a job, queue, module or
// schedule; "" is nothing. Names are durable keys, URL segments, metric labels
// and file names at once, hence the narrow alphabet.
func nameProblem(name string) string {
	switch {
	case name == "":
		return "is empty"
	case len(name) > maxName:
		return fmt.Sprintf("is %d bytes long", len(name))
	}
	for i := range len(name) {
		switch b := name[i]; {
		case b >= 'a' && b <= 'z', b >= '0' && b <= '9':
		case i > 0 && (b == '.' || b == '_' || b == '-'):
		case b >= 'A' && b <= 'Z':
			return "holds a capital letter"
		case i == 0:
			return "starts with neither a letter nor a digit"
		default:
			r, _ := utf8.DecodeRuneInString(name[i:])
			return fmt.Sprintf("holds %q", r)
		}
	}
	return ""
}

const maxName = 100

// words joins alternatives as in `a, b or c`.
func words(of []string) string {
	of = slices.Clone(of)
	slices.Sort(of)
	of = slices.Compact(of)
	switch len(of) {
	case 0:
		return "nothing"
	case 1:
		return of[0]
	}
	return strings.Join(of[:len(of)-1], ", ") + " or " + of[len(of)-1]
}

// suggest is didYouMean for the first problems of a file. Past those nobody
// reads the suggestions, and to look for one is what costs time in a file that
// is all problems.
func (c *checker) suggest(got string, known iter.Seq[string]) string {
	if len(c.problems) > 100 {
		return ""
	}
	return didYouMean(got, known)
}

var separators = strings.NewReplacer("-", "", "_", "", ".", "")

// didYouMean is a fix that names the closest of the known words, or "".
// Of very many it looks at some.
func didYouMean(got string, known iter.Seq[string]) string {
	if len(got) > 2*maxName {
		return ""
	}
	best, distance := "", math.MaxInt
	plain := func(s string) string { return separators.Replace(strings.ToLower(s)) }
	got = plain(got)
	n := 0
	for k := range known {
		if n++; n > 2000 {
			break
		}
		d := editDistance(got, plain(k))
		if d < distance || d == distance && k < best {
			best, distance = k, d
		}
	}
	if best == "" || distance > max(1, len(best)/3) {
		return ""
	}
	return "did you mean " + best + "?"
}

// editDistance counts the insertions, deletions, replacements and swaps of
// neighbours between a and b.
func editDistance(a, b string) int {
	prev2, prev, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(prev[j]+1, row[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], prev2[j-2]+1)
			}
		}
		prev2, prev, row = prev, row, prev2
	}
	return prev[len(b)]
}
