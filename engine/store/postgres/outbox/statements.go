package outbox

import (
	_ "embed"
	"strings"

	"github.com/jackc/pgx/v5"
)

//go:embed outbox.sql
var sqlText string

// statements are those of outbox.sql by name, in which {schema} and {now} stand
// for what a Config says.
var statements = parseStatements(sqlText)

// parseStatements cuts text at its "-- name: NAME" lines. A "-- define: NAME"
// block is what {NAME} stands for in all statements.
func parseStatements(text string) map[string]string {
	out, defines := map[string]string{}, map[string]string{}
	var into map[string]string
	var name string
	for line := range strings.Lines(text) {
		if n, ok := strings.CutPrefix(line, "-- name: "); ok {
			into, name = out, strings.TrimSpace(n)
			continue
		}
		if n, ok := strings.CutPrefix(line, "-- define: "); ok {
			into, name = defines, strings.TrimSpace(n)
			continue
		}
		if into != nil && strings.TrimSpace(line) != "" && !strings.HasPrefix(line, "--") {
			into[name] += line
		}
	}
	for n, st := range out {
		for d, text := range defines {
			st = strings.ReplaceAll(st, "{"+d+"}", strings.TrimSpace(text))
		}
		out[n] = strings.TrimSpace(st)
	}
	return out
}

// dialect fills in what differs between databases.
type dialect struct {
	schema string
	now    string // an SQL expression: the instant of the statement, in whole milliseconds
}

// channel is that of NOTIFY.
func (d dialect) channel() string { return d.schema + ".outbox" }

// fill replaces the placeholders of text. checkSchema keeps quotes out.
func (d dialect) fill(text string) string {
	return strings.NewReplacer(
		"{schema}", pgx.Identifier{d.schema}.Sanitize(),
		"{schema_literal}", "'"+d.schema+"'",
		"{channel_literal}", "'"+d.channel()+"'",
		"{now}", d.now,
	).Replace(text)
}

// texts are the finished statements by name.
func (d dialect) texts() map[string]string {
	out := make(map[string]string, len(statements))
	for name, st := range statements {
		out[name] = d.fill(st)
	}
	return out
}
