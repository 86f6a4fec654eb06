//! Trust: decides which settings files are read and what each may set. A settings file in the
//! working folder may come from a repository that another person wrote, so it may only tighten what
//! the user chose, unless `endstop trust` has allowed exactly these bytes in exactly this folder.
//!
//! Precedence, from the lowest to the highest: defaults, the user's own file, the folder's file (or
//! the file of `--config`), flags.

pub(crate) mod asks;
pub(crate) mod file;
pub(crate) mod journal;
pub(crate) mod layers;
pub(crate) mod origin;
pub(crate) mod owner;
pub(crate) mod seal;
pub(crate) mod shown;
pub(crate) mod store;
pub(crate) mod tighten;

pub(crate) use layers::{FOLDER_FILE, Layers};
pub(crate) use origin::Origin;
pub(crate) use shown::shown;
