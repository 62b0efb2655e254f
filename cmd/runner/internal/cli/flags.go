package cli

import (
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// jsonFlag adds --json, which makes both the answer and a refusal JSON.
func (e *env) jsonFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&e.json, "json", false, "print JSON; refusals are JSON on stderr")
}

// mayBeEmpty are the flags for which an empty text says something.
var mayBeEmpty = map[string]bool{"listen": true, "reason": true, "before": true}

// maxAttempts is the most that a manifest allows as well.
const maxAttempts = 10_000

// checkFlags refuses flags that were given and would mean the same as left out.
// An empty text or a 0 is how the variable arrives that a script forgot to set.
func checkFlags(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		value := f.Value.String()
		switch {
		case err != nil:
		case f.Value.Type() == "string" && value == "" && !mayBeEmpty[f.Name]:
			err = usagef("give it a value, or leave it out", "--%s is empty", f.Name)
		case f.Name == "timeout":
			if d, _ := time.ParseDuration(value); d <= 0 {
				err = usagef("write a duration such as 30s, or leave it out", "--timeout %s is no time to wait", value)
			}
		case f.Name == "attempts":
			if n, _ := cmd.Flags().GetInt(f.Name); n < 1 || n > maxAttempts {
				err = usagef("leave it out for the job's own", "--attempts must be from 1 to %d; this is %d", maxAttempts, n)
			}
		}
	})
	return err
}
