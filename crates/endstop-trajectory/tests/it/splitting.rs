//! Splits generated files at every size of line, element and read, and tests that no record is lost,
//! renumbered or reported twice.

use crate::common::{Read, fixtures, read_bytes};
use endstop_trajectory::read::{Chunks, Opened, Options, Problem, ProblemKind, Source};
use endstop_trajectory::{Role, Trajectory};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::fs;
use std::io;

/// A reader that returns at most a few bytes at a time, in a repeating pattern.
struct Trickle {
    bytes: io::Cursor<Vec<u8>>,
    sizes: Vec<usize>,
    nth: usize,
}

impl io::Read for Trickle {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let size = self.sizes[self.nth % self.sizes.len()].clamp(1, buffer.len().max(1));
        self.nth += 1;
        let end = size.min(buffer.len());
        io::Read::read(&mut self.bytes, &mut buffer[..end])
    }
}

fn read_trickled(name: &str, bytes: Vec<u8>, sizes: Vec<usize>) -> Read {
    let mut read = (Vec::new(), Vec::new());
    let input = Box::new(Trickle { bytes: io::Cursor::new(bytes), sizes, nth: 0 });
    match Chunks::of(input, Source::file(name), name.to_owned(), &Options::default()) {
        Err(problem) => read.1.push(problem),
        Ok(Opened::Skipped(why)) => panic!("{name}: {why}"),
        Ok(Opened::Runs(chunks)) => {
            for chunk in *chunks {
                match chunk {
                    Err(problem) => read.1.push(problem),
                    // Collected first and never given back, unlike in the other helper.
                    Ok(chunk) => chunk.each(&mut |run| match run {
                        Ok(run) => read.0.push(run.into_owned()),
                        Err(problem) => read.1.push(problem),
                    }),
                }
            }
        }
    }
    read
}

#[test]
fn size_of_reads_does_not_matter() {
    for path in fixtures() {
        if path.metadata().unwrap().len() > 200_000 {
            continue;
        }
        let name = path.file_name().unwrap().to_str().unwrap();
        let bytes = fs::read(&path).unwrap();
        let whole = read_bytes(name, bytes.clone(), &Options::default());
        for sizes in [vec![1], vec![3, 1, 4096], vec![65_537]] {
            let trickled = read_trickled(name, bytes.clone(), sizes);
            assert_eq!(trickled, whole, "{name}");
        }
    }
}

fn line(id: usize, length: usize) -> String {
    let empty = json!({"schema": "neutral-traj/1", "run_id": format!("r{id}"), "pad": "",
                       "steps": []})
    .to_string();
    let pad = "x".repeat(length.saturating_sub(empty.len()));
    empty.replace("\"pad\":\"\"", &format!("\"pad\":\"{pad}\""))
}

fn found((runs, problems): &Read) -> (Vec<(u64, String)>, Vec<(Option<u64>, ProblemKind)>) {
    let runs = runs.iter().map(|run| (run.origin.at.unwrap(), run.run_id.to_string()));
    let mut problems: Vec<_> = problems.iter().map(|one| (one.at, one.kind)).collect();
    problems.sort_unstable();
    (runs.collect(), problems)
}

