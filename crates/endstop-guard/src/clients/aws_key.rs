//! One key for Amazon Web Services.

/// A key with its id, by which a signed request names it. It has no `Debug`, because that would show the secret.
#[derive(Clone)]
#[cfg_attr(not(feature = "bedrock"), expect(dead_code, reason = "only a signature reads them"))]
pub(crate) struct AwsKey {
    pub(crate) id: String,
    pub(crate) secret: String,
    pub(crate) session: Option<String>,
}
