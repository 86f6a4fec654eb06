//! The tables of the journal.
//!
//! ```text
//! sqlite3 journal.db "SELECT id, termination, cost_usd FROM runs ORDER BY started_ms DESC LIMIT 5"
//! sqlite3 journal.db "SELECT seq, name, effects FROM events WHERE run = '…' ORDER BY seq"
//! ```

use std::time::Duration;

/// Version of the tables, stored as `user_version`.
pub(in crate::journal::sqlite) const VERSION: i64 = 2;

/// The `application_id` of a journal: "Estp" in ASCII.
pub(in crate::journal::sqlite) const APPLICATION: i64 = 0x4573_7470;

/// The `application_id` of journals from before version 0.1, "Ends" in ASCII. Their tables differ and
/// also count their versions from 1, so such a file is refused by this number.
pub(in crate::journal::sqlite) const BEFORE_0_1: i64 = 0x456e_6473;

/// Time to wait for another process that has locked the file.
pub(in crate::journal::sqlite) const PATIENCE: Duration = Duration::from_secs(2);

/// The tables of runs and events. The key of an event combines the number of its run and its place
/// in the run; the view `events` shows both separately. Events are stored in the order of their arrival,
/// and an index has their keys, because runs write at the same time: if the table were in the order of
/// the key, each run would write pages of its own, and split them.
pub(in crate::journal::sqlite) const RUNS_AND_LOG: &str = "
CREATE TABLE runs (
    number      INTEGER PRIMARY KEY,
    id          TEXT NOT NULL UNIQUE,
    continues   TEXT,              -- the ended run that this run continues, or the run that it branched from
    started_ms  INTEGER NOT NULL,  -- Unix time
    version     TEXT NOT NULL,     -- of Endstop
    provider    TEXT,
    model       TEXT,
    task        TEXT NOT NULL,
    driver      TEXT,              -- the process that drives it
    ended_ms    INTEGER,
    termination TEXT,
    category    TEXT,
    turns       INTEGER,
    cost_usd    REAL,
    outcome     TEXT,              -- JSON; its messages are ended_conversation
    verified    INTEGER,
    conversation INTEGER NOT NULL, -- the one that the run began with; 0: empty
    ended_conversation INTEGER,    -- the one that the run ended with; NULL: in the outcome
    project     TEXT,              -- the project of its settings
    uncounted   TEXT               -- why it spends nothing of its own: a demo's name, or `replay`
) STRICT;
CREATE TABLE log (
    key         INTEGER NOT NULL UNIQUE, -- number of the run << 32 | place in it, from 0, without a gap
    at_ns       INTEGER NOT NULL,  -- on the run's clock
    wall_ms     INTEGER NOT NULL,  -- Unix time
    name        TEXT NOT NULL,
    event       TEXT NOT NULL,     -- JSON: the event that the kernel received
    effects     TEXT               -- JSON: the effects that the kernel requested; written before they are performed
) STRICT;
CREATE VIEW events (run, seq, at_ns, wall_ms, name, event, effects) AS
    SELECT runs.id, log.key & 4294967295, at_ns, wall_ms, name, event, effects
    FROM runs JOIN log ON log.key BETWEEN runs.number << 32 AND runs.number << 32 | 4294967295;
";

/// The tables of values that runs share. Numbers of conversations are never reused
/// (`AUTOINCREMENT`), because a process caches the numbers of those that it has stored.
pub(in crate::journal::sqlite) const SHARED: &str = "
CREATE TABLE texts (
    number      INTEGER PRIMARY KEY,
    digest      BLOB NOT NULL UNIQUE, -- SHA-256 of the text
    text        TEXT NOT NULL         -- JSON: a message, or a part of a header
) STRICT;
CREATE TABLE conversations (
    number      INTEGER PRIMARY KEY AUTOINCREMENT,
    before      INTEGER NOT NULL,  -- the conversation without its last message; 0: empty
    text        INTEGER NOT NULL   -- its last message
) STRICT;
CREATE UNIQUE INDEX conversations_by_end ON conversations (before, text);
CREATE TABLE parts (
    run         INTEGER NOT NULL,
    place       TEXT NOT NULL,     -- its place in the header: a JSON pointer
    text        INTEGER NOT NULL,
    PRIMARY KEY (run, place)
) STRICT, WITHOUT ROWID;
";

/// The tables of ceilings of periods. Amounts are nano-dollars and tokens. A process has one row for
/// each budget that it opened, so that a settlement changes one row.
pub(in crate::journal::sqlite) const SPENDING: &str = "
CREATE TABLE spending (
    number      INTEGER PRIMARY KEY,
    hour        INTEGER NOT NULL,  -- since 1970-01-01 UTC
    project     TEXT NOT NULL,     -- empty: none
    usd         INTEGER NOT NULL DEFAULT 0, -- spent
    tokens      INTEGER NOT NULL DEFAULT 0,
    reserved_usd INTEGER NOT NULL DEFAULT 0, -- by calls in flight
    reserved_tokens INTEGER NOT NULL DEFAULT 0,
    lost_usd    INTEGER NOT NULL DEFAULT 0, -- reserved by a process that died; may have been billed
    lost_tokens INTEGER NOT NULL DEFAULT 0,
    lease_ms    INTEGER NOT NULL DEFAULT 0  -- Unix time at which the reservations are lost
) STRICT;
CREATE INDEX spending_by_hour ON spending (hour);
CREATE TABLE booked (
    run         TEXT NOT NULL PRIMARY KEY, -- a run whose spending is in the table above
    hour        INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
";

/// Triggers that keep stored events unchanged, whichever program writes to the file.
/// [`hardening`](super::hardening) accepts only triggers of this form.
pub(in crate::journal::sqlite) const TRIGGERS: &str = "
CREATE TRIGGER a_run_ends_once BEFORE UPDATE OF outcome, termination ON runs
    WHEN OLD.termination IS NOT NULL
    BEGIN SELECT RAISE(ABORT, 'the run has ended already'); END;
CREATE TRIGGER what_happened_stands BEFORE UPDATE ON log
    BEGIN SELECT RAISE(ABORT, 'events are not changed'); END;
CREATE TRIGGER what_was_said_stands BEFORE UPDATE ON texts
    BEGIN SELECT RAISE(ABORT, 'messages are not changed'); END;
CREATE TRIGGER a_conversation_stands BEFORE UPDATE ON conversations
    BEGIN SELECT RAISE(ABORT, 'conversations are not changed'); END;
CREATE TRIGGER a_run_goes_whole AFTER DELETE ON runs
    BEGIN
        DELETE FROM log WHERE key BETWEEN OLD.number << 32 AND OLD.number << 32 | 4294967295;
        DELETE FROM parts WHERE run = OLD.number;
    END;
";

/// Length of the write-ahead log in bytes at which it is checkpointed. Large, so that a page that
/// many steps write is copied only once and the file is synced rarely.
pub(in crate::journal::sqlite) const MOST_IN_LOG: u64 = 8 << 20;
/// Lower bound for the bytes that a transaction adds to the log: two pages.
pub(in crate::journal::sqlite) const LEAST_IN_LOG: u64 = 8192;

/// Returns the first and the last possible key of a run's events.
pub(in crate::journal::sqlite) fn keys(run: i64) -> (i64, i64) {
    (run << 32, run << 32 | 0xffff_ffff)
}
