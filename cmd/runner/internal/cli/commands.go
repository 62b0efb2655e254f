package cli

import "github.com/spf13/cobra"

// commands are all commands, in the order in which help lists them.
func commands(e *env) []*cobra.Command {
	return []*cobra.Command{
		newServe(e),
		newValidate(e),
		newTry(e),
		newEnqueue(e),
		newJobs(e),
		newQueues(e),
		newSchedules(e),
		newWorkers(e),
		newAudit(e),
		newEvents(e),
		newOutbox(e),
		newMigrate(e),
		newModules(e),
		newBench(e),
		newVersion(e),
	}
}
