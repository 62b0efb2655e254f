package app

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestWatcherReportsAChangeOnceAndOnlyWhenItIsSteady(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	write := func(path, text string) {
		t.Helper()
		at = at.Add(time.Second) // the file system's own stamps may be too coarse
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	write(a, "1")
	w := &watcher{}
	expect := func(why string, want bool) {
		t.Helper()
		if got := w.poll(); got != want {
			t.Fatalf("%s: poll() = %v, want %v", why, got, want)
		}
	}

	w.follow([]string{a, b})
	expect("first look", false)
	expect("new files, seen twice", true)
	expect("nothing happened", false)

	write(a, "2")
	expect("changed just now", false)
	write(a, "3")
	expect("still changing", false)
	expect("steady", true)
	expect("reported already", false)

	write(b, "appears")
	expect("appeared just now", false)
	expect("steady", true)

	w.follow([]string{a, b})
	expect("followed again", false)
	expect("followed again", false)

	if err := os.Remove(a); err != nil {
		t.Fatal(err)
	}
	expect("gone just now", false)
	expect("gone", true)
	expect("still gone", false)
}
