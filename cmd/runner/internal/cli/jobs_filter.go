package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/engine/store"
)

// filter is which runs a command is about, as its flags say.
type filter struct {
	flags        *pflag.FlagSet // its own, of the command's
	p            store.ListParams
	state        string
	tenant       string
	untenanted   bool
	since, until string
}

// filterFlags adds the flags of a filter.
func (e *env) filterFlags(cmd *cobra.Command) *filter {
	f := &filter{flags: pflag.NewFlagSet("filter", pflag.ContinueOnError)}
	flags := f.flags
	flags.StringVar(&f.state, "state", "", "only runs in this state: "+stateNames())
	flags.StringVar(&f.p.Job, "job", "", "only runs of this job")
	flags.StringVar(&f.p.Queue, "queue", "", "only runs in this queue")
	flags.StringVar(&f.tenant, "tenant", "", "only runs of this tenant")
	flags.BoolVar(&f.untenanted, "no-tenant", false, "only runs without a tenant")
	flags.StringVar(&f.p.Code, "code", "", "only runs whose error has this code")
	flags.StringVar(&f.p.IDPrefix, "id", "", "only runs whose id begins so")
	flags.StringVar(&f.p.Parent, "parent", "", "only runs that this run enqueued")
	flags.StringVar(&f.since, "since", "", "only runs enqueued since: a time (2026-01-31T08:00:00Z), or how long ago (24h, 7d)")
	flags.StringVar(&f.until, "until", "", "only runs enqueued before: the same")
	cmd.Flags().AddFlagSet(flags)
	cmd.MarkFlagsMutuallyExclusive("tenant", "no-tenant")
	e.complete(cmd, "job", e.completeJobs)
	e.complete(cmd, "state", completeStates)
	return f
}

// given reports whether any of the filter's flags is set.
func (f *filter) given() (given bool) {
	f.flags.VisitAll(func(flag *pflag.Flag) { given = given || flag.Changed })
	return given
}

// params is the filter. How long ago is counted from the database's time.
func (f *filter) params(ctx context.Context, cmd *cobra.Command, s store.Store) (store.ListParams, error) {
	p := f.p
	if f.state != "" {
		state, err := job.ParseState(f.state)
		if err != nil {
			return p, usagef("one of "+stateNames(), "--state %q is no state of a run", f.state)
		}
		p.State = state
	}
	if cmd.Flags().Changed("tenant") || f.untenanted {
		p.Tenant = &f.tenant
	}
	if f.since == "" && f.until == "" {
		return p, nil
	}
	now, err := s.Now(ctx)
	if err != nil {
		return p, err
	}
	if p.Since, err = instantOf("--since", f.since, now); err != nil {
		return p, err
	}
	p.Until, err = instantOf("--until", f.until, now)
	return p, err
}

// instantOf is the time that a flag names, or that long before now.
func instantOf(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	d, err := manifest.ParseDuration(text)
	if err != nil || d < 0 {
		return time.Time{}, usagef("a time as in 2026-01-31T08:00:00Z, or how long ago as in 24h or 7d", "%s %q is neither a time nor a duration", flag, text)
	}
	return now.Add(-d), nil
}
