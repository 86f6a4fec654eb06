//! Helpers of the checks: servers that this program plays, the messages they received, and the loop
//! over all checks.

use crate::{address, checks, hosts};
use endstop::mcp::{McpServer, McpTools};
use endstop::tool::{Tool, ToolContext, ToolOutput};
use serde_json::{Value, json};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Lists checks with their names.
#[macro_export]
macro_rules! checks {
    ($($check:ident),* $(,)?) => {
        vec![$((stringify!($check), (|| $crate::support::runtime().block_on($check())) as fn())),*]
    };
}

pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

pub fn all(words: &[&str]) -> ExitCode {
    // The environment of a process with threads cannot be changed safely, so the checks run in a
    // second process, and then in a third one whose commands have no keeper.
    if std::env::var_os("ENDSTOP_TEST_API_KEY").is_none() {
        let again = |first: Option<&str>| {
            Command::new(std::env::current_exe().unwrap())
                .args(first)
                .args(words)
                .env("ENDSTOP_TEST_API_KEY", "hidden")
                .env("ENDSTOP_TEST_PASSWORD", "allowed")
                .status()
                .unwrap()
                .success()
        };
        let good = again(None) & again(Some("--without-keeper"));
        return if good { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let kept = words.first() != Some(&"--without-keeper");
    let mut all = checks::all();
    if kept {
        all.extend(address::all());
        all.extend(hosts::all());
    }
    let filter = words.iter().find(|word| !word.starts_with('-')).copied().unwrap_or_default();
    let mut failed = 0;
    for (name, check) in all.into_iter().filter(|(name, _)| name.contains(filter)) {
        let began = Instant::now();
        let good = catch_unwind(AssertUnwindSafe(check)).is_ok();
        let how = if kept { "" } else { " (no keeper)" };
        let word = if good { "ok" } else { "FAILED" };
        println!("check {name}{how} ... {word} in {:.2} s", began.elapsed().as_secs_f64());
        failed += u32::from(!good);
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A server that this program plays, with a file of the lines that it received.
pub struct Played {
    folder: tempfile::TempDir,
    mode: &'static str,
}

impl Played {
    pub fn new(mode: &'static str) -> Played {
        Played { folder: tempfile::tempdir().unwrap(), mode }
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("heard")
    }

    pub fn words(&self) -> [String; 4] {
        let exe = std::env::current_exe().unwrap().to_str().unwrap().to_owned();
        let log = self.log().to_str().unwrap().to_owned();
        [exe, "--server".to_owned(), self.mode.to_owned(), log]
    }

    pub fn server(&self) -> McpServer {
        // Only for servers that hang: on a busy machine a thousand pages of tools take seconds.
        McpServer::command("played", self.words()).ready_within(Duration::from_secs(60))
    }

    /// Returns a server that has started another process in its group.
    pub fn with_child(&self, mark: u32) -> McpServer {
        let words: Vec<String> = self.words().iter().map(|word| format!("'{word}'")).collect();
        McpServer::stdio("played", format!("sleep {mark} & exec {}", words.join(" ")))
    }

    /// Returns the lines that the server received, and its own log lines.
    pub fn heard(&self) -> String {
        std::fs::read_to_string(self.log()).unwrap_or_default()
    }

    pub fn pid(&self) -> u32 {
        let heard = self.heard();
        let line = heard.lines().rfind(|line| line.starts_with("pid ")).unwrap();
        line[4..].parse().unwrap()
    }

    /// Returns the messages of this method that the server received.
    pub fn messages(&self, method: &str) -> Vec<Value> {
        let heard = self.heard();
        let messages = heard.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        messages.filter(|message| message["method"] == method).collect()
    }

    /// Returns `true` if the server received a cancellation of the last call.
    pub fn was_told(&self) -> bool {
        let calls = self.messages("tools/call");
        let told = self.messages("notifications/cancelled");
        let id = &calls.last().expect("there was a call")["id"];
        told.iter().any(|told| told["params"]["requestId"] == *id)
    }
}

pub fn tool(tools: &McpTools, name: &str) -> Arc<dyn Tool> {
    tools.tools().find(|tool| tool.name() == name).unwrap_or_else(|| panic!("no {name}"))
}

/// Calls a tool without a run.
pub async fn call(tools: &McpTools, name: &str, text: &str) -> ToolOutput {
    let arguments = json!({"text": text}).as_object().unwrap().clone();
    let tool = tool(tools, &format!("played__{name}"));
    let calling = tool.call(arguments, ToolContext::detached("call_1"));
    tokio::time::timeout(Duration::from_secs(60), calling).await.expect("it ends")
}
