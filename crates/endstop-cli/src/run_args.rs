//! The arguments of the commands that run an agent: `run`, `branch` and `acp`. The flags of settings come from the
//! table in `config::settings`.

#[cfg(feature = "acp")]
use crate::config::flag::ACP;
use crate::config::flag::{BRANCH, Heading, RUN};
use crate::config::settings::OfCommand;
use crate::failure::Failure;
use crate::input::is_short_help;
use crate::quantity::Bound;
use std::path::PathBuf;

#[derive(Clone, Debug, Default, clap::Args)]
#[command(
    after_help = "Example: endstop run --model openai/gpt-4.1-mini --tool shell --max-turns 20 \"Fix the test.\""
)]
pub(crate) struct RunArgs {
    /// The task; read from standard input if it is `-` or omitted.
    pub(crate) task: Option<String>,
    /// An image (PNG, JPEG, GIF, WebP) or a PDF document that the model receives with the task. May
    /// be repeated. With --replay, give the recorded ones again.
    #[arg(long = "attach", value_name = "FILE", hide_short_help = is_short_help())]
    #[arg(help_heading = Heading::Model.title())]
    pub(crate) attachments: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) settings: OfCommand<RUN>,
    /// A FIFO whose lines the model receives as messages of the user while the run works, each before
    /// its next call. On a terminal, lines can also be typed.
    #[arg(long, value_name = "FIFO", hide_short_help = is_short_help())]
    #[arg(help_heading = Heading::Tools.title())]
    pub(crate) steer: Option<PathBuf>,
    /// Record the requests to the model and its responses in this new file, as JSON Lines; keys are
    /// removed.
    #[arg(long, value_name = "FILE", hide_short_help = is_short_help())]
    #[arg(help_heading = Heading::Recording.title())]
    pub(crate) record: Option<PathBuf>,
    /// If a replay differs from the recorded run, exit with the replayed run's status instead of 2.
    #[arg(long, requires = "replay", hide_short_help = is_short_help())]
    #[arg(help_heading = Heading::Recording.title())]
    pub(crate) accept_divergence: bool,
    /// Resume a stored run: one whose process died, or one that did not succeed and can now
    /// continue (raise the limit that ended it). Give its id, a prefix of the id, or `last`. Task
    /// and settings come from the stored run; flags override them.
    #[arg(long, value_name = "RUN", conflicts_with_all = ["task", "attachments", "replay", "config"])]
    #[arg(help_heading = Heading::Recording.title())]
    pub(crate) resume: Option<String>,
    /// Resume although the model, the tools, the instructions, the policy or the schema differ from
    /// the original run.
    #[arg(long, requires = "resume", hide_short_help = is_short_help())]
    #[arg(help_heading = Heading::Recording.title())]
    pub(crate) accept_changes: bool,
    /// With --resume and a journal that is not your own: start the commands, use the tools and
    /// contact the hosts that are stored with the run.
    #[arg(long, requires = "resume", hide_short_help = is_short_help())]
    #[arg(help_heading = Heading::Recording.title())]
    pub(crate) trust_journal: bool,
    /// Resume although secrets were removed from the conversation when it was journalled: the model
    /// receives `[redacted]` instead.
    #[arg(long, requires = "resume", hide_short_help = is_short_help())]
    #[arg(help_heading = Heading::Recording.title())]
    pub(crate) accept_redacted: bool,
    #[command(flatten)]
    pub(crate) retention: RetentionArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Read this settings file instead of endstop.toml in this folder, and trust all of it.
    #[arg(long, value_name = "FILE", hide_short_help = is_short_help())]
    pub(crate) config: Option<PathBuf>,
}

// The bounds of the journal. Not a doc comment, which would be the description of the command.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
#[command(next_help_heading = Heading::Journal.title())]
pub(crate) struct RetentionArgs {
    /// Maximum number of runs in the journal, beyond which the oldest are removed; a number or
    /// `off` [default: 10000].
    #[arg(long, value_name = "N", value_parser = crate::quantity::runs_or_off, hide_short_help = is_short_help())]
    pub(crate) journal_keep: Option<Bound>,
    /// Maximum size of the journal file, beyond which the oldest runs are removed; for example
    /// 500MB, or `off` [default: 1GiB].
    #[arg(long, value_name = "SIZE", value_parser = crate::quantity::size_or_off, hide_short_help = is_short_help())]
    pub(crate) journal_max_size: Option<Bound>,
}

// What a run prints and writes.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = Heading::Output.title())]
pub(crate) struct OutputArgs {
    /// Print only the final answer to standard output: no text of earlier turns, and nothing if the
    /// run does not succeed.
    #[arg(long)]
    pub(crate) answer_only: bool,
    /// Write every event to this file, as JSON Lines.
    #[arg(long, value_name = "FILE", hide_short_help = is_short_help())]
    pub(crate) events: Option<PathBuf>,
    /// Replace the files that the run writes, such as that of --events, if they exist and are not empty.
    #[arg(long, hide_short_help = is_short_help())]
    pub(crate) overwrite: bool,
}

