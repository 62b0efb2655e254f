// Command demo shows what durable means, with nothing installed but Go: it
// serves three hundred invoices and some onboardings, kills the server in the
// middle, starts it again, and counts. It fails if a single expectation does
// not hold.
//
//	go run ./examples/demo
//
// With -store postgres it does so in a Postgres database, which
// RUNNER_DATABASE_URL names; make demo STORE=postgres starts one for it.
package main

import (
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const onboardings = 12

func main() {
	store := flag.String("store", "sqlite", "sqlite or postgres")
	flag.Parse()
	if err := demo(*store); err != nil {
		fmt.Fprintf(os.Stderr, "\ndemo: %v\n", err)
		os.Exit(1)
	}
}

func demo(store string) (err error) {
	began := time.Now()
	database, err := databaseOf(store)
	if err != nil {
		return err
	}
	fmt.Println("building the runner and its modules …")
	bin, err := build()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "runner-demo-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			fmt.Fprintf(os.Stderr, "\nmanifest, database and logs are in %s\n", dir)
			return
		}
		_ = os.RemoveAll(dir)
	}()
	r := runner{program: filepath.Join(bin, "runner"), dir: dir, database: database}
	if err := prepare(bin, dir); err != nil {
		return err
	}
	want, err := writeInputs(dir)
	if err != nil {
		return err
	}
	built := time.Now()
	if database != "" { // a server of a fleet makes no tables
		if err := r.run("migrate", "up"); err != nil {
			return err
		}
	}

	// The first server is killed without warning while it works.
	one, err := r.serve("one.log")
	if err != nil {
		return err
	}
	defer one.kill()
	if err := r.run("enqueue", "onboard-org", "--input-lines", "onboardings.jsonl"); err != nil {
		return err
	}
	if err := one.await("body welcome-mail", onboardings); err != nil {
		return err
	}
	if err := r.run("enqueue", "post-invoice", "--input-lines", "invoices.jsonl"); err != nil {
		return err
	}
	if err := one.await("body post", want["post-invoice"]["done"]/3); err != nil {
		return err
	}
	one.kill()
	atKill, err := r.histories()
	if err != nil {
		return err
	}
	fmt.Printf("kill -9 after %d of %d invoices were posted; %d runs were under way\n",
		count(atKill, "post-invoice", "done"), len(byJob(atKill, "post-invoice")), count(atKill, "", "running"))

	// The second finds everything where the first left it. On a database that it
	// might share, it waits until the first one's lease has lapsed.
	two, err := r.serve("two.log")
	if err != nil {
		return err
	}
	defer two.kill()
	atEnd, err := r.follow()
	if err != nil {
		return err
	}
	if err := two.stop(); err != nil {
		return err
	}
	fmt.Printf("everything has ended, %.1f s after the build (%.1f s with it)\n\n", time.Since(built).Seconds(), time.Since(began).Seconds())

	a := audit{atKill: atKill, atEnd: atEnd, before: one.bodies(), after: two.bodies()}
	failed := a.report(os.Stdout, want)
	if err := r.timeline(a.interesting()); err != nil {
		return err
	}
	if failed > 0 {
		return fmt.Errorf("%d expectations did not hold", failed)
	}
	fmt.Println("\nevery expectation held")
	return nil
}

// databaseOf is where the demo keeps its runs: "" is a file in its folder. On
// Postgres it has a schema of its own, so that it meets no other runs.
func databaseOf(store string) (string, error) {
	switch store {
	case "sqlite":
		return "", nil
	case "postgres":
	default:
		return "", fmt.Errorf("-store %s: it is sqlite or postgres", store)
	}
	raw := os.Getenv("RUNNER_DATABASE_URL")
	u, err := url.Parse(raw)
	if err != nil || !strings.HasPrefix(raw, "postgres") { // the error would show a password
		return "", errors.New("-store postgres needs RUNNER_DATABASE_URL to be a postgres:// URL")
	}
	query := u.Query()
	query.Set("schema", fmt.Sprintf("demo_%d", time.Now().Unix()))
	u.RawQuery = query.Encode()
	return u.String(), nil
}

// errStopped says that the server ended by itself.
var errStopped = errors.New("the server stopped by itself; its log is above")
