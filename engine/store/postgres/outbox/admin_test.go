package outbox

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

// rejected stages rows of two jobs and has them rejected: a1 and a2 with X_A,
// b1 with X_B. Staged last is one that waits, and one that is published.
func rejected(t *testing.T) (d *DB, a *app, ids map[string]string) {
	cfg := installed(t)
	d, a = open(t, cfg), session(t, cfg)
	ids = map[string]string{}
	for _, name := range []string{"a1", "a2", "b1", "published", "waiting"} {
		ids[name] = a.enqueue(fmt.Sprintf(`'job-%s'`, name[:1]))
	}
	rows := claim(t, d, "r1", 4)
	settle(t, d, reject(rows[0], "X_A"), reject(rows[1], "X_A"), reject(rows[2], "X_B"), publish(rows[3]))
	return d, a, ids
}

func TestListingFiltersAndPages(t *testing.T) {
	d, _, ids := rejected(t)
	for _, c := range []struct {
		p    store.ListStagedParams
		want []string
	}{
		{store.ListStagedParams{}, []string{"waiting", "published", "b1", "a2", "a1"}},
		{store.ListStagedParams{Limit: 2}, []string{"waiting", "published"}},
		{store.ListStagedParams{Limit: 2, Before: ids["published"]}, []string{"b1", "a2"}},
		{store.ListStagedParams{State: store.Waiting}, []string{"waiting"}},
		{store.ListStagedParams{State: store.Published}, []string{"published"}},
		{store.ListStagedParams{State: store.Rejected}, []string{"b1", "a2", "a1"}},
		{store.ListStagedParams{State: store.Rejected, Code: "X_A", Before: ids["a2"]}, []string{"a1"}},
		{store.ListStagedParams{Job: "job-b"}, []string{"b1"}},
		{store.ListStagedParams{Job: "job-\x00"}, nil},
	} {
		rows, err := d.ListStaged(t.Context(), c.p)
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, name := range c.want {
			want = append(want, ids[name])
		}
		if got := idsOf(rows); !slices.Equal(got, want) {
			t.Errorf("%+v: %v, want %v", c.p, got, want)
		}
	}
	for _, c := range []struct {
		p    store.ListStagedParams
		code string
	}{
		{store.ListStagedParams{State: "lost"}, job.CodeInvalid},
		{store.ListStagedParams{Before: "x"}, job.CodePageInvalid},
		{store.ListStagedParams{Limit: 1001}, job.CodePageInvalid},
		{store.ListStagedParams{Limit: -1}, job.CodePageInvalid},
	} {
		if _, err := d.ListStaged(t.Context(), c.p); abi.CodeOf(err) != c.code {
			t.Errorf("%+v: %v", c.p, err)
		}
	}
}

// (Z8) What was rejected can be staged again, at its old place in the order and
// under a new ordinal.
func TestRejectedRowsAreStagedAgain(t *testing.T) {
	d, _, ids := rejected(t)
	again, err := d.RetryStaged(t.Context(), store.RetryStagedParams{IDs: []string{ids["b1"]}})
	if err != nil || !slices.Equal(again, []string{ids["b1"]}) {
		t.Fatal(again, err)
	}
	if again, err = d.RetryStaged(t.Context(), store.RetryStagedParams{Code: "X_A", Job: "job-b"}); err != nil || len(again) != 0 {
		t.Fatal(again, err)
	}
	if again, err = d.RetryStaged(t.Context(), store.RetryStagedParams{Code: "X_A", Job: "job-a", Limit: 1}); err != nil || !slices.Equal(again, []string{ids["a1"]}) {
		t.Fatal(again, err)
	}
	if again, err = d.RetryStaged(t.Context(), store.RetryStagedParams{All: true}); err != nil || !slices.Equal(again, []string{ids["a2"]}) {
		t.Fatal(again, err)
	}
	rows := claim(t, d, "r2", 10)
	if diff := cmp.Diff([]string{ids["a1"], ids["a2"], ids["b1"], ids["waiting"]}, idsOf(rows)); diff != "" {
		t.Fatal(diff)
	}
	if r := rows[0]; r.Claim != 2 || r.Code != "" || r.Reason != "" || !r.SettledAt.IsZero() {
		t.Errorf("staged again as %+v", r)
	}
}

