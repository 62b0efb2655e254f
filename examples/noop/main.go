// Command noop writes the smallest handler module there can be, assembled from
// Go code without any toolchain.
//
//	go run ./examples/noop -o bin/noop.wasm
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	out := flag.String("o", "noop.wasm", "file to write")
	flag.Parse()
	if err := write(*out); err != nil {
		fmt.Fprintln(os.Stderr, "noop:", err)
		os.Exit(1)
	}
}

func write(file string) error {
	module, err := Module()
	if err != nil {
		return err
	}
	return os.WriteFile(file, module, 0o644)
}
