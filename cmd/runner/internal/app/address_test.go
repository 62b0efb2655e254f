package app

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/jobrunner/runner/abi"
)

// userAt is the beginning of an address as far as the password of a user, and
// parameterAt as far as that of a parameter or of a keyword.
var (
	userAt      = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9+.-]*://)?[^@/?#:]+:$`)
	parameterAt = regexp.MustCompile(`^([^?#]*\?([^#]*&)?|([^/?#]* )?|:)(ssl)?password=$`)
)

// Whatever is wrong with the address of a database, what is said of it shows no
// password, wherever in the address one may stand.
func FuzzNoAddressShowsItsPassword(f *testing.F) {
	const secret = "hunter2pw"
	for _, c := range [][3]string{
		{"postgres://user:", "@host:5432/name", ""}, {"postgres://host/name?password=", "", ""}, {"postgres://host/name?sslpassword=", "&schema=x", ""},
		{"postgres://host/name?user=u&password=", "&pooling=none", ""}, {"host=h password=", " dbname=x", ""}, {"mysql://u:", "@h/n", ""}, {"sqlite://u:", "@h/n?x", ""}, {"u:", "@h/n", ""},
		{"postgres://u:", "@h:99999999/n", ""}, {"postgres://u:", "%zz@h/n", ""}, {"postgres://u:", "@h/n?schema=a%20b", ""}, {"postgres:u:", "@h", ""}, {"POSTGRES://u:", "@[::1/n", ""},
		{"postgres://u:", "@h/n?pool_max_conns=1", ""}, {"postgres://u:", "@h/n?sslmode=nonsense", ""}, {"postgres://u:", "@h/n?sslmode=verify-full&sslrootcert=/none", ""}, {"postgres://u:", "@h/n#frag", ""},
	} {
		f.Add(c[0], c[1])
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		// Where a person puts a password: after the user, or as a parameter or
		// keyword. What they would take for the name of a host or a file is shown.
		if !parameterAt.MatchString(before) && !(userAt.MatchString(before) && strings.HasPrefix(after, "@")) {
			t.Skip()
		}
		raw := before + secret + after
		d, err := parseDatabase(raw, "", "--database-url")
		said := fmt.Sprintf("%s %v %+v %#v", d, d, d, d)
		if err != nil {
			var e *abi.Error
			if !errors.As(err, &e) || e.Code == "" {
				t.Fatalf("%q is refused with %v", raw, err)
			}
			said = fmt.Sprint(e.Error(), e.Message, e.Fix)
		}
		if strings.Contains(said, secret) && !strings.HasPrefix(strings.ToLower(before), "sqlite:") {
			t.Fatalf("of %q it says %s", raw, said)
		}
	})
}
