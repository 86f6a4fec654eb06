//! Requests that pass without the kernel, and refusals.

use super::resign::Signed;
use crate::answer::Answer;
use crate::clients::AwsKeys;
use crate::exchange::answer::bad_request;
use crate::exchange::{Call, Route, RunKey, each_in_body, owner, route};
use crate::proxy::{Disposition, End, Forward, RequestHead, ResponseObserver};
use crate::run::calls::Work;
use crate::run::ending::refuse_late;
use crate::run::event::GuardEvent;
use crate::run::gate::Gate;
use crate::run::handle::RunHandle;
use bytes::Bytes;
use endstop_core::Decision;
use endstop_wire::WireFormat;
use endstop_wire::redact::{KnownKeys, Redacted, is_random};
use http::Uri;
use http::header::CONTENT_TYPE;
use std::net::IpAddr;

/// The answer to a request with a signature of Amazon Web Services.
const SIGNED: &str = "this request is signed for the address of the proxy, and Amazon Bedrock would \
     reject it; start guard with the same keys (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or \
     AWS_PROFILE for a profile with keys), so that it signs the request again, or use a Bedrock API \
     key (AWS_BEARER_TOKEN_BEDROCK)";

/// The answer to such a request in a build without the feature `bedrock`.
pub(super) const NOT_BUILT: &str = "this request is signed for the address of the proxy, and this build of guard \
     cannot sign it for Amazon Bedrock: build it with the feature `bedrock`, or use a Bedrock API key \
     (AWS_BEARER_TOKEN_BEDROCK)";

/// The refusal of a call.
pub(super) struct Refusal<'a> {
    pub(super) cause: Decision,
    pub(super) reason: &'a str,
    pub(super) answer: Answer,
    /// The part that the call would have had.
    pub(super) work: Work,
}

impl Gate {
    /// Passes a model call that cannot be judged. A run that has ended gets nothing more.
    pub(super) fn pass(
        &self,
        head: &RequestHead,
        (line, format): (&Route, WireFormat),
        body: &[u8],
        reason: &str,
    ) -> Disposition {
        let named = self.named_key(head, line);
        if let Some(refused) =
            named.as_ref().and_then(|key| self.refuse_secret_name(head, body, key))
        {
            return refused;
        }
        let run = named.and_then(|key| self.started_run(&key));
        if let Some(answer) = run.as_ref().and_then(|run| late(run, true)) {
            return answer;
        }
        if self.settings_of(run.as_ref()).counts_calls() {
            let reason = format!("{reason}, so the limits of this run cannot be enforced");
            let answer = bad_request(&reason);
            let refusal =
                Refusal { cause: Decision::Refused, reason: &reason, answer, work: Work::Turn };
            return self.refuse_call(run.as_ref(), head, refusal);
        }
        if let Some(run) = run {
            run.0.lock().counts.unread += 1;
            run.0.changed();
        }
        let (target, reason) = (head.redacted_target(), head.redact(reason));
        (self.on_event)(GuardEvent::Passed { target, reason });
        self.forward(head, line, Some(format))
    }

    pub(super) fn forward(
        &self,
        head: &RequestHead,
        line: &Route,
        format: Option<WireFormat>,
    ) -> Disposition {
        self.forward_as(head, line, format, || Box::new(Unread))
    }

    /// Forwards a request other than a model call, with an observer of its response.
    pub(super) fn forward_to(
        &self,
        head: &RequestHead,
        line: &Route,
        observer: impl FnOnce() -> Box<dyn ResponseObserver>,
    ) -> Disposition {
        self.forward_as(head, line, None, observer)
    }

