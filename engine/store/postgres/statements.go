package postgres

import (
	"embed"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/jobrunner/runner/engine/internal/sqltext"
)

//go:embed *.sql
var sqlFiles embed.FS

// statement is one named statement of a .sql file, in which {schema} and {now}
// stand for what a Config says. A Store keeps the finished texts by index.
// An EXISTS that is not a condition of its own has OFFSET 0, so that no version of
// Postgres hashes a table to look one row up; a test sees to it.
type statement struct {
	name  string
	text  string
	index int
}

// statements are all named statements; complete before named first returns.
var statements, defines = loadStatements()

// named returns the statement of that name. It panics during initialisation,
// before any database is touched, if no .sql file has it.
func named(name string) *statement {
	st := statements[name]
	if st == nil {
		panic("postgres: no statement is named " + name)
	}
	return st
}

func loadStatements() (out map[string]*statement, defines map[string]string) {
	all, defines, err := sqltext.Load(sqlFiles)
	if err != nil {
		panic("postgres: " + err.Error())
	}
	out = make(map[string]*statement, len(all))
	for i, st := range all {
		out[st.Name] = &statement{name: st.Name, text: st.Text, index: i}
	}
	return out, defines
}

// dialect fills in what differs between databases.
type dialect struct {
	schema string
	now    string // an SQL expression: the instant of the statement, in whole milliseconds
}

// systemNow is the time of the server, at the statement. It is stable within
// one, so that an index can be searched with it.
const systemNow = "date_trunc('milliseconds', statement_timestamp())"

func (d dialect) fill(text string) string {
	return strings.NewReplacer(
		"{schema}", pgx.Identifier{d.schema}.Sanitize(),
		"{schema_literal}", "'"+strings.ReplaceAll(d.schema, "'", "''")+"'",
		"{now}", d.now,
		"{step_ordinal}", "'"+strings.ReplaceAll(pgx.Identifier{d.schema, "step_ordinal"}.Sanitize(), "'", "''")+"'::regclass",
	).Replace(text)
}

// texts are the finished statements, by index.
func (d dialect) texts() []string {
	out := make([]string, len(statements))
	for _, st := range statements {
		out[st.index] = d.fill(st.text)
	}
	return out
}
