//! The database of opencode: opened so that a file that a third party made can do no harm.
//!
//! ```text
//! let database = Database::open(path)?;
//! for (id, data) in database.messages("ses_1")? { … }
//! ```
//!
//! The rules are those for journals: only a regular file is opened, and only for reading; views,
//! triggers and attached files are off, functions with side effects are refused, the tables that are
//! read must be ordinary ones, and statements are interrupted when their time is up.

use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::{Connection, OpenFlags};
use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The tables that are read.
const TABLES: [&str; 3] = ["session", "message", "part"];
/// Time limit for reading one session.
const READING: Duration = Duration::from_secs(20);
/// SQLite instructions between two checks of the time.
const LOOK: i32 = 100;
/// The longest value that is accepted, in bytes.
const LONGEST: i32 = 64 << 20;
/// The longest session that is accepted with its subagents, in bytes of JSON.
const SESSION: u64 = 256 << 20;

/// An open database. Errors are sentences for the user.
pub(super) struct Database {
    connection: Connection,
    until: Until,
    /// Bytes that the current session may still take.
    room: Cell<u64>,
    /// Bytes that all rows may still take: rows cannot hold more than the file, unless they share
    /// pages, which happens only in a damaged file.
    file: Cell<u64>,
}

/// The sessions of a database, and the subagents of each.
pub(super) struct Tree {
    roots: Vec<String>,
    children: HashMap<String, Vec<String>>,
    unreached: usize,
}

impl Tree {
    /// Returns the sessions that no other session started, oldest first.
    pub(super) fn roots(&self) -> &[String] {
        &self.roots
    }

    /// Returns the subagents of a session.
    pub(super) fn children(&self, id: &str) -> &[String] {
        self.children.get(id).map_or(&[], Vec::as_slice)
    }

    /// Returns the number of sessions that no root leads to.
    pub(super) fn unreached(&self) -> usize {
        self.unreached
    }

    /// Builds the tree from pairs of a session and its parent.
    fn of(pairs: Vec<(String, Option<String>)>) -> Tree {
        let known: HashSet<&String> = pairs.iter().map(|(id, _)| id).collect();
        let is_child = |parent: &Option<String>| parent.as_ref().is_some_and(|p| known.contains(p));
        // A session whose parent was deleted is a session of its own.
        let is_root: Vec<bool> = pairs.iter().map(|(_, parent)| !is_child(parent)).collect();
        let all = pairs.len();
        let mut roots = Vec::new();
        let mut children: HashMap<String, Vec<String>> = HashMap::new();
        for ((id, parent), is_root) in pairs.into_iter().zip(is_root) {
            match parent {
                Some(parent) if !is_root => children.entry(parent).or_default().push(id),
                _ => roots.push(id),
            }
        }
        let mut reached = 0;
        let mut open: Vec<&String> = roots.iter().collect();
        // Each session has one parent, so that a walk from the roots visits it at most once.
        while let Some(id) = open.pop() {
            reached += 1;
            open.extend(children.get(id).into_iter().flatten());
        }
        Tree { unreached: all - reached, roots, children }
    }
}

impl Database {
    /// Returns `true` if a database has tables or views with the names of opencode's. Only the list
    /// of names is read.
    pub(super) fn has_names(path: &Path) -> bool {
        let sql = "SELECT count(DISTINCT name) FROM sqlite_schema
                   WHERE type IN ('table', 'view') AND name IN ('session', 'message', 'part')";
        let count =
            |(connection, _): (Connection, _)| connection.query_row(sql, [], |row| row.get(0));
        connect(path).is_ok_and(|opened| count(opened) == Ok(TABLES.len() as i64))
    }

    /// Opens a database.
    pub(super) fn open(path: &Path) -> Result<Database, String> {
        let (connection, until) = connect(path)?;
        plain_tables(&connection)?;
        let length = |path: &Path| std::fs::metadata(path).map_or(0, |found| found.len());
        let file = length(path).saturating_add(length(&companion(path, "-wal")));
        Ok(Database { connection, until, room: Cell::new(SESSION), file: Cell::new(file) })
    }

    /// Returns the sessions in the order of their time.
    pub(super) fn tree(&self) -> Result<Tree, String> {
        self.begin();
        let sql = "SELECT id, parent_id FROM session ORDER BY time_created, id";
        let rows = self.rows(sql, None)?;
        Ok(Tree::of(rows))
    }

