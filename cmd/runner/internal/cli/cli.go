// Package cli is the command line: one file per command with its flags, its
// help and what it prints. What a command does is in package app and in the
// engine; here is only how a person or a script asks for it.
//
// Where output goes: the answer to what was asked is on stdout and nothing
// else is, so that it can be piped. Refusals, progress and logs are on stderr.
//
// Exit codes: 0 it worked, 1 the answer is no (a problem in what was asked
// about, a refusal, a run that did not end done), 2 it could not be carried out
// (unknown flag, unreadable file, no database).
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
)

// Params is what a command line has of its process.
type Params struct {
	Args   []string // without the program's name
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
	Getenv func(string) string
}

// Process is the Params of the process itself.
func Process() Params {
	return Params{Args: os.Args[1:], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv}
}

// env is what every command shares. One goroutine uses it.
type env struct {
	Params
	out, err style
	started  bool // a command's own code has begun: what fails from now on is no usage error
	json     bool // refusals are JSON too
	command  string
	cmd      *cobra.Command // the one that runs
}

// Main runs the command line and answers the process's exit code. It prints
// what went wrong and never panics.
func Main(p Params) int {
	answer := &answer{w: p.Stdout}
	e := &env{Params: p, out: styleOf(p.Stdout, p.Getenv), err: styleOf(p.Stderr, p.Getenv), command: "runner"}
	e.Stdout = answer
	root := newRoot(e)
	root.SetArgs(p.Args)
	root.SetIn(p.Stdin)
	root.SetErr(p.Stderr)
	code := exitOK
	if err := safely(func() error { return root.ExecuteContext(context.Background()) }); err != nil {
		if !e.started {
			err = e.usage(err)
		}
		code = e.fail(err)
	}
	if answer.err != nil && code != exitCannot {
		code = e.fail(answer.err)
	}
	return code
}

// answer is stdout, and the first error of writing there: half an answer must
// not look like a whole one to the script that asked.
type answer struct {
	w   io.Writer
	err error
}

func (a *answer) Write(b []byte) (int, error) {
	n, err := a.w.Write(b)
	if err != nil {
		a.err = &abi.Error{
			Code: codeOutput, Message: fmt.Sprintf("the answer could not be written: %v", err),
			Fix: "what the command did is done; see whether the disk is full, or whoever reads stdout is gone", Err: err,
		}
	}
	return n, a.err
}

// safely turns a panic of fn into an error. Its stack is for those who ask.
func safely(fn func() error) (err error) {
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		if os.Getenv("RUNNER_DEBUG") != "" {
			_, _ = os.Stderr.Write(debug.Stack())
		}
		err = &abi.Error{
			Code:    job.CodeInternal,
			Message: fmt.Sprintf("the command broke on a defect of its own: %v", r),
			Fix:     "run it again with RUNNER_DEBUG=1 and report what it prints",
		}
	}()
	return fn()
}

func newRoot(e *env) *cobra.Command {
	root := &cobra.Command{
		Use:   "runner",
		Short: "Run durable jobs whose handlers are WebAssembly modules",
		Long: `runner owns a durable job queue and runs job handlers as WebAssembly modules.

A handler is written in your language, compiled to one .wasm file and declared in
jobs.toml. Its steps are recorded as they complete, so that a run that crashes,
sleeps for three days or moves to another process goes on where it stopped.

Without a database URL everything is kept, durably, in one SQLite file.`,
		Example: `  runner validate                       check jobs.toml and its modules
  runner try onboard-org --input '{"orgId":"acme","plan":"team"}'
                                        run one job in memory, sleeps taking no time
  runner serve                          work the queue
  runner enqueue onboard-org --input '{"orgId":"acme","plan":"team"}'
  runner jobs ls --state dead           what waits for a person`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	var version bool
	root.Flags().BoolVar(&version, "version", false, "print what this binary is made of, as runner version does")
	root.Args = cobra.ArbitraryArgs // what is no command is refused below, as in a group
	root.RunE = func(cmd *cobra.Command, args []string) error {
		e.started = true
		switch {
		case len(args) > 0:
			return noCommand(cmd, args[0])
		case version:
			return e.version()
		}
		return cmd.Help()
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		e.command = cmd.CommandPath()
		e.json = e.json || slices.Contains(e.Args, "--json") // which may stand behind what was not understood
		return flagError(err)
	})
	root.CompletionOptions.HiddenDefaultCmd = false
	root.SetHelpTemplate(helpTemplate)
	root.SetUsageTemplate(usageTemplate)
	root.AddGroup(&cobra.Group{ID: groupWork, Title: "Work:"}, &cobra.Group{ID: groupOperate, Title: "Operate:"}, &cobra.Group{ID: groupTools, Title: "Tools:"})
	root.SetHelpCommand(newHelp(e, root))
	root.SetCompletionCommandGroupID(groupTools)
	for _, c := range commands(e) {
		root.AddCommand(c)
	}
	root.SetOut(e.Stdout) // before the commands of completion take it
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			c.Args = nil // or it would say so in words of its own
			e.group(c)
		}
	}
	e.checkArguments(root)
	return root
}

