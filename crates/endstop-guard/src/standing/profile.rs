//! Profiles: which settings a run of a standing proxy gets, and who may use them.
//!
//! ```
//! use endstop_guard::standing::{Profile, choose};
//! let profiles = [
//!     Profile::new("default", ["*"]),
//!     Profile { tokens: vec!["ci".to_owned()], ..Profile::new("nightly", ["nightly-*"]) },
//! ];
//! assert_eq!(choose(&profiles, Some("nightly-7"), Some("ci"), None), Ok(1));
//! // Another token does not get the looser profile, also not by asking for it.
//! assert_eq!(choose(&profiles, Some("nightly-7"), Some("web"), None), Ok(0));
//! assert!(choose(&profiles, Some("nightly-7"), Some("web"), Some("nightly")).is_err());
//! ```

use crate::run::Settings;
use endstop::journal::SpendCeilings;

/// The header with which a client asks for a profile. It is removed before a request is forwarded.
pub const PROFILE_HEADER: &str = "x-endstop-profile";

/// Settings for a group of runs.
#[derive(Clone, Debug)]
pub struct Profile {
    /// The name of the profile in the file.
    pub name: String,
    /// Patterns of the names of runs that may use it. `*` stands for any characters. A run without
    /// a name of its own, known only by its session or key, matches `*` alone.
    pub runs: Vec<String>,
    /// Names of the tokens that may use it; empty: all.
    pub tokens: Vec<String>,
    /// The settings of its runs.
    pub settings: Settings,
    /// The ceilings of periods, for all of its runs together.
    pub spend: SpendCeilings,
}

impl Profile {
    /// Creates a profile that observes the runs with such names.
    pub fn new<const N: usize>(name: &str, runs: [&str; N]) -> Profile {
        Profile {
            name: name.to_owned(),
            runs: runs.into_iter().map(str::to_owned).collect(),
            tokens: Vec::new(),
            settings: Settings::default(),
            spend: SpendCeilings::default(),
        }
    }

    /// Returns how specific its best pattern for a run is, or `None` if the run may not use it.
    fn rank(&self, run: Option<&str>, token: Option<&str>) -> Option<(usize, bool)> {
        let listed = token.is_some_and(|token| self.tokens.iter().any(|known| known == token));
        if !self.tokens.is_empty() && !listed {
            return None;
        }
        let fits = |pattern: &&String| match run {
            Some(run) => matches(pattern, run),
            None => pattern.as_str() == "*",
        };
        let literal = |pattern: &String| pattern.bytes().filter(|byte| *byte != b'*').count();
        let best = self.runs.iter().filter(fits).map(literal).max()?;
        Some((best, listed))
    }
}

/// Returns the index of the profile of a run: the one that the client asks for if it may use it,
/// otherwise the one with the most specific pattern. Between equal patterns a profile for listed
/// tokens goes first, then the order.
///
/// # Errors
/// No profile may be used. The message is for the client.
pub fn choose(
    profiles: &[Profile],
    run: Option<&str>,
    token: Option<&str>,
    asked: Option<&str>,
) -> Result<usize, String> {
    let ranked = || {
        profiles
            .iter()
            .enumerate()
            .filter_map(|(at, profile)| Some((at, profile.rank(run, token)?)))
    };
    if let Some(asked) = asked {
        // The same message if it does not exist, because names of profiles are the owner's matter.
        return ranked()
            .find(|(at, _)| profiles[*at].name == asked)
            .map(|(at, _)| at)
            .ok_or_else(|| format!("this run may not use the profile in {PROFILE_HEADER}"));
    }
    let mut best: Option<(usize, (usize, bool))> = None;
    for (at, rank) in ranked() {
        if best.is_none_or(|(_, known)| rank > known) {
            best = Some((at, rank));
        }
    }
    best.map(|(at, _)| at).ok_or_else(|| {
        "no profile allows this run; choose another run name, as in /run/NAME, or another token"
            .to_owned()
    })
}

/// Returns whether a name fits a pattern, in time linear in both for each `*`.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        // The first place is enough, because only `*` follows.
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}
