package sqltext

import (
	"fmt"
	"io/fs"
	"strconv"
)

// Migrations are the texts of migrations/NNN_name.sql; version n is at n-1. It is
// called while a program starts, and panics if that was built wrong: a number is
// missing, there twice or none. of is as in Migration.
func Migrations(files fs.FS, of string) []string {
	entries, err := fs.ReadDir(files, "migrations") // in the order of their names
	if err != nil {
		panic(err)
	}
	var out []string
	for i, e := range entries {
		number, _ := strconv.Atoi(e.Name()[:min(3, len(e.Name()))])
		if number != i+1 {
			panic(fmt.Sprintf("migration %s is out of order", e.Name()))
		}
		text, err := fs.ReadFile(files, "migrations/"+e.Name())
		if err != nil {
			panic(err)
		}
		out = append(out, Migration(string(text), of))
	}
	return out
}
