//! Signs calls to Amazon Bedrock again: the signature of a client covers the host, which is the
//! proxy's.
//!
//! ```text
//! client ── signed for 127.0.0.1 ─► check with the same keys ─► sign for the upstream ─► Bedrock
//! ```
//!
//! The client's own signature is checked first, so that only a client that has the keys gets one.
//! Source: <https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html>.

use crate::clients::{AwsKey, AwsKeys};
use crate::proxy::{RequestHead, SecretPath};
use aws_credential_types::Credentials;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4::SigningParams;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Uri};
use sha2::{Digest, Sha256};
use std::fmt::{self, Write};
use std::time::{Duration, SystemTime};

/// The beginning of the header of a signed request.
const SCHEME: &str = "AWS4-HMAC-SHA256 ";
/// The service in the scope of a signature for Bedrock.
const SERVICE: &str = "bedrock";
/// The header with the time of the signature.
const DATE: &str = "x-amz-date";
/// The header with the hash of the body.
const HASH: &str = "x-amz-content-sha256";
/// The header with the token of temporary keys.
const TOKEN: &str = "x-amz-security-token";
/// The value of [`HASH`] for a body that is not signed.
const UNSIGNED: &str = "UNSIGNED-PAYLOAD";
/// Headers that the proxy sets or removes, so that a new signature must not cover them.
const CHANGED: [&str; 9] = [
    "accept-encoding",
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "te",
    "transfer-encoding",
    DATE,
];

/// A request whose signature was made with one of the keys.
pub(super) struct Signed<'a> {
    key: &'a AwsKey,
    head: &'a RequestHead,
    region: &'a str,
    /// Names of the signed headers.
    names: Vec<&'a str>,
    at: SystemTime,
}

