//! Names of runs, and other ids that clients choose, restricted to harmless characters.

use endstop_wire::redact::secrets_out;
use sha2::{Digest as _, Sha256};
use std::fmt;

/// The longest name, in bytes.
const LONGEST: usize = 100;

/// The name of a run, as the path prefix `/run/NAME` or the header `x-endstop-run` gives it.
///
/// A name has 1 to 100 ASCII letters, digits, `-`, `_` and `.`, and starts with a letter or a digit.
/// So it is a file name that cannot leave its folder, and a line that a terminal can show.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunName(String);

impl RunName {
    /// Checks a name.
    ///
    /// # Errors
    /// The name is empty, too long, or has another character, or it contains a credential of a known
    /// format.
    pub fn new(name: &str) -> Result<RunName, InvalidRunName> {
        if name.is_empty() {
            return Err(InvalidRunName::Empty);
        }
        if name.len() > LONGEST {
            return Err(InvalidRunName::Long { bytes: name.len() });
        }
        if secrets_out(name) != name {
            return Err(InvalidRunName::Credential);
        }
        let fits = |at: usize, byte: u8| {
            byte.is_ascii_alphanumeric() || at > 0 && matches!(byte, b'-' | b'_' | b'.')
        };
        match name.bytes().enumerate().find(|(at, byte)| !fits(*at, *byte)) {
            Some((at, _)) => Err(InvalidRunName::Character { at }),
            None => Ok(RunName(name.to_owned())),
        }
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RunName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The reason why a name is not a [`RunName`]. It does not quote the name, which may be a secret in
/// the wrong place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidRunName {
    /// There is no name.
    #[error(
        "invalid run name: expected 1 to 100 characters, for example `/run/nightly-1`; it is empty"
    )]
    Empty,
    /// The name is too long.
    #[error("invalid run name: expected at most 100 characters; it has {bytes} bytes")]
    Long {
        /// The length of the name in bytes.
        bytes: usize,
    },
    /// The name contains a credential, which lists and journals would show.
    #[error(
        "invalid run name: it contains a credential; choose a name that is not secret, for example \
         `nightly-1`"
    )]
    Credential,
    /// A character is not allowed.
    #[error(
        "invalid run name: expected ASCII letters, digits, `-`, `_` and `.`, and a letter or digit \
         first; character {} is another", at + 1
    )]
    Character {
        /// Offset of the first such byte, from 0.
        at: usize,
    },
}

/// An id from a client's header or body: the id itself if it could be a run's name, otherwise `x-`
/// and its SHA-256, shortened, so that a credential in the place of an id is not shown. Two ids stay two ids, whatever they contain.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(String);

impl ClientId {
    /// Takes an id; `None` if it is blank.
    pub fn of(id: &str) -> Option<ClientId> {
        let id = id.trim();
        // An id that looks like a replaced one is replaced too, so that it cannot be forged.
        let safe = !id.starts_with("x-");
        match RunName::new(id) {
            // A blank header is the same as none.
            Err(InvalidRunName::Empty) => None,
            Ok(RunName(id)) if safe => Some(ClientId(id)),
            _ => {
                let digest = Sha256::digest(id);
                let hex = digest.iter().take(16).map(|byte| format!("{byte:02x}"));
                Some(ClientId(format!("x-{}", hex.collect::<String>())))
            }
        }
    }

    /// Returns the id.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_with_credential_is_refused() {
        for name in ["sk-proj-4fQ9xTz71LmN0pWv", "nightly.ghp_abcdefghijklmnopqrstuvwxyz"] {
            let error = RunName::new(name).unwrap_err();
            assert_eq!(error, InvalidRunName::Credential);
            assert!(!error.to_string().contains("4fQ9") && !error.to_string().contains("ghp_"));
            assert!(ClientId::of(name).unwrap().as_str().starts_with("x-"));
        }
        for name in ["nightly-1", "sk-learn", "task-sk-1", "9f8a7b6c-5d4e-4f2a-8b1c-0d9e8f7a6b5c"] {
            assert!(RunName::new(name).is_ok(), "{name}");
            assert_eq!(ClientId::of(name).unwrap().as_str(), name);
        }
    }
}