// newHelp is help, which refuses a command that there is not.
func newHelp(e *env, root *cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "help [COMMAND]…",
		Short:   "Show the help of a command",
		Long:    "Show what a command is for, its flags and examples: as COMMAND --help does.",
		Example: "  runner help jobs ls",
		GroupID: groupTools,
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
			at, _, err := root.Find(args)
			if err == nil {
				for _, c := range at.Commands() {
					names = append(names, c.Name()+"\t"+c.Short)
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		e.command = cmd.CommandPath()
		at, rest, err := root.Find(args)
		if err != nil || len(rest) > 0 {
			if at == nil {
				at, rest = root, args
			}
			return noCommand(at, rest[0])
		}
		return at.Help()
	}
	return cmd
}

// group makes cmd a command that only has others. One that does not exist is an
// error, not a reason to print help and report success.
func (e *env) group(cmd *cobra.Command, subcommands ...*cobra.Command) *cobra.Command {
	cmd.AddCommand(subcommands...)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		e.command = cmd.CommandPath()
		if len(args) == 0 {
			return cmd.Help()
		}
		return noCommand(cmd, args[0])
	}
	return cmd
}

func noCommand(cmd *cobra.Command, name string) error {
	fix := "see " + cmd.CommandPath() + " --help"
	cmd.SuggestionsMinimumDistance = 2 // typos, not only beginnings
	if near := cmd.SuggestionsFor(name); len(near) > 0 {
		fix = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return usagef(fix, "%s has no command %q", cmd.CommandPath(), name)
}

const (
	groupWork    = "work"
	groupOperate = "operate"
	groupTools   = "tools"
)

// interruptPatience is how long a command may take to end once it was told to: a
// write that is under way should be answered. One that waits for something that
// knows no context (a pipe, a terminal) is left behind.
const interruptPatience = 2 * time.Second

// run makes a command's RunE: fn's context ends at an interrupt. A second one ends
// the process.
func (e *env) run(fn func(ctx context.Context, cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		e.started = true
		e.cmd, e.command = cmd, cmd.CommandPath()
		if err := checkFlags(cmd); err != nil {
			return err
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		done := make(chan error, 1)
		go func() { done <- safely(func() error { return fn(ctx, cmd, args) }) }()
		err := awaitInterruptible(ctx, stop, done)
		if err != nil && ctx.Err() != nil && errors.Is(err, context.Canceled) {
			return &exit{code: exitCannot, err: &abi.Error{Code: codeInterrupted, Message: "interrupted before it was done"}}
		}
		return err
	}
}

// awaitInterruptible is what done says, or that ctx ended and nothing was said
// soon after.
func awaitInterruptible(ctx context.Context, stop func(), done <-chan error) error {
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	stop() // a second signal does what signals do
	t := time.NewTimer(interruptPatience)
	defer t.Stop()
	select {
	case err := <-done:
		return err
	case <-t.C:
		return ctx.Err()
	}
}

const helpTemplate = `{{with (or .Long .Short)}}{{. | trimTrailingWhitespaces}}

{{end}}{{if or .Runnable .HasSubCommands}}{{.UsageString}}{{end}}`

const usageTemplate = `Usage:{{if .Runnable}}
  {{.UseLine}}{{end}}{{if .HasAvailableSubCommands}}
  {{.CommandPath}} COMMAND{{end}}{{if .HasExample}}

Examples:
{{.Example}}{{end}}{{if .HasAvailableSubCommands}}{{$cmds := .Commands}}{{if eq (len .Groups) 0}}

Commands:{{range $cmds}}{{if .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{else}}{{range $group := .Groups}}

{{.Title}}{{range $cmds}}{{if (and (eq .GroupID $group.ID) .IsAvailableCommand)}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}{{end}}{{end}}{{if .HasAvailableLocalFlags}}

Flags:
{{.LocalFlags.FlagUsagesWrapped 100 | trimTrailingWhitespaces}}{{end}}

Exit status:
  0  it worked
  1  the answer is no: a problem was found, or the request was refused
  2  it could not be carried out: bad flags, unreadable file, no database
`
