//! The origin of a setting: the file, the flag or the variable that set it.

use super::shown;
use std::fmt;

/// The origin of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The user's own file.
    User(String),
    /// The folder's file, which only tightened the value.
    Folder(String),
    /// The folder's file, which the user trusts.
    Trusted(String),
    /// The file of `--config`.
    Config(String),
    Flag(String),
    Environment(String),
}

impl Origin {
    /// Returns the name for JSON output.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Origin::User(_) => "user",
            Origin::Folder(_) => "folder",
            Origin::Trusted(_) => "folder_trusted",
            Origin::Config(_) => "config",
            Origin::Flag(_) => "flag",
            Origin::Environment(_) => "environment",
        }
    }

    /// Returns the file, the flag or the variable.
    pub(crate) fn place(&self) -> &str {
        match self {
            Origin::User(place)
            | Origin::Folder(place)
            | Origin::Trusted(place)
            | Origin::Config(place)
            | Origin::Flag(place)
            | Origin::Environment(place) => place,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = shown(self.place());
        match self {
            Origin::User(_) => write!(f, "{place} (your own)"),
            Origin::Folder(_) => write!(f, "{place} (may only tighten)"),
            Origin::Trusted(_) => write!(f, "{place} (trusted)"),
            Origin::Config(_) => write!(f, "{place} (--config)"),
            Origin::Flag(_) | Origin::Environment(_) => f.write_str(&place),
        }
    }
}
