package module_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/abi/wasmasm"
	"github.com/jobrunner/runner/host/module"
)

func TestLoadedModuleRuns(t *testing.T) {
	ctx := context.Background()
	raw := build(t, handler(func(m *wasmasm.Module) { m.GlobalI32(true, 3) }))
	for name, p := range map[string]module.Params{"bytes": {Bytes: raw}, "path": {Path: writeFile(t, raw)}} {
		t.Run(name, func(t *testing.T) {
			rt := newRuntime(t, nil)
			var out []uint64
			serve(t, rt, &out)
			p.Runtime, p.Digest = rt, strings.ToUpper(module.Digest(raw))
			m, err := module.Load(ctx, p)
			if err != nil {
				t.Fatal(err)
			}
			if m.Digest != module.Digest(raw) || m.Size != int64(len(raw)) || m.MemoryMin != 1 || m.MemoryMax != 16 || m.Start != "" || len(m.Globals) != 1 || len(m.Data) != 1 {
				t.Errorf("got %+v", m)
			}
			in, err := rt.InstantiateModule(ctx, m.Compiled(), wazero.NewModuleConfig())
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range m.Data {
				in.Memory().Write(s.Offset, s.Bytes)
			}
			if _, err := in.ExportedFunction(abi.ExportDescribe).Call(ctx); err != nil {
				t.Fatal(err)
			}
			if b, _ := in.Memory().Read(uint32(out[0]), uint32(out[1])); !bytes.Contains(b, []byte(`"sdk":"test/1"`)) {
				t.Errorf("it describes itself as %q", b)
			}
			if in.ExportedGlobal(m.Fuel) == nil || in.ExportedGlobal(m.Globals[0]).Get() != 3 {
				t.Error("fuel or globals are not exported")
			}
			if err := m.Close(ctx); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestLoadRefuses(t *testing.T) {
	raw := build(t, handler(nil))
	dir := t.TempDir()
	huge := filepath.Join(dir, "huge.wasm")
	if err := os.WriteFile(huge, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(huge, 200<<20); err != nil { // a hole: nothing is stored
		t.Fatal(err)
	}
	untyped := build(t, handler(func(m *wasmasm.Module) { m.RawSection(10, []byte{2, 4, 0, 0x41, 0, 0x0b, 4, 0, 0x42, 0, 0x0b}) }))
	for _, tt := range []struct {
		name string
		p    module.Params
		code string
		want string
	}{
		{"a file of 200 MB", module.Params{Path: huge}, module.CodeTooLarge, "huge.wasm has 200.0 MiB, at most 64.0 MiB are allowed (strip debug information"},
		{"bytes above the limit", module.Params{Bytes: raw, MaxSize: 10}, module.CodeTooLarge, "bytes, at most 10 bytes are allowed"},
		{"other bytes than expected", module.Params{Bytes: raw, Digest: strings.Repeat("0", 64)}, module.CodeDigest, "the module has SHA-256 " + module.Digest(raw) + ", expected 0000"},
		{"no such file", module.Params{Path: filepath.Join(dir, "none.wasm")}, module.CodeUnreadable, "none.wasm cannot be read: no such file"},
		{"a directory", module.Params{Path: dir}, module.CodeUnreadable, "it is not a file"},
		{"a broken contract", module.Params{Bytes: []byte("\x00asm\x01\x00\x00\x00")}, module.CodeInvalid, "has no memory of its own"},
		{"instructions whose types do not fit", module.Params{Bytes: untyped}, module.CodeInvalid, "does not compile: invalid function"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.p.Runtime = newRuntime(t, nil)
			m, err := module.Load(context.Background(), tt.p)
			if m != nil || abi.CodeOf(err) != tt.code || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestLoadStopsWaitingWhenItsContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("no longer wanted")
	cancel(why)
	release := module.TakeSlots()
	defer release()
	if _, err := module.Load(ctx, module.Params{Bytes: build(t, handler(nil)), Runtime: newRuntime(t, nil)}); !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
}

func TestFunctionTablesAreSorted(t *testing.T) {
	byName := func(a, b abi.Func) int { return strings.Compare(a.Name, b.Name) }
	if !slices.IsSortedFunc(abi.WASIImports, byName) || !slices.IsSortedFunc(abi.EnvImports, byName) {
		t.Error("the lists of foreign functions are not sorted by name")
	}
}
