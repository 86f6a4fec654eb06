//! Tests that a backtest over files has the same figures, to the last digit, for any number of
//! threads, any order of the files, and any packing.

use crate::common::Folder;
use endstop_trajectory::backtest::{Backtest, Candidate, Done, Engine, Family};
use endstop_trajectory::read::Outcomes;
use endstop_trajectory::{Call, Recorded, Role, Step, Trajectory, Usage, write};
use serde_json::{Value, json};
use std::io::Write as _;
use std::path::PathBuf;

fn candidates() -> Vec<Candidate> {
    Candidate::read(&json!([
        {"repeat_call": {"times": 2}},
        {"max_steps": {"steps": 2}},
        {"cost": {"usd": 0.5}},
        {"name": "short", "limits": {"max_turns": 3}},
    ]))
    .unwrap()
}

/// Runs of twenty tasks, whose costs have no exact binary fraction.
fn runs() -> Vec<Trajectory<'static>> {
    let run = |nth: usize| {
        let step = |turn: usize| Step {
            text: format!("{nth} {turn}").into(),
            calls: vec![Call {
                name: "f".into(),
                arguments: format!("{{\"a\":{}}}", (nth * turn) % 3).into(),
                ..Call::default()
            }],
            cost_usd: Some(0.1 * (1 + nth % 7) as f64),
            usage: Some(Box::new(Usage {
                prompt_tokens: Some(nth as u64),
                completion_tokens: Some(turn as u64),
                ..Usage::default()
            })),
            ..Step::new(Role::Agent)
        };
        Trajectory {
            task_id: Some(format!("t{}", nth % 20).into()),
            recorded: Recorded { reward: None, success: Some(nth.is_multiple_of(3)) },
            steps: (0..1 + nth % 6).map(step).collect(),
            ..Trajectory::new(format!("r{nth}"))
        }
    };
    (0..120).map(run).collect()
}

fn atif(run: &Trajectory<'_>) -> Vec<u8> {
    let mut line = Vec::new();
    write::atif(run, &mut line).unwrap();
    line
}

fn engine(threads: usize) -> Engine {
    Engine { threads, ..Engine::default() }
}

fn done(engine: Engine, paths: &[PathBuf]) -> Done {
    let make = || Ok(Backtest::new(&candidates())?.calibrating(&Family::all(), 0.2));
    engine.run(paths, make, &|_| {}).unwrap()
}

fn figures(done: Done) -> Value {
    serde_json::to_value(done.backtest.finish()).unwrap()
}

#[test]
fn threads_do_not_change_a_digit() {
    let folder = Folder::new("engine-threads");
    for (nth, run) in runs().iter().enumerate() {
        folder.file(&format!("set-{}/run-{nth:03}.json", nth % 2), atif(run));
    }
    let paths = [folder.0.clone()];
    let mut first = None;
    for threads in [1, 1, 2, 3, 8] {
        let done = done(engine(threads), &paths);
        let counts = (done.stats.runs, done.stats.turns, done.stats.calls, done.skipped);
        assert_eq!(done.stats.problems.len(), 0);
        let now = (counts, figures(done));
        assert_eq!(now.1["datasets"].as_array().unwrap().len(), 3);
        assert_eq!(&now, first.get_or_insert_with(|| now.clone()), "{threads} threads");
    }
}

#[test]
fn file_order_changes_no_digit() {
    let folder = Folder::new("engine-order");
    let mut paths = Vec::new();
    for (nth, part) in runs().chunks(20).enumerate() {
        let lines: Vec<u8> =
            part.iter().flat_map(|run| [atif(run), b"\n".to_vec()].concat()).collect();
        paths.push(folder.file(&format!("{nth}/set.jsonl"), lines));
    }
    let forward = figures(done(engine(1), &paths));
    paths.reverse();
    assert_eq!(figures(done(engine(1), &paths)), forward);
    paths.rotate_left(3);
    assert_eq!(figures(done(engine(2), &paths)), forward);
    let sets = forward["datasets"].as_array().unwrap();
    assert_eq!((sets.len(), &sets[0]["name"], &sets[0]["runs"]), (1, &json!("set"), &json!(120)));
}

