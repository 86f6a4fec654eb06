//! Parts of the command that a build can leave out: `--version --verbose` lists them, and errors name them.
//!
//! Apart from the other tests, so that a command without its features is tried without compiling those again.
#![allow(
    clippy::unwrap_used,
    clippy::pedantic,
    missing_docs,
    unreachable_pub,
    dead_code,
    reason = "tests, and what they share has more than these use"
)]

#[path = "it/cli.rs"]
mod cli;

use cli::Cli;

#[test]
fn verbose_version_lists_features() {
    let cli = Cli::new();
    for args in [["--version", "--verbose"], ["--verbose", "--version"]] {
        let text = cli.run(args).exits(0).stdout;
        assert!(text.starts_with("endstop "), "{text}");
        for (name, is_built) in [
            ("acp", cfg!(feature = "acp")),
            ("bedrock", cfg!(feature = "bedrock")),
            ("benchmarks", cfg!(feature = "benchmarks")),
            ("google-login", cfg!(feature = "google-login")),
            ("otlp", cfg!(feature = "otlp")),
            ("parquet", cfg!(feature = "parquet")),
            ("restate", cfg!(feature = "restate")),
        ] {
            let line = format!("\n  {} {name} ", if is_built { '+' } else { '-' });
            assert!(text.contains(&line), "{name}: {text}");
        }
    }
    assert_eq!(cli.run(["--version"]).exits(0).stdout.lines().count(), 1);
    cli.run(["--verbose", "demo", "loop"]).exits(2).notes(&["--version"]);
}

#[cfg(not(feature = "full"))]
#[test]
fn missing_part_names_its_feature() {
    let cli = Cli::new();
    for (args, feature) in [
        (&["acp"][..], "--features acp"),
        (&["--json", "acp", "--model", "x"], "--features acp"),
        (&["backtest", "runs", "--parquet", "t.parquet"], "--features parquet"),
        (&["backtest", "runs", "--parquet=t.parquet"], "--features parquet"),
    ] {
        let done = cli.run(args).exits(2);
        let said = done.stderr + &done.stdout;
        assert!(said.contains(feature) && said.contains("is not in this build"), "{said}");
    }
    let mut demo = cli.command(["demo", "loop"]);
    demo.env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1");
    let said = String::from_utf8(demo.output().unwrap().stderr).unwrap();
    assert!(said.contains("telemetry is off") && said.contains("--features otlp"), "{said}");
    assert!(!cli.run(["demo", "loop"]).stderr.contains("telemetry"));
    // Any other word is unknown.
    for args in [&["acq"][..], &["run", "--parquet", "x"]] {
        let said = cli.run(args).exits(2).stderr;
        assert!(!said.contains("build"), "{said}");
    }
}
