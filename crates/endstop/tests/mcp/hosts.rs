//! Kills a host and checks that its servers die with it.

use crate::processes::{alive, soon, started};
use crate::support::{Played, runtime};
use std::process::{Command, ExitCode};

pub fn all() -> Vec<(&'static str, fn())> {
    crate::checks![server_dies_with_killed_host]
}

/// Plays a host that keeps a server running until the host is killed.
pub fn hold(mark: &str) -> ExitCode {
    runtime().block_on(async {
        let played = Played::new("stays");
        let tools = played.with_child(mark[1..].parse().unwrap()).connect().await.unwrap();
        println!("{}", played.pid());
        std::future::pending::<()>().await;
        drop(tools);
    });
    ExitCode::SUCCESS
}

/// A host that is killed with SIGKILL when this value is dropped.
struct Host(std::process::Child);

impl Drop for Host {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

async fn server_dies_with_killed_host() {
    use std::io::{BufRead, BufReader};
    let mark = crate::processes::marker();
    let mut host = Host(
        Command::new(std::env::current_exe().unwrap())
            // Not the bare number, because that marks the processes of the server.
            .args(["--host", &format!("m{mark}")])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut line = String::new();
    BufReader::new(host.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let server = format!("/proc/{}", line.trim());
    assert!(std::path::Path::new(&server).exists(), "{line}");
    // The server may be ready before its background process has started.
    started(mark, 1).await;
    drop(host);
    soon("the server is gone", || !std::path::Path::new(&server).exists());
    soon("its child is gone", || alive(mark).is_empty());
}