    /// Restarts the limits of time and memory for the next session.
    pub(super) fn begin(&self) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now() + READING;
        self.room.set(SESSION);
    }

    /// Returns the version of the program that made a session.
    pub(super) fn version(&self, session: &str) -> Result<Option<String>, String> {
        let sql = "SELECT version, '' FROM session WHERE id = ?1";
        let rows = self.rows(sql, Some(session))?;
        Ok(rows.into_iter().next().map(|(version, _)| version))
    }

    /// Returns the ids and the JSON of a session's messages, in order.
    pub(super) fn messages(&self, session: &str) -> Result<Vec<(String, Option<String>)>, String> {
        let sql = "SELECT id, data FROM message WHERE session_id = ?1 ORDER BY time_created, id";
        self.rows(sql, Some(session))
    }

    /// Returns the parts of a session's messages, in order: the id of the message, and the JSON.
    pub(super) fn parts(&self, session: &str) -> Result<Vec<(String, Option<String>)>, String> {
        let sql = "SELECT message_id, data FROM part WHERE session_id = ?1 ORDER BY message_id, id";
        self.rows(sql, Some(session))
    }

    fn rows(
        &self,
        sql: &str,
        session: Option<&str>,
    ) -> Result<Vec<(String, Option<String>)>, String> {
        let mut select = self.connection.prepare(sql).map_err(|e| said(&e))?;
        let rows = select.query_map(rusqlite::params_from_iter(session), |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, Option<String>>(1)?))
        });
        let mut found = Vec::new();
        for row in rows.map_err(|e| said(&e))? {
            let row = row.map_err(|e| said(&e))?;
            let bytes = (row.0.len() + row.1.as_ref().map_or(0, String::len)) as u64;
            // Ids occur in several rows and indexes, so the file holds at least half of them.
            let file = self.file.get().checked_sub(row.1.as_ref().map_or(0, String::len) as u64);
            let room = self.room.get().checked_sub(bytes);
            let (Some(file), Some(room)) = (file, room) else {
                return Err("a session is too long: more than 256 MiB, or than its file".to_owned());
            };
            self.file.set(file);
            self.room.set(room);
            found.push(row);
        }
        Ok(found)
    }
}

/// The time at which running statements are interrupted.
type Until = Arc<Mutex<Instant>>;

fn connect(path: &Path) -> Result<(Connection, Until), String> {
    plain_files(path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags).map_err(|e| said(&e))?;
    let until = Arc::new(Mutex::new(Instant::now() + READING));
    configure(&mut connection, &until).map_err(|e| said(&e))?;
    Ok((connection, until))
}

fn said(error: &rusqlite::Error) -> String {
    format!("cannot be read: {error}")
}

fn companion(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

/// Refuses a path that is not a regular file, and links next to it: SQLite opens those files too.
fn plain_files(path: &Path) -> Result<(), String> {
    let found = std::fs::metadata(path).map_err(|error| format!("cannot be read: {error}"))?;
    if !found.is_file() {
        return Err("not a regular file; give the path of a database".to_owned());
    }
    for ending in ["-wal", "-shm", "-journal"] {
        let beside = companion(path, ending);
        if std::fs::symlink_metadata(&beside).is_ok_and(|found| !found.is_file()) {
            return Err(format!("`{}` is not a regular file: remove it", beside.display()));
        }
    }
    Ok(())
}

/// Disables the SQLite features through which a schema could harm this process.
fn configure(connection: &mut Connection, until: &Until) -> rusqlite::Result<()> {
    for (config, on) in [
        (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
        (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false),
    ] {
        connection.set_db_config(config, on)?;
    }
    connection.set_limit(Limit::SQLITE_LIMIT_SQL_LENGTH, 1 << 20)?;
    connection.set_limit(Limit::SQLITE_LIMIT_COLUMN, 100)?;
    connection.set_limit(Limit::SQLITE_LIMIT_EXPR_DEPTH, 50)?;
    connection.set_limit(Limit::SQLITE_LIMIT_COMPOUND_SELECT, 10)?;
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, LONGEST)?;
    connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;
    let until = until.clone();
    // A damaged tree of pages that leads back to itself has no end.
    let is_over = move || Instant::now() >= *until.lock().unwrap_or_else(PoisonError::into_inner);
    connection.progress_handler(LOOK, Some(is_over))?;
    connection.pragma_update(None, "cell_size_check", true)?;
    // A mapped file that another process truncates would end this process with SIGBUS.
    connection.pragma_update(None, "mmap_size", 0)
}

/// Refuses a database whose tables are not those of opencode, or compute something when they are
/// read.
fn plain_tables(connection: &Connection) -> Result<(), String> {
    let one = |sql: &str, name: &str| -> Result<i64, String> {
        connection.query_row(sql, [name], |row| row.get(0)).map_err(|e| said(&e))
    };
    for table in TABLES {
        let plain = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = ?1
                     AND upper(substr(ltrim(sql), 1, 12)) = 'CREATE TABLE'";
        if one(plain, table)? != 1 {
            return Err(format!("not a database of opencode: it has no table `{table}`"));
        }
        let computed = "SELECT count(*) FROM pragma_table_xinfo(?1) WHERE hidden <> 0";
        if one(computed, table)? > 0 {
            return Err(format!("`{table}` has generated columns: opencode did not write this"));
        }
        let indexes = "SELECT count(*) FROM pragma_index_list(?1) AS list,
                       pragma_index_xinfo(list.name) AS part WHERE part.cid = -2";
        if one(indexes, table)? > 0 {
            return Err(format!("an index of `{table}` is on an expression: opencode has none"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cyclic_parents_are_unreached() {
        let pair = |id: &str, on: &str| (id.to_owned(), (!on.is_empty()).then(|| on.to_owned()));
        let tree = Tree::of(vec![pair("a", ""), pair("b", "a"), pair("c", "d"), pair("d", "c")]);
        assert_eq!(
            (tree.roots(), tree.children("a")),
            (&["a".to_owned()][..], &["b".to_owned()][..])
        );
        assert_eq!(tree.unreached(), 2);
        let orphan = Tree::of(vec![pair("x", "deleted"), pair("y", "y")]);
        assert_eq!((orphan.roots().len(), orphan.unreached()), (1, 1));
    }
}
