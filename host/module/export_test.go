package module

// TakeSlots keeps every compilation waiting until release.
func TakeSlots() (release func()) {
	for range cap(slots) {
		slots <- struct{}{}
	}
	return func() {
		for range cap(slots) {
			<-slots
		}
	}
}

// Dir is where entries are.
func (c *Cache) Dir() string { return c.dir }

// SumsDir is the folder in Dir that has no entries.
const SumsDir = sumsDir
