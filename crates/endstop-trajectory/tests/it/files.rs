//! Tests reading of files and folders, and of invalid input, independently of the format.

use crate::common::{Folder, fixture, parsed, read_bytes, read_with};
use endstop_trajectory::read::{
    Chunks, Opened, Options, Outcomes, ProblemKind, ReadStats, Source, for_each, formats,
};
use std::fs;
use std::io::{self, Read, Write};

fn line(id: &str, text: &str) -> String {
    format!(
        "{{\"schema\":\"neutral-traj/1\",\"run_id\":\"{id}\",\
         \"steps\":[{{\"index\":0,\"role\":\"agent\",\"text\":\"{text}\"}}]}}"
    )
}

fn gz(bytes: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

#[test]
fn packed_files_equal_plain_ones() {
    let text = fs::read(fixture("neutral/mixed.jsonl")).unwrap();
    let plain = parsed("mixed.jsonl", text.clone());
    assert_eq!(parsed("mixed.jsonl", gz(&text)), plain);
    let frames =
        [zstd::encode_all(&text[..], 1).unwrap(), zstd::encode_all(&b"\n"[..], 1).unwrap()];
    assert_eq!(parsed("mixed.jsonl", frames.concat()), plain);
    // A member may also end in the middle of a line.
    let (a, b) = text.split_at(text.len() / 2);
    assert_eq!(parsed("mixed.jsonl", [gz(a), gz(b)].concat()), plain);
}

#[test]
fn truncated_packed_file_gives_complete_lines() {
    let text: String = (0..40_000).map(|i| line(&format!("run-{i}"), "x") + "\n").collect();
    for mut packed in [gz(text.as_bytes()), zstd::encode_all(text.as_bytes(), 3).unwrap()] {
        packed.truncate(packed.len() * 2 / 3);
        let (runs, problems) = read_bytes("a.jsonl", packed, &Options::default());
        assert!(runs.len() > 10_000, "{}", runs.len());
        assert!((1..=2).contains(&problems.len()), "{problems:?}");
        assert!(problems.iter().all(|problem| problem.kind == ProblemKind::Half));
        assert!(problems.last().unwrap().what.contains("the packed file is truncated"));
    }
}

#[test]
fn line_ends_and_blanks_are_ignored() {
    let text = format!("\u{feff}\r\n{}\r\n   \n\n{}", line("a", "é"), line("b", "x"));
    let runs = parsed("x.jsonl", text);
    let found: Vec<_> = runs.iter().map(|run| (&*run.run_id, run.origin.at)).collect();
    assert_eq!(found, [("a", Some(2)), ("b", Some(5))]);
}

#[test]
fn invalid_utf8_is_reported_with_offset() {
    let mut text = (line("a", "x") + "\n").into_bytes();
    let from = text.len();
    text.extend(line("b", "??").into_bytes());
    let bad = text.iter().rposition(|byte| *byte == b'?').unwrap();
    text[bad] = 0xff;
    text.extend(format!("\n{}\n", line("c", "x")).into_bytes());
    assert!(bad > from);
    let (runs, problems) = read_bytes("x.jsonl", text, &Options::default());
    assert_eq!(runs.len(), 3);
    let replaced =
        format!("x.jsonl:2: not UTF-8 at byte {bad} of the file; invalid bytes are replaced");
    assert_eq!(problems[0].to_string(), replaced);
}

/// Half a character costs that character: in lines, in lists, and in documents.
#[test]
fn half_character_costs_one_character() {
    const GEMINI: &str = r#"{"sessionId":"s","projectHash":"p","startTime":"2026-01-01T00:00:00Z""#;
    const ROLLOUT: &str = r#"{"session":{"id":"s","timestamp":"t"},"items":[{"type":"message","role":"user","content":"x"},"#;
    const CLAUDE: &str = r#"{"type":"user","uuid":"u","parentUuid":null,"sessionId":"s","message":{"role":"user","content":"x"}}"#;
    let message = r#"{"role":"assistant","content":"@"}"#;
    let gemini = r#"{"id":"1","timestamp":"t","type":"gemini","content":"@","tokens":{"input":1,"output":1}}"#;
    let claude = r#"{"type":"assistant","uuid":"a","parentUuid":"u","sessionId":"s","message":{"role":"assistant","content":[{"type":"text","text":"@"}]}}"#;
    let item = r#"{"type":"message","role":"assistant","content":"@"}"#;
    let files = [
        ("chat.json", format!(r#"{GEMINI},"messages":[{gemini}]}}"#)),
        ("chat.jsonl", format!("{GEMINI},\"kind\":\"main\"}}\n{gemini}\n")),
        ("rollout-1.json", format!("{ROLLOUT}{item}]}}")),
        ("claude.jsonl", format!("{CLAUDE}\n{claude}\n")),
        ("claude.json", format!("[{CLAUDE},{claude}]")),
        ("list.json", format!("[{message}]")),
        ("object.json", format!(r#"{{"messages":[{message}]}}"#)),
        ("lists.json", format!("[[{message}]]")),
        ("lists.jsonl", format!("{{\"messages\":[{message}]}}\n{{\"messages\":[{message}]}}\n")),
        ("message-a-line.jsonl", format!("{message}\n{message}\n")),
        ("neutral.jsonl", format!("{}\n", line("a", "@"))),
    ];
    for (name, file) in &files {
        for (half, reported) in [
            (&br"\ud83d"[..], 0),
            (br"\ude00", 0),
            (br"\uD83D\uD83D", 0),
            (b"\xe9", 1),
            (b"\xf0\x9f", 1),
        ] {
            let mut parts = file.split('@').map(str::as_bytes);
            let first = parts.next().unwrap().to_vec();
            let bytes = parts.fold(first, |all, part| [&all, half, part].concat());
            let (runs, problems) = read_bytes(name, bytes, &Options::default());
            let turns: Vec<_> = runs.iter().flat_map(|run| run.turns()).collect();
            assert!(!turns.is_empty(), "{name}: {}: {problems:?}", half.escape_ascii());
            for turn in turns {
                assert!(turn.text.starts_with('\u{fffd}'), "{name}: {}", turn.text);
            }
            assert_eq!(problems.is_empty(), reported == 0, "{name}: {problems:?}");
            assert!(problems.iter().all(|one| one.what.contains("invalid bytes are replaced")));
        }
    }
}

/// A reader of generated text of any length.
struct Endless {
    start: Vec<u8>,
    middle: u64,
    end: Vec<u8>,
    most: usize,
}

impl Read for Endless {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.most = self.most.max(buffer.len());
        let from = if !self.start.is_empty() {
            &mut self.start
        } else if self.middle > 0 {
            let n = (buffer.len() as u64).min(self.middle) as usize;
            buffer[..n].fill(b'x');
            self.middle -= n as u64;
            return Ok(n);
        } else {
            &mut self.end
        };
        let n = from.len().min(buffer.len());
        buffer[..n].copy_from_slice(&from[..n]);
        from.drain(..n);
        Ok(n)
    }
}

fn opened(input: Endless, options: &Options) -> Chunks {
    let source = Source::file("big.jsonl");
    match Chunks::of(Box::new(input), source, "big.jsonl".to_owned(), options) {
        Ok(Opened::Runs(chunks)) => *chunks,
        other => panic!("{other:?}"),
    }
}

#[test]
fn huge_line_is_skipped_without_buffering() {
    let whole = line("first", "y") + "\n";
    let long = line("long", "");
    let at = long.find("\"text\":\"").unwrap() + 8;
    let input = Endless {
        start: format!("{whole}{}", &long[..at]).into_bytes(),
        middle: 2 << 30,
        end: format!("{}\n{}\n", &long[at..], line("last", "z")).into_bytes(),
        most: 0,
    };
    let mut options = Options::default();
    options.max_record = 4 << 20;
    let (mut ids, mut problems, mut largest) = (Vec::new(), Vec::new(), 0);
    let mut chunks = opened(input, &options);
    while let Some(chunk) = chunks.next() {
        match chunk {
            Err(problem) => problems.push(problem),
            Ok(chunk) => {
                largest = largest.max(chunk.len());
                chunk.each(&mut |run| ids.push(run.unwrap().run_id.into_owned()));
                chunks.reuse(chunk);
            }
        }
    }
    assert_eq!(ids, ["first", "last"]);
    assert_eq!(problems.len(), 1);
    assert_eq!((problems[0].kind, problems[0].at), (ProblemKind::TooLong, Some(2)));
    let length = (2u64 << 30) + long.len() as u64;
    assert!(problems[0].what.contains(&format!("{length} bytes")), "{}", problems[0]);
    assert!(largest < 8 << 20, "{largest}");
}

#[test]
fn huge_element_is_skipped_without_buffering() {
    let element = |id: &str, text: &str| {
        format!(
            "{{\"task_id\": \"{id}\", \"reward\": 1, \"info\": {{}}, \"traj\": \
             [{{\"role\": \"user\", \"content\": \"{text}\"}}], \"trial\": 0}}"
        )
    };
    let long = element("2", "");
    let at = long.find("\"content\": \"").unwrap() + 12;
    let input = Endless {
        start: format!("[{},\n{}", element("1", "a"), &long[..at]).into_bytes(),
        middle: 100 << 20,
        end: format!("{},{}]", &long[at..], element("3", "]\\\"}")).into_bytes(),
        most: 0,
    };
    let mut options = Options::default();
    options.max_record = 4 << 20;
    let (mut ids, mut problems) = (Vec::new(), Vec::new());
    for chunk in opened(input, &options) {
        match chunk {
            Err(problem) => problems.push(problem),
            Ok(chunk) => {
                assert!(chunk.len() < 8 << 20, "{}", chunk.len());
                chunk.each(&mut |run| {
                    let run = run.unwrap();
                    ids.push((run.run_id.into_owned(), run.origin.at));
                });
            }
        }
    }
    assert_eq!(ids, [("big/1/0".to_owned(), Some(1)), ("big/3/0".to_owned(), Some(3))]);
    assert_eq!(problems.len(), 1);
    assert_eq!((problems[0].kind, problems[0].at), (ProblemKind::TooLong, Some(2)));
}

#[test]
fn long_list_is_chunked_in_order() {
    let element = |i: usize| {
        let text = "t,]}\\\"".repeat(i % 50);
        format!(
            "{{\"task_id\": {i}, \"reward\": 0, \"info\": {{}}, \"traj\": \
             [{{\"role\": \"assistant\", \"content\": \"{text}\"}}]}}"
        )
    };
    let list: Vec<String> = (0..20_000).map(element).collect();
    let text = format!("[{}\n]\n", list.join(" ,\n"));
    assert!(text.len() > 3 << 20);
    let runs = parsed("x.json", text.clone());
    assert_eq!(runs.len(), 20_000);
    for (run, i) in runs.iter().zip(0u64..) {
        assert_eq!((&*run.run_id, run.origin.at), (&*format!("x/{i}/0"), Some(i + 1)));
        assert_eq!(run.steps[0].text.len(), (i as usize % 50) * 5);
    }
    let (some, problems) = read_bytes(
        "x.json",
        text.replace("} ,\n{\"task_id\": 9,", "} {\"task_id\": 9,"),
        &Options::default(),
    );
    assert_eq!((some.len(), problems.len()), (9, 1), "the text after a syntax error is skipped");
    assert!(problems[0].what.contains("found `{`, expected `,` or `]`"), "{}", problems[0]);
    let (all, problems) = read_bytes("x.json", text + "[]", &Options::default());
    assert_eq!((all.len(), problems.len()), (20_000, 1));
    assert!(problems[0].what.contains("something follows"));
}

#[test]
fn threads_see_each_run_once() {
    let text: String =
        (0..30_000).map(|i| line(&format!("run-{i}"), &"x".repeat(i % 90)) + "\n").collect();
    let whole = parsed("x.jsonl", text.clone());
    let input = Box::new(io::Cursor::new(text.into_bytes()));
    let options = Options::default();
    let Ok(Opened::Runs(chunks)) =
        Chunks::of(input, Source::file("x.jsonl"), "x.jsonl".to_owned(), &options)
    else {
        panic!("not opened");
    };
    let pieces: Vec<_> = chunks.map(Result::unwrap).collect();
    assert!(pieces.len() > 2);
    let mut found: Vec<(u64, String)> = std::thread::scope(|scope| {
        let threads: Vec<_> = pieces
            .chunks(pieces.len().div_ceil(3))
            .map(|pieces| {
                scope.spawn(move || {
                    let mut found = Vec::new();
                    for piece in pieces {
                        piece.each(&mut |run| {
                            let run = run.unwrap();
                            found.push((run.origin.at.unwrap(), run.run_id.into_owned()));
                        });
                    }
                    found
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    found.sort();
    assert_eq!(found.len(), whole.len());
    for ((at, id), run) in found.iter().zip(&whole) {
        assert_eq!((Some(*at), &**id), (run.origin.at, &*run.run_id));
    }
}

#[test]
fn folder_may_mix_formats() {
    let folder = Folder::new("mixed");
    for name in [
        "atif/hotpot-47801b542b28.json",
        "tau_bench/agentpile_model-a.jsonl",
        "swe_agent/from_url.traj",
    ] {
        folder.file(name, fs::read(fixture(name)).unwrap());
    }
    folder.file("README.md", "# Runs");
    folder.file("LICENSE", "MIT");
    folder.file("core.bin", b"\x7fELF\0\0\0");
    folder.file("tools.json", "{\"tools\": []}");
    folder.file("empty.json", "");
    let mut stats = ReadStats::new();
    let visited = for_each(&folder.0, &Options::default(), &mut |run| match run {
        Ok(run) => stats.run(&run),
        Err(problem) => stats.problem(&problem),
    })
    .unwrap();
    let formats: Vec<_> = visited.formats.into_iter().collect();
    assert_eq!(formats, [("atif", 1), ("swe-agent", 1), ("tau-bench", 1)]);
    assert_eq!((visited.files, visited.skipped, stats.runs), (3, 3, 6));
    let skipped: Vec<_> = visited.skipped_for.into_kinds().collect();
    assert_eq!(skipped.iter().map(|(_, count, _)| count).sum::<u64>(), 3);
    let named = skipped.iter().all(|(_, count, first)| first.len() as u64 == *count);
    assert!(named, "{skipped:?}");
    let none = &stats.problems[&ProblemKind::NoTrajectory];
    assert_eq!(none.count, 2);
    assert!(none.first[0].ends_with("it is empty") && none.first[1].contains("`tools`"));
}

#[test]
fn requested_format_is_the_only_one() {
    let mut options = Options::default();
    options.format = Some("atif".to_owned());
    let (runs, problems) = read_with(fixture("neutral/mixed.jsonl"), &options);
    assert_eq!((runs.len(), problems.len()), (0, 1));
    assert_eq!(problems[0].kind, ProblemKind::WrongFormat);
    assert!(
        problems[0].what.ends_with("not in the format `atif`; it looks like `neutral-traj/1`"),
        "{}",
        problems[0]
    );
    // A file that matches two formats is read in the requested one.
    options.format = Some("openai-messages".to_owned());
    let (runs, _) = read_with(fixture("anthropic_messages"), &options);
    assert_eq!(runs[0].origin.format, "openai-messages");
    options.format = Some("missing".to_owned());
    let error = for_each(fixture("atif"), &options, &mut |_| {}).unwrap_err().to_string();
    assert!(
        error.starts_with("unknown format `missing`; expected one of neutral-traj/1, atif"),
        "{error}"
    );
    assert_eq!(formats()[0].0, "neutral-traj/1");
}

#[test]
fn missing_file_is_a_problem() {
    let (runs, problems) = read_with(fixture("gone.json"), &Options::default());
    assert_eq!((runs.len(), problems[0].kind), (0, ProblemKind::Unreadable));
}

#[test]
fn separate_outcomes_complete_runs() {
    let mut outcomes = Outcomes::parse("run_id,reward\ntau-airline-t49-r0,1.0\nother,0\n").unwrap();
    let (mut runs, _) = read_with(fixture("openai_messages"), &Options::default());
    let applied = runs.iter_mut().filter_map(|run| outcomes.apply(run).then_some(&*run)).count();
    assert_eq!((applied, outcomes.missing(), outcomes.unused()), (1, 1, 1));
    let run = runs.iter().find(|run| run.run_id == "tau-airline-t49-r0").unwrap();
    assert_eq!((run.recorded.reward, run.recorded.success), (Some(1.0), Some(true)));
}
