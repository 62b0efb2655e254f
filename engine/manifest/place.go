package manifest

// Problem is a problem that was found after the manifest was checked, such as
// a module that is not there. keys are the parts of the key it concerns, as in
// "modules", "onboard", "sha256"; its place is that of the value, or of the
// nearest table around it when the file leaves the key out.
func (m *Manifest) Problem(code, message, fix string, keys ...string) Problem {
	p := Problem{File: m.Path, Code: code, Message: message, Fix: fix}
	n := m.tree
	for _, key := range keys {
		p.Key = join(p.Key, key)
		if n == nil || n.children[key] == nil {
			n = nil
			continue
		}
		at := n.keyAt[key]
		n = n.children[key]
		if n.kind != kindTable && n.kind != kindList {
			at = n.at
		}
		p.Line, p.Column = m.places.of(at)
	}
	return p
}
