package sqlite

import (
	"embed"
	"strings"

	"github.com/jobrunner/runner/engine/internal/sqltext"
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
	all, defines, err := sqltext.Load(sqlFiles)
	if err != nil {
		panic("sqlite: " + err.Error())
	}
	out = make(map[string]*statement, len(all))
	for i, st := range all {
		if strings.Contains(st.Text, "{") {
			panic("sqlite: statement " + st.Name + " uses a name that no file defines")
		}
		out[st.Name] = &statement{name: st.Name, text: st.Text, index: i}
	}
	return out, defines
}
