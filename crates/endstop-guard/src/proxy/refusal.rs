//! Requests that are refused before any decision: a reverse proxy does not serve them.

use super::answer::Answer;
use super::gatekeeper::Notice;
use super::head::RequestHead;
use super::headers::is_upgrade;
use super::upstream_map::leaves_its_folder;
use http::header::{CONNECTION, UPGRADE};
use http::{HeaderValue, Method, StatusCode, Uri, Version};
use std::net::SocketAddr;

/// Returns the notice and the answer for a request that is refused.
pub(crate) fn refusal(head: &RequestHead, local: SocketAddr) -> Option<(Notice, Answer)> {
    let (status, reason) = reason(head, local)?;
    let message = format!("endstop guard: {reason}");
    let mut answer = Answer::error(status, "invalid_request_error", &message);
    if status == StatusCode::UPGRADE_REQUIRED {
        // RFC 9110, section 15.5.22: the answer names the protocol to use.
        answer.headers.insert(UPGRADE, HeaderValue::from_static("HTTP/1.1"));
        answer.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    }
    Some((Notice::Refused { status, reason, target: head.redacted_target() }, answer))
}

fn reason(head: &RequestHead, local: SocketAddr) -> Option<(StatusCode, &'static str)> {
    let target = &head.target;
    if head.method == Method::CONNECT {
        return Some((
            StatusCode::METHOD_NOT_ALLOWED,
            "this is not a forward proxy; use its address as the base URL",
        ));
    }
    if head.version != Version::HTTP_2 && is_other_host(target, local) {
        return Some((
            StatusCode::MISDIRECTED_REQUEST,
            "this is not a forward proxy; use its address as the base URL",
        ));
    }
    if is_upgrade(&head.headers) {
        // Codex uses HTTP after this status, but repeats the upgrade after others.
        return Some((
            StatusCode::UPGRADE_REQUIRED,
            "other protocols such as WebSocket are not supported; use HTTP",
        ));
    }
    if !target.path().starts_with('/') || leaves_its_folder(target.path()) {
        return Some((StatusCode::BAD_REQUEST, "the path contains `.` or `..`, or no `/`"));
    }
    None
}

/// Returns whether an absolute target names another host than this proxy.
fn is_other_host(target: &Uri, local: SocketAddr) -> bool {
    let Some(authority) = target.authority() else { return false };
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    let is_local_host = host.eq_ignore_ascii_case("localhost")
        || host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback() || ip == local.ip());
    !is_local_host || authority.port_u16().unwrap_or(80) != local.port()
}
