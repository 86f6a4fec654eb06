//! Tokens of a standing proxy, and the tokens in requests.
//!
//! ```
//! use endstop_guard::standing::Tokens;
//! let tokens = Tokens::new([("ci".to_owned(), "a-long-random-token".to_owned())])?;
//! assert_eq!(tokens.name_of(b"a-long-random-token"), Some("ci"));
//! assert_eq!(tokens.name_of(b"a-long-random-token2"), None);
//! # Ok::<(), endstop_guard::standing::TokenError>(())
//! ```

use http::HeaderMap;
use http::header::PROXY_AUTHORIZATION;
use sha2::{Digest, Sha256};
use std::fmt;
use subtle::ConstantTimeEq;
use thiserror::Error;

/// The header of a token. It is removed before a request is forwarded.
pub const TOKEN_HEADER: &str = "x-endstop-token";

/// The shortest token, in bytes.
const SHORTEST: usize = 16;

/// The longest value that is compared, in bytes.
const LONGEST: usize = 4096;

/// The tokens that a standing proxy accepts, as hashes.
#[derive(Clone, Default)]
pub struct Tokens(Vec<(String, [u8; 32])>);

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

/// The error for a token. It does not contain the token.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TokenError {
    /// It is too short, or has a character that a header cannot carry.
    #[error(
        "token `{name}`: expected {SHORTEST} to {LONGEST} visible ASCII characters without spaces, \
         for example from `openssl rand -hex 32`"
    )]
    Form {
        /// The name of the token.
        name: String,
    },
    /// Another one has the same value, so that a request does not tell which one it is.
    #[error("token `{name}`: it has the same value as `{other}`")]
    Twice {
        /// The name of the token.
        name: String,
        /// The name of the other one.
        other: String,
    },
}

impl Tokens {
    /// Takes named tokens.
    ///
    /// # Errors
    /// A token is too short, has a character that a header cannot carry, or is that of another name.
    pub fn new(tokens: impl IntoIterator<Item = (String, String)>) -> Result<Tokens, TokenError> {
        let mut all = Vec::new();
        for (name, token) in tokens {
            let plain = token.bytes().all(|byte| (0x21..0x7f).contains(&byte));
            if token.len() < SHORTEST || token.len() > LONGEST || !plain {
                return Err(TokenError::Form { name });
            }
            let hash = hash(token.as_bytes());
            if let Some((other, _)) = all.iter().find(|(_, known)| *known == hash) {
                return Err(TokenError::Twice { name, other: String::clone(other) });
            }
            all.push((name, hash));
        }
        Ok(Tokens(all))
    }

    /// `true` if there is no token, so that every client may use the proxy.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the name of a token. The time does not depend on the value: hashes of equal length
    /// are compared completely, with every known token.
    pub fn name_of(&self, token: &[u8]) -> Option<&str> {
        let given = hash(token.get(..LONGEST).unwrap_or(token));
        let mut found = None;
        for (name, known) in &self.0 {
            if bool::from(known.as_slice().ct_eq(given.as_slice())) {
                found = Some(name.as_str());
            }
        }
        found
    }

    /// Returns the name of the token in a request: `x-endstop-token`, or `Bearer` in
    /// `Proxy-Authorization`.
    pub fn of_request(&self, headers: &HeaderMap) -> Option<&str> {
        if let Some(token) = headers.get(TOKEN_HEADER) {
            return self.name_of(token.as_bytes().trim_ascii());
        }
        // For clients whose only setting is an HTTP proxy's.
        let value = headers.get(PROXY_AUTHORIZATION)?.as_bytes();
        let (scheme, token) = value.split_at_checked(7)?;
        scheme.eq_ignore_ascii_case(b"bearer ").then(|| self.name_of(token.trim_ascii()))?
    }
}

fn hash(token: &[u8]) -> [u8; 32] {
    Sha256::digest(token).into()
}
