//! Requests signed by AWS's Signature Version 4, each with its own body and time.
//!
//! ```ignore
//! let signer = Signer::new(&keys);
//! let more = signer.headers(&url, &headers, body, clock::now())?; // authorization, x-amz-date …
//! ```

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4::SigningParams;
use endstop_wire::providers::SigningKeys;
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use std::fmt;
use std::time::SystemTime;

/// Signs POST requests to one service in one region.
pub(super) struct Signer {
    identity: Credentials,
    service: &'static str,
    region: String,
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer")
            .field("service", &self.service)
            .field("region", &self.region)
            .finish_non_exhaustive()
    }
}

impl Signer {
    pub(super) fn new(keys: &SigningKeys) -> Signer {
        let session = keys.session.as_ref().map(|token| token.expose().to_owned());
        Signer {
            identity: Credentials::new(&keys.id, keys.secret.expose(), session, None, "endstop"),
            service: keys.service,
            region: keys.region.clone(),
        }
    }

    /// The headers that sign a request to this address with these headers and this body.
    ///
    /// # Errors
    /// What cannot be signed, in words without the keys: an address or a header that is none.
    pub(super) fn headers(
        &self,
        url: &Url,
        headers: &HeaderMap,
        body: &[u8],
        at: SystemTime,
    ) -> Result<HeaderMap, String> {
        let failed = |error: &dyn fmt::Display| format!("the request cannot be signed: {error}");
        let identity = self.identity.clone().into();
        let params = SigningParams::builder()
            .identity(&identity)
            .region(&self.region)
            .name(self.service)
            .time(at)
            .settings(SigningSettings::default())
            .build()
            .map_err(|error| failed(&error))?;
        let known = headers
            .iter()
            .filter_map(|(name, value)| value.to_str().ok().map(|value| (name.as_str(), value)));
        let request = SignableRequest::new("POST", url.as_str(), known, SignableBody::Bytes(body))
            .map_err(|error| failed(&error))?;
        let signed = sign(request, &params.into()).map_err(|error| failed(&error))?;
        let mut more = HeaderMap::new();
        for (name, value) in signed.output().headers() {
            let mut value = HeaderValue::from_str(value).map_err(|error| failed(&error))?;
            value.set_sensitive(true);
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|error| failed(&error))?;
            more.insert(name, value);
        }
        Ok(more)
    }
}
