//! Reads fixtures that are truncated or changed at arbitrary positions: no panic, and losses are
//! reported.

use crate::common::{Read, fixtures, read_bytes};
use endstop_trajectory::read::{Options, ProblemKind};
use std::fs;

/// A deterministic pseudo-random sequence.
struct Numbers(u64);

impl Numbers {
    /// A sequence for each file, so that a new fixture does not change the cuts of the others.
    fn of(name: &str, seed: u64) -> Numbers {
        let byte = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Numbers(name.bytes().fold(0xcbf2_9ce4_8422_2325 ^ seed, byte))
    }

    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % end
    }
}

fn said(path: &std::path::Path, whole: &Read, cut: &Read, how: &str) {
    let lost = cut.0.len() < whole.0.len();
    assert!(!lost || !cut.1.is_empty(), "{}: {how}: lost in silence", path.display());
    for problem in &cut.1 {
        assert!(!problem.what.is_empty() && !problem.file.is_empty());
    }
}

/// Returns `true` if a ReAct log ends with a judged or a correct answer, or after a heading. Some logs
/// have no line with the correct answer.
fn ends_between_runs(log: &[u8]) -> bool {
    let last = log.trim_ascii_end().rsplit(|byte| *byte == b'\n').next().unwrap();
    last.starts_with(b"Correct answer:")
        || last.starts_with(b"Observation") && last.ends_with(b"CORRECT")
        || last.starts_with(b"---") && log.ends_with(b"\n")
}

#[test]
fn react_log_cut_between_runs_reports_losses() {
    let path = fixtures().into_iter().find(|path| path.ends_with("reflexion_hotpot_base.txt"));
    let path = path.unwrap();
    let bytes = fs::read(&path).unwrap();
    let name = path.file_name().unwrap().to_str().unwrap();
    let whole = read_bytes(name, bytes.clone(), &Options::default());
    let text = std::str::from_utf8(&bytes).unwrap();
    // The bytes around each boundary of two runs; within a run every cut is one of the same kind.
    let ends = text.match_indices("Correct answer:").flat_map(|(at, _)| at - 40..at + 120);
    let ends = ends.filter(|end| *end < bytes.len() && !ends_between_runs(&bytes[..*end]));
    for end in ends {
        let cut = read_bytes(name, &bytes[..end], &Options::default());
        said(&path, &whole, &cut, &format!("cut at {end}"));
    }
}

#[test]
fn truncated_files_report_losses() {
    for path in fixtures() {
        let name = path.file_name().unwrap().to_str().unwrap();
        let mut numbers = Numbers::of(name, 7);
        let bytes = fs::read(&path).unwrap();
        let whole = read_bytes(name, bytes.clone(), &Options::default());
        let mut halves = 0;
        for _ in 0..20 {
            let end = numbers.below(bytes.len());
            let cut = read_bytes(name, &bytes[..end], &Options::default());
            // A file of lines that ends after a complete line is indistinguishable from a complete
            // file.
            let between = bytes[..end].ends_with(b"\n") || bytes[end] == b'\n';
            // The same is true for a plain-text log that ends with an answer, or with the whole line
            // of a heading, because a section may be empty.
            let answered = name.ends_with(".txt") && ends_between_runs(&bytes[..end]);
            if !(between && name.ends_with(".jsonl") || answered) {
                said(&path, &whole, &cut, &format!("cut at {end}"));
            }
            halves += cut.1.iter().filter(|problem| problem.kind == ProblemKind::Half).count();
            // The complete records of a file of records are unchanged. A file that is one run has
            // fewer steps.
            let of_records = ["neutral-traj/1", "atif", "tau-bench", "tau2-bench"];
            for (run, same) in cut.0.iter().zip(&whole.0) {
                let is_record = run.origin.at.is_some() && of_records.contains(&run.origin.format);
                assert!(run == same || !is_record, "{name} cut at {end}: {}", run.run_id);
            }
        }
        // The directory of an archive is at its end, so a truncated archive cannot be opened.
        let may_be_half = !whole.0.is_empty() && !bytes.starts_with(b"PK");
        assert!(halves > 0 || !may_be_half, "{name}: no cut was called half a record");
    }
}

#[test]
fn changed_bytes_do_not_panic() {
    for path in fixtures() {
        let name = path.file_name().unwrap().to_str().unwrap();
        let mut numbers = Numbers::of(name, 11);
        let bytes = fs::read(&path).unwrap();
        let whole = read_bytes(name, bytes.clone(), &Options::default());
        for round in 0..20 {
            let mut changed = bytes.clone();
            let marks = b"\"{}[]:,\\\n0-e.tn\x00\xff\x80u";
            for _ in 0..=round % 4 {
                let at = numbers.below(changed.len());
                changed[at] = marks[numbers.below(marks.len())];
            }
            let read = read_bytes(name, changed, &Options::default());
            said(&path, &whole, &read, &format!("round {round}"));
        }
    }
}
