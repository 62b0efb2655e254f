package sqltext

import (
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

func files(texts map[string]string) fstest.MapFS {
	out := fstest.MapFS{}
	for name, text := range texts {
		out[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return out
}

func TestStatementsOfAllFilesShareTheirDefines(t *testing.T) {
	all, defines, err := Load(files(map[string]string{
		"b.sql":            "-- Why there is a file.\n-- name: get\nSELECT {run}\n  -- only this one\n\nFROM {schema}.runs\r\n-- name: none\nSELECT 1\n",
		"a.sql":            "-- define: run\nid, {more}\n-- define: more\njob\n-- name: first\nSELECT {more}\n",
		"migrations/1.sql": "-- name: get\nSELECT 2\n",
		"notes.txt":        "-- name: get\n",
	}))
	if err != nil {
		t.Fatal(err)
	}
	want := []Statement{{"first", "SELECT job\n\n"}, {"get", "SELECT id, job\n\n\nFROM {schema}.runs\n"}, {"none", "SELECT 1\n"}}
	if d := cmp.Diff(want, all); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(map[string]string{"run": "id, {more}\n", "more": "job\n"}, defines); d != "" {
		t.Error(d)
	}
}

func TestTwoStatementsOfOneNameAreRefused(t *testing.T) {
	if all, _, err := Load(files(map[string]string{"a.sql": "-- name: get\nSELECT 1\n", "b.sql": "-- name: get\nSELECT 2\n"})); err == nil {
		t.Errorf("loaded %v", all)
	}
}
