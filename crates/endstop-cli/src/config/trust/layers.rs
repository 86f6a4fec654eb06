//! The settings files of a run in order of precedence, and what each of them may set.

use super::file::{self, Entry, SettingsFile};
use super::store::Store;
use super::{Origin, owner, shown, tighten};
use crate::config::flag::{FILE, GUARD};
use crate::config::settings::{Row, SettingArgs, Settings, flag_of, given};
use crate::failure::{Failure, Result};
use crate::output;
use std::io;
use std::path::{Path, PathBuf};

/// The name of the settings file in a working folder.
pub(crate) const FOLDER_FILE: &str = "endstop.toml";

/// The settings file of the working folder.
#[derive(Debug)]
pub(crate) struct FolderFile {
    pub(crate) file: SettingsFile,
    /// The canonical path of the folder, joined with the file's name; trust is stored for this
    /// path.
    pub(crate) path: PathBuf,
}

impl FolderFile {
    /// Reads the file of this folder, if there is one.
    ///
    /// # Errors
    /// The file is not a regular file, is too large, or is not TOML.
    pub(crate) fn find(folder: &Path) -> Result<Option<FolderFile>> {
        let at = if folder == Path::new(".") {
            PathBuf::from(FOLDER_FILE)
        } else {
            folder.join(FOLDER_FILE)
        };
        let name = at.display().to_string();
        let wrong = |error: io::Error| Failure::usage(format!("{}: {error}", shown(&name)));
        // `symlink_metadata`, because a dangling link must be an error and not count as "no file".
        match std::fs::symlink_metadata(&at) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(wrong(error)),
            Ok(_) => {}
        }
        let (bytes, _) = file::regular(&at, file::MOST).map_err(wrong)?;
        // Only the folder is resolved and not a link to the file, because the file's commands and
        // paths are relative to this folder.
        let path = folder.canonicalize().map_err(wrong)?.join(FOLDER_FILE);
        Ok(Some(FolderFile { file: SettingsFile::parse(name, bytes)?, path }))
    }

    /// Checks that every entry of the file is valid.
    ///
    /// # Errors
    /// Names the key and the problem.
    pub(crate) fn check(&self) -> Result<()> {
        take_all(&mut Settings::default(), &self.file, Origin::Folder)
    }

    /// Returns the settings that need consent, compared with the user's own.
    ///
    /// # Errors
    /// A value of the wrong type or out of range.
    pub(crate) fn consent(&self, own: &Settings) -> Result<Vec<&Entry>> {
        let mut needed = Vec::new();
        for entry in &self.file.entries {
            let needs = needs_consent(own, entry).map_err(|problem| {
                let table = entry.parts().0;
                let problem = shown(&format!("[{table}]: {problem}"));
                Failure::usage(format!("{}: {problem}", self.file.name))
            })?;
            if needs {
                needed.push(entry);
            }
        }
        Ok(needed)
    }
}

/// `true` if a setting of a file needs consent, compared with what the user chose without that
/// file.
///
/// # Errors
/// A value of the wrong type or out of range.
fn needs_consent(own: &Settings, entry: &Entry) -> Result<bool, String> {
    let (key, member) = entry.parts();
    match Row::of_key(key) {
        Some(row) => row.trust.needs_consent(row, own, member.unwrap_or_default(), &entry.value),
        None => Ok(true),
    }
}

/// The settings files of a run.
#[derive(Debug)]
pub(crate) struct Layers {
    pub(crate) user: Option<SettingsFile>,
    pub(crate) folder: Option<FolderFile>,
    pub(crate) config: Option<SettingsFile>,
}

impl Layers {
    /// Reads the files that apply in this folder, with the file of `--config` if it is given.
    ///
    /// # Errors
    /// A file cannot be read or is not TOML, or another user owns the user's own file.
    pub(crate) fn find(config: Option<&Path>, folder: &Path) -> Result<Layers> {
        let user = user_file()?;
        // `--config` replaces the folder's file, so that `--config /dev/null` runs without it.
        let (folder, config) = match config {
            Some(path) => {
                let (bytes, _) = file::named(path)?;
                (None, Some(SettingsFile::parse(file::name_of(path), bytes)?))
            }
            None => (FolderFile::find(folder)?, None),
        };
        Ok(Layers { user, folder, config })
    }

