package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"
)

// style colours text when it goes to a terminal.
type style struct{ on bool }

// styleOf is on for a terminal, unless NO_COLOR or TERM=dumb ask otherwise.
func styleOf(w io.Writer, getenv func(string) string) style {
	f, ok := w.(*os.File)
	return style{on: ok && isatty.IsTerminal(f.Fd()) && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"}
}

func (s style) paint(code, text string) string {
	if !s.on || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (s style) red(t string) string    { return s.paint("31", t) }
func (s style) green(t string) string  { return s.paint("32", t) }
func (s style) yellow(t string) string { return s.paint("33", t) }
func (s style) dim(t string) string    { return s.paint("2", t) }
func (s style) bold(t string) string   { return s.paint("1", t) }

// state colours a run's or a step's state.
func (s style) state(t string) string {
	switch t {
	case "done", "completed":
		return s.green(t)
	case "dead", "failed", "dead-lettered", "dropped", "orphaned":
		return s.red(t)
	case "running", "retrying", "retried", "delayed", "cancelled":
		return s.yellow(t)
	}
	return t
}

// printable replaces control characters other than the line break and the tab, and
// those that reorder or hide what stands beside them, so that a name or a message
// from elsewhere cannot drive the terminal, or look like another.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return r
		}
		if unicode.IsControl(r) || r == utf8.RuneError || unicode.Is(unicode.Bidi_Control, r) || strings.ContainsRune(invisible, r) {
			return '\uFFFD'
		}
		return r
	}, s)
}

// invisible are separators of lines, and spaces without a width. Those that join
// or part letters of a script are not among them.
const invisible = "\u2028\u2029\u200b\u2060\ufeff"

// cell is one line of printable text.
func cell(s string) string {
	return strings.NewReplacer("\n", " ", "\t", " ").Replace(printable(s))
}

// table prints columns as wide as their widest cell; the last is not padded.
type table struct {
	head []string
	rows [][]string
}

func (t *table) row(cells ...string) { t.rows = append(t.rows, cells) }

// print writes the table; paint, when not nil, colours a padded cell of the
// column.
func (t *table) print(w io.Writer, s style, paint func(column int, text string) string) {
	width := make([]int, len(t.head))
	for i, h := range t.head {
		width[i] = utf8.RuneCountInString(h)
	}
	for _, r := range t.rows {
		for i := range r {
			r[i] = cell(r[i])
			width[i] = max(width[i], utf8.RuneCountInString(r[i]))
		}
	}
	line := func(cells []string, paint func(int, string) string) {
		var b strings.Builder
		for i, c := range cells {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(c)+2)
			if i == len(cells)-1 {
				pad = ""
			}
			if paint != nil {
				c = paint(i, c)
			}
			b.WriteString(c + pad)
		}
		_, _ = fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
	}
	line(t.head, func(_ int, c string) string { return s.dim(c) })
	for _, r := range t.rows {
		line(r, paint)
	}
}

// printJSON writes v as one indented document.
func printJSON(w io.Writer, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(printableJSON(b.Bytes()))
	return err
}

// printableJSON is the same JSON with what could drive a terminal, or hide, escaped. Below
// U+0020 JSON allows none, and of the rest they stand in texts alone.
func printableJSON(b []byte) []byte {
	drives := func(r rune) bool {
		return r >= 0x7f && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || strings.ContainsRune(invisible, r))
	}
	if !bytes.ContainsFunc(b, drives) {
		return b
	}
	var out bytes.Buffer
	for _, r := range string(b) {
		if drives(r) {
			fmt.Fprintf(&out, `\u%04x`, r)
			continue
		}
		out.WriteRune(r)
	}
	return out.Bytes()
}

// note says something beside the answer on stderr: to a person, since with --json
// it is in the answer.
func (e *env) note(format string, args ...any) {
	if !e.json {
		_, _ = fmt.Fprintln(e.Stderr, oneLine(fmt.Sprintf(format, args...)))
	}
}

// noteMore says how the page after the one that ends with next is had; "" is none.
func (e *env) noteMore(cmd *cobra.Command, next string) {
	if next != "" {
		e.note("more: %s", again(cmd, "--before", next))
	}
}

// ago is how long t lies before now, coarse: "3m", "2h", "in 5s", "-" for never.
func ago(now, t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	d := now.Sub(t)
	if d < 0 {
		return "in " + short(-d)
	}
	return short(d)
}

// short is a duration in its largest unit that fits, as people say it.
func short(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return trimZero(fmt.Sprintf("%.1f", d.Seconds())) + "s"
	case d < time.Hour:
		return pair(int(d/time.Minute), "m", int(d%time.Minute/time.Second), "s")
	case d < 24*time.Hour:
		return pair(int(d/time.Hour), "h", int(d%time.Hour/time.Minute), "m")
	}
	return pair(int(d/(24*time.Hour)), "d", int(d%(24*time.Hour)/time.Hour), "h")
}

func pair(a int, ua string, b int, ub string) string {
	if b == 0 {
		return fmt.Sprintf("%d%s", a, ua)
	}
	return fmt.Sprintf("%d%s%d%s", a, ua, b, ub)
}

func trimZero(s string) string { return strings.TrimSuffix(s, ".0") }

// instant is how a time is printed: UTC, to the millisecond, as it is stored.
func instant(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
