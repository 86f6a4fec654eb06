//! One key for Amazon Web Services.

use aws_credential_types::Credentials;

/// A key with its id, by which a signed request names it.
#[derive(Clone)]
pub(crate) struct AwsKey {
    pub(super) id: String,
    pub(crate) identity: Credentials,
}

impl AwsKey {
    pub(super) fn new(id: &str, secret: &str, session: Option<String>) -> AwsKey {
        let identity = Credentials::new(id, secret, session, None, "endstop");
        AwsKey { id: id.to_owned(), identity }
    }
}
