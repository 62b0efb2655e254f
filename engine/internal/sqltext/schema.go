package sqltext

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// SchemaNames says which names a schema may have.
const SchemaNames = "use at most 40 bytes, without quotes, backslashes, braces and dollars, not beginning with pg_"

// CheckSchema is what is wrong with the name of a schema, or "". It is part of the name
// of a channel, and of texts in functions; longer ones the server would cut off
// silently, so that two could not be told apart.
func CheckSchema(name string) (problem string) {
	if len(name) <= 40 && utf8.ValidString(name) && !strings.ContainsAny(name, "\x00'\"\\{}$") && !strings.HasPrefix(name, "pg_") {
		return ""
	}
	return fmt.Sprintf("%q cannot be the name of the schema", name)
}
