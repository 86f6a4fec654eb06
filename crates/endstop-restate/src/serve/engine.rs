//! Requests to the engine, each within a bounded time.

use crate::engine::{ClientError, EngineClient, STORE_KEY};
use crate::letter::{Letter, Refusal, RefusalKind};
use crate::request::{RunRequest, Stop};
use endstop_serve::backend::{BackendError, ErrorKind};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Receives problems for the operator.
pub(super) type Report = Box<dyn Fn(&str) + Send + Sync>;

/// The engine.
pub(super) struct Engine {
    client: EngineClient,
    /// The longest time for an answer.
    time: Duration,
    /// `true` once the workers have confirmed that their store is the one of this server.
    same_store: AtomicBool,
    report: Report,
}

impl Engine {
    pub(super) fn new(client: EngineClient, time: Duration, report: Report) -> Engine {
        Engine { client, time, same_store: AtomicBool::new(false), report }
    }

    pub(super) fn report(&self, problem: &str) {
        (self.report)(problem);
    }

    /// Checks that the engine answers.
    pub(super) async fn ready(&self) -> Result<(), BackendError> {
        self.within(self.client.check("/restate/health")).await
    }

    /// Checks that the workers have the store with this id. Their answer does not change while the engine
    /// keeps its data, so they are asked until they have confirmed it once.
    pub(super) async fn check_store(&self, id: &str) -> Result<(), BackendError> {
        if self.same_store.load(Ordering::Acquire) {
            return Ok(());
        }
        let first: String = self.post(&format!("/EndstopStore/{STORE_KEY}/claim"), &id).await?;
        if first != id {
            self.report(
                "the store is not the one that the workers of this engine use; give all of them the same shared folder",
            );
            let message = "the server and its workers do not share a store; its log has the cause";
            return Err(BackendError::new(ErrorKind::Unavailable, message));
        }
        self.same_store.store(true, Ordering::Release);
        Ok(())
    }

    /// Starts a run. The engine starts a run that it knows only once.
    pub(super) async fn start(&self, run: &str, request: &RunRequest) -> Result<(), BackendError> {
        let path = format!("/EndstopLedger/{run}/start/send");
        let sent = self.client.post_once::<Value>(&path, request, Some(run));
        self.within(sent).await.map(drop)
    }

    /// Stops a run. The engine delivers the stop when a worker is there.
    pub(super) async fn stop(&self, run: &str, stop: Stop) -> Result<(), BackendError> {
        let path = format!("/EndstopRun/{run}/stop/send");
        self.post::<Value>(&path, &stop).await.map(drop)
    }

    /// Decides the request of a parked run.
    pub(super) async fn decide(&self, run: &str, decision: &Value) -> Result<(), BackendError> {
        let path = format!("/EndstopRun/{run}/answer");
        let asked = self.client.post::<Value>(&path, decision);
        let decided = async {
            Ok(match asked.await {
                Err(ClientError::Refused { status: 400 | 409, .. }) => false,
                answered => answered.map(|_| true)?,
            })
        };
        if self.within(decided).await? {
            return Ok(());
        }
        let message = "the request was answered before, or the run no longer waits for it";
        Err(BackendError::new(ErrorKind::NotOpen, message))
    }

    /// Sends a run a letter, and waits until the run has decided about it. If no worker is there to decide,
    /// the letter stays with the engine, and the run decides when a worker continues it.
    pub(super) async fn steer(&self, run: &str, letter: &Letter) -> Result<(), BackendError> {
        let path = format!("/EndstopRun/{run}/steer");
        let sent = self.client.post::<u64>(&path, letter);
        let sent = async {
            Ok(match sent.await {
                Err(ClientError::Refused { status: 409, .. }) => Err(Refusal::ended()),
                Err(ClientError::Refused { status: 413, .. }) => Err(Refusal {
                    kind: RefusalKind::TooLarge,
                    message:
                        "the run has got as many messages and changes as it can; start another run"
                            .to_owned(),
                }),
                answered => Ok(answered?),
            })
        };
        let number = self.within(sent).await?.map_err(refused)?;
        let path = format!("/EndstopRun/{run}/steered");
        let decided = self.client.post::<Option<Refusal>>(&path, &number);
        match tokio::time::timeout(self.time, decided).await {
            Ok(Ok(Some(refusal))) => Err(refused(refusal)),
            // The engine has the letter, so an answer that is missing is not an error.
            Ok(Ok(None) | Err(_)) | Err(_) => Ok(()),
        }
    }

    async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, BackendError> {
        self.within(self.client.post(path, body)).await
    }

    async fn within<T>(
        &self,
        asked: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, BackendError> {
        match tokio::time::timeout(self.time, asked).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(self.failed(&error)),
            Err(_) => {
                let seconds = self.time.as_secs_f64();
                self.report(&format!("the engine did not answer within {seconds} s"));
                Err(unavailable())
            }
        }
    }

    /// Returns the error for the client, and reports its cause to the operator: addresses are not for
    /// clients.
    fn failed(&self, error: &ClientError) -> BackendError {
        self.report(&error.to_string());
        match error {
            ClientError::Refused { status: 404, .. } => {
                let message =
                    "the engine has no worker; start `endstop worker`, and repeat the request";
                BackendError::new(ErrorKind::Unavailable, message)
            }
            _ => unavailable(),
        }
    }
}

/// Returns the error for the sender of a letter.
fn refused(refusal: Refusal) -> BackendError {
    let kind = match refusal.kind {
        RefusalKind::Ended => ErrorKind::NotOpen,
        RefusalKind::TooLarge => ErrorKind::TooLarge,
        RefusalKind::Invalid => ErrorKind::InvalidChange,
    };
    BackendError::new(kind, refusal.message)
}

fn unavailable() -> BackendError {
    let message = "the engine that drives the runs does not answer; repeat the request later";
    BackendError::new(ErrorKind::Unavailable, message)
}
