//! `endstop acp`: serves an agent to an editor over the Agent Client Protocol.

use crate::config::journal_path::{self, JournalPath};
use crate::config::settings::Settings;
use crate::failure::{Failure, Result};
use crate::output;
use crate::run::agent::{AskedOn, Built, built, runtime};
use crate::run::attach::Attached;
use crate::run::cassette::Cassette;
use crate::run::retention::Retention;
use crate::run::signals::{Signals, StopSignal};
use crate::run_args::{AcpArgs, RetentionArgs};
use crate::telemetry::Telemetry;
use endstop_acp::{AcpServer, OpenError, OpenedSession, SessionRequest};
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::AsyncWrite;
use tokio_util::sync::CancellationToken;

/// The tools of a session whose settings name none.
const TOOLS: [&str; 3] = ["shell", "read_file", "write_file"];

pub(crate) fn run(args: &AcpArgs, json: bool) -> Result {
    if json {
        return Err(Failure::usage(
            "--json: `endstop acp` speaks the protocol of the editor on standard output; remove the flag",
        ));
    }
    let runtime = runtime()?;
    let telemetry = Telemetry::begin(&output::keys(), args.settings.allow_http);
    let status = runtime.block_on(serve(args));
    // Not a plain drop: a thread that still reads standard input would block the exit.
    runtime.shutdown_background();
    telemetry.end();
    status
}

async fn serve(args: &AcpArgs) -> Result {
    let mut signals = Signals::listen()?;
    let stop = CancellationToken::new();
    let shared = Arc::new(args.clone());
    let server = AcpServer::new(move |request| opened(Arc::clone(&shared), request));
    let serving = server.serve(tokio::io::stdin(), Stdout(tokio::io::stdout()), stop.clone());
    tokio::pin!(serving);
    let mut heard = StopSignal::Nothing;
    let served = loop {
        tokio::select! {
            served = &mut serving => break served,
            signal = signals.next() => {
                // The runs are cancelled and answered. A second signal does not wait for them.
                if heard != StopSignal::Nothing {
                    break Ok(());
                }
                heard = signal;
                stop.cancel();
            }
        }
    };
    match heard {
        StopSignal::Interrupt => Ok(130),
        StopSignal::Terminate => Ok(143),
        // The error was reported as that of the output.
        StopSignal::Nothing if output::has_ended() => Ok(0),
        StopSignal::Nothing => {
            served.map(|()| 0).map_err(|error| Failure::fault(error.to_string()))
        }
    }
}

/// Standard output of the connection, whose write errors count for the exit status.
struct Stdout(tokio::io::Stdout);

impl AsyncWrite for Stdout {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes).map_err(output::stdout_failed)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context).map_err(output::stdout_failed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context).map_err(output::stdout_failed)
    }
}

/// Opens a session: an agent with the settings of the session's folder.
async fn opened(
    args: Arc<AcpArgs>,
    request: SessionRequest,
) -> std::result::Result<OpenedSession, OpenError> {
    let dir = request.dir.clone();
    open(&args, request).await.map_err(|failure| {
        let message = output::hidden(&failure.message).into_owned();
        output::note(&format!("endstop: {}: {message}", dir.display()));
        OpenError::new(message)
    })
}

async fn open(args: &AcpArgs, request: SessionRequest) -> Result<OpenedSession> {
    let mut settings = settings_of(args, request.dir)?;
    let place = JournalPath::of(args.settings.journal.as_deref(), settings.folder_journal())?;
    let journal = journal_path::to_write(&place)?;
    settings.stored_in = place.path().ok().map(std::path::Path::to_owned);
    let retention = Retention::begin(journal.as_ref(), RetentionArgs::default());
    let mut cassette = Cassette::default();
    let attached = Attached::default();
    let (servers, journal) = (request.servers, journal.as_ref());
    let building = built(settings, servers, &attached, &mut cassette, journal, AskedOn::Events);
    let Built { agent, servers, secrets, .. } = building.await?;
    Ok(OpenedSession::new(agent).hide(secrets).on_close(async move {
        servers.close().await;
        drop(retention);
    }))
}

/// Reads the settings of a session.
fn settings_of(args: &AcpArgs, dir: PathBuf) -> Result<Settings> {
    let mut settings = Settings::in_folder(&args.settings, args.config.as_deref(), &dir)?;
    if settings.model.is_none() && settings.base_url.is_none() {
        return Err(Failure::usage(
            "no model is configured; start `endstop acp` with --model PROVIDER/MODEL (`endstop providers` lists them), or write `model = \"…\"` in endstop.toml",
        ));
    }
    if settings.verify_after().is_some() {
        return Err(Failure::usage(
            "`verify` has no effect without rounds here, because the editor gets one answer; set --verify-rounds N, or remove it",
        ));
    }
    // A relative folder of the settings is relative to the session's.
    settings.dir = Some(match settings.dir.take() {
        Some(below) => dir.join(below),
        None => dir,
    });
    if settings.tools.is_empty() {
        settings.tools = TOOLS.map(str::to_owned).to_vec();
    }
    if args.no_tools {
        settings.tools.clear();
    }
    settings.ask = !args.no_ask;
    Ok(settings)
}
