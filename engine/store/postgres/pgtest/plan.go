package pgtest

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

var (
	hashed   = regexp.MustCompile(`hashed (SubPlan \d+)`)
	heading  = regexp.MustCompile(`^ *(SubPlan \d+)$`)
	ofTables = regexp.MustCompile(`(Seq|Index|Index Only|Bitmap Heap) Scan`)
)

// NoTableHashed fails for each of some statements, by name, that may look a row up by
// hashing a whole table, as it is planned once for all. That is what an EXISTS that is
// not a condition of its own can become, where tables were empty when the plan was
// made: in Postgres 18 even with enable_seqscan off. OFFSET 0 in the EXISTS rules it
// out. Plans are made without indexes, which has every version do so where it can.
func NoTableHashed(tb testing.TB, c *pgx.Conn, statements map[string]string) {
	tb.Helper()
	for _, setting := range []string{"plan_cache_mode = force_generic_plan", "enable_indexscan = off", "enable_indexonlyscan = off", "enable_bitmapscan = off"} {
		if _, err := c.Exec(context.Background(), "SET "+setting); err != nil {
			tb.Errorf("%s: %v", setting, err)
		}
	}
	for name, text := range statements {
		noTableHashed(tb, c, name, text)
	}
}

func noTableHashed(tb testing.TB, c *pgx.Conn, name, text string) {
	tb.Helper()
	ctx := context.Background()
	d, err := c.Prepare(ctx, "hashed_"+name, text)
	if err != nil {
		tb.Errorf("%s: %v", name, err)
		return
	}
	args := ""
	if n := len(d.ParamOIDs); n > 0 {
		args = "(" + strings.Repeat("NULL, ", n-1) + "NULL)"
	}
	rows, err := c.Query(ctx, fmt.Sprintf("EXPLAIN (COSTS OFF, VERBOSE) EXECUTE \"hashed_%s\"%s", name, args), pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		tb.Errorf("%s: %v", name, err)
		return
	}
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		tb.Errorf("%s: %v", name, err)
		return
	}
	if bad := tablesHashed(plan); bad != nil {
		tb.Errorf("%s looks up by hashing %q:\n%s", name, bad, strings.Join(plan, "\n"))
	}
}

// tablesHashed are the scans of tables in those parts of a plan that are hashed.
func tablesHashed(plan []string) (scans []string) {
	var names []string
	for _, m := range hashed.FindAllStringSubmatch(strings.Join(plan, "\n"), -1) {
		names = append(names, m[1])
	}
	indent := func(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }
	within := -1 // the indent of a hashed part's heading
	for _, line := range plan {
		if within >= 0 && indent(line) <= within {
			within = -1
		}
		if m := heading.FindStringSubmatch(line); within < 0 && m != nil && slices.Contains(names, m[1]) {
			within = indent(line)
		}
		if within >= 0 && ofTables.MatchString(line) {
			scans = append(scans, strings.TrimSpace(line))
		}
	}
	return scans
}
