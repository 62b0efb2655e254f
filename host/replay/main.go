// Command replay runs a WASI program again and again in a machine that is the
// same each time: one thread that nothing preempts, a clock that moves by being
// read, and random numbers that are always those. It is for the simulator, whose
// order of goroutines the Go runtime decides elsewhere:
//
//	replay TIMES PROGRAM.wasm ARGUMENTS…
//
// It prints what the first run prints, and fails unless all others print the same
// and end the same way.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"github.com/tetratelabs/wazero/sys"
)

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	if len(args) < 2 {
		return errors.New("usage: replay TIMES PROGRAM.wasm ARGUMENTS…")
	}
	times, err := strconv.Atoi(args[0])
	if err != nil || times < 1 {
		return fmt.Errorf("%q is no number of times", args[0])
	}
	program, err := os.ReadFile(args[1])
	if err != nil {
		return err
	}
	r := wazero.NewRuntime(ctx)
	defer r.Close(ctx)
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, r); err != nil {
		return err
	}
	module, err := r.CompileModule(ctx, program)
	if err != nil {
		return err
	}
	first, code, err := once(ctx, r, module, args[1:], stdout)
	if err != nil {
		return err
	}
	alike := 1
	for range times - 1 {
		out, c, err := once(ctx, r, module, args[1:], io.Discard)
		if err != nil {
			return err
		}
		if c == code && bytes.Equal(out, first) {
			alike++
		}
	}
	fmt.Fprintf(stdout, "%d of %d runs went the very same way, and ended with code %d\n", alike, times, code)
	if alike < times {
		return errors.New("they differ")
	}
	return nil
}

// once runs the program, and answers what it printed and its exit code. Without
// configuration, clocks and random numbers of wazero are made up, and alike.
func once(ctx context.Context, r wazero.Runtime, m wazero.CompiledModule, args []string, also io.Writer) ([]byte, uint32, error) {
	var out bytes.Buffer
	to := io.MultiWriter(&out, also)
	instance, err := r.InstantiateModule(ctx, m, wazero.NewModuleConfig().WithName("").WithArgs(args...).WithStdout(to).WithStderr(to))
	var exit *sys.ExitError
	switch {
	case errors.As(err, &exit):
		return out.Bytes(), exit.ExitCode(), nil
	case err != nil:
		return nil, 0, err
	}
	return out.Bytes(), 0, instance.Close(ctx)
}
