//! Reads fixtures that are truncated or changed at arbitrary positions: no panic, and losses are
//! reported.

use crate::common::{Read, fixtures, read_bytes};
use endstop_trajectory::read::{Options, ProblemKind};
use std::fs;

/// A deterministic pseudo-random sequence.
struct Numbers(u64);

impl Numbers {
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

#[test]
fn truncated_files_report_losses() {
    let mut numbers = Numbers(7);
    for path in fixtures() {
        let name = path.file_name().unwrap().to_str().unwrap();
        let bytes = fs::read(&path).unwrap();
        let whole = read_bytes(name, bytes.clone(), &Options::default());
        let mut halves = 0;
        for _ in 0..60 {
            let end = numbers.below(bytes.len());
            let cut = read_bytes(name, &bytes[..end], &Options::default());
            // A file of lines that ends after a complete line is indistinguishable from a complete
            // file.
            let between = bytes[..end].ends_with(b"\n") || bytes[end] == b'\n';
            // The same is true for a plain-text log that ends with an answer.
            let last = bytes[..end].trim_ascii_end().rsplit(|byte| *byte == b'\n').next().unwrap();
            let answered = last.starts_with(b"Correct answer:") && name.ends_with(".txt");
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
    let mut numbers = Numbers(11);
    for path in fixtures() {
        let name = path.file_name().unwrap().to_str().unwrap();
        let bytes = fs::read(&path).unwrap();
        let whole = read_bytes(name, bytes.clone(), &Options::default());
        for round in 0..60 {
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