impl<'a> Signed<'a> {
    /// Checks the signature of a request. `body` has the bytes that the client sent, or `None` if
    /// they were not read.
    ///
    /// # Errors
    /// The request is not signed with these keys, or not for Bedrock. The message is for the client
    /// and contains no credentials.
    pub(super) fn check(
        keys: &'a AwsKeys,
        head: &'a RequestHead,
        body: Option<&Bytes>,
    ) -> Result<Signed<'a>, String> {
        let header = head.header("authorization").unwrap_or_default();
        let fields = header.strip_prefix(SCHEME).unwrap_or_default();
        let field = |name: &str| {
            let mut pairs = fields.split(',').filter_map(|field| field.trim().split_once('='));
            pairs.find(|(known, _)| *known == name).map(|(_, value)| value)
        };
        let (Some(credential), Some(names), Some(signature)) =
            (field("Credential"), field("SignedHeaders"), field("Signature"))
        else {
            return Err("the signature of this request is incomplete".to_owned());
        };
        let mut scope = credential.rsplitn(5, '/');
        let (_, service, region) = (scope.next(), scope.next(), scope.next());
        let (_, id) = (scope.next(), scope.next());
        let (Some(SERVICE), Some(region), Some(id)) = (service, region, id) else {
            return Err(format!("this request is not signed for the service `{SERVICE}`"));
        };
        let date = head.header(DATE).and_then(time_of);
        let at = date.ok_or_else(|| format!("the header {DATE} of this request is not a time"))?;
        let other = "this request is not signed with the keys of guard, which are those in its \
                     environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN) and \
                     in the profile AWS_PROFILE";
        let key = keys.find(id).ok_or(other)?;
        let signed = Signed { key, head, region, names: names.split(';').collect(), at };
        let host = head.header("host").unwrap_or_default();
        let target = head.target.path_and_query().map_or("/", |target| target.as_str());
        let base = head.base.as_ref().map(SecretPath::as_str).unwrap_or_default();
        let url = format!("http://proxy.invalid{base}{target}");
        let expected = signed.sign(
            &url,
            Given { host: Some(host), hash: None },
            &signed.names,
            signed.body(body)?,
        )?;
        if !is_equal(expected.signature.as_bytes(), signature.as_bytes()) {
            return Err(other.to_owned());
        }
        Ok(signed)
    }

    /// Returns the headers that replace those of the client: a signature for this address, and for
    /// this body if it is another one.
    ///
    /// # Errors
    /// The address cannot be signed.
    pub(super) fn headers(
        &self,
        url: &Uri,
        body: Option<&Bytes>,
    ) -> Result<Vec<(HeaderName, Option<HeaderValue>)>, String> {
        let names: Vec<&str> =
            self.names.iter().filter(|name| !CHANGED.contains(*name)).copied().collect();
        // All headers of Amazon's own must be signed, so a header with the hash is signed, too.
        let hash = body.filter(|_| self.is_body_signed()).map(|body| hash(body));
        let signable = match &hash {
            Some(hash) => SignableBody::Precomputed(hash.clone()),
            None => self.body(None)?,
        };
        let hash = hash.filter(|_| self.head.headers.contains_key(HASH));
        let mut headers = self
            .sign(&url.to_string(), Given { host: None, hash: hash.as_deref() }, &names, signable)?
            .headers;
        if let Some(value) = hash.and_then(|hash| HeaderValue::from_str(&hash).ok()) {
            headers.push((HeaderName::from_static(HASH), Some(value)));
        }
        Ok(headers)
    }

    fn is_body_signed(&self) -> bool {
        self.head.header(HASH) != Some(UNSIGNED)
    }

    /// The body as the signature covers it. Without its bytes, by the hash that the client sent: the
    /// provider compares it with the body.
    fn body(&self, body: Option<&Bytes>) -> Result<SignableBody<'static>, String> {
        Ok(match (body, self.head.header(HASH)) {
            (_, Some(UNSIGNED)) => SignableBody::UnsignedPayload,
            (Some(body), _) => SignableBody::Precomputed(hash(body)),
            (None, Some(hash)) => SignableBody::Precomputed(hash.to_owned()),
            (None, None) if self.head.method == http::Method::GET => SignableBody::Bytes(b""),
            (None, None) => return Err(format!("this signed request has no header {HASH}")),
        })
    }

    /// Signs the request for an address. The host is that of the address, and the hash that of the
    /// client, unless they are given.
    fn sign(
        &self,
        url: &str,
        Given { host, hash }: Given<'_>,
        names: &[&str],
        body: SignableBody<'_>,
    ) -> Result<Signature, String> {
        let failed = |error: &dyn fmt::Display| format!("the request cannot be signed: {error}");
        let AwsKey { id, secret, session } = self.key;
        let identity =
            Credentials::new(id.as_str(), secret.as_str(), session.clone(), None, "endstop").into();
        let mut settings = SigningSettings::default();
        // Exactly the headers that the client has signed.
        settings.excluded_headers = None;
        let params = SigningParams::builder()
            .identity(&identity)
            .region(self.region)
            .name(SERVICE)
            .time(self.at)
            .settings(settings)
            .build()
            .map_err(|error| failed(&error))?;
        let listed = names.iter().filter(|name| !["host", DATE, TOKEN].contains(*name));
        let listed = listed.filter_map(|name| {
            let new = hash.filter(|_| *name == HASH);
            Some((*name, new.or_else(|| self.head.header(name))?))
        });
        let headers = listed.chain(host.map(|host| ("host", host)));
        let request = SignableRequest::new(self.head.method.as_str(), url, headers, body)
            .map_err(|error| failed(&error))?;
        let (instructions, signature) =
            sign(request, &params.into()).map_err(|error| failed(&error))?.into_parts();
        let mut headers = Vec::new();
        for (name, value) in instructions.headers() {
            let mut value = HeaderValue::from_str(value).map_err(|error| failed(&error))?;
            value.set_sensitive(true);
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|error| failed(&error))?;
            headers.push((name, Some(value)));
        }
        Ok(Signature { headers, signature })
    }
}

/// Values that a signature covers instead of those of the request.
struct Given<'a> {
    host: Option<&'a str>,
    hash: Option<&'a str>,
}

struct Signature {
    headers: Vec<(HeaderName, Option<HeaderValue>)>,
    signature: String,
}

