//go:build !unix

package pgtest

import "os/exec"

type credential struct{ Uid, Gid uint32 }

func serverUser() (*credential, error) { return nil, nil }
func runAs(*exec.Cmd, *credential)     {}
func detach(*exec.Cmd)                 {}

func lock(string) (unlock func(), err error) { return func() {}, nil }
