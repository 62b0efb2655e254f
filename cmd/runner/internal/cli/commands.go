package cli

import "github.com/spf13/cobra"

// commands are all commands, in the order in which help lists them.
func commands(e *env) []*cobra.Command {
	return []*cobra.Command{
		newVersion(e),
	}
}
