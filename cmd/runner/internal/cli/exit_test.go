package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/jobrunner/runner/cmd/runner/internal/bench"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/store/postgres/pgtest"
)

// ending is a command that ends so: with the code of its column, unless it begins
// with another one and a blank. "-" says that there is no such case.
type ending = string

// endings are one command's: what it answers when it works, is written wrongly, is
// about something that there is not, cannot reach its database, and is refused. In the
// words of a command, $DONE and the like are new runs in that state.
type endings struct {
	command                          string
	works, misused, missing, refused ending
	unreachable                      ending // "" is what works, of a database that is away
	missingSays, refusedSays         string
}

const nobody = "00000000-0000-7000-8000-000000000000"

var everyEnding = []endings{
	{command: "serve", works: "--listen=", misused: "--what", missing: "2 -f nowhere.toml", missingSays: "X_MANIFEST_FILE", refused: "-f bad.toml", refusedSays: "X_JOB_DECLARATION_INVALID"},
	{command: "validate", works: "--json", misused: "--format xml", missing: "2 -f nowhere.toml", refused: "-f bad.toml", unreachable: "-"},
	{command: "try", works: "noop", misused: "", missing: "nothing", missingSays: "X_JOB_UNKNOWN", refused: "noop --input {", refusedSays: "X_JOB_INPUT_INVALID", unreachable: "-"},
	{command: "enqueue", works: "noop", misused: "", missing: "nothing", missingSays: "X_JOB_UNKNOWN", refused: "keyed --on-conflict error", refusedSays: "X_JOB_DUPLICATE"},
	{command: "jobs ls", works: "", misused: "--state sleeping", missing: "2 --before zz", missingSays: "X_JOB_PAGE_INVALID", refused: "-"},
	{command: "jobs show", works: "$DONE", misused: "", missing: nobody, refused: "0197", refusedSays: "X_ID_INVALID"},
	{command: "jobs logs", works: "$DONE", misused: "", missing: nobody, refused: "0197", refusedSays: "X_ID_INVALID"},
	{command: "jobs wait", works: "$DONE", misused: "", missing: nobody, refused: "$DEAD", refusedSays: "X_RUN_NOT_DONE"},
	{command: "jobs cancel", works: "$READY", misused: "", missing: nobody, refused: "$DONE", refusedSays: "X_JOB_NOT_CANCELLABLE"},
	{command: "jobs retry", works: "$DEAD", misused: "--state dead --from-step a", missing: nobody, refused: "$READY", refusedSays: "X_JOB_NOT_REQUEUEABLE"},
	{command: "jobs promote", works: "$DELAYED", misused: "--job noop", missing: nobody, refused: "$DONE", refusedSays: "X_JOB_NOT_PROMOTABLE"},
	{command: "jobs delete", works: "$DONE", misused: "$DONE --state done", missing: nobody, refused: "$RUNNING", refusedSays: "X_JOB_NOT_REMOVABLE"},
	{command: "queues ls", works: "", misused: "mail", missing: "-", refused: "-"},
	{command: "queues pause", works: "mail", misused: "", missing: "-", refused: "-"},
	{command: "queues resume", works: "mail", misused: "mail --job noop", missing: "-", refused: "-"},
	{command: "schedules ls", works: "", misused: "nightly", missing: "-", refused: "-"},
	{command: "schedules next", works: "nightly", misused: "nightly -n 0", missing: "nothing", missingSays: "X_SCHEDULE_NOT_FOUND", refused: "nightly -f bad.toml", unreachable: "-"},
	{command: "schedules run", works: "nightly", misused: "nightly --occurrence now", missing: "nothing", refused: "nightly -f bad.toml"},
	{command: "schedules pause", works: "nightly", misused: "", missing: "nothing", refused: "-"},
	{command: "schedules resume", works: "nightly", misused: "", missing: "nothing", refused: "-"},
	{command: "schedules delete", works: "old", misused: "", missing: "nothing", refused: "led", refusedSays: "X_SCHEDULE_LED"},
	{command: "workers ls", works: "", misused: "--limit 1", missing: "-", refused: "-"},
	{command: "audit ls", works: "", misused: "--before -1", missing: "-", refused: "-"},
	{command: "events publish", works: "t", misused: "", missing: "-", refused: "t --data {", refusedSays: "X_INVALID"},
	{command: "events ls", works: "", misused: "--limit 0", missing: "-", refused: "-"},
	{command: "outbox ls", works: "--database-url $PG", misused: "--state dead", missing: "2 --database-url $SQLITE", missingSays: "X_DATABASE_URL_INVALID", refused: "-"},
	{command: "outbox audit", works: "--database-url $PG", misused: "--verb hide --database-url $PG", missing: "2 --database-url $SQLITE", missingSays: "X_DATABASE_URL_INVALID", refused: "-"},
	{command: "outbox retry", works: "--all --database-url $PG", misused: "", missing: nobody + " --database-url $PG", refused: "$STAGED --database-url $PG", refusedSays: "X_OUTBOX_NOT_REJECTED"},
	{command: "migrate status", works: "", misused: "now", missing: "2 --database-url sqlite:none.db", missingSays: "X_DATABASE_MISSING", refused: "--database-url $EMPTY", refusedSays: "X_DATABASE_SCHEMA"},
	{command: "migrate up", works: "", misused: "now", missing: "-", refused: "-"},
	{command: "migrate grants", works: "--worker w --database-url $PG", misused: "", missing: "2 --worker w --database-url $SQLITE", missingSays: "X_DATABASE_NOT_POSTGRES", refused: "-", unreachable: "-"},
	{command: "migrate outbox", works: "--database-url $PG", misused: "now", missing: "--database-url $PG --relay nobody-is-called-so", refused: "-"},
	{command: "modules inspect", works: "m.wasm", misused: "", missing: "2 none.wasm", missingSays: "X_MODULE_UNREADABLE", refused: "jobs.toml", refusedSays: "", unreachable: "-"},
	{command: "bench", works: "--jobs 5", misused: "--jobs 0", missing: "2 --module none.wasm", refused: "--database-url $SQLITE", refusedSays: "X_BENCH_DATABASE"},
	{command: "version", works: "", misused: "now", missing: "-", refused: "-", unreachable: "-"},
	{command: "help", works: "jobs ls", misused: "nothing", missing: "-", refused: "-", unreachable: "-"},
	{command: "completion bash", works: "", misused: "now", missing: "-", refused: "-", unreachable: "-"},
	{command: "completion fish", works: "", misused: "now", missing: "-", refused: "-", unreachable: "-"},
	{command: "completion powershell", works: "", misused: "now", missing: "-", refused: "-", unreachable: "-"},
	{command: "completion zsh", works: "", misused: "now", missing: "-", refused: "-", unreachable: "-"},
}

