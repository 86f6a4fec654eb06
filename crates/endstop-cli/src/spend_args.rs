//! The arguments of `endstop spend`.

use clap::ValueEnum;
use std::path::PathBuf;

/// The values by which spending is added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    /// The day (UTC) on which the run started.
    #[default]
    Day,
    /// The provider and the model.
    Model,
    /// The project of the settings.
    Project,
    /// The termination.
    Ending,
}

/// Parses the name of a project.
pub(crate) fn project(text: &str) -> Result<String, String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if text.is_empty() || text.len() > 64 || !text.bytes().all(plain) {
        return Err("expected a name of 1 to 64 ASCII letters, digits, `-`, `_` or `.`".to_owned());
    }
    Ok(text.to_owned())
}

#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "A run counts on the day (UTC) on which it started. Runs without a known price \
    are counted, and not added as 0. Ceilings per day are set in the table [spend] of a settings file."
)]
pub(crate) struct SpendArgs {
    /// The key by which spending is added up.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) by: By,
    /// Only runs that started at most this long ago (7d, 12h), or on this day (UTC) or later
    /// (2026-11-01).
    #[arg(long, value_name = "TIME", value_parser = crate::quantity::since)]
    pub(crate) since: Option<crate::quantity::Since>,
    /// A settings file with the ceilings, instead of endstop.toml in this folder.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The journal file [default: journal.db in the user's state folder].
    #[arg(long, value_name = "FILE")]
    pub(crate) journal: Option<PathBuf>,
}
