package guest_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jobrunner/runner/abi/abitest"
	"github.com/jobrunner/runner/abi/guest"
	"github.com/jobrunner/runner/abi/guest/guesttest"
)

type Input struct{ OrgID string }
type Output struct{ DigestRun string }
type Digest struct{ URL string }

func init() { guest.Job("onboard-org", onboard) }

func onboard(ctx *guest.Ctx, in Input) (Output, error) {
	url, err := guest.Step(ctx, "provision", func() (string, error) {
		return provision(in.OrgID)
	})
	if err != nil {
		return Output{}, err
	}
	ctx.Sleep("cool-off", 72*time.Hour)
	id, err := ctx.Enqueue("send-digest", Digest{URL: url}, guest.Delay(time.Hour))
	return Output{DigestRun: id}, err
}

// provision stands for what has an effect elsewhere.
func provision(org string) (string, error) { return "https://" + org + ".example.com", nil }

// The handler of the package's comment, on a host that keeps one run in memory
// and whose clock moves when the run waits. A handler's own test is shorter; see
// package guesttest.
func Example() {
	run := abitest.NewMemory(abitest.Config{})
	out := abitest.Drive(context.Background(), guesttest.Guest(guesttest.Capabilities{}), run, "onboard-org", []byte(`{"OrgID":"acme"}`))
	fmt.Println(out.Kind, string(out.Output), "after", run.Now().Sub(run.Start()))
	for _, call := range run.Transcript() {
		fmt.Println(call)
	}
	// Output:
	// done {"DigestRun":"child-1"} after 72h0m0s
	// step_begin "provision"
	// step_end "provision" "https://acme.example.com"
	// sleep "cool-off" 72h0m0s
	// step_begin "provision"
	// sleep "cool-off" 72h0m0s
	// enqueue {"job":"send-digest","input":{"URL":"https://acme.example.com"},"delay_ms":3600000}
}

// What the package's comment shows is the code above.
func TestTheCommentShowsTheExample(t *testing.T) {
	read := func(name string) string {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	_, shown, ok := strings.Cut(read("doc.go"), "//\ttype Input")
	shown, _, closed := strings.Cut(shown, "//\tfunc main() {}")
	if !ok || !closed {
		t.Fatal("the comment has no example from its types to main")
	}
	shown = strings.ReplaceAll("//\ttype Input"+shown, "//\n", "//\t\n")
	shown = strings.TrimSpace(strings.ReplaceAll(shown, "//\t", ""))
	if !strings.Contains(read("example_test.go"), shown) {
		t.Errorf("this is not in example_test.go:\n%s", shown)
	}
}
