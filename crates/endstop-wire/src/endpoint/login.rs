//! Keys that nobody sets: they are fetched before a call, with credentials that a command left on
//! the disk or that a file holds. The fetching itself needs files, sockets and a clock, so that it is
//! the caller's.

use crate::catalog::providers::{LoginVars, Provider};

/// A key to fetch, and from what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// What is known of such keys.
    pub vars: &'static LoginVars,
    /// The file of the credentials, where a variable names one; else they are where the command
    /// leaves them, or the machine's own.
    pub file: Option<String>,
}

/// The key to fetch for this provider. To an address of one's own goes what a variable says, not
/// what lies on the disk.
pub(super) fn login(
    provider: &Provider,
    own_address: bool,
    var: &dyn Fn(&str) -> Option<String>,
) -> Option<Login> {
    let vars = provider.login?;
    let file = var(vars.file);
    (file.is_some() || !own_address).then_some(Login { vars, file })
}
