//! One setting: its row in the table, its flag, and the kinds of values that several settings have.
//!
//! The table is in `config::settings`. A kind with a parser of its own is next to its values, for example
//! `config::http`, or in `config::kinds`.

use crate::config::settings::{ROWS, SettingArgs, Settings};
use crate::input::is_short_help;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use endstop::agent::AgentBuilder;
use endstop::journal::RecordedRun;
use endstop::provider::http::HttpProviderBuilder;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::time::Duration;

/// The commands that have a setting, as a set of bits.
pub(crate) type Commands = u8;

pub(crate) const RUN: Commands = 1;
pub(crate) const BRANCH: Commands = 1 << 1;
pub(crate) const ACP: Commands = 1 << 2;
pub(crate) const GUARD: Commands = 1 << 3;
/// The agents of a settings file, `[agents.NAME]`, which `serve` and `worker` run.
pub(crate) const AGENT: Commands = 1 << 4;
/// Only a settings file as a whole.
pub(crate) const FILE: Commands = 0;

/// A group of flags, in the order in which `--help` lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Heading {
    Model,
    Tools,
    Limits,
    Judging,
    Params,
    Recording,
    Journal,
    Output,
}

impl Heading {
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Heading::Model => "Model and server",
            Heading::Tools => "Tools and approval",
            Heading::Limits => "Limits (a value of `off` disables one)",
            Heading::Judging => "Judging the result",
            Heading::Params => "Request parameters",
            Heading::Recording => "Recording and resuming",
            Heading::Journal => "Journal and money",
            Heading::Output => "Output",
        }
    }
}

/// The flag of a setting.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flag {
    /// The name, without `--`.
    pub(crate) long: &'static str,
    pub(crate) short: Option<char>,
    /// The name of the value in the help.
    pub(crate) value: &'static str,
    pub(crate) heading: Heading,
    /// `true` to list it in `-h`, too.
    pub(crate) brief: bool,
    /// The descriptions for commands in which it differs from that of `run`.
    pub(crate) elsewhere: &'static [(Commands, &'static str)],
}

/// Returns a flag that only `--help` lists.
pub(crate) const fn flag(long: &'static str, value: &'static str, heading: Heading) -> Flag {
    Flag { long, short: None, value, heading, brief: false, elsewhere: &[] }
}

/// Returns a flag that `-h` lists, too.
pub(crate) const fn brief(long: &'static str, value: &'static str, heading: Heading) -> Flag {
    Flag { brief: true, ..flag(long, value, heading) }
}

/// The change that a file may make to a setting without consent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Trust {
    /// None: the setting starts a process, chooses a host or a price, or sets where files are written; or a value
    /// cannot be shown to be tighter.
    Nothing,
    /// Any.
    Anything,
    /// Set it to this value, or leave it as it is.
    Only(bool),
    /// Lower it.
    Lower,
    /// Set it if the user has not set it.
    IfNone,
    /// Set it if the user has not set it to another value.
    IfNoOther,
    /// Those that this function does not refuse, by the user's settings, the member and the value.
    Judged(fn(&Settings, &str, &Value) -> Result<bool, String>),
}

impl Trust {
    /// `true` if a value needs consent, compared with the user's own settings.
    ///
    /// # Errors
    /// A value of the wrong type or out of range.
    pub(crate) fn needs_consent(
        self,
        row: &Row,
        own: &Settings,
        member: &str,
        value: &Value,
    ) -> Result<bool, String> {
        let now = (row.json)(own);
        Ok(match self {
            Trust::Nothing => true,
            Trust::Anything => false,
            // Repeating the user's own value is not a change, so it needs no consent either.
            Trust::Only(allowed) => {
                value.as_bool().is_some_and(|value| value != allowed && now != value)
            }
            Trust::Lower => {
                let looser = |own: u64| value.as_u64().is_none_or(|value| value > own);
                now.as_u64().is_some_and(looser)
            }
            Trust::IfNone => !now.is_null(),
            Trust::IfNoOther => !now.is_null() && now != *value,
            Trust::Judged(refuses) => refuses(own, member, value)?,
        })
    }
}

