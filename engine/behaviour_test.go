package engine_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// docs/behaviour.md names the test that holds each rule: no test of that name, no
// rule. It leaves out no number: a rule that is not kept says why. And a test's comment that names a rule, as in (C7), names one of the page.
func TestEveryTestThatTheContractNamesExists(t *testing.T) {
	page, err := os.ReadFile("../docs/behaviour.md")
	if err != nil {
		t.Fatal(err)
	}
	folders := map[string]string{
		"sqlite": "store/sqlite", "postgres": "store/postgres", "postgres/outbox": "store/postgres/outbox", "engine": ".",
		"host": "../host", "host/instance": "../host/instance", "host/capability": "../host/capability", "guest": "../abi/guest",
		"cli": "../cmd/runner/internal/cli", "app": "../cmd/runner/internal/app", "chaostest": "../cmd/runner/internal/chaostest",
	}
	sources := map[string]string{}
	source := func(folder, pattern string) string {
		key := folder + "/" + pattern
		if _, ok := sources[key]; !ok {
			files, err := filepath.Glob(filepath.Join(folder, pattern))
			if err != nil || len(files) == 0 {
				t.Fatalf("no tests in %s, %v", folder, err)
			}
			var all strings.Builder
			for _, f := range files {
				text, err := os.ReadFile(f)
				if err != nil {
					t.Fatal(err)
				}
				all.Write(text)
			}
			sources[key] = all.String()
		}
		return sources[key]
	}
	seen, as := map[string]bool{}, map[string]string{} // as: what holds the rule that says it
	rules := 0
	heading, under := "", 1 // what the line is under, and how many rules were there
	for _, line := range append(strings.Split(string(page), "\n"), "## the end") {
		if h, ok := strings.CutPrefix(line, "## "); ok {
			if under == 0 {
				t.Errorf("there is no rule under %q", heading)
			}
			heading, under = h, 0
		}
		cells := strings.Split(line, " | ")
		if !strings.HasPrefix(line, "| ") || len(cells) != 3 || strings.HasPrefix(line, "| id ") {
			continue
		}
		rules++
		under++
		id, held := strings.TrimPrefix(cells[0], "| "), strings.TrimSuffix(cells[2], " |")
		if seen[id] {
			t.Errorf("two rules are called %s", id)
		}
		seen[id] = true
		names := regexp.MustCompile("`([a-z/]+): ([^`]+)`").FindAllStringSubmatch(held, -1)
		if other, ok := strings.CutPrefix(held, "as "); ok {
			as[id] = other
		} else if len(names) == 0 && held != "by construction" && held != "decided otherwise" && held != "not built" {
			t.Errorf("%s is held by %q", id, held)
		}
		for _, m := range names {
			room, name := m[1], m[2]
			if room == "store" {
				if !strings.Contains(source("store/storetest", "*.go"), `{"`+name+`", func`) {
					t.Errorf("%s: the suite of the stores has no case %q", id, name)
				}
				continue
			}
			folder, ok := folders[room]
			if !ok {
				folder = room
			}
			if !strings.Contains(source(folder, "*_test.go"), "func "+name+"(") {
				t.Errorf("%s: %s has no test %s", id, folder, name)
			}
		}
	}
	for id, other := range as {
		if !seen[other] || as[other] != "" {
			t.Errorf("%s is held as %s, which holds nothing itself", id, other)
		}
	}
	for id := range seen {
		letters := strings.TrimRight(id, "0123456789")
		if n, _ := strconv.Atoi(id[len(letters):]); n > 1 && !seen[letters+strconv.Itoa(n-1)] {
			t.Errorf("there is a rule %s, and none before it", id)
		}
	}
	cited := regexp.MustCompile(`// \(([A-Z]+[0-9]+(?:, [A-Z]+[0-9]+)*)\)`)
	err = filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range cited.FindAllStringSubmatch(string(text), -1) {
			for id := range strings.SplitSeq(m[1], ", ") {
				if !seen[id] {
					t.Errorf("%s names the rule %s, which the page does not have", path, id)
				}
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if rules < 400 {
		t.Errorf("%d rules were found: the page is not read as it is written", rules)
	}
}
