//! The router: every operation of the table, the page, and the answers for everything else.

use super::answer::json;
use super::failure::Failure;
use super::gate::gate;
use super::operations::operations;
use super::schema::openapi;
use crate::app::App;
use crate::page;
use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use http::StatusCode;
use std::sync::Arc;

/// Returns the router of a server, with more routes behind the same gate.
pub(crate) fn router(app: Arc<App>, more: Router<Arc<App>>) -> Router {
    let operations = operations();
    let document = Arc::new(openapi(&operations));
    let mut router = more;
    for operation in operations {
        router = router.route(operation.path, (operation.handler)());
    }
    router
        .route(
            "/v1/openapi.json",
            get(move || {
                let document = Arc::clone(&document);
                async move { json(StatusCode::OK, &*document) }
            }),
        )
        .route("/", get(page::html))
        .route("/page.css", get(page::css))
        .route("/page.js", get(page::js))
        // Before the layer, so that the gate checks requests to unknown addresses as well.
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(Arc::clone(&app), gate))
        .with_state(app)
}

async fn unknown() -> Failure {
    let message = "there is nothing at this address; GET /v1/openapi.json describes the API";
    Failure::new(StatusCode::NOT_FOUND, "unknown_path", message)
}

async fn wrong_method() -> Failure {
    let message = "this address has no such method; GET /v1/openapi.json describes the API";
    Failure::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", message)
}
