//! Consent for stored runs of a journal that is not the user's own. A journal contains commands,
//! hosts and tools, which were chosen by the person who wrote it.

use super::asks::Asks;
use super::{flags, layers, owner, shown, tighten};
use crate::args::RunArgs;
use crate::config::journal_path;
use crate::config::settings::Settings;
use crate::failure::{Failure, Result};
use crate::output;
use endstop::Limits;
use serde_json::json;
use std::path::Path;

/// Refuses the settings of a stored run, unless the journal is the user's own, flags set the same
/// keys, or `--trust-journal` allows them.
///
/// # Errors
/// Names the keys that need consent, and how to give it.
pub(crate) fn consent(
    stored: &Settings,
    run: &str,
    args: &RunArgs,
    journal: &Path,
    not_own: Option<String>,
) -> Result<()> {
    if args.trust_journal {
        return Ok(());
    }
    let Some(problem) = not_own else { return Ok(()) };
    let problem = format!("{problem}, and the run does not carry your seal");
    let given = flags::given(args);
    let mut keys = Vec::new();
    let mut asks = Asks::default();
    let mut needs = |key: String, asks_for: &dyn Fn(&mut Asks)| {
        if !given.contains_key(&key) {
            asks_for(&mut asks);
            keys.push(format!("`{}`", shown(&key)));
        }
    };
    for server in &stored.mcp {
        needs(format!("mcp.{}", server.name), &|asks| asks.server(server));
    }
    for (key, value) in needed(stored, &own_settings()?, args) {
        needs(key.clone(), &|asks| asks.add(&key, &value));
    }
    if keys.is_empty() {
        return Ok(());
    }
    let name = shown(&journal.display().to_string());
    let run = shown(run);
    output::note(&format!("endstop: run {run} in {name} asks for:\n{}", asks.text()));
    Err(Failure::usage(format!(
        "--resume: {} of run {run} {} your consent, because {name} is not your own journal: {problem}. Set the same keys with flags, or pass --trust-journal",
        keys.join(", "),
        if keys.len() == 1 { "needs" } else { "need" },
    )))
}

/// Returns the settings of a stored run that start a process, choose a host, or are looser than the
/// user's own.
fn needed(stored: &Settings, own: &Settings, args: &RunArgs) -> Vec<(String, serde_json::Value)> {
    let mut needed = Vec::new();
    let mut add = |key: &str, value| needed.push((key.to_owned(), value));
    if let Some(verify) = &stored.verify {
        add("verify", json!(verify));
    }
    if !stored.fallback.is_empty() && stored.fallback != own.fallback {
        add("fallback", json!(stored.fallback));
    }
    if let Some(url) = &stored.base_url {
        add("base_url", json!(url));
    }
    let own_http = own.http.shown();
    for (name, value) in stored.http.shown() {
        if own_http.get(&name) != Some(&value) {
            add(&format!("http.{name}"), value);
        }
    }
    if !stored.tools.is_empty() {
        add("tools", json!(stored.tools));
    }
    // The folder matters only if something can work in it.
    let works = !stored.tools.is_empty()
        || !stored.mcp.is_empty()
        || stored.verify.is_some()
        || !args.tools.is_empty()
        || !args.mcp.is_empty()
        || args.verify.is_some();
    let here = std::env::current_dir().ok();
    if let Some(dir) = stored.dir.as_ref().filter(|dir| works && here.as_ref() != Some(*dir)) {
        add("dir", json!(dir.display().to_string()));
    }
    if stored.allow_http && !own.allow_http {
        add("allow_http", json!(true));
    }
    if own.ask && !stored.ask {
        add("ask", json!(false));
    }
    if stored.price.is_some() && stored.price != own.price {
        add("price", json!(stored.price));
    }
    if own.max_output_tokens.is_some()
        && stored.max_output_tokens.is_none_or(|cap| Some(cap) > own.max_output_tokens)
    {
        add("max_output_tokens", json!(stored.max_output_tokens));
    }
    if !tighten::compacts_no_less(&own.compaction, &stored.compaction) {
        add("compaction", json!(stored.compaction));
    }
    let own_params = own.params.shown();
    for (name, value) in stored.params.shown() {
        if own_params.get(&name) != Some(&value) {
            add(&format!("params.{name}"), value);
        }
    }
    let values = serde_json::to_value(&stored.limits).unwrap_or_default();
    for limit in tighten::looser(&own.limits, &stored.limits) {
        debug_assert!(Limits::NAMES.contains(&limit));
        add(&format!("limits.{limit}"), values[limit].clone());
    }
    needed
}

/// Returns the settings that apply without any run: the defaults and the user's own file.
pub(crate) fn own_settings() -> Result<Settings> {
    let layers = layers::Layers { user: layers::user_file()?, folder: None, config: None };
    Ok(layers.merged()?.0)
}

/// Returns why a journal is not the user's own, or `None` if it is the journal in the state folder
/// and no other user can write it. A journal named by a flag, a variable or a file may come from
/// another person.
///
/// Call this before the journal is opened, because opening removes the access of other users, who
/// may have changed the file before that.
pub(crate) fn not_own(journal: &Path) -> Option<String> {
    let real = journal.canonicalize().ok();
    let usual = journal_path::usual().and_then(|usual| usual.canonicalize().ok());
    let Some(real) = real.filter(|real| usual.as_ref() == Some(real)) else {
        return Some("it is not the one in your state folder".to_owned());
    };
    [Some(real.as_path()), real.parent()].into_iter().flatten().find_map(|path| {
        let problem = match std::fs::metadata(path) {
            Ok(metadata) => owner::problem(&metadata, owner::WRITE)?,
            Err(error) => error.to_string(),
        };
        Some(format!("{}: {problem}", shown(&path.display().to_string())))
    })
}