/// The part of a journal that stores a setting, and the stored values that need consent because another person may
/// have written the journal.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stored {
    /// None: a resumed run has it from its flags alone.
    No,
    /// The settings of the run.
    Always(Consent),
    /// The settings of the run, if the value is not empty.
    IfSet(Consent),
    /// The header of the run, from which this function reads it.
    Header(fn(&mut Settings, &RecordedRun) -> Result<(), String>, Consent),
}

/// The values of a stored run that need consent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Consent {
    /// None: the setting starts no process, chooses no host, and loosens no limit.
    Never,
    /// All but the empty one.
    IfSet,
    /// Those that are set and differ from the user's own.
    IfOther,
    /// Those that a settings file may not set.
    AsFile,
    /// Each server, with its variables and headers.
    EachServer,
    /// Those that this function returns for the stored settings, the user's own, and the flags.
    Judged(fn(&Settings, &Settings, &SettingArgs) -> Members),
}

/// The place where a setting takes effect.
#[derive(Clone, Copy)]
pub(crate) enum Apply {
    Agent(fn(AgentBuilder, &Settings) -> AgentBuilder),
    /// The provider of the model.
    Server(fn(HttpProviderBuilder, &Settings) -> HttpProviderBuilder),
    /// The command, because it takes what only the command has: servers, the journal, a terminal.
    Command,
}

/// Values with the ends of their names: `""` for a setting itself, `.proxy` for a member of a table.
pub(crate) type Members = Vec<(String, Value)>;

/// A row of the table of settings.
pub(crate) struct Row {
    /// The field of [`Settings`], which is also the member of stored settings.
    pub(crate) name: &'static str,
    /// The key in a settings file; `None` if only a flag sets it.
    pub(crate) key: Option<&'static str>,
    pub(crate) help: &'static str,
    pub(crate) flag: Option<Flag>,
    /// The commands that have the flag; with [`AGENT`], an agent of a settings file may have the key.
    pub(crate) commands: Commands,
    pub(crate) trust: Trust,
    pub(crate) stored: Stored,
    pub(crate) apply: Apply,
    /// Merges a value of a settings file, or a member of a table.
    pub(crate) take: fn(&mut Settings, &str, &Value) -> Result<(), Problem>,
    /// Merges the flag.
    pub(crate) above: fn(&mut Settings, &SettingArgs, &str) -> Result<(), String>,
    pub(crate) args: fn(&Row, Commands) -> Vec<Arg>,
    /// Returns the names of the settings that the flag sets, each with the flag.
    pub(crate) given: fn(&SettingArgs, &Row) -> Vec<(String, String)>,
    /// Returns the value as a settings file spells it.
    pub(crate) json: fn(&Settings) -> Value,
    /// Returns the value for display, without secrets.
    pub(crate) shown: fn(&Settings) -> Members,
    pub(crate) save: fn(&Settings) -> Value,
    pub(crate) restore: fn(&mut Settings, &Value) -> Result<(), String>,
}

impl Row {
    /// Returns the row with this key in settings files.
    pub(crate) fn of_key(key: &str) -> Option<&'static Row> {
        ROWS.iter().find(|row| row.key == Some(key))
    }

    /// Returns the flag as it is written.
    pub(crate) fn spelled(&self) -> String {
        self.flag.map(|flag| format!("--{}", flag.long)).unwrap_or_default()
    }

    /// Returns the name of what an argument of this row sets. The arguments of a table are its members.
    fn set_by(&self, id: &str) -> String {
        let key = self.key.unwrap_or(self.name);
        if id == self.name { key.to_owned() } else { format!("{key}.{id}") }
    }

    /// Returns the argument of the flag, with its description in this command.
    fn arg(&self, command: Commands) -> Option<Arg> {
        let flag = self.flag?;
        let other = flag.elsewhere.iter().find(|(commands, _)| commands & command != 0);
        let words = other.map_or(self.help, |(_, words)| words);
        // As clap shows a doc comment.
        let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
        let words = words.strip_suffix('.').map(str::to_owned).unwrap_or(words);
        let arg = Arg::new(self.name).long(flag.long).value_name(flag.value).help(words);
        Some(match flag.short {
            Some(short) => arg.short(short),
            None => arg,
        })
    }
}

