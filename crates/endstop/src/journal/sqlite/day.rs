//! Ceilings of an hour, a day, a week and a month, kept in the journal and shared by all processes that use its file.
//!
//! ```no_run
//! use endstop::journal::{Period, SpendBudget, SqliteJournal};
//! use endstop::{Agent, NanoUsd};
//! # use endstop::testkit::{ScriptedModel, Turn};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let model = ScriptedModel::new([Turn::text("Paris.")]);
//! let journal = SqliteJournal::open("journal.db")?;
//! // All runs of the day, in this and in other processes.
//! let budget = SpendBudget::new().max_usd(Period::Day, NanoUsd::from_usd(5.0)).open(&journal)?;
//! let agent = Agent::builder(model).shared_budget(budget).journal(journal).build()?;
//! # let _ = agent;
//! # Ok(()) }
//! ```
//!
//! The periods are those of UTC. A run counts in the hour in which its budget was opened, and so in the day, week and month
//! of that hour, also after their ends.

use super::journal::SqliteJournal;
use super::period::{DAY_MS, HOUR_MS, Period, date};
use super::spending::{Spent, no_credit};
use super::write::all_or_none;
use crate::budget::store::Store;
use crate::budget::{Amount, NO_CEILING, Refusal, SharedBudget, StoreFailure};
use crate::journal::JournalError;
use endstop_core::{BudgetAccount, NanoUsd};
use rusqlite::{Connection, params};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, Thread};
use std::time::Duration;

/// Time after which the reservation of a process that died no longer waits for its answer.
const LEASE: Duration = Duration::from_secs(60);

/// Time to wait for another process that has locked the file. Longer than for a record, because a
/// record can be written later and a reservation cannot.
const PATIENCE: Duration = Duration::from_secs(5);

/// Number of hours for which the books are kept: more than a month.
const KEPT_HOURS: i64 = 62 * 24;

/// No reservation to return, and nothing spent.
const NOTHING: (Amount, Amount) = (Amount::ZERO, Amount::ZERO);

type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// The ceilings of periods: of all runs, and of the runs of a project.
///
/// A reservation is a lease. The process renews it as long as it lives. If the process dies, the
/// reservation ends with the lease, and its amount counts as spent, because the call may have been
/// billed; so the ceiling is not exceeded.
#[derive(Clone)]
pub struct SpendBudget {
    project: Option<String>,
    /// In the order of [`Period::ALL`], like the next field.
    all: [Amount; 4],
    of_project: [Amount; 4],
    lease: Duration,
    clock: Clock,
}

impl Default for SpendBudget {
    fn default() -> SpendBudget {
        SpendBudget::new()
    }
}

impl fmt::Debug for SpendBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SpendBudget { project, all, of_project, lease, clock: _ } = self;
        f.debug_struct("SpendBudget")
            .field("project", project)
            .field("all", all)
            .field("of_project", of_project)
            .field("lease", lease)
            .finish_non_exhaustive()
    }
}

impl SpendBudget {
    /// Creates a budget without ceilings and without a project.
    pub fn new() -> SpendBudget {
        SpendBudget {
            project: None,
            all: [NO_CEILING; 4],
            of_project: [NO_CEILING; 4],
            lease: LEASE,
            clock: Arc::new(crate::clock::wall_ms),
        }
    }

    /// Sets the ceiling on the money of all runs of a period.
    #[must_use]
    pub fn max_usd(mut self, period: Period, ceiling: NanoUsd) -> SpendBudget {
        self.all[period as usize].usd = ceiling;
        self
    }

    /// Sets the ceiling on the tokens of all runs of a period.
    #[must_use]
    pub fn max_tokens(mut self, period: Period, ceiling: u64) -> SpendBudget {
        self.all[period as usize].tokens = ceiling;
        self
    }

    /// Names the project of the run.
    #[must_use]
    pub fn project(mut self, name: impl Into<String>) -> SpendBudget {
        self.project = Some(name.into());
        self
    }

