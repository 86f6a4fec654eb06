//! Keys that sign each request instead of going with it, and the region that both a signature and
//! an address may need. The signing itself needs a clock, so that it is the caller's.

use super::secret::Secret;
use crate::catalog::providers::Provider;

/// Keys to sign with, and what the signature is for.
#[derive(Clone, Debug)]
pub struct SigningKeys {
    /// The key's id; no secret.
    pub id: String,
    /// The secret key.
    pub secret: Secret,
    /// The session token of temporary keys.
    pub session: Option<Secret>,
    /// What the service is called in a signature.
    pub service: &'static str,
    /// The region in which the signature counts.
    pub region: String,
}

/// The keys of this provider, where it signs and both are there.
pub(super) fn keys(
    provider: &Provider,
    region: &str,
    var: &dyn Fn(&str) -> Option<String>,
) -> Option<SigningKeys> {
    let vars = provider.signing?;
    Some(SigningKeys {
        id: var(vars.id)?,
        secret: Secret::new(var(vars.secret)?),
        session: var(vars.session).map(Secret::new),
        service: vars.service,
        region: region.to_owned(),
    })
}

/// A region is part of a host's name: nothing may end that.
pub(super) fn is_region(name: &str) -> bool {
    let sound = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    !name.is_empty() && name.bytes().all(sound)
}
