//! The negative controls: the agent of the folder `agent` passes each check, and its mutants with the same id fail it. Agents
//! that differ and are right pass it as well.
//!
//! The test of the two lower levels is the one that runs by default. `cargo test -p endstop-conform --test mutants -- --ignored` runs all.
#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::pedantic,
    missing_docs,
    reason = "tests"
)]

use endstop_conform::profile::{self, Profile};
use endstop_conform::program::Launch;
use endstop_conform::suite::{self, CheckResult, Selection};
use endstop_conform::{CHECKS, Capability, Check, Level, Verdict};
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

/// Number of programs that run at the same time. Most wait.
const JOBS: usize = 6;

/// The case that a check of every case judges here.
const OF_EVERY_CASE: &str = "T-01";

fn file(name: &str) -> OsString {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("agent").join(name).into()
}

/// The profiles of a check, with the good program and the beginning of the names of its mutants. Checks of protocols need
/// servers.
fn programs(check: &Check) -> Vec<(&'static str, &'static str, String)> {
    let of = |profile, program, end: &str| (profile, program, format!("{}{end}", check.id));
    if check.needs.contains(&Capability::Protocol) {
        vec![of("mini-acp", "acp.py", "-acp"), of("mini-a2a", "a2a.py", "-a2a")]
    } else {
        vec![of("mini", "agent.py", "")]
    }
}

/// The names of the mutants, which the agent's folder lists.
fn mutants() -> Vec<String> {
    let listed = Command::new("python3").arg(file("mutants.py")).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    listed.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

/// The verdict that a mutant has to get.
fn expected(check: &Check, mutant: &str) -> Verdict {
    if mutant.contains('+') {
        // A SHOULD may be left out.
        Verdict::Pass
    } else if !check.must || mutant.ends_with("-warn") {
        Verdict::Warn
    } else {
        Verdict::Fail
    }
}

/// Runs a check on a program.
fn judged(profile: &Profile, check: &Check, words: &[OsString]) -> CheckResult {
    let python = std::env::var_os("PATH")
        .and_then(|path| {
            std::env::split_paths(&path)
                .map(|place| place.join("python3"))
                .find(|file| file.is_file())
        })
        .expect("python3 is in PATH");
    let command: Vec<OsString> =
        std::iter::once(python.into()).chain(words.iter().cloned()).collect();
    let launch = Launch {
        command: &command,
        profile,
        guard: None,
        patience: Duration::from_secs(180),
        pass: &[],
        in_place: false,
        seed: 7,
    };
    let mut only = vec![check.id.to_owned()];
    if check.every_case {
        only.push(OF_EVERY_CASE.to_owned());
    }
    let selection = Selection { level: None, only };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let result = runtime.block_on(suite::run(&launch, &selection, JOBS, &|_, _, _| {})).unwrap();
    result.checks.into_iter().find(|one| one.id == check.id).unwrap()
}

/// Checks the agent and the mutants of these levels, or only those of the ids in `CONFORM_ONLY`, some at a time.
fn compare(most: Level) {
    let only = std::env::var("CONFORM_ONLY").ok();
    let chosen = CHECKS.iter().filter(|check| match &only {
        Some(ids) => ids.split(',').any(|id| id == check.id),
        None => check.level <= most,
    });
    let all = mutants();
    // Each run: the check, the profile, the words of the program, and the verdict that it has to get.
    let mut runs = Vec::new();
    for check in chosen {
        for (profile, program, begin) in programs(check) {
            runs.push((check, profile, vec![file(program)], Verdict::Pass));
            for mutant in all.iter().filter(|name| name.starts_with(&begin)) {
                let words = vec![file("mutants.py"), mutant.into()];
                runs.push((check, profile, words, expected(check, mutant)));
            }
        }
    }
    let waiting = Mutex::new(runs);
    let wrong: Mutex<Vec<String>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..JOBS {
            scope.spawn(|| {
                loop {
                    let Some((check, profile, words, expected)) = waiting.lock().unwrap().pop()
                    else {
                        break;
                    };
                    let result = judged(&profile::find(profile).unwrap(), check, &words);
                    if result.verdict != expected {
                        let (id, found, why) = (check.id, result.verdict, result.why);
                        let program = words.last().unwrap().display();
                        let text = format!("{id} {program}: {found}, expected {expected}: {why}");
                        wrong.lock().unwrap().push(text);
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn mutants_of_lower_levels_are_caught() {
    compare(Level::Honest);
}

#[test]
#[ignore = "minutes: silence of 90 seconds, signals, limits of time"]
fn all_mutants_are_caught() {
    compare(Level::Accountable);
}

#[test]
fn limit_that_an_agent_documents_is_a_limit() {
    // The case is stopped after 100 calls.
    let check = CHECKS.iter().find(|check| check.id == "C-05").unwrap();
    let judged = |documented: Option<usize>| {
        let mut profile = profile::find("mini").unwrap();
        profile.args.splice(0..0, ["--max-turns", "103"].map(str::to_owned));
        profile.documented.calls = documented;
        judged(&profile, check, &[file("mutants.py"), "C-05".into()])
    };
    let (known, unknown, lower) = (judged(Some(103)), judged(None), judged(Some(101)));
    assert_eq!(known.verdict, Verdict::Pass, "{}", known.why);
    for result in [unknown, lower] {
        assert!(result.verdict == Verdict::Fail && result.why.contains("and no end"), "{result:?}");
    }
}

#[test]
fn each_check_has_its_mutant() {
    let all = mutants();
    let begins: Vec<String> = CHECKS.iter().flat_map(programs).map(|(_, _, begin)| begin).collect();
    for begin in &begins {
        assert!(all.contains(begin), "{begin}");
    }
    for name in &all {
        assert!(begins.iter().any(|begin| name.starts_with(begin)), "{name}");
    }
}
