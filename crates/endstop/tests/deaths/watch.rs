//! Starts and kills the victim, and checks what is left.

use endstop::Outcome;
use endstop::journal::{RecordedRun, SqliteJournal};
use endstop::testkit::{Reply, Request, Server, Turn};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

const STEPS: u64 = 20;

/// Result of one run with all its deaths.
struct Seen {
    deaths: u32,
    outcome: Value,
    run: RecordedRun,
    runs: usize,
    begun: Vec<u64>,
    ended: Vec<u64>,
}

/// A scripted model that requests one step after another. The number of results in the request
/// reports the next step to it.
fn model(request: &Request) -> Reply {
    let messages = request.body["messages"].as_array().unwrap();
    let done = messages.iter().filter(|message| message["role"] == "tool").count() as u64;
    let turn = if done < STEPS {
        Turn::call("step", &json!({"number": done + 1})).and_text("The next step, then.")
    } else {
        Turn::text("All steps are done.")
    };
    // The usage grows with the prompt, as with a real model.
    Reply::turn(request, &turn.usage(100 + 20 * done, 15))
}

pub(crate) fn all() -> ExitCode {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let server = runtime.block_on(async { Server::start(model).unwrap() });
    let url = server.base_url();
    let whole = play(&url, |_| After::Never);
    assert_eq!(whole.begun, (1..=STEPS).collect::<Vec<_>>());
    let records = whole.run.events.len() as u32 + 2;

    let (mut cut, mut may_have_run) = (0, 0);
    for after in 1..=records {
        let seen = play(&url, |life| if life == 0 { After::Records(after) } else { After::Never });
        // A turn that takes longer than a second journals its deltas too, so on a busy machine this
        // run may have fewer records than the first one had. It then ends before its death.
        let written = seen.run.events.len() as u32 + 2;
        let expected = u32::from(after <= written);
        assert_eq!(seen.deaths, expected, "after record {after} of {written}");
        let told = check(&seen, &whole, &format!("after record {after}"));
        cut += told.0;
        may_have_run += told.1;
    }
    println!(
        "killed after each of {records} records: {records} runs resumed, each ended once; {cut} model calls were repeated, {may_have_run} steps were reported as possibly done"
    );

    let moments = std::env::var("ENDSTOP_DEATHS").ok().and_then(|n| n.parse().ok()).unwrap_or(12);
    let long = whole_time(&url);
    let (mut deaths, mut cut, mut may_have_run) = (0, 0, 0);
    let mut seed = 0x5eed_u64;
    for moment in 0..moments {
        // Each life but the last is cut at a random moment within the duration of a whole run.
        let seen = play(&url, |life| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let share = (seed >> 33) as f64 / f64::from(1u32 << 31);
            if life < 3 { After::Time(long.mul_f64(share)) } else { After::Never }
        });
        deaths += seen.deaths;
        let told = check(&seen, &whole, &format!("moment {moment}"));
        cut += told.0;
        may_have_run += told.1;
    }
    println!(
        "killed at random moments: {moments} runs, {deaths} deaths, each ended once; {cut} model calls were repeated, {may_have_run} steps were reported as possibly done"
    );
    ExitCode::SUCCESS
}

/// The moment at which a process of the run is killed.
enum After {
    Records(u32),
    Time(Duration),
    Never,
}

fn victim(dir: &Path, url: &str, after: u32, run: Option<&str>) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .arg("victim")
        .arg(dir.join("journal.db"))
        .arg(url)
        .arg(dir.join("steps"))
        .arg(after.to_string())
        .args(run)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Plays a run, resuming it in a new process after each death.
