//! The kinds of settings that only one setting has, each with its parser. Those of tables are next to their values:
//! `config::http`, `config::params`, `config::spend`, `config::servers`.

#![expect(clippy::ref_option, reason = "a row takes the value of its kind by reference")]

use crate::config::calibrated::Calibrated;
use crate::config::kind::{
    Kind, Members, Named, Problem, Spelled, json_value, one, plain, restored, switch, text,
};
use crate::config::state::default_journal;
use crate::config::trust::file::toml_file;
use crate::config::trust::shown;
use crate::config::trust::tighten::compaction_over;
use crate::failure::{Failure, Result as CommandResult};
use crate::input::Source;
use crate::spend_args::project;
use clap::Arg;
use endstop::compaction::CompactionConfig;
use endstop::core::ToolPolicy;
use endstop::policy::{BoxPolicy, Registry, TerminationPolicy};
use endstop::schema::OutputSchema;
use endstop::verifier::CommandVerifier;
use endstop::wire::catalog::prices::parse_price;
use endstop::wire::redact::{address, secrets_out};
use endstop::{Price, Watch};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Returns an address for display, without a credential.
pub(crate) fn without_credential(url: &Option<String>) -> Members {
    one(json!(url.as_deref().map(address)))
}

/// Returns text for display without secrets: users paste keys into commands and instructions.
pub(crate) fn without_secrets(text: &Option<String>) -> Members {
    one(json!(text.as_deref().map(secrets_out)))
}

/// Returns nothing for display, because no settings file has the setting.
pub(crate) fn not_shown<T>(_: &T) -> Members {
    Vec::new()
}

/// Models to call after others.
pub(crate) struct Fallback;

impl Named for Fallback {
    const EXPECTED: &str = "models";
    const MAY_BE_ONE: bool = true;

    /// A single `off` is the empty list.
    fn checked(models: Vec<String>) -> Result<Vec<String>, String> {
        if models == ["off"] {
            return Ok(Vec::new());
        }
        match models.iter().find(|model| !model.contains('/') || model.trim() != model.as_str()) {
            Some(wrong) => Err(format!(
                "invalid model `{}`: expected PROVIDER/MODEL, for example anthropic/claude-sonnet-4-5, or only `off`",
                shown(wrong)
            )),
            None => Ok(models),
        }
    }
}

/// Names of built-in tools.
pub(crate) struct BuiltInTool;

impl Named for BuiltInTool {
    const EXPECTED: &str = "tool names";

    fn checked(names: Vec<String>) -> Result<Vec<String>, String> {
        // `finish` is added with any tool and has no built-in entry, but naming it is allowed.
        for name in names.iter().filter(|name| *name != "finish") {
            endstop::tool::built_in(name).map_err(|problem| shown(&problem.to_string()))?;
        }
        Ok(names)
    }
}

/// The most calls of a tool, by its name: a table of a settings file, or TOOL=N of a flag.
pub(crate) struct MaxCalls;

impl Kind for MaxCalls {
    type Own = BTreeMap<String, u32>;
    type Flag = Vec<String>;

    fn take(own: &mut Self::Own, _: &str, value: &Value) -> Result<(), Problem> {
        own.extend(ToolPolicy::read_max_calls(value).map_err(Problem::Key)?);
        Ok(())
    }

    fn above(own: &mut Self::Own, given: &Vec<String>, flag: &str) -> Result<(), String> {
        for text in given {
            let limit = text.rsplit_once('=').and_then(|(tool, calls)| {
                let calls = calls.parse().ok()?;
                (!tool.is_empty()).then(|| (tool.to_owned(), calls))
            });
            let (tool, calls) = limit
                .ok_or_else(|| format!("{flag} `{text}`: expected TOOL=N, for example shell=20"))?;
            own.insert(tool, calls);
        }
        Ok(())
    }

    json_value!();
}

/// A folder, stored as an absolute path, because the run may be resumed from another folder.
pub(crate) struct Folder;

impl Folder {
    /// Returns the folder of a stored run for display, if something works in it and it is not this one.
    pub(crate) fn consent(stored: Option<&PathBuf>, works: bool) -> Members {
        let here = std::env::current_dir().ok();
        let dir = stored.filter(|dir| works && here.as_ref() != Some(*dir));
        dir.map(|dir| one(json!(dir.display().to_string()))).unwrap_or_default()
    }
}

impl Kind for Folder {
    type Own = Option<PathBuf>;
    type Flag = Option<PathBuf>;

    fn take(own: &mut Option<PathBuf>, _: &str, value: &Value) -> Result<(), Problem> {
        *own = Some(text(value)?.into());
        Ok(())
    }

    fn above(own: &mut Option<PathBuf>, given: &Option<PathBuf>, _: &str) -> Result<(), String> {
        *own = given.clone().or_else(|| own.take());
        Ok(())
    }

    fn json(own: &Option<PathBuf>) -> Value {
        json!(own.as_ref().map(|path| path.display().to_string()))
    }

    fn save(own: &Option<PathBuf>) -> Value {
        plain(&std::env::current_dir().ok().map(|here| match own {
            Some(dir) => here.join(dir),
            None => here,
        }))
    }