    /// Sets the ceiling on the money of the project's runs of a period, within that of all runs.
    #[must_use]
    pub fn project_max_usd(mut self, period: Period, ceiling: NanoUsd) -> SpendBudget {
        self.of_project[period as usize].usd = ceiling;
        self
    }

    /// Sets the ceiling on the tokens of the project's runs of a period, within that of all runs.
    #[must_use]
    pub fn project_max_tokens(mut self, period: Period, ceiling: u64) -> SpendBudget {
        self.of_project[period as usize].tokens = ceiling;
        self
    }

    /// Sets the time after which the reservations of a process that died end. The default is 60
    /// seconds.
    #[must_use]
    pub fn lease(mut self, time: Duration) -> SpendBudget {
        self.lease = time;
        self
    }

    /// Sets the clock of periods and leases: Unix time in milliseconds. The default is the wall clock.
    #[must_use]
    pub fn clock(mut self, now: impl Fn() -> u64 + Send + Sync + 'static) -> SpendBudget {
        self.clock = Arc::new(now);
        self
    }

    /// `true` if there is any ceiling.
    pub fn has_ceilings(&self) -> bool {
        self.all().any(|ceiling| ceiling != NO_CEILING)
    }

    /// All ceilings.
    fn all(&self) -> impl Iterator<Item = Amount> + '_ {
        self.all.iter().chain(&self.of_project).copied()
    }

    /// The longest period that has a ceiling.
    fn longest(&self) -> Period {
        let bounds = |period: &Period| {
            let at = *period as usize;
            self.all[at] != NO_CEILING || self.of_project[at] != NO_CEILING
        };
        Period::ALL.into_iter().rev().find(bounds).unwrap_or(Period::Hour)
    }

    /// Opens the books in a journal. Runs of the period that ended without them, because no ceiling was set then, are
    /// entered now.
    ///
    /// # Errors
    /// The journal was opened read-only, is locked, or cannot be written.
    pub fn open(&self, journal: &SqliteJournal) -> Result<SharedBudget, JournalError> {
        journal.driver()?;
        let connection = journal.another_connection()?;
        let wrong = |error: rusqlite::Error| journal.failure(&error);
        connection.busy_timeout(PATIENCE).map_err(wrong)?;
        let now = (self.clock)();
        let (from, until) = self.longest().around(now);
        let begin = || begin_period(&connection, now, from, until);
        all_or_none(&connection, begin).map_err(wrong)?;
        let state =
            State { connection, row: None, held: Amount::ZERO, unsettled: NOTHING, keeper: None };
        let account = Arc::new_cyclic(|me| SpendAccount {
            budget: self.clone(),
            hour: now / HOUR_MS,
            hours: (from / HOUR_MS, until / HOUR_MS),
            journal: journal.clone(),
            state: Mutex::new(state),
            me: Weak::clone(me),
        });
        Ok(SharedBudget::of_store(account))
    }
}

/// Removes old books, and enters runs of the period that are not in the books.
fn begin_period(connection: &Connection, now: u64, from: u64, until: u64) -> rusqlite::Result<()> {
    let oldest = whole(now / HOUR_MS) - KEPT_HOURS;
    connection.execute("DELETE FROM spending WHERE hour < ?1", [oldest])?;
    connection.execute("DELETE FROM booked WHERE hour < ?1", [oldest])?;
    no_credit(connection, (from / HOUR_MS, until / HOUR_MS))?;
    for Spent { run, started_ms, project, amount } in Spent::of_unbooked(connection, from, until)? {
        let hour = started_ms / HOUR_MS;
        connection
            .prepare_cached(
                "INSERT INTO spending (hour, project, usd, tokens) VALUES (?1, ?2, ?3, ?4)",
            )?
            .execute(params![
                whole(hour),
                project.unwrap_or_default(),
                whole(amount.usd.0),
                whole(amount.tokens)
            ])?;
        book(connection, &run, hour)?;
    }
    Ok(())
}

