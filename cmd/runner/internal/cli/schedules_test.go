package cli_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/ncruces/go-sqlite3"
	"github.com/rogpeppe/go-internal/testscript"
)

// cmdRewind makes a schedule that much later than it is: its watermark goes back.
// So a script need not wait for the clock to come round to an occurrence.
//
//	rewind NAME DURATION
func cmdRewind(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: rewind NAME DURATION")
	}
	by, err := time.ParseDuration(args[1])
	ts.Check(err)
	if strings.ContainsAny(args[0], "'\\") {
		ts.Fatalf("no schedule has such a name: %s", args[0])
	}
	const update = "UPDATE %s SET watermark = watermark - %s WHERE name = '%s'"
	ctx := context.Background()
	if url := ts.Getenv("RUNNER_DATABASE_URL"); url != "" {
		c, err := pgx.Connect(ctx, url)
		ts.Check(err)
		defer c.Close(ctx)
		tag, err := c.Exec(ctx, fmt.Sprintf(update, "runner.schedules", fmt.Sprintf("interval '%d milliseconds'", by.Milliseconds()), args[0]))
		ts.Check(err)
		if tag.RowsAffected() != 1 {
			ts.Fatalf("there is no row of %s", args[0])
		}
		return
	}
	c, err := sqlite3.Open("file:" + ts.MkAbs("runner.db"))
	ts.Check(err)
	defer c.Close()
	ts.Check(c.BusyTimeout(10 * time.Second))
	ts.Check(c.Exec(fmt.Sprintf(update, "schedules", fmt.Sprint(by.Milliseconds()), args[0])))
	if c.Changes() != 1 {
		ts.Fatalf("there is no row of %s", args[0])
	}
}