    /// Leaves out the entries of the folder's file that `endstop guard` does not use, because the file may be meant for
    /// `endstop run` as well. Such an entry needs no consent.
    pub(crate) fn for_guard(mut self) -> Layers {
        let Some(folder) = &mut self.folder else { return self };
        let is_used = |entry: &Entry| {
            let row = Row::of_key(entry.parts().0);
            row.is_none_or(|row| row.commands == FILE || row.commands & GUARD != 0)
        };
        let (used, others): (Vec<Entry>, Vec<Entry>) =
            std::mem::take(&mut folder.file.entries).into_iter().partition(is_used);
        folder.file.entries = used;
        if !others.is_empty() {
            output::note(&format!(
                "endstop guard: {} of {} not used, because the program has its own settings",
                quoted(&others.iter().collect::<Vec<_>>()),
                if others.len() == 1 {
                    format!("{} is", folder.file.name)
                } else {
                    format!("{} are", folder.file.name)
                },
            ));
        }
        self
    }

    /// Returns the merged settings of the files.
    ///
    /// # Errors
    /// A value of the wrong type or out of range, or a key that needs consent and is not overridden
    /// by a flag.
    pub(crate) fn settings(&self, args: &SettingArgs) -> Result<Settings> {
        let (settings, refused) = self.merged()?;
        let Some(folder) = self.folder.as_ref().filter(|_| !refused.is_empty()) else {
            return Ok(settings);
        };
        let given = given(args);
        let (overridden, refused): (Vec<&Entry>, Vec<&Entry>) =
            refused.into_iter().partition(|entry| given.contains_key(entry.sets()));
        if !refused.is_empty() {
            // A list and no set, so that the flags stay in the order of the file.
            let mut flags: Vec<String> = Vec::new();
            for flag in refused.iter().filter_map(|entry| flag_of(entry.sets())) {
                if !flags.contains(&flag) {
                    flags.push(flag);
                }
            }
            let flags = match flags.join(", ") {
                none if none.is_empty() => none,
                flags => format!("; a flag overrides the file ({flags})"),
            };
            return Err(Failure::usage(format!(
                "{}: {} {} your consent, because a settings file in the working folder may only tighten your settings; run `endstop trust` to see and allow all that it asks for{flags}; --config /dev/null ignores the file",
                shown(&folder.path.display().to_string()),
                quoted(&refused),
                if refused.len() == 1 { "needs" } else { "need" },
            )));
        }
        let flags: Vec<&str> = overridden
            .iter()
            .filter_map(|entry| given.get(entry.sets()))
            .map(String::as_str)
            .collect();
        output::note(&format!(
            "endstop: {} is not trusted: {} {} overridden by {}",
            folder.file.name,
            quoted(&overridden),
            if overridden.len() == 1 { "is" } else { "are" },
            flags.join(", "),
        ));
        Ok(settings)
    }

    /// Merges the files. Returns the settings, and the entries of the folder's file that were left
    /// out because they need consent.
    ///
    /// # Errors
    /// A value of the wrong type or out of range, or a store of trusted files that is not safe to use.
    pub(crate) fn merged(&self) -> Result<(Settings, Vec<&Entry>)> {
        let mut settings = Settings::default();
        if let Some(file) = &self.user {
            take_all(&mut settings, file, Origin::User)?;
        }
        if let Some(file) = &self.config {
            take_all(&mut settings, file, Origin::Config)?;
        }
        let Some(folder) = &self.folder else { return Ok((settings, Vec::new())) };
        let file = &folder.file;
        // Checked even if the file is not trusted, so that errors do not depend on trust.
        folder.check()?;
        let refused = folder.consent(&settings)?;
        // The store is read only if consent is needed, so that a damaged store does not break other
        // runs.
        let trusted = match Store::find().filter(|_| !refused.is_empty()) {
            Some(store) => store.trusts(&folder.path, &file.sha256)?,
            None => false,
        };
        if trusted {
            take_all(&mut settings, file, Origin::Trusted)?;
            return Ok((settings, Vec::new()));
        }
        // Rules are added to the user's own, not to those that an earlier entry of the same file
        // added.
        let baseline = settings.watches.clone();
        for entry in &file.entries {
            if refused.iter().any(|other| std::ptr::eq(*other, entry)) {
                continue;
            }
            if entry.name == "watch" {
                let added = tighten::added_watches(baseline.as_deref(), &entry.value);
                settings.watches = added.unwrap_or_default().or(settings.watches);
            } else {
                settings.take(entry, &file.name)?;
            }
            let origin = Origin::Folder(file.name.clone());
            settings.origins.insert(entry.sets().to_owned(), origin);
        }
        Ok((settings, refused))
    }

