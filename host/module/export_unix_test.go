//go:build unix

package module

// PretendUser makes this process believe that it runs as that user.
func PretendUser(uid int) (restore func()) {
	before := user
	user = func() int { return uid }
	return func() { user = before }
}
