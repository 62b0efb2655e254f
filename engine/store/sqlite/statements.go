package sqlite

import (
	"embed"
	"strings"
)

//go:embed *.sql
var sqlFiles embed.FS

// statement is one named statement of a .sql file. Connections prepare it when
// first used and keep it by its index.
type statement struct {
	name  string
	text  string
	index int
}

// statements are all named statements and defines the texts that they share;
// both are complete before named first returns.
var statements, defines = loadStatements()

// named returns the statement of that name. It panics during initialisation,
// before any database is touched, if no .sql file has it.
func named(name string) *statement {
	st := statements[name]
	if st == nil {
		panic("sqlite: no statement is named " + name)
	}
	return st
}

func loadStatements() (out map[string]*statement, defines map[string]string) {
	out = map[string]*statement{}
	files, err := sqlFiles.ReadDir(".")
	if err != nil {
		panic(err)
	}
	defines = map[string]string{}
	for _, f := range files {
		text, err := sqlFiles.ReadFile(f.Name())
		if err != nil {
			panic(err)
		}
		for _, st := range parseStatements(string(text), defines) {
			if out[st.name] != nil {
				panic("sqlite: two statements are named " + st.name)
			}
			st.index = len(out)
			out[st.name] = st
		}
	}
	for _, st := range out {
		for name, text := range defines {
			st.text = strings.ReplaceAll(st.text, "{"+name+"}", text)
		}
		if strings.Contains(st.text, "{") {
			panic("sqlite: statement " + st.name + " uses a name that no file defines")
		}
	}
	return out, defines
}

// parseStatements cuts a .sql file at its "-- name: NAME" lines, and adds the
// texts of its "-- define: NAME" blocks to defines: what "{NAME}" stands for in
// statements of any file, so that a projection is written once.
func parseStatements(text string, defines map[string]string) []*statement {
	var out []*statement
	var add func(line string)
	for _, line := range strings.Split(text, "\n") {
		line = strings.TrimRight(line, " \t\r")
		if name, ok := strings.CutPrefix(line, "-- name: "); ok {
			st := &statement{name: name}
			out = append(out, st)
			add = func(line string) { st.text += line + "\n" }
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
