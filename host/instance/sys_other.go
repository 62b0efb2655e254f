//go:build !linux

package instance

import (
	"errors"
	"os"
)

// canMap says that memory and images can be mapped here.
const canMap = false

var osPage = os.Getpagesize()

var errNotHere = errors.New("memory images are not mapped on this system")

func bestMode() Mode { return Copy }

func reserve(uint64) ([]byte, error)                   { return nil, errNotHere }
func commit([]byte) error                              { return errNotHere }
func unmap([]byte)                                     {}
func closeFD(int)                                      {}
func drop([]byte) error                                { return errNotHere }
func mapImage(int, []byte) error                       { return errNotHere }
func sealImage([]byte) (int, []byte, error)            { return -1, nil, errNotHere }
func written([]byte, int, func(int, int)) (int, error) { return 0, errNotHere }
