//! `endstop config show`: prints the settings that a run would have, each with its origin.

use crate::args::RunArgs;
use crate::config::journal_path;
use crate::config::servers::{ServerPlace, ServerSettings};
use crate::config::settings::Settings;
use crate::config::trust::file::Entry;
use crate::config::trust::{Layers, Origin, flags, shown};
use crate::failure::Result;
use crate::output;
use endstop::wire::catalog::providers::provider;
use endstop::wire::redact::{address, secrets_out};
use endstop::{Limits, Watch, policy::TerminationPolicy as _};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// The replacement for a value that may be a secret.
const REDACTED: &str = "[redacted]";

pub(crate) fn show(args: &RunArgs, json: bool) -> Result {
    let layers = Layers::find(args, Path::new("."))?;
    let (mut settings, refused) = layers.merged()?;
    settings.above(args)?;
    layers.announce(&settings);
    let rows = rows(&settings);
    if json {
        let given = flags::given(args);
        let refused: Vec<Value> = refused
            .iter()
            .map(|entry| json!({"key": entry.name, "overridden_by": given.get(entry.sets())}))
            .collect();
        let rows: Vec<Value> = rows.into_iter().map(Row::json).collect();
        output::json(&json!({
            "type": "config",
            "files": {
                "user": layers.user.as_ref().map(|file| &file.name),
                "folder": layers.folder.as_ref().map(|folder| folder.path.display().to_string()),
                "config": layers.config.as_ref().map(|file| &file.name),
            },
            "settings": rows,
            "needs_consent": refused,
        }));
        return Ok(0);
    }
    for row in rows {
        output::line(&row.text());
    }
    if let Some(folder) = layers.folder.as_ref().filter(|_| !refused.is_empty()) {
        let names: Vec<String> =
            refused.iter().map(|entry: &&Entry| format!("`{}`", shown(&entry.name))).collect();
        output::note(&format!(
            "endstop: {} is not trusted but also asks for {}; run `endstop trust` to see and allow it",
            shown(&folder.path.display().to_string()),
            names.join(", ")
        ));
    }
    Ok(0)
}

/// A setting with its value and its origin.
struct Row {
    name: String,
    value: Value,
    origin: Option<Origin>,
}

impl Row {
    fn text(self) -> String {
        let value = match &self.value {
            Value::Null => "none".to_owned(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let origin = self.origin.map_or_else(|| "default".to_owned(), |origin| origin.to_string());
        format!("{} = {}  ({origin})", shown(&self.name), shown(&value))
    }

    fn json(self) -> Value {
        let kind = self.origin.as_ref().map_or("default", Origin::kind);
        let place = self.origin.as_ref().map(Origin::place);
        json!({"name": self.name, "value": self.value, "origin": kind, "place": place})
    }
}

/// Returns every setting, in the order of the documentation.
fn rows(settings: &Settings) -> Vec<Row> {
    let origin = |name: &str| settings.origins.get(name).cloned();
    let mut rows = Vec::new();
    let mut row = |name: &str, value: Value| {
        rows.push(Row { name: name.to_owned(), value, origin: origin(name) });
    };
    // Commands and instructions may contain keys, because users paste them there.
    let text = |text: &Option<String>| text.as_deref().map(secrets_out);
    row("model", json!(settings.model));
    row("api", json!(settings.api));
    row("base_url", json!(settings.base_url.as_deref().map(address)));
    row("allow_http", json!(settings.allow_http));
    for (name, value) in settings.http.shown() {
        row(&format!("http.{name}"), value);
    }
    row("system", json!(text(&settings.system)));
    row("tools", json!(settings.tools));
    row("background", json!(settings.background));
    row("ask", json!(settings.ask));
    row("dir", json!(settings.dir.as_ref().map(|dir| dir.display().to_string())));
    row("fallback", json!(settings.fallback));
    row("max_output_tokens", json!(settings.max_output_tokens));
    row("verify", json!(text(&settings.verify)));
    row("context_window", json!(settings.context_window));
    row("stream", json!(!settings.no_stream));
    // Without a setting the default file is shown, because it is what a run would use.
    let journal = settings.journal.clone().or_else(journal_path::usual);
    row("journal", json!(journal.map(|path| path.display().to_string())));
    row("price", json!(settings.price));
    row("project", json!(settings.project));
    let spend = &settings.spend;
    row("spend.max_usd_per_day", json!(spend.all.max_usd_per_day));
    row("spend.max_tokens_per_day", json!(spend.all.max_tokens_per_day));
    if !spend.projects.is_empty() {
        row("spend.projects", json!(spend.projects));
    }
    for (name, value) in settings.params.shown() {
        row(&format!("params.{name}"), value);
    }
    let policy = settings.policy.as_ref().map(|policy| policy.name().to_owned());
    row("policy", json!(policy));
    let watches = settings.watches.clone().unwrap_or_else(Watch::defaults);
    row("watch", json!(watches.iter().map(Watch::to_string).collect::<Vec<_>>()));
    if let Some(calibrated) = &settings.calibrated {
        row("calibrated", json!(calibrated));
    }
    row("compaction", json!(settings.compaction));
    let limits = serde_json::to_value(&settings.limits).unwrap_or_default();
    for name in Limits::NAMES {
        row(&format!("limits.{name}"), limit(&limits[name]));
    }
    for server in &settings.mcp {
        row(&format!("mcp.{}", server.name), server_value(server));
    }
    environment(settings, &mut rows);
    rows
}

/// Formats a limit as a file spells it.
fn limit(value: &Value) -> Value {
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

/// Describes a server without any value that may be a secret.
fn server_value(server: &ServerSettings) -> Value {
    let headers: Value =
        server.headers().map(|(name, _)| (name.to_owned(), json!(REDACTED))).collect();
    match server.place() {
        ServerPlace::Command(line) => {
            json!({"command": secrets_out(&line), "env": server.variables()})
        }
        ServerPlace::Url(url) => json!({"url": address(url), "headers": headers}),
    }
}

/// Adds the values that environment variables give to settings that no file and no flag sets.
fn environment(settings: &Settings, rows: &mut [Row]) {
    let mut set = |name: &str, value: Value, variable: &str| {
        if let Some(row) = rows.iter_mut().find(|row| row.name == name) {
            row.value = value;
            row.origin = Some(Origin::Environment(variable.to_owned()));
        }
    };
    let named = settings.origins.get("journal");
    // The variable overrides the user's own file, but not the folder's file or a flag.
    if let Some(path) =
        journal_path::variable().filter(|_| matches!(named, None | Some(Origin::User(_))))
    {
        set("journal", json!(path.display().to_string()), journal_path::VARIABLE);
    }
    let model = settings.model.as_deref().and_then(|model| model.split_once('/'));
    let known = model.and_then(|(id, _)| provider(id));
    let variable = known.and_then(|known| known.base_url_var.or(known.wider_url_var));
    if let (None, Some(variable)) = (&settings.base_url, variable)
        && let Some(url) = std::env::var(variable).ok().filter(|url| !url.trim().is_empty())
    {
        set("base_url", json!(address(&url)), variable);
    }
}