fn hash(body: &[u8]) -> String {
    Sha256::digest(body).iter().fold(String::with_capacity(64), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Compares without telling by its time where the difference is.
fn is_equal(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

/// Reads a time of the form `20261123T041500Z`.
fn time_of(text: &str) -> Option<SystemTime> {
    let digits = text.strip_suffix('Z').filter(|text| text.is_ascii() && text.len() == 15)?;
    let (day, time) = digits.split_once('T').filter(|(day, _)| day.len() == 8)?;
    let number =
        |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?;
    let (year, month, day): (u64, u64, u64) =
        (number(&day[..4])?, number(&day[4..6])?, number(&day[6..])?);
    let (hour, minute, second): (u64, u64, u64) =
        (number(&time[..2])?, number(&time[2..4])?, number(&time[4..])?);
    let is_valid = (1..=12).contains(&month) && (1..=31).contains(&day) && year >= 1970;
    if !is_valid || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    // Days since 1970, in years that begin in March, so that the leap day is the last one.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    let seconds = days.checked_sub(719_468)? * 86_400 + hour * 3600 + minute * 60 + second;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderMap, Method, Version};
    use proptest::prelude::*;

    const BODY: &[u8] = br#"{"messages":[]}"#;
    const OTHER: &[u8] = br#"{"messages":[],"inferenceConfig":{"maxTokens":9}}"#;
    const TARGET: &str = "/run/nightly/model/eu.amazon.nova-lite-v1%3A0/converse-stream";
    const URL: &str = "https://bedrock-runtime.eu-west-3.amazonaws.com/model/eu.amazon.nova-lite-v1%3A0/converse-stream";
    const SCOPE: &str = "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/eu-west-3/bedrock/aws4_request, SignedHeaders=";
    const HASHED: &str = "amz-sdk-request;content-type;host;x-amz-content-sha256;x-amz-date";
    const TEMPORARY: &str = "content-type;host;x-amz-date;x-amz-security-token";

    fn keys(session: Option<&str>) -> AwsKeys {
        AwsKeys::from_variables(|name| match name {
            "AWS_ACCESS_KEY_ID" => Some("AKIDEXAMPLE".to_owned()),
            "AWS_SECRET_ACCESS_KEY" => Some("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".to_owned()),
            _ => session.map(str::to_owned),
        })
        .unwrap()
    }

    fn head(signature: &str, more: &[(&'static str, &str)]) -> RequestHead {
        let mut headers = HeaderMap::new();
        let usual = [
            ("host", "127.0.0.1:4000"),
            ("content-type", "application/json"),
            (DATE, "20150830T123600Z"),
            ("authorization", signature),
        ];
        for (name, value) in usual.iter().chain(more) {
            headers.insert(*name, value.parse().unwrap());
        }
        RequestHead {
            method: Method::POST,
            target: TARGET.parse().unwrap(),
            base: None,
            version: Version::HTTP_11,
            headers,
            peer: ([127, 0, 0, 1], 9).into(),
        }
    }

    fn hashed() -> RequestHead {
        let signature = "bb45d844b5b903dd925a2c11a3d64941a21e831c63333458422f7c99cebb20e4";
        let signature = format!("{SCOPE}{HASHED}, Signature={signature}");
        head(&signature, &[("amz-sdk-request", "attempt=1"), (HASH, &hash(BODY))])
    }

    fn value<'a>(headers: &'a [(HeaderName, Option<HeaderValue>)], name: &str) -> &'a str {
        let found = headers.iter().find(|(known, _)| known == name).unwrap();
        found.1.as_ref().unwrap().to_str().unwrap()
    }

    /// All signatures were computed by botocore, the Python SDK.
    #[test]
    fn signatures_match_python_sdk() {
        let (body, other) = (Bytes::from_static(BODY), Bytes::from_static(OTHER));
        let (url, keys_now) = (URL.parse().unwrap(), keys(None));
        let head_now = hashed();
        let signed = Signed::check(&keys_now, &head_now, Some(&body)).unwrap();
        let same = "100f47ad62de5be68e28c1424c3a6895edd882949723a998dbcc81a82dc0ee0a";
        let headers = signed.headers(&url, Some(&body)).unwrap();
        assert_eq!(value(&headers, "authorization"), format!("{SCOPE}{HASHED}, Signature={same}"));
        // Without the body, the client's own hash stands for it.
        let signed = Signed::check(&keys_now, &head_now, None).unwrap();
        let headers = signed.headers(&url, None).unwrap();
        assert!(value(&headers, "authorization").ends_with(same));
        // Another body has another hash, which is signed, too.
        let headers = signed.headers(&url, Some(&other)).unwrap();
        assert_eq!(value(&headers, HASH), hash(OTHER));
        let changed = "56f258e8d4a4b4ed3c781a637858589a6fa9502ee4a5343f72fe777338cd7e1a";
        assert!(value(&headers, "authorization").ends_with(changed), "{headers:?}");
        assert!(!format!("{headers:?}").contains(changed), "signatures are not shown");
    }

    #[test]
    fn temporary_keys_sign_their_token() {
        let (body, keys) = (Bytes::from_static(BODY), keys(Some("session/token==")));
        let signature = "6730d5595951e775bb1cbc9f153d735a7f70408d8f1a1a62145fcf87c651b669";
        let signature = format!("{SCOPE}{TEMPORARY}, Signature={signature}");
        let head = head(&signature, &[(TOKEN, "session/token==")]);
        let signed = Signed::check(&keys, &head, Some(&body)).unwrap();
        let headers = signed.headers(&URL.parse().unwrap(), Some(&body)).unwrap();
        let new = "07c50fc3408437283a750a1ce1d976c0151614048771d23aa9115e87f7312102";
        assert_eq!(
            value(&headers, "authorization"),
            format!("{SCOPE}{TEMPORARY}, Signature={new}")
        );
        assert_eq!(value(&headers, TOKEN), "session/token==");
        // The body is not known without its hash.
        assert!(Signed::check(&keys, &head, None).is_err());
    }

    #[test]
    fn other_keys_bodies_and_targets_are_refused() {
        let body = Bytes::from_static(BODY);
        let ok = keys(None);
        let refused = |keys: &AwsKeys, head: &RequestHead, body: &Bytes| {
            let error = Signed::check(keys, head, Some(body)).err().unwrap();
            assert!(!error.contains("AKID") && !error.contains("Signature="), "{error}");
        };
        refused(&keys(Some("another")), &hashed(), &body);
        refused(&ok, &hashed(), &Bytes::from_static(OTHER));
        let mut moved = hashed();
        moved.target = TARGET.replace("nova", "titan").parse().unwrap();
        refused(&ok, &moved, &body);
        for (name, other) in [
            ("host", "127.0.0.1:4001"),
            ("amz-sdk-request", "attempt=2"),
            (DATE, "20150830T123601Z"),
            (DATE, "yesterday"),
            ("authorization", "AWS4-HMAC-SHA256 Credential=A/B, SignedHeaders=host"),
        ] {
            let mut changed = hashed();
            changed.headers.insert(name, other.parse().unwrap());
            refused(&ok, &changed, &body);
        }
        for (from, to) in [("eu-west-3", "us-east-1"), ("/bedrock/", "/s3/"), ("AKID", "BKID")] {
            let mut changed = hashed();
            let other = changed.header("authorization").unwrap().replace(from, to);
            changed.headers.insert("authorization", other.parse().unwrap());
            refused(&ok, &changed, &body);
        }
    }

    #[test]
    fn times_are_read() {
        let seconds = |text: &str| {
            time_of(text).map(|at| at.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs())
        };
        assert_eq!(seconds("20150830T123600Z"), Some(1_440_938_160));
        assert_eq!(seconds("19700101T000000Z"), Some(0));
        assert_eq!(seconds("20240229T235959Z"), Some(1_709_251_199));
        assert_eq!(seconds("20000301T000000Z"), Some(951_868_800));
        for wrong in [
            "",
            "Z",
            "20151330T123600Z",
            "20150830T246000Z",
            "20150830 123600Z",
            "+0150830T123600Z",
        ] {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
    }

    proptest! {
        /// Whatever a client sends, it gets an error and no signature.
        #[test]
        fn any_header_is_refused(text in "[ -~]{0,200}", date in "[0-9TZ]{0,20}") {
            let mut head = hashed();
            head.headers.insert("authorization", format!("{SCHEME}{text}").parse().unwrap());
            head.headers.insert(DATE, date.parse().unwrap());
            prop_assert!(Signed::check(&keys(None), &head, None).is_err());
        }
    }
}
