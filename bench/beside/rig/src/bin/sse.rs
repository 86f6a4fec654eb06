//! Streaming to a browser: `POST /` with a task answers with server-sent events.
use axum::extract::State;
use axum::response::sse::{Event, Sse};
use axum::{Router, routing::post};
use futures::{Stream, StreamExt};
use rig::prelude::*;
use rig::providers::openai::OpenAI;

async fn ask(
    State(agent): State<rig::Agent>,
    task: String,
) -> Sse<impl Stream<Item = Result<Event, axum::Error>>> {
    let items = agent.prompt(task).stream();
    Sse::new(items.map(|item| match item {
        Ok(item) => Event::default().json_data(item),
        Err(error) => Ok(Event::default().event("error").data(error.to_string())),
    }))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let agent = AgentBuilder::new(OpenAI::from_env()?.chat("gpt-4.1-mini")).build();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}", listener.local_addr()?);
    axum::serve(listener, Router::new().route("/", post(ask)).with_state(agent)).await?;
    Ok(())
}
