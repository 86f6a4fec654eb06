//! Measures the disk space of a journal and returns freed pages to the file system.

use rusqlite::Connection;

/// Pages that are returned in one transaction (4 MB), so that other processes wait only briefly.
const PAGES_AT_ONCE: u32 = 1024;

/// Page counts from the header of the file.
#[derive(Clone, Copy, Debug)]
pub(in crate::journal::sqlite) struct Pages {
    size: u64,
    all: u64,
    free: u64,
}

impl Pages {
    pub(in crate::journal::sqlite) fn of(connection: &Connection) -> rusqlite::Result<Pages> {
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
    pub(in crate::journal::sqlite) fn used(self) -> u64 {
        self.all.saturating_sub(self.free) * self.size
    }

    /// Returns the size of the file in bytes.
    pub(in crate::journal::sqlite) fn file(self) -> u64 {
        self.all * self.size
    }
}

/// Returns free pages to the file system. `more` is called between two steps of the work and stops
/// it by returning `false`.
pub(in crate::journal::sqlite) fn give_back(
    connection: &Connection,
    more: &dyn Fn() -> bool,
) -> rusqlite::Result<()> {
    let mut free = u64::MAX;
    while more() {
        let left = Pages::of(connection)?.free;
        // A file that another program has rewritten without `auto_vacuum` returns no page.
        if left == 0 || left >= free {
            break;
        }
        free = left;
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
