package cli

import (
	"bytes"
	"encoding/json"
	"go/format"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// block is a fenced block of a page.
type block struct {
	page, language, text string
	line                 int
}

var fenced = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")

// blocks are all of the documentation.
func blocks(t *testing.T) (out []block) {
	t.Helper()
	pages, err := filepath.Glob("../../../../docs/*.md")
	if err != nil || len(pages) < 10 {
		t.Fatal(pages, err)
	}
	for _, page := range append(pages, "../../../../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range fenced.FindAllSubmatchIndex(text, -1) {
			out = append(out, block{filepath.Base(page), string(text[m[2]:m[3]]), string(text[m[4]:m[5]]), 1 + bytes.Count(text[:m[0]], []byte("\n"))})
		}
	}
	return out
}

// heldElsewhere are blocks that a test of another room runs, by page and language.
var heldElsewhere = map[string]string{
	"events.md sql":    "engine/store/postgres: TestEventsOfThePageArePublished",
	"outbox.md sql":    "engine/store/postgres/outbox: TestExamplesOfThePage",
	"postgres.md sql":  "engine/store/postgres: TestDocumentedGrantsAreTheGrants",
	"abi.md wat":       "shape of a module, which the fixtures of abi/wasmasm build",
	"operating.md ini": "a unit of systemd, which no test starts",
}

// isThere reports whether a test that is named as room: name is.
func isThere(t *testing.T, held string) bool {
	room, name, _ := strings.Cut(held, ": ")
	files, err := filepath.Glob("../../../../" + room + "/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(text, []byte("func "+name+"(")) {
			return true
		}
	}
	return false
}

// Every block of the documentation is looked at by a test: commands are ones that
// there are, with their flags and arguments, Go and JSON are what they say they are,
// TOML is a manifest (package manifest), and the rest is held by a test that is named.
func TestEveryExampleOfTheDocumentationIsHeld(t *testing.T) {
	for what, held := range heldElsewhere {
		if strings.HasPrefix(held, "engine/") && !isThere(t, held) {
			t.Errorf("%s is held by %s, which is gone", what, held)
		}
	}
	for _, none := range []string{"jobs lists", "jobs ls --nope", "enqueue", "jobs ls --limit many"} {
		if isCommand(strings.Fields(none)) == nil {
			t.Fatalf("runner %s is taken for a command", none)
		}
	}
	commands := 0
	for _, b := range blocks(t) {
		fail := func(format string, args ...any) {
			t.Helper()
			t.Errorf("%s:%d: "+format, append([]any{b.page, b.line}, args...)...)
		}
		switch b.language {
		case "", "toml": // figures; manifest: TestSnippetsOfTheDocumentation
		case "sh", "console":
			for _, args := range commandsOf(b) {
				commands++
				if err := isCommand(args); err != nil {
					fail("runner %s: %v", strings.Join(args, " "), err)
				}
			}
		case "go":
			if _, err := format.Source([]byte(strings.ReplaceAll(b.text, "…", ""))); err != nil {
				fail("%v in\n%s", err, b.text)
			}
		case "json":
			if !json.Valid([]byte(b.text)) {
				fail("it is no JSON:\n%s", b.text)
			}
		default:
			if heldElsewhere[b.page+" "+b.language] == "" {
				fail("no test looks at a block of %s", b.language)
			}
		}
	}
	if commands < 25 {
		t.Errorf("only %d commands were found", commands)
	}
}

// commandsOf are the arguments of each runner that a block calls.
func commandsOf(b block) (out [][]string) {
	for line := range strings.Lines(strings.ReplaceAll(b.text, "\\\n", " ")) {
		if b.language == "console" {
			var typed bool
			if line, typed = strings.CutPrefix(line, "$ "); !typed {
				continue // what it answered
			}
		}
		words, taken := shellWords(line), -1
		for i, w := range words {
			switch {
			case w == "|" || w == "&&" || w == ";" || w == "&" || strings.HasPrefix(w, ">") || strings.HasPrefix(w, "2>"):
				if taken >= 0 {
					out = append(out, words[taken:i])
				}
				taken = -1
			case taken < 0 && (w == "runner" || strings.HasSuffix(w, "/runner")) && (i == 0 || starts(words[i-1])):
				taken = i + 1
			}
		}
		if taken >= 0 {
			out = append(out, words[taken:])
		}
	}
	return out
}

// starts reports whether the word after w may be a command.
func starts(w string) bool {
	return w == "|" || w == "&&" || w == ";" || regexp.MustCompile(`^[A-Z_]+=`).MatchString(w)
}

// shellWords are the words of a line, without its comment.
func shellWords(line string) (words []string) {
	word, open, quote := "", false, rune(0)
	for _, r := range strings.TrimSpace(line) {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word += string(r)
		case r == '\'' || r == '"':
			quote, open = r, true
		case r == ' ' || r == '\t':
			if open {
				words, word, open = append(words, word), "", false
			}
		case r == '#' && !open:
			return words
		default:
			word, open = word+string(r), true
		}
	}
	if open {
		words = append(words, word)
	}
	return words
}

// isCommand reports what of a command there is not.
func isCommand(args []string) error {
	cmd, rest, err := newRoot(testEnv()).Find(args)
	if err != nil {
		return err
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	if left := cmd.Flags().Args(); cmd.HasSubCommands() && len(left) > 0 {
		return noCommand(cmd, left[0])
	} else if cmd.Args != nil {
		return cmd.Args(cmd, left)
	}
	return nil
}

// passing is what is another each time: ids, times, how long ago, numbers.
var passing = []*regexp.Regexp{
	regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`),
	regexp.MustCompile(`20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z`),
	regexp.MustCompile(`[0-9]+(\.[0-9]+)?(ms|[smhd])([0-9]+[smh])?`),
	regexp.MustCompile(`[0-9]+`),
	regexp.MustCompile(` +`),
}

func lasting(s string) string {
	for i, p := range passing {
		s = p.ReplaceAllString(s, []string{"ID", "TIME", "AGO", "N", " "}[i])
	}
	return s
}

// What docs/limits.md and docs/commands.md show of a console is what the commands answer.
func TestExamplesOfTheConsole(t *testing.T) {
	shown := blocks(t)
	f := newFront(t, "")
	t.Chdir(f.dir)
	ran := map[string]int{}
	for _, b := range shown {
		if b.page != "limits.md" && b.page != "commands.md" || b.language != "console" {
			continue
		}
		for _, example := range strings.Split("\n"+b.text, "\n$ ")[1:] {
			typed, want, _ := strings.Cut(strings.TrimRight(example, "\n")+"\n", "\n")
			code, out, errs := f.run(shellWords(strings.TrimPrefix(typed, "runner "))...)
			if ran[b.page]++; code != exitOK || want != "" && lasting(out) != lasting(want) {
				t.Errorf("$ %s\nexit code %d, %s%s\nthe page says:\n%s", typed, code, out, errs, want)
			}
		}
	}
	if ran["limits.md"] < 3 || ran["commands.md"] < 3 {
		t.Errorf("these commands were run: %v", ran)
	}
}
