//! Approval over a web socket: the browser sends a task, sees each call, and answers `yes` or `no`.
use axum::extract::State;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::{Router, routing::any};
use futures::StreamExt;
use rig::agent::{AgentHook, DispatchAction, DispatchEvent, HookContext};
use rig::core::effect::EffectKind;
use rig::core::tool::ToolExecutionError;
use rig::prelude::*;
use rig::providers::openai::OpenAI;
use rig::rig_tool;
use std::sync::Arc;
use tokio::sync::Mutex;

/// Runs a command of the shell.
#[rig_tool(params(command = "The command."))]
async fn shell(command: String) -> Result<String, ToolExecutionError> {
    let done = tokio::process::Command::new("sh").arg("-c").arg(command).output().await;
    let done = done.map_err(|error| ToolExecutionError::other(error.to_string()))?;
    Ok(String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned())
}

struct Ask(Arc<Mutex<WebSocket>>);

impl AgentHook for Ask {
    async fn on_dispatch(&self, _: &HookContext, event: DispatchEvent<'_>) -> DispatchAction {
        let EffectKind::ToolCall { name, args } = event.kind else { return DispatchAction::Proceed };
        // Held until the answer, so that a parallel call cannot take it.
        let mut socket = self.0.lock().await;
        let asked = serde_json::json!({"type": "approval_requested", "name": name, "arguments": args});
        if socket.send(Message::from(asked.to_string())).await.is_err() {
            return DispatchAction::stop("the browser left");
        }
        match socket.recv().await {
            Some(Ok(answer)) if answer.to_text().is_ok_and(|text| text == "yes") => DispatchAction::Proceed,
            Some(Ok(_)) => DispatchAction::skip("The user said no."),
            _ => DispatchAction::stop("the browser left"),
        }
    }
}

async fn serve(mut socket: WebSocket, agent: rig::Agent) -> Result<(), Box<dyn std::error::Error>> {
    let Some(task) = socket.recv().await.transpose()? else { return Ok(()) };
    let socket = Arc::new(Mutex::new(socket));
    let mut run = agent.prompt(task.to_text()?).add_hook(Ask(socket.clone())).stream();
    while let Some(item) = run.next().await {
        let text = match item {
            Ok(item) => serde_json::to_string(&item)?,
            Err(error) => serde_json::json!({"type": "error", "error": error.to_string()}).to_string(),
        };
        socket.lock().await.send(Message::from(text)).await?;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let agent = AgentBuilder::new(OpenAI::from_env()?.chat("gpt-4.1-mini"))
        .tool(Shell)
        .default_max_turns(25)
        .build();
    let upgrade = |upgrade: WebSocketUpgrade, State(agent): State<rig::Agent>| async move {
        upgrade.on_upgrade(|socket| async { drop(serve(socket, agent).await) })
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}", listener.local_addr()?);
    axum::serve(listener, Router::new().route("/", any(upgrade)).with_state(agent)).await?;
    Ok(())
}