// Every command ends with the code of docs/commands.md: 0 when it works, 1 when the
// answer is no, 2 when it could not be carried out.
func TestEveryCommandEndsAsThePageSays(t *testing.T) {
	s := newShop(t)
	listed := map[string]bool{}
	for _, c := range everyEnding {
		listed["runner "+c.command] = true
		t.Run(c.command, func(t *testing.T) {
			s.ends(t, c.command, c.works, exitOK, "")
			s.ends(t, c.command, c.misused, exitCannot, "X_USAGE")
			s.ends(t, c.command, c.missing, exitProblem, c.missingSays)
			s.ends(t, c.command, c.refused, exitProblem, c.refusedSays)
			switch {
			case c.unreachable == "-":
			case strings.Contains(c.works, "$PG"):
				s.ends(t, c.command, strings.Replace(c.works, "$PG", away, 1), exitCannot, "X_DATABASE_UNAVAILABLE")
			default:
				s.ends(t, c.command, c.works+" --database-url "+away, exitCannot, "X_DATABASE_UNAVAILABLE")
			}
		})
	}
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			walk(sub)
		}
		if !c.HasSubCommands() && !listed[c.CommandPath()] {
			t.Errorf("%s is not among those whose ends are known", c.CommandPath())
		}
	}
	walk(newRoot(testEnv()))
}

// away is a server that is not there.
const away = "postgres://127.0.0.1:1/x"

// shop is a folder with a manifest, its module and a database with runs.
type shop struct {
	dir, pg, empty string
	minted         int
}

const shopManifest = `
[runner]
database = "sqlite:runner.db"
data_dir = "data"

[modules.m]
path = "m.wasm"

[jobs.noop]
module = "m"
tenant = "none"
key = "{run.id}"

[jobs.keyed]
module = "m"
handler = "noop"
tenant = "none"
key = "held"

[schedules.nightly]
cron = "0 3 29 2 *"
tz = "UTC"
enqueue = [{ job = "noop" }]
`

func newShop(t *testing.T) *shop {
	s := &shop{dir: t.TempDir(), pg: pgtest.Database(t), empty: pgtest.Database(t)}
	wasm, err := bench.Guest()
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"jobs.toml": shopManifest, "m.wasm": string(wasm), "bad.toml": "[jobs.x]\n"} {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(s.dir)
	for _, args := range [][]string{{"migrate", "up"}, {"migrate", "up", "--database-url", s.pg}, {"migrate", "outbox", "--database-url", s.pg}, {"enqueue", "keyed", "--delay", "1h"}} {
		if code, _, errs := s.run(args...); code != exitOK {
			t.Fatal(args, errs)
		}
	}
	s.with(t, func(ctx context.Context, o opened) error {
		// One schedule that a process leads, and one that none does any more.
		for name, lease := range map[string]time.Duration{"led": time.Hour, "old": time.Millisecond} {
			if _, err := o.store.LeadSchedules(ctx, store.LeadParams{Holder: name, Lease: lease, Schedules: []store.ScheduleSpec{{Name: name, Spec: "x"}}}); err != nil {
				return err
			}
		}
		return o.store.ReleaseSchedules(ctx, "old")
	})
	s.mint(t, job.Delayed) // two ids that begin alike
	s.mint(t, job.Delayed)
	return s
}