fn play(url: &str, mut lives: impl FnMut(u32) -> After) -> Seen {
    let dir = tempfile::tempdir().unwrap();
    let mut deaths = 0;
    let mut run: Option<String> = None;
    for life in 0..10 {
        let after = lives(life);
        let records = if let After::Records(records) = after { records } else { 0 };
        let mut child = victim(dir.path(), url, records, run.as_deref());
        if let After::Time(time) = after {
            std::thread::sleep(time);
            child.kill().unwrap();
        }
        let done = child.wait_with_output().unwrap();
        // The process may have been killed before the run was in the journal.
        let journal = SqliteJournal::read(dir.path().join("journal.db")).ok();
        let last = journal.as_ref().and_then(|journal| journal.find("last").ok());
        let died = !done.status.success();
        deaths += u32::from(died);
        if let Some(id) = &last {
            let journal = journal.unwrap();
            let recorded = journal.load(id).unwrap();
            if recorded.outcome.is_some() {
                let text = std::fs::read_to_string(dir.path().join("steps")).unwrap();
                let numbers = |word: &str| {
                    text.lines()
                        .filter_map(|line| line.strip_prefix(word)?.trim().parse().ok())
                        .collect()
                };
                return Seen {
                    deaths,
                    outcome: recorded.outcome.clone().unwrap(),
                    runs: journal.runs(100).unwrap().len(),
                    run: recorded,
                    begun: numbers("begin"),
                    ended: numbers("end"),
                };
            }
        }
        assert!(died, "the process ended without storing an outcome");
        run = last;
    }
    panic!("the last process did not finish the run: {}", dir.keep().display())
}

/// Checks the result. Returns the number of model calls that were cut, and of steps that were
/// reported as possibly done.
fn check(seen: &Seen, whole: &Seen, what: &str) -> (u64, u64) {
    let outcome = &seen.outcome;
    assert_eq!(outcome["termination"], "stop", "{what}: {outcome}");
    assert_eq!(seen.runs, 1, "{what}: one run, one ending");
    let results: Vec<&Value> = outcome["messages"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|message| message["parts"].as_array().unwrap())
        .filter(|part| part["type"] == "tool_result")
        .collect();
    assert_eq!(results.len() as u64, STEPS, "{what}");
    let (mut may_have_run, mut must_have_begun) = (0, Vec::new());
    for (number, result) in (1u64..).zip(&results) {
        let content = result["content"].as_str().unwrap();
        if result["status"] == "ok" {
            assert_eq!(content, format!("step {number} is done"), "{what}");
            must_have_begun.push(number);
            assert!(seen.ended.contains(&number), "{what}: step {number} is lost");
        } else {
            assert_eq!(result["status"], "aborted", "{what}: {content}");
            assert!(content.contains("may have done"), "{what}: {content}");
            may_have_run += 1;
        }
    }
    assert!(may_have_run <= u64::from(seen.deaths), "{what}");
    // No step is done twice. A step that did not begin may have been reported as possibly done.
    let mut once = seen.begun.clone();
    once.dedup();
    assert_eq!(once, seen.begun, "{what}: a step was repeated");
    assert!(seen.begun.is_sorted(), "{what}: {:?}", seen.begun);
    assert!(must_have_begun.iter().all(|step| seen.begun.contains(step)), "{what}");
    // The cost is that of the uninterrupted run plus the estimates for the cut calls.
    let cut = outcome["model_calls"].as_u64().unwrap() - (STEPS + 1);
    assert!(cut <= u64::from(seen.deaths), "{what}");
    let cost = |outcome: &Value| outcome["cost_usd"].as_f64().unwrap();
    let (least, more) = (cost(&whole.outcome), cost(outcome) - cost(&whole.outcome));
    assert!(more > -1e-9, "{what}: {more} of {least}");
    // An estimate is at most the longest prompt (one token per four bytes) plus the output.
    assert!(more <= cut as f64 * 0.01 + 1e-9, "{what}: {more} for {cut} cut calls");
    assert_eq!(outcome["usage"]["estimated"], cut > 0, "{what}");
    let replay = seen.run.replay(None).unwrap();
    let again: &Outcome = replay.outcome().unwrap();
    assert_eq!(serde_json::to_string(again).unwrap(), outcome.to_string(), "{what}: replayed");
    (cut, may_have_run)
}

fn whole_time(url: &str) -> Duration {
    let began = Instant::now();
    play(url, |_| After::Never);
    began.elapsed()
}
