//! `endstop audit --json` compared with the report of an audit in parts, which the Python package
//! makes: the same JSON.

use crate::cli::Cli;
use endstop_report::audit::{Report, json};
use endstop_trajectory::audit::{Plan, merge, no_sessions, tally, tally_skipped};
use endstop_trajectory::read::{Content, Source, Walk};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Audits each file of a folder on its own, and merges the counts from the last file to the first.
fn in_parts(folder: &Path) -> Value {
    let plan = Plan::new(10);
    let mut walk = Walk::new(folder);
    let files: Vec<PathBuf> = walk.by_ref().map(|one| one.unwrap().path().to_owned()).collect();
    let mut parts = vec![no_sessions(&plan), tally_skipped(walk.into_skipped(), &plan)];
    for file in files.iter().rev() {
        parts.push(tally(Content::File(Source::found(file, folder)), None, &plan));
    }
    json(&Report::of(merge(parts).unwrap()))
}

fn compare(cli: &Cli, folder: &Path) -> Value {
    let done = cli.run(["audit", &folder.display().to_string(), "--json"]).exits(0);
    let whole: Value = serde_json::from_str(&done.stdout).unwrap();
    let parts = in_parts(folder);
    for (name, value) in whole.as_object().unwrap() {
        assert_eq!(&parts[name], value, "{name}");
    }
    assert_eq!(parts, whole);
    whole
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            copy(&from, &to);
        } else {
            std::fs::copy(from, to).unwrap();
        }
    }
}

#[test]
fn parts_give_the_same_report() {
    let cli = Cli::new();
    let folder = cli.path("runs");
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../endstop-trajectory/fixtures");
    copy(&fixtures, &folder);
    // A damaged file, a file that is not a session, and a hidden folder.
    let run = r#"{"schema":"neutral-traj/1","run_id":"a","steps":[]}"#;
    std::fs::write(folder.join("damaged.jsonl"), format!("{run}\n{run}\n{}", &run[..30])).unwrap();
    std::fs::write(folder.join("LICENSE"), "not a run").unwrap();
    std::fs::create_dir(folder.join(".git")).unwrap();
    let report = compare(&cli, &folder);
    let damaged = report["problems"]["half_record"]["first"].to_string();
    assert!(damaged.contains("damaged.jsonl:3: "), "{damaged}");
    assert_eq!(report["skipped_for"]["hidden"]["count"], 1);
    assert!(report["notes"].as_object().is_some_and(|notes| !notes.is_empty()));
    assert!(report["twice"].as_u64().is_some_and(|twice| twice > 0));
}

/// The same for recordings of your own: `ENDSTOP_RUNS` names a folder.
#[test]
fn parts_of_own_runs_agree() {
    let Some(folder) = std::env::var_os("ENDSTOP_RUNS") else {
        eprintln!("skipped: set ENDSTOP_RUNS to a folder of recorded sessions");
        return;
    };
    let report = compare(&Cli::new(), Path::new(&folder));
    println!("{} sessions, {} files", report["sessions"], report["files"]);
}
