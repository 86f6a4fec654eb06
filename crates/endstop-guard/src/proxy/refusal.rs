//! Requests that are refused before any decision: those of clients that may not use the proxy, and
//! those that a reverse proxy does not serve.

use super::access::Access;
use super::connection::Connection;
use super::gatekeeper::Notice;
use super::head::RequestHead;
use super::headers::{has_own_twice, is_upgrade};
use super::upstream_map::leaves_its_folder;
use crate::answer::Answer;
use crate::process::PeerError;
use endstop_http::{SourceError, check_source};
use http::header::{CONNECTION, UPGRADE};
use http::{HeaderValue, Method, StatusCode, Uri, Version};
use std::net::SocketAddr;

/// A request that is refused.
pub(crate) struct Refused {
    pub(crate) notice: Notice,
    pub(crate) answer: Answer,
}

/// Checks the head of a request, and returns it without the secret path of the proxy.
pub(crate) fn check(
    mut head: RequestHead,
    connection: &Connection,
    access: &Access,
) -> Result<RequestHead, Box<Refused>> {
    // First, so that a client that may not use the proxy gets the same answer for every path.
    if let Some((status, reason)) = stranger(&head, connection, access) {
        let notice = match access {
            Access::Gatekeeper => {
                Notice::Refused { status, reason, target: head.redacted_target() }
            }
            Access::SameUser | Access::Path { .. } => Notice::Stranger { status, reason },
        };
        return Err(refused(status, reason, notice));
    }
    if let Some(path) = access.path() {
        let Some(target) = path.strip(&head.target) else {
            let (status, reason) = (StatusCode::NOT_FOUND, NO_PATH);
            return Err(refused(status, reason, Notice::Stranger { status, reason }));
        };
        head.target = target;
        head.base = Some(path.clone());
    }
    match not_served(&head) {
        None => Ok(head),
        Some((status, reason)) => {
            let notice = Notice::Refused { status, reason, target: head.redacted_target() };
            Err(refused(status, reason, notice))
        }
    }
}

fn refused(status: StatusCode, reason: &'static str, notice: Notice) -> Box<Refused> {
    let kind = match status {
        StatusCode::FORBIDDEN => "permission_error",
        StatusCode::NOT_FOUND => "not_found_error",
        _ => "invalid_request_error",
    };
    let mut answer = Answer::error(status, kind, &format!("endstop guard: {reason}"));
    if status == StatusCode::UPGRADE_REQUIRED {
        // RFC 9110, section 15.5.22: the answer names the protocol to use.
        answer.headers.insert(UPGRADE, HeaderValue::from_static("HTTP/1.1"));
        answer.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    }
    Box::new(Refused { notice, answer })
}

const NO_PATH: &str = "this address needs the path of its base URL, which this request does not \
     have; the client must keep the whole path of OPENAI_BASE_URL, ANTHROPIC_BASE_URL or the like, as \
     guard has set it";

const NO_FORWARD_PROXY: &str = "this is not a forward proxy; use its address as the base URL";

/// Returns the reason why the client may not use the proxy.
fn stranger(
    head: &RequestHead,
    connection: &Connection,
    access: &Access,
) -> Option<(StatusCode, &'static str)> {
    if let Some(problem) = connection.stranger {
        let reason = match (problem, access.path()) {
            (PeerError::OtherUser, None) => {
                "this proxy has no token, so it serves the user who started it; other users need \
                 a token, which [tokens] in the file of --config sets"
            }
            (PeerError::Unknown, None) => {
                "this proxy has no token, so it serves the user who started it, and the user of \
                 this connection is not visible, as for a program in a container; set a token \
                 under [tokens] in the file of --config"
            }
            (PeerError::OtherUser | PeerError::Unknown, Some(_)) => {
                "this proxy serves the program of another user"
            }
        };
        return Some((StatusCode::FORBIDDEN, reason));
    }
    if head.method == Method::CONNECT {
        return Some((StatusCode::METHOD_NOT_ALLOWED, NO_FORWARD_PROXY));
    }
    if head.version != Version::HTTP_2 && is_other_host(&head.target, connection.local) {
        return Some((StatusCode::MISDIRECTED_REQUEST, NO_FORWARD_PROXY));
    }
    let source = check_source(head.version, &head.target, &head.headers, &access.names()).err()?;
    let reason = match source {
        SourceError::Invalid => "expected exactly one valid Host header",
        SourceError::OtherServer => {
            "the Host header names another server; use the address that the proxy listens on, or \
             set a token for clients that use another name"
        }
        SourceError::OtherWebsite => "requests of web pages are refused",
    };
    Some((source.status(), reason))
}

/// Returns the reason why a reverse proxy does not serve a request.
fn not_served(head: &RequestHead) -> Option<(StatusCode, &'static str)> {
    if is_upgrade(&head.headers) {
        // Codex uses HTTP after this status, but repeats the upgrade after others.
        return Some((
            StatusCode::UPGRADE_REQUIRED,
            "other protocols such as WebSocket are not supported; use HTTP",
        ));
    }
    if has_own_twice(&head.headers) {
        return Some((
            StatusCode::BAD_REQUEST,
            "a header whose name begins with `x-endstop-` is given more than once; send it once",
        ));
    }
    let path = head.target.path();
    if !path.starts_with('/') || leaves_its_folder(path) {
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
