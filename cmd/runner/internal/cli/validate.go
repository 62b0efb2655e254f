package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jobrunner/runner/cmd/runner/internal/app"
	"github.com/jobrunner/runner/engine/manifest"
)

func newValidate(e *env) *cobra.Command {
	var file, format string
	cmd := &cobra.Command{
		Use:   "validate",
		Short: "Check jobs.toml and everything it names",
		Long: `Check a manifest and everything it names, as serve does before it starts: keys,
types and values; schemas, templates, cron expressions and zones; each module's file,
size, pin, contract version, exports and imports; and that each job's handler is in
its module. All problems are reported at once, each with its place and what to do.

Nothing is started, written or changed, and no database is opened.`,
		Example: `  runner validate
  runner validate -f deploy/jobs.toml --json
  runner validate --format github        annotations in a GitHub workflow`,
		Args:    cobra.NoArgs,
		GroupID: groupWork,
	}
	e.manifestFlag(cmd, &file)
	e.jsonFlag(cmd)
	cmd.Flags().StringVar(&format, "format", "text", "text, json (as --json) or github")
	cmd.MarkFlagsMutuallyExclusive("json", "format")
	e.complete(cmd, "format", cobra.FixedCompletions([]string{"text", "json", "github"}, cobra.ShellCompDirectiveNoFileComp))
	cmd.RunE = e.run(func(ctx context.Context, _ *cobra.Command, _ []string) error {
		if !slices.Contains([]string{"text", "json", "github"}, format) {
			return usagef("text, json or github", "--format %q is not known", format)
		}
		if e.json {
			format = "json"
		}
		e.json = format == "json"
		h, err := app.NewHost(ctx, app.HostParams{Getenv: e.Getenv})
		if err != nil {
			return err
		}
		defer func() { _ = h.Close(context.WithoutCancel(ctx)) }()
		loaded, err := app.Load(ctx, app.LoadParams{Path: file, Loader: h.Load, Close: h.CloseGuest})
		var report *manifest.Report
		if errors.As(err, &report) {
			return e.printReport(report, format)
		}
		if err != nil {
			return err
		}
		defer loaded.Close(h.CloseGuest)
		return e.printValid(file, loaded, format)
	})
	return cmd
}

// printReport prints the problems, which are the answer that was asked for, and
// answers the exit code: a manifest that could not be read was not checked.
func (e *env) printReport(r *manifest.Report, format string) error {
	switch format {
	case "json":
		_, _ = e.Stdout.Write(r.JSON())
	case "github":
		_, _ = fmt.Fprint(e.Stdout, r.GitHub())
	default:
		_, _ = fmt.Fprint(e.Stdout, r.Text())
	}
	return &exit{code: exitCode(r)}
}

// moduleView is a loaded module as JSON.
type moduleView struct {
	Name     string   `json:"name"`
	Path     string   `json:"path"`
	SHA256   string   `json:"sha256"`
	Bytes    int      `json:"bytes"`
	SDK      string   `json:"sdk"`
	Handlers []string `json:"handlers"`
}

func (e *env) printValid(file string, l *app.Loaded, format string) error {
	modules := []moduleView{}
	for _, name := range slices.Sorted(maps.Keys(l.Guests)) {
		d := l.Guests[name].Describe()
		v := moduleView{Name: name, Path: l.Manifest.Modules[name].Path, SHA256: l.Guests[name].Digest(), Bytes: l.Sizes[name], SDK: d.SDK, Handlers: []string{}}
		for _, h := range d.Handlers {
			v.Handlers = append(v.Handlers, h.Name)
		}
		modules = append(modules, v)
	}
	if format == "json" {
		return printJSON(e.Stdout, map[string]any{
			"file": file, "sha256": l.Manifest.Digest, "problems": []manifest.Problem{},
			"jobs": slices.Sorted(maps.Keys(l.Manifest.Jobs)), "modules": modules, "schedules": slices.Sorted(maps.Keys(l.Manifest.Schedules)),
		})
	}
	if format == "github" {
		return nil // no annotation is no problem
	}
	t := table{head: []string{"MODULE", "SHA256", "SIZE", "SDK", "HANDLERS"}}
	for _, m := range modules {
		t.row(m.Name, m.SHA256[:12], size(m.Bytes), m.SDK, strings.Join(m.Handlers, " "))
	}
	t.print(e.Stdout, e.out, nil)
	what := count(len(l.Manifest.Jobs), "job") + ", " + count(len(modules), "module")
	if n := len(l.Manifest.Schedules); n > 0 {
		what += ", " + count(n, "schedule")
	}
	_, _ = fmt.Fprintf(e.Stdout, "%s: %s: %s\n", cell(file), e.out.green("no problems"), what)
	return nil
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// size is a number of bytes in the unit that people read.
func size(n int) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return trimZero(fmt.Sprintf("%.1f", float64(n)/(1<<10))) + " KiB"
	}
	return trimZero(fmt.Sprintf("%.1f", float64(n)/(1<<20))) + " MiB"
}
