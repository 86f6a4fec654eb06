//! Which settings files are read, and what each may do. A settings file found in the working folder
//! may come with a repository that somebody else wrote, so it may only tighten what the user chose,
//! unless `endstop trust` has allowed exactly these bytes in exactly this folder.
//!
//! ```ignore
//! let layers = Layers::find(args)?;              // reads each file once
//! let settings = layers.settings(args)?;         // an error if a key needs consent
//! Store::of_user()?.add(&file)?;                 // what `endstop trust` does
//! ```
//!
//! From the lowest to the highest: defaults, the user's own file, the file of the folder (or the one
//! of `--config`), flags.

pub(crate) mod asks;
pub(crate) mod file;
pub(crate) mod flags;
pub(crate) mod journal;
pub(crate) mod layers;
pub(crate) mod owner;
pub(crate) mod seal;
pub(crate) mod shown;
pub(crate) mod store;
pub(crate) mod tighten;

pub(crate) use layers::{Layers, Origin};
pub(crate) use shown::shown;

/// The settings file that a working folder may have.
pub(crate) const FOLDER_FILE: &str = "endstop.toml";
