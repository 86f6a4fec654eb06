//! Ceilings of a day: shared by processes, kept in the journal, and never unlimited by a failure.

use super::{Place, agent, price};
use endstop::budget::{Amount, SharedBudget};
use endstop::journal::{JournalErrorKind, Period, SpendBooks, SpendBudget, SqliteJournal};
use endstop::testkit::{ScriptedModel, Turn};
use endstop::{Agent, NanoUsd, Outcome, Termination};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const DAY: u64 = 20_000;
const NOON: u64 = DAY * 86_400_000 + 43_200_000;

/// A wall clock that the test sets.
#[derive(Clone)]
struct Clock(Arc<AtomicU64>);

impl Clock {
    fn noon() -> Clock {
        Clock(Arc::new(AtomicU64::new(NOON)))
    }

    fn advance(&self, time: Duration) {
        self.0.fetch_add(time.as_millis() as u64, Ordering::SeqCst);
    }

    fn now(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// Opens the budget as another process does: with a connection of its own.
    fn open(&self, file: &Path, budget: SpendBudget) -> SharedBudget {
        let clock = self.clone();
        let journal = SqliteJournal::open(file).unwrap();
        budget.clock(move || clock.now()).open(&journal).unwrap()
    }

    fn books(&self, file: &Path) -> Vec<SpendBooks> {
        SqliteJournal::read(file).unwrap().books(Period::Day, DAY * 86_400_000, self.now()).unwrap()
    }
}

fn usd(cents: u64) -> Amount {
    Amount { usd: NanoUsd(cents * 10_000_000), tokens: 0 }
}

fn dollar() -> SpendBudget {
    SpendBudget::new().max_usd(Period::Day, usd(100).usd)
}

#[test]
fn each_period_has_its_own_ceiling() {
    let (place, clock) = (Place::new(), Clock::noon());
    let hour = Duration::from_secs(3600);
    // As another process in each hour: a run counts in the hour in which its budget was opened.
    let open = || {
        let budget = SpendBudget::new().max_usd(Period::Hour, usd(40).usd);
        clock.open(&place.file(), budget.max_usd(Period::Week, usd(100).usd))
    };
    let refusal = |budget: &SharedBudget| {
        let account = budget.reserve_or_explain(usd(40), usd(30)).unwrap_err().account;
        (account.name.unwrap(), account.resets.unwrap())
    };
    for _ in 0..2 {
        let budget = open();
        assert_eq!(budget.reserve_amount(usd(40), usd(30)), Ok(usd(40)));
        budget.settle_amount(usd(40), usd(40));
        let (name, resets) = refusal(&budget);
        assert_eq!(name, "the ceiling per hour (UTC)");
        assert!(resets.ends_with(":00:00Z") && !resets.ends_with("T00:00:00Z"), "{resets}");
        clock.advance(hour);
    }
    let (name, resets) = refusal(&open());
    assert_eq!(name, "the ceiling per week (UTC)");
    assert!(resets.ends_with("T00:00:00Z"), "{resets}");
    clock.advance(7 * 24 * hour);
    assert_eq!(open().reserve_amount(usd(40), usd(30)), Ok(usd(40)));
}

#[test]
fn periods_are_those_of_the_calendar() {
    let day = |number: u64| number * 86_400_000;
    // 2024-02-29, a Thursday, and the days around it; 1970-01-01 is one, too.
    for (at, monday, first, length) in [
        (19_782, 19_779, 19_754, 29),
        (19_783, 19_779, 19_783, 31),
        (19_786, 19_786, 19_783, 31),
        (20_453, 20_451, 20_423, 31),
        (20_454, 20_451, 20_454, 31),
    ] {
        let time = day(at) + 12_345_678;
        assert_eq!(Period::Hour.around(time), (day(at) + 10_800_000, day(at) + 14_400_000));
        assert_eq!(Period::Day.around(time), (day(at), day(at + 1)));
        assert_eq!(Period::Week.around(time), (day(monday), day(monday + 7)), "{at}");
        assert_eq!(Period::Month.around(time), (day(first), day(first + length)), "{at}");
    }
    assert_eq!(Period::Week.around(0), (0, day(4)));
}

#[test]
fn processes_share_the_days_ceiling() {
    let (place, clock) = (Place::new(), Clock::noon());
    let [one, other] = [0, 1].map(|_| clock.open(&place.file(), dollar()));
    assert_eq!(one.reserve_amount(usd(70), usd(10)), Ok(usd(70)));
    assert_eq!(other.reserve_amount(usd(70), usd(10)), Ok(usd(30)));
    let refusal = other.reserve_or_explain(usd(70), usd(10)).unwrap_err();
    assert_eq!((refusal.left, refusal.account.reserved), (Amount::ZERO, usd(100).usd));
    assert_eq!(refusal.account.ceiling, Some(usd(100).usd));
    assert_eq!(refusal.account.resets.as_deref(), Some("2024-10-05T00:00:00Z"));
    one.settle_amount(usd(70), usd(20));
    other.settle_amount(usd(30), usd(30));
    assert_eq!(other.reserve_amount(usd(70), usd(10)), Ok(usd(50)));
    // The next day begins anew, also for a process that is still there.
    clock.advance(Duration::from_secs(86_400));
    let next = clock.open(&place.file(), dollar());
    assert_eq!(next.reserve_amount(usd(70), usd(10)), Ok(usd(70)));
    assert_eq!(other.reserve_amount(usd(70), usd(10)), Err(Amount::ZERO));
}

#[test]
fn project_has_its_own_ceiling() {
    let (place, clock) = (Place::new(), Clock::noon());
    let web = || {
        dollar()
            .project("web")
            .project_max_usd(Period::Day, usd(40).usd)
            .project_max_tokens(Period::Day, 1_000)
    };
    let (one, other) = (clock.open(&place.file(), web()), clock.open(&place.file(), dollar()));
    assert!(one.bounds_cost() && one.bounds_tokens() && !other.bounds_tokens());
    let least = Amount { tokens: 100, ..usd(1) };
    let want = Amount { tokens: 800, ..usd(90) };
    assert_eq!(one.reserve_amount(want, least), Ok(Amount { tokens: 800, ..usd(40) }));
    let refusal = one.reserve_or_explain(want, least).unwrap_err();
    let name = refusal.account.name.unwrap();
    assert_eq!(name, "the ceiling per day (UTC) of the project `web`");
    // What the project has reserved counts for all runs.
    assert_eq!(other.reserve_amount(want, least), Ok(Amount { tokens: 800, ..usd(60) }));
    one.settle_amount(Amount { tokens: 800, ..usd(40) }, Amount { tokens: 950, ..usd(5) });
    assert_eq!(one.reserve_amount(want, least), Err(Amount { tokens: 50, ..usd(35) }));
}

#[test]
fn lost_reservation_counts_as_spent() {
    let (place, clock) = (Place::new(), Clock::noon());
    let dead = clock.open(&place.file(), dollar());
    assert_eq!(dead.reserve_amount(usd(60), usd(1)), Ok(usd(60)));
    // A process that is killed runs no destructor, and renews nothing.
    std::mem::forget(dead.clone());
    let other = clock.open(&place.file(), dollar());
    clock.advance(Duration::from_secs(59));
    assert_eq!(clock.books(&place.file())[0].reserved, usd(60).usd);
    clock.advance(Duration::from_secs(2));
    let [books] = &clock.books(&place.file())[..] else { panic!("one project") };
    assert_eq!((books.reserved, books.lost), (NanoUsd::ZERO, usd(60).usd));
    assert_eq!(other.reserve_amount(usd(60), usd(1)), Ok(usd(40)));
    // It was only suspended: what it really spent takes the place of what was lost.
    dead.settle_amount(usd(60), usd(10));
    assert_eq!(other.reserve_amount(usd(60), usd(1)), Ok(usd(50)));
    let [books] = &clock.books(&place.file())[..] else { panic!("one project") };
    assert_eq!(
        (books.spent, books.lost, books.reserved),
        (usd(10).usd, NanoUsd::ZERO, usd(90).usd)
    );
}

#[test]
fn live_process_renews_its_lease() {
    let (place, clock) = (Place::new(), Clock::noon());
    // The thread renews every 30 ms of real time, whatever the clock shows.
    let lease = Duration::from_millis(90);
    let one = clock.open(&place.file(), dollar().lease(lease));
    assert_eq!(one.reserve_amount(usd(60), usd(1)), Ok(usd(60)));
    let hang = std::time::Instant::now();
    for _ in 0..5 {
        let now = clock.now();
        clock.advance(lease / 2);
        // Renewed once the lease reaches beyond the new time by its whole length.
        let renewed = || {
            let late = now + (lease + lease / 2).as_millis() as u64 - 1;
            let journal = SqliteJournal::read(place.file()).unwrap();
            journal.books(Period::Day, DAY * 86_400_000, late).unwrap()[0].reserved == usd(60).usd
        };
        while !renewed() {
            assert!(hang.elapsed() < Duration::from_secs(60), "the lease was not renewed");
            std::thread::yield_now();
        }
    }
}

#[test]
fn locked_books_refuse_with_their_failure() {
    let (place, clock) = (Place::new(), Clock::noon());
    let budget = clock.open(&place.file(), dollar());
    let other = rusqlite::Connection::open(place.file()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let refusal = budget.reserve_or_explain(usd(1), usd(1)).unwrap_err();
    let failure = refusal.failure.unwrap().to_string();
    assert!(failure.contains("another process has locked it"), "{failure}");
    other.execute_batch("ROLLBACK").unwrap();
    // What cannot be written is written later.
    assert_eq!(budget.reserve_amount(usd(60), usd(1)), Ok(usd(60)));
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    budget.settle_amount(usd(60), usd(20));
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(budget.reserve_amount(usd(90), usd(1)), Ok(usd(80)));
}

#[test]
fn full_or_read_only_journal_refuses() {
    let (place, clock) = (Place::new(), Clock::noon());
    let budget = clock.open(&place.file(), dollar());
    drop(clock.open(&place.file(), dollar()));
    let read = SqliteJournal::read(place.file()).unwrap();
    assert_eq!(dollar().open(&read).unwrap_err().kind, JournalErrorKind::Io);
    let other = rusqlite::Connection::open(place.file()).unwrap();
    other.execute_batch("DROP TABLE spending").unwrap();
    let refusal = budget.reserve_or_explain(usd(1), usd(1)).unwrap_err();
    assert!(refusal.failure.is_some());
}

/// A negative amount would be a credit. Only another program can have written it.
#[test]
fn negative_books_are_damage() {
    let columns = ["usd", "tokens", "lost_usd", "lost_tokens", "reserved_usd", "reserved_tokens"];
    for column in columns {
        let (place, clock) = (Place::new(), Clock::noon());
        let budget = clock.open(&place.file(), dollar());
        assert_eq!(budget.reserve_amount(usd(60), usd(1)), Ok(usd(60)));
        budget.settle_amount(usd(60), usd(60));
        let other = rusqlite::Connection::open(place.file()).unwrap();
        let credit = format!(
            "INSERT INTO spending (hour, project, {column}) VALUES ({DAY} * 24, '', -1000000000000)"
        );
        other.execute_batch(&credit).unwrap();
        let refusal = budget.reserve_or_explain(usd(1), usd(1)).unwrap_err();
        let failure = refusal.failure.expect(column).to_string();
        assert!(failure.contains("the books of the day have a negative amount"), "{failure}");
        // A new process is refused at its start, and a list of the books shows no sum.
        let journal = SqliteJournal::open(place.file()).unwrap();
        let now = clock.clone();
        let opened = dollar().clock(move || now.now()).open(&journal).unwrap_err();
        assert_eq!(opened.kind, JournalErrorKind::Damaged, "{column}");
        assert_eq!(
            journal.books(Period::Day, DAY * 86_400_000, 0).unwrap_err().kind,
            JournalErrorKind::Damaged
        );
        // Another day is not affected.
        other.execute_batch("UPDATE spending SET hour = hour - 24").unwrap();
        assert_eq!(budget.reserve_amount(usd(1), usd(1)), Ok(usd(1)));
    }
}

#[test]
fn negative_cost_of_run_is_damage() {
    let place = Place::new();
    let journal = SqliteJournal::open(place.file()).unwrap();
    run(None, &journal);
    let other = rusqlite::Connection::open(place.file()).unwrap();
    other.execute_batch("UPDATE runs SET cost_usd = -5.0").unwrap();
    let opened = SpendBudget::new().max_usd(Period::Day, usd(100).usd).open(&journal).unwrap_err();
    assert_eq!(opened.kind, JournalErrorKind::Damaged);
}

fn run(budget: Option<SharedBudget>, journal: &SqliteJournal) -> Outcome {
    let mut builder = agent([Turn::text("Paris.")], journal);
    if let Some(budget) = budget {
        builder = builder.shared_budget(budget);
    }
    let agent = builder.build().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { agent.run("Where?").unwrap().outcome().await })
}

#[test]
fn earlier_runs_of_the_day_count() {
    let place = Place::new();
    let journal = SqliteJournal::open(place.file()).unwrap();
    let free = run(None, &journal);
    assert!(free.cost > NanoUsd::ZERO);
    let ceiling = NanoUsd(free.cost.0 + 1);
    // Without a ceiling nothing was booked; the first budget of the day enters the run, once.
    for _ in 0..2 {
        let budget = SpendBudget::new().max_usd(Period::Day, ceiling).open(&journal).unwrap();
        let left = budget.reserve_amount(usd(100), Amount::ZERO).unwrap();
        assert_eq!(left.usd, NanoUsd(1));
        budget.settle_amount(left, Amount::ZERO);
    }
    let budget = SpendBudget::new().max_usd(Period::Day, ceiling).open(&journal).unwrap();
    let outcome = run(Some(budget), &journal);
    assert_eq!(outcome.termination, Termination::ErrorMaxBudgetUsd);
    let evidence = &outcome.decided_by.evidence;
    assert_eq!(outcome.decided_by.decision.as_str(), "shared_budget");
    for part in ["in the ceiling per day (UTC); ", " is used", "; it resets at 20", "T00:00:00Z"] {
        assert!(evidence.contains(part), "{part}: {evidence}");
    }
}

#[test]
fn booked_run_is_not_entered_again() {
    let place = Place::new();
    let journal = SqliteJournal::open(place.file()).unwrap();
    let open = || SpendBudget::new().max_usd(Period::Day, usd(10_000).usd).open(&journal).unwrap();
    let outcome = run(Some(open()), &journal);
    assert!(outcome.is_success(), "{:?}", outcome.decided_by);
    drop(open());
    let day = journal.spending(0).unwrap()[0].started_ms / 86_400_000;
    let [books] = &journal.books(Period::Day, day * 86_400_000, 0).unwrap()[..] else {
        panic!("one project")
    };
    assert_eq!((books.spent, books.reserved), (outcome.cost, NanoUsd::ZERO));
}

#[test]
fn failed_books_end_the_run() {
    let place = Place::new();
    let journal = SqliteJournal::open(place.file()).unwrap();
    let budget = dollar().open(&journal).unwrap();
    rusqlite::Connection::open(place.file()).unwrap().execute_batch("DROP TABLE spending").unwrap();
    let outcome = run(Some(budget), &journal);
    assert_eq!(outcome.termination, Termination::ErrorDuringExecution);
    assert_eq!(outcome.model_calls, 0);
    assert_eq!(outcome.decided_by.decision.as_str(), "shared_budget");
    let evidence = &outcome.decided_by.evidence;
    assert!(evidence.contains("the shared budget cannot be asked"), "{evidence}");
    // A replay decides the same.
    let id = outcome.run_id.as_deref().unwrap();
    let again = journal.load(id).unwrap().replay(None).unwrap();
    assert_eq!(again.outcome().unwrap().termination, outcome.termination);
}

#[tokio::test]
async fn locked_books_do_not_block_other_work() {
    let (place, clock) = (Place::new(), Clock::noon());
    let budget =
        clock.open(&place.file(), SpendBudget::new().max_usd(Period::Day, usd(10_000).usd));
    let run = |text: &str| {
        let builder = Agent::builder(ScriptedModel::new([Turn::text(text)]).price(price()));
        builder.shared_budget(budget.clone()).build().unwrap().run("Go.").unwrap()
    };
    let other = rusqlite::Connection::open(place.file()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let waiting = run("Done.");
    // On this runtime, which has one thread, nothing below would happen if the run blocked it.
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    assert!(waiting.try_outcome().is_none(), "the books are locked");
    other.execute_batch("COMMIT").unwrap();
    let outcome = waiting.outcome().await;
    assert_eq!(outcome.termination, Termination::Stop, "{outcome:?}");
    // A run that is cancelled while it waits for the books takes nothing with it.
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut cancelled = run("Done.");
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    cancelled.cancel();
    while cancelled.next().await.is_some() {}
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(cancelled.outcome().await.termination, Termination::Cancelled);
    let spent = outcome.cost;
    let right = |books: &SpendBooks| books.reserved == NanoUsd::ZERO && books.spent == spent;
    while !clock.books(&place.file()).iter().all(right) {
        tokio::task::yield_now().await;
    }
}