// with is s's database for the time of fn.
func (s *shop) with(t *testing.T, fn func(context.Context, opened) error) {
	t.Helper()
	e := testEnv()
	if err := e.withStore(context.Background(), &target{cmd: &cobra.Command{}, file: "jobs.toml", database: "sqlite:runner.db"}, fn); err != nil {
		t.Fatal(err)
	}
}

func (s *shop) run(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = Main(Params{Args: args, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Getenv: func(string) string { return "" }})
	return code, out.String(), errs.String()
}

// ends holds a command to its end.
func (s *shop) ends(t *testing.T, command string, e ending, code int, says string) {
	t.Helper()
	if e == "-" {
		return
	}
	for _, c := range []int{exitProblem, exitCannot} {
		if rest, other := strings.CutPrefix(e, fmt.Sprint(c, " ")); other {
			e, code = rest, c
		}
	}
	args := append(strings.Fields(command), strings.Fields(e)...)
	for i, a := range args {
		switch a {
		case "$PG":
			args[i] = s.pg
		case "$EMPTY":
			args[i] = s.empty
		case "$SQLITE":
			args[i] = "sqlite:runner.db"
		case "$STAGED":
			args[i] = s.stage(t)
		case "$READY", "$DELAYED", "$RUNNING", "$DONE", "$DEAD":
			args[i] = s.mint(t, job.State(strings.ToLower(a[1:])))
		}
	}
	run := s.run
	if command == "serve" && code == exitOK {
		run = serveAndStop
	}
	got, stdout, stderr := run(args...)
	if got != code {
		t.Errorf("runner %s: exit code %d, want %d\n%.2000s%s", strings.Join(args, " "), got, code, stdout, stderr)
	}
	if !strings.Contains(stderr+stdout, says) {
		t.Errorf("runner %s does not say %s:\n%.2000s%s", strings.Join(args, " "), says, stdout, stderr)
	}
	if got == exitOK && strings.Contains(stderr, "X_") {
		t.Errorf("runner %s works, and says\n%s", strings.Join(args, " "), stderr)
	}
}

// mint makes a run in a state.
func (s *shop) mint(t *testing.T, state job.State) string {
	t.Helper()
	s.minted++
	id := fmt.Sprintf("01970000-0000-7000-8000-%012x", s.minted)
	s.with(t, func(ctx context.Context, o opened) error {
		p := store.EnqueueParams{ID: id, Job: "noop", Queue: "q", MaxAttempts: 1, Input: []byte("{}")}
		if state == job.Delayed {
			p.Delay = time.Hour
		}
		if _, err := o.store.Enqueue(ctx, []store.EnqueueParams{p}); err != nil || !slices.Contains([]job.State{job.Running, job.Done, job.Dead}, state) {
			return err
		}
		worker := "w" + id
		if err := o.store.Register(ctx, store.RegisterParams{ID: worker, Host: "h", Queues: []string{"q"}, Lease: time.Hour}); err != nil {
			return err
		}
		for {
			res, err := o.store.Claim(ctx, store.ClaimParams{Worker: worker, Queues: []store.QueueLimit{{Queue: "q", Limit: 1}}})
			if err != nil || len(res.Runs) == 0 {
				return fmt.Errorf("claimed %+v, %w", res, err)
			}
			if res.Runs[0].ID != id {
				continue // one that was minted ready; it is running now
			}
			if state == job.Running {
				return nil
			}
			end := store.SettleParams{Ref: job.Ref{RunID: id, Worker: worker, Claim: res.Runs[0].Claims}, Outcome: job.Completed, To: job.Done, Output: []byte("null")}
			if state == job.Dead {
				end.Outcome, end.To, end.Output, end.Error = job.DeadLettered, job.Dead, nil, &job.Failure{Code: "X_MINTED"}
			}
			_, err = o.store.Settle(ctx, []store.SettleParams{end})
			return err
		}
	})
	return id
}

// stage stages a row in the outbox.
func (s *shop) stage(t *testing.T) (id string) {
	t.Helper()
	ctx := context.Background()
	c, err := pgx.Connect(ctx, s.pg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(ctx) }()
	var u uuid.UUID
	if err := c.QueryRow(ctx, "select runner.enqueue('noop')").Scan(&u); err != nil {
		t.Fatal(err)
	}
	return u.String()
}

// serveAndStop tells serve to stop as soon as it serves.
func serveAndStop(args ...string) (code int, stdout, stderr string) {
	errs := &started{}
	code = Main(Params{Args: args, Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: errs, Getenv: func(string) string { return "" }})
	return code, "", errs.String()
}

// started sends this process, in which serve listens for it, a SIGTERM when serve says that it has started.
type started struct {
	mu   sync.Mutex
	b    bytes.Buffer
	once sync.Once
}

func (s *started) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := s.b.Write(p)
	if strings.Contains(s.b.String(), "serve.started") {
		s.once.Do(func() {
			if self, err := os.FindProcess(os.Getpid()); err == nil {
				_ = self.Signal(syscall.SIGTERM)
			}
		})
	}
	return n, err
}

func (s *started) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
