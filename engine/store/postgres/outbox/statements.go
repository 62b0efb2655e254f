package outbox

import (
	"embed"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/jobrunner/runner/engine/internal/sqltext"
)

//go:embed outbox.sql
var sqlFiles embed.FS

// statements are those of outbox.sql by name, in which {schema} and {now} stand
// for what a Config says.
var statements = loadStatements()

func loadStatements() map[string]string {
	all, _, err := sqltext.Load(sqlFiles)
	if err != nil {
		panic("outbox: " + err.Error())
	}
	out := make(map[string]string, len(all))
	for _, st := range all {
		out[st.Name] = st.Text
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
