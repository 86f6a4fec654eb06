//! Accepts requests for runs, once for each key, whatever becomes of the engine meanwhile.

use super::engine::Engine;
use super::list::List;
use crate::catalog::{Accepted, Catalog, Decision};
use crate::clock::wall_ms;
use crate::request::RunRequest;
use crate::step::hash;
use crate::store::{Store, StoreError};
use endstop_serve::backend::{BackendError, Started};
use std::sync::Arc;

/// Number of ids that a key may have, one for each time that the engine did not confirm its run.
const MOST_IDS: u32 = 10_000;

/// A request for a run that was checked.
pub(super) struct New<'a> {
    /// The name of the token.
    pub(super) owner: &'a str,
    pub(super) key: Option<&'a str>,
    /// Hash of the request as the client sent it, also of the parts that the engine does not read.
    pub(super) digest: String,
    /// The request for the engine.
    pub(super) request: RunRequest,
    /// The request for the list, without secrets.
    pub(super) shown: RunRequest,
}

/// The store and the engine.
pub(super) struct Acceptor {
    pub(super) store: Store,
    pub(super) catalog: Catalog,
    pub(super) engine: Engine,
    pub(super) list: List,
}

/// A request that a client has sent before.
pub(super) enum Repeated {
    /// Its run exists.
    Accepted(String),
    /// It was written down, and may not have reached the engine.
    Undecided,
}

/// The state of a request under one id.
enum Found {
    /// The request was written down by this call.
    Written,
    /// The same request was written down before, and may not have reached the engine.
    Undecided,
    Accepted,
    /// The id is taken: its request was withdrawn, or it belongs to another run.
    Taken,
}

impl Acceptor {
    /// Does something with the store that may block.
    pub(super) async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Acceptor) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, BackendError> {
        let own = Arc::clone(self);
        match tokio::task::spawn_blocking(move || work(&own)).await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(error)) => {
                // Paths of the machine are for the operator only.
                self.engine.report(&error.to_string());
                Err(BackendError::internal())
            }
            Err(_) => Err(BackendError::internal()),
        }
    }

    /// Finds the run of a repeated request, without the engine.
    ///
    /// # Errors
    /// The key belongs to another request, or the store cannot be read.
    pub(super) async fn repeated(
        self: &Arc<Self>,
        owner: &str,
        key: &str,
        digest: &str,
    ) -> Result<Option<Repeated>, BackendError> {
        for nth in 0..MOST_IDS {
            let id = id_of(owner, key, nth);
            let entry = {
                let id = id.clone();
                self.blocking(move |own| own.catalog.get(&id)).await?
            };
            let Some(entry) = entry else { return Ok(None) };
            match entry.decision {
                Some(Decision::Withdrawn) => {}
                _ if entry.accepted.digest != digest => return Err(BackendError::key_reused()),
                Some(Decision::Accepted) => return Ok(Some(Repeated::Accepted(id))),
                None => return Ok(Some(Repeated::Undecided)),
            }
        }
        Ok(None)
    }

    /// Accepts a request.
    pub(super) async fn start(self: &Arc<Self>, new: New<'_>) -> Result<Started, BackendError> {
        // Before anything is written, so that requests leave nothing behind while the engine is down.
        self.engine.ready().await?;
        self.engine.check_store(self.store.id()).await?;
        let New { owner, key, digest, request, shown } = new;
        for nth in 0..MOST_IDS {
            let id = match key {
                Some(key) => id_of(owner, key, nth),
                None => endstop::agent::new_run_id(),
            };
            let accepted = Accepted {
                owner: owner.to_owned(),
                digest: digest.clone(),
                ..Accepted::new(shown.clone(), wall_ms())
            };
            let known = match self.find(&id, accepted, key.is_some()).await? {
                Found::Taken => continue,
                Found::Accepted => return Ok(Started::Known(id)),
                Found::Undecided => true,
                Found::Written => false,
            };
            let sent = self.engine.start(&id, &request).await;
            // Of this server, another one and a worker, the first decides for all.
            let decision = if sent.is_ok() { Decision::Accepted } else { Decision::Withdrawn };
            let decided = {
                let id = id.clone();
                self.blocking(move |own| {
                    let decided = own.catalog.decide(&id, decision)?;
                    own.list.changed();
                    Ok(decided)
                })
            };
            match (decided.await?, sent) {
                (Decision::Accepted, _) if known => return Ok(Started::Known(id)),
                (Decision::Accepted, _) => return Ok(Started::New(id)),
                (Decision::Withdrawn, Err(error)) => return Err(error),
                // Another server, which did not reach the engine, was faster. The run does not begin
                // under this id.
                (Decision::Withdrawn, Ok(())) => {}
            }
        }
        self.engine.report("a key has too many requests that the engine did not confirm");
        Err(BackendError::internal())
    }

    /// Writes a request down, or finds the one that was written down before.
    async fn find(
        self: &Arc<Self>,
        id: &str,
        accepted: Accepted,
        keyed: bool,
    ) -> Result<Found, BackendError> {
        let (id, digest) = (id.to_owned(), accepted.digest.clone());
        let found = self.blocking(move |own| {
            let Some(first) = own.catalog.accept(&id, &accepted)? else { return Ok(None) };
            let entry = own.catalog.get(&id)?;
            Ok(Some((first, entry.and_then(|entry| entry.decision))))
        });
        Ok(match found.await? {
            None => Found::Written,
            Some((_, Some(Decision::Withdrawn))) => Found::Taken,
            // Chosen at random, so it is the id of another run.
            Some(_) if !keyed => Found::Taken,
            Some((first, _)) if first.digest != digest => return Err(BackendError::key_reused()),
            Some((_, Some(Decision::Accepted))) => Found::Accepted,
            Some((_, None)) => Found::Undecided,
        })
    }
}

/// Returns the id of the run of a key: the same on every server.
fn id_of(owner: &str, key: &str, nth: u32) -> String {
    // The length separates owners and keys that contain `:`, so that two of them never share a run.
    let text = format!("{}:{owner}:{nth}:{key}", owner.len());
    hash(text.as_bytes()).get(..24).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_belong_to_their_owner() {
        let ids = [
            id_of("a", "k", 0),
            id_of("a", "k", 1),
            id_of("b", "k", 0),
            id_of("", "a:0:k", 0),
            id_of("a:0", "k", 0),
        ];
        for (at, id) in ids.iter().enumerate() {
            assert!(crate::check_run_id(id).is_ok() && !ids[..at].contains(id), "{ids:?}");
        }
        assert_eq!(id_of("a", "k", 0), ids[0]);
    }
}
