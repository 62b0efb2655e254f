package cli

import (
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/manifest"
)

// jsonFlag adds --json, which makes both the answer and a refusal JSON.
func (e *env) jsonFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&e.json, "json", false, "print JSON; refusals are JSON on stderr")
}

// duration is a flag that reads what jobs.toml reads: 90s, 1d12h, 2w.
type duration time.Duration

// durationVar adds such a flag.
func durationVar(f *pflag.FlagSet, p *time.Duration, name string, value time.Duration, usage string) {
	*p = value
	f.Var((*duration)(p), name, usage)
}

// Set implements pflag.Value.
func (d *duration) Set(s string) error {
	v, err := manifest.ParseDuration(s)
	if err == nil {
		*d = duration(v)
	}
	return err
}

// Type implements pflag.Value: help shows it for the value.
func (d *duration) Type() string { return "duration" }

// String implements pflag.Value. None is "", so that help shows no default.
func (d *duration) String() string {
	if *d == 0 {
		return ""
	}
	return manifest.FormatDuration(time.Duration(*d))
}

// mayBeEmpty are the flags for which an empty text says something.
var mayBeEmpty = map[string]bool{"listen": true, "reason": true, "before": true}

// checkFlags refuses flags that were given and would mean the same as left out.
// An empty text or a 0 is how the variable arrives that a script forgot to set.
func checkFlags(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		value := f.Value.String()
		switch {
		case err != nil:
		case f.Value.Type() == "string" && value == "" && !mayBeEmpty[f.Name]:
			err = usagef("give it a value, or leave it out", "--%s is empty", f.Name)
		case f.Value.Type() == "duration" && value == "":
			err = usagef("write a duration such as 30s or 1d12h, or leave it out", "--%s 0 is no time", f.Name)
		case f.Name == "attempts":
			if n, _ := cmd.Flags().GetInt(f.Name); n < 1 || n > job.MostAttempts {
				err = usagef("leave it out for the job's own", "--attempts must be from 1 to %d; this is %d", job.MostAttempts, n)
			}
		}
	})
	return err
}
