package cli

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/jobrunner/runner/cmd/runner/internal/bench"
	"github.com/jobrunner/runner/engine/job"
)

// spoken are the types of what commands print as JSON, by their rows of
// docs/commands.md.
var spoken = map[string]any{
	"a run: `jobs ls`":                      runView{},
	"`jobs ls`":                             runsPage{},
	"`jobs show`: a run, and":               historyView{},
	"an attempt that is settled":            attemptView{},
	"a record of its history":               stepView{},
	"`error`":                               job.Failure{},
	"`progress`":                            job.Progress{},
	"`jobs logs`":                           logsView{},
	"a logged line":                         logView{},
	"a verb on a filter's runs":             bulkView{},
	"`enqueue`":                             enqueuedView{},
	"`enqueue --input-lines`":               linesView{},
	"`queues ls`":                           queuesView{},
	"a queue":                               queueView{},
	"a pause":                               pauseView{},
	"`pause`, `resume`, `schedules delete`": pausedView{},
	"a row of `schedules`":                  scheduleView{},
	"a row of `occurrences`":                occurrenceView{},
	"a row of `runs` in `schedules run`":    scheduledView{},
	"a row of `workers`":                    workerView{},
	"`audit ls`":                            auditPage{},
	"an entry of the audit":                 auditView{},
	"`events ls`":                           eventsPage{},
	"an event":                              eventView{},
	"`events publish`":                      publishedView{},
	"`outbox ls`":                           stagedPage{},
	"a staged row":                          stagedView{},
	"`migrate status`, `migrate up`":        schemaView{},
	"`migrate outbox`":                      outboxView{},
	"a row of `modules` in `validate`":      moduleView{},
	"`modules inspect`":                     inspectView{},
	"`version`":                             versionView{},
	"`bench`":                               bench.Result{},
	"a refusal":                             refusal{},
}

// namesOf are the names of v's fields as JSON, without those of a view that has a row
// of its own and that v only adds to.
func namesOf(v any) (names []string) {
	t := reflect.TypeOf(v)
	for i := range t.NumField() {
		f := t.Field(i)
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Type == reflect.TypeFor[runView](), f.Type == reflect.TypeFor[schemaView]():
		case f.Anonymous:
			names = append(names, namesOf(reflect.Zero(f.Type).Interface())...)
		default:
			names = append(names, tag)
		}
	}
	return names
}

var (
	snake    = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)
	backtick = regexp.MustCompile("`([^`]*)`")
)

func commandsPage(t *testing.T) string {
	page, err := os.ReadFile("../../../../docs/commands.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

// The page has the names of all JSON, in the order in which they are printed.
func TestJSONIsNamedAsThePageSays(t *testing.T) {
	_, table, _ := strings.Cut(commandsPage(t), "| what | names |\n")
	found := map[string]bool{}
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(line, "|\n "), " | ")
		if len(cells) != 2 {
			if strings.HasPrefix(line, "|---") {
				continue
			}
			break
		}
		// The longest that begins so: a listing and its rows begin alike.
		row := ""
		for name := range spoken {
			if strings.HasPrefix(cells[0], name) && len(name) > len(row) {
				row = name
			}
		}
		if row == "" {
			t.Errorf("the page speaks of %q, which no command prints", cells[0])
			continue
		}
		found[row] = true
		var names []string
		for _, m := range backtick.FindAllStringSubmatch(cells[1], -1) {
			names = append(names, m[1])
		}
		if want := namesOf(spoken[row]); !slices.Equal(names, want) {
			t.Errorf("%s:\nthe page says  %v\nit is printed  %v", row, names, want)
		}
		for _, name := range names {
			if !snake.MatchString(name) {
				t.Errorf("%s: %q is no name in snake case", row, name)
			}
		}
	}
	for name := range spoken {
		if !found[name] {
			t.Errorf("the page says nothing of %s", name)
		}
	}
}

// The page lists all commands, and the codes of what could not be carried out.
func TestThePageListsAllCommandsAndCodes(t *testing.T) {
	page := commandsPage(t)
	list, _, _ := strings.Cut(page, "\n## ")
	each(newRoot(testEnv()), func(c *cobra.Command) {
		name := strings.TrimPrefix(c.CommandPath(), "runner ")
		if !c.HasSubCommands() && !regexp.MustCompile("`"+regexp.QuoteMeta(name)+"[` ]").MatchString(list) {
			t.Errorf("the page does not list %s", name)
		}
	})
	_, codes, _ := strings.Cut(page, "\n## Exit codes")
	for code := range cannot {
		if !strings.Contains(codes, "`"+code+"`") && !strings.HasPrefix(code, "X_DATABASE_") {
			t.Errorf("the page does not say that %s ends with 2", code)
		}
	}
	for _, m := range backtick.FindAllStringSubmatch(codes, -1) {
		if strings.HasPrefix(m[1], "X_") && m[1] != "X_DATABASE_…" && !cannot[m[1]] {
			t.Errorf("the page says that %s ends with 2", m[1])
		}
	}
}
