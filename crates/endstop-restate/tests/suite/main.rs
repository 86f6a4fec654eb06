//! The scenarios of `docs/src/scenarios.md` on each driver: the same agents, the same scripted servers,
//! and the same expectations.
//!
//! ```sh
//! cargo test -p endstop-restate --test suite -- --nocapture   # prints the table
//! ```
//!
//! The drivers are a run in this process with a journal in SQLite (`embedded`), and a durable run that is
//! driven step by step, without an engine (`stepped`). With the feature `engine`, and the path of a
//! Restate server in `ENDSTOP_RESTATE_SERVER`, the third one is a worker of that server.
//! `bench/restate/scenarios.py` installs the server and writes the table.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::pedantic,
    missing_docs,
    unreachable_pub,
    reason = "tests"
)]

mod embedded;
mod endings;
#[cfg(feature = "engine")]
mod engine;
mod history;
mod model;
#[cfg(target_os = "linux")]
#[path = "../../../endstop-process/tests/kept/processes.rs"]
mod processes;
mod run;
mod runaway;
mod stepped;
mod stops;
mod table;
mod truncated;

use run::{Driver, On};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use table::Row;
use tokio::task::JoinSet;

/// Number of scenarios that run at a time.
const AT_ONCE: usize = 8;

/// The cell of a scenario with an expectation that does not hold.
const FAILS: &str = "fails";

fn rows() -> Vec<Row> {
    [endings::rows(), stops::rows(), history::rows(), truncated::rows(), runaway::rows()].concat()
}

/// Plays all scenarios on a driver; returns what happened in each, by its number.
async fn played(driver: Arc<dyn Driver>) -> BTreeMap<u32, String> {
    // Some scenarios only, for example `C4,C19`.
    let only = std::env::var("ENDSTOP_SCENARIOS").ok();
    let only: Option<Vec<&str>> = only.as_deref().map(|names| names.split(',').collect());
    let chosen = |row: &Row| {
        only.as_ref().is_none_or(|only| only.contains(&format!("C{}", row.number).as_str()))
    };
    let mut left = rows().into_iter().filter(chosen);
    let (mut playing, mut cells) = (JoinSet::new(), BTreeMap::new());
    // A scenario that fails must not hide the result of the others.
    let mut numbers = HashMap::new();
    loop {
        while playing.len() < AT_ONCE {
            let Some(row) = left.next() else { break };
            let driver = Arc::clone(&driver);
            let task = playing.spawn(async move {
                let on = On::new(driver, row.number);
                (row.play)(on.clone()).await;
                on.tally()
            });
            numbers.insert(task.id(), row.number);
        }
        let (task, cell) = match playing.join_next_with_id().await {
            Some(Ok(played)) => played,
            Some(Err(failed)) => (failed.id(), FAILS.to_owned()),
            None => return cells,
        };
        cells.insert(numbers[&task], cell);
    }
}

/// Asserts that every scenario has held, and with the same result on each driver.
fn assert_same(columns: &[(&str, &BTreeMap<u32, String>)]) {
    let (_, first) = columns[0];
    for (name, cells) in columns {
        let fails: Vec<&u32> =
            cells.iter().filter(|(_, cell)| *cell == FAILS).map(|(n, _)| n).collect();
        assert!(fails.is_empty(), "{name}: the scenarios {fails:?} fail, for the reasons above");
        assert_eq!(*cells, first, "{name} differs from {}", columns[0].0);
    }
}

#[test]
fn every_scenario_has_one_row() {
    let numbers: Vec<u32> = rows().iter().map(|row| row.number).collect();
    assert_eq!(numbers, (1..=44).collect::<Vec<u32>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn scenarios_hold_on_both_drivers() {
    // At once, because the longest scenarios use one processor.
    let (embedded, stepped) = tokio::join!(
        played(Arc::new(embedded::Embedded::new())),
        played(Arc::new(stepped::Stepped::default())),
    );
    let columns = [("embedded", &embedded), ("stepped", &stepped)];
    print!("{}", table::text(&rows(), &columns));
    assert_same(&columns);
}

#[cfg(feature = "engine")]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn scenarios_hold_on_restate() {
    let Some(server) = std::env::var_os("ENDSTOP_RESTATE_SERVER") else {
        println!("skipped: set ENDSTOP_RESTATE_SERVER to the path of a restate-server 1.7");
        return;
    };
    let embedded = played(Arc::new(embedded::Embedded::new())).await;
    let stepped = played(Arc::new(stepped::Stepped::default())).await;
    let (engine, _server) = engine::Engine::start(server.as_ref()).await;
    let restate = played(Arc::new(engine)).await;
    let columns = [("embedded", &embedded), ("stepped", &stepped), ("Restate", &restate)];
    let text = table::text(&rows(), &columns);
    print!("{text}");
    if let Some(path) = std::env::var_os("ENDSTOP_SCENARIO_TABLE") {
        std::fs::write(path, text).unwrap();
    }
    assert_same(&columns);
}
