//! Tests that records with heavy values are refused before they are parsed, and others are still
//! read.

use endstop_trajectory::read::{Options, Problem, ProblemKind, for_each};
use std::io::{Cursor, Write};
use std::path::Path;
use zip::write::SimpleFileOptions;

/// Returns the ids of the runs of a file, and its problems.
fn read(path: &Path) -> (Vec<String>, Vec<Problem>) {
    let (mut runs, mut problems) = (Vec::new(), Vec::new());
    for_each(path, &Options::default(), &mut |run| match run {
        Ok(run) => runs.push(run.run_id.to_string()),
        Err(problem) => problems.push(problem),
    })
    .unwrap();
    (runs, problems)
}

fn kinds(problems: &[Problem]) -> Vec<ProblemKind> {
    problems.iter().map(|problem| problem.kind).collect()
}

fn eval(header: &str, samples: &[String]) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default();
    zip.start_file("header.json", options).unwrap();
    zip.write_all(header.as_bytes()).unwrap();
    for (nth, sample) in samples.iter().enumerate() {
        zip.start_file(format!("samples/{nth}_epoch_1.json"), options).unwrap();
        zip.write_all(sample.as_bytes()).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

const HEADER: &str = r#"{"version":2,"status":"success","eval":{"task":"t"}}"#;

fn sample(member: &str) -> String {
    format!(
        r#"{{"id":"s","epoch":1,"input":"x","messages":[{{"role":"user","content":"x"}},{{"role":"assistant","content":"y"}}],"x":{member}}}"#
    )
}

#[test]
fn heavy_archive_entries_are_problems() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.eval");
    let samples = [
        sample("0"),
        sample(&format!("[{}0]", "[],".repeat(3_000_000))),
        // Heavy, but within the limit.
        sample(&format!("[{}0]", "0,".repeat(800_000))),
        sample(&format!("\"{}\"", "a".repeat(65 << 20))),
        sample("0"),
    ];
    std::fs::write(&path, eval(HEADER, &samples)).unwrap();
    let (runs, problems) = read(&path);
    assert_eq!(runs.len(), 3, "{problems:?}");
    assert_eq!(kinds(&problems), [ProblemKind::TooManyValues, ProblemKind::TooLong]);
    assert_eq!([problems[0].at, problems[1].at], [Some(2), Some(4)]);

    let header = HEADER.replace("\"t\"", &format!("[{}0]", "0,".repeat(800_000)));
    std::fs::write(&path, eval(&header, &[sample("0")])).unwrap();
    let (runs, problems) = read(&path);
    assert_eq!((runs.len(), kinds(&problems)), (1, vec![ProblemKind::TooManyValues]));
}

#[test]
fn heavy_line_leaves_others_readable() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.jsonl");
    let line = |more: &str| {
        format!(
            "{{\"messages\":[{{\"role\":\"user\",\"content\":\"x\"}},{{\"role\":\"assistant\",\"content\":\"y\"}}],\"x\":{more}}}\n"
        )
    };
    let heavy = line(&format!("[{}0]", "{},".repeat(1_000_000)));
    std::fs::write(&path, [line("1"), heavy, line("2")].concat()).unwrap();
    let (runs, problems) = read(&path);
    assert_eq!(runs.len(), 2);
    assert_eq!(kinds(&problems), [ProblemKind::TooManyValues]);
    assert_eq!(problems[0].at, Some(2));
    assert!(problems[0].to_string().contains("runs.jsonl:2: too many values"), "{}", problems[0]);
}

#[test]
fn members_next_to_list_are_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results.json");
    let heavy = format!("[{}0]", "[],".repeat(100_000));
    let members: Vec<String> = (0..4).map(|nth| format!("\"m{nth}\":{heavy}")).collect();
    let run = r#"{"id":"1","task_id":"1","messages":[{"role":"user","content":"x"}]}"#;
    let text = format!(
        "{{\"timestamp\":\"x\",\"info\":{{}},\"tasks\":[],\"simulations\":[{run}],{}}}",
        members.join(",")
    );
    std::fs::write(&path, text).unwrap();
    let (_, problems) = read(&path);
    assert!(kinds(&problems).contains(&ProblemKind::TooManyValues), "{problems:?}");
}

#[test]
fn heavy_lines_of_session_lose_only_themselves() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rollout-2026-01-01T00-00-00-s.jsonl");
    let line = |kind: &str, payload: &str| {
        format!("{{\"timestamp\":\"t\",\"type\":\"{kind}\",\"payload\":{payload}}}\n")
    };
    let message = |role: &str| {
        line(
            "response_item",
            &format!("{{\"type\":\"message\",\"role\":\"{role}\",\"content\":\"x\"}}"),
        )
    };
    let meta = line("session_meta", "{\"id\":\"s\"}");
    let bomb = |of: &str| {
        line("event_msg", &format!("{{\"type\":\"x\",\"x\":[{}0]}}", of.repeat(1_000_000)))
    };
    let hostile = "{\"a\":\"".repeat(8 << 20 >> 3);
    for (heavy, turns, problem) in [
        (format!("{hostile}\n"), 1, ProblemKind::Malformed),
        // The record behind it is not lost.
        (
            format!("{hostile}{}", message("assistant").replace("\"x\"", "\"y\"")),
            1,
            ProblemKind::Malformed,
        ),
        (format!("{}\n", "{\"a\":".repeat(8 << 20 >> 3)), 1, ProblemKind::Malformed),
        (format!("{{\"a\":[{}\n", "{\"id\":1},".repeat(1 << 20)), 1, ProblemKind::Malformed),
        (bomb("{},"), 1, ProblemKind::TooManyValues),
        (bomb("[],[],"), 1, ProblemKind::TooManyValues),
    ] {
        let file = [meta.clone(), message("user"), heavy, message("user"), message("assistant")];
        std::fs::write(&path, file.concat()).unwrap();
        let (mut found, mut problems) = (0, Vec::new());
        for_each(&path, &Options::default(), &mut |run| match run {
            Ok(run) => found += run.turns().count(),
            Err(problem) => problems.push(problem),
        })
        .unwrap();
        let behind = usize::from(file[2].contains("\"y\""));
        assert_eq!((found, kinds(&problems)), (turns + behind, vec![problem]));
        assert_eq!(problems[0].at, Some(3));
    }
}
