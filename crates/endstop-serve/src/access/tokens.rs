//! Tokens and the agents that each may use.
//!
//! ```
//! use endstop_serve::Tokens;
//! let file = "[tokens.ci]\ntoken = \"$CI_TOKEN\"\nagents = [\"reviewer\"]\n";
//! let tokens = Tokens::parse(file, |name| (name == "CI_TOKEN").then(|| "0123456789abcdef".to_owned()))?;
//! let client = tokens.client_of(b"0123456789abcdef").unwrap();
//! assert!(client.may_use("reviewer") && !client.may_use("deployer"));
//! assert!(tokens.client_of(b"0123456789abcdeg").is_none());
//! # Ok::<(), endstop_serve::TokenFileError>(())
//! ```

use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use subtle::ConstantTimeEq;

/// The shortest token, in bytes.
const SHORTEST: usize = 16;

/// The longest token, in bytes.
const LONGEST: usize = 4096;

/// The tokens of a server, as hashes. An empty set means that the server asks for none.
#[derive(Clone, Default)]
pub struct Tokens(Vec<([u8; 32], Client)>);

/// A client: the name of its token, and the agents that it may use. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// Name of the token; `None` on a server without tokens.
    pub name: Option<Arc<str>>,
    /// The agents; `None` means all.
    pub agents: Option<Arc<BTreeSet<String>>>,
}

impl Client {
    /// Returns the client of a server without tokens, who may use all agents.
    pub fn anyone() -> Client {
        Client { name: None, agents: None }
    }

    /// `true` if the client may use this agent and see its runs.
    pub fn may_use(&self, agent: &str) -> bool {
        self.agents.as_ref().is_none_or(|agents| agents.contains(agent))
    }
}

/// The error for a tokens file. It does not contain a token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenFileError {
    /// The file is not TOML, or has another structure.
    #[error(
        "line {line}: expected tables [tokens.NAME] with `token` or `sha256`, and optionally `agents`"
    )]
    Syntax {
        /// The line, from 1.
        line: usize,
    },
    /// A token is not usable.
    #[error("token `{name}`: {problem}")]
    Token {
        /// Name of the token.
        name: String,
        /// The problem and the fix.
        problem: &'static str,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    tokens: BTreeMap<String, Row>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    token: Option<String>,
    sha256: Option<String>,
    agents: Option<BTreeSet<String>>,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(_, client)| client)).finish()
    }
}

impl Tokens {
    /// Reads a tokens file: `[tokens.NAME]` with `token`, which is the value or `$VARIABLE`, or
    /// `sha256`, the hash of the token in hexadecimal; and optionally `agents`.
    ///
    /// # Errors
    /// The file is not valid, or a token is too short, or missing in the environment.
    pub fn parse(
        text: &str,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Tokens, TokenFileError> {
        let file: File = toml::from_str(text).map_err(|error: toml::de::Error| {
            // The parser's message is not used, because it quotes values, and one may be a token.
            let before = text.get(..error.span().map_or(0, |span| span.start)).unwrap_or_default();
            TokenFileError::Syntax { line: 1 + before.matches('\n').count() }
        })?;
        let mut tokens = Tokens::default();
        for (name, row) in file.tokens {
            let client = |name: String, agents: Option<BTreeSet<String>>| Client {
                name: Some(name.into()),
                agents: agents.map(Arc::new),
            };
            let wrong = |problem| TokenFileError::Token { name: plain(&name), problem };
            let hash = match (row.token, row.sha256) {
                (Some(token), None) => {
                    let token = match token.strip_prefix('$') {
                        Some(from) => variable(from)
                            .ok_or_else(|| wrong("its variable is not set in the environment"))?,
                        None => token,
                    };
                    usable(&token).map_err(wrong)?
                }
                (None, Some(hex)) => {
                    hash_of_hex(&hex).ok_or_else(|| wrong("`sha256`: expected 64 hex digits"))?
                }
                _ => return Err(wrong("expected either `token` or `sha256`")),
            };
            tokens.0.push((hash, client(name, row.agents)));
        }
        Ok(tokens)
    }

    /// Adds a token for all agents.
    ///
    /// # Errors
    /// The token is too short, or has a character that a header cannot carry.
    pub fn with(mut self, name: &str, token: &str) -> Result<Tokens, TokenFileError> {
        let hash = usable(token)
            .map_err(|problem| TokenFileError::Token { name: name.to_owned(), problem })?;
        self.0.push((hash, Client { name: Some(name.into()), agents: None }));
        Ok(self)
    }

    /// `true` if there is no token, so that every client may use the server.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of tokens.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the names of all agents that tokens are bound to.
    pub fn agents(&self) -> impl Iterator<Item = &str> {
        let bound = self.0.iter().filter_map(|(_, client)| client.agents.as_ref());
        bound.flat_map(|agents| agents.iter().map(String::as_str))
    }

    /// Returns the client of a token. The time does not depend on the value: hashes of equal length
    /// are compared completely, with every known token.
    pub fn client_of(&self, token: &[u8]) -> Option<&Client> {
        // Cut, because a client chooses the length, and the time of the hash grows with it.
        let given = hash(token.get(..LONGEST).unwrap_or(token));
        // All are compared, so that the time does not tell which one fits.
        let mut found = None;
        for (known, client) in &self.0 {
            // No early return, which would show by its time which token it was.
            if bool::from(known.as_slice().ct_eq(given.as_slice())) {
                found = Some(client);
            }
        }
        found
    }
}

fn usable(token: &str) -> Result<[u8; 32], &'static str> {
    let visible = token.bytes().all(|byte| (0x21..0x7f).contains(&byte));
    if token.len() < SHORTEST || token.len() > LONGEST || !visible {
        return Err(
            "expected 16 to 4096 visible ASCII characters without spaces, for example from \
             `openssl rand -hex 32`",
        );
    }
    Ok(hash(token.as_bytes()))
}

fn hash(token: &[u8]) -> [u8; 32] {
    Sha256::digest(token).into()
}

fn hash_of_hex(hex: &str) -> Option<[u8; 32]> {
    let mut hash = [0; 32];
    // Checked first, because slicing by bytes would otherwise split a character.
    if hex.len() != 64 || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (at, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(hex.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(hash)
}

/// Returns text of a file without characters that a terminal would obey.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
