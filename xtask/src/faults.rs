//! Injects faults into the kernel: each breaks a promise of Endstop alone, in a copy of the source, and a
//! test must catch it.
//!
//! `cargo xtask faults` changes a copy under `target/faults`, never the source itself.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A fault: its name, the file of the kernel, the code that it replaces there, and the replacement.
type Fault = (&'static str, &'static str, &'static str, &'static str);

/// The faults. Those that a program can derive from the code, such as other operators and functions without
/// a body, are left to cargo-mutants.
// The code must occur exactly once in its file, which `every_fault_has_its_place` checks.
const FAULTS: [Fault; 10] = [
    (
        "turn-cap-one-late",
        "ceilings/precheck.rs",
        "u64::from(count) >= max",
        "u64::from(count) > max",
    ),
    (
        "truncated-is-success",
        "answer/response.rs",
        "        SignalReason::TokenLimitReached => {\n            truncated(*cut_by, &finish_value(), calls, context, effects)\n        }\n",
        "",
    ),
    (
        "unknown-finish-is-success",
        "answer/response.rs",
        "if !context.settings.limits.accept_unknown_finish",
        "if context.settings.limits.accept_unknown_finish",
    ),
    (
        "rejected-answer-is-success",
        "answer/success.rs",
        "rounds.filter(|_| !passed)",
        "rounds.filter(|_| !passed && output.is_empty())",
    ),
    (
        "failed-attempts-are-free",
        "ceilings/booking.rs",
        "    settle(call, &usage, cost, more, context, effects);\n",
        "    let _ = (&usage, cost, more, effects);\n",
    ),
    (
        "reservation-is-kept",
        "ceilings/booking.rs",
        "        effects.push(Effect::Settle { id, spent, tokens });\n",
        "        let _ = (id, spent, tokens);\n",
    ),
    (
        "cancel-forgets-tools",
        "stopping/mod.rs",
        "    effects.push(Effect::AbortTools { ids, grace });\n",
        "    let _ = Effect::AbortTools { ids, grace };\n",
    ),
    (
        "late-answers-are-taken",
        "phase.rs",
        "Phase::Calling(call) if call.id == id => Some(call)",
        "Phase::Calling(call) => Some(call)",
    ),
    (
        "approved-call-runs-again",
        "tools/open_calls.rs",
        "self.calls.get(running.at).filter(|open| !open.parked)?",
        "self.calls.get(running.at)?",
    ),
    (
        "open-calls-stay-unanswered",
        "stopping/mod.rs",
        "    record_results(open, context);\n",
        "    let _ = &open;\n",
    ),
];

pub(crate) fn run() -> Result<(), String> {
    let root = root()?;
    let copy = root.join("target/faults/workspace");
    refresh(&root, &copy)?;
    // Without this check, one failing test would count as catching every fault.
    if let Some(test) = failing_test(&copy)? {
        return Err(format!("the tests fail without any fault: {test}"));
    }
    let mut missed = Vec::new();
    for (name, file, from, to) in FAULTS {
        let path = copy.join("crates/endstop-core/src/kernel").join(file);
        let source = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        write(&path, &source.replacen(from, to, 1))?;
        if let Some(test) = failing_test(&copy)? {
            println!("caught  {name:<40} by {test}");
        } else {
            println!("MISSED  {name}");
            missed.push(name);
        }
        // Restored, so that every fault is alone.
        write(&path, &source)?;
    }
    if missed.is_empty() { Ok(()) } else { Err(format!("no test catches {}", missed.join(", "))) }
}

/// Returns the first test that fails in the copy; `None` if all pass.
fn failing_test(copy: &Path) -> Result<Option<String>, String> {
    let output = Command::new("cargo")
        .args(["test", "--quiet", "-p", "endstop-core", "--lib", "--test", "it", "kernel"])
        // A separate target folder keeps the incremental build of the copy, so that a fault costs
        // one crate and not the whole workspace. More random cases than usual find rare faults.
        .env("CARGO_TARGET_DIR", copy.with_file_name("target"))
        .env("ENDSTOP_CASES", "4000")
        .current_dir(copy)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("cargo: {e}"))?;
    if output.status.success() {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let failed =
        text.lines().find_map(|line| line.strip_prefix("---- ")?.strip_suffix(" stdout ----"));
    match failed {
        Some(test) => Ok(Some(test.to_owned())),
        // A fault that does not compile proves nothing, and neither does a process that was killed.
        None => {
            Err(format!("no test failed in:\n{text}{}", String::from_utf8_lossy(&output.stderr)))
        }
    }
}

/// Copies everything that the tests of the core need.
fn refresh(root: &Path, copy: &Path) -> Result<(), String> {
    // Removed first, because files that were deleted from the source would still be compiled.
    let _ = fs::remove_dir_all(copy);
    fs::create_dir_all(copy.join("crates")).map_err(|e| format!("{}: {e}", copy.display()))?;
    for part in ["crates/endstop-core", "docs", "testdata", "Cargo.lock"] {
        let copied =
            Command::new("cp").arg("-R").arg(root.join(part)).arg(copy.join(part)).status();
        if !copied.is_ok_and(|status| status.success()) {
            return Err(format!("cp -R: {part} could not be copied"));
        }
    }
    let manifest = root.join("Cargo.toml");
    let text = fs::read_to_string(&manifest).map_err(|e| format!("{}: {e}", manifest.display()))?;
    // The other members are not copied, and cargo would refuse to build without them.
    write(&copy.join("Cargo.toml"), &text.replace(r#", "examples/*", "xtask"]"#, "]"))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
}

/// Returns the root of the workspace: the parent of this package's folder.
pub(crate) fn root() -> Result<PathBuf, String> {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .map(Path::to_owned)
        .ok_or_else(|| "xtask has no parent folder".to_owned())
}

#[cfg(test)]
mod tests {
    use super::{FAULTS, root};

    /// Checks that every fault still applies, because the faults themselves are run rarely.
    #[test]
    fn every_fault_has_its_place() {
        let kernel = root().unwrap().join("crates/endstop-core/src/kernel");
        for (name, file, from, _) in FAULTS {
            let source = std::fs::read_to_string(kernel.join(file)).unwrap();
            assert_eq!(
                source.matches(from).count(),
                1,
                "fault `{name}` in {file}: update its text"
            );
        }
    }
}
