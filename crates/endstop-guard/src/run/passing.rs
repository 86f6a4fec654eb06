//! Requests that pass without the kernel: no model calls, and calls that cannot be read.

use super::answers::to_proxy;
use super::event::GuardEvent;
use super::gate::{Gate, lock};
use super::resign::Signed;
use super::runs::RunHandle;
use crate::clients::AwsKeys;
use crate::exchange::answer::bad_request;
use crate::exchange::{Call, ClientFacts, Route as Line, owner};
use crate::proxy::{Decision, End, Forward, RequestHead, ResponseObserver};
use bytes::Bytes;
use endstop_wire::WireFormat;
use http::Uri;
use std::net::IpAddr;
use std::time::Duration;

/// The answer to a request with a signature of Amazon Web Services.
const SIGNED: &str = "this request is signed for the address of the proxy, and Amazon Bedrock would \
     reject it; start guard with the same keys (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or \
     AWS_PROFILE for a profile with keys), so that it signs the request again, or use a Bedrock API \
     key (AWS_BEARER_TOKEN_BEDROCK)";

/// The answer to such a request in a build without the feature `bedrock`.
pub(super) const NOT_BUILT: &str = "this request is signed for the address of the proxy, and this build of guard \
     cannot sign it for Amazon Bedrock: build it with the feature `bedrock`, or use a Bedrock API key \
     (AWS_BEARER_TOKEN_BEDROCK)";

impl Gate {
    /// Passes a model call that cannot be judged. A run that has ended gets nothing more.
    pub(super) fn pass(
        &self,
        head: &RequestHead,
        line: &Line,
        format: Option<WireFormat>,
        reason: &str,
    ) -> Decision {
        if let Some(run) = self.named_run(head, line) {
            let mut guarded = run.0.lock();
            if let Some(answer) = guarded.refuse_late() {
                guarded.counts.refusals += 1;
                drop(guarded);
                run.0.changed();
                return Decision::Answer(answer);
            }
            if guarded.needs_price() || guarded.has_limits() {
                drop(guarded);
                let reason = format!("{reason}, so the limits of this run cannot be enforced");
                return self.refuse(head, &reason);
            }
            guarded.counts.unread += 1;
        } else if self.settings().has_limits() {
            // No call of its run has been read yet, so its run is not known.
            let reason = format!("{reason}, so the limits of its run cannot be enforced");
            return self.refuse(head, &reason);
        }
        let target = head.redacted_target();
        (self.hear)(GuardEvent::Passed { target, reason: reason.to_owned() });
        self.forward(head, line, format)
    }

    /// Passes a request that does not call a model. An ended run gets no more of those that may cost.
    pub(super) fn other(&self, head: &RequestHead, line: &Line) -> Decision {
        let may_cost = matches!(line.call, Call::Other | Call::Embeddings);
        let run = self.named_run(head, line);
        let Some(run) = run.filter(|_| may_cost && head.method == http::Method::POST) else {
            return self.forward(head, line, None);
        };
        let mut guarded = run.0.lock();
        if let Some(answer) = guarded.refuse_late() {
            // Not counted as a refused call, because it may be telemetry: a program that sends some
            // does not ignore the end.
            return Decision::Answer(answer);
        }
        guarded.counts.others += 1;
        drop(guarded);
        let mut decision = self.forward(head, line, None);
        if let Decision::Forward(forward) = &mut decision {
            let began = run.0.now();
            forward.observer = Box::new(Timed { run, began });
        }
        decision
    }

    /// Returns the run that the request line or a header names, if it has started.
    fn named_run(&self, head: &RequestHead, line: &Line) -> Option<RunHandle> {
        let headers = head.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        let facts = ClientFacts::read(headers, &line.target, &self.salt);
        let key = lock(&self.threads).run_in_headers(&facts, line).ok().flatten()?;
        lock(&self.runs).by_key.get(&key).cloned()
    }