/// Returns the flag of a setting by its name in a settings file, for example `limits.max_turns`.
pub(crate) fn flag_of(name: &str) -> Option<String> {
    let row = Row::of_key(name.split_once('.').map_or(name, |(table, _)| table))?;
    let args = (row.args)(row, row.commands);
    // A flag that is not a table sets each of its members.
    let sets = |arg: &&Arg| arg.get_id() == row.name || row.set_by(arg.get_id().as_str()) == name;
    args.iter().find(sets).and_then(Arg::get_long).map(|long| format!("--{long}"))
}

/// Returns the settings that the flags set, by name, each with its flag.
pub(crate) fn given(args: &SettingArgs) -> BTreeMap<String, String> {
    ROWS.iter().filter(|row| row.key.is_some()).flat_map(|row| (row.given)(args, row)).collect()
}

/// The flags of the settings that a command has.
#[derive(Clone, Debug, Default)]
pub(crate) struct OfCommand<const COMMAND: Commands>(SettingArgs);

impl<const COMMAND: Commands> Deref for OfCommand<COMMAND> {
    type Target = SettingArgs;

    fn deref(&self) -> &SettingArgs {
        &self.0
    }
}

impl<const COMMAND: Commands> DerefMut for OfCommand<COMMAND> {
    fn deref_mut(&mut self) -> &mut SettingArgs {
        &mut self.0
    }
}

