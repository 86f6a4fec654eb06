//! The `endstop` command. `main` parses the arguments, calls a command, and turns its result into
//! the exit status; no other place sets the status.

mod args;
mod assert_args;
mod commands;
mod compare_args;
mod config;
mod conform_args;
mod control;
mod doorway;
mod failure;
mod features;
mod input;
mod new_file;
mod notify;
mod open_files;
mod output;
mod park_args;
mod quantity;
mod recorded;
mod recorded_args;
mod render;
mod run;
mod run_args;
mod spend_args;
mod telemetry;
#[cfg(feature = "restate")]
mod worker_args;

use endstop_report::visible;

use args::{Args, Command, ConfigCommand};
use clap::FromArgMatches as _;
use clap::error::ErrorKind;
use failure::Status;
use input::has_argument;
use std::borrow::Cow;
use std::process::ExitCode;

fn main() -> ExitCode {
    // This process may have been started as a keeper of a tool's command, which needs no arguments,
    // settings or runtime.
    if let Some(code) = endstop::process::keeper::serve_if_asked() {
        return code;
    }
    // If a command kills its keeper, the orphans become children of this process, which can then
    // end them. On systems other than Linux, which cannot do this, the processes that are found are
    // killed.
    endstop::process::keeper::adopt_orphans();
    #[cfg(unix)]
    outlive_file_size_limit();
    // Keys are in this process's memory and environment; a tool's command must not read them.
    endstop::process::hide_from_other_processes();
    keep_secrets_out_of_panics();
    if doorway::show_if_asked() {
        return finish(Ok(Status::OfCommand(0)), false);
    }
    let mut parser = doorway::parser();
    let parsed = parser.try_get_matches_from_mut(std::env::args_os());
    let args = match parsed.and_then(|matches| Args::from_arg_matches(&matches)) {
        Ok(args) => args,
        Err(error) => {
            let error = error.format(&mut parser);
            // Help and version are not errors. A bare `endstop compare` is an error, but its text is the
            // help itself, without an `error:` prefix.
            let status = if error.use_stderr() { 2 } else { 0 };
            if status == 0 || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
                let is_version = error.kind() == ErrorKind::DisplayVersion;
                if is_version && asks_for_json() {
                    output::json(&features::version());
                    return finish(Ok(Status::OfCommand(0)), true);
                }
                if status == 0 {
                    let text = error.render();
                    let colored = output::shows_colours(&std::io::stdout());
                    let text = if colored { text.ansi().to_string() } else { text.to_string() };
                    output::unredacted_line(text.trim_end());
                } else {
                    let _ = error.print();
                }
                if is_version && has_argument("--verbose") {
                    for line in features::table().lines() {
                        output::unredacted_line(line);
                    }
                }
            } else if let Some(problem) = features::left_out(&error) {
                output::problem(&problem, asks_for_json());
            } else if let Some(problem) = doorway::tip(&error) {
                output::problem(&problem, asks_for_json());
            } else {
                output::problem(&doorway::one_line(&error), asks_for_json());
            }
            return finish(Ok(Status::OfCommand(status)), false);
        }
    };
    let json = args.json;
    let result = match args.command {
        Command::Run(run) => commands::run::run(&run, json),
        Command::Branch(branch) => commands::branch::run(&branch, json),
        Command::Guard(guard) => return finish(commands::guard::run(&guard, json), json),
        #[cfg(feature = "acp")]
        Command::Acp(acp) => commands::acp::run(&acp, json),
        Command::Serve(serve) => commands::serve::run(&serve, json),
        #[cfg(feature = "restate")]
        Command::Worker(worker) => commands::worker::run(&worker, json),
        Command::Demo(demo) => commands::demo::run(&demo, json),
        Command::Detect(detect) => commands::detect::run(&detect),
        Command::Decide(decide) => commands::decide::run(&decide),
        Command::Simulate(simulate) => commands::simulate::run(&simulate),
        Command::Runs(runs) => commands::runs::run(&runs, json),
        Command::Spend(spend) => commands::spend::run(&spend, json),
        Command::Pending(pending) => commands::runs::pending::list(&pending, json),
        Command::Answer(answer) => commands::runs::pending::answer(&answer, json),
        Command::Cancel(cancel) => commands::runs::live::cancel(&cancel, json),
        Command::Limits(limits) => commands::runs::live::limits(&limits, json),
        Command::Explain(explain) => commands::explain::run(&explain, json),
        Command::Assert(assert) => commands::assert::run(&assert, json),
        Command::Conform(conform) => commands::conform::run(&conform, json),
        Command::Audit(audit) => commands::audit::run(&audit, json),
        Command::Backtest(backtest) => commands::backtest::run(&backtest, json),
        Command::Compare(compare) => commands::compare::run(&compare, json),
        Command::Prices(prices) => commands::prices::run(&prices, json),
        Command::Providers(providers) => commands::providers::run(&providers, json),
        Command::Trust(trust) => commands::trust::run(&trust, json),
        Command::Config(ConfigCommand::Show(run)) => commands::config::show(&run, json),
        Command::Policies => Ok(commands::policies::run(json)),
        Command::Completions(completions) => Ok(commands::pages::completions(&completions)),
        Command::Man(man) => commands::pages::man(&man),
    };
    finish(result.map(Status::OfCommand), json)
}

/// Reports the error of a command, and returns the exit status of the process.
fn finish(result: failure::Result<Status>, json: bool) -> ExitCode {
    let status = result.unwrap_or_else(|failure| {
        output::problem(&failure.message, json);
        Status::OfCommand(failure.status)
    });
    ExitCode::from(output::exit_status(status))
}

/// Removes secrets from the report of a panic, whose message may quote any value.
fn keep_secrets_out_of_panics() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        // The panic message may contain a secret. If it does, print it with the secret removed and
        // without the default report, which would show it.
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
}

/// Turns a write beyond the file size limit (`ulimit -f`) into an error, as on a full disk, because
/// SIGXFSZ would end the process without an outcome. A handler is installed instead of ignoring the
/// signal, because child commands inherit ignored signals but not handlers.
#[cfg(unix)]
fn outlive_file_size_limit() {
    let heard = std::sync::Arc::default();
    // Registration fails only for signals that cannot be handled, and SIGXFSZ can.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, heard);
}

/// `true` if `--json` is among the arguments; used if they could not be parsed.
fn asks_for_json() -> bool {
    has_argument("--json")
}
