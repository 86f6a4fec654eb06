//! Small files that are large once decompressed and parsed, in every supported format: with one
//! gigabyte of memory they are reported as problems, and the other sessions are still audited.

use crate::cli::{Cli, Done, Started};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::process::Command;

const GOOD: &str =
    r#"{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y"}]}"#;

const CLAUDE: &str = r#"{"type":"user","uuid":"u","parentUuid":null,"sessionId":"s","isSidechain":false,"timestamp":"2026-03-04T05:00:00.000Z","message":{"role":"user","content":"x"}"#;

/// The text before and after the repeated part.
type Frame = (&'static str, &'static str, &'static str);

const FRAMES: [Frame; 9] = [
    ("claude.jsonl", "CLAUDE,\"x\":[", "0]}\n"),
    (
        "rollout-1.jsonl",
        "{\"timestamp\":\"2026-01-01T00:00:00Z\",\"type\":\"session_meta\",\"payload\":{\"id\":\"x\",\"cwd\":\"/\",\"x\":[",
        "0]}}\n",
    ),
    ("messages.json", "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"x\":[", "0]}"),
    ("list.json", "[{\"role\":\"user\",\"content\":\"x\"},", "{}]"),
    (
        "atif.json",
        "{\"schema_version\":\"ATIF-v1.4\",\"session_id\":\"x\",\"agent\":{\"name\":\"a\",\"version\":\"1\"},\"steps\":[",
        "{}]}",
    ),
    (
        "spans.json",
        "{\"resourceSpans\":[{\"scopeSpans\":[{\"spans\":[{\"traceId\":\"0af7651916cd43dd8448eb211c80319c\",\"spanId\":\"b7ad6b7169203331\",\"name\":\"chat\",\"attributes\":[{\"key\":\"gen_ai.operation.name\",\"value\":{\"stringValue\":\"chat\"}},",
        "{}]}]}]}]}",
    ),
    (
        "steps.traj",
        "{\"trajectory\":[{\"action\":\"x\",\"observation\":\"y\",\"response\":\"z\"},",
        "{}],\"history\":[{\"role\":\"user\",\"content\":\"x\"}],\"info\":{}}",
    ),
    ("runs.jsonl", "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"x\":[", "0]}\n"),
    (
        "log.json",
        "{\"version\":2,\"status\":\"success\",\"eval\":{\"task\":\"t\"},\"samples\":[{\"id\":1,\"epoch\":1,\"input\":\"x\",\"messages\":[",
        "{}]}]}",
    ),
];

/// The repeated parts, with the MiB of text that parse to at least 600 MiB.
const UNITS: [(&str, usize); 9] = [
    ("0,", 9),
    ("[],", 5),
    ("{},", 3),
    ("[{}],", 3),
    ("[[[[[]]]]],", 5),
    ("{\"\":0},", 5),
    ("{\"a\":{\"b\":[]}},", 5),
    ("\"\",", 10),
    ("\"x\",", 13),
];

fn packed(before: &str, (unit, mib): (&str, usize), after: &str) -> Vec<u8> {
    let mut gz = GzEncoder::new(Vec::new(), Compression::fast());
    gz.write_all(before.replace("CLAUDE", CLAUDE).as_bytes()).unwrap();
    let block = unit.repeat((1 << 16) / unit.len());
    for _ in 0..(mib << 20) / block.len() {
        gz.write_all(block.as_bytes()).unwrap();
    }
    gz.write_all(after.as_bytes()).unwrap();
    gz.finish().unwrap()
}

/// Runs the binary with one gigabyte of memory.
fn limited(cli: &Cli, args: &[&str]) -> Done {
    let inner = cli.command(args);
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -v 1048576; exec \"$0\" \"$@\""]).arg(inner.get_program());
    command.args(inner.get_args()).env_clear().env("HOME", cli.path("home"));
    Started::new(
        {
            command.current_dir(cli.dir.path());
            command
        },
        "",
    )
    .finish()
}

