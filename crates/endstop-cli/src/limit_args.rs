//! The flags of the limits, built from the table of limits.

use clap::{Arg, ArgAction, ArgMatches, Command};
use endstop::core::LimitValue;
use endstop::core::limits::{LimitRow, TABLE, Unit};
use std::sync::LazyLock;
use std::time::Duration;

/// The flags, in the order of the table. `clap` accepts names of flags only if they are static.
static FLAGS: LazyLock<Vec<String>> =
    LazyLock::new(|| TABLE.iter().map(|row| row.name.replace('_', "-")).collect());

/// Limits as flags; `off` disables one. They override endstop.toml.
#[derive(Clone, Debug, Default)]
pub(crate) struct LimitArgs {
    given: Vec<(&'static str, String)>,
}

impl LimitArgs {
    /// Returns the limits that were given, by their names in endstop.toml.
    pub(crate) fn given(&self) -> Vec<(&'static str, String)> {
        self.given.clone()
    }
}

impl clap::Args for LimitArgs {
    fn augment_args(command: Command) -> Command {
        let command = command.next_help_heading("Limits (a value of `off` disables one)");
        let flags = TABLE.iter().zip(FLAGS.iter()).map(|(row, flag)| arg(row, flag));
        command.args(flags)
    }

    fn augment_args_for_update(command: Command) -> Command {
        LimitArgs::augment_args(command)
    }
}

impl clap::FromArgMatches for LimitArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<LimitArgs, clap::Error> {
        let given = TABLE.iter().filter_map(|row| {
            let value = match row.unit {
                Unit::Switch => matches.get_flag(row.name).then(|| "true".to_owned()),
                _ => matches.get_one::<String>(row.name).cloned(),
            };
            Some((row.name, value?))
        });
        Ok(LimitArgs { given: given.collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = LimitArgs::from_arg_matches(matches)?;
        Ok(())
    }
}

fn arg(row: &'static LimitRow, flag: &'static str) -> Arg {
    let arg = Arg::new(row.name).long(flag).help(help(row));
    match row.unit {
        Unit::Switch => arg.action(ArgAction::SetTrue),
        unit => arg
            .value_name(match unit {
                Unit::Usd => "USD",
                Unit::Time => "TIME",
                Unit::TokensCounted => "WHICH",
                _ => "N",
            })
            // A negative number is accepted as a value, so that the error names its limit instead
            // of an unknown flag.
            .allow_negative_numbers(true),
    }
}

/// Returns the first paragraph of the description, with the default.
fn help(row: &LimitRow) -> String {
    let text = row.paragraphs().next().unwrap_or_default();
    let text = text.strip_suffix('.').unwrap_or(&text);
    let default = match row.value(&endstop::Limits::default()) {
        _ if !row.default_note.is_empty() => row.default_note.to_owned(),
        LimitValue::Off | LimitValue::Switch(_) => return text.to_owned(),
        LimitValue::Count(count) => count.to_string(),
        LimitValue::Usd(usd) => usd.to_string(),
        LimitValue::Tokens(counts) => counts.as_str().to_owned(),
        LimitValue::Time(time) => spelled(time),
    };
    format!("{text} [default: {default}]")
}

/// Spells a duration as the user would: in whole minutes from two minutes on, otherwise in seconds.
fn spelled(time: Duration) -> String {
    match time.as_secs() {
        seconds if seconds >= 120 && seconds % 60 == 0 => format!("{}m", seconds / 60),
        _ => format!("{}s", time.as_secs_f64()),
    }
}
