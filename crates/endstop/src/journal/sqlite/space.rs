//! Measures the disk space of a journal and returns freed pages to the file system.

use super::tables;
use rusqlite::{Connection, OpenFlags};
use std::path::Path;

/// Pages that are returned in one transaction (4 MB), so that other processes wait only briefly.
const PAGES_AT_ONCE: u32 = 1024;

/// Page counts from the header of the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pages {
    size: u64,
    all: u64,
    free: u64,
}

impl Pages {
    pub(super) fn of(connection: &Connection) -> rusqlite::Result<Pages> {
        let number = |name: &str| {
            connection
                .pragma_query_value(None, name, |row| row.get::<_, i64>(0))
                .map(|number| u64::try_from(number).unwrap_or(0))
        };
        Ok(Pages {
            size: number("page_size")?,
            all: number("page_count")?,
            free: number("freelist_count")?,
        })
    }

    /// Returns the bytes of the pages in use.
    pub(super) fn used(self) -> u64 {
        self.all.saturating_sub(self.free) * self.size
    }

    /// Returns the size of the file in bytes.
    pub(super) fn file(self) -> u64 {
        self.all * self.size
    }
}

/// Returns free pages to the file system. `more` is called between two steps of the work and stops
/// it by returning `false`.
pub(super) fn give_back(connection: &Connection, more: &dyn Fn() -> bool) -> rusqlite::Result<()> {
    let mode: i64 = connection.pragma_query_value(None, "auto_vacuum", |row| row.get(0))?;
    if mode != 2 {
        // A file of an earlier version has no `auto_vacuum`, so it is rewritten once.
        return rewrite(connection);
    }
    while Pages::of(connection)?.free > 0 && more() {
        let mut pragma =
            connection.prepare(&format!("PRAGMA incremental_vacuum({PAGES_AT_ONCE})"))?;
        let mut rows = pragma.query([])?;
        // The pragma frees one page per row, so all rows must be read.
        while rows.next()?.is_some() {}
    }
    // The file becomes shorter when the log is copied to it. A reader may prevent that for now; the
    // next prune does it.
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
}

/// Rewrites the file if more than half of it is free, as after an upgrade that moved shared values
/// out of every run. An error, for example a full disk or another process, is ignored because it
/// only leaves the file larger.
pub(super) fn return_much(path: &Path) {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let Ok(connection) = Connection::open_with_flags(path, flags) else { return };
    if Pages::of(&connection).is_ok_and(|pages| pages.free * 2 > pages.all) {
        let _ = rewrite(&connection);
    }
}

fn rewrite(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "auto_vacuum", "incremental")?;
    connection.execute_batch("VACUUM")?;
    // The file is complete without this checkpoint, so it does not wait for readers.
    connection.busy_timeout(std::time::Duration::ZERO)?;
    let copied = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    connection.busy_timeout(tables::PATIENCE)?;
    copied
}
