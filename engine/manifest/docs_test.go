package manifest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	tomlBlock   = regexp.MustCompile("(?ms)^```toml\n(.*?)^```")
	namedModule = regexp.MustCompile(`(?m)^module = "([^"]+)"`)
	namedSchema = regexp.MustCompile(`(?m)^input = "([^"]+)"`)
)

// What a reader may copy out of the documentation is a manifest. A block that
// shows a part gets the modules and schemas that it names.
func TestSnippetsOfTheDocumentation(t *testing.T) {
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	blocks := 0
	for _, file := range append(files, "../../README.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range tomlBlock.FindAllSubmatchIndex(text, -1) {
			blocks++
			block := string(text[m[2]:m[3]])
			for _, name := range namedModule.FindAllStringSubmatch(block, -1) {
				if table := "[modules." + name[1] + "]"; !strings.Contains(block, table) {
					block += table + "\npath = \"m.wasm\"\n"
				}
			}
			dir := t.TempDir()
			for _, name := range namedSchema.FindAllStringSubmatch(block, -1) {
				fields := []string{}
				for _, f := range regexp.MustCompile(`\{(\w+)\}`).FindAllStringSubmatch(block, -1) {
					fields = append(fields, `"`+f[1]+`"`)
				}
				props := strings.Join(fields, `:{"type":"string"},`)
				if props != "" {
					props += `:{"type":"string"}`
				}
				schema := `{"type":"object","required":[` + strings.Join(fields, ",") + `],"properties":{` + props + `}}`
				path := filepath.Join(dir, name[1])
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(schema), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if _, report := Parse(filepath.Join(dir, "jobs.toml"), []byte(block)); report != nil {
				line := 1 + strings.Count(string(text[:m[2]]), "\n")
				t.Errorf("%s, the block at line %d:\n%s\n%s", file, line, block, report.Text())
			}
		}
	}
	if blocks < 4 {
		t.Errorf("found %d blocks", blocks)
	}
}

func TestEveryKeyAndCodeIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/manifest.md")
	if err != nil {
		t.Fatal(err)
	}
	refusals, err := filepath.Glob("testdata/refuse/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	codes := regexp.MustCompile(`\bX_[A-Z_]+`)
	for _, file := range refusals {
		report, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, code := range codes.FindAllString(string(report), -1) {
			if !strings.Contains(string(text), "`"+code+"`") {
				t.Errorf("docs/manifest.md does not explain %s", code)
			}
		}
		// Unknown keys are answered with all that a table may hold.
		for _, list := range regexp.MustCompile(`it may hold (.*)`).FindAllStringSubmatch(string(report), -1) {
			for key := range strings.FieldsFuncSeq(strings.ReplaceAll(list[1], " or ", " "), func(r rune) bool { return r == ',' || r == ' ' }) {
				if !strings.Contains(string(text), "`"+key+"`") && !strings.Contains(string(text), "["+key) {
					t.Errorf("docs/manifest.md does not explain the key %s", key)
				}
			}
		}
	}
}

// The manifest at the root is the first that a newcomer reads.
func TestTheExamplesManifest(t *testing.T) {
	if _, report := Load("../../jobs.toml"); report != nil {
		t.Error(report)
	}
}
