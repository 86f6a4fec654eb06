//! How settings are spelled, on the command line and in files, and the values of flags.

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use std::fmt::Debug;
use std::ops::Deref;
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
/// The servers of runs, `serve` and `worker`.
pub(crate) const SERVE: Commands = 1 << 5;
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

/// The names of a setting.
#[derive(Debug)]
pub(crate) struct Spelling {
    /// The field of `Settings`, which is also the member of stored settings.
    pub(crate) name: &'static str,
    /// The key in a settings file; `None` if only a flag sets it.
    pub(crate) key: Option<&'static str>,
    pub(crate) help: &'static str,
    pub(crate) flag: Option<Flag>,
    /// The commands that have the flag; with [`AGENT`], an agent of a settings file may have the key.
    pub(crate) commands: Commands,
}

impl Spelling {
    /// Returns the flag as it is written.
    pub(crate) fn spelled(&self) -> String {
        self.flag.map(|flag| format!("--{}", flag.long)).unwrap_or_default()
    }

    /// Returns the name of what an argument of this setting sets. The arguments of a table are its members.
    pub(crate) fn set_by(&self, id: &str) -> String {
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

/// A value of flags.
pub(crate) trait FlagValue: Clone + Debug + Default {
    /// Returns the arguments of the flag.
    fn args(setting: &Spelling, command: Commands, complete: fn(Arg, Commands) -> Arg) -> Vec<Arg>;

    fn read(matches: &ArgMatches, id: &str) -> Self;

    /// Returns the names of the settings that it sets, each with its flag.
    fn given(&self, setting: &Spelling) -> Vec<(String, String)>;
}

fn single(
    setting: &Spelling,
    command: Commands,
    complete: fn(Arg, Commands) -> Arg,
    own: fn(Arg) -> Arg,
) -> Vec<Arg> {
    setting.arg(command).map(|arg| complete(own(arg), command)).into_iter().collect()
}

fn if_given(is_given: bool, setting: &Spelling) -> Vec<(String, String)> {
    is_given.then(|| (setting.set_by(setting.name), setting.spelled())).into_iter().collect()
}

impl FlagValue for () {
    fn args(_: &Spelling, _: Commands, _: fn(Arg, Commands) -> Arg) -> Vec<Arg> {
        Vec::new()
    }

    fn read(_: &ArgMatches, _: &str) {}

    fn given(&self, _: &Spelling) -> Vec<(String, String)> {
        Vec::new()
    }
}

impl FlagValue for bool {
    fn args(setting: &Spelling, command: Commands, complete: fn(Arg, Commands) -> Arg) -> Vec<Arg> {
        single(setting, command, complete, |arg| arg.action(ArgAction::SetTrue))
    }

    fn read(matches: &ArgMatches, id: &str) -> bool {
        matches.get_flag(id)
    }

    fn given(&self, setting: &Spelling) -> Vec<(String, String)> {
        if_given(*self, setting)
    }
}

impl FlagValue for Vec<String> {
    fn args(setting: &Spelling, command: Commands, complete: fn(Arg, Commands) -> Arg) -> Vec<Arg> {
        single(setting, command, complete, |arg| arg.action(ArgAction::Append))
    }

    fn read(matches: &ArgMatches, id: &str) -> Vec<String> {
        matches.get_many(id).into_iter().flatten().cloned().collect()
    }

    fn given(&self, setting: &Spelling) -> Vec<(String, String)> {
        if_given(!self.is_empty(), setting)
    }
}

/// A value of a flag that is given once.
pub(crate) trait Once: Clone + Debug + Send + Sync + 'static {
    fn arg(arg: Arg) -> Arg;
}

impl<T: Once> FlagValue for Option<T> {
    fn args(setting: &Spelling, command: Commands, complete: fn(Arg, Commands) -> Arg) -> Vec<Arg> {
        single(setting, command, complete, T::arg)
    }

    fn read(matches: &ArgMatches, id: &str) -> Option<T> {
        matches.get_one(id).cloned()
    }

    fn given(&self, setting: &Spelling) -> Vec<(String, String)> {
        if_given(self.is_some(), setting)
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
    fn args(_: &Spelling, command: Commands, complete: fn(Arg, Commands) -> Arg) -> Vec<Arg> {
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

    fn given(&self, setting: &Spelling) -> Vec<(String, String)> {
        let members = Self::members().into_iter();
        let given = members.filter(|arg| self.given.iter().any(|id| arg.get_id() == id.as_str()));
        given
            .filter_map(|arg| {
                Some((setting.set_by(arg.get_id().as_str()), format!("--{}", arg.get_long()?)))
            })
            .collect()
    }
}
