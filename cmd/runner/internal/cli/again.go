package cli

import (
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// again is cmd as it was called, with more in place of what it said of the same
// flags: what a person runs next. What the environment says is said by it again.
func again(cmd *cobra.Command, more ...string) string {
	words := []string{cmd.CommandPath()}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if !slices.Contains(more, "--"+f.Name) && f.Name != "json" {
			words = append(words, flagWords(f)...)
		}
	})
	return strings.Join(append(words, quoted(more)...), " ")
}

// elsewhere is command for the manifest and the database that cmd was called with.
func elsewhere(cmd *cobra.Command, command string) string {
	words := []string{command}
	for _, name := range []string{"database-url", "file"} {
		if f := cmd.Flag(name); f != nil && f.Changed {
			words = append(words, flagWords(f)...)
		}
	}
	return strings.Join(words, " ")
}

// flagWords say f again; nothing if that would tell a user's name or password.
func flagWords(f *pflag.Flag) []string {
	name, value := "--"+f.Name, f.Value.String()
	switch {
	case f.Name == "file":
		name = "-f"
	case f.Value.Type() == "bool" && value == "true":
		return []string{name}
	case f.Value.Type() == "bool":
		return []string{name + "=" + value}
	case f.Name == "database-url":
		if u, err := url.Parse(value); err != nil || u.User != nil || u.RawQuery != "" {
			return nil
		}
	}
	return []string{name, quote(value)}
}

func quoted(words []string) (out []string) {
	for _, w := range words {
		out = append(out, quote(w))
	}
	return out
}

// plainWord is what a shell takes as it is.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9@%+=:,./_-]+$`)

// quote is s as one word of a shell.
func quote(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
