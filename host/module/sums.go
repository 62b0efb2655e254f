package module

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// sumsDir is the folder of a build's cache that says what its entries must be:
// a file for each module, named by the SHA-256 of its rewritten bytes, with a
// line "SHA256 FOLDER/ENTRY" for its entry. wazero's own checksum covers the
// code alone: with one bit changed in the table of functions beside it, another
// place than a function's beginning would be jumped to.
//
// How wazero names an entry is its own secret. So what appeared in the cache while
// a module was compiled is taken for it: where modules are compiled side by side,
// or by several processes, the file names a neighbour's entry too, which is
// checked once more than needed.
const sumsDir = "sums"

// forget removes the entries that no sum is known of: whoever made them was
// killed before it noted one. That of a process that is just about to is made
// again by the next.
func (c *Cache) forget() {
	sums := c.allSums()
	for name := range c.entries() {
		if sums[name] == "" {
			_ = os.Remove(filepath.Join(c.dir, name)) // what stays is met by wazero's own check
		}
	}
}

// check removes what a load of the module could find damaged, and answers the
// entries that are left. It is called before wazero is to look for the module.
func (c *Cache) check(digest string) map[string]fs.FileInfo {
	entries := c.entries()
	sums, known := c.sums(digest)
	if !known {
		// Nobody finished compiling it here, or what it left says nothing any
		// more. Its entry may yet be there, under a name that only others know.
		sums = c.allSums()
	}
	for name, want := range sums {
		if entries[name] == nil {
			continue
		}
		path := filepath.Join(c.dir, name)
		if got, err := sumOf(path); err != nil || got != want {
			_ = os.Remove(path)
			delete(entries, name)
		}
	}
	return entries
}

// note says what the entries are that were made since before was answered by
// check. What cannot be noted is compiled again by the next process.
func (c *Cache) note(digest string, before map[string]fs.FileInfo) {
	var lines strings.Builder
	for name, now := range c.entries() {
		if was, old := before[name]; old && os.SameFile(was, now) {
			continue
		}
		if sum, err := sumOf(filepath.Join(c.dir, name)); err == nil {
			lines.WriteString(sum + " " + name + "\n")
		}
	}
	if lines.Len() == 0 {
		return // found, or not to be written
	}
	dir := filepath.Join(c.dir, sumsDir)
	_ = os.Mkdir(dir, 0o700) // or the next line says so
	f, err := os.CreateTemp(dir, digest+".*.tmp")
	if err != nil {
		return
	}
	_, err = f.WriteString(lines.String())
	if cerr := f.Close(); err != nil || cerr != nil || os.Rename(f.Name(), filepath.Join(dir, digest)) != nil {
		_ = os.Remove(f.Name()) // or it expires
	}
}

// sums are the sums by entry that the module's file has; false is none, or one
// that is damaged.
func (c *Cache) sums(digest string) (map[string]string, bool) {
	b, err := os.ReadFile(filepath.Join(c.dir, sumsDir, digest))
	if err != nil {
		return nil, false
	}
	sums := map[string]string{}
	for line := range strings.Lines(string(b)) {
		sum, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if raw, err := hex.DecodeString(sum); !ok || err != nil || len(raw) != sha256.Size || !strings.HasSuffix(line, "\n") || !filepath.IsLocal(name) {
			return nil, false
		}
		sums[name] = sum
	}
	return sums, len(sums) > 0
}

// allSums are those of every module.
func (c *Cache) allSums() map[string]string {
	all := map[string]string{}
	files, _ := os.ReadDir(filepath.Join(c.dir, sumsDir)) // none: no entry is known
	for _, f := range files {
		sums, _ := c.sums(f.Name())
		for name, sum := range sums {
			all[name] = sum
		}
	}
	return all
}

// entries are wazero's finished ones, by FOLDER/ENTRY.
func (c *Cache) entries() map[string]fs.FileInfo {
	found := map[string]fs.FileInfo{}
	_ = c.each(func(path string, st fs.FileInfo) error { // what cannot be listed is not read either
		name, err := filepath.Rel(c.dir, path)
		if err == nil && !isSum(path) && filepath.Ext(path) != ".tmp" {
			found[name] = st
		}
		return nil
	})
	return found
}

// isSum tells a file of sumsDir from an entry.
func isSum(path string) bool { return filepath.Base(filepath.Dir(path)) == sumsDir }

func sumOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
