//! Maps settings to the flags that set them. Flags override every file.

use crate::args::RunArgs;
use crate::{http_args, param_args};
use endstop::Limits;
use std::collections::BTreeMap;

/// Returns the flag of a setting, if it has one.
pub(crate) fn of_key(name: &str) -> Option<String> {
    let flag = match name.split_once('.').unwrap_or((name, "")) {
        ("tools", _) => "--tool".to_owned(),
        ("stream", _) => "--no-stream".to_owned(),
        ("compaction", _) => "--compact".to_owned(),
        ("mcp", _) => "--mcp".to_owned(),
        ("limits", limit) if Limits::NAMES.contains(&limit) => spelled(limit),
        ("limits" | "agents" | "spend", _) => return None,
        ("params", name) => param_args::flag(name),
        ("http", name) => http_args::flag(name),
        (name, _) => spelled(name),
    };
    Some(flag)
}

/// Spells a name as a flag.
fn spelled(name: &str) -> String {
    format!("--{}", name.replace('_', "-"))
}

/// Returns the settings that the flags set, by name, each with its flag.
pub(crate) fn given(args: &RunArgs) -> BTreeMap<String, String> {
    let given = [
        ("model", args.model.is_some()),
        ("fallback", !args.fallback.is_empty()),
        ("api", args.api.is_some()),
        ("base_url", args.base_url.is_some()),
        ("allow_http", args.allow_http),
        ("system", args.system.is_some()),
        ("tools", !args.tools.is_empty()),
        ("background", !args.background.is_empty()),
        ("ask", args.ask.is_some()),
        ("dir", args.dir.is_some()),
        ("max_output_tokens", args.max_output_tokens.is_some()),
        ("verify", args.verify.is_some()),
        ("context_window", args.context_window.is_some()),
        ("stream", args.no_stream),
        ("journal", args.journal.is_some()),
        ("price", args.price.is_some()),
        ("project", args.project.is_some()),
        ("policy", args.policy.is_some()),
        ("watch", !args.watches.is_empty()),
        ("compaction", args.compact.is_some()),
    ];
    let given = given.into_iter().filter(|(_, given)| *given);
    let mut all: BTreeMap<String, String> =
        given.filter_map(|(name, _)| Some((name.to_owned(), of_key(name)?))).collect();
    for (name, _) in args.limits.given() {
        all.insert(format!("limits.{name}"), spelled(name));
    }
    for (name, flag) in args.params.given() {
        all.insert(format!("params.{name}"), flag);
    }
    for (name, flag) in args.http.given() {
        all.insert(format!("http.{name}"), flag);
    }
    // Keyed by server, because a flag overrides only the server of the same name.
    for (name, _) in args.mcp.iter().filter_map(|flag| flag.split_once('=')) {
        all.insert(format!("mcp.{}", name.trim()), format!("--mcp {}=…", name.trim()));
    }
    all
}
