//! Guarded runs in chaos: parallel threads, cuts, stalls, retries, unknown usage and refusals over
//! all formats. The upstream's own bill is compared with the ceiling.
//!
//! `ENDSTOP_CHAOS_RUNS=10000 cargo test -p endstop-guard --test it gate::chaos -- --nocapture`

use super::agents::{ALL, Talk, talk};
use super::support::{Bills, Choose, Dice, Guard, Manner, billing, price};
use endstop::budget::SharedBudget;
use endstop_core::{Limits, NanoUsd};
use endstop_guard::run::Settings;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// The most agents of a run.
const AGENTS: u64 = 4;

/// The numbers of a chaos.
#[derive(Debug, Default)]
struct Tally {
    runs: u64,
    calls: u64,
    left_early: u64,
    retries: u64,
    refused: u64,
    billed: f64,
    above: u64,
    /// Runs with a call of unknown cost, and those above the ceiling by more than the calls in flight.
    unknown: u64,
    above_flight: u64,
    largest_above: f64,
    endings: BTreeMap<String, u64>,
}

async fn round(seed: u64, strict: bool, runs: u64, tally: &mut Tally) {
    let ceiling = [0.02, 0.4, 4.0][(seed % 3) as usize];
    let bills = Arc::new(Bills::default());
    let choose: Choose = Arc::new(move |number| match Dice(seed ^ number << 8).roll(20) {
        0 => Manner::Cut,
        1 => Manner::Silent,
        2 => Manner::Stall,
        3 => Manner::Busy,
        4 => Manner::Invalid,
        5 | 6 => Manner::NoUsage,
        7..=13 => Manner::Tool,
        _ => Manner::Answer,
    });
    let (upstream, stop) = billing(Arc::clone(&bills), choose).await;
    // A day's budget above all runs, so that every reservation can be followed.
    let day = SharedBudget::new(NanoUsd::from_usd(1e6));
    let limits = Limits {
        max_budget_usd: Some(ceiling),
        max_turns: Some(40),
        timeout: Some(Duration::from_secs(2)),
        ..Limits::default()
    };
    let settings = Settings {
        limits,
        cap_output: strict,
        price: Some(price()),
        budget: Some(day.clone()),
        ..Settings::default()
    };
    let guard = Guard::start(settings, upstream).await;
    let mut agents = JoinSet::new();
    for run in 0..runs {
        let mut dice = Dice(seed.wrapping_mul(1000) + run);
        for thread in 0..1 + dice.roll(AGENTS) {
            let mut one =
                Talk::new(&format!("r{run}"), &format!("t{thread}"), ALL[dice.roll(4) as usize]);
            one.streamed = dice.roll(3) > 0;
            one.cap = (dice.roll(2) == 0).then(|| 200 + dice.roll(4000));
            one.choices = 1 + dice.roll(5) / 4;
            let talking = talk(guard.address, one, 3 + dice.roll(10), dice.clone());
            agents.spawn(async move { (format!("r{run}"), talking.await) });
        }
    }
    let mut left: BTreeMap<String, u64> = BTreeMap::new();
    while let Some(seen) = agents.join_next().await {
        let (run, seen) = seen.expect("an agent");
        *left.entry(run).or_default() += seen.left_early;
        tally.calls += seen.calls;
        tally.left_early += seen.left_early;
        tally.retries += seen.retries;
        tally.refused += seen.refused;
    }
    for run in guard.gate.runs() {
        run.idle().await;
        let outcome = run.close(true, "");
        assert!(Arc::ptr_eq(&outcome, &run.close(false, "again")), "one ending");
        assert!(Arc::ptr_eq(&outcome, &run.cancel()), "one ending");
        assert_eq!(run.in_flight(), 0);
        assert_eq!(outcome.cost, run.spent().cost, "{}: the books", run.id());
        let bill = bills.of(&run.id());
        let above = bill.usd - ceiling;
        if strict {
            assert!(above <= 1e-9, "{}: billed {bill:?} of {ceiling}, {outcome:?}", run.id());
        } else {
            // Calls in flight, and calls whose usage guard never reads, because the upstream does not send
            // it, or the client left and asked again: these are estimated, and the outcome says that their
            // cost is unknown. The upstream cannot tell what is in flight: all that it sends fits into the
            // buffer of a socket.
            let (counts, left) = (run.counts(), left[&run.id()]);
            // An agent waits for one call, and those that it left may be in flight, too.
            assert!(counts.most_in_flight <= AGENTS + left, "{}: {counts:?}", run.id());
            let flight = bill.largest * counts.most_in_flight as f64;
            let unread = bill.unreported + bill.largest * left as f64;
            assert!(above <= flight + unread + 1e-9, "{}: {bill:?}, {counts:?}", run.id());
            assert!(above <= flight + 1e-9 || outcome.cost_unknown, "{}: {outcome:?}", run.id());
            tally.unknown += u64::from(outcome.cost_unknown);
            tally.above_flight += u64::from(above > flight + 1e-9);
        }
        // No bill is forgotten: an upper bound is one, or is said to be unknown.
        if let Some(upper) = outcome.cost_upper.filter(|_| strict) {
            assert!(bill.usd <= upper.to_usd() + 1e-9, "{}: {bill:?}, {outcome:?}", run.id());
        }
        tally.runs += 1;
        tally.billed += bill.usd;
        tally.above += u64::from(above > 1e-9);
        tally.largest_above = tally.largest_above.max(above);
        *tally.endings.entry(outcome.termination.to_string()).or_default() += 1;
    }
    let events = guard.events.lock().expect("a lock").len() as u64;
    assert!(events >= runs, "every run was reported");
    let gate = guard.stop().await;
    assert_eq!(day.reserved(), NanoUsd::ZERO, "every reservation was returned");
    drop(gate);
    let _ = stop.send(());
}

#[test]
fn ceilings_hold_in_chaos() {
    let runs = std::env::var("ENDSTOP_CHAOS_RUNS").ok().and_then(|runs| runs.parse().ok());
    let runs: u64 = runs.unwrap_or(60);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    for strict in [true, false] {
        let mut tally = Tally::default();
        let half = runs.div_ceil(2);
        // Runs of one gate.
        let size = (half / 20).clamp(10, 250);
        for number in 0..half.div_ceil(size) {
            let runs = size.min(half - number * size);
            runtime.block_on(async {
                let round = round(number, strict, runs, &mut tally);
                tokio::time::timeout(Duration::from_secs(300), round).await.expect("a round hangs");
            });
        }
        // Tasks of runs, proxies and upstreams end with them.
        runtime.block_on(async {
            for _ in 0..600 {
                if tokio::runtime::Handle::current().metrics().num_alive_tasks() == 0 {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0);
        });
        println!("strict {strict}: {tally:?}");
        assert!(tally.runs == half && tally.calls > half, "{tally:?}");
    }
}
