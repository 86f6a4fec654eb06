//! The arguments of `endstop assert`, and their parsers.

use endstop::NanoUsd;
use endstop::core::limits::parse_duration;
use endstop::core::{Category, Termination};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "All expectations must hold. Exit status: 0 if they do, 1 if one does not, 2 for \
        usage or bad input.\n\nExample: endstop assert last --termination submitted --max-usd 1 \
        --max-turns 20 --tool-called run_tests --no-tool write_file"
)]
pub(crate) struct AssertArgs {
    /// The run: its id, a prefix of the id, `last`, a file written by `--events`, or a journal file,
    /// whose newest run is meant.
    #[arg(default_value = "last")]
    pub(crate) run: PathBuf,
    /// The run succeeded, and its verifier, if it has one, accepted the result.
    #[arg(long, help_heading = EXPECTATIONS)]
    pub(crate) success: bool,
    /// The run ended as this termination, for example `submitted`. May be repeated: one of them.
    #[arg(long, value_name = "NAME", help_heading = EXPECTATIONS)]
    pub(crate) termination: Vec<Termination>,
    /// The ending has this category: success, retryable, capacity, fatal. May be repeated: one of
    /// them.
    #[arg(long, value_name = "NAME", value_parser = category, help_heading = EXPECTATIONS)]
    pub(crate) category: Vec<Category>,
    /// A verifier ran and accepted the result.
    #[arg(long, help_heading = EXPECTATIONS)]
    pub(crate) verified: bool,
    /// The run cost at most this many US dollars. An unknown cost does not pass.
    #[arg(long, value_name = "USD", value_parser = usd, allow_negative_numbers = true, help_heading = EXPECTATIONS)]
    pub(crate) max_usd: Option<NanoUsd>,
    /// The run had at most this many turns.
    #[arg(long, value_name = "N", help_heading = EXPECTATIONS)]
    pub(crate) max_turns: Option<u32>,
    /// The run used at most this many tokens, of prompts and output together.
    #[arg(long, value_name = "N", help_heading = EXPECTATIONS)]
    pub(crate) max_tokens: Option<u64>,
    /// The run took at most this long: 90s, 5m.
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = EXPECTATIONS)]
    pub(crate) max_duration: Option<Duration>,
    /// This tool ran: NAME at least once, NAME=2 twice, NAME=1..3 one to three times, NAME=2.. at
    /// least twice. May be repeated.
    #[arg(long, value_name = "NAME[=COUNT]", value_parser = called, help_heading = EXPECTATIONS)]
    pub(crate) tool_called: Vec<(String, CallRange)>,
    /// This tool never ran. May be repeated.
    #[arg(long, value_name = "NAME", value_parser = tool, help_heading = EXPECTATIONS)]
    pub(crate) no_tool: Vec<String>,
    /// The answer contains this text, in the same case. May be repeated: all of them.
    #[arg(long, value_name = "TEXT", value_parser = part, help_heading = EXPECTATIONS)]
    pub(crate) final_contains: Vec<String>,
    /// Write the results as JUnit XML, one test case for each expectation.
    #[arg(long, value_name = "FILE")]
    pub(crate) junit: Option<PathBuf>,
    /// Replace the file of --junit if it exists and is not empty.
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// The journal file [default: journal.db in the user's state folder].
    #[arg(long, value_name = "FILE")]
    pub(crate) journal: Option<PathBuf>,
}

const EXPECTATIONS: &str = "Expectations";

/// A bound on the number of calls of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallRange {
    pub(crate) least: u64,
    /// `None`: no upper bound.
    pub(crate) most: Option<u64>,
}

fn category(text: &str) -> Result<Category, &'static str> {
    [Category::Success, Category::Retryable, Category::Capacity, Category::Fatal]
        .into_iter()
        .find(|category| category.as_str() == text)
        .ok_or("expected one of success, retryable, capacity, fatal")
}

fn usd(text: &str) -> Result<NanoUsd, &'static str> {
    text.trim_start_matches('$')
        .parse()
        .ok()
        .filter(|usd: &f64| usd.is_finite() && *usd >= 0.0 && *usd <= 1e9)
        .map(NanoUsd::from_usd)
        .ok_or("expected US dollars, for example 0.50")
}

fn duration(text: &str) -> Result<Duration, &'static str> {
    parse_duration(text).ok_or("expected a time, for example 90s or 5m")
}

/// Parses `NAME` or `NAME=COUNT`. Split at the last `=`, because no tool has one in its name.
fn called(text: &str) -> Result<(String, CallRange), String> {
    let Some((name, count)) = text.rsplit_once('=') else {
        return Ok((tool(text)?, CallRange { least: 1, most: None }));
    };
    let wrong = || format!("invalid count `{count}`; expected for example 2, 1..3, 2.. or ..3");
    let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
    let range = match count.split_once("..") {
        None => number(count).map(|times| CallRange { least: times, most: Some(times) })?,
        Some(("", "")) => return Err(wrong()),
        Some((least, most)) => CallRange {
            least: if least.is_empty() { 0 } else { number(least)? },
            most: if most.is_empty() { None } else { Some(number(most)?) },
        },
    };
    if range.most.is_some_and(|most| most < range.least) {
        return Err(wrong());
    }
    Ok((tool(name)?, range))
}

fn tool(text: &str) -> Result<String, String> {
    let is_name = !text.is_empty() && !text.contains(['=', ' ', ',']);
    if is_name { Ok(text.to_owned()) } else { Err("expected the name of one tool".to_owned()) }
}

fn part(text: &str) -> Result<String, &'static str> {
    // Every answer contains the empty text, so it would never fail: likely an unset variable.
    if text.is_empty() {
        Err("the text is empty; expected a part of the answer")
    } else {
        Ok(text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_calls_are_parsed() {
        let range = |least, most| CallRange { least, most };
        for (text, expected) in [
            ("shell", range(1, None)),
            ("shell=2", range(2, Some(2))),
            ("shell=0", range(0, Some(0))),
            ("shell=1..3", range(1, Some(3))),
            ("shell=2..", range(2, None)),
            ("shell=..3", range(0, Some(3))),
        ] {
            assert_eq!(called(text), Ok(("shell".to_owned(), expected)), "{text}");
        }
        for text in
            ["", "=2", "shell=", "shell=..", "shell=3..1", "shell=-1", "shell=x", "a b", "a,b"]
        {
            assert!(called(text).is_err(), "{text}");
        }
    }

    #[test]
    fn dollars_are_bounded() {
        assert_eq!(usd("$0.5"), Ok(NanoUsd(500_000_000)));
        for text in ["", "-1", "nan", "inf", "1e300", "one"] {
            assert!(usd(text).is_err(), "{text}");
        }
    }
}
