//! The arguments of `endstop pending` and `endstop answer`.

use std::path::PathBuf;

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PendingArgs {
    /// The journal file [default: journal.db in the user's state folder].
    #[arg(long, value_name = "FILE")]
    pub(crate) journal: Option<PathBuf>,
}

#[derive(Clone, Debug, clap::Args)]
#[command(
    group = clap::ArgGroup::new("decision").required(true),
    after_help = "The first decision counts. The run continues with `endstop run --resume RUN`."
)]
pub(crate) struct AnswerArgs {
    /// The parked run: its id, a prefix of the id, or `last`.
    pub(crate) run: String,
    /// Let the tool call run.
    #[arg(long, group = "decision")]
    pub(crate) approve: bool,
    /// Refuse the tool call; the model reads the reason.
    #[arg(long, value_name = "WHY", group = "decision")]
    pub(crate) deny: Option<String>,
    /// Answer the question with this text.
    #[arg(long, value_name = "ANSWER", group = "decision")]
    pub(crate) text: Option<String>,
    /// The digest of the request that was decided, or its first digits (8 or more). The decision is
    /// refused if the run waits for another one by now.
    #[arg(long, value_name = "DIGEST")]
    pub(crate) digest: Option<String>,
    /// The journal file [default: journal.db in the user's state folder].
    #[arg(long, value_name = "FILE")]
    pub(crate) journal: Option<PathBuf>,
}
