//! A worker: checks its store and serves the engine.

use super::budget::EndstopBudget;
use super::claim::{EndstopStore, KEY};
use super::client::{ClientError, EngineClient};
use super::ledger::EndstopLedger;
use super::listener;
use super::shared::Shared;
use super::workflow::EndstopRun;
use crate::agents::Agents;
use crate::catalog::Catalog;
use crate::store::Store;
use restate_sdk::endpoint::Endpoint;
use serde_json::json;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Time for other workers to name their store. The engine repeats the question for ever if they are
/// gone.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(10);

/// Time for the tools of runs that were cut off to end.
const CUT_OFF_WAIT: Duration = Duration::from_secs(2);

/// The settings of a worker.
#[derive(Clone)]
#[non_exhaustive]
pub struct WorkerOptions {
    /// The address of the engine's ingress, for example `http://127.0.0.1:8080`.
    pub ingress: String,
    /// The address of the engine's admin API, if the worker registers itself.
    pub admin: Option<String>,
    /// The address at which the engine reaches this worker, for the registration.
    pub advertised: String,
    /// The bearer token for both addresses.
    pub token: Option<String>,
    /// The public key of the engine's requests (`publickeyv1_…`). Requests without its signature are
    /// refused. Without it, any process that reaches the worker can start its agents.
    pub identity_key: Option<String>,
    /// Number of requests on one connection of the engine. For more, the engine opens another one,
    /// which another worker at the same address may accept. A small number spreads runs better, but
    /// a request may then wait behind the runs of a full connection.
    pub streams_per_connection: u32,
    /// Time that the runs in progress have to end when the worker stops. Other workers continue the rest.
    pub grace: Duration,
}

impl WorkerOptions {
    /// Creates options for an engine with its ingress at this address.
    pub fn new(ingress: impl Into<String>) -> WorkerOptions {
        WorkerOptions {
            ingress: ingress.into(),
            admin: None,
            advertised: "http://127.0.0.1:9080".to_owned(),
            token: None,
            identity_key: None,
            streams_per_connection: 64,
            grace: Duration::from_secs(30),
        }
    }
}

impl fmt::Debug for WorkerOptions {
    // Without the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerOptions")
            .field("ingress", &self.ingress)
            .field("admin", &self.admin)
            .field("advertised", &self.advertised)
            .finish_non_exhaustive()
    }
}

/// The reason why a worker does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// The engine cannot be reached, or refuses the worker.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The identity key is not valid.
    #[error("invalid identity key: {0}; expected publickeyv1_…")]
    IdentityKey(String),
    /// The other workers have another store.
    #[error(
        "the store {folder} is not the one that the other workers of this engine use; give all workers the same shared folder"
    )]
    OtherStore {
        /// The folder of this worker's store.
        folder: String,
    },
}

/// A worker, before it serves.
pub struct Worker {
    shared: Arc<Shared>,
    endpoint: Endpoint,
    options: WorkerOptions,
    admin: Option<EngineClient>,
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Worker {
    /// Creates a worker for these agents. `report` receives problems that end no run.
    ///
    /// # Errors
    /// An address or a key is not valid.
    pub fn open(
        agents: Agents,
        store: Store,
        options: WorkerOptions,
        report: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<Worker, WorkerError> {
        let token = options.token.as_deref();
        let client = EngineClient::new(&options.ingress, token)?;
        let admin =
            options.admin.as_deref().map(|base| EngineClient::new(base, token)).transpose()?;
        let shared = Arc::new(Shared {
            agents,
            catalog: Catalog::of(&store),
            store,
            client,
            report: Box::new(report),
            running: watch::Sender::new(0),
            stops: AtomicBool::new(false),
        });
        let mut builder = Endpoint::builder()
            .bind(EndstopRun(Arc::clone(&shared)))
            .bind(EndstopLedger(Arc::clone(&shared)))
            .bind(EndstopBudget)
            .bind(EndstopStore);
        if let Some(key) = &options.identity_key {
            builder = builder
                .identity_key(key)
                .map_err(|error| WorkerError::IdentityKey(error.to_string()))?;
        }
        Ok(Worker { shared, endpoint: builder.build(), options, admin })
    }

    /// Serves the engine until `stop`. If the options have the address of the admin API, registers the
    /// worker with the engine and checks its store first.
    ///
    /// # Errors
    /// The engine refuses the worker, or other workers have another store.
    pub async fn serve(
        self,
        listener: TcpListener,
        stop: impl Future<Output = ()>,
    ) -> Result<(), WorkerError> {
        let Worker { shared, endpoint, options, admin } = self;
        let WorkerOptions { streams_per_connection, grace, advertised, .. } = options;
        // The engine asks the worker for its services while it registers it, so both run at once.
        let refused = tokio::sync::Notify::new();
        let join = async {
            let Some(admin) = admin else { return Ok(()) };
            let joined = register(&shared, &admin, &advertised).await;
            if joined.is_err() {
                refused.notify_one();
            }
            joined
        };
        let stop = async {
            tokio::select! {
                () = stop => {}
                () = refused.notified() => {}
            }
        };
        // Its first poll refuses new runs, so `listener::serve` polls it only after the stop.
        let drained = shared.drain(grace);
        let serve = listener::serve(endpoint, listener, streams_per_connection, stop, drained);
        let (joined, ()) = tokio::join!(join, serve);
        // What is left was cut off, and is terminated now.
        shared.drain(CUT_OFF_WAIT).await;
        joined
    }
}

/// Checks that the worker has the store of the others, and registers it.
async fn register(
    shared: &Shared,
    admin: &EngineClient,
    advertised: &str,
) -> Result<(), WorkerError> {
    // Before the registration, after which the engine would call a worker with another store. Without
    // any other worker the question has no answer, or none in time.
    let earlier = tokio::time::timeout(CLAIM_TIMEOUT, claim(shared)).await;
    let asked = match earlier {
        Ok(Err(WorkerError::Client(ClientError::Refused { status: 404, .. }))) | Err(_) => false,
        Ok(claimed) => {
            claimed?;
            true
        }
    };
    // Workers of one version have the same services, so the second registration changes nothing.
    let deployment = json!({"uri": advertised, "force": true});
    let _: serde_json::Value = admin.post("/deployments", &deployment).await?;
    if asked { Ok(()) } else { claim(shared).await }
}

async fn claim(shared: &Shared) -> Result<(), WorkerError> {
    let path = format!("/EndstopStore/{KEY}/claim");
    let first: String = shared.client.post(&path, &shared.store.id()).await?;
    if first == shared.store.id() {
        return Ok(());
    }
    Err(WorkerError::OtherStore { folder: shared.store.folder().display().to_string() })
}
