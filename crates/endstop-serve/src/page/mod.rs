//! The live page: three files inside the binary. The page shows text of runs only as text nodes, so
//! that nothing in it becomes an element.

use axum::response::{IntoResponse, Response};
use http::HeaderValue;
use http::header::CONTENT_TYPE;

pub(crate) async fn html() -> Response {
    file("text/html; charset=utf-8", include_str!("page.html"))
}

pub(crate) async fn css() -> Response {
    file("text/css; charset=utf-8", include_str!("page.css"))
}

pub(crate) async fn js() -> Response {
    file("text/javascript; charset=utf-8", include_str!("page.js"))
}

fn file(kind: &'static str, text: &'static str) -> Response {
    ([(CONTENT_TYPE, HeaderValue::from_static(kind))], text).into_response()
}
