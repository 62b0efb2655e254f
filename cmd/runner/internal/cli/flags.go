package cli

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/engine/store"
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
		case f.Name == "limit":
			if n, _ := cmd.Flags().GetInt(f.Name); n < 1 || n > store.MaxPage {
				err = usagef(fmt.Sprintf("write 1 to %d, and go on from where it ends", store.MaxPage), "--limit %d cannot be listed or done at once", n)
			}
		case f.Name == "before" && f.Value.Type() == "int64":
			if n, _ := cmd.Flags().GetInt64(f.Name); n < 0 {
				err = usagef("write the last number of a page, or leave it out", "--before %d is none", n)
			}
		case f.Name == "attempts":
			if n, _ := cmd.Flags().GetInt(f.Name); n < 1 || n > job.MostAttempts {
				err = usagef("leave it out for the job's own", "--attempts must be from 1 to %d; this is %d", job.MostAttempts, n)
			}
		}
	})
	return err
}

// checkArguments has cmd and those below it say which arguments they take.
func (e *env) checkArguments(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		e.checkArguments(c)
	}
	check := cmd.Args
	if check == nil || cmd.HasSubCommands() {
		return
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		e.command = cmd.CommandPath()
		err := check(cmd, args)
		switch {
		case err == nil || abi.CodeOf(err) != "":
			return err
		case len(args) == 0:
			return usagef("write: "+cmd.UseLine(), "an argument is missing")
		}
		return usagef("write: "+cmd.UseLine(), "%s cannot be taken: %s", count(len(args), "argument"), strings.Join(args, " "))
	}
}

var (
	// parsing is how strconv names itself in what a flag says of its value.
	parsing  = regexp.MustCompile(`strconv\.Parse(\w+): parsing "(?s:.*)": (.*)$`)
	together = regexp.MustCompile(`^if any flags in the group \[.*\] are set none of the others can be; \[(.*)\] were all set$`)
)

// flagError is what the flags' package says, for people who do not read Go.
func flagError(err error) error {
	text := err.Error()
	if m := together.FindStringSubmatch(text); m != nil {
		return usagef("leave all but one out", "--%s exclude each other", strings.Join(strings.Fields(m[1]), " and --"))
	}
	if m := parsing.FindStringSubmatch(text); m != nil {
		says := "it is no whole number"
		switch {
		case m[2] == "value out of range":
			says = "it is out of range"
		case m[1] == "Bool":
			says = "it is neither true nor false"
		}
		return errors.New(parsing.ReplaceAllLiteralString(text, says))
	}
	return err
}