// Whoever stages a row again is in the audit, with what was the matter with it, in the
// commit that does it: what was refused left nothing.
func TestWhoStagedRowsAgainIsKept(t *testing.T) {
	d, a, ids := rejected(t)
	ctx := t.Context()
	if _, err := d.RetryStaged(ctx, store.RetryStagedParams{IDs: []string{ids["a1"], ids["waiting"]}, By: "eve"}); err == nil {
		t.Fatal("a row that is staged was staged again")
	}
	began := time.Now()
	if _, err := d.RetryStaged(ctx, store.RetryStagedParams{IDs: []string{ids["b1"]}, By: "ann"}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.RetryStaged(ctx, store.RetryStagedParams{All: true, By: "bob\x00" + strings.Repeat("b", 300)}); err != nil {
		t.Fatal(err)
	}
	if again, err := d.RetryStaged(ctx, store.RetryStagedParams{All: true, By: "late"}); err != nil || len(again) != 0 {
		t.Fatal(again, err)
	}
	all := []store.AuditEntry{
		{By: ("bob\uFFFD" + strings.Repeat("b", 300))[:255], Verb: store.AuditRetry, Kind: store.AuditRow, Subject: ids["a2"], Detail: "job-a, X_A"},
		{By: ("bob\uFFFD" + strings.Repeat("b", 300))[:255], Verb: store.AuditRetry, Kind: store.AuditRow, Subject: ids["a1"], Detail: "job-a, X_A"},
		{By: "ann", Verb: store.AuditRetry, Kind: store.AuditRow, Subject: ids["b1"], Detail: "job-b, X_B"},
	}
	list := func(p store.AuditParams) []store.AuditEntry {
		t.Helper()
		got, err := d.Audit(ctx, p)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	got := list(store.AuditParams{})
	for _, c := range []struct {
		p    store.AuditParams
		want []store.AuditEntry
	}{
		{store.AuditParams{}, all},
		{store.AuditParams{By: "ann"}, all[2:]},
		{store.AuditParams{By: "a\x00nn"}, nil},
		{store.AuditParams{Kind: store.AuditRow, Subject: ids["a1"]}, all[1:2]},
		{store.AuditParams{Kind: store.AuditRun}, nil},
		{store.AuditParams{Verb: store.AuditRetry, Limit: 2}, all[:2]},
		{store.AuditParams{Before: got[1].ID}, all[2:]},
		{store.AuditParams{Verb: store.AuditDelete}, nil},
		{store.AuditParams{Since: began.Add(-time.Hour), Until: began.Add(time.Hour)}, all},
		{store.AuditParams{Until: began.Add(-time.Hour)}, nil},
		{store.AuditParams{Since: began.Add(time.Hour)}, nil},
	} {
		if diff := cmp.Diff(c.want, list(c.p), cmpopts.IgnoreFields(store.AuditEntry{}, "ID", "At")); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", c.p, diff)
		}
	}
	if _, err := d.Audit(ctx, store.AuditParams{Verb: "hide"}); abi.CodeOf(err) != job.CodeInvalid {
		t.Error(err)
	}
	// What is older than it need be goes when rows are staged again.
	a.exec(`UPDATE {schema}.outbox_audit SET at = at - interval '91 days' WHERE actor = 'ann'`)
	settle(t, d, reject(claim(t, d, "r2", 1)[0], "X_A"))
	if _, err := d.RetryStaged(ctx, store.RetryStagedParams{All: true, By: "cy"}); err != nil {
		t.Fatal(err)
	}
	if got := list(store.AuditParams{}); len(got) != 3 || got[0].By != "cy" || len(list(store.AuditParams{By: "ann"})) != 0 {
		t.Errorf("kept are %+v", got)
	}
}

func TestRetryNamesWhatItCannotRetry(t *testing.T) {
	d, _, ids := rejected(t)
	for _, c := range []struct{ id, code string }{
		{ids["waiting"], job.CodeOutboxNotRejected},
		{ids["published"], job.CodeOutboxNotRejected},
		{"01890a5d-ac96-774b-bcce-b302099a8057", job.CodeOutboxNotFound},
		{"nonsense", job.CodeOutboxNotFound},
	} {
		if _, err := d.RetryStaged(t.Context(), store.RetryStagedParams{IDs: []string{ids["a1"], c.id}}); abi.CodeOf(err) != c.code {
			t.Errorf("%s: %v, want %s", c.id, err, c.code)
		}
	}
	rows, err := d.ListStaged(t.Context(), store.ListStagedParams{State: store.Rejected})
	if err != nil || len(rows) != 3 {
		t.Errorf("%d rows are rejected still: %v", len(rows), err)
	}
	for _, p := range []store.RetryStagedParams{{}, {IDs: []string{}, Limit: 5}, {IDs: []string{ids["a1"]}, All: true}, {IDs: []string{ids["a1"]}, Code: "X_A"}} {
		if again, err := d.RetryStaged(t.Context(), p); abi.CodeOf(err) != job.CodeInvalid {
			t.Errorf("%+v: %v, %v", p, again, err)
		}
	}
	if _, err := d.RetryStaged(t.Context(), store.RetryStagedParams{Limit: 1001}); abi.CodeOf(err) != job.CodeInvalid {
		t.Error(err)
	}
}