impl<const COMMAND: Commands> clap::Args for OfCommand<COMMAND> {
    fn augment_args(command: Command) -> Command {
        let rows = ROWS.iter().filter(|row| row.commands & COMMAND != 0);
        let mut rows: Vec<(Flag, &Row)> = rows.filter_map(|row| Some((row.flag?, row))).collect();
        // clap lists the groups in the order of their first flags.
        rows.sort_by_key(|(flag, _)| flag.heading);
        let args = rows.into_iter().flat_map(|(flag, row)| {
            let args = (row.args)(row, COMMAND).into_iter();
            args.map(move |arg| {
                let hidden = is_short_help() && (arg.is_hide_short_help_set() || !flag.brief);
                // The place in a table would otherwise be the place in the group.
                let arg = arg.display_order(None::<usize>);
                arg.help_heading(flag.heading.title()).hide_short_help(hidden)
            })
        });
        command.args(args)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<const COMMAND: Commands> clap::FromArgMatches for OfCommand<COMMAND> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(OfCommand(SettingArgs::read(matches, COMMAND)))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The problem of a value in a settings file, by what the error names.
#[derive(Debug)]
pub(crate) enum Problem {
    /// The key: `` `model`: … ``.
    Key(String),
    /// The table: `[params]: …`.
    Table(String),
    /// The problem names it.
    Whole(String),
}

impl From<&str> for Problem {
    fn from(problem: &str) -> Problem {
        Problem::Key(problem.to_owned())
    }
}

/// A kind of setting: how its value is read, merged, stored and spelled.
pub(crate) trait Kind {
    type Own;
    type Flag: FlagValue;

    /// Completes the argument of the flag.
    fn arg(arg: Arg, _command: Commands) -> Arg {
        arg
    }

    /// Merges a value of a settings file; of a table, the value of a member. The default is that of a setting without
    /// a key.
    fn take(_: &mut Self::Own, _member: &str, _value: &Value) -> Result<(), Problem> {
        Err("it is set with a flag".into())
    }

    /// Merges the flag. The default is that of a setting without one.
    ///
    /// # Errors
    /// Names the flag and the problem.
    fn above(_: &mut Self::Own, _given: &Self::Flag, _flag: &str) -> Result<(), String> {
        Ok(())
    }

    /// Returns the value as a settings file spells it.
    fn json(own: &Self::Own) -> Value;

    /// Returns the value that a journal stores.
    fn save(own: &Self::Own) -> Value {
        Self::json(own)
    }

    /// Reads the value that a journal stored.
    fn restore(own: &mut Self::Own, stored: &Value) -> Result<(), String>;
}

/// Reads a stored value.
pub(crate) fn restored<T: DeserializeOwned>(own: &mut T, stored: &Value) -> Result<(), String> {
    *own = serde_json::from_value(stored.clone()).map_err(|error| error.to_string())?;
    Ok(())
}

/// The functions of a kind whose value is the same in a settings file and in a journal.
macro_rules! json_value {
    () => {
        fn json(own: &Self::Own) -> Value {
            crate::config::setting::plain(own)
        }

        fn restore(own: &mut Self::Own, stored: &Value) -> Result<(), String> {
            crate::config::setting::restored(own, stored)
        }
    };
}

pub(crate) use json_value;

/// Returns a value as JSON.
pub(crate) fn plain<T: Serialize>(own: &T) -> Value {
    // The values are numbers, strings, lists and tables of strings, which JSON can represent.
    serde_json::to_value(own).unwrap_or_default()
}

/// Returns a value for display as a settings file spells it.
pub(crate) fn as_json<T: Serialize>(own: &T) -> Members {
    one(plain(own))
}

/// Returns a value for display.
pub(crate) fn one(value: Value) -> Members {
    vec![(String::new(), value)]
}

/// A value of flags.
pub(crate) trait FlagValue: Clone + Debug + Default {
    /// Returns the arguments of the flag.
    fn args(row: &Row, command: Commands, complete: fn(Arg, Commands) -> Arg) -> Vec<Arg>;

    fn read(matches: &ArgMatches, id: &str) -> Self;

    /// Returns the names of the settings that it sets, each with its flag.
    fn given(&self, row: &Row) -> Vec<(String, String)>;
}

/// Reads the flag of a kind, if the command has it.
pub(crate) fn read<K: Kind>(matches: &ArgMatches, name: &str, command: Commands) -> K::Flag {
    let has = |row: &&Row| row.name == name && row.flag.is_some() && row.commands & command != 0;
    match ROWS.iter().find(has) {
        Some(row) => K::Flag::read(matches, row.name),
        None => K::Flag::default(),
    }
}

fn single(
    row: &Row,
    command: Commands,
    complete: fn(Arg, Commands) -> Arg,
    own: fn(Arg) -> Arg,
) -> Vec<Arg> {
    row.arg(command).map(|arg| complete(own(arg), command)).into_iter().collect()
}

fn if_given(is_given: bool, row: &Row) -> Vec<(String, String)> {
    is_given.then(|| (row.set_by(row.name), row.spelled())).into_iter().collect()
}

impl FlagValue for () {
    fn args(_: &Row, _: Commands, _: fn(Arg, Commands) -> Arg) -> Vec<Arg> {
        Vec::new()
    }

    fn read(_: &ArgMatches, _: &str) {}

    fn given(&self, _: &Row) -> Vec<(String, String)> {
        Vec::new()
    }
}

impl FlagValue for bool {
    fn args(row: &Row, command: Commands, complete: fn(Arg, Commands) -> Arg) -> Vec<Arg> {
        single(row, command, complete, |arg| arg.action(ArgAction::SetTrue))
    }

    fn read(matches: &ArgMatches, id: &str) -> bool {
        matches.get_flag(id)
    }

    fn given(&self, row: &Row) -> Vec<(String, String)> {
        if_given(*self, row)
    }
}

impl FlagValue for Vec<String> {
    fn args(row: &Row, command: Commands, complete: fn(Arg, Commands) -> Arg) -> Vec<Arg> {
        single(row, command, complete, |arg| arg.action(ArgAction::Append))
    }

    fn read(matches: &ArgMatches, id: &str) -> Vec<String> {
        matches.get_many(id).into_iter().flatten().cloned().collect()
    }

    fn given(&self, row: &Row) -> Vec<(String, String)> {
        if_given(!self.is_empty(), row)
    }
}

/// A value of a flag that is given once.
pub(crate) trait Once: Clone + Debug + Send + Sync + 'static {
    fn arg(arg: Arg) -> Arg;
}

impl<T: Once> FlagValue for Option<T> {
    fn args(row: &Row, command: Commands, complete: fn(Arg, Commands) -> Arg) -> Vec<Arg> {
        single(row, command, complete, T::arg)
    }