    fn forward_as(
        &self,
        head: &RequestHead,
        line: &Route,
        format: Option<WireFormat>,
        observer: impl FnOnce() -> Box<dyn ResponseObserver>,
    ) -> Disposition {
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
                let mut forward = Forward::unchanged(url, observer());
                forward.headers = headers.unwrap_or_default();
                Disposition::Forward(forward)
            }
            Err(error) => self.refuse(head, &error),
        }
    }

    /// Refuses a request, and notes that in the run of the only program. A model call counts as a turn.
    pub(super) fn refuse(&self, head: &RequestHead, reason: &str) -> Disposition {
        let run = self.only.as_ref().map(|name| self.run_of(&RunKey::of_prefix(name), None));
        let target = head.target.path_and_query().map_or("/", |target| target.as_str());
        let call = route(head.method.as_str(), target).map_or(Call::Other, |line| line.call);
        let refusal = Refusal {
            cause: Decision::Refused,
            reason,
            answer: bad_request(reason),
            work: if matches!(call, Call::Model { .. }) { Work::Turn } else { Work::Aside },
        };
        self.refuse_call(run.as_ref().filter(|_| call.costs()), head, refusal)
    }

    /// Refuses a request whose run has a credential of the request as its name, without showing that name.
    pub(super) fn refuse_secret_name(
        &self,
        head: &RequestHead,
        body: &[u8],
        run: &RunKey,
    ) -> Option<Disposition> {
        let name = run.id();
        if !is_credential(head, name) && !is_credential_in(body, name) {
            return None;
        }
        if let Some(run) = self.started_run(run) {
            // An earlier request has named it without the key.
            run.0.lock().record.hide_keys_of(head, body);
        }
        let target = KnownKeys::new([name]).redact(&head.redacted_target());
        // A constant.
        let reason = Redacted::exempt(NAMED_LIKE_KEY);
        self.settings().meter.refused();
        (self.on_event)(GuardEvent::Refused { target, reason });
        Some(Disposition::Answer(bad_request(NAMED_LIKE_KEY)))
    }

    /// Refuses a call of a run.
    pub(super) fn refuse_call(
        &self,
        run: Option<&RunHandle>,
        head: &RequestHead,
        Refusal { cause, reason, answer, work }: Refusal<'_>,
    ) -> Disposition {
        let reason = head.redact(reason);
        if let Some(run) = run {
            run.0.lock().rejects(cause, &reason, work);
            run.0.changed();
        }
        self.settings().meter.refused();
        (self.on_event)(GuardEvent::Refused { target: head.redacted_target(), reason });
        Disposition::Answer(answer)
    }
}

/// Returns the refusal of a request to a run that has ended.
pub(super) fn late(run: &RunHandle, is_counted: bool) -> Option<Disposition> {
    let mut guarded = run.0.lock();
    let answer = refuse_late(&guarded)?;
    if is_counted {
        guarded.counts.refusals += 1;
        drop(guarded);
        run.0.changed();
    }
    Some(Disposition::Answer(answer))
}

/// Observes a response that belongs to no model call.
struct Unread;

impl ResponseObserver for Unread {
    fn end(self: Box<Self>, _end: End) {}
}

/// The answer to a request whose run has a secret name.
const NAMED_LIKE_KEY: &str =
    "the name of the run contains a credential of this request; choose a name that is not secret";

/// Returns `true` if the name of a run contains a credential of its request. Lists, journals and events show
/// the names of runs.
fn is_credential(head: &RequestHead, name: &str) -> bool {
    let mut found = false;
    // A value whose name does not prove that it is a credential must look like one.
    head.each_credential(|credential, is_guess| {
        found |= (!is_guess || is_random(credential)) && contains(name, credential);
    });
    found
}

/// Returns `true` if the name of a run contains a credential of the body of its request.
fn is_credential_in(body: &[u8], name: &str) -> bool {
    let mut found = false;
    each_in_body(body, |credential| found |= contains(name, credential));
    found
}

fn contains(name: &str, credential: &str) -> bool {
    // The tables of a credential are built only if the name contains it. A placeholder such as `ollama` is
    // not secret.
    !credential.is_empty()
        && name.contains(credential)
        && *KnownKeys::new([credential]).redact(name) != *name
}

/// `true` if a request's body is labelled with an encoding other than UTF-8, in which a server reads another text.
pub(super) fn has_other_charset(head: &RequestHead) -> bool {
    let kinds = head.headers.get_all(CONTENT_TYPE).iter();
    kinds.map(|kind| String::from_utf8_lossy(kind.as_bytes()).to_ascii_lowercase()).any(|kind| {
        kind.split(';').skip(1).filter_map(|pair| pair.split_once('=')).any(|(name, value)| {
            let value = value.trim().trim_matches(['"', '\'']);
            name.trim() == "charset" && !matches!(value, "utf-8" | "utf8" | "us-ascii")
        })
    })
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
