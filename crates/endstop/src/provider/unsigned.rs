//! Stands in for the signatures of AWS in a program that is built without the feature `bedrock`.

use super::http::HttpError;
use endstop_wire::endpoint::SigningKeys;
use http::header::HeaderMap;
use std::time::SystemTime;
use url::Url;

/// No signatures, because the feature is disabled.
#[derive(Debug)]
pub(super) enum Signer {}

impl Signer {
    pub(super) fn new(_: &SigningKeys, provider: &str) -> Result<Signer, HttpError> {
        Err(HttpError::Unsupported {
            provider: provider.to_owned(),
            what: "the signatures of AWS",
            feature: "bedrock",
        })
    }

    pub(super) fn secrets(&self) -> Vec<Vec<u8>> {
        match *self {}
    }

    pub(super) fn headers(
        &self,
        _: &Url,
        _: &HeaderMap,
        _: &[u8],
        _: SystemTime,
    ) -> Result<HeaderMap, String> {
        match *self {}
    }
}
