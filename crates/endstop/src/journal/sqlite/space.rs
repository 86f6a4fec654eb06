//! Disk space: how much a journal takes, and how freed pages are given back to the file system.

use super::schema;
use rusqlite::{Connection, OpenFlags};
use std::path::Path;

/// Pages that are given back in one transaction (4 MB), so that other processes wait only briefly.
const PAGES_AT_ONCE: u32 = 1024;

/// Pages of a file, as its header has them.
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

    /// Bytes of pages in use.
    pub(super) fn used(self) -> u64 {
        self.all.saturating_sub(self.free) * self.size
    }

    /// Bytes of the file.
    pub(super) fn file(self) -> u64 {
        self.all * self.size
    }
}

/// Gives free pages back to the file system; `more` is asked between the pieces of the work.
pub(super) fn give_back(connection: &Connection, more: &dyn Fn() -> bool) -> rusqlite::Result<()> {
    let mode: i64 = connection.pragma_query_value(None, "auto_vacuum", |row| row.get(0))?;
    if mode != 2 {
        // A file of an earlier version: it is written anew, once.
        return rewrite(connection);
    }
    while Pages::of(connection)?.free > 0 && more() {
        let mut pragma =
            connection.prepare(&format!("PRAGMA incremental_vacuum({PAGES_AT_ONCE})"))?;
        let mut rows = pragma.query([])?;
        while rows.next()?.is_some() {}
    }
    // The file gets shorter when its log is copied to it. A reader may prevent that for now.
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
}

/// Writes the file anew if more than half of it is free: an upgrade has stored once what stood in
/// every run. What prevents it, a full disk or another process, is no loss.
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
    // Copying the file is no reason to wait for readers.
    connection.busy_timeout(std::time::Duration::ZERO)?;
    let copied = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    connection.busy_timeout(schema::PATIENCE)?;
    copied
}
