//! `endstop trust`: shows what a folder's settings file asks for, and stores the user's consent.

use crate::args::TrustArgs;
use crate::config::trust::asks::Asks;
use crate::config::trust::file::Entry;
use crate::config::trust::layers::FolderFile;
use crate::config::trust::store::Store;
use crate::config::trust::{FOLDER_FILE, Layers, layers, shown};
use crate::failure::{Failure, Result};
use crate::output;
use serde_json::json;
use std::io::{self, BufRead, IsTerminal};
use std::path::{Path, PathBuf};

pub(crate) fn run(args: &TrustArgs, json: bool) -> Result {
    if args.list {
        return list(json);
    }
    if args.revoke {
        return revoke(&args.folder, json);
    }
    let at = args.folder.join(FOLDER_FILE);
    let Some(folder) = FolderFile::find(&args.folder)? else {
        return Err(Failure::usage(format!(
            "{}: no such file, so there is nothing to trust",
            shown(&at.display().to_string())
        )));
    };
    let path = shown(&folder.path.display().to_string());
    let alone = Layers { user: layers::user_file()?, folder: None, config: None };
    let (own, _) = alone.merged()?;
    let needed = folder.consent(&own)?;
    let asks = asks(&folder, &needed)?;
    // An invalid file is reported before the user is asked to trust it.
    folder.check()?;
    let store = Store::of_user()?;
    let was = store.trusts(&folder.path, &folder.file.sha256)?;
    let text = if asks.is_empty() {
        format!("{path} asks for nothing that needs your consent.\n{}", asks.text())
    } else {
        format!("{path} asks for:\n{}", asks.text())
    };
    if !json {
        output::line(&text);
    } else if !was && !args.yes && io::stdin().is_terminal() {
        // The user must see what the question is about; standard output is for the JSON.
        output::note(&text);
    }
    if !was && !args.yes {
        agreed(&path)?;
    }
    if !was {
        store.add(&folder.path, &folder.file.sha256)?;
    }
    if json {
        output::json(&json!({
            "type": "trust", "path": folder.path.display().to_string(),
            "sha256": folder.file.sha256, "trusted": true, "asks_for": asks,
        }));
    } else {
        let now = if was { "is trusted already" } else { "is trusted" };
        output::note(&format!("endstop: {path} {now}, until its content changes"));
    }
    Ok(0)
}

fn asks(folder: &FolderFile, needed: &[&Entry]) -> Result<Asks> {
    let mut asks = Asks::of(needed)
        .map_err(|problem| Failure::usage(format!("{}: {}", folder.file.name, shown(&problem))))?;
    for entry in &folder.file.entries {
        if !needed.iter().any(|other| std::ptr::eq(*other, entry)) {
            asks.tighter(entry);
        }
    }
    Ok(asks)
}

/// Asks for consent on the terminal.
fn agreed(path: &str) -> Result<()> {
    if !io::stdin().is_terminal() {
        return Err(Failure::usage(format!(
            "{path} is not trusted: standard input is not a terminal; read what the file asks for, then pass --yes"
        )));
    }
    // Input typed before the question appeared must not answer it.
    #[cfg(unix)]
    let _ = rustix::termios::tcflush(io::stdin(), rustix::termios::QueueSelector::IFlush);
    output::note("endstop: allow all of this from now on? y or n:");
    let mut line = String::new();
    match (io::stdin().lock().read_line(&mut line), line.trim()) {
        (Ok(_), "y" | "yes") => Ok(()),
        _ => Err(Failure::usage(format!("{path} is not trusted: nothing was stored"))),
    }
}

fn list(json: bool) -> Result {
    let all = Store::of_user()?.all()?;
    if json {
        output::json(&json!({"type": "trust_list", "trusted": all}));
        return Ok(0);
    }
    for one in &all {
        let now = match FolderFile::find(Path::new(&one.path).parent().unwrap_or(Path::new("."))) {
            Ok(Some(folder)) if folder.file.sha256 == one.sha256 => "",
            Ok(Some(_)) => "  (changed since: not trusted)",
            Ok(None) => "  (deleted)",
            Err(_) => "  (not readable: not trusted)",
        };
        output::line(&format!("{}  {}{now}", one.at, shown(&one.path)));
    }
    if all.is_empty() {
        output::note("endstop: no settings file is trusted");
    }
    Ok(0)
}

fn revoke(folder: &Path, json: bool) -> Result {
    // `absolute` as the fallback, because a deleted folder can still be listed in the store.
    let whole = folder.canonicalize().or_else(|_| std::path::absolute(folder));
    let path = whole.unwrap_or_else(|_| PathBuf::from(folder)).join(FOLDER_FILE);
    let was = Store::of_user()?.remove(&path)?;
    let name = path.display().to_string();
    if json {
        output::json(&json!({"type": "trust", "path": name, "trusted": false, "was": was}));
    } else {
        let now = if was { "is no longer trusted" } else { "was not trusted" };
        output::note(&format!("endstop: {} {now}", shown(&name)));
    }
    Ok(0)
}
