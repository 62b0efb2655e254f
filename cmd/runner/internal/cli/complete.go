package cli

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/engine/store"
)

// completer answers what may stand where the cursor is. It must be quick and
// silent: a shell waits for it.
type completer = func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective)

// completeTimeout bounds a look into the database for a completion.
const completeTimeout = 500 * time.Millisecond

func (e *env) complete(cmd *cobra.Command, flag string, c completer) {
	_ = cmd.RegisterFlagCompletionFunc(flag, c)
}

func completeStates(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	names := make([]string, len(job.States))
	for i, s := range job.States {
		names[i] = string(s)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeJobs are the jobs of the manifest that -f names.
func (e *env) completeJobs(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	if m := manifestOf(cmd); m != nil {
		return slices.Sorted(maps.Keys(m.Jobs)), cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// completeJob is completeJobs for the first argument.
func (e *env) completeJob(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return e.completeJobs(cmd, args, begun)
}

// completeSchedule are the schedules of the manifest, for the first argument.
func (e *env) completeSchedule(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if m := manifestOf(cmd); m != nil && len(args) == 0 {
		return slices.Sorted(maps.Keys(m.Schedules)), cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// manifestOf is the manifest that -f names, before cmd runs; nil if it cannot be read.
func manifestOf(cmd *cobra.Command) *manifest.Manifest {
	file := defaultManifest
	if f := cmd.Flags().Lookup("file"); f != nil {
		file = f.Value.String()
	}
	m, _ := manifest.Load(file)
	return m
}

// completeRuns are the newest runs whose id begins so.
func (e *env) completeRuns(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(context.Background(), completeTimeout)
	defer cancel()
	var ids []string
	_ = e.withStore(ctx, flagged(cmd), func(ctx context.Context, o opened) error {
		runs, err := o.store.List(ctx, store.ListParams{IDPrefix: begun, Limit: 20})
		for _, r := range runs {
			ids = append(ids, r.ID+"\t"+cell(r.Job)+" "+string(r.State))
		}
		return err
	})
	return ids, cobra.ShellCompDirectiveNoFileComp
}

// completeSteps are the steps of the run that the first argument names.
func (e *env) completeSteps(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) != 1 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(context.Background(), completeTimeout)
	defer cancel()
	var names []string
	_ = e.withStore(ctx, flagged(cmd), func(ctx context.Context, o opened) error {
		steps, err := o.store.ListSteps(ctx, args[0])
		for _, s := range steps {
			names = append(names, cell(s.Name))
		}
		return err
	})
	return names, cobra.ShellCompDirectiveNoFileComp
}

// flagged is the target that the flags of cmd name, before it runs.
func flagged(cmd *cobra.Command) *target {
	return &target{cmd: cmd, file: cmd.Flag("file").Value.String(), database: cmd.Flag("database-url").Value.String()}
}