/// Remembers that the books include a run.
fn book(connection: &Connection, run: &str, hour: u64) -> rusqlite::Result<()> {
    connection
        .prepare_cached("INSERT OR IGNORE INTO booked (run, hour) VALUES (?1, ?2)")?
        .execute(params![run, whole(hour)])
        .map(drop)
}

/// The books, as one process writes them.
struct SpendAccount {
    budget: SpendBudget,
    /// The hour in which its runs count, since 1970-01-01 UTC.
    hour: u64,
    /// The hours of the longest period with a ceiling, without the last one.
    hours: (u64, u64),
    journal: SqliteJournal,
    state: Mutex<State>,
    me: Weak<SpendAccount>,
}

struct State {
    connection: Connection,
    /// The row of this process in `spending`, once it has one.
    row: Option<i64>,
    /// Sum of the reservations that were not returned.
    held: Amount,
    /// Returned reservations, and what was spent of them, that are not written yet.
    unsettled: (Amount, Amount),
    /// The thread that renews the lease.
    keeper: Option<Thread>,
}

/// The sums of an account at one moment.
struct Sums {
    spent: Amount,
    reserved: Amount,
}

impl fmt::Debug for SpendAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SpendAccount { budget, hour, hours: _, journal, state: _, me: _ } = self;
        f.debug_struct("SpendAccount")
            .field("budget", budget)
            .field("hour", hour)
            .field("journal", journal)
            .finish_non_exhaustive()
    }
}

impl Store for SpendAccount {
    fn take(&self, want: Amount, least: Amount) -> Result<Amount, Refusal> {
        let mut state = self.state();
        let now = (self.budget.clock)();
        let taken = self.write(&mut state, |connection, row| {
            no_credit(connection, self.hours)?;
            self.end_leases(connection, now)?;
            let mut granted = want;
            for period in Period::ALL {
                for of_project in [false, true] {
                    match self.room(connection, (period, of_project), granted, least)? {
                        Ok(left) => granted = left,
                        Err(refusal) => return Ok(Err(refusal)),
                    }
                }
            }
            connection
                .prepare_cached(
                    "UPDATE spending SET reserved_usd = reserved_usd + ?2,
                     reserved_tokens = reserved_tokens + ?3, lease_ms = ?4 WHERE number = ?1",
                )?
                .execute(params![
                    row,
                    whole(granted.usd.0),
                    whole(granted.tokens),
                    self.until(now)
                ])?;
            Ok(Ok(granted))
        });
        let taken = taken.unwrap_or_else(|error| {
            let problem = self.journal.failure(&error).to_string();
            let failure = Some(Box::new(StoreFailure { problem }));
            Err(Refusal { left: Amount::ZERO, account: BudgetAccount::default(), failure })
        });
        if let Ok(granted) = taken {
            state.held = state.held.add(granted);
            self.keep_lease(&mut state);
        }
        taken
    }

    fn settle(&self, reserved: Amount, spent: Amount) {
        if reserved == Amount::ZERO && spent == Amount::ZERO {
            return;
        }
        let mut state = self.state();
        state.held = state.held.saturating_sub(reserved);
        let (returned, booked) = state.unsettled;
        state.unsettled = (returned.add(reserved), booked.add(spent));
        // A failure is not reported: the amounts stay in `unsettled` for the next transaction. If
        // there is none, the reservation ends with its lease, and counts as spent.
        let _ = self.write(&mut state, |_, _| Ok(()));
    }

    fn bounds_cost(&self) -> bool {
        self.budget.all().any(|ceiling| ceiling.usd != NO_CEILING.usd)
    }

    fn bounds_tokens(&self) -> bool {
        self.budget.all().any(|ceiling| ceiling.tokens != NO_CEILING.tokens)
    }

    fn saw_run(&self, id: &str) {
        // If this fails, the run is entered a second time by a later process. The ceiling still
        // holds then.
        let _ = book(&self.state().connection, id, self.hour);
    }

