//! Output files: a file with content is not replaced without `--overwrite`.

use crate::backtest::clear;
use crate::cli::{Cli, Done, agent_args, playing};
use endstop::testkit::Turn;

/// Returns every command that has an output file, which is its last argument.
fn writers(cli: &Cli) -> Vec<(&'static str, Vec<String>)> {
    let owned = |args: &[&str]| args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>();
    cli.write("runs.jsonl", clear(120, 60));
    let runs = ["backtest", "runs.jsonl", "--policies", "default"];
    vec![
        ("--html", owned(&["explain", "events.jsonl", "--html"])),
        ("--junit", owned(&["assert", "events.jsonl", "--success", "--junit"])),
        ("--report", owned(&["audit", "runs.jsonl", "--report"])),
        ("--report", owned(&[&runs[..], &["--report"]].concat())),
        #[cfg(feature = "parquet")]
        ("--parquet", owned(&[&runs[..], &["--parquet"]].concat())),
        ("--write", owned(&[&runs[..], &["--write"]].concat())),
    ]
}

#[track_caller]
fn refused(done: Done, flag: &str) {
    done.exits(2).notes(&[&format!("{flag} out: "), "not empty", "--overwrite"]);
}

#[test]
fn file_with_content_is_not_replaced() {
    let cli = Cli::new();
    let server = playing([Turn::text("Hi.")]);
    let first = ["Go.", "--events", "events.jsonl"];
    cli.agent(&server, "openai-chat", &first).exits(0);
    let mut all = writers(&cli);
    for flag in ["--events", "--record"] {
        all.push((flag, agent_args(&server, "openai-chat", &["Go.", flag])));
    }
    for (flag, args) in all {
        let run = |more: &[&str]| {
            let more = more.iter().map(|arg| (*arg).to_owned());
            cli.run(args.iter().cloned().chain(more))
        };
        cli.write("out", "precious");
        let asked = server.requests().len();
        refused(run(&["out"]), flag);
        assert_eq!(cli.read("out"), "precious", "{flag}");
        assert_eq!(server.requests().len(), asked, "{flag}: the model was asked");
        run(&["out", "--overwrite"]).exits(0);
        let written = std::fs::read(cli.path("out")).unwrap();
        assert!(!written.is_empty() && !written.starts_with(b"precious"), "{flag}");
        // An empty file, as `mktemp` creates, has no content that could be lost.
        cli.write("out", "");
        run(&["out"]).exits(0);
        assert!(std::fs::metadata(cli.path("out")).unwrap().len() > 0, "{flag}");
        run(&["."]).exits(2).notes(&[flag, "is a directory"]);
    }
}

#[cfg(unix)]
#[test]
fn device_is_written_without_overwrite() {
    let cli = Cli::new();
    let server = playing([Turn::text("Hi.")]);
    for flag in ["--events", "--record"] {
        cli.agent(&server, "openai-chat", &["Go.", flag, "/dev/null"]).exits(0);
    }
}
