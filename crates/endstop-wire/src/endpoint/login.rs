//! Fetched keys: application default credentials from which a short-lived key is obtained before a
//! call. Fetching needs files, sockets and a clock, so the caller does it.

use crate::catalog::providers::{LoginVars, ProviderInfo};

/// A key to fetch, and its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// The table's entry for such keys.
    pub vars: &'static LoginVars,
    /// Credentials file, if a variable names one. Otherwise the credentials are at the command's
    /// default location or come from the machine's account.
    pub file: Option<String>,
}

/// Returns the key to fetch for this provider. For a custom base URL only credentials from a
/// variable are used, so that those on the disk are not sent to an unknown server.
pub(super) fn login(
    provider: &ProviderInfo,
    own_address: bool,
    var: &dyn Fn(&str) -> Option<String>,
) -> Option<Login> {
    let vars = provider.login?;
    let file = var(vars.file);
    (file.is_some() || !own_address).then_some(Login { vars, file })
}
