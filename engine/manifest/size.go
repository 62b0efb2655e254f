package manifest

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// ParseSize reads a size in bytes: a whole number and KiB, MiB or GiB. MB and
// its like are refused, since half of their readers expect the other meaning.
func ParseSize(s string) (uint64, error) {
	n := strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' })
	if s == "" {
		return 0, errors.New("it is empty")
	}
	if n < 0 {
		return 0, fmt.Errorf("%s has no unit", quote(s))
	}
	if n == 0 {
		return 0, fmt.Errorf("%s is not a number and a unit", quote(s))
	}
	var shift uint
	switch unit := strings.TrimLeft(s[n:], " "); unit {
	case "KiB":
		shift = 10
	case "MiB":
		shift = 20
	case "GiB":
		shift = 30
	case "KB", "kB", "MB", "GB", "K", "M", "G", "k":
		return 0, fmt.Errorf("%s is ambiguous: write %s", quote(s), strings.ToUpper(unit[:1])+"iB")
	default:
		return 0, fmt.Errorf("%s has the unknown unit %s", quote(s), quote(unit))
	}
	v, err := strconv.ParseUint(s[:n], 10, 64)
	switch {
	case err != nil, v > math.MaxUint64>>shift:
		return 0, fmt.Errorf("%s is too big", quote(s))
	}
	return v << shift, nil
}

// FormatSize writes a size as a manifest would.
func FormatSize(n uint64) string {
	switch {
	case n >= 1<<30 && n%(1<<30) == 0:
		return strconv.FormatUint(n>>30, 10) + "GiB"
	case n >= 1<<20 && n%(1<<20) == 0:
		return strconv.FormatUint(n>>20, 10) + "MiB"
	}
	return strconv.FormatUint(n>>10, 10) + "KiB"
}
