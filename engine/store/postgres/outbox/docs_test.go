package outbox_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobrunner/runner/engine/store"
	"github.com/jobrunner/runner/engine/store/postgres/outbox"
	"github.com/jobrunner/runner/engine/store/postgres/pgtest"
)

const page = "../../../../docs/outbox.md"

// block is a fenced block of the page, and what the comment before it says.
type block struct{ mark, language, text string }

func blocks(t *testing.T) []block {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var out []block
	for _, m := range regexp.MustCompile("(?s)(?:<!-- ([a-z ]+) -->\n)?```([a-z]+)\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		out = append(out, block{mark: m[1], language: m[2], text: m[3]})
	}
	return out
}

// psql is the client of the server that tests run on, or of PATH.
func psql(t *testing.T) string {
	t.Helper()
	if bin := pgtest.Shared(t).Bin(); bin != "" {
		if p := filepath.Join(bin, "psql"); exec.Command(p, "--version").Run() == nil {
			return p
		}
	}
	p, err := exec.LookPath("psql")
	if err != nil {
		t.Fatal("psql is missing: install the package postgresql-client")
	}
	return p
}

// What the page shows in SQL and in a shell does what it says, in its order.
func TestExamplesOfThePage(t *testing.T) {
	url := pgtest.Database(t)
	m, err := outbox.OpenMigrator(outbox.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	client := psql(t)
	run := func(b block) {
		t.Helper()
		cmd := exec.Command(client, url, "--quiet", "--set=ON_ERROR_STOP=1", "--file=-")
		if b.language == "sh" {
			cmd = exec.Command("/bin/sh", "-eu", "-s")
		}
		cmd.Stdin = strings.NewReader(b.text)
		cmd.Env = append(os.Environ(), "DATABASE_URL="+url, "PATH="+filepath.Dir(client)+":"+os.Getenv("PATH"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s\n%s", err, b.text, out)
		} else if bytes.Contains(out, []byte("ERROR")) {
			t.Errorf("%s\n%s", b.text, out)
		}
	}
	run(block{text: "create table orders (id int primary key, customer text not null); create role shop_app login;"})
	defer run(block{text: "drop owned by shop_app; drop role shop_app;"})
	ran := 0
	for _, b := range blocks(t) {
		if b.mark == "tested" {
			run(b)
			ran++
		}
	}
	if ran != 6 {
		t.Errorf("%d blocks were run", ran)
	}

	db, err := outbox.Open(t.Context(), outbox.Config{URL: url, NoListen: true})
	if err != nil {
		t.Fatal(err)
	}
	rows, err := db.Claim(t.Context(), store.StagedClaimParams{Relay: "r", Limit: 100, Lease: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range rows {
		if r.Event != nil {
			got = append(got, fmt.Sprint("event ", r.Event.Topic, " ", string(r.Event.Payload), " ", r.Event.Key))
			continue
		}
		got = append(got, fmt.Sprint(r.Job, " ", string(r.Input), " ", r.Key, " ", r.Tenant, " ", r.Delay))
	}
	want := []string{
		`send-mail {"order": 1, "to": "ann@example.org"}   0s`,
		`send-mail {"to": "customer-2", "order": 2} welcome:2  5m0s`,
		`send-mail {"to": "customer-3", "order": 3} welcome:3  5m0s`,
		`send-mail {"to": "customer-4", "order": 4} welcome:4  5m0s`,
		`send-mail {"to": "bob@example.org", "order": 5}   0s`,
		`send-mail {"to": "carol@example.org", "order": 6}   0s`, // the trigger
		`send-invoice {"order": 6}  carol@example.org 0s`,
		`event order-shipped null 1`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("staged\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, b := range blocks(t) {
		if b.mark == "tested last" {
			run(b)
			run(block{text: "drop schema runner;"}) // nothing else is in it
			ran++
		}
	}
	if ran != 7 {
		t.Error("what removes it was not run")
	}
}

// The page's Go is the example of the package, and does what it says.
func TestGoExampleOfThePage(t *testing.T) {
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	for _, b := range blocks(t) {
		if b.language == "go" {
			shown++
			if !strings.Contains(string(source), b.text) {
				t.Errorf("example_test.go does not hold\n%s", b.text)
			}
		}
	}
	if shown != 2 {
		t.Errorf("%d Go blocks", shown)
	}

	url := pgtest.Database(t)
	m, err := outbox.OpenMigrator(outbox.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	if _, _, err := PlaceOrder(t.Context(), c, "ann@example.org"); err == nil {
		t.Error("an order was placed in a table there is not")
	}
	if _, err := c.Exec(t.Context(), `create table shop_orders (id int generated always as identity, customer text not null, shipped boolean)`); err != nil {
		t.Fatal(err)
	}
	order, run, err := PlaceOrder(t.Context(), c, "ann@example.org")
	if err != nil {
		t.Fatal(err)
	}
	var staged, input string
	if err := c.QueryRow(t.Context(), `select id::text, convert_from(input, 'UTF8') from runner.outbox`).Scan(&staged, &input); err != nil {
		t.Fatal(err)
	}
	if staged != run || input != fmt.Sprintf(`{"order":%d,"to":"ann@example.org"}`, order) {
		t.Errorf("staged %s %s for order %d and run %s", staged, input, order, run)
	}
	if err := ShipOrder(t.Context(), c, order); err != nil {
		t.Fatal(err)
	}
	var topic, key string
	if err := c.QueryRow(t.Context(), `select topic, key from runner.outbox where job is null`).Scan(&topic, &key); err != nil || topic != "order-shipped" || key != fmt.Sprint(order) {
		t.Errorf("staged %s %s, %v", topic, key, err)
	}
}
