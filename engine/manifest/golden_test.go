package manifest

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jobrunner/runner/engine/job"
)

var update = flag.Bool("update", false, "write the golden reports instead of comparing them")

// Every testdata/refuse/NAME.toml is refused with exactly the report in NAME.txt.
func TestRefusals(t *testing.T) {
	files, err := filepath.Glob("testdata/refuse/*.toml")
	if err != nil || len(files) < 30 {
		t.Fatalf("found %d manifests, %v", len(files), err)
	}
	codes := map[string]bool{}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".toml"), func(t *testing.T) {
			m, report := Load(file)
			if report == nil || m != nil {
				t.Fatalf("accepted: %+v", m)
			}
			for _, p := range report.Problems {
				codes[p.Code] = true
				if p.Line == 0 || p.Column == 0 || p.Message == "" {
					t.Errorf("problem without a place or a text: %+v", p)
				}
			}
			got := strings.ReplaceAll(report.Text(), "testdata/refuse/", "")
			golden := strings.TrimSuffix(file, ".toml") + ".txt"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), got); d != "" {
				t.Errorf("report (-want +got):\n%s", d)
			}
		})
	}
	for _, code := range []string{
		CodeCron, CodeDeclaration, CodeDuplicate, CodeFile, CodeKeyRequired, CodeModule, CodeName, CodeReference, CodeRequired, CodeSchema,
		CodeSyntax, CodeTemplate, CodeTenantMissing, CodeType, CodeUnknownKey, CodeValue, CodeZone, job.CodeDuplicate, job.CodeInputInvalid,
	} {
		if !codes[code] {
			t.Errorf("no refusal shows %s", code)
		}
	}
}
