//! The cases of `testdata/fieldcases`, by its own runner, which has the scripted server and the comparisons.

use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn field_cases_have_the_wanted_results() {
    let runner = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/fieldcases/run.py");
    let python = Command::new("python3").arg("--version").stdout(Stdio::null()).status();
    if !python.is_ok_and(|status| status.success()) {
        eprintln!("skipped: needs python3");
        return;
    }
    let done = Command::new("python3")
        .arg(runner)
        .args(["--bin", env!("CARGO_BIN_EXE_endstop")])
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&done.stdout);
    let wrong: Vec<&str> = told.lines().filter(|line| !line.contains(" right ")).collect();
    assert!(
        done.status.success(),
        "{}\n{}",
        wrong.join("\n"),
        String::from_utf8_lossy(&done.stderr)
    );
}
