package manifest

import (
	"path/filepath"
	"strings"
)

// Bounds of a module's linear memory, in bytes. A page of it is 64 KiB.
const (
	DefaultMemory = 128 << 20
	maxMemory     = 4 << 30
	memoryPage    = 64 << 10
)

// module reads [modules.NAME].
func (l *loader) module(name string, t *table) {
	m := Module{Name: name, Memory: DefaultMemory}
	if path, ok := t.text("path", "plugins/"+name+".wasm"); ok {
		m.Path = l.modulePath(t, path)
	} else if t.n.children["path"] == nil {
		t.c.add(t.n.at, CodeRequired, t.name("path"), "["+t.path+"] has no path", `write path = "plugins/`+name+`.wasm"`)
	}
	if sum, ok := t.text("sha256", strings.Repeat("0", 64)); ok {
		m.SHA256 = strings.ToLower(sum)
		switch {
		case strings.HasPrefix(m.SHA256, "sha256:"):
			t.bad("sha256", CodeValue, "starts with sha256:", "write the 64 hex digits alone")
		case len(sum) != 64:
			t.bad("sha256", CodeValue, "must be 64 hex digits; this is "+quote(sum), "runner modules inspect FILE prints it")
		case strings.Trim(m.SHA256, "0123456789abcdef") != "":
			t.bad("sha256", CodeValue, "must be hex digits; this is "+quote(sum), "runner modules inspect FILE prints it")
		}
	}
	if v := t.get("memory"); v != nil {
		if v.kind != kindString {
			t.wrongType("memory", "a size in quotes, with a unit", `"64MiB"`)
		} else if n, err := ParseSize(v.text); err != nil {
			t.bad("memory", CodeValue, "is not a size: "+err.Error(), `write KiB, MiB or GiB, as in "64MiB"`)
		} else if n < memoryPage || n > maxMemory {
			t.bad("memory", CodeValue, "must be from 64KiB to 4GiB; this is "+clip(v.text), "leave it out for "+FormatSize(DefaultMemory))
		} else if n%memoryPage != 0 {
			t.bad("memory", CodeValue, "must be whole pages of 64KiB; this is "+clip(v.text), "write "+FormatSize((n/memoryPage+1)*memoryPage))
		} else {
			m.Memory = n
		}
	}
	if allow := t.table("allow", `{ http = ["https://api.example.com/*"] }`); allow != nil {
		m.Allow = allow.allow()
	}
	l.m.Modules[name] = m
	t.close()
}

// modulePath makes the path absolute, and refuses one that leaves the
// manifest's folder: what a reviewer sees beside the manifest is what runs.
func (l *loader) modulePath(t *table, path string) string {
	if problem := l.outside(path); problem != "" {
		t.bad("path", CodeModule, problem, "keep the module in the manifest's folder or below, and name it relative to it")
		return ""
	}
	return filepath.Join(l.dir, filepath.FromSlash(path))
}

// outside says why a path may not be used; "" is nothing. A file that does not
// exist is no reason.
func (l *loader) outside(path string) string {
	switch {
	case path == "":
		return "is empty"
	case strings.ContainsRune(path, 0):
		return "holds a NUL character"
	case strings.Contains(path, `\`):
		return "has a \\; folders are separated with /"
	case filepath.IsAbs(path) || strings.HasPrefix(path, "/"):
		return "is absolute; this is " + quote(path)
	case !filepath.IsLocal(path):
		return "leads out of the manifest's folder; this is " + quote(path)
	}
	if l.root != nil {
		if _, err := l.root.Stat(path); err != nil {
			if p := fileProblem(err).Error(); p == escapes {
				return p + " through a link; this is " + quote(path)
			}
		}
	}
	return ""
}
