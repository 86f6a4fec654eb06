//! `endstop config show`: prints the settings that a run would have, each with its origin.

use crate::config::journal_path;
use crate::config::settings::{ROWS, Settings, given};
use crate::config::trust::file::Entry;
use crate::config::trust::{Layers, Origin, shown};
use crate::failure::{Failure, Result};
use crate::output;
use crate::run_args::RunArgs;
use crate::visible::shorten;
use endstop::wire::catalog::providers::provider;
use endstop::wire::redact::address;
use serde_json::{Value, json};
use std::path::Path;

pub(crate) fn show(args: &RunArgs, json: bool) -> Result {
    if let Some(word) = &args.task {
        return Err(Failure::usage(format!(
            "unexpected argument `{}`: `endstop config show` takes the flags of `endstop run`, and no task",
            shorten(word, 60)
        )));
    }
    let layers = Layers::find(args.config.as_deref(), Path::new("."))?;
    let (mut settings, refused) = layers.merged()?;
    settings.above(&args.settings)?;
    layers.announce(&settings);
    let rows = rows(&settings);
    if json {
        let given = given(&args.settings);
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

/// Returns every setting, in the order of the table.
fn rows(settings: &Settings) -> Vec<Row> {
    let mut rows = Vec::new();
    for (row, key) in ROWS.iter().filter_map(|row| Some((row, row.key?))) {
        rows.extend((row.shown)(settings).into_iter().map(|(end, value)| {
            let name = format!("{key}{end}");
            Row { origin: settings.origins.get(&name).cloned(), name, value }
        }));
    }
    environment(settings, &mut rows);
    rows
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