/// Lengths around those at which lines are skipped and blocks end.
fn length() -> impl Strategy<Value = usize> {
    prop_oneof![
        4 => 80_usize..400,
        2 => 900_usize..1_100,
        2 => (1_usize << 20) - 600..(1 << 20) + 600,
        1 => 1_500_000_usize..2_300_000,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, max_shrink_iters: 40, ..ProptestConfig::default() })]

    #[test]
    fn lines_around_long_ones_are_read(
        lengths in vec(length(), 1..6),
        max in proptest::sample::select(vec![1_000_u64, 1 << 20, 1_600_000]),
        blank in any::<bool>(),
        end in any::<bool>(),
    ) {
        // The format is detected by the first line.
        let mut text = line(0, 0) + "\n";
        let (mut runs, mut problems, mut at) = (vec![(1, "r0".to_owned())], Vec::new(), 1_u64);
        for (id, length) in lengths.iter().enumerate() {
            if blank {
                text.push_str("\r\n");
                at += 1;
            }
            at += 1;
            let line = line(id + 1, *length);
            if line.len() as u64 > max {
                problems.push((Some(at), ProblemKind::TooLong));
            } else {
                runs.push((at, format!("r{}", id + 1)));
            }
            text.push_str(&line);
            text.push('\n');
        }
        if !end {
            text.pop();
        }
        let mut options = Options::default();
        options.max_record = max;
        let read = read_bytes("a.jsonl", text, &options);
        prop_assert_eq!(found(&read), (runs, problems));
    }

    #[test]
    fn elements_around_long_ones_are_read(
        lengths in vec(length(), 1..6),
        max in proptest::sample::select(vec![1_000_u64, 1 << 20, 1_600_000]),
        spaces in any::<bool>(),
    ) {
        let element = |id: usize, length: usize| {
            let pad = "[{\\\"".repeat(length / 5);
            format!("{{\"id\":\"s{id}\",\"task_id\":\"{id}\",\"termination_reason\":\"user_stop\",\
                     \"messages\":[],\"pad\":\"{pad}\"}}")
        };
        let mut all = vec![element(0, 0)];
        all.extend(lengths.iter().enumerate().map(|(id, length)| element(id + 1, *length)));
        let (mut runs, mut problems) = (Vec::new(), Vec::new());
        for (id, element) in all.iter().enumerate() {
            let at = id as u64 + 1;
            if element.len() as u64 > max {
                problems.push((Some(at), ProblemKind::TooLong));
            } else {
                runs.push((at, format!("s{id}")));
            }
        }
        let between = if spaces { " ,\n  " } else { "," };
        let text = format!("{{\"info\":{{\"max_steps\":9}},\"simulations\":[{}],\"tail\":1}}",
                           all.join(between));
        let mut options = Options::default();
        options.max_record = max;
        let read = read_bytes("a.json", text, &options);
        prop_assert_eq!(found(&read), (runs, problems));
        prop_assert!(read.0.iter().all(|run| run.limits["max_steps"] == 9));
    }
}

/// A good line between two lines that are skipped as they are read.
#[test]
fn line_between_skipped_lines_is_read() {
    let text = [line(1, 0), line(2, 1_500_000), line(3, 0), line(4, 3_000_000), line(5, 0)];
    let mut options = Options::default();
    options.max_record = 1_000;
    let read = read_bytes("a.jsonl", text.join("\n"), &options);
    let (runs, problems) = found(&read);
    let ids: Vec<(u64, &str)> = runs.iter().map(|(at, id)| (*at, &**id)).collect();
    assert_eq!(ids, [(1, "r1"), (3, "r3"), (5, "r5")]);
    assert_eq!(problems, [(Some(2), ProblemKind::TooLong), (Some(4), ProblemKind::TooLong)]);
}

/// The place of an invalid byte is that in the file, whatever precedes it.
#[test]
fn invalid_byte_is_located_in_file() {
    let good = line(1, 0);
    for before in [String::new(), "\u{feff}".to_owned(), "\n\r\n".to_owned()] {
        let mut bytes = format!("{before}{good}\n").into_bytes();
        let second = line(2, 200);
        let at = bytes.len() + second.rfind('x').unwrap();
        bytes.extend(second.bytes());
        bytes[at] = 0xe9;
        let (runs, problems) = read_bytes("a.jsonl", bytes, &Options::default());
        assert_eq!((runs.len(), problems.len()), (2, 1), "{before:?}");
        let what = format!("not UTF-8 at byte {at} of the file; invalid bytes are replaced");
        assert_eq!(problems[0].what, what, "{before:?}");
    }
}