    fn restore(own: &mut Option<PathBuf>, stored: &Value) -> Result<(), String> {
        restored(own, stored)
    }
}

/// The journal file.
pub(crate) struct Journal;

impl Journal {
    /// Returns the file for display. Without a setting that is the default one, because a run would use it.
    pub(crate) fn shown(own: &Option<PathBuf>) -> Members {
        let journal = own.clone().or_else(default_journal);
        one(json!(journal.map(|path| path.display().to_string())))
    }
}

impl Kind for Journal {
    type Own = Option<PathBuf>;
    type Flag = Option<PathBuf>;

    fn take(own: &mut Option<PathBuf>, member: &str, value: &Value) -> Result<(), Problem> {
        Folder::take(own, member, value)
    }

    fn above(own: &mut Option<PathBuf>, given: &Option<PathBuf>, flag: &str) -> Result<(), String> {
        Folder::above(own, given, flag)
    }

    fn json(own: &Option<PathBuf>) -> Value {
        Folder::json(own)
    }

    fn restore(own: &mut Option<PathBuf>, stored: &Value) -> Result<(), String> {
        restored(own, stored)
    }
}

/// The command of a verifier.
pub(crate) struct Verifier;

impl Verifier {
    fn checked(command: String) -> Result<String, &'static str> {
        if CommandVerifier::new(&command).is_blank() {
            return Err("the command is blank, so it would accept every answer; set a command");
        }
        Ok(command)
    }
}

impl Spelled for Verifier {
    type Value = String;

    fn in_file(value: &Value) -> Result<String, Problem> {
        Ok(Verifier::checked(text(value)?)?)
    }

    fn in_flag(text: &str, flag: &str) -> Result<String, String> {
        Verifier::checked(text.to_owned()).map_err(|problem| format!("{flag}: {problem}"))
    }
}

/// The price of the model.
pub(crate) struct PriceText;

impl Spelled for PriceText {
    type Value = Price;

    fn in_file(value: &Value) -> Result<Price, Problem> {
        let text = price_text(value)
            .ok_or("expected a string such as \"in=3,out=15\" or a table of prices in dollars")?;
        // The error begins with `price:`.
        parse_price(&text).map_err(|error| Problem::Whole(shown(&error.to_string())))
    }

    fn in_flag(text: &str, flag: &str) -> Result<Price, String> {
        parse_price(text).map_err(|error| {
            let problem = error.to_string();
            format!("{flag}: {}", problem.strip_prefix("price: ").unwrap_or(&problem))
        })
    }
}

/// Converts a price to the form of `--price`: a string is taken as it is, a table is joined.
fn price_text(value: &Value) -> Option<String> {
    if let Some(text) = value.as_str() {
        return Some(text.to_owned());
    }
    // Formatted by `Display`, because JSON writes small numbers with an exponent, which `--price`
    // does not accept.
    let field = |(name, dollars): (&String, &Value)| {
        let dollars =
            dollars.as_i64().map(|n| n.to_string()).or(dollars.as_f64().map(|n| n.to_string()));
        Some(format!("{name}={}", dollars?))
    };
    Some(value.as_object()?.iter().map(field).collect::<Option<Vec<_>>>()?.join(","))
}

/// The name of a project.
pub(crate) struct Project;

impl Spelled for Project {
    type Value = String;

    fn arg(arg: Arg) -> Arg {
        arg.value_parser(project)
    }

    fn in_file(value: &Value) -> Result<String, Problem> {
        project(&text(value)?).map_err(Problem::Key)
    }

    fn in_flag(text: &str, _: &str) -> Result<String, String> {
        Ok(text.to_owned())
    }
}

/// Requests for streams, as a switch that is `true` if they are off: the flag switches them off, and a settings file
/// has `stream = false`.
pub(crate) struct NoStream;

impl Kind for NoStream {
    type Own = bool;
    type Flag = bool;

    fn take(own: &mut bool, _: &str, value: &Value) -> Result<(), Problem> {
        *own = !switch(value)?;
        Ok(())
    }

    fn above(own: &mut bool, given: &bool, _: &str) -> Result<(), String> {
        *own |= given;
        Ok(())
    }

    fn json(own: &bool) -> Value {
        (!own).into()
    }

    fn save(own: &bool) -> Value {
        (*own).into()
    }

    fn restore(own: &mut bool, stored: &Value) -> Result<(), String> {
        restored(own, stored)
    }
}

/// A termination policy.
pub(crate) struct Policy;

impl Kind for Policy {
    type Own = Option<BoxPolicy>;
    type Flag = Option<String>;

    fn take(own: &mut Option<BoxPolicy>, _: &str, value: &Value) -> Result<(), Problem> {
        let policy = Registry::default().build(value);
        *own = Some(policy.map_err(|error| Problem::Table(error.to_string()))?);
        Ok(())
    }

    fn above(own: &mut Option<BoxPolicy>, given: &Option<String>, _: &str) -> Result<(), String> {
        if let Some(spec) = given {
            *own = Some(policy(spec).map_err(|failure| failure.message)?);
        }
        Ok(())
    }

