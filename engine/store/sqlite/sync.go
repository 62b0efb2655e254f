package sqlite

import (
	"time"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/util/vfsutil"
	"github.com/ncruces/go-sqlite3/vfs"
)

// syncLag bounds for how long a lazy op may have been answered and not be
// synced: longer than most workers take from a claim to the first write under
// it, whose sync then covers both.
const syncLag = 20 * time.Millisecond

// durability is what the writer knows of its commits and the disk.
//
// A group that holds only lazy ops is committed without a sync, and is synced
// with the next group that is not, or when syncLag has passed. Order is kept:
// the log is one file, so a synced commit has everything before it synced.
type durability struct {
	eager bool      // the connection is set to sync each commit
	since time.Time // of the first commit that is not synced; zero if all are
	file  vfs.File  // the log, as the connection syncs it; nil until it was written
	log   *logFile  // the same, as it keeps count
	// suspect is set when a sync failed: the system may have dropped pages of
	// the log that earlier answers rely on, and a later sync would not tell.
	suspect bool
}

// wait blocks until ops may be pending, and syncs what is left unsynced.
func (w *writer) wait() {
	if w.since.IsZero() {
		<-w.kick
		return
	}
	timer := time.NewTimer(syncLag - time.Since(w.since))
	defer timer.Stop()
	select {
	case <-w.kick:
	case <-timer.C:
		w.syncLate()
	}
}

// prepareSync has the next commit synced, unless it holds lazy ops only and none
// before it has waited too long already.
func (w *writer) prepareSync(ops []*op) error {
	if w.cfg.memory() {
		return nil
	}
	if w.suspect {
		if err := w.mend(); err != nil {
			return err
		}
	}
	eager := w.log == nil || !w.since.IsZero() && time.Since(w.since) >= syncLag
	for _, o := range ops {
		eager = eager || !o.lazy
	}
	if eager == w.eager {
		return nil
	}
	level := "NORMAL"
	if eager {
		level = "FULL"
	}
	if err := w.c.db.Exec("PRAGMA synchronous=" + level); err != nil {
		return err
	}
	w.eager = eager
	return nil
}

// committed follows a commit. Only the log knows whether that was synced: one
// that changed nothing was not, nor one whose pages came out the same.
func (w *writer) committed() {
	if w.cfg.memory() {
		return
	}
	if w.log == nil {
		f, err := w.c.db.FileControl("main", sqlite3.FCNTL_JOURNAL_POINTER)
		if err != nil {
			return
		}
		w.file, _ = f.(vfs.File)
		w.log, _ = vfsutil.UnwrapFile[*logFile](w.file)
	}
	switch {
	case w.log == nil || !w.log.dirty:
		w.since = time.Time{}
	case w.since.IsZero():
		w.since = time.Now()
	}
}

// syncLate syncs the log after the fact.
func (w *writer) syncLate() {
	if w.since.IsZero() {
		return
	}
	w.since = time.Time{}
	if err := w.file.Sync(vfs.SYNC_DATAONLY | vfs.SYNC_NORMAL); err != nil {
		w.suspect = true
		w.cfg.Logger.Error("store.sqlite.sync_failed", "path", w.cfg.Path, "error", err)
	}
}

// mend moves everything from a suspect log into the database, which syncs it,
// and begins the log anew. Nothing is written until that has worked.
func (w *writer) mend() error {
	if _, _, err := w.c.db.WALCheckpoint("main", sqlite3.CHECKPOINT_TRUNCATE); err != nil {
		return err
	}
	w.suspect, w.since = false, time.Time{}
	return nil
}
