package wire

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/jobrunner/runner/abi"
)

// maxDescription bounds what a module may say of itself, in bytes; maxHandlers
// how many handlers it may have.
const (
	maxDescription = 1 << 20
	maxHandlers    = 1000
)

// DecodeDescription is what a module passed to output in runner_describe. It is
// checked: the ABI version that this package states, at least one handler,
// every name a name and used once, every schema an object or a boolean. All
// that breaks this is a Violation of runner_describe. Unknown fields are
// ignored, since a newer SDK may say more.
func DecodeDescription(b []byte) (abi.Description, error) {
	fail := func(format string, args ...any) (abi.Description, error) {
		return abi.Description{}, violation(abi.ExportDescribe, format, args...)
	}
	if err := CheckJSON(b, maxDescription); err != nil {
		return fail("the description is not strict JSON: %v", err)
	}
	var d abi.Description
	if err := object(b, &d, false); err != nil {
		return fail("the description has the wrong shape: %v", err)
	}
	if d.ABI != abi.Version {
		return fail("the module was built for ABI %d, this host serves %d", d.ABI, abi.Version)
	}
	if len(d.Handlers) == 0 {
		return fail("the module has no handlers")
	}
	if len(d.Handlers) > maxHandlers {
		return fail("the module has %d handlers, more than the %d allowed", len(d.Handlers), maxHandlers)
	}
	d.SDK = clip(clean(d.SDK), abi.MaxName)
	seen := make(map[string]bool, len(d.Handlers))
	for i, h := range d.Handlers {
		if detail := badName(h.Name); detail != "" {
			return fail("the name of handler %d %s", i, detail)
		}
		if seen[h.Name] {
			return fail("two handlers are named %q", h.Name)
		}
		seen[h.Name] = true
		switch s := bytes.TrimSpace(h.Schema); {
		case len(s) == 0, s[0] == '{', s[0] == 't', s[0] == 'f':
		case s[0] == 'n':
			d.Handlers[i].Schema = nil
		default:
			return fail("the schema of handler %q is neither an object nor a boolean", h.Name)
		}
	}
	return d, nil
}

// AppendDescription appends d as JSON. The schemas must be JSON already.
func AppendDescription(dst []byte, d abi.Description) []byte {
	dst = strconv.AppendInt(append(dst, `{"abi":`...), int64(d.ABI), 10)
	dst = appendString(append(dst, `,"sdk":`...), d.SDK)
	dst = append(dst, `,"handlers":[`...)
	for i, h := range d.Handlers {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendString(append(dst, `{"name":`...), h.Name)
		if len(h.Schema) > 0 {
			dst = append(append(dst, `,"schema":`...), h.Schema...)
		}
		dst = append(dst, '}')
	}
	return append(dst, `]}`...)
}

// AppendMeta appends m as JSON, the last result of meta.
func AppendMeta(dst []byte, m abi.Meta) ([]byte, error) {
	b, err := json.Marshal(m)
	return append(dst, b...), err
}

// ReadMeta reads what AppendMeta wrote.
func ReadMeta(b []byte) (abi.Meta, error) {
	var m abi.Meta
	err := object(b, &m, false)
	return m, err
}