#[derive(Clone, Debug, Default, clap::Args)]
#[command(
    after_help = "The branch begins with the conversation that the run had after that turn, and pays only \
        for what it does itself. No tool of those turns runs again; what they have changed outside the run is not \
        undone. Settings come from the stored run; flags override them. Limits count from zero.\n\nExample: \
        endstop branch 7kq2m9xe0p --at 12 --message \"Run the tests first.\" --max-turns 20"
)]
pub(crate) struct BranchArgs {
    /// The run to branch from: its id, a prefix of the id, or `last`.
    pub(crate) run: String,
    /// The last turn that the branch keeps, from 1; 0 keeps the task only.
    #[arg(long, value_name = "TURN")]
    pub(crate) at: u32,
    /// A message that the model reads after that turn. It is required if the run had its answer there.
    #[arg(long, value_name = "TEXT")]
    pub(crate) message: Option<String>,
    #[command(flatten)]
    pub(crate) settings: OfCommand<BRANCH>,
    /// Branch although the tools, the instructions or the schema differ from those of the run.
    #[arg(long, help_heading = Heading::Recording.title())]
    pub(crate) accept_changes: bool,
    /// With a journal that is not your own: start the commands, use the tools and contact the hosts
    /// that are stored with the run.
    #[arg(long, hide_short_help = is_short_help(), help_heading = Heading::Recording.title())]
    pub(crate) trust_journal: bool,
    /// Branch although secrets were removed from the conversation when it was journalled: the model
    /// receives `[redacted]` instead.
    #[arg(long, hide_short_help = is_short_help(), help_heading = Heading::Recording.title())]
    pub(crate) accept_redacted: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[cfg(feature = "acp")]
#[derive(Clone, Debug, Default, clap::Args)]
#[command(
    after_help = "The editor starts this command and talks to it; nothing else may be printed on standard \
        output. Each session reads the settings of its folder, as `endstop run` there would, and asks before \
        each tool call.\n\nExample, in the settings of an editor: {\"command\": \"endstop\", \"args\": \
        [\"acp\", \"--model\", \"anthropic/claude-sonnet-4-5\", \"--max-budget-usd\", \"2\"]}"
)]
pub(crate) struct AcpArgs {
    #[command(flatten)]
    pub(crate) settings: OfCommand<ACP>,
    /// Offer no built-in tool.
    #[arg(long, conflicts_with = "tools", help_heading = Heading::Tools.title())]
    pub(crate) no_tools: bool,
    /// Run tool calls without asking.
    #[arg(long, help_heading = Heading::Tools.title())]
    pub(crate) no_ask: bool,
    /// Read this settings file instead of the endstop.toml of each session's folder, and trust all
    /// of it.
    #[arg(long, value_name = "FILE", hide_short_help = is_short_help())]
    pub(crate) config: Option<PathBuf>,
}

/// Returns the arguments with the task where it belongs. `--ask` may be followed by the task, which
/// then looks like its value.
pub(crate) fn with_task(args: &RunArgs) -> Result<RunArgs, Failure> {
    let mut args = args.clone();
    let Some(how) = args.settings.ask.as_deref().filter(|how| !matches!(*how, "terminal" | "park"))
    else {
        return Ok(args);
    };
    if args.task.is_some() || args.resume.is_some() {
        return Err(Failure::usage(format!(
            "--ask: unknown way `{}`; use `--ask terminal` or `--ask park`",
            crate::visible::shorten(how, 60)
        )));
    }
    args.task = args.settings.ask.replace("terminal".to_owned());
    Ok(args)
}

#[cfg(test)]
mod tests {
    use super::{RunArgs, with_task};

    fn split(ask: Option<&str>, task: Option<&str>) -> Option<(Option<String>, Option<String>)> {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        let mut args = RunArgs { task: owned(task), ..RunArgs::default() };
        args.settings.ask = owned(ask);
        with_task(&args).ok().map(|args| (args.settings.ask.clone(), args.task))
    }

    #[test]
    fn task_after_ask_is_the_task() {
        let is =
            |ask: &str, task: Option<&str>| Some((Some(ask.to_owned()), task.map(str::to_owned)));
        assert_eq!(split(Some("Fix it."), None), is("terminal", Some("Fix it.")));
        assert_eq!(split(Some("park"), Some("Fix it.")), is("park", Some("Fix it.")));
        assert_eq!(split(Some("terminal"), None), is("terminal", None));
        assert_eq!(split(Some("prak"), Some("Fix it.")), None);
        assert_eq!(split(None, Some("park")), Some((None, Some("park".to_owned()))));
    }
}