    fn resume_run(&self, id: &str, spent: Amount) {
        let from = self.hours.0.saturating_mul(HOUR_MS);
        // Spending before the longest period does not count in it.
        let sql = "SELECT count(*) FROM runs WHERE id = ?1 AND started_ms >= ?2
                   AND id NOT IN (SELECT run FROM booked)";
        let missing = self
            .state()
            .connection
            .query_row(sql, params![id, whole(from)], |row| row.get::<_, i64>(0));
        // A run that cannot be looked up is charged, which is the safe direction.
        if missing.unwrap_or(1) > 0 {
            self.settle(Amount::ZERO, spent);
        }
    }
}

impl SpendAccount {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The end of a lease that begins now.
    fn until(&self, now: u64) -> i64 {
        whole(now.saturating_add(self.budget.lease.as_millis() as u64))
    }

    /// Ends the leases that no process has renewed: what they reserved counts as spent.
    fn end_leases(&self, connection: &Connection, now: u64) -> rusqlite::Result<()> {
        connection
            .prepare_cached(
                "UPDATE spending SET lost_usd = lost_usd + reserved_usd,
                 lost_tokens = lost_tokens + reserved_tokens, reserved_usd = 0, reserved_tokens = 0
                 WHERE hour >= ?1 AND lease_ms < ?2 AND (reserved_usd > 0 OR reserved_tokens > 0)",
            )?
            .execute(params![whole(self.hours.0), whole(now)])
            .map(drop)
    }

    /// Writes in one transaction, after the amounts that are not written yet. Passes the row of this
    /// process, which the first transaction adds.
    fn write<T>(
        &self,
        state: &mut State,
        write: impl FnOnce(&Connection, i64) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        let connection = &state.connection;
        let (row, done) = all_or_none(connection, || {
            let row = state.row.map_or_else(|| self.add_row(connection), Ok)?;
            if state.unsettled != NOTHING {
                settle(connection, row, state.unsettled)?;
            }
            Ok((row, write(connection, row)?))
        })?;
        (state.row, state.unsettled) = (Some(row), NOTHING);
        Ok(done)
    }

    fn add_row(&self, connection: &Connection) -> rusqlite::Result<i64> {
        let project = self.budget.project.as_deref().unwrap_or_default();
        connection
            .prepare_cached("INSERT INTO spending (hour, project) VALUES (?1, ?2)")?
            .execute(params![whole(self.hour), project])?;
        Ok(connection.last_insert_rowid())
    }

    /// Returns the part of `want` that an account has left, if that is at least `least`.
    fn room(
        &self,
        connection: &Connection,
        (period, of_project): (Period, bool),
        want: Amount,
        least: Amount,
    ) -> rusqlite::Result<Result<Amount, Refusal>> {
        let ceilings = if of_project { self.budget.of_project } else { self.budget.all };
        let ceiling = ceilings[period as usize];
        if ceiling == NO_CEILING {
            return Ok(Ok(want));
        }
        let (from, until) = period.around(self.hour.saturating_mul(HOUR_MS));
        let hours = (from / HOUR_MS, until / HOUR_MS);
        let sums = self.sums(connection, hours, of_project)?;
        let left = want.min(ceiling.saturating_sub(sums.spent.add(sums.reserved)));
        if left.covers(least) {
            return Ok(Ok(left));
        }
        let name = match self.budget.project.as_deref().filter(|_| of_project) {
            Some(project) => {
                format!("the ceiling per {} (UTC) of the project `{project}`", period.name())
            }
            None => format!("the ceiling per {} (UTC)", period.name()),
        };
        let account = BudgetAccount {
            ceiling: Some(ceiling.usd).filter(|usd| *usd != NO_CEILING.usd),
            ceiling_tokens: Some(ceiling.tokens).filter(|tokens| *tokens != NO_CEILING.tokens),
            reserved: sums.reserved.usd,
            reserved_tokens: sums.reserved.tokens,
            name: Some(name),
            resets: Some(format!(
                "{}T{:02}:00:00Z",
                date(until / DAY_MS),
                until % DAY_MS / HOUR_MS
            )),
        };
        Ok(Err(Refusal { left, account, failure: None }))
    }