/// Each text that may be an answer of a run: what the model said, asked for, or submitted.
fn texts_of(runs: &[Trajectory<'_>]) -> Vec<String> {
    let mut texts = Vec::new();
    for run in runs {
        texts.extend(run.ending.iter().filter_map(|one| one.answer.as_deref()).map(str::to_owned));
        texts.extend(run.turns().map(|step| step.text.to_string()));
        texts.extend(texts_of(&run.children));
    }
    texts
}

fn answers<'r>(runs: &'r [Trajectory<'_>]) -> Vec<&'r str> {
    let own = runs.iter().filter_map(|run| run.ending.as_ref()?.answer.as_deref());
    own.chain(runs.iter().flat_map(|run| answers(&run.children))).collect()
}

/// A recording that was cut must not have an answer that the whole recording does not have.
#[test]
fn cut_file_has_no_invented_answer() {
    let (mut cuts, mut answered) = (0, 0);
    for path in fixtures() {
        let bytes = fs::read(&path).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        if bytes.len() > 60_000 || name.ends_with(".zst") {
            continue;
        }
        let whole = read_bytes(name, bytes.clone(), &Options::default());
        let known = texts_of(&whole.0);
        let turns: usize = whole.0.iter().map(|run| run.turns().count()).sum();
        for end in (1..bytes.len()).step_by(1 + bytes.len() / 60) {
            let cut = read_bytes(name, &bytes[..end], &Options::default());
            cuts += 1;
            for answer in answers(&cut.0) {
                answered += 1;
                assert!(
                    known.iter().any(|text| text == answer),
                    "{name} cut at {end}: {answer:?} is invented"
                );
            }
            let now: usize = cut.0.iter().map(|run| run.turns().count()).sum();
            assert!(now <= turns, "{name} cut at {end}: more turns than the whole file");
        }
    }
    assert!(cuts > 1_000 && answered > 50, "{cuts} cuts, {answered} answers");
}

/// A file of lines that is cut after a line is a session that is still being written: its steps are
/// the first steps of the whole session.
#[test]
fn longer_recordings_only_add_turns() {
    for name in [
        "claude_code/atifmake_claude-code-transcript.jsonl",
        "codex/ccsc_codex_rollout.jsonl",
        "codex/atifmake_codex-exec.jsonl",
        "copilot/atifmake_copilot-cli.jsonl",
        "cursor/atifmake_cursor_transcript.jsonl",
    ] {
        let text = fs::read_to_string(crate::common::fixture(name)).unwrap();
        let mut before = 0;
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        for end in 1..=lines.len() {
            let (runs, _) = read_bytes(name, lines[..end].concat(), &Options::default());
            let turns = runs.first().map_or(0, |run| run.turns().count());
            assert!(turns >= before, "{name}: {turns} turns after {end} lines, {before} before");
            before = turns;
        }
        assert!(before > 0, "{name}");
    }
}

/// Lines with garbage after or before the value are reported, each with its number.
#[test]
fn garbage_around_lines_is_reported() {
    let good = line(1, 0);
    for (second, kind) in [
        (format!("{good} trailing"), Some(ProblemKind::Malformed)),
        (format!("{good}{good}"), Some(ProblemKind::Malformed)),
        (format!("{good},"), Some(ProblemKind::Malformed)),
        (format!("\u{feff}{good}"), Some(ProblemKind::Malformed)),
        (format!("\0{good}"), Some(ProblemKind::Malformed)),
        (good[..good.len() - 1].to_owned(), Some(ProblemKind::Half)),
        (good[..good.len() / 2].to_owned(), Some(ProblemKind::Half)),
        ("[]".to_owned(), Some(ProblemKind::Malformed)),
        ("null".to_owned(), Some(ProblemKind::Malformed)),
        ("nul".to_owned(), Some(ProblemKind::Half)),
        ("7".to_owned(), Some(ProblemKind::Malformed)),
        (" \t\r".to_owned(), None),
        (format!("\t {good}\r"), None),
    ] {
        let text = format!("{}\n{second}\n{}\n", line(0, 0), line(2, 0));
        let (runs, problems) = read_bytes("a.jsonl", text, &Options::default());
        let ids: Vec<&str> = runs.iter().map(|run| &*run.run_id).collect();
        assert_eq!((ids[0], *ids.last().unwrap()), ("r0", "r2"), "{second:?}");
        let found: Vec<_> = problems.iter().map(|one: &Problem| (one.at, one.kind)).collect();
        let want: Vec<_> = kind.map(|kind| (Some(2), kind)).into_iter().collect();
        assert_eq!(found, want, "{second:?}");
        assert!(problems.iter().all(|one| !one.what.contains("neutral")), "{problems:?}");
    }
}

/// Duplicate JSON members of a run: the last one wins, and steps are noted.
#[test]
fn steps_out_of_order_are_noted() {
    for (indices, notes) in
        [(&[0, 1, 2][..], 0), (&[1, 2, 3], 3), (&[0, 2, 1], 2), (&[0, 0, 0], 2), (&[-1, 1, 2], 1)]
    {
        let steps: Vec<Value> =
            indices.iter().map(|at| json!({"index": at, "role": "agent", "text": "a"})).collect();
        let text = json!({"schema": "neutral-traj/1", "run_id": "r", "steps": steps}).to_string();
        let (runs, problems) = read_bytes("a.jsonl", text, &Options::default());
        assert!(problems.is_empty() && runs[0].steps.len() == 3, "{indices:?}: {problems:?}");
        assert_eq!(runs[0].notes.len(), notes, "{indices:?}: {:?}", runs[0].notes);
        assert!(runs[0].steps.iter().all(|step| step.role == Role::Agent));
    }
}
