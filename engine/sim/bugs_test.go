package sim_test

import (
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/jobrunner/runner/engine/outbox"
	"github.com/jobrunner/runner/engine/store"
)

// bug is one that is planted, to see it found.
type bug struct {
	name  string
	finds string // what is said of it, as a regular expression
	from  uint64 // the first seed to look in; 0 is 1
	// trouble, if not nil, changes how much goes wrong, so that the mistake is met soon.
	trouble func(*profile)
	// above stands between an engine and its connection: what it makes of one
	// operation may be several, with anything between them.
	above func(db store.Store, p *process) store.Store
	// within stands in the database, beneath turns and account.
	within func(db store.Store, w *world) store.Store
	// queue stands between a relay and where it publishes.
	queue func(q outbox.Queue) outbox.Queue
	keep  time.Duration // how long relays keep what is published
}

// enough seeds to find any of the bugs in. A few are, but which ones depends on how
// the runtime orders goroutines.
const enough = 400

// planted are mistakes of the kinds that are made: each was made in some system
// of this kind.
var planted = []bug{
	{name: "a fence without the ordinal", finds: "a settle of .* landed", trouble: bounces, within: func(db store.Store, w *world) store.Store { return &noOrdinal{db, w} }},
	{name: "an answer before the record", finds: "step|record", above: func(db store.Store, p *process) store.Store { return &early{Store: db} }},
	{name: "a claim that hands out twice", finds: "SaveSteps|claim|settle|step", above: func(db store.Store, p *process) store.Store { return &twice{Store: db, p: p} }},
	{name: "a fire in two transactions", finds: "occurrence", above: func(db store.Store, p *process) store.Store { return &twoWrites{db} }},
	{name: "a lease judged by a process's clock", finds: "Deregister took", above: func(db store.Store, p *process) store.Store { return &ownClock{db, p} }},
	{name: "slots that are counted and then taken", finds: "of which \\d may", within: func(db store.Store, w *world) store.Store { return &counted{db} }},
	{name: "a wait that begins anew", finds: "was given event|is its|go on at event|begin at event", within: func(db store.Store, w *world) store.Store { return &anew{db} }},
	{name: "a settle without its step", finds: "Settle did not record", within: func(db store.Store, w *world) store.Store { return &forgetful{db} }},
	{name: "an unwind that skips a step", finds: "is not undone", trouble: asks(8), above: func(db store.Store, p *process) store.Store { return &skips{db} }},
	{name: "an unwind in the order of the steps", finds: "which came after it", trouble: asks(8), above: func(db store.Store, p *process) store.Store { return &forwards{db} }},
	{name: "an end that its parent does not hear of", finds: "of its parent is|is to wake", within: func(db store.Store, w *world) store.Store { return &orphans{db} }},
	{name: "children that outlive their parent", finds: "goes on", trouble: related, within: func(db store.Store, w *world) store.Store { return &leaves{db} }},
	{name: "an end that is told in a second commit", finds: "told nobody", above: func(db store.Store, p *process) store.Store { return &tellsLater{db} }},
	{name: "a rate that each process counts for itself", finds: "was claimed as number", above: func(db store.Store, p *process) store.Store { return &ownRate{Store: db, p: p} }},
	{name: "a pause that is heard of a while later", finds: "is paused", from: 6, within: func(db store.Store, w *world) store.Store { return &slowPause{Store: db, w: w} }},
	{name: "a busy key at the head of the line", finds: "which nothing holds up", within: func(db store.Store, w *world) store.Store { return &headOfLine{db, w} }},
	{name: "a once step whose start is not written", finds: "once step", from: 3, above: func(db store.Store, p *process) store.Store { return &unstarted{db} }},
	{name: "a relay that makes ids of its own", finds: "stands for it|was never published", queue: func(q outbox.Queue) outbox.Queue { return &anonymous{q} }},
	{name: "a relay that goes on behind what failed", finds: "which was staged first", trouble: stages, queue: func(q outbox.Queue) outbox.Queue { return &overtakes{q} }},
	{name: "a key that two runs have", finds: "have one key", trouble: asks(3), within: func(db store.Store, w *world) store.Store { return &keyless{Store: db} }},
	{name: "a run that is answered for and not there", finds: "which is not there", within: func(db store.Store, w *world) store.Store { return &drops{Store: db} }},
	{name: "a promotion of what is not delayed", finds: "Promote moved", within: func(db store.Store, w *world) store.Store { return &forces{db} }},
	{name: "a purge of what has not expired", finds: "was purged before", within: func(db store.Store, w *world) store.Store { return &hasty{db} }},
	{name: "events that are kept too short", finds: "keeps the event", within: func(db store.Store, w *world) store.Store { return &brief{db} }},
	{name: "a step without its event", finds: "lost the event", within: func(db store.Store, w *world) store.Store { return &mute{db} }},
	{name: "a wait that is given an event again", finds: "go on at event|was given event", within: func(db store.Store, w *world) store.Store { return &rewinds{db} }},
	{name: "an end without its lines", finds: "lost its line", within: func(db store.Store, w *world) store.Store { return &unwritten{db} }},
	{name: "an end that is told by each delivery", finds: "was told of before", trouble: repeated, within: func(db store.Store, w *world) store.Store { return &repeats{Store: db} }},
	{name: "a share of a tenant that is not kept", finds: "of tenant .* in crowd running", within: func(db store.Store, w *world) store.Store { return &reclaims{db, greedy} }},
	{name: "a process that counts nobody of a tenant", finds: "of tenant .* in queue crowd at a time", trouble: crowded, above: func(db store.Store, p *process) store.Store { return &reclaims{db, aloof} }},
	{name: "a rate that gives less than it may", finds: "which nothing holds up", within: func(db store.Store, w *world) store.Store { return &reclaims{db, stingy} }},
	{name: "limits of the version before", finds: "of which \\d may|nothing holds up|do not allow", trouble: narrowed, above: func(db store.Store, p *process) store.Store { return &reclaims{db, stale()} }},
	{name: "a parent that keeps its place", finds: "nothing holds up|never ended", trouble: asks(17), within: func(db store.Store, w *world) store.Store { return &sits{db, w} }},
	{name: "a purge of runs that comes early", finds: "was purged before", within: ahead(time.Minute, "Purge")},
	{name: "a run that is kept too short", finds: "keeps it until", within: func(db store.Store, w *world) store.Store { return &halves{db} }},
	{name: "a purge of events that comes early", finds: "PurgeEvents lost event", within: ahead(7*24*time.Hour, "PurgeEvents")},
	{name: "rows that are kept too short", finds: "row .* was purged before", trouble: stages, keep: rowsKept / 2},
	{name: "immediate work that its enqueuer's clock stamps", finds: "Enqueue made .* due at", within: ownTime("Enqueue")},
	{name: "a claim that decides by its process's clock what is due", finds: "which is due at", within: ownTime("Claim")},
	{name: "an end by the clock of the process that settles", finds: "ended .* at .*, and keeps it", within: ownTime("Settle")},
	{name: "a lease that is renewed by its worker's clock", finds: "a renewal (revived|says)|whose lease ends at|lease lapsed at", within: ownTime("Renew")},
	{name: "a reclaim that decides by its process's clock", finds: "Reclaim took", within: ownTime("Reclaim")},
	{name: "an event with its publisher's time", finds: "Publish stamped", within: ownTime("Publish")},
	{name: "a lead that its process's clock decides", finds: "is led by another", within: ownTime("LeadSchedules")},
	{name: "a schedule that fires by its process's clock", finds: "fired .* at", within: ownTime("LeadSchedules", "FireSchedule")},
	{name: "an occurrence that is passed over", finds: "moved past", above: func(db store.Store, p *process) store.Store { return &passes{db, p.w} }},
}