    /// Adds up the rows of these hours, all or those of the project.
    fn sums(
        &self,
        connection: &Connection,
        (from, until): (u64, u64),
        of_project: bool,
    ) -> rusqlite::Result<Sums> {
        let project = self.budget.project.as_deref().unwrap_or_default();
        let sql = "SELECT coalesce(sum(usd + lost_usd), 0), coalesce(sum(tokens + lost_tokens), 0),
                   coalesce(sum(reserved_usd), 0), coalesce(sum(reserved_tokens), 0)
                   FROM spending WHERE hour >= ?1 AND hour < ?4 AND (?2 OR project = ?3)";
        connection.prepare_cached(sql)?.query_row(
            params![whole(from), !of_project, project, whole(until)],
            |row| {
                let amount = |at: usize| -> rusqlite::Result<Amount> {
                    let (usd, tokens): (i64, i64) = (row.get(at)?, row.get(at + 1)?);
                    Ok(Amount { usd: NanoUsd(usd.unsigned_abs()), tokens: tokens.unsigned_abs() })
                };
                Ok(Sums { spent: amount(0)?, reserved: amount(2)? })
            },
        )
    }

    /// Starts the thread that renews the lease.
    fn keep_lease(&self, state: &mut State) {
        if state.keeper.is_some() {
            return;
        }
        let (me, every) = (Weak::clone(&self.me), self.budget.lease / 3);
        let renew = move || {
            loop {
                thread::park_timeout(every);
                let Some(account) = me.upgrade() else { return };
                account.renew();
            }
        };
        // Without the thread a reservation ends with its lease and counts as spent, which is the
        // safe direction.
        let keeper = thread::Builder::new().name("endstop-lease".to_owned()).spawn(renew);
        state.keeper = keeper.ok().map(|keeper| keeper.thread().clone());
    }

    /// Extends the lease of this process, and writes what could not be written before.
    fn renew(&self) {
        let mut state = self.state();
        if state.held == Amount::ZERO && state.unsettled == NOTHING {
            return;
        }
        let until = self.until((self.budget.clock)());
        // If it fails, the next attempt is still before the end of the lease.
        let _ = self.write(&mut state, |connection, row| {
            connection
                .prepare_cached("UPDATE spending SET lease_ms = ?2 WHERE number = ?1")?
                .execute(params![row, until])
        });
    }
}

/// Returns a reservation, and books what was spent of it.
fn settle(
    connection: &Connection,
    row: i64,
    (reserved, spent): (Amount, Amount),
) -> rusqlite::Result<()> {
    // A process that was suspended for longer than the lease finds its reservation among the lost
    // ones.
    connection
        .prepare_cached(
            "UPDATE spending SET usd = usd + ?4, tokens = tokens + ?5,
             lost_usd = max(0, lost_usd - max(0, ?2 - reserved_usd)),
             lost_tokens = max(0, lost_tokens - max(0, ?3 - reserved_tokens)),
             reserved_usd = max(0, reserved_usd - ?2),
             reserved_tokens = max(0, reserved_tokens - ?3) WHERE number = ?1",
        )?
        .execute(params![
            row,
            whole(reserved.usd.0),
            whole(reserved.tokens),
            whole(spent.usd.0),
            whole(spent.tokens)
        ])
        .map(drop)
}

impl Drop for SpendAccount {
    fn drop(&mut self) {
        let mut state = self.state();
        if state.unsettled != NOTHING {
            // The last attempt; see `settle` of the account.
            let _ = self.write(&mut state, |_, _| Ok(()));
        }
        // Wakes the thread, which finds that the account is gone.
        if let Some(keeper) = state.keeper.take() {
            keeper.unpark();
        }
    }
}

fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