/// Audits a folder of these files, with a good file before and after them, which are read, and this number of
/// sessions in them; returns the problems by kind.
fn audited(files: &[(String, Vec<u8>)], sessions: u64) -> Value {
    let cli = Cli::new();
    fs::create_dir(cli.path("runs")).unwrap();
    for name in ["a.json", "z.json"] {
        cli.write(&format!("runs/{name}"), GOOD);
    }
    for (name, bytes) in files {
        assert!(bytes.len() < 2 << 20, "{name} has {} bytes", bytes.len());
        cli.write(&format!("runs/m-{name}"), bytes);
    }
    let done = limited(&cli, &["audit", "runs", "--json"]).exits(0);
    let report: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(report["sessions"], 2 + sessions, "{report:#}");
    report["problems"].clone()
}

fn problems(problems: &Value) -> u64 {
    problems.as_object().unwrap().values().map(|kind| kind["count"].as_u64().unwrap()).sum()
}

/// Each format with one part, and each part in one format.
fn bombs() -> Vec<(String, Vec<u8>)> {
    let pairs = FRAMES.iter().zip(UNITS);
    let pack = |((name, before, after), unit): (&Frame, _)| {
        (format!("{name}.gz"), packed(before, unit, after))
    };
    pairs.map(pack).collect()
}

fn all_are_problems(bombs: &[(String, Vec<u8>)]) {
    let found = audited(bombs, 0);
    assert_eq!(found["too_many_values"]["count"], bombs.len(), "{found:#}");
    // A session whose only line is lost has nothing else.
    let empty = found["no_trajectory"]["count"].as_u64().unwrap_or(0);
    assert_eq!(problems(&found), bombs.len() as u64 + empty, "{found:#}");
}

#[test]
fn packed_values_of_sessions_are_problems() {
    all_are_problems(&bombs()[..3]);
}

#[test]
fn packed_values_of_lists_are_problems() {
    all_are_problems(&bombs()[3..6]);
}

#[test]
fn packed_values_of_logs_are_problems() {
    all_are_problems(&bombs()[6..]);
}

#[test]
fn values_over_many_records_are_problems() {
    let record = "{\"type\":\"user\"}\n";
    let claude = packed("CLAUDE}\n", (record, 12), "");
    let inner = packed(
        "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"c\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":[",
        ("[],", 5),
        "0]}\"}}]}]}",
    );
    let files = [("lines.jsonl.gz".to_owned(), claude), ("inner.json.gz".to_owned(), inner)];
    // The session has what precedes the line at which the memory is used up.
    let found = audited(&files, 1);
    assert_eq!(found["too_many_values"]["count"], 2, "{found:#}");
}