#[test]
fn packed_members_are_one_file() {
    let folder = Folder::new("engine-packed");
    let lines: Vec<Vec<u8>> =
        runs().iter().map(|run| [atif(run), b"\n".to_vec()].concat()).collect();
    let gzip = |bytes: &[u8]| {
        let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        out.write_all(bytes).unwrap();
        out.finish().unwrap()
    };
    let zstd = |bytes: &[u8]| zstd::encode_all(bytes, 1).unwrap();
    let plain = folder.file("plain/set.jsonl", lines.concat());
    // A member may end in the middle of a line.
    let whole = lines.concat();
    let (one, two) = whole.split_at(5_001);
    let members = [gzip(one), gzip(b""), gzip(two)].concat();
    let gz = folder.file("gz/set.jsonl.gz", members);
    let zst = folder.file("zst/set.jsonl.zst", [zstd(one), zstd(two)].concat());
    let want = figures(done(engine(2), &[plain]));
    for path in [gz, zst] {
        let done = done(engine(2), std::slice::from_ref(&path));
        assert_eq!(done.stats.problems.len(), 0, "{}", path.display());
        assert_eq!(figures(done), want, "{}", path.display());
    }
}

/// Each run is passed on once, with the turns that its dataset was counted with.
#[test]
fn each_run_is_reported_once() {
    let folder = Folder::new("engine-each");
    for (nth, part) in runs().chunks(30).enumerate() {
        let lines: Vec<u8> =
            part.iter().flat_map(|run| [atif(run), b"\n".to_vec()].concat()).collect();
        folder.file(&format!("set{nth}.jsonl"), lines);
    }
    let seen = std::sync::Mutex::new(Vec::new());
    let bytes = std::sync::atomic::AtomicU64::new(0);
    let make = || Backtest::new(&candidates());
    let progress = |n: u64| {
        bytes.fetch_add(n, std::sync::atomic::Ordering::Relaxed);
    };
    let done = engine(3)
        .run_each(std::slice::from_ref(&folder.0), make, &progress, &|dataset, run, fired| {
            let stop = fired[1].filter(|turn| (*turn as usize) < run.turns().count());
            seen.lock().unwrap().push((dataset.to_owned(), run.run_id.to_string(), stop));
        })
        .unwrap();
    let mut seen = seen.into_inner().unwrap();
    seen.sort();
    let count = seen.len();
    seen.dedup_by(|a, b| a.1 == b.1);
    assert_eq!((count, seen.len()), (120, 120));
    let figures = done.backtest.finish();
    for dataset in &figures.datasets[..4] {
        let stopped = seen.iter().filter(|one| one.0 == dataset.name && one.2.is_some()).count();
        let counts = &dataset.candidates[1].counts;
        assert_eq!(stopped as u64, counts.succ_stopped + counts.fail_stopped, "{}", dataset.name);
    }
    let length: u64 = (0..4)
        .map(|nth| std::fs::metadata(folder.0.join(format!("set{nth}.jsonl"))).unwrap().len())
        .sum();
    assert_eq!(bytes.into_inner(), length);
}

#[test]
fn separate_outcomes_decide_success() {
    let folder = Folder::new("engine-outcomes");
    let lines: Vec<u8> =
        runs().iter().flat_map(|run| [atif(run), b"\n".to_vec()].concat()).collect();
    let path = folder.file("set.jsonl", lines);
    let mut csv = "run_id,success\n".to_owned();
    for nth in 0..60 {
        csv.push_str(&format!("\"r{nth}\",{}\n", nth % 2 == 0));
    }
    csv.push_str("\"other, \"\"run\"\"\",true\n");
    for threads in [1, 4] {
        let mut engine = engine(threads);
        engine.outcomes = Some(Outcomes::parse(&csv).unwrap());
        let done = done(engine, std::slice::from_ref(&path));
        let outcomes = done.outcomes.as_ref().unwrap();
        assert_eq!((outcomes.missing(), outcomes.unused_ids()), (60, vec!["other, \"run\""]));
        // Every second of the first sixty, and every third of the others.
        assert_eq!(done.backtest.finish().whole().unwrap().succeeded, 30 + 20);
    }
}
