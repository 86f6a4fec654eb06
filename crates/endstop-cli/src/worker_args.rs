//! The arguments of `endstop worker`.

use crate::config::flag::SERVE;
use crate::config::settings::OfCommand;
use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Clients start the agents of [agents.NAME] in endstop.toml. All workers of an engine need the same \
        agents, and one store: a folder that all of them share.\n\nExample: endstop worker --restate \
        http://127.0.0.1:8080 --admin http://127.0.0.1:9070 --store /srv/endstop\n         curl \
        -H 'content-type: application/json' -d '{\"agent\":\"reviewer\",\"task\":\"Review it.\"}' \
        http://127.0.0.1:8080/EndstopLedger/run-1/start"
)]
pub(crate) struct WorkerArgs {
    /// The ingress of the Restate server. The variable ENDSTOP_RESTATE_TOKEN has its bearer token, if
    /// it requires one.
    #[arg(long, value_name = "URL", required_unless_present = "export")]
    pub(crate) restate: Option<String>,
    /// The admin API of the Restate server: registers the worker there, and checks that its store is
    /// the one of the other workers.
    #[arg(long, value_name = "URL")]
    pub(crate) admin: Option<String>,
    /// The address to listen on. Any other than loopback requires --identity-key.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9080")]
    pub(crate) listen: SocketAddr,
    /// Let several workers on this machine listen on the address.
    #[arg(long)]
    pub(crate) share_address: bool,
    /// The address at which the Restate server reaches the worker, for --admin; for several workers
    /// that of their balancer [default: http://ADDR of --listen].
    #[arg(long, value_name = "URL", requires = "admin")]
    pub(crate) advertise: Option<String>,
    /// The public key of the server's requests (publickeyv1_…). Requests without its signature are
    /// refused.
    #[arg(long, value_name = "KEY")]
    pub(crate) identity_key: Option<String>,
    /// Accept requests from anyone who reaches the address, on a private network.
    #[arg(long, conflicts_with = "identity_key")]
    pub(crate) unverified: bool,
    /// The folder that all workers share, with the steps of all runs.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) store: PathBuf,
    /// A ceiling in dollars on the cost of all runs together, with a name: NAME=USD. Each run reserves
    /// its `max_budget_usd` in it.
    #[arg(long, value_name = "NAME=USD")]
    pub(crate) shared_budget: Option<String>,
    #[command(flatten)]
    pub(crate) settings: OfCommand<{ SERVE }>,
    /// The settings file with the agents, instead of the endstop.toml of this folder.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Time that runs have to end after SIGTERM. Other workers continue the rest.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = crate::quantity::time)]
    pub(crate) grace: std::time::Duration,
    /// Copy a run that has ended from the store into the journal, for `endstop explain`, and exit.
    #[arg(long, value_name = "RUN", conflicts_with_all = ["restate", "admin"])]
    pub(crate) export: Option<String>,
    /// The journal of --export [default: journal.db in the user's state folder].
    #[arg(long, value_name = "FILE", requires = "export")]
    pub(crate) journal: Option<PathBuf>,
}
