//! Locates and opens the journal. In order of precedence: `--journal`, `journal` in endstop.toml,
//! `ENDSTOP_JOURNAL`, `journal` in the user's own settings, and the user's state folder.

use super::state::default_journal;
use crate::config::trust::layers;
use crate::failure::{Failure, Result};
use crate::output;
use endstop::journal::{JournalErrorKind, SqliteJournal};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// The environment variable that names the journal.
pub(crate) const VARIABLE: &str = "ENDSTOP_JOURNAL";

/// The location of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum JournalPath {
    /// A file that the user named.
    Asked(PathBuf),
    /// The default file.
    Usual(PathBuf),
    /// Switched off.
    Off,
    /// Not available, because the user has no home folder.
    Homeless,
}

impl JournalPath {
    /// Chooses the journal: the flag, else the setting of this folder's file or of `--config`, else
    /// the environment, else the user's own settings, else the default file.
    ///
    /// # Errors
    /// The user's own settings cannot be read.
    pub(crate) fn of(flag: Option<&Path>, setting: Option<&Path>) -> Result<JournalPath> {
        let asked = match flag.or(setting).map(Path::to_owned).or_else(variable) {
            None => layers::user_journal()?,
            asked => asked,
        };
        Ok(match asked {
            Some(path) if path.as_os_str() == "off" => JournalPath::Off,
            Some(path) => JournalPath::Asked(path),
            None => default_journal().map_or(JournalPath::Homeless, JournalPath::Usual),
        })
    }

    pub(crate) fn path(&self) -> Result<&Path> {
        match self {
            JournalPath::Asked(path) | JournalPath::Usual(path) => Ok(path),
            JournalPath::Off => Err(Failure::usage(
                "the journal is switched off (`off`); set its file with --journal FILE",
            )),
            JournalPath::Homeless => Err(Failure::usage(
                "no home folder for the journal; set its file with --journal FILE",
            )),
        }
    }
}

/// Returns the row of the card that says why a run is not stored, if the user did not switch storage off and no note
/// has said so.
pub(crate) fn not_stored(flag: Option<&Path>, setting: Option<&Path>) -> Option<String> {
    let place = JournalPath::of(flag, setting).ok()?;
    (place == JournalPath::Homeless).then(|| {
        "not stored: no home folder for the journal; --journal FILE sets its file, --journal off ends this note"
            .to_owned()
    })
}

/// Opens the journal that stores a new run. The default journal is optional: if it cannot be
/// written, a note reports it and the run continues without it. If the user named the file, the
/// same problem is an error.
pub(crate) fn to_write(place: &JournalPath) -> Result<Option<SqliteJournal>> {
    let Ok(path) = place.path() else { return Ok(None) };
    match SqliteJournal::open(path) {
        Ok(journal) => Ok(Some(ready(journal, path))),
        Err(error) if matches!(place, JournalPath::Usual(_)) => {
            output::note(&format!(
                "endstop: this run is not stored: {error} (set another file with --journal FILE, or switch storage off with --journal off)"
            ));
            Ok(None)
        }
        Err(error) => Err(Failure::usage(format!("--journal {error}"))),
    }
}

/// Opens the journal for writing to continue a run that it stores. It must be there, also if it is
/// the default journal.
pub(crate) fn to_resume(place: &JournalPath) -> Result<SqliteJournal> {
    to_change(place, "--resume")
}

/// Opens the journal for writing, for a command that changes a run in it.
pub(crate) fn to_change(place: &JournalPath, command: &str) -> Result<SqliteJournal> {
    let path = place.path()?;
    match SqliteJournal::open(path) {
        Ok(journal) => Ok(ready(journal, path)),
        Err(error) if matches!(place, JournalPath::Asked(_)) => {
            Err(Failure::usage(format!("--journal {error}")))
        }
        Err(error) => Err(Failure::usage(format!(
            "{command}: the journal could not be opened: {error}; set its file with --journal FILE"
        ))),
    }
}

/// Redacts the secrets of the environment in a journal that was opened for writing, and reports if
/// other users could read it.
fn ready(journal: SqliteJournal, path: &Path) -> SqliteJournal {
    // The journal writes prompts and results, so secrets are redacted from the first record on.
    journal.hide(endstop::process::environment_secrets());
    if let Some(how) = journal.exposed() {
        output::note(&format!("endstop: {}: {how}", path.display()));
    }
    journal
}

/// Opens the journal for reading.
pub(crate) fn to_read(place: &JournalPath) -> Result<SqliteJournal> {
    let path = place.path()?;
    SqliteJournal::read(path).map_err(|error| {
        if error.kind == JournalErrorKind::Io && !path.exists() {
            return Failure::usage(format!(
                "{}: no journal found; `endstop run` creates one, or set another file with --journal FILE",
                path.display()
            ));
        }
        Failure::usage(error.to_string())
    })
}

/// Returns the journal that the environment names. An empty variable counts as unset, because a
/// shell has no other simple way to unset it for one command.
pub(crate) fn variable() -> Option<PathBuf> {
    std::env::var_os(VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// `true` once the note about other journals was shown. A server opens a budget for each agent.
static NOTED: AtomicBool = AtomicBool::new(false);

/// Notes once that the ceilings of a day count one journal only, unless it is that of runs without `--journal` and
/// without a setting of the folder: an empty journal is a day that has just begun.
///
/// # Errors
/// The user's own settings cannot be read.
pub(crate) fn note_ceilings_of(path: &Path) -> Result<()> {
    let default = JournalPath::of(None, None)?;
    let real = |path: &Path| path.canonicalize().ok();
    let is_default =
        default.path().ok().and_then(real).is_some_and(|default| real(path) == Some(default));
    if !is_default && !NOTED.swap(true, Ordering::Relaxed) {
        output::note(&format!(
            "endstop: [spend]: the ceilings per day count the runs of {} only; those in other journals \
             are not counted",
            path.display()
        ));
    }
    Ok(())
}
