//! The open sessions of a connection.

use crate::permission::Allowed;
use crate::source::{Closing, OpenedSession};
use agent_client_protocol::Error;
use agent_client_protocol::v1::schema::SessionId;
use endstop::wire::redact::KnownKeys;
use endstop::{Agent, Session};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum number of open sessions.
const MOST: usize = 256;

/// An open session.
pub(crate) struct Open {
    pub(crate) agent: Agent,
    pub(crate) session: Session,
    pub(crate) dir: PathBuf,
    pub(crate) secrets: KnownKeys,
    pub(crate) allowed: Allowed,
    closing: Mutex<Option<Closing>>,
}

impl Open {
    /// Cancels the run, waits for its tools, and closes the session's resources. Afterwards the
    /// session cannot run again.
    async fn close(&self) {
        // Cancel first: terminate would take the grace time from running tools.
        self.agent.cancel();
        self.agent.settled().await;
        self.agent.terminate();
        let closing = self.closing.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(closing) = closing {
            closing.await;
        }
    }
}

/// The open sessions, by id.
#[derive(Clone, Default)]
pub(crate) struct Sessions(Arc<Mutex<BTreeMap<String, Arc<Open>>>>);

impl Sessions {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Open>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a session and returns its id.
    ///
    /// # Errors
    /// Too many sessions are open, or the system has no random numbers.
    pub(crate) async fn add(
        &self,
        dir: PathBuf,
        opened: OpenedSession,
    ) -> Result<SessionId, Error> {
        let open = Arc::new(Open {
            session: opened.agent.session(),
            agent: opened.agent,
            dir,
            secrets: opened.secrets,
            allowed: Allowed::default(),
            closing: Mutex::new(opened.closing),
        });
        // Inserted by another function, because its lock must not be held while a refused session is
        // closed.
        match self.insert(&open) {
            Ok(id) => Ok(id),
            Err(error) => {
                open.close().await;
                Err(error)
            }
        }
    }

    fn insert(&self, open: &Arc<Open>) -> Result<SessionId, Error> {
        // Random, so that an id of an earlier connection names no session of this one.
        let mut random = [0; 8];
        getrandom::fill(&mut random)
            .map_err(|error| Error::internal_error().data(format!("no random numbers: {error}")))?;
        let id = format!("{:016x}", u64::from_le_bytes(random));
        let mut all = self.all();
        if all.len() >= MOST {
            let problem = format!("{MOST} sessions are open; close one with `session/close`");
            return Err(Error::invalid_request().data(problem));
        }
        all.insert(id.clone(), Arc::clone(open));
        Ok(SessionId::new(id))
    }

    /// Returns a session.
    ///
    /// # Errors
    /// There is no open session of this id.
    pub(crate) fn get(&self, id: &SessionId) -> Result<Arc<Open>, Error> {
        self.all().get(&*id.0).cloned().ok_or_else(unknown)
    }

    /// Closes a session and returns when its processes have ended.
    ///
    /// # Errors
    /// There is no open session of this id.
    pub(crate) async fn close(&self, id: &SessionId) -> Result<(), Error> {
        let open = self.all().remove(&*id.0).ok_or_else(unknown)?;
        open.close().await;
        Ok(())
    }

    /// Cancels all runs and returns when they have ended.
    pub(crate) async fn stop_runs(&self) {
        let open: Vec<Arc<Open>> = self.all().values().cloned().collect();
        // All are asked before any is awaited, so that their grace times overlap.
        for open in &open {
            open.agent.cancel();
        }
        for open in open {
            open.agent.settled().await;
        }
    }

    /// Closes all sessions.
    pub(crate) async fn close_all(&self) {
        self.stop_runs().await;
        // Taken, so that a request that still arrives finds no session to run in.
        let all = std::mem::take(&mut *self.all());
        futures::future::join_all(all.values().map(|open| open.close())).await;
    }
}

fn unknown() -> Error {
    Error::invalid_params().data("unknown sessionId: expected the id of an open session")
}
