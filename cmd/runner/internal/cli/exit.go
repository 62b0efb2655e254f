package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/cmd/runner/internal/app"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/manifest"
	"github.com/jobrunner/runner/host/module"
)

// Exit codes; the package comment says what each means.
const (
	exitOK      = 0
	exitProblem = 1
	exitCannot  = 2
)

// Codes of the command line's own refusals.
const (
	codeUsage       = "X_USAGE"
	codeInterrupted = "X_INTERRUPTED"
	codeRunNotDone  = "X_RUN_NOT_DONE"
	codeFile        = "X_FILE_UNREADABLE"
	codeOutput      = "X_OUTPUT_FAILED"
)

// exit is an error that knows its exit code. With a nil err everything has
// been said already.
type exit struct {
	code int
	err  error
}

func (x *exit) Error() string {
	if x.err == nil {
		return fmt.Sprintf("exit status %d", x.code)
	}
	return x.err.Error()
}

func (x *exit) Unwrap() error { return x.err }

// usage is an error in how the command was written.
func (e *env) usage(err error) error {
	var coded *abi.Error
	if err = flagError(err); !errors.As(err, &coded) {
		return usagef("see "+e.command+" --help", "%s", strings.TrimSpace(err.Error()))
	}
	return &exit{code: exitCannot, err: err}
}

func usagef(fix, format string, args ...any) error {
	return &exit{code: exitCannot, err: &abi.Error{Code: codeUsage, Message: fmt.Sprintf(format, args...), Fix: fix}}
}

// cannot are the codes that say the command was not carried out, whatever it
// asked for.
var cannot = map[string]bool{
	codeUsage:                   true,
	codeInterrupted:             true,
	codeFile:                    true,
	codeOutput:                  true,
	job.CodeDatabaseBusy:        true,
	job.CodeDatabaseCorrupt:     true,
	job.CodeDatabaseDenied:      true,
	job.CodeDatabaseFull:        true,
	job.CodeDatabaseMissing:     true,
	job.CodeDatabaseReadOnly:    true,
	job.CodeDatabaseSchema:      true,
	job.CodeDatabaseUnavailable: true,
	job.CodeInternal:            true,
	job.CodePageInvalid:         true,
	app.CodeDatabaseURL:         true,
	app.CodeListen:              true,
	app.CodeNotPostgres:         true,
	manifest.CodeFile:           true,
	module.CodeCache:            true,
}

// exitCode is the code that err ends the process with: an error without a code
// of its own is something nobody foresaw, so nothing was answered.
func exitCode(err error) int {
	var x *exit
	if errors.As(err, &x) {
		return x.code
	}
	code := abi.CodeOf(err)
	if code == "" || cannot[code] || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return exitCannot
	}
	return exitProblem
}

// fail prints err and answers the exit code.
func (e *env) fail(err error) int {
	var x *exit
	if errors.As(err, &x) && x.err == nil {
		return x.code
	}
	code := exitCode(err)
	for _, one := range flatten(err) {
		e.sayError(one)
	}
	return code
}

// flatten is the joined errors of err, each as far out as it carries its code.
func flatten(err error) []error {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) && abi.CodeOf(err) == abi.CodeOf(errors.Join(joined.Unwrap()...)) {
		var all []error
		for _, one := range joined.Unwrap() {
			all = append(all, flatten(one)...)
		}
		return all
	}
	return []error{err}
}

func (e *env) sayError(err error) {
	refusal := refusalOf(err)
	if e.json {
		b, _ := json.Marshal(map[string]any{"error": refusal})
		_, _ = fmt.Fprintf(e.Stderr, "%s\n", printableJSON(b))
		return
	}
	code := refusal.Code
	if code != "" {
		code += ": "
	}
	_, _ = fmt.Fprintf(e.Stderr, "%s: %s%s\n", e.command, e.err.red(code), refusal.Message)
	if refusal.Fix != "" {
		_, _ = fmt.Fprintf(e.Stderr, "  to do: %s\n", refusal.Fix)
	}
}

// refusal is an error as it is shown.
type refusal struct {
	Code    string `json:"code,omitempty"`
	Message string `json:"message"`
	Fix     string `json:"fix,omitempty"`
}

// refusalOf keeps what wrapping added: "loading module x: …" in front of the
// message of the coded error inside.
func refusalOf(err error) refusal {
	var x *exit
	if errors.As(err, &x) {
		err = x.err
	}
	var coded *abi.Error
	if !errors.As(err, &coded) {
		return refusal{Message: oneLine(err.Error())}
	}
	r := refusal{Code: coded.Code, Message: coded.Message, Fix: coded.Fix}
	if outer, found := strings.CutSuffix(err.Error(), coded.Error()); found && outer != "" {
		r.Message = outer + r.Message
	}
	r.Message, r.Fix = oneLine(r.Message), oneLine(r.Fix)
	return r
}

// maxSaid bounds a message that repeats something long, in bytes.
const maxSaid = 2 << 10

// oneLine keeps control characters of a hostile text (a job's name, a driver's
// message) away from the terminal; line breaks stay, indented.
func oneLine(s string) string {
	if len(s) > maxSaid {
		s = s[:maxSaid] + "…" // of a rune that is cut, printable leaves a sign
	}
	return strings.ReplaceAll(strings.TrimRight(printable(s), "\n"), "\n", "\n    ")
}