    fn read(matches: &ArgMatches, id: &str) -> Option<T> {
        matches.get_one(id).cloned()
    }

    fn given(&self, row: &Row) -> Vec<(String, String)> {
        if_given(self.is_some(), row)
    }
}

impl Once for String {
    fn arg(arg: Arg) -> Arg {
        arg
    }
}

impl Once for PathBuf {
    fn arg(arg: Arg) -> Arg {
        arg.value_parser(value_parser!(PathBuf))
    }
}

impl Once for u64 {
    fn arg(arg: Arg) -> Arg {
        // A negative number is accepted as a value, so that the error describes the value instead of an unknown flag.
        arg.value_parser(crate::quantity::tokens).allow_negative_numbers(true)
    }
}

impl Once for Duration {
    fn arg(arg: Arg) -> Arg {
        arg.value_parser(crate::quantity::time)
    }
}

/// The flags of a table's members, with the members that were given.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table<A> {
    args: A,
    given: Vec<String>,
}

impl<A> Deref for Table<A> {
    type Target = A;

    fn deref(&self) -> &A {
        &self.args
    }
}

impl<A: clap::Args + Clone + Debug + Default> Table<A> {
    fn members() -> Vec<Arg> {
        A::augment_args(Command::new("")).get_arguments().cloned().collect()
    }
}

impl<A: clap::Args + Clone + Debug + Default> FlagValue for Table<A> {
    fn args(_: &Row, command: Commands, complete: fn(Arg, Commands) -> Arg) -> Vec<Arg> {
        Self::members().into_iter().map(|arg| complete(arg, command)).collect()
    }

    fn read(matches: &ArgMatches, _: &str) -> Table<A> {
        let is_given = |id: &&str| matches.value_source(id) == Some(ValueSource::CommandLine);
        let members = Self::members();
        let ids = members.iter().map(|arg| arg.get_id().as_str());
        Table {
            given: ids.filter(is_given).map(str::to_owned).collect(),
            // The members have no rule that a match could break.
            args: A::from_arg_matches(matches).unwrap_or_default(),
        }
    }

    fn given(&self, row: &Row) -> Vec<(String, String)> {
        let members = Self::members().into_iter();
        let given = members.filter(|arg| self.given.iter().any(|id| arg.get_id() == id.as_str()));
        given
            .filter_map(|arg| {
                Some((row.set_by(arg.get_id().as_str()), format!("--{}", arg.get_long()?)))
            })
            .collect()
    }
}

/// A value that a file and a flag spell as one string.
pub(crate) trait Spelled {
    type Value: Clone + Serialize + DeserializeOwned;

    fn arg(arg: Arg) -> Arg {
        arg
    }

    /// Reads the value of a settings file.
    fn in_file(value: &Value) -> Result<Self::Value, Problem>;

    /// Reads the value of the flag.
    ///
    /// # Errors
    /// Names the flag and the problem.
    fn in_flag(text: &str, flag: &str) -> Result<Self::Value, String>;
}

/// A setting with one such value.
pub(crate) struct One<S>(PhantomData<S>);

impl<S: Spelled> Kind for One<S> {
    type Own = Option<S::Value>;
    type Flag = Option<String>;

    fn arg(arg: Arg, _: Commands) -> Arg {
        S::arg(arg)
    }

    fn take(own: &mut Self::Own, _: &str, value: &Value) -> Result<(), Problem> {
        *own = Some(S::in_file(value)?);
        Ok(())
    }

