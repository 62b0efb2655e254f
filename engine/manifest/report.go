package manifest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/jobrunner/runner/abi"
)

// Problem is one thing wrong with a manifest, with its place.
type Problem struct {
	File    string `json:"file"`             // as the path was given to Load
	Line    int    `json:"line,omitempty"`   // from 1; 0 when the whole file is meant
	Column  int    `json:"column,omitempty"` // from 1, in characters
	Code    string `json:"code"`
	Key     string `json:"key,omitempty"` // dotted, as in jobs.onboard.timeout
	Message string `json:"message"`
	Fix     string `json:"fix,omitempty"`
}

// Place is file:line:column, as far as they are known.
func (p Problem) Place() string {
	switch {
	case p.Line == 0:
		return p.File
	case p.Column == 0:
		return fmt.Sprintf("%s:%d", p.File, p.Line)
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// Err is the problem as the error that the rest of the runner speaks.
func (p Problem) Err() *abi.Error {
	return &abi.Error{Code: p.Code, Message: p.Place() + ": " + p.Message, Fix: p.Fix}
}

// Report is every problem of one manifest, sorted by place. It is an error; a
// Report without problems is never returned.
type Report struct {
	File     string    `json:"file"`
	Problems []Problem `json:"problems"`
	More     int       `json:"more,omitempty"` // found beyond the first thousand and not listed
}

// Error is the text rendering without its last newline.
func (r *Report) Error() string { return strings.TrimSuffix(r.Text(), "\n") }

// Unwrap answers errors.Is and errors.As with each problem as an *abi.Error.
func (r *Report) Unwrap() []error {
	errs := make([]error, len(r.Problems))
	for i, p := range r.Problems {
		errs[i] = p.Err()
	}
	return errs
}

// Err is r as an error, nil for a nil report: what to return from a function
// whose result is an error, since a nil *Report in an error is not nil.
func (r *Report) Err() error {
	if r == nil {
		return nil
	}
	return r
}

// Text is the report for a person: a line for each problem, the fix beneath.
func (r *Report) Text() string {
	var b strings.Builder
	for _, p := range r.Problems {
		fmt.Fprintf(&b, "%s: %s: %s\n", p.Place(), p.Code, oneLine(p.Message))
		if p.Fix != "" {
			fmt.Fprintf(&b, "    %s\n", oneLine(p.Fix))
		}
	}
	if n := len(r.Problems) + r.More; n > 1 {
		fmt.Fprintf(&b, "%d problems in %s\n", n, r.File)
	}
	return b.String()
}

// JSON is the report for a program.
func (r *Report) JSON() []byte {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil { // strings and numbers only: cannot happen
		return []byte(`{}`)
	}
	return append(b, '\n')
}

// GitHub is the report as workflow commands, which GitHub shows beside the
// line that each is about.
func (r *Report) GitHub() string {
	var b strings.Builder
	for _, p := range r.Problems {
		b.WriteString("::error file=" + githubProperty(p.File))
		if p.Line > 0 {
			fmt.Fprintf(&b, ",line=%d", p.Line)
		}
		if p.Column > 0 {
			fmt.Fprintf(&b, ",col=%d", p.Column)
		}
		text := p.Message
		if p.Fix != "" {
			text += "\n" + p.Fix
		}
		b.WriteString(",title=" + githubProperty(p.Code) + "::" + githubData(text) + "\n")
	}
	return b.String()
}

// A workflow command ends at its line's end, and a file name or a message may
// hold anything: these two escapes are all that keeps a manifest from writing
// commands of its own into a build's log.
var (
	githubDataEscapes     = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	githubPropertyEscapes = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)

func githubData(s string) string     { return githubDataEscapes.Replace(s) }
func githubProperty(s string) string { return githubPropertyEscapes.Replace(s) }

// oneLine keeps a text from a file out of the next line and off the terminal's
// control sequences.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == 0x85 || r == 0x9b || r == 0x2028 || r == 0x2029 {
			return '\uFFFD'
		}
		return r
	}, s)
}

func sortProblems(ps []Problem) {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		if a.Column != b.Column {
			return a.Column - b.Column
		}
		if c := strings.Compare(a.Key, b.Key); c != 0 {
			return c
		}
		return strings.Compare(a.Message, b.Message)
	})
}