    /// Prints the names of the files that were read to standard error.
    pub(crate) fn announce(&self, settings: &Settings) {
        let mut files: Vec<String> = self.user.iter().map(|file| shown(&file.name)).collect();
        if let Some(folder) = &self.folder {
            let trusted = |origin: &Origin| matches!(origin, Origin::Trusted(_));
            let how = if settings.origins.values().any(trusted) { " (trusted)" } else { "" };
            files.push(format!("{}{how}", shown(&folder.file.name)));
        }
        files.extend(self.config.iter().map(|file| shown(&file.name)));
        if files.is_empty() {
            return;
        }
        let host = match (settings.origins.get("base_url"), &settings.base_url) {
            // A host from a flag was just typed; a host from a file may surprise the user, so it is
            // named.
            (Some(Origin::User(_) | Origin::Trusted(_) | Origin::Config(_)), Some(url)) => {
                format!("; requests go to {}", super::asks::host(url))
            }
            _ => String::new(),
        };
        let through = match (settings.origins.get("http.proxy"), settings.http.proxy()) {
            (Some(Origin::User(_) | Origin::Trusted(_) | Origin::Config(_)), Some(proxy)) => {
                format!("; through the proxy {}", super::asks::host(proxy))
            }
            _ => String::new(),
        };
        output::note(&format!("endstop: settings from {}{host}{through}", files.join(" and ")));
    }
}

/// Merges all entries of a file.
fn take_all(
    settings: &mut Settings,
    file: &SettingsFile,
    origin: impl Fn(String) -> Origin,
) -> Result<()> {
    for entry in &file.entries {
        settings.take(entry, &file.name)?;
        settings.origins.insert(entry.sets().to_owned(), origin(file.name.clone()));
    }
    Ok(())
}

/// Quotes the names of entries for an error.
fn quoted(entries: &[&Entry]) -> String {
    let names: Vec<String> =
        entries.iter().map(|entry| format!("`{}`", shown(&entry.name))).collect();
    names.join(", ")
}

/// Reads the user's own settings file, if there is one.
///
/// # Errors
/// The file cannot be read, is not TOML, or another user may have written it.
pub(crate) fn user_file() -> Result<Option<SettingsFile>> {
    let Some(path) = user_path() else { return Ok(None) };
    let name = path.display().to_string();
    let wrong = |problem: String| Failure::usage(format!("{}: {problem}", shown(&name)));
    if let Err(error) = std::fs::symlink_metadata(&path)
        && matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
    {
        return Ok(None);
    }
    let (bytes, metadata) =
        file::regular(&path, file::MOST).map_err(|error| wrong(error.to_string()))?;
    // Write access of the group is accepted, because many systems have a private group for each
    // user.
    if let Some(problem) = owner::problem(&metadata, 0o002) {
        return Err(wrong(format!("no other user may be able to change your settings: {problem}")));
    }
    SettingsFile::parse(name, bytes).map(Some)
}

/// Returns the journal that the user's own settings name.
///
/// # Errors
/// As [`user_file`].
pub(crate) fn user_journal() -> Result<Option<PathBuf>> {
    let file = user_file()?;
    let entry = file.iter().flat_map(|file| &file.entries).find(|entry| entry.name == "journal");
    Ok(entry.and_then(|entry| entry.value.as_str()).map(PathBuf::from))
}

/// Returns the path of the user's own settings file.
pub(crate) fn user_path() -> Option<PathBuf> {
    let folder =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = if cfg!(windows) {
        folder("APPDATA")
    } else {
        folder("XDG_CONFIG_HOME").or_else(|| folder("HOME").map(|home| home.join(".config")))
    };
    folder.map(|folder| folder.join("endstop").join("config.toml"))
}
