//! The `endstop` command. `main` parses the arguments, hands them to a command, and turns what
//! comes back into the exit status; it is the only place that does.

mod advice;
mod approval;
mod args;
mod card;
mod commands;
mod date;
mod events;
mod input;
mod journal_runs;
mod kept;
mod new_file;
mod output;
mod page;
mod quantity;
mod retention;
mod screen;
mod servers;
mod settings;
mod tape;
mod telemetry;
mod trust;
mod visible;

use args::{Args, Command, ConfigCommand};
use clap::Parser;
use clap::error::ErrorKind;
use std::borrow::Cow;
use std::process::ExitCode;

fn main() -> ExitCode {
    // This may be a process that keeps a command: it needs no arguments, settings or runtime.
    if let Some(code) = endstop::process::keeper::serve_if_asked() {
        return code;
    }
    // A command that kills its keeper must leave no process behind. Without it (another system than
    // Linux) the processes that are found are killed.
    endstop::process::keeper::adopt_orphans();
    #[cfg(unix)]
    outlive_file_size_limit();
    endstop::process::hide_from_other_processes();
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        // What a panic says may have a secret in it: it is shown without, or by its place alone.
        let said = info.payload();
        let said = said
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| said.downcast_ref::<String>().map(String::as_str))
            .unwrap_or_default();
        match output::hidden(said) {
            Cow::Borrowed(_) => report(info),
            Cow::Owned(clean) => {
                let place = info.location().map(ToString::to_string).unwrap_or_default();
                output::note(&format!("panicked at {place}: {clean}"));
            }
        }
    }));
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            // Help and version are no errors; a bare `endstop` is one, and is answered with help.
            let status = if error.use_stderr() { 2 } else { 0 };
            if status == 0 || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
                let _ = error.print();
            } else {
                let text = error.to_string();
                output::problem(text.trim_start_matches("error: ").trim_end(), asks_for_json());
            }
            return ExitCode::from(status);
        }
    };
    let json = args.json;
    let result = match args.command {
        Command::Run(run) => commands::run::run(&run, json),
        Command::Demo(demo) => commands::demo::run(&demo, json),
        Command::Detect(detect) => commands::detect::run(&detect),
        Command::Decide(decide) => commands::decide::run(&decide),
        Command::Simulate(simulate) => commands::simulate::run(&simulate),
        Command::Runs(runs) => commands::runs::run(&runs, json),
        Command::Explain(explain) => commands::explain::run(&explain, json),
        Command::Audit(audit) => commands::audit::run(&audit, json),
        Command::Backtest(backtest) => commands::backtest::run(&backtest, json),
        Command::Providers(providers) => commands::providers::run(&providers, json),
        Command::Trust(trust) => commands::trust::run(&trust, json),
        Command::Config(ConfigCommand::Show(run)) => commands::config::show(&run, json),
        Command::Policies => Ok(commands::policies::run(json)),
    };
    match result {
        Ok(status) => ExitCode::from(status),
        Err(failure) => {
            output::problem(&failure.message, json);
            ExitCode::from(failure.status)
        }
    }
}

/// Makes a write beyond the limit on file sizes (`ulimit -f`) an error, as on a full disk, because the
/// signal would end the process without an outcome. A handler and not an ignored signal: commands
/// would inherit that.
#[cfg(unix)]
fn outlive_file_size_limit() {
    let heard = std::sync::Arc::default();
    // It fails for signals that cannot be handled, and this is not one.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, heard);
}

/// Whether `--json` is among the arguments; asked where they could not be parsed.
fn asks_for_json() -> bool {
    std::env::args_os().take_while(|arg| arg != "--").any(|arg| arg == "--json")
}

/// A command that could not do its work.
#[derive(Debug)]
pub(crate) struct Failure {
    /// What is wrong, where, and what to do.
    pub(crate) message: String,
    /// 2: usage or bad input; 70: a fault of ours.
    status: u8,
}

impl Failure {
    /// Usage or bad input.
    pub(crate) fn usage(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), status: 2 }
    }

    /// A fault of ours.
    pub(crate) fn fault(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), status: 70 }
    }
}

/// The exit status, or why there is none.
pub(crate) type Result<T = u8> = std::result::Result<T, Failure>;