    pub(super) fn forward(
        &self,
        head: &RequestHead,
        line: &Line,
        format: Option<WireFormat>,
    ) -> Decision {
        let format = format.or_else(|| owner(&line.target, |name| head.header(name)));
        let url = match self.url(line, format) {
            Ok(url) => url,
            Err(error) => return self.refuse(head, &error),
        };
        let settings = self.settings();
        let signed = checked(settings.aws.as_ref(), head, &url, None)
            .and_then(|signed| signed.map(|signed| signed.headers(&url, None)).transpose());
        match signed {
            Ok(headers) => {
                let mut forward = Forward::unchanged(url, Box::new(Unread));
                forward.headers = headers.unwrap_or_default();
                Decision::Forward(forward)
            }
            Err(error) => self.refuse(head, &error),
        }
    }

    pub(super) fn refuse(&self, head: &RequestHead, reason: &str) -> Decision {
        let target = head.redacted_target();
        self.settings().meter.refused();
        (self.hear)(GuardEvent::Refused { target, reason: reason.to_owned() });
        Decision::Answer(to_proxy(bad_request(reason)))
    }

    pub(super) fn url(&self, line: &Line, format: Option<WireFormat>) -> Result<Uri, String> {
        let (path, query) = match line.target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (line.target.as_str(), None),
        };
        self.upstreams.url(format, path, query).map_err(|error| error.to_string())
    }
}

/// Observes a response that belongs to no model call.
struct Unread;

impl ResponseObserver for Unread {
    fn end(self: Box<Self>, _end: End) {}
}

/// Takes the time of a request that does not call a model.
struct Timed {
    run: RunHandle,
    began: Duration,
}

impl ResponseObserver for Timed {
    fn end(self: Box<Self>, _end: End) {
        let took = self.run.0.now().saturating_sub(self.began);
        self.run.0.lock().counts.others_time += took;
    }
}

/// `true` if a request has a signature, which covers its host.
fn is_signed(head: &RequestHead) -> bool {
    head.header("authorization").is_some_and(|value| value.starts_with("AWS4-HMAC-SHA256"))
}

/// `true` if an address belongs to Amazon, or to this machine. A signature is worth as much as the key
/// for some minutes, so no other server gets one.
fn may_be_signed(url: &Uri) -> bool {
    let host = url.host().unwrap_or_default().to_ascii_lowercase();
    let host = host.trim_matches(['[', ']']);
    let ends = [".amazonaws.com", ".amazonaws.com.cn", ".api.aws", ".api.amazonwebservices.com.cn"];
    let is_loopback = host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    is_loopback || host == "localhost" || ends.iter().any(|end| host.ends_with(end))
}

/// Checks the signature of a request, if it has one: it covers the host, which a proxy changes.
pub(super) fn checked<'a>(
    keys: Option<&'a AwsKeys>,
    head: &'a RequestHead,
    url: &Uri,
    body: Option<&Bytes>,
) -> Result<Option<Signed<'a>>, String> {
    if !is_signed(head) {
        return Ok(None);
    }
    if !cfg!(feature = "bedrock") {
        return Err(NOT_BUILT.to_owned());
    }
    if !may_be_signed(url) {
        return Err(format!(
            "this request is signed for Amazon Bedrock, and the upstream `{}` is not an address of \
             Amazon; set the upstream of Bedrock to one, or use a key of that server",
            url.host().unwrap_or_default()
        ));
    }
    match keys {
        Some(keys) if !keys.is_empty() => Signed::check(keys, head, body).map(Some),
        Some(keys) => Err(format!("{SIGNED}; {}", keys.problem().unwrap_or_default())),
        None => Err(SIGNED.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::may_be_signed;

    #[test]
    fn only_amazon_and_loopback_get_signatures() {
        for (url, expected) in [
            ("https://bedrock-runtime.eu-west-3.amazonaws.com/model/m/invoke", true),
            ("https://vpce-1-x.bedrock-runtime.us-east-1.vpce.amazonaws.com", true),
            ("https://bedrock-runtime.cn-north-1.amazonaws.com.cn", true),
            ("https://BEDROCK-RUNTIME.us-east-1.API.AWS", true),
            ("http://127.0.0.1:4000/model", true),
            ("http://[::1]:4000", true),
            ("http://localhost", true),
            ("https://gateway.example", false),
            ("https://amazonaws.com.evil.example", false),
            ("https://evilamazonaws.com", false),
            ("https://127.0.0.1.evil.example", false),
            ("http://10.0.0.7", false),
        ] {
            assert_eq!(may_be_signed(&url.parse().unwrap()), expected, "{url}");
        }
    }
}
