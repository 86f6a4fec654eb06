//! Every row of the table of limits as a flag and as a key of a settings file.

use crate::cli::{Cli, Done, playing};
use endstop::core::limits::{LimitRow, Off, TABLE, Unit};
use endstop::testkit::Turn;
use serde_json::{Value, json};

/// Returns a value of a limit that is not its default, as a flag and as TOML spell it, and the
/// value that `endstop config show` prints.
fn other(row: &LimitRow) -> (&'static str, &'static str, Value) {
    match row.unit {
        Unit::Time => ("90s", "\"90s\"", json!("90s")),
        Unit::Usd => ("7", "7", json!(7.0)),
        Unit::Switch => ("", "true", json!(true)),
        Unit::Windows => ("5h=80%", "\"5h=80%\"", json!("5h=80%")),
        Unit::Rates => ("7 tokens/h", "\"7 tokens/h\"", json!("7 tokens/h")),
        Unit::TokensCounted => ("output", "\"output\"", json!("output")),
        Unit::Turns | Unit::Tokens | Unit::Count => ("7", "7", json!(7)),
    }
}

fn flag(row: &LimitRow) -> String {
    format!("--{}", row.name.replace('_', "-"))
}

/// Writes one key of `[limits]` for each row that is given a value.
fn toml(value: impl Fn(&LimitRow) -> Option<String>) -> String {
    let keys = TABLE.iter().filter_map(|row| Some(format!("{} = {}\n", row.name, value(row)?)));
    format!("[limits]\n{}", keys.collect::<String>())
}

fn show(cli: &Cli, more: &[String]) -> Done {
    let args = ["config", "show", "--json"].map(str::to_owned);
    cli.run(args.iter().chain(more))
}

/// Returns the value and the origin of each limit, in the order of the table.
fn shown(done: Done) -> Vec<(Value, String)> {
    let shown = done.exits(0).lines().remove(0);
    let rows = shown["settings"].as_array().unwrap();
    let limit = |row: &LimitRow| {
        let name = format!("limits.{}", row.name);
        let found = rows.iter().find(|row| row["name"] == name.as_str()).unwrap();
        (found["value"].clone(), found["origin"].as_str().unwrap().to_owned())
    };
    TABLE.iter().map(limit).collect()
}

#[test]
fn limits_set_by_flag_and_file() {
    let cli = Cli::new();
    let mut flags = Vec::new();
    for row in &TABLE {
        flags.push(flag(row));
        flags.extend(Some(other(row).0.to_owned()).filter(|value| !value.is_empty()));
    }
    let by_flag = shown(show(&cli, &flags));
    let file = cli.write("all.toml", toml(|row| Some(other(row).1.to_owned())));
    let by_file = shown(show(&cli, &["--config".to_owned(), file.display().to_string()]));
    for (row, (by_flag, by_file)) in TABLE.iter().zip(by_flag.into_iter().zip(by_file)) {
        assert_eq!(by_flag, (other(row).2, "flag".to_owned()), "{}", row.name);
        assert_eq!(by_file, (other(row).2, "config".to_owned()), "{}", row.name);
    }
}

#[test]
fn limits_are_off_or_say_why() {
    let cli = Cli::new();
    let may_be_off = |row: &LimitRow| row.off == Off::Allowed;
    let mut flags = Vec::new();
    for row in TABLE.iter().filter(|row| may_be_off(row) && row.unit != Unit::Switch) {
        flags.extend([flag(row), "off".to_owned()]);
    }
    let by_flag = shown(show(&cli, &flags));
    let off = toml(|row| may_be_off(row).then(|| "\"off\"".to_owned()));
    let file = cli.write("off.toml", off);
    let by_file = shown(show(&cli, &["--config".to_owned(), file.display().to_string()]));
    for (row, (by_flag, by_file)) in TABLE.iter().zip(by_flag.into_iter().zip(by_file)) {
        if may_be_off(row) {
            let off = [json!("off"), json!(0), json!(false)];
            assert!(off.contains(&by_flag.0), "{} = {}", row.name, by_flag.0);
            assert_eq!(by_flag.0, by_file.0, "{}", row.name);
        }
    }
    for row in &TABLE {
        let Off::Refused(advice) = row.off else { continue };
        let done = show(&cli, &[flag(row), "off".to_owned()]).exits(2);
        let error = format!("{}: cannot be off; {advice}", flag(row));
        assert!(done.stderr.contains(&error), "{}", done.stderr);
        let file = cli.write("one.toml", format!("[limits]\n{} = \"off\"\n", row.name));
        let done = show(&cli, &["--config".to_owned(), file.display().to_string()]).exits(2);
        let error = format!("limit `{}`: cannot be off; {advice}", row.name);
        assert!(done.stderr.contains(&error), "{}", done.stderr);
    }
}

#[test]
fn each_limit_has_one_help_line() {
    let cli = Cli::new();
    let help = cli.run(["run", "--help"]).exits(0).stdout;
    let (_, limits) = help.split_once("Limits (a value of `off` disables one):").unwrap();
    let (limits, _) = limits.split_once("\nJudging the result:").unwrap();
    let flags: Vec<&str> =
        limits.lines().filter_map(|line| line.trim_start().strip_prefix("--")).collect();
    let names: Vec<String> =
        flags.iter().map(|line| line.split(' ').next().unwrap().replace('-', "_")).collect();
    let rows: Vec<&str> = TABLE.iter().map(|row| row.name).collect();
    assert_eq!(names, rows);
}

#[test]
fn card_names_tokens_that_count() {
    let cli = Cli::new();
    let server = playing([Turn::text("Yes.").usage(9_000, 40).cached(8_000, 0)]);
    let args = ["Is it?", "--max-tokens", "20000", "--max-tokens-counts"];
    for (counts, shown) in
        [("output", "/20,000 output tokens"), ("uncached", "/20,000 uncached tokens")]
    {
        let server = playing([Turn::text("Yes.").usage(9_000, 40).cached(8_000, 0)]);
        let args: Vec<&str> = args.into_iter().chain([counts]).collect();
        cli.agent(&server, "openai-chat", &args).exits(0).notes(&[shown]);
    }
    let done = cli.agent(&server, "openai-chat", &["Is it?", "--max-tokens-counts", "some"]);
    done.exits(2).notes(&["--max-tokens-counts", "uncached"]);
}
