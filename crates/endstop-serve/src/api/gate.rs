//! The gate before every operation: the checks of the head, the token, and the headers of every
//! answer.

use super::failure::{Code, Failure};
use crate::access::{Client, check_head, check_source, is_ambiguous};
use crate::app::App;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use endstop_http::Place;
use http::header::{AUTHORIZATION, CACHE_CONTROL, CONNECTION, HeaderName};
use http::{HeaderMap, HeaderValue, StatusCode};
use std::sync::Arc;

/// Headers of every answer. The policy allows only this server's own files, no inline code, no
/// frames, and no conversion of text into elements.
const HEADERS: [(&str, &str); 6] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
         img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
         require-trusted-types-for 'script'; trusted-types 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
];

/// Paths that need no token, because they contain nothing of a run.
const OPEN: [&str; 5] = ["/", "/page.css", "/page.js", "/healthz", "/readyz"];

/// Checks a request, and completes its answer.
pub(super) async fn gate(
    State(app): State<Arc<App>>,
    mut request: Request,
    next: Next,
) -> Response {
    let ambiguous = is_ambiguous(request.headers());
    let mut response = match check(&app, &request) {
        Ok(client) => {
            // Anyone can ask for the page.
            let is_client = app.tokens.is_empty() || client.name.is_some();
            if let (true, Some(place)) = (is_client, request.extensions().get::<Arc<Place>>()) {
                place.admit();
            }
            request.extensions_mut().insert(client);
            next.run(request).await
        }
        Err(failure) => failure.into_response(),
    };
    if let Some(Code(code)) = response.extensions().get::<Code>().copied() {
        app.refusals.refused(code);
    }
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    if ambiguous {
        // What follows on this connection may be a part of the body.
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

fn check(app: &App, request: &Request) -> Result<Client, Failure> {
    let (uri, headers) = (request.uri(), request.headers());
    check_head(uri, headers, |value| app.tokens.client_of(value).is_some())?;
    let path = uri.path();
    // Load balancers ask by address, and the answer is one word.
    if !matches!(path, "/healthz" | "/readyz") {
        check_source(request.version(), uri, headers, &app.names).or_else(|refusal| {
            // A link on another website may lead to the page itself.
            let link = refusal.code == "cross_origin" && OPEN.contains(&path);
            if link { Ok(()) } else { Err(refusal) }
        })?;
    }
    if app.tokens.is_empty() || OPEN.contains(&path) {
        return Ok(Client::anyone());
    }
    // Also for the metrics and the description of the API, which show what the server can do, and after
    // the checks of the source, so that a web page learns nothing about tokens.
    let token = bearer(headers)?;
    let wrong = || {
        let message = "the token is not valid for this server";
        Failure::new(StatusCode::UNAUTHORIZED, "unauthorized", message)
    };
    app.tokens.client_of(token).cloned().ok_or_else(wrong)
}

/// Returns the token of a request.
fn bearer(headers: &HeaderMap) -> Result<&[u8], Failure> {
    let missing = || {
        let message = "a token is required: send `Authorization: Bearer …` once";
        Failure::new(StatusCode::UNAUTHORIZED, "unauthorized", message)
    };
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return Err(missing()) };
    let (scheme, token) = value.as_bytes().split_at_checked(7).ok_or_else(missing)?;
    if !scheme.eq_ignore_ascii_case(b"bearer ") {
        return Err(missing());
    }
    Ok(token.trim_ascii())
}