#[test]
fn endless_archive_directory_is_a_problem() {
    // One entry, listed a million times.
    let name = b"samples/1_epoch_1.json";
    let mut entry = vec![0; 46];
    entry[..4].copy_from_slice(b"PK\x01\x02");
    entry[28] = u8::try_from(name.len()).unwrap();
    entry.extend_from_slice(name);
    let mut local = vec![0; 30];
    local[..4].copy_from_slice(b"PK\x03\x04");
    local[26] = entry[28];
    local.extend_from_slice(name);
    let many = 1_000_000_u64;
    let mut end = b"PK\x06\x06".to_vec();
    end.extend([44, 0, 0, 0, 0, 0, 0, 0, 45, 0, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    for number in [many, many, many * entry.len() as u64, local.len() as u64] {
        end.extend(number.to_le_bytes());
    }
    end.extend(b"PK\x06\x07\0\0\0\0");
    end.extend((local.len() as u64 + many * entry.len() as u64).to_le_bytes());
    end.extend([1, 0, 0, 0]);
    end.extend(b"PK\x05\x06\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\0\0");
    let mut gz = GzEncoder::new(Vec::new(), Compression::fast());
    gz.write_all(&local).unwrap();
    for _ in 0..1_000 {
        gz.write_all(&entry.repeat(1_000)).unwrap();
    }
    gz.write_all(&end).unwrap();
    let found = audited(&[("log.eval.gz".to_owned(), gz.finish().unwrap())], 0);
    assert_eq!(found["too_many_values"]["count"], 1, "{found:#}");
}

/// A block of a zstd frame: some bytes, or one byte that is repeated.
enum Block<'b> {
    Raw(&'b [u8]),
    Repeat(u8, usize),
}

/// Writes a zstd frame with a window of 2^`window` bytes.
fn zstd(window: u8, blocks: &[Block<'_>]) -> Vec<u8> {
    let mut out = vec![0x28, 0xb5, 0x2f, 0xfd, 0, (window - 10) << 3];
    let header = |out: &mut Vec<u8>, kind: usize, size: usize| {
        out.extend(&(size << 3 | kind << 1).to_le_bytes()[..3]);
    };
    for block in blocks {
        match block {
            Block::Raw(bytes) => {
                header(&mut out, 0, bytes.len());
                out.extend_from_slice(bytes);
            }
            Block::Repeat(byte, times) => {
                let mut left = *times;
                while left > 0 {
                    let size = left.min(1 << 17);
                    header(&mut out, 1, size);
                    out.push(*byte);
                    left -= size;
                }
            }
        }
    }
    out.extend([1, 0, 0]);
    out
}

fn gz(bytes: &[u8]) -> Vec<u8> {
    let mut gz = GzEncoder::new(Vec::new(), Compression::fast());
    gz.write_all(bytes).unwrap();
    gz.finish().unwrap()
}

const BEGIN: &[u8] = br#"{"messages":[{"role":"user","content":"x"}],"x":["#;

#[test]
fn zstd_bombs_are_problems() {
    use Block::{Raw, Repeat};
    let files = [
        // Values, depth, a line without an end, and a window that no reader should allocate.
        ("values.json.zst", zstd(20, &[Raw(BEGIN), Repeat(b',', 9 << 20), Raw(b"0]}")])),
        ("deep.json.zst", zstd(20, &[Raw(BEGIN), Repeat(b'[', 4 << 20), Raw(b"]}")])),
        ("line.jsonl.zst", zstd(20, &[Raw(BEGIN), Repeat(b' ', 300 << 20), Raw(b"0]}\n")])),
        ("window.json.zst", zstd(41, &[Raw(BEGIN), Raw(b"0]}")])),
    ];
    let found = audited(&files.map(|(name, bytes)| (name.to_owned(), bytes)), 0);
    assert_eq!(found["too_many_values"]["count"], 2, "{found:#}");
    assert_eq!(found["too_long"]["count"], 1, "{found:#}");
    assert_eq!(problems(&found), 4);
}

#[test]
fn empty_frames_and_members_read_through() {
    let skippable = b"\x50\x2a\x4d\x18\0\0\0\0".repeat(100_000);
    let run = zstd(20, &[Block::Raw(GOOD.as_bytes())]);
    let cli = Cli::new();
    fs::create_dir(cli.path("runs")).unwrap();
    cli.write("runs/skipped.json.zst", [&skippable[..], &run].concat());
    cli.write("runs/frames.json.zst", [&run[..], &zstd(20, &[]).repeat(50_000)].concat());
    cli.write("runs/members.json.gz", [gz(GOOD.as_bytes()), gz(b"").repeat(20_000)].concat());
    let done = limited(&cli, &["audit", "runs", "--json"]).exits(0);
    let report: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!((&report["sessions"], problems(&report["problems"])), (&3.into(), 0), "{report:#}");
}

#[test]
fn odd_packed_files_are_problems() {
    let number = [BEGIN, &b"9".repeat(4 << 20), b"]}"].concat();
    let parquet =
        [b"PAR1", &b"\x15\x04\x15\xff\xff\xff\xff\x0f".repeat(99)[..], b"\xff\xff\xff\x7fPAR1"];
    let files = [
        ("twice.json.gz", gz(&gz(&b"0".repeat(64 << 20)))),
        ("number.json.gz", gz(&number)),
        ("deep.jsonl.gz", gz(&b"{\"a\":".repeat(400_000))),
        ("columns.json", parquet.concat()),
    ];
    let found = audited(&files.map(|(name, bytes)| (name.to_owned(), bytes)), 0);
    assert!((2..=4).contains(&problems(&found)), "{found:#}");
}

#[test]
fn object_with_many_members_is_read() {
    let members: Vec<String> = (0..200_000).map(|n| format!("\"k{n}\":0")).collect();
    let run = format!("{},\"x\":{{{}}}}}", &GOOD[..GOOD.len() - 1], members.join(","));
    let cli = Cli::new();
    cli.write("run.json.gz", gz(run.as_bytes()));
    let done = limited(&cli, &["audit", "run.json.gz", "--json"]).exits(0);
    let report: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(report["sessions"], 1, "{report:#}");
}

#[test]
fn found_bombs_do_not_hide_sessions() {
    use Block::{Raw, Repeat};
    let cli = Cli::new();
    let bomb = zstd(20, &[Raw(BEGIN), Repeat(b',', 9 << 20), Raw(b"0]}")]);
    for folder in [".claude/projects/p", ".codex/sessions/2026/01/01"] {
        let folder = cli.path("home").join(folder);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("rollout-1.jsonl"), &bomb).unwrap();
        fs::write(folder.join("rollout-2.jsonl"), packed("CLAUDE,\"x\":[", UNITS[1], "0]}\n"))
            .unwrap();
        fs::write(folder.join("rollout-3.jsonl"), format!("{CLAUDE}}}\n")).unwrap();
    }
    let done = limited(&cli, &["audit", "--find", "--json"]);
    assert!(matches!(done.code(), 0 | 2), "{done:#?}");
    let report: Value = serde_json::from_str(&done.stdout).unwrap();
    assert!(report["sessions"].as_u64() >= Some(1), "{report:#}");
    assert!(report["problems"]["too_many_values"]["count"].as_u64() >= Some(2), "{report:#}");
}

#[test]
fn heavy_input_is_always_an_error() {
    let cli = Cli::new();
    let values = [BEGIN, &b"[],".repeat(3 << 20), b"0]}"].concat();
    cli.write("values.json", &values);
    cli.write("deep.json", "[".repeat(8 << 20));
    cli.write("packed.json.gz", gz(&values));
    for file in ["values.json", "deep.json", "packed.json.gz"] {
        for args in [
            &["explain", file][..],
            &["detect", "--api", "openai-chat", file],
            &["detect", "--jsonl", file],
            &["simulate", file],
            &["backtest", file],
            &["backtest", "--outcomes", file, "values.json"],
            &["run", "--replay", file],
            &["run", "--model", "ollama/x", "--output-schema", file, "hi"],
        ] {
            let done = limited(&cli, args);
            let code = done.code();
            assert!((1..=3).contains(&code) || code == 0, "{args:?}: {done:#?}");
            assert!(!done.stderr.contains("panicked"), "{args:?}: {done:#?}");
        }
    }
}

#[test]
fn special_files_do_not_hang_audit() {
    let cli = Cli::new();
    fs::create_dir(cli.path("runs")).unwrap();
    cli.write("runs/a.json", GOOD);
    let links = [
        ("kmsg.json", "/proc/kmsg"),
        ("zero.jsonl", "/dev/zero"),
        ("trace.db", "/proc/self/status"),
    ];
    for (name, to) in links {
        std::os::unix::fs::symlink(to, cli.path("runs").join(name)).unwrap();
    }
    let pipe = Command::new("mkfifo").arg(cli.path("runs/pipe.json")).status().unwrap();
    assert!(pipe.success());
    let done = cli.run(["audit", "runs", "--json"]).exits(0);
    let report: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!((&report["sessions"], &report["skipped"]), (&1.into(), &2.into()), "{report:#}");
    assert_eq!(report["problems"]["unreadable"]["count"], 2, "{report:#}");
}

#[test]
fn endless_input_is_an_error() {
    let cli = Cli::new();
    let zero = "/dev/zero";
    for args in [
        &["explain", zero][..],
        &["detect", "--api", "openai-chat", zero],
        &["detect", "--jsonl", zero],
        &["simulate", zero],
        &["backtest", "--outcomes", zero, "x"],
        &["run", "--replay", zero],
        &["run", "--model", "ollama/x", "--output-schema", zero, "hi"],
    ] {
        let done = limited(&cli, args).exits(2);
        assert!(done.stderr.contains(zero), "{args:?}: {done:#?}");
    }
}
