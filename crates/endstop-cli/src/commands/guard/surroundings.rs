//! The surroundings of both forms of guard: randomness, variables, outgoing proxies and the journal.

use crate::failure::{Failure, Result};
use crate::output;
use crate::visible::visible;
use endstop::agent::GuestJournal;
use endstop::journal::SqliteJournal;
use endstop_guard::clients::{DiskFiles, Files as _};
use endstop_guard::process::Outgoing;
use endstop_guard::run::AwsKeys;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

/// Returns a random number from the process's hash keys, which the system's generator seeds.
pub(in crate::commands) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Returns random bytes of the system, for a secret.
pub(in crate::commands) fn secret() -> Result<[u8; 16]> {
    let mut secret = [0; 16];
    getrandom::fill(&mut secret)
        .map_err(|error| Failure::fault(format!("the system gives no random bytes: {error}")))?;
    Ok(secret)
}

/// Returns random bytes, with which keys of clients become fingerprints.
pub(in crate::commands) fn salt() -> [u8; 16] {
    let mut salt = [0; 16];
    for chunk in salt.chunks_mut(8) {
        chunk.copy_from_slice(&random().to_le_bytes());
    }
    salt
}

/// Returns the variables whose names and values are text.
pub(in crate::commands) fn environment() -> BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// Returns the keys with which calls to Amazon Bedrock are signed again.
pub(in crate::commands) fn aws_keys() -> Option<AwsKeys> {
    AwsKeys::of_machine(|name| std::env::var(name).ok(), |path| DiskFiles.read(path))
}

/// Returns the proxies and authorities of the environment, and warns of those that are not used.
pub(in crate::commands) fn outgoing(environment: &BTreeMap<String, String>) -> Outgoing {
    let outgoing = Outgoing::from_environment(environment).load();
    for warning in &outgoing.warnings {
        output::note(&format!("endstop guard: {}", visible(&warning.to_string())));
    }
    outgoing
}

/// Starts the thread that writes to the journal.
pub(in crate::commands) fn guests(journal: &SqliteJournal) -> Result<GuestJournal> {
    GuestJournal::start(Arc::new(journal.clone())).map_err(|error| {
        Failure::fault(format!("the thread that writes the journal cannot be started: {error}"))
    })
}
