package postgres

import (
	"embed"
	"strings"

	"github.com/jackc/pgx/v5"
)

//go:embed *.sql
var sqlFiles embed.FS

// statement is one named statement of a .sql file, in which {schema} and {now}
// stand for what a Config says. A Store keeps the finished texts by index.
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
				panic("postgres: two statements are named " + st.name)
			}
			st.index = len(out)
			out[st.name] = st
		}
	}
	for _, st := range out {
		st.text = expand(st.text, defines)
	}
	return out, defines
}

// expand replaces the names of defines, which may use one another.
func expand(text string, defines map[string]string) string {
	for range 3 {
		for name, d := range defines {
			text = strings.ReplaceAll(text, "{"+name+"}", d)
		}
	}
	return text
}

// parseStatements cuts a .sql file at its "-- name: NAME" lines, and adds the
// texts of its "-- define: NAME" blocks to defines: what "{NAME}" stands for in
// statements of any file, so that a projection is written once.
func parseStatements(text string, defines map[string]string) []*statement {
	var out []*statement
	var add func(line string)
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \t\r\n")
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
