//! Where runs are kept: `--journal`, `journal` in endstop.toml, `ENDSTOP_JOURNAL`, `journal` in the
//! user's own settings, or the user's state folder.
//!
//! ```ignore
//! let journal = kept::to_write(&place)?;   // None: switched off, or it cannot be written
//! let journal = kept::to_read(&place)?;    // for `runs`, `explain`
//! ```

use crate::trust::layers;
use crate::{Failure, Result, output};
use endstop::journal::{JournalErrorKind, SqliteJournal};
use std::path::{Path, PathBuf};

/// The variable that names a journal.
pub(crate) const VARIABLE: &str = "ENDSTOP_JOURNAL";

/// Where the journal is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Here, as was asked for.
    Asked(PathBuf),
    /// Here, as is usual.
    Usual(PathBuf),
    /// Nowhere.
    Off,
    /// Nowhere, for there is no home.
    Homeless,
}

impl Place {
    /// What the flag says, else the setting of this folder's file or of `--config`, else the
    /// environment, else the user's own settings.
    ///
    /// # Errors
    /// The user's own settings cannot be read.
    pub(crate) fn of(flag: Option<&Path>, setting: Option<&Path>) -> Result<Place> {
        let asked = match flag.or(setting).map(Path::to_owned).or_else(variable) {
            None => layers::user_journal()?,
            asked => asked,
        };
        Ok(match asked {
            Some(path) if path.as_os_str() == "off" => Place::Off,
            Some(path) => Place::Asked(path),
            None => usual().map_or(Place::Homeless, Place::Usual),
        })
    }

    pub(crate) fn path(&self) -> Result<&Path> {
        match self {
            Place::Asked(path) | Place::Usual(path) => Ok(path),
            Place::Off => Err(Failure::usage(
                "the journal is switched off (`off`): give its file with --journal FILE",
            )),
            Place::Homeless => Err(Failure::usage(
                "there is no home folder to keep a journal in: give a file with --journal FILE",
            )),
        }
    }
}

/// The journal that runs are kept in. One that cannot be written ends nothing: it is said, and the
/// run goes on without it, unless it was asked for.
pub(crate) fn to_write(place: &Place) -> Result<Option<SqliteJournal>> {
    let Ok(path) = place.path() else { return Ok(None) };
    match SqliteJournal::open(path) {
        Ok(journal) => {
            journal.hide(endstop::process::environment_secrets());
            if let Some(how) = journal.exposed() {
                output::note(&format!("endstop: {}: {how}", path.display()));
            }
            Ok(Some(journal))
        }
        Err(error) if matches!(place, Place::Usual(_)) => {
            output::note(&format!(
                "endstop: this run is not kept: {error} (--journal FILE gives another place, --journal off says that it is meant)"
            ));
            Ok(None)
        }
        Err(error) => Err(Failure::usage(format!("--journal {error}"))),
    }
}

/// The journal that is looked into.
pub(crate) fn to_read(place: &Place) -> Result<SqliteJournal> {
    let path = place.path()?;
    SqliteJournal::read(path).map_err(|error| {
        if error.kind == JournalErrorKind::Io && !path.exists() {
            return Failure::usage(format!(
                "{}: there is no journal yet: `endstop run` makes one, and --journal FILE gives another",
                path.display()
            ));
        }
        Failure::usage(error.to_string())
    })
}

/// The journal that the environment names.
pub(crate) fn variable() -> Option<PathBuf> {
    std::env::var_os(VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// The user's folder for what a program keeps from run to run.
pub(crate) fn state_folder() -> Option<PathBuf> {
    let folder =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || folder("HOME");
    let state = if cfg!(windows) {
        folder("LOCALAPPDATA")
    } else if cfg!(target_os = "macos") {
        home().map(|home| home.join("Library/Application Support"))
    } else {
        folder("XDG_STATE_HOME").or_else(|| home().map(|home| home.join(".local/state")))
    };
    state.map(|state| state.join("endstop"))
}

/// The journal in it.
pub(crate) fn usual() -> Option<PathBuf> {
    state_folder().map(|folder| folder.join("journal.db"))
}
