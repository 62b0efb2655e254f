package manifest

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jobrunner/runner/abi"
)

var example = &Report{File: "a,b:c.toml", Problems: []Problem{
	{File: "a,b:c.toml", Line: 3, Column: 7, Code: CodeType, Key: "runner.lease", Message: "100% wrong\n::error::forged", Fix: "write it\r\nanew"},
	{File: "a,b:c.toml", Code: CodeFile, Message: "the manifest is a folder"},
}}

func TestReportAsText(t *testing.T) {
	want := "a,b:c.toml:3:7: X_MANIFEST_TYPE: 100% wrong\uFFFD::error::forged\n    write it\uFFFD\uFFFDanew\n" +
		"a,b:c.toml: X_MANIFEST_FILE: the manifest is a folder\n2 problems in a,b:c.toml\n"
	if d := cmp.Diff(want, example.Text()); d != "" {
		t.Error(d)
	}
}

// What a manifest holds cannot end its workflow command and begin another.
func TestReportForGitHub(t *testing.T) {
	want := "::error file=a%2Cb%3Ac.toml,line=3,col=7,title=X_MANIFEST_TYPE::100%25 wrong%0A::error::forged%0Awrite it%0D%0Aanew\n" +
		"::error file=a%2Cb%3Ac.toml,title=X_MANIFEST_FILE::the manifest is a folder\n"
	if d := cmp.Diff(want, example.GitHub()); d != "" {
		t.Error(d)
	}
}

func TestReportAsJSON(t *testing.T) {
	var back Report
	if err := json.Unmarshal(example.JSON(), &back); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(example, &back); d != "" {
		t.Error(d)
	}
}

func TestReportAnswersForEachOfItsProblems(t *testing.T) {
	err := example.Err()
	if !errors.Is(err, &abi.Error{Code: CodeFile}) || errors.Is(err, &abi.Error{Code: CodeCron}) {
		t.Error("the report is not its problems")
	}
	if got := abi.CodeOf(err); got != CodeType {
		t.Errorf("its code is %s, not that of the first problem", got)
	}
	if err := (*Report)(nil).Err(); err != nil {
		t.Errorf("no report is %v", err)
	}
}
