package manifest

import (
	"errors"
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // a container without zone files must not read a manifest differently
)

// loadZone loads an IANA zone by its Area/Location name, or UTC. What else the
// zone database holds is refused: fixed offsets have no clock changes, so a
// schedule in one drifts away from its people twice a year; Etc/GMT+5 means
// five hours behind Greenwich; and the abbreviations (EST, EST5EDT, Cuba) are
// links whose meaning the database has changed before.
func loadZone(name string) (*time.Location, error) {
	switch {
	case name == "":
		return nil, errors.New("is empty")
	case name == "UTC":
		return time.UTC, nil
	case name[0] == '+' || name[0] == '-' || strings.HasPrefix(name, "UTC") || strings.HasPrefix(name, "GMT"):
		return nil, fmt.Errorf("is the fixed offset %s, which knows no clock changes", quote(name))
	case strings.HasPrefix(name, "Etc/GMT"):
		return nil, fmt.Errorf("is the fixed offset %s, which knows no clock changes and counts backwards", quote(name))
	case strings.EqualFold(name, "Local"):
		return nil, errors.New("is the zone of whatever machine reads it")
	case !strings.Contains(name, "/") || name[0] < 'A' || name[0] > 'Z':
		return nil, fmt.Errorf("is %s, which is not the Area/Location name of a zone", quote(name))
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("is %s, which the IANA zone database does not know", quote(name))
	}
	return zone, nil
}