// oneWorker has one process that lives long, and is refused much.
func oneWorker(p *profile) {
	*p = profile{refuse: 0.1, lose: 0.05, slow: 0.5, slowest: time.Second, actions: 40, engines: 1, version: 1}
}

// bounces is oneWorker, whose runs an operator cancels and retries as they run.
func bounces(p *profile) {
	oneWorker(p)
	p.verb = 2
}

// repeated is oneWorker, much of which is delivered twice.
func repeated(p *profile) {
	oneWorker(p)
	p.twice, p.ask = 0.5, 6
}

// crowded is oneWorker, of which tenants want much.
func crowded(p *profile) {
	oneWorker(p)
	p.ask, p.version = 13, 2
}

// narrowed is oneWorker, most of which few may do at a time.
func narrowed(p *profile) {
	oneWorker(p)
	p.ask = 6
}

// asks is oneWorker, of which clients want one kind of thing.
func asks(kind int) func(*profile) {
	return func(p *profile) {
		oneWorker(p)
		p.ask = kind
	}
}

// related is oneWorker, whose runs have others run.
func related(p *profile) {
	oneWorker(p)
	p.ask = 9
}

// stages is oneWorker, of which only applications want anything.
func stages(p *profile) {
	oneWorker(p)
	p.ask = 15
}

// TestEveryPlantedBugIsFound shows that the simulation can fail: one mistake at a
// time, and so many seeds to find it in.
func TestEveryPlantedBugIsFound(t *testing.T) {
	for _, b := range planted {
		t.Run(b.name, func(t *testing.T) {
			first := max(b.from, 1)
			if *oneSeed != 0 {
				first = *oneSeed
			}
			for seed := first; seed < first+enough; seed++ {
				out := simulate(t, seed, b)
				if out.fault == "" {
					continue
				}
				if *oneSeed != 0 {
					fmt.Println(out.last(len(out.trail)))
				}
				if !regexp.MustCompile(b.finds).MatchString(out.fault) {
					t.Logf("seed %d found what else the bug does: %s", seed, out.fault)
					continue
				}
				t.Logf("found by seed %d after %d operations: %s", seed, out.steps, out.fault)
				failed, alike := 1, 1
				for range *again - 1 {
					next := simulate(t, seed, b)
					if next.fault != "" {
						failed++
					}
					if next.sum == out.sum {
						alike++
					}
				}
				if *again > 1 {
					t.Logf("of %d simulations of this seed %d failed, %d along the very same way", *again, failed, alike)
				}
				return
			}
			t.Errorf("%d seeds did not find it", enough)
		})
	}
}
