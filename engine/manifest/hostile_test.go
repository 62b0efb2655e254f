package manifest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Any text is either a manifest or a report whose every problem has a place.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*/*.toml")
	if err != nil || len(files) == 0 {
		f.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, report := Parse("testdata/refuse/jobs.toml", data)
		if (m == nil) == (report == nil) {
			t.Fatalf("%v, %v", m, report)
		}
		if report == nil {
			for name, j := range m.Jobs {
				if _, ok := m.Queues[j.Queue]; !ok || name == "" || j.Timeout <= 0 || j.StepTimeout <= 0 || j.Retry.Attempts < 1 || m.Modules[j.Module].Name == "" {
					t.Fatalf("job %+v", j)
				}
			}
			return
		}
		last := Problem{}
		for _, p := range report.Problems {
			if p.Line < 1 || p.Column < 1 || p.Code == "" || p.Message == "" || p.Line < last.Line {
				t.Fatalf("%+v after %+v", p, last)
			}
			last = p
		}
		if len(report.Text()) == 0 || len(report.JSON()) < 10 || bytes.Count([]byte(report.GitHub()), []byte("\n")) != len(report.Problems) {
			t.Fatal("a rendering is not whole")
		}
	})
}

func BenchmarkLoad(b *testing.B) {
	for b.Loop() {
		if _, report := Load("testdata/ok/jobs.toml"); report != nil {
			b.Fatal(report)
		}
	}
}

// BenchmarkHostileFiles loads a megabyte each of what once took a minute, or
// all memory: none may cost more than a second.
func BenchmarkHostileFiles(b *testing.B) {
	fill := func(n int, line func(i int) string) string {
		var s strings.Builder
		for i := 0; s.Len() < n; i++ {
			s.WriteString(line(i))
		}
		return s.String()
	}
	const n = maxBytes - 1000
	for name, text := range map[string]string{
		"keys": "[runner]\n" + fill(n, func(i int) string { return fmt.Sprintf("k%d=1\n", i) }),
		"references": fill(n/2, func(i int) string { return fmt.Sprintf("[modules.m%d]\n", i) }) +
			fill(n/2, func(i int) string { return fmt.Sprintf("[jobs.j%d]\nmodule='x%d'\n", i, i) }),
		"dotted":    strings.Repeat("a.", n/2) + "b=1\n",
		"brackets":  "a=" + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + "\n",
		"one line":  "[modules.m.allow]\nhttp=[" + strings.Repeat("'x',", n/4) + "]\n",
		"repeated":  fill(n, func(int) string { return "a=1\n" }),
		"scheduled": minimal + "[schedules.s]\ncron='* * * * *'\ntz='UTC'\nenqueue=[{job='a',input={" + fill(n-1000, func(i int) string { return fmt.Sprintf("k%d=1,", i) }) + "}}]\n",
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				Parse("jobs.toml", []byte(text))
			}
		})
	}
}

func TestAReportIsBounded(t *testing.T) {
	_, report := Parse("jobs.toml", []byte(strings.Repeat("[queues.q]\n", 5000)))
	if report == nil || len(report.Problems) != maxProblems || report.More != 4999-maxProblems {
		t.Fatalf("%d problems and %d more", len(report.Problems), report.More)
	}
	if want := "4999 problems in jobs.toml\n"; !strings.HasSuffix(report.Text(), want) {
		t.Errorf("the text ends in %q", report.Text()[len(report.Text())-40:])
	}
}
