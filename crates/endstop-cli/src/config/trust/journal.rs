//! Consent for stored runs of a journal that is not the user's own. A journal contains commands,
//! hosts and tools, which were chosen by the person who wrote it.

use super::asks::Asks;
use super::{layers, owner, shown};
use crate::config::kind::{is_empty, one};
use crate::config::settings::{Consent, ROWS, SettingArgs, Settings, Stored, given};
use crate::config::state::default_journal;
use crate::failure::{Failure, Result};
use crate::output;
use std::path::Path;

/// The journal in which a stored run was found.
pub(crate) struct Place<'a> {
    pub(crate) journal: &'a Path,
    /// The reason why it is not the user's own, determined before it was opened.
    pub(crate) not_own: Option<String>,
    /// `true` to trust it anyway (`--trust-journal`).
    pub(crate) is_trusted: bool,
}

/// Refuses the settings of a stored run, unless the journal is the user's own, flags set the same
/// keys, or `--trust-journal` allows them.
///
/// # Errors
/// Names the keys that need consent, and how to give it.
pub(crate) fn consent(
    stored: &Settings,
    run: &str,
    args: &SettingArgs,
    place: &Place<'_>,
) -> Result<()> {
    let Some(problem) = place.not_own.as_ref().filter(|_| !place.is_trusted) else { return Ok(()) };
    let given = given(args);
    let own = own_settings()?;
    let mut keys = Vec::new();
    let mut asks = Asks::default();
    let mut needs = |key: String, asks_for: &dyn Fn(&mut Asks, &str)| {
        if !given.contains_key(&key) {
            asks_for(&mut asks, &key);
            keys.push(format!("`{}`", shown(&key)));
        }
    };
    for row in &ROWS {
        let key = row.key.unwrap_or(row.name);
        let consent = match row.stored {
            Stored::No => continue,
            Stored::Always(consent) | Stored::IfSet(consent) | Stored::Header(_, consent) => {
                consent
            }
        };
        let value = (row.json)(stored);
        let needed = match consent {
            Consent::Never => continue,
            Consent::EachServer => {
                for server in &stored.mcp {
                    needs(format!("{key}.{}", server.name), &|asks, _| asks.server(server));
                }
                continue;
            }
            Consent::IfSet if is_empty(&value) => continue,
            Consent::IfSet => one(value),
            Consent::IfOther => {
                let own = (row.shown)(&own);
                let members = (row.shown)(stored).into_iter();
                members.filter(|one| !is_empty(&one.1) && !own.contains(one)).collect()
            }
            // A value that the file of a folder could not have either is not one that the user chose.
            Consent::AsFile => match row.trust.needs_consent(row, &own, "", &value) {
                Ok(false) => continue,
                Ok(true) | Err(_) => one(value),
            },
            Consent::Judged(needed) => needed(stored, &own, args),
        };
        for (end, value) in needed {
            needs(format!("{key}{end}"), &|asks, key| asks.add(key, &value));
        }
    }
    if keys.is_empty() {
        return Ok(());
    }
    let name = shown(&place.journal.display().to_string());
    let run = shown(run);
    output::note(&format!("endstop: run {run} in {name} asks for:\n{}", asks.text()));
    Err(Failure::usage(format!(
        "--resume: {} of run {run} {} your consent, because {name} is not your own journal: {problem}, and the run does not carry your seal. Set the same keys with flags, or pass --trust-journal",
        keys.join(", "),
        if keys.len() == 1 { "needs" } else { "need" },
    )))
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
    let usual = default_journal().and_then(|usual| usual.canonicalize().ok());
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
