package chaostest

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/jackc/pgx/v5"

	"github.com/jobrunner/runner/engine/job"
)

// installAudit has the database note each record of a completed step that is
// written: what is written over leaves no other trace. It is the one place
// that knows how the store keeps records.
func (c *chaos) installAudit() {
	c.query(func(conn *pgx.Conn) error {
		_, err := conn.Exec(c.ctx, `
			CREATE TABLE public.commits (run uuid NOT NULL, step text NOT NULL, output bytea);
			CREATE FUNCTION public.note_commit() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
				IF NEW.kind <> 'sleep' AND NEW.status = 'completed' THEN
					INSERT INTO public.commits VALUES (NEW.run_id, NEW.name, NEW.output);
				END IF;
				RETURN NULL;
			END $$;
			CREATE TRIGGER note_commit AFTER INSERT OR UPDATE ON runner.steps FOR EACH ROW EXECUTE FUNCTION public.note_commit();
		`)
		return err
	})
}

func (c *chaos) query(f func(*pgx.Conn) error) {
	conn, err := pgx.Connect(c.ctx, c.database)
	if err != nil {
		c.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(c.ctx)) }()
	if err := f(conn); err != nil {
		c.Fatal(err)
	}
}

// checkCommits: no checkpoint was committed twice. A write whose answer was lost
// may be repeated, word for word.
func (c *chaos) checkCommits(done int) {
	type commit struct {
		Run, Step     string
		Times, Values int
	}
	var all []commit
	c.query(func(conn *pgx.Conn) (err error) {
		rows, err := conn.Query(c.ctx, `SELECT run::text, step, count(*), count(DISTINCT output) FROM public.commits GROUP BY 1, 2`)
		if err != nil {
			return err
		}
		all, err = pgx.CollectRows(rows, pgx.RowToStructByPos[commit])
		return err
	})
	repeated := 0
	for _, x := range all {
		repeated += x.Times - 1
		if x.Values != 1 {
			c.failf("run %s: step %s was committed %d times, with %d tokens", x.Run, x.Step, x.Times, x.Values)
		}
	}
	if len(all) < 3*done {
		c.failf("%d steps of %d runs were noted: the audit does not see all", len(all), done)
	}
	c.Logf("%d checkpoints, %d of them written twice in the same words", len(all), repeated)
}

// checkUnowned: whoever was told that a claim is not its own had lost it. If the
// claim ended in any other way, somebody else's settle landed on it.
func (c *chaos) checkUnowned() (unowned int) {
	for _, w := range c.workers {
		text, err := os.ReadFile(filepath.Join(c.dir, w.name+".log"))
		if err != nil {
			c.Fatal(err)
		}
		for line := range bytes.Lines(text) {
			var l struct {
				Msg, Run string
				Claim    int64
			}
			if json.Unmarshal(line, &l) != nil || l.Msg != "jobs.settle.unowned" {
				continue
			}
			unowned++
			attempts, err := c.direct.Attempts(c.ctx, l.Run)
			if err != nil {
				c.Fatal(err)
			}
			var outcome job.Outcome
			for _, a := range attempts {
				if a.Claim == l.Claim {
					outcome = a.Outcome
				}
			}
			if outcome != job.Orphaned && outcome != job.Interrupted {
				c.failf("run %s: %s was told that claim %d is not its own, and the claim ended %q", l.Run, w.name, l.Claim, outcome)
			}
		}
	}
	return unowned
}
