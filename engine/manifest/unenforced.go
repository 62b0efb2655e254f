package manifest

import "slices"

// unenforced notes that t's key, if it is there, asks for a feature that this build
// does not have.
func (l *loader) unenforced(t *table, key, feature string) {
	if v := t.n.children[key]; v != nil {
		l.unavailable(t.n.keyAt[key], t.name(key), feature)
	}
}

func (l *loader) unavailable(at int, path, feature string) {
	line, column := l.places.of(at)
	l.m.unenforced = append(l.m.unenforced, Problem{
		File: l.file, Line: line, Column: column, Code: CodeFeature, Key: path,
		Message: path + " is checked but not enforced by this version: it has no " + feature + " yet",
		Fix:     "take it out, or use a version that has it",
	})
}

// Unenforced lists what the manifest asks for and this build does not do yet,
// by place. Whoever starts workers refuses to start on it: a limit that is
// declared and not held is worse than one that is missing.
func (m *Manifest) Unenforced() []Problem { return slices.Clone(m.unenforced) }
