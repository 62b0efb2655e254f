package manifest

// place is a line and a column, from 1.
type place struct{ line, column int }

// remember notes where every key of the file stands, for problems that are
// found after it was checked.
func (c *checker) remember(placed map[string]place, n *node, path string) {
	for i, item := range n.items {
		if item.kind == kindTable {
			c.remember(placed, item, indexed(path, i))
		}
	}
	for _, key := range n.keys {
		child, full := n.children[key], join(path, key)
		at := child.at
		if child.kind == kindTable || child.kind == kindList {
			at = n.keyAt[key]
		}
		line, column := c.places.of(at)
		placed[full] = place{line, column}
		c.remember(placed, child, full)
	}
}

// Problem is a problem that was found after the manifest was checked, such as
// a module that is not there. keys are the parts of the key it concerns, as in
// "modules", "onboard", "sha256"; its place is that of the value, or of the
// nearest table around it when the file leaves the key out.
func (m *Manifest) Problem(code, message, fix string, keys ...string) Problem {
	p := Problem{File: m.Path, Code: code, Message: message, Fix: fix}
	for _, key := range keys {
		p.Key = join(p.Key, key)
		if at, ok := m.placed[p.Key]; ok {
			p.Line, p.Column = at.line, at.column
		}
	}
	return p
}
