package app

import (
	"os"
	"regexp"
	"strings"
)

// places are the lines of a manifest's table headers, for problems that are
// found after the file was checked. A manifest may also spell a table inline
// or with dotted keys; then the place is the file.
type places map[string]int

var header = regexp.MustCompile(`^\s*\[\s*([A-Za-z0-9_-]+)(?:\s*\.\s*(?:"([^"]*)"|'([^']*)'|([A-Za-z0-9_-]+)))?\s*\]`)

func placesOf(path string) places {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	p := places{}
	for i, line := range strings.Split(string(text), "\n") {
		m := header.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		key := m[1] + "." + m[2] + m[3] + m[4]
		if _, seen := p[key]; !seen {
			p[key] = i + 1
		}
	}
	return p
}

// line is where the table of name in section begins; 0 is not known.
func (p places) line(section, name string) int { return p[section+"."+name] }
