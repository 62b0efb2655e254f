package call

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/jobrunner/runner/abi"
)

func TestSecretsStayOutOfRecordsAndLogs(t *testing.T) {
	const value = `hunter2"é`
	var recorded string
	var failed abi.Failure
	c := &fakeCalls{
		end:      func(out string) (time.Time, error) { recorded = out; return epoch, nil },
		failStep: func(f abi.Failure) (time.Time, error) { failed = f; return epoch, nil },
	}
	g := begin(t, c, fakeCaps{secrets: map[string]string{"KEY": value, "PIN": "918273"}})
	g.want(int64(len(value)), abi.FuncSecret, "KEY")
	if g.last() != value {
		t.Fatal("the guest did not get its secret")
	}
	g.want(6, abi.FuncSecret, "PIN")
	g.want(code(abi.CodeDenied), abi.FuncSecret, "OTHER")

	quoted, _ := json.Marshal("key=" + value)
	escaped := `"h\u0075nter2\"\u00e9"`
	g.want(0, abi.FuncStepBegin, "s", 0)
	g.want(0, abi.FuncStepEnd, `{"a":`+string(quoted)+`,"b":`+escaped+`,"c":918273,"d":-1.5e3,"e":["x"],"`+`918273`+`":1}`)
	if want := `{"a":"key=[redacted]","b":"[redacted]","c":"[redacted]","d":-1.5e3,"e":["x"],"[redacted]":1}`; recorded != want {
		t.Errorf("recorded %s\nwant     %s", recorded, want)
	}
	g.want(0, abi.FuncStepBegin, "t", 0)
	g.want(0, abi.FuncStepFail, 1, `{"message":"bad `+`h\u0075nter2\"é`+`","stack":"918273"}`)
	if failed.Message != "bad [redacted]" || failed.Stack != "[redacted]" {
		t.Errorf("failure %+v", failed)
	}
	g.call(abi.FuncLog, append([]uint64{1}, g.args("using "+value)...)...)
	g.call(abi.FuncProgress, append([]uint64{1}, g.args("at "+value)...)...)
	g.write(2, "oops "+value+"\n")
	all := strings.Join(append(c.lines, c.progress...), "\n")
	if strings.Contains(all, value) || strings.Count(all, redacted) != 3 {
		t.Errorf("log %q", all)
	}
	out, _ := g.state.End(Ended{Err: errText("wasm error: unreachable\n" + value)})
	if strings.Contains(out.Failure.Message+out.Failure.Stack, value) {
		t.Errorf("failure %+v", out.Failure)
	}
}

func TestSecretsAcrossCutsLinesAndEscapesAreFound(t *testing.T) {
	const key = "-----BEGIN KEY-----\nAAAABBBBCCCC\nDDDDEEEE\n-----END KEY-----\n"
	const quoted = `pass"word`
	const long = "prefix-of-it"
	const longer = "prefix-of-it-and-more"
	c := &fakeCalls{}
	g := begin(t, c, fakeCaps{secrets: map[string]string{"PEM": key, "Q": quoted, "S": long, "L": longer}})
	for name, value := range map[string]string{"PEM": key, "Q": quoted, "S": long, "L": longer} {
		g.want(int64(len(value)), abi.FuncSecret, name)
		g.want(int64(len(value)), abi.FuncSecret, name) // reading twice changes nothing
	}
	pad := strings.Repeat("x", abi.MaxLogLine-4)
	g.call(abi.FuncLog, append([]uint64{1}, g.args(pad+longer)...)...)
	g.write(1, pad+longer+"\n"+key+`{"p":"pass\"word"}`+"\n"+longer+"\n")
	g.call(abi.FuncProgress, append([]uint64{1}, g.args(strings.Repeat("y", abi.MaxProgressNote-4)+longer)...)...)
	g.write(2, strings.Repeat("z", 3*maxTail-len(long)/2)+longer+strings.Repeat("w", maxTail-6))
	g.want(0, abi.FuncFail, 1, `{"message":"`+strings.Repeat("m", 4<<10-4)+longer+`"}`)
	all := strings.Join(append(c.lines, c.progress...), "\n") + g.state.stderrTail() + g.state.failure.Message
	for _, leak := range []string{"pre", "AAAA", "DDDD", "word", "BEGIN", "more"} {
		if strings.Contains(all, leak) {
			t.Errorf("%q is still there", leak)
		}
	}
}

func TestACutAtTheLimitOfStdoutLeaksNoSecret(t *testing.T) {
	c := &fakeCalls{}
	g := begin(t, c, fakeCaps{secrets: map[string]string{"KEY": "swordfish"}})
	g.want(9, abi.FuncSecret, "KEY")
	g.write(1, strings.Repeat("x\n", abi.MaxStdio/2-2)+"swordfish\n")
	if all := strings.Join(c.lines, ""); strings.Contains(all, "swor") {
		t.Error("a part of the secret is logged")
	}
}

func TestSecretsStayOutOfTheOutput(t *testing.T) {
	g := begin(t, &fakeCalls{}, fakeCaps{secrets: map[string]string{"KEY": "swordfish"}})
	g.want(9, abi.FuncSecret, "KEY")
	g.want(0, abi.FuncOutput, `{"k":"swordfish"}`)
	if got := string(g.state.Output()); got != `{"k":"[redacted]"}` {
		t.Errorf("output %s", got)
	}
}

func FuzzRedactedJSONIsJSONWithoutTheSecret(f *testing.F) {
	for _, s := range []string{`{"a":"pass1234"}`, `"\u0070ass1234\\"`, `[1234567,"1234567",-1234567.5e9]`, `{"pass1234":{"pass1234":[]}}`, ` true `} {
		f.Add(s, "pass1234")
		f.Add(s, "1234567")
	}
	f.Fuzz(func(t *testing.T, text, secret string) {
		if !json.Valid([]byte(text)) || len(secret) < minRedacted || strings.Contains(redacted, secret) || strings.Contains(secret, redacted) {
			return
		}
		s := &State{}
		s.learn(secret)
		out := s.redactJSON([]byte(text))
		var v any
		d := json.NewDecoder(strings.NewReader(string(out)))
		d.UseNumber()
		if err := d.Decode(&v); err != nil {
			t.Fatalf("%q without %q is %q: %v", text, secret, out, err)
		}
		var walk func(v any)
		walk = func(v any) {
			switch v := v.(type) {
			case string:
				// What is joined around a replacement may form it again; one pass is what is promised.
				if strings.Contains(strings.ReplaceAll(v, redacted, ""), secret) && !strings.Contains(v, redacted) {
					t.Fatalf("%q without %q is %q", text, secret, out)
				}
			case []any:
				for _, e := range v {
					walk(e)
				}
			case map[string]any:
				for k, e := range v {
					walk(k)
					walk(e)
				}
			}
		}
		walk(v)
	})
}

// What is too short to be told from ordinary words stays.
func TestAShortSecretIsNotLookedFor(t *testing.T) {
	calls := &fakeCalls{}
	g := begin(t, calls, fakeCaps{secrets: map[string]string{"PIN": "cat", "KEY": "first\nlong enough to tell"}})
	g.call(abi.FuncSecret, g.args("PIN")...)
	g.call(abi.FuncSecret, g.args("KEY")...)
	g.call(abi.FuncLog, append([]uint64{1}, g.args("concatenate first, long enough to tell")...)...)
	if want := "1 concatenate first, [redacted]"; len(calls.lines) != 1 || calls.lines[0] != want {
		t.Errorf("logged %q, want %q", calls.lines, want)
	}
}
