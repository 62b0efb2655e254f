//go:build !wasip1

package guest

import "github.com/jobrunner/runner/abi/guest/internal/bridge"

// host is what a test provides where a module would have runner_v1.
type host = bridge.Host

func init() { bridge.Native = bridge.Guest{Describe: describe, Run: run, Warm: warm} }

// buffer is nil: handlers of one test binary run side by side.
func buffer() []byte { return nil }
