// Package sqltext reads the statements of a store from its .sql files, where each
// has a name and what several have in common is written once. It knows no dialect:
// what else stands in braces is the store's to fill in.
//
//	-- name: get_run
//	SELECT {run} FROM runs WHERE id = ?
//
//	-- define: run
//	id, job, state
//
// Comments and empty lines are left out.
package sqltext

import (
	"fmt"
	"io/fs"
	"strings"
)

// Statement is one named statement.
type Statement struct{ Name, Text string }

// Load reads the .sql files at the root of files, in the order of their names. A
// define serves the statements of all files; it is answered as it was written.
// An error means that the program was built wrong: a name stands twice, or a file
// cannot be read.
func Load(files fs.FS) (all []Statement, defines map[string]string, err error) {
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		return nil, nil, err
	}
	defines = map[string]string{}
	seen := map[string]bool{}
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, nil, err
		}
		for _, st := range parse(string(text), defines) {
			if seen[st.Name] {
				return nil, nil, fmt.Errorf("two statements are named %s", st.Name)
			}
			seen[st.Name] = true
			all = append(all, st)
		}
	}
	for i := range all {
		all[i].Text = expand(all[i].Text, defines)
	}
	return all, defines, nil
}

// maxNesting is how deep defines may use one another.
const maxNesting = 3

func expand(text string, defines map[string]string) string {
	for range maxNesting {
		for name, d := range defines {
			text = strings.ReplaceAll(text, "{"+name+"}", d)
		}
	}
	return text
}

// parse cuts a file at its "-- name: NAME" lines, and adds what its
// "-- define: NAME" lines begin to defines.
func parse(text string, defines map[string]string) []Statement {
	var out []Statement
	var add func(line string)
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \t\r\n")
		if name, ok := strings.CutPrefix(line, "-- name: "); ok {
			out = append(out, Statement{Name: name})
			add = func(line string) { out[len(out)-1].Text += line + "\n" }
			continue
		}
		if name, ok := strings.CutPrefix(line, "-- define: "); ok {
			add = func(line string) { defines[name] += line + "\n" }
			continue
		}
		if strings.HasPrefix(strings.TrimSpace(line), "--") || line == "" || add == nil {
			continue
		}
		add(line)
	}
	return out
}
