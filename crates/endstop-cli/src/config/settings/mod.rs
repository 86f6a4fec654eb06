//! The settings of a run: merges files, flags and a stored run.
//!
//! Every error names the file and the key. Which files are read is decided in `config::trust`.

mod table;

use crate::config::flag::{AGENT, Commands, Flag};
use crate::config::kind::Problem;
use crate::config::park;
use crate::config::servers::ServerSettings;
use crate::config::trust::file::Entry;
use crate::config::trust::{Origin, seal, shown};
use crate::failure::{Failure, Result};
use crate::input::is_short_help;
use clap::{Arg, ArgMatches, Command};
use endstop::Limits;
use endstop::agent::AgentBuilder;
use endstop::core::limits::unknown_key;
use endstop::journal::RunHeader;
use endstop::mcp::McpServer;
use endstop::verifier::CommandVerifier;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::path::Path;
pub(crate) use table::{Apply, Consent, ROWS, Row, SettingArgs, Settings, Stored};

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

impl Settings {
    /// Returns the settings to store in the journal. The journal stores the others (limits, policy,
    /// schema) in the run's header.
    pub(crate) fn saved(&self) -> Value {
        let mut saved = Map::new();
        for row in &ROWS {
            let value = (row.save)(self);
            match row.stored {
                Stored::Always(_) => drop(saved.insert(row.name.to_owned(), value)),
                // Not an empty table, which stands for defaults, such as those of a parked run.
                Stored::IfSet(_) if !value.is_null() && value != Value::Array(Vec::new()) => {
                    saved.insert(row.name.to_owned(), value);
                }
                Stored::IfSet(_) | Stored::Header(..) | Stored::No => {}
            }
        }
        let mut saved = Value::Object(saved);
        // The seal covers everything that a resume would execute or contact, so it is computed
        // last.
        let seal = self.stored_in.as_deref().and_then(|journal| seal::of(&saved, journal));
        if let (Some(seal), Some(members)) = (seal, saved.as_object_mut()) {
            members.insert(seal::MEMBER.to_owned(), seal.into());
        }
        saved
    }

    /// Reads the settings that a journal stored. `None` if they are not those of `endstop run`.
    ///
    /// # Errors
    /// Names the setting that cannot be read.
    pub(crate) fn restored(stored: &Value) -> Option<Result<Settings, String>> {
        let stored = stored.as_object()?;
        let mut settings = Settings::default();
        for row in &ROWS {
            let value = match (row.stored, stored.get(row.name)) {
                (Stored::Always(_) | Stored::IfSet(_), Some(value)) => value,
                (Stored::Always(_), None) => return None,
                (Stored::IfSet(_) | Stored::Header(..) | Stored::No, _) => continue,
            };
            if let Err(problem) = (row.restore)(&mut settings, value) {
                return Some(Err(format!("its {}: {problem}", row.name)));
            }
        }
        Some(Ok(settings))
    }

    /// Builds the MCP servers, with variables expanded.
    ///
    /// # Errors
    /// Names the server whose variable is not set.
    pub(crate) fn servers(&self) -> Result<Vec<McpServer>> {
        let build = |one: &ServerSettings| {
            one.server(self.dir.as_deref(), self.allow_http)
                .map_err(|problem| Failure::usage(format!("MCP server `{}`: {problem}", one.name)))
        };
        self.mcp.iter().map(build).collect()
    }

    /// Returns the verifier that runs after the run. With rounds it runs before, as part of the run.
    pub(crate) fn verify_after(&self) -> Option<String> {
        self.verify.clone().filter(|_| self.limits.verify_rounds.is_none())
    }

    /// Makes the verifier a part of the run.
    pub(crate) fn verified_by(&self, agent: AgentBuilder) -> AgentBuilder {
        let Some(command) = &self.verify else { return agent };
        let verifier = CommandVerifier::new(command);
        agent.verifier(match &self.dir {
            Some(dir) => verifier.in_dir(dir),
            None => verifier,
        })
    }

    /// Returns the journal that the folder's file or the `--config` file names. It overrides the
    /// environment, unlike the journal in the user's own file.
    pub(crate) fn folder_journal(&self) -> Option<&Path> {
        let own = matches!(self.origins.get("journal"), Some(Origin::User(_)));
        self.journal.as_deref().filter(|_| !own)
    }

    /// Merges the flags into the settings.
    pub(crate) fn above(&mut self, args: &SettingArgs) -> Result<()> {
        for (name, flag) in given(args) {
            self.origins.insert(name, Origin::Flag(flag));
        }
        let rows = ROWS.iter().try_for_each(|row| (row.above)(self, args, &row.spelled()));
        rows.and_then(|()| {
            park::merge(&mut self.ask, &mut self.park, args.ask.as_deref(), args.park)
        })
        .map_err(Failure::usage)
    }

    /// Merges one entry of a settings file; `name` is the file's name for errors.
    pub(crate) fn take(&mut self, entry: &Entry, name: &str) -> Result<()> {
        let (key, member) = entry.parts();
        let taken = match Row::of_key(key) {
            Some(row) => (row.take)(self, member.unwrap_or_default(), &entry.value),
            None if Limits::NAMES.contains(&key) => Err(Problem::Key(format!(
                "a limit belongs to the table [limits]; write `{key} = …` below it"
            ))),
            None => {
                let keys: Vec<&str> = ROWS.iter().filter_map(|row| row.key).collect();
                Err(Problem::Key(shown(&unknown_key(key, &keys))))
            }
        };
        let name = match entry.line {
            Some(line) => format!("{name}: line {line}"),
            None => name.to_owned(),
        };
        // Quoted text comes from the file and may hold control characters.
        taken.map_err(|problem| {
            Failure::usage(match problem {
                Problem::Key(problem) => format!("{name}: `{}`: {problem}", shown(key)),
                Problem::Table(problem) => {
                    format!("{name}: {}", shown(&format!("[{key}]: {problem}")))
                }
                Problem::Whole(problem) => format!("{name}: {problem}"),
            })
        })
    }

    /// Returns these settings with those of an agent over them; `file` is the file's name for
    /// errors.
    pub(crate) fn of_agent(&self, agent: &str, file: &str) -> Result<Settings> {
        let mut settings = self.clone();
        if let Some(value) = self.agents.get(agent) {
            let taken = settings.take_agent(agent, value);
            taken.map_err(|problem| Failure::usage(format!("{file}: {problem}")))?;
        }
        Ok(settings)
    }

    /// Merges the table of an agent.
    ///
    /// # Errors
    /// Names the table and the key.
    pub(crate) fn take_agent(&mut self, agent: &str, value: &Value) -> Result<(), String> {
        let wrong = |problem: &str| shown(&format!("[agents.{agent}]: {problem}"));
        let table = value.as_object().cloned().ok_or_else(|| wrong("expected a table"))?;
        let entries = Entry::all_of(table).map_err(|problem| wrong(&problem))?;
        for entry in &entries {
            let row = Row::of_key(entry.parts().0);
            if row.is_some_and(|row| row.commands & AGENT == 0) {
                return Err(wrong(&format!("`{}` does not belong to an agent", entry.name)));
            }
            self.take(entry, &format!("[agents.{agent}]")).map_err(|failure| failure.message)?;
        }
        Ok(())
    }
}

/// `true` if `--resume` can continue the run: its settings name a model or a server, and it was not
/// replayed from a recording.
pub(crate) fn is_resumable(header: &RunHeader) -> bool {
    matches!(
        Settings::restored(&header.settings),
        Some(Ok(settings)) if !settings.replay && (settings.model.is_some() || settings.base_url.is_some())
    )
}
