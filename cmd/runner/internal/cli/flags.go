package cli

import (
	"github.com/spf13/cobra"
)

// jsonFlag adds --json, which makes both the answer and a refusal JSON.
func (e *env) jsonFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&e.json, "json", false, "print JSON; refusals are JSON on stderr")
}
