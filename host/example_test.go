package host_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/jobrunner/runner/abi/abitest"
	"github.com/jobrunner/runner/host"
)

// A module is loaded once and run as often as there are attempts. What its
// steps and sleeps mean is the abi.Calls of each attempt; here one that keeps a
// run in memory.
func ExampleHost() {
	ctx := context.Background()
	h, err := host.New(ctx, host.Config{MemoryLimit: 64 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer h.Close(ctx)
	guest, err := h.Load(ctx, host.LoadParams{Path: os.Getenv("MODULE")})
	if err != nil {
		fmt.Println(err)
		return
	}
	calls := abitest.NewMemory(abitest.Config{})
	out := guest.Run(ctx, calls.Attempt("onboard", []byte(`{"org":"acme"}`)), calls)
	fmt.Println(out.Kind)
	// Output: X_MODULE_READ: cannot read the module "": no such file or directory (check the path)
}
