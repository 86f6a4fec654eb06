//! The limits of a run: the table `[limits]`, and the flags, which are built from the table of limits.

use crate::config::flag::{Commands, GUARD, Table};

use crate::config::kind::{Kind, Members, Problem, json_value};
use crate::config::trust::tighten::looser;
use clap::{Arg, ArgAction, ArgMatches, Command};
use endstop::Limits;
use endstop::core::limits::{LimitRow, TABLE, Unit};
use endstop::core::{Limit, LimitValue};
use serde_json::{Value, json};
use std::sync::LazyLock;
use std::time::Duration;

/// The limits that `-h` lists, too.
const BRIEF: [Limit; 4] =
    [Limit::MaxTurns, Limit::MaxBudgetUsd, Limit::Timeout, Limit::VerifyRounds];

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

/// Parses the value of a flag. Numbers and switches parse as JSON; other values (`10m`, `off`) do not and stay
/// strings.
pub(crate) fn value_of(text: String) -> Value {
    serde_json::from_str(&text).unwrap_or(Value::String(text))
}

/// Sets the limit of a flag.
///
/// # Errors
/// Names the flag.
pub(crate) fn set_by_flag(limits: &mut Limits, name: &str, value: &Value) -> Result<(), String> {
    let set = limits.set(name, value);
    set.map_err(|error| format!("--{}: {}", name.replace('_', "-"), error.problem))
}

/// The table `[limits]`.
pub(crate) struct LimitTable;

impl LimitTable {
    pub(crate) fn shown(own: &Limits) -> Members {
        let limits = serde_json::to_value(own).unwrap_or_default();
        let names = Limits::NAMES.iter();
        names.map(|name| (format!(".{name}"), as_in_a_file(&limits[name]))).collect()
    }

    /// Returns the limits of a stored run that are looser than the user's own.
    pub(crate) fn consent(stored: &Limits, own: &Limits) -> Members {
        let values = serde_json::to_value(stored).unwrap_or_default();
        let looser = looser(own, stored).into_iter();
        looser.map(|limit| (format!(".{limit}"), values[limit].clone())).collect()
    }
}

impl Kind for LimitTable {
    type Own = Limits;
    type Flag = Table<LimitArgs>;

    fn arg(arg: Arg, command: Commands) -> Arg {
        let is_brief = BRIEF.iter().any(|limit| arg.get_id() == limit.name());
        let arg = arg.hide_short_help(!is_brief);
        let Some(row) = LimitRow::of(arg.get_id().as_str()).filter(|_| command == GUARD) else {
            return arg;
        };
        // Guard refuses the limits that need a driver of the loop, and has no default for the others.
        let is_refused = endstop_guard::run::Settings::default().mode().obstacle(row).is_some();
        arg.help(description(row)).hide(is_refused)
    }

    fn take(own: &mut Limits, member: &str, value: &Value) -> Result<(), Problem> {
        own.set(member, value).map_err(|error| Problem::Table(error.to_string()))
    }

    fn above(own: &mut Limits, given: &Table<LimitArgs>, _: &str) -> Result<(), String> {
        let mut given = given.given().into_iter();
        given.try_for_each(|(name, text)| set_by_flag(own, name, &value_of(text)))
    }

    json_value!();
}

/// Formats a limit as a file spells it.
fn as_in_a_file(value: &Value) -> Value {
    let duration = || -> Option<Duration> {
        let nanos = u32::try_from(value.get("nanos")?.as_u64()?).ok()?;
        Some(Duration::new(value.get("secs")?.as_u64()?, nanos))
    };
    match value {
        Value::Null => json!("off"),
        Value::Object(_) => duration().map_or(value.clone(), |time| json!(format!("{time:?}"))),
        other => other.clone(),
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
                Unit::Windows => "SHARES",
                Unit::Rates => "RATES",
                _ => "N",
            })
            // A negative number is accepted as a value, so that the error names its limit instead
            // of an unknown flag.
            .allow_negative_numbers(true),
    }
}

/// Returns the first paragraph of the description.
fn description(row: &LimitRow) -> String {
    let text = row.paragraphs().next().unwrap_or_default();
    text.strip_suffix('.').map(str::to_owned).unwrap_or(text)
}

/// Returns the description with the default.
fn help(row: &LimitRow) -> String {
    match default_of(row) {
        Some(default) => format!("{} [default: {default}]", description(row)),
        None => description(row),
    }
}

/// Returns the default of a limit, if it is not off.
pub(crate) fn default_of(row: &LimitRow) -> Option<String> {
    if !row.default_note.is_empty() {
        return Some(row.default_note.replace("`retry_for`", "--retry-for"));
    }
    spelled_value(row.value(&Limits::default()))
}

/// Spells the value of a limit as its flag takes it; `None` if it is off or a switch.
pub(crate) fn spelled_value(value: LimitValue) -> Option<String> {
    match value {
        LimitValue::Off | LimitValue::Switch(_) => None,
        LimitValue::Count(count) => Some(count.to_string()),
        LimitValue::Usd(usd) => Some(usd.to_string()),
        LimitValue::Tokens(counts) => Some(counts.as_str().to_owned()),
        LimitValue::Windows(shares) => Some(shares.to_string()),
        LimitValue::Rates(rates) => Some(rates.to_string()),
        LimitValue::Time(time) => Some(spelled(time)),
    }
}

/// Spells a duration as the user would: in whole minutes from two minutes on, otherwise in seconds.
fn spelled(time: Duration) -> String {
    match time.as_secs() {
        seconds if seconds >= 120 && seconds % 60 == 0 => format!("{}m", seconds / 60),
        _ => format!("{}s", time.as_secs_f64()),
    }
}
