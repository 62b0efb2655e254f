// Command runner owns a durable job queue and runs job handlers as WebAssembly
// modules. Everything it does is in internal/cli; main only exits.
package main

import (
	"os"

	"github.com/jobrunner/runner/cmd/runner/internal/cli"
)

func main() {
	os.Exit(cli.Main(cli.Process()))
}
