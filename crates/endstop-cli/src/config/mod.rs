//! The settings of a run: where they come from, which of them are trusted, and the journal that
//! stores it.

mod calibrated;
pub(crate) mod flag;
pub(crate) mod http;
pub(crate) mod journal_path;
pub(crate) mod kind;
pub(crate) mod kinds;
pub(crate) mod limits;
mod load;
pub(crate) mod notify;
pub(crate) mod params;
pub(crate) mod park;
pub(crate) mod price_file;
pub(crate) mod prices;
pub(crate) mod servers;
pub(crate) mod settings;
pub(crate) mod spend;
pub(crate) mod state;
pub(crate) mod trust;
