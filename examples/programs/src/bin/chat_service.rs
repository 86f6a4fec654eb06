//! A chat service: one agent for all users, one session for each. `POST /USER` with a message.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::{Router, routing::post};
use endstop::provider::http::HttpProvider;
use endstop::{Agent, Session};
use std::{collections::HashMap, sync::Arc};
use tokio::sync::Mutex;

#[derive(Clone)]
struct Chats {
    agent: Agent,
    sessions: Arc<Mutex<HashMap<String, Session>>>,
}

async fn say(
    State(chats): State<Chats>,
    Path(user): Path<String>,
    message: String,
) -> Result<String, (StatusCode, String)> {
    let mut sessions = chats.sessions.lock().await;
    let session = sessions.entry(user).or_insert_with(|| chats.agent.session()).clone();
    drop(sessions);
    let run = session.run(message).map_err(|busy| (StatusCode::CONFLICT, busy.to_string()))?;
    // A cut or truncated answer is an error, so that no user takes it for a whole one.
    let done =
        run.await.into_result().map_err(|ended| (StatusCode::BAD_GATEWAY, ended.to_string()));
    done.map(|outcome| outcome.answer().unwrap_or_default())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let agent = Agent::builder(HttpProvider::builder("openai/gpt-4.1-mini").build()?).build()?;
    let chats = Chats { agent, sessions: Arc::default() };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}", listener.local_addr()?);
    axum::serve(listener, Router::new().route("/{user}", post(say)).with_state(chats)).await?;
    Ok(())
}
