package manifest

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"

	"github.com/netresearch/go-cron"
)

// Cron is a checked expression of five fields: minute, hour, day of month,
// month, day of week. As in crontab(5), when both days are restricted either
// of them is enough.
//
// The library computes; what may be written is decided here and is narrower:
// no sixth field, no @daily, no TZ= prefix (a schedule has its own zone), no
// range that runs backwards (it would silently mean nearly always), no step
// longer than its range, and no day that never comes.
type Cron struct {
	source  string
	spec    *cron.SpecSchedule
	elapsed bool // runs by elapsed time: its minute or hour is a wildcard
}

// The longest wait between two times of an expression is from 29 February 2096
// to that of 2104; the library gives up after five years unless told.
const cronSearchYears = 9

var cronParser = cron.MustNewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.DowOrDom).
	WithMaxSearchYears(cronSearchYears)

// cronField is one of the five, with the names its numbers go by.
type cronField struct {
	name   string
	lo, hi int
	names  []string // of lo, lo+1, …
}

var cronFields = [5]cronField{
	{"minute", 0, 59, nil},
	{"hour", 0, 23, nil},
	{"day of month", 1, 31, nil},
	{"month", 1, 12, strings.Fields("jan feb mar apr may jun jul aug sep oct nov dec")},
	{"day of week", 0, 7, strings.Fields("sun mon tue wed thu fri sat")},
}

// daysOf are the most days each month may have.
var daysOf = [13]int{0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31}

// ParseCron checks an expression. Its errors are for a person and name the field.
func ParseCron(source string) (Cron, error) {
	fields := strings.Fields(source)
	switch {
	case len(source) > 256:
		return Cron{}, fmt.Errorf("it is %d bytes long", len(source))
	case strings.HasPrefix(source, "@"):
		return Cron{}, fmt.Errorf("%s is a shorthand; write the five fields, as in \"0 0 * * *\"", quote(source))
	case strings.Contains(source, "="):
		return Cron{}, fmt.Errorf("%s sets a variable; the zone of a schedule is its key tz", quote(source))
	case len(fields) == 6:
		return Cron{}, fmt.Errorf("%s has six fields; there is none for seconds or years", quote(source))
	case len(fields) != 5:
		return Cron{}, fmt.Errorf("%s has %d fields, not five: minute, hour, day of month, month, day of week", quote(source), len(fields))
	}
	var sets [5]uint64
	for i, f := range cronFields {
		set, err := f.parse(fields[i])
		if err != nil {
			return Cron{}, fmt.Errorf("its %s %w", f.name, err)
		}
		sets[i] = set
	}
	if fields[4] == "*" && !strings.HasPrefix(fields[2], "*") {
		earliest := bits.TrailingZeros64(sets[2])
		comes := false
		for month := 1; month <= 12; month++ {
			comes = comes || sets[3]&(1<<month) != 0 && earliest <= daysOf[month]
		}
		if !comes {
			return Cron{}, fmt.Errorf("it never comes: no month it names has a day %d", earliest)
		}
	}
	s, err := cronParser.Parse(strings.Join(fields, " "))
	if err != nil {
		return Cron{}, err
	}
	spec, ok := s.(*cron.SpecSchedule)
	if !ok {
		return Cron{}, fmt.Errorf("%s is not a set of times", quote(source))
	}
	// As in Vixie cron, */n is a wildcard too; so is what means *.
	elapsed := strings.HasPrefix(fields[0], "*") || strings.HasPrefix(fields[1], "*") || sets[0] == 1<<60-1 || sets[1] == 1<<24-1
	return Cron{source: strings.Join(fields, " "), spec: spec, elapsed: elapsed}, nil
}

// parse checks one field and answers the set of its numbers.
func (f cronField) parse(s string) (uint64, error) {
	var set uint64
	for item := range strings.SplitSeq(s, ",") {
		span, step, stepped := strings.Cut(item, "/")
		lo, hi := f.lo, f.hi
		from, to, isRange := strings.Cut(span, "-")
		var err error
		switch {
		case span == "*":
		case isRange:
			if lo, err = f.number(from); err != nil {
				return 0, err
			}
			if hi, err = f.number(to); err != nil {
				return 0, err
			}
			if lo > hi {
				return 0, fmt.Errorf("has the range %s, which runs backwards; write it as two", quote(span))
			}
		default:
			if lo, err = f.number(span); err != nil {
				return 0, err
			}
			if !stepped {
				hi = lo
			}
		}
		by := 1
		if stepped {
			by, err = strconv.Atoi(step)
			if err != nil || by < 1 || !digits(step) {
				return 0, fmt.Errorf("has the step %s, which is no number above 0", quote(step))
			}
			if by > hi-lo && by > 1 {
				return 0, fmt.Errorf("has the step %d, which is longer than its range", by)
			}
		}
		for n := lo; n <= hi; n += by {
			set |= 1 << n
		}
	}
	return set, nil
}

func (f cronField) number(s string) (int, error) {
	for i, name := range f.names {
		if strings.EqualFold(s, name) {
			return f.lo + i, nil
		}
	}
	if s == "" {
		return 0, fmt.Errorf("has an empty part")
	}
	if !digits(s) {
		if f.names != nil {
			return 0, fmt.Errorf("is a number or a name of three letters, not %s", quote(s))
		}
		return 0, fmt.Errorf("is a number, not %s", quote(s))
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < f.lo || n > f.hi {
		return 0, fmt.Errorf("must be from %d to %d; this is %s", f.lo, f.hi, clip(s))
	}
	return n, nil
}

func digits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// String is the expression as it was written, its fields one space apart.
func (c Cron) String() string { return c.source }
