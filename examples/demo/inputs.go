package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// wanted is how many runs of each job are to end in each state.
type wanted map[string]map[string]int

// writeInputs writes a line of JSON for each run to be enqueued, and answers
// how they are to end. An invoice whose currency or amount is wrong is refused
// by its handler for good, whatever happens to the server.
func writeInputs(dir string) (wanted, error) {
	rows, err := readInvoices()
	if err != nil {
		return nil, err
	}
	want := wanted{
		"post-invoice": {},
		"onboard-org":  {"done": onboardings},
		"send-digest":  {"done": onboardings}, // each onboarding enqueues one
	}
	var lines []string
	for _, row := range rows {
		b, err := json.Marshal(row)
		if err != nil {
			return nil, err
		}
		lines = append(lines, string(b))
		state := "dead"
		if valid(row) {
			state = "done"
		}
		want["post-invoice"][state]++
	}
	if err := writeLines(filepath.Join(dir, "invoices.jsonl"), lines); err != nil {
		return nil, err
	}
	lines = nil
	for i := range onboardings {
		lines = append(lines, fmt.Sprintf(`{"orgId":"org-%02d","plan":"team"}`, i+1))
	}
	return want, writeLines(filepath.Join(dir, "onboardings.jsonl"), lines)
}

var (
	cents = regexp.MustCompile(`^[0-9]+\.[0-9]{2}$`)
	units = regexp.MustCompile(`^[0-9]+$`)
)

// valid is the handler's rule, stated once more: the yen has no cents.
func valid(row map[string]string) bool {
	switch row["currency"] {
	case "EUR", "CHF", "GBP", "USD", "SEK", "DKK", "PLN", "COP":
		return cents.MatchString(row["amount"])
	case "JPY":
		return units.MatchString(row["amount"])
	}
	return false
}

func readInvoices() ([]map[string]string, error) {
	mod, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return nil, err
	}
	f, err := os.Open(filepath.Join(filepath.Dir(strings.TrimSpace(string(mod))), "examples", "invoices", "invoices.csv"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return nil, err
	}
	var all []map[string]string
	for _, row := range rows[1:] {
		fields := map[string]string{}
		for i, name := range rows[0] {
			fields[name] = row[i]
		}
		all = append(all, fields)
	}
	return all, nil
}

func writeLines(path string, lines []string) error {
	return os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600)
}
