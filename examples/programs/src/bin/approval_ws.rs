//! Approval over a web socket: the browser sends a task, sees each call, and answers `yes` or `no`.

use axum::extract::State;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::{Router, routing::any};
use endstop::provider::http::HttpProvider;
use endstop::tool::Shell;
use endstop::{Agent, AgentEventKind, Approval, Permission};

async fn serve(mut socket: WebSocket, agent: Agent) -> Result<(), Box<dyn std::error::Error>> {
    let Some(task) = socket.recv().await.transpose()? else { return Ok(()) };
    let mut run = agent.run(task.to_text()?)?;
    while let Some(event) = run.next().await {
        socket.send(Message::from(serde_json::to_string(&event)?)).await?;
        if let AgentEventKind::ApprovalRequested { request_id, .. } = event.kind {
            // A browser that goes away ends this function, and the dropped handle cancels the run.
            let answer = socket.recv().await.ok_or("the browser left")??.into_text()?;
            let denied = Approval::Deny("The user said no.".to_owned());
            run.answer(request_id, if answer == "yes" { Approval::Allow } else { denied })?;
        }
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let agent = Agent::builder(HttpProvider::builder("openai/gpt-4.1-mini").build()?)
        .tool(Shell::default())
        .permission("shell", Permission::Ask)
        .approval_events(true)
        .build()?;
    let upgrade = |upgrade: WebSocketUpgrade, State(agent): State<Agent>| async move {
        upgrade.on_upgrade(|socket| async { drop(serve(socket, agent).await) })
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}", listener.local_addr()?);
    axum::serve(listener, Router::new().route("/", any(upgrade)).with_state(agent)).await?;
    Ok(())
}
