//! Hosts that are killed: their servers die with them.

use crate::processes::{alive, soon};
use crate::support::{Played, runtime};
use std::process::{Command, ExitCode};

pub fn all() -> Vec<(&'static str, fn())> {
    crate::checks![a_server_dies_with_a_host_that_is_killed]
}

/// A host that holds a server until it is killed.
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

/// Killed with SIGKILL where it is dropped.
struct Host(std::process::Child);

impl Drop for Host {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

async fn a_server_dies_with_a_host_that_is_killed() {
    use std::io::{BufRead, BufReader};
    let mark = crate::processes::marker();
    let mut host = Host(
        Command::new(std::env::current_exe().unwrap())
            // Not the bare number: by that the processes of the server are found.
            .args(["--host", &format!("m{mark}")])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut line = String::new();
    BufReader::new(host.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let server = format!("/proc/{}", line.trim());
    assert!(std::path::Path::new(&server).exists() && alive(mark).len() == 1, "{line}");
    drop(host);
    soon("the server is gone", || !std::path::Path::new(&server).exists());
    soon("what it started is gone", || alive(mark).is_empty());
}