    fn above(own: &mut Self::Own, given: &Option<String>, flag: &str) -> Result<(), String> {
        if let Some(text) = given {
            *own = Some(S::in_flag(text, flag)?);
        }
        Ok(())
    }

    json_value!();
}

/// Any string.
pub(crate) struct Text;

/// Returns the string of a settings file.
pub(crate) fn text(value: &Value) -> Result<String, Problem> {
    value.as_str().map(str::to_owned).ok_or_else(|| "expected a string".into())
}

impl Spelled for Text {
    type Value = String;

    fn in_file(value: &Value) -> Result<String, Problem> {
        text(value)
    }

    fn in_flag(text: &str, _: &str) -> Result<String, String> {
        Ok(text.to_owned())
    }
}

/// A kind of names.
pub(crate) trait Named {
    /// The expected list, for errors.
    const EXPECTED: &str;
    /// `true` if a settings file may write a list of one name as a string.
    const MAY_BE_ONE: bool = false;

    /// Checks the names, and returns those that hold.
    fn checked(names: Vec<String>) -> Result<Vec<String>, String>;
}

/// A list of such names.
pub(crate) struct List<N>(PhantomData<N>);

impl<N: Named> Kind for List<N> {
    type Own = Vec<String>;
    type Flag = Vec<String>;

    fn take(own: &mut Vec<String>, _: &str, value: &Value) -> Result<(), Problem> {
        let name = |name: &Value| name.as_str().map(str::to_owned);
        let names = match value {
            Value::String(name) if N::MAY_BE_ONE => Some(vec![name.clone()]),
            value => value.as_array().and_then(|names| names.iter().map(name).collect()),
        };
        let names =
            names.ok_or_else(|| Problem::Key(format!("expected a list of {}", N::EXPECTED)))?;
        *own = N::checked(names).map_err(Problem::Key)?;
        Ok(())
    }

    fn above(own: &mut Vec<String>, given: &Vec<String>, flag: &str) -> Result<(), String> {
        if !given.is_empty() {
            let names = N::checked(given.clone());
            *own = names.map_err(|problem| format!("{flag}: {problem}"))?;
        }
        Ok(())
    }

    json_value!();
}

/// Names of any tools.
pub(crate) struct AnyTool;

impl Named for AnyTool {
    const EXPECTED: &str = "tool names";

    fn checked(names: Vec<String>) -> Result<Vec<String>, String> {
        Ok(names)
    }
}

/// A switch, whose flag can only switch it on.
pub(crate) struct Switch;

/// Returns the switch of a settings file.
pub(crate) fn switch(value: &Value) -> Result<bool, Problem> {
    value.as_bool().ok_or_else(|| "expected true or false".into())
}

impl Kind for Switch {
    type Own = bool;
    type Flag = bool;

    fn take(own: &mut bool, _: &str, value: &Value) -> Result<(), Problem> {
        *own = switch(value)?;
        Ok(())
    }

    fn above(own: &mut bool, given: &bool, _: &str) -> Result<(), String> {
        *own |= given;
        Ok(())
    }

    json_value!();
}

/// A number of tokens.
pub(crate) struct Tokens;

impl Kind for Tokens {
    type Own = Option<u64>;
    type Flag = Option<u64>;

    fn take(own: &mut Option<u64>, _: &str, value: &Value) -> Result<(), Problem> {
        let tokens = value.as_u64().filter(|tokens| *tokens > 0);
        *own = Some(tokens.ok_or("expected a whole number of tokens, 1 or more")?);
        Ok(())
    }

    fn above(own: &mut Option<u64>, given: &Option<u64>, _: &str) -> Result<(), String> {
        *own = given.or(*own);
        Ok(())
    }

    json_value!();
}

/// Returns a value, or `null` if it is empty.
pub(crate) fn unless_empty(value: Value) -> Value {
    if is_empty(&value) { Value::Null } else { value }
}

/// `true` if a value is empty: `null`, `[]` or `{}`.
pub(crate) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}
