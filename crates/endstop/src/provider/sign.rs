//! Request signatures with AWS Signature Version 4, over each request's body and time.
//!
//! ```text
//! let signer = Signer::new(&keys, "Amazon Bedrock")?;
//! let more = signer.headers(&url, &headers, body, clock::now())?; // authorization, x-amz-date …
//! ```

use super::http::HttpError;
use aws_credential_types::Credentials;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4::SigningParams;
use endstop_wire::endpoint::SigningKeys;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use std::fmt;
use std::time::SystemTime;
use url::Url;

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
    #[expect(clippy::unnecessary_wraps, reason = "without the feature it fails")]
    pub(super) fn new(keys: &SigningKeys, _provider: &str) -> Result<Signer, HttpError> {
        let session = keys.session.as_ref().map(|token| token.expose().to_owned());
        Ok(Signer {
            identity: Credentials::new(&keys.id, keys.secret.expose(), session, None, "endstop"),
            service: keys.service,
            region: keys.region.clone(),
        })
    }

    /// Returns the credentials to redact.
    pub(super) fn secrets(&self) -> Vec<Vec<u8>> {
        let (id, secret) = (self.identity.access_key_id(), self.identity.secret_access_key());
        let all = [Some(id), Some(secret), self.identity.session_token()];
        all.into_iter().flatten().map(|key| key.as_bytes().to_vec()).collect()
    }

    /// Returns the headers that sign a request with this address, these headers and this body.
    ///
    /// # Errors
    /// An address or a header is invalid and cannot be signed. The message does not contain
    /// credentials.
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
        // A header that is not text cannot be signed, and AWS accepts unsigned extra headers.
        let known = headers
            .iter()
            .filter_map(|(name, value)| value.to_str().ok().map(|value| (name.as_str(), value)));
        let request = SignableRequest::new("POST", url.as_str(), known, SignableBody::Bytes(body))
            .map_err(|error| failed(&error))?;
        let signed = sign(request, &params.into()).map_err(|error| failed(&error))?;
        let mut more = HeaderMap::new();
        for (name, value) in signed.output().headers() {
            let mut value = HeaderValue::from_str(value).map_err(|error| failed(&error))?;
            // Mark the secrets so that debug output and recordings leave them out.
            value.set_sensitive(matches!(name, "authorization" | "x-amz-security-token"));
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|error| failed(&error))?;
            more.insert(name, value);
        }
        Ok(more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use endstop_wire::endpoint::Secret;
    use http::header::CONTENT_TYPE;
    use std::time::Duration;

    /// Signs with the key and time of AWS's published examples.
    fn signed(
        service: &'static str,
        region: &str,
        session: Option<&str>,
        (url, kind, body): (&str, Option<&'static str>, &str),
    ) -> HeaderMap {
        let keys = SigningKeys {
            id: "AKIDEXAMPLE".to_owned(),
            secret: Secret::new("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"),
            session: session.map(Secret::new),
            service,
            region: region.to_owned(),
        };
        let mut headers = HeaderMap::new();
        if let Some(kind) = kind {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        }
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_440_938_160);
        let signer = Signer::new(&keys, "Amazon Bedrock").unwrap();
        let shown = format!("{signer:?}");
        assert!(!shown.contains("EXAMPLE") && shown.contains(region), "{shown}");
        let url = Url::parse(url).unwrap();
        let more = signer.headers(&url, &headers, body.as_bytes(), at).unwrap();
        for (name, value) in &more {
            let secret = matches!(name.as_str(), "authorization" | "x-amz-security-token");
            assert_eq!(value.is_sensitive(), secret, "{name}");
        }
        assert!(!format!("{more:?}").contains("Signature="));
        more
    }

    #[test]
    fn signatures_match_published_aws_examples() {
        let form = Some("application/x-www-form-urlencoded");
        for (kind, body, names, signature) in [
            // post-vanilla and post-x-www-form-urlencoded of the signing test suite.
            (
                None,
                "",
                "host;x-amz-date",
                "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
            ),
            (
                form,
                "Param1=value1",
                "content-type;host;x-amz-date",
                "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
            ),
        ] {
            let request = ("https://example.amazonaws.com/", kind, body);
            let more = signed("service", "us-east-1", None, request);
            let want = format!(
                "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, \
                 SignedHeaders={names}, Signature={signature}"
            );
            assert_eq!(more["authorization"], want.as_str());
            assert_eq!(
                (&more["x-amz-date"], more.len()),
                (&"20150830T123600Z".parse().unwrap(), 2)
            );
        }
    }

    /// The server refuses such a signature and the run reports that; nothing panics here.
    #[test]
    fn wrong_clock_still_signs() {
        let keys = SigningKeys {
            id: "AKIDEXAMPLE".to_owned(),
            secret: Secret::new("secret"),
            session: None,
            service: "bedrock",
            region: "eu-west-3".to_owned(),
        };
        let url = Url::parse("https://example.amazonaws.com/").unwrap();
        let years = |n: u64| Duration::from_secs(n * 365 * 86_400);
        for at in [
            SystemTime::UNIX_EPOCH - years(100),
            SystemTime::UNIX_EPOCH - Duration::from_nanos(1),
            SystemTime::UNIX_EPOCH + years(1_000),
        ] {
            let signed = Signer::new(&keys, "Amazon Bedrock").unwrap().headers(
                &url,
                &HeaderMap::new(),
                b"",
                at,
            );
            assert!(signed.is_ok_and(|more| more.contains_key("authorization")), "{at:?}");
        }
    }

    /// The signature computed by botocore for the same request: an escaped path is escaped again.
    #[test]
    fn bedrock_signature_matches_python_sdk() {
        let url = "https://bedrock-runtime.eu-west-3.amazonaws.com/model/arn%3Aaws%3Abedrock%3Aeu-west-3%3A012345678901%3Ainference-profile%2Feu.amazon.nova-lite-v1%3A0/converse-stream";
        let request = (url, Some("application/json"), "{\"messages\":[]}");
        let more = signed("bedrock", "eu-west-3", Some("session/token=="), request);
        assert_eq!(
            more["authorization"],
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/eu-west-3/bedrock/aws4_request, \
             SignedHeaders=content-type;host;x-amz-date;x-amz-security-token, \
             Signature=769e6f85fc41547c80931d2ffcc49f09484d09e38ce26ed31d9e6419ce30ebb1"
        );
        assert_eq!(more["x-amz-security-token"], "session/token==");
    }
}
