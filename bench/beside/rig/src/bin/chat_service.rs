//! A chat service: one agent for all users, one history for each. `POST /USER` with a message.
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::{Router, routing::post};
use rig::core::message::Message;
use rig::prelude::*;
use rig::providers::openai::OpenAI;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::Mutex;

type History = Arc<Mutex<Vec<Message>>>;

#[derive(Clone)]
struct Chats {
    agent: rig::Agent,
    histories: Arc<Mutex<HashMap<String, History>>>,
}

async fn say(
    State(chats): State<Chats>,
    Path(user): Path<String>,
    message: String,
) -> Result<String, (StatusCode, String)> {
    let history = chats.histories.lock().await.entry(user).or_default().clone();
    let mut history = history.lock().await;
    let run = chats.agent.prompt(message).history(history.clone());
    let done = run.await.map_err(|error| (StatusCode::BAD_GATEWAY, error.to_string()))?;
    history.extend(done.messages().iter().cloned());
    Ok(done.output())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let agent = AgentBuilder::new(OpenAI::from_env()?.chat("gpt-4.1-mini")).build();
    let chats = Chats { agent, histories: Arc::default() };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}", listener.local_addr()?);
    axum::serve(listener, Router::new().route("/{user}", post(say)).with_state(chats)).await?;
    Ok(())
}
