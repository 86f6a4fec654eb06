//! Request signing keys, and the region that a signature and a URL may need. Signing needs a clock,
//! so the caller does it.

use super::secret::Secret;
use crate::catalog::providers::ProviderInfo;

/// Signing keys and the scope of the signature.
#[derive(Clone, Debug)]
pub struct SigningKeys {
    /// Id of the key, which is not secret.
    pub id: String,
    /// Secret key.
    pub secret: Secret,
    /// Session token of temporary keys.
    pub session: Option<Secret>,
    /// Name of the service in a signature.
    pub service: &'static str,
    /// Region for which the signature is valid.
    pub region: String,
}

/// Returns this provider's keys, if it supports signing and both keys are set.
pub(super) fn keys(
    provider: &ProviderInfo,
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

/// `true` for a valid region name. The name becomes part of a host name, so it must not contain a
/// character that ends one.
pub(super) fn is_region(name: &str) -> bool {
    let sound = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    !name.is_empty() && name.bytes().all(sound)
}