    fn json(own: &Option<BoxPolicy>) -> Value {
        json!(own.as_ref().map(TerminationPolicy::name))
    }

    fn restore(own: &mut Option<BoxPolicy>, stored: &Value) -> Result<(), String> {
        *own = Some(Registry::default().build(stored).map_err(|error| error.to_string())?);
        Ok(())
    }
}

/// Reads the policy of `--policy`: a TOML file, or text that the registry parses.
pub(crate) fn policy(spec: &str) -> CommandResult<BoxPolicy> {
    let registry = Registry::default();
    let path = Path::new(spec);
    let is_toml = path.extension().is_some_and(|ext| ext.eq_ignore_ascii_case("toml"));
    if is_toml {
        let mut table = toml_file(path)?;
        let spec = table.remove("policy").unwrap_or(Value::Object(table));
        return registry
            .build(&spec)
            .map_err(|error| Failure::usage(format!("{}: {error}", path.display())));
    }
    registry.build_text(spec).map_err(|error| Failure::usage(format!("--policy: {error}")))
}

/// The watch rules; `None` means the default rules.
pub(crate) struct Watches;

impl Watches {
    pub(crate) fn shown(own: &Option<Vec<Watch>>) -> Members {
        let watches = own.clone().unwrap_or_else(Watch::defaults);
        one(json!(watches.iter().map(Watch::to_string).collect::<Vec<_>>()))
    }
}

impl Kind for Watches {
    type Own = Option<Vec<Watch>>;
    type Flag = Vec<String>;

    fn take(own: &mut Option<Vec<Watch>>, _: &str, value: &Value) -> Result<(), Problem> {
        *own = Some(Watch::read(value).map_err(|error| Problem::Table(error.to_string()))?);
        Ok(())
    }

    fn above(own: &mut Option<Vec<Watch>>, given: &Vec<String>, flag: &str) -> Result<(), String> {
        if given.iter().any(|word| word == "off") {
            *own = Some(Vec::new());
        }
        for word in given.iter().filter(|word| *word != "off") {
            let watch =
                Watch::parse(word).map_err(|problem| format!("{flag} {word}: {problem}"))?;
            let watches = own.get_or_insert_with(Watch::defaults);
            // The flag overrides an entry of the same rule from the defaults or a file.
            watches.retain(|other| other.rule.name() != watch.rule.name());
            watches.push(watch);
        }
        Ok(())
    }

    json_value!();
}

/// The strategies that shorten a conversation.
pub(crate) struct Compaction;

impl Kind for Compaction {
    type Own = CompactionConfig;
    type Flag = Option<String>;

    fn take(own: &mut CompactionConfig, _: &str, value: &Value) -> Result<(), Problem> {
        *own = compaction_over(own, value).map_err(Problem::Table)?;
        Ok(())
    }

    fn above(own: &mut CompactionConfig, given: &Option<String>, flag: &str) -> Result<(), String> {
        if let Some(text) = given {
            // The flag sets only the strategies; the other compaction settings stay those of the
            // file.
            let read = CompactionConfig::read(&Value::String(text.clone()))
                .map_err(|problem| format!("{flag}: {problem}"))?;
            own.strategies = read.strategies;
        }
        Ok(())
    }

    fn json(own: &CompactionConfig) -> Value {
        plain(own)
    }

    fn restore(own: &mut CompactionConfig, stored: &Value) -> Result<(), String> {
        *own = CompactionConfig::read(stored).map_err(|error| error.to_string())?;
        Ok(())
    }
}

/// The runs for which the promise of a calibrated rule was made.
pub(crate) struct Calibration;

impl Calibration {
    pub(crate) fn shown(own: &Option<Calibrated>) -> Members {
        own.as_ref().map(|own| one(json!(own))).unwrap_or_default()
    }
}

impl Kind for Calibration {
    type Own = Option<Calibrated>;
    type Flag = ();

    fn take(own: &mut Option<Calibrated>, _: &str, value: &Value) -> Result<(), Problem> {
        *own = Some(Calibrated::read(value).map_err(Problem::Table)?);
        Ok(())
    }

    json_value!();
}

/// A JSON Schema, which only a flag sets.
pub(crate) struct Schema;

impl Kind for Schema {
    type Own = Option<Value>;
    type Flag = Option<PathBuf>;

    fn above(own: &mut Option<Value>, given: &Option<PathBuf>, flag: &str) -> Result<(), String> {
        let Some(path) = given else { return Ok(()) };
        let source = Source::of(Some(path));
        let schema = source.json().map_err(|error| format!("{flag} {}", error.message))?;
        OutputSchema::new(schema.clone())
            .map_err(|error| format!("{flag} {}: {error}", source.name()))?;
        *own = Some(schema);
        Ok(())
    }

    json_value!();
}

/// `true` if a recording is replayed, which only a flag sets.
pub(crate) struct Replayed;

impl Kind for Replayed {
    type Own = bool;
    type Flag = Option<PathBuf>;

    fn above(own: &mut bool, given: &Option<PathBuf>, _: &str) -> Result<(), String> {
        *own = given.is_some();
        Ok(())
    }

    json_value!();
}
