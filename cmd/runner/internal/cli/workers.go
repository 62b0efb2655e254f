package cli

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func newWorkers(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "workers",
		Short: "List the processes that work the queue",
		Long: `A worker is a process that runs jobs. It registers itself in the database and renews
its lease while it lives.`,
		Example: `  runner workers ls`,
		GroupID: groupOperate,
	}
	return e.group(cmd, newWorkersLs(e))
}

// workerView is a worker as JSON.
type workerView struct {
	ID        string    `json:"id"`
	Host      string    `json:"host"`
	PID       int       `json:"pid"`
	Queues    []string  `json:"queues"`
	Running   int       `json:"running"`
	Alive     bool      `json:"alive"`
	StartedAt time.Time `json:"started_at,omitzero"`
	RenewedAt time.Time `json:"renewed_at,omitzero"`
	ExpiresAt time.Time `json:"expires_at,omitzero"`
}

func newWorkersLs(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List registered workers",
		Long: `List the workers that are registered in the database, and how many runs each
holds. A worker is alive while it renews its lease; the runs of one whose lease
has lapsed are handed to others.`,
		Example: `  runner workers ls
  runner workers ls --json`,
		Args: cobra.NoArgs,
	}
	t := e.targetFlags(cmd)
	e.jsonFlag(cmd)
	cmd.RunE = e.run(func(ctx context.Context, _ *cobra.Command, _ []string) error {
		return e.withStore(ctx, t, func(ctx context.Context, o opened) error {
			workers, err := o.store.ListWorkers(ctx)
			if err != nil {
				return err
			}
			now, err := o.store.Now(ctx)
			if err != nil {
				return err
			}
			views := make([]workerView, 0, len(workers))
			for _, w := range workers {
				views = append(views, workerView{
					ID: w.ID, Host: w.Host, PID: w.PID, Queues: w.Queues, Running: w.Running, Alive: w.ExpiresAt.After(now),
					StartedAt: w.StartedAt, RenewedAt: w.RenewedAt, ExpiresAt: w.ExpiresAt,
				})
			}
			if e.json {
				return printJSON(e.Stdout, map[string]any{"workers": views})
			}
			t := table{head: []string{"WORKER", "HOST", "PID", "STATE", "RUNNING", "UP", "RENEWED", "QUEUES"}}
			for _, w := range views {
				state := "alive"
				if !w.Alive {
					state = "lapsed"
				}
				t.row(w.ID, w.Host, strconv.Itoa(w.PID), state, strconv.Itoa(w.Running), ago(now, w.StartedAt), ago(now, w.RenewedAt), strings.Join(w.Queues, ","))
			}
			t.print(e.Stdout, e.out, nil)
			return nil
		})
	})
	return cmd
}
