//! The first screen of the command, the two forms of its help, and tips for frequent mistakes.

use crate::args::Args;
use crate::input::is_short_help;
use crate::output;
use crate::visible::shorten;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory as _};
use endstop::core::limits::unknown_key;
use std::fmt::Write as _;

/// The commands by purpose. Those that this build leaves out are not shown.
const GROUPS: [(&str, &[&str]); 7] = [
    ("Run", &["run", "guard", "serve", "acp", "worker", "demo"]),
    ("Look", &["runs", "explain", "spend", "audit", "compare"]),
    ("Intervene", &["cancel", "limits", "pending", "answer", "branch"]),
    ("Choose", &["backtest", "policies"]),
    ("Check", &["assert", "conform"]),
    ("Set up", &["config", "trust", "providers", "prices", "completions", "man"]),
    ("By hand", &["detect", "decide", "simulate"]),
];

const BEGIN: &str = "\
Run an agent, or guard one, and know why it ended.

Start here
  endstop demo loop                                     a run that repeats itself; no key needed
  endstop guard --max-budget-usd 2 -- claude -p \"…\"     a ceiling for any agent program
  endstop audit --find                                  how the sessions on this disk ended
  endstop run --model openai/gpt-4.1-mini \"…\"           an agent with limits
";

const END: &str = "
Exit status: 0 success, 10 retryable, 20 a limit, 30 fatal, 75 parked, 130 cancelled, 143 terminated,
             1 not verified, 2 usage, 70 internal fault, 74 output not written
endstop COMMAND -h: the most used flags; --help: all.  endstop explain error_no_progress: what an ending means";

/// Returns the first screen.
fn screen() -> String {
    let command = Args::command();
    let mut text = format!("{BEGIN}\n");
    for (purpose, names) in GROUPS {
        let built = names.iter().filter(|name| command.find_subcommand(name).is_some());
        let built: Vec<&str> = built.copied().collect();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{purpose:<12}{}", built.join("  "));
    }
    text + END
}

/// Shows the first screen for `endstop` and `endstop -h`; `false` for all other arguments.
pub(crate) fn show_if_asked() -> bool {
    let mut args = std::env::args_os().skip(1);
    let asked = match (args.next(), args.next()) {
        (None, _) => true,
        (Some(only), None) => only == "-h",
        (Some(_), Some(_)) => false,
    };
    if asked {
        output::unredacted_line(&screen());
    }
    asked
}

/// Returns the parser of the arguments. In the short help it has no groups, and the first sentences of descriptions.
pub(crate) fn parser() -> Command {
    let mut command = Args::command();
    if is_short_help() {
        // The arguments of commands are otherwise built when they are parsed.
        command.build();
        command = shortened(command);
    }
    command
}

fn shortened(command: Command) -> Command {
    let command = command.mut_args(|arg| {
        let words = arg.get_help().map(|words| first_sentence(&words.to_string()));
        arg.help_heading(None::<&'static str>).help(words.unwrap_or_default())
    });
    let names: Vec<String> =
        command.get_subcommands().map(|one| one.get_name().to_owned()).collect();
    names.into_iter().fold(command, |command, name| command.mut_subcommand(name, shortened))
}

fn first_sentence(text: &str) -> String {
    text.split_once(". ").map_or(text, |(first, _)| first).to_owned()
}

/// Returns the error for a frequent mistake, with what to write instead.
pub(crate) fn tip(error: &clap::Error) -> Option<String> {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let word = context(ContextKind::InvalidSubcommand)?;
            let commands = Args::command();
            let names = GROUPS.iter().flat_map(|(_, names)| *names).copied();
            let names: Vec<&str> =
                names.filter(|name| commands.find_subcommand(name).is_some()).collect();
            let problem = unknown_key(word, &names).replacen("unknown name", "", 1);
            Some(format!(
                "unrecognized subcommand '{}'{problem}; --help describes the commands",
                shorten(word, 60)
            ))
        }
        ErrorKind::UnknownArgument => {
            let word = context(ContextKind::InvalidArg)?;
            let given: Vec<String> = std::env::args().skip(1).collect();
            let command = given.iter().find(|arg| !arg.starts_with('-'))?;
            if word.starts_with('-') {
                let is_known = Args::command().find_subcommand(command).is_some();
                let has_tip = error.get(ContextKind::SuggestedArg).is_some() || !is_known;
                let help = format!("`endstop {command} --help` lists the flags");
                return (!has_tip).then(|| format!("{}; {help}", one_line(error)));
            }
            let at = given.iter().position(|arg| arg == word)?;
            let words = |from: usize| shorten(&given[from..].join(" "), 200);
            let fix = match command.as_str() {
                "run" if at > 0 => format!(
                    "quote the task: endstop run … \"{}\"",
                    shorten(&task(&given[at - 1..]), 200)
                ),
                "guard" => {
                    format!("write `--` before the program: endstop guard … -- {}", words(at))
                }
                _ => return None,
            };
            Some(format!("unexpected argument '{}' found; {fix}", shorten(word, 60)))
        }
        ErrorKind::ArgumentConflict
            if context(ContextKind::InvalidArg)?.starts_with("--resume") =>
        {
            Some(format!(
                "{}; a resumed run has its task: `endstop branch RUN --at TURN --message \"…\"` says something more to it",
                one_line(error)
            ))
        }
        _ => None,
    }
}

/// Returns any other error of the arguments in one line: the problem and the tip, without the usage.
pub(crate) fn one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let text = text.split("\n\nUsage:").next().unwrap_or(&text);
    let text = text.split("\n\nFor more information").next().unwrap_or(text);
    let lines = text.trim_start_matches("error: ").lines().map(str::trim);
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    // Without clap's advice to pass a misspelt flag as a value, which in guard would start a program.
    let is_of_use =
        |line: &&str| !(line.starts_with("tip: to pass ") && line.contains(" as a value"));
    let lines: Vec<&str> = lines.into_iter().filter(is_of_use).collect();
    let whole = lines.join(" ").replace(" tip: ", "; ");
    // The words of Rust's parsers.
    let whole = whole
        .replace("invalid digit found in string", "expected a whole number")
        .replace("number too large to fit in target type", "the number is too large");
    let similar = ["a similar argument exists:", "a similar value exists:"];
    similar.iter().fold(whole, |text, words| text.replace(words, "did you mean"))
}

/// Returns the words up to the next flag.
fn task(words: &[String]) -> String {
    let words: Vec<&str> =
        words.iter().map(String::as_str).take_while(|word| !word.starts_with('-')).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::{GROUPS, screen};
    use crate::args::Args;
    use clap::CommandFactory as _;
    use std::collections::BTreeSet;

    #[test]
    fn first_screen_lists_every_command() {
        let command = Args::command();
        let visible = command.get_subcommands().filter(|one| !one.is_hide_set());
        let visible: BTreeSet<&str> = visible.map(clap::Command::get_name).collect();
        let listed: BTreeSet<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        assert!(visible.is_subset(&listed), "{:?}", visible.difference(&listed));
        // Commands that only a feature has.
        let left_out: Vec<&&str> = listed.difference(&visible).collect();
        assert!(left_out.iter().all(|name| ["acp", "worker"].contains(*name)), "{left_out:?}");
        assert!(screen().lines().all(|line| line.chars().count() <= 112), "{}", screen());
    }
}
