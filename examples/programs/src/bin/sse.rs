//! Streaming to a browser: `POST /` with a task answers with server-sent events.

use axum::body::Body;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Router, routing::post};
use endstop::Agent;
use endstop::provider::http::HttpProvider;

async fn ask(State(agent): State<Agent>, task: String) -> Response {
    match agent.run(task) {
        // A browser that goes away drops the stream, and with it the run is cancelled.
        Ok(run) => ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(run.sse()))
            .into_response(),
        Err(refused) => (StatusCode::SERVICE_UNAVAILABLE, refused.to_string()).into_response(),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let agent = Agent::builder(HttpProvider::builder("openai/gpt-4.1-mini").build()?).build()?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}", listener.local_addr()?);
    axum::serve(listener, Router::new().route("/", post(ask)).with_state(agent)).await?;
    Ok(())
}
