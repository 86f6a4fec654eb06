//! The durable driver with its engine: a real Restate server, and a worker in this process.

use crate::run::{Boxed, Case, Driver, Ended, HANG, Live, TASK};
use crate::stepped::{Source, outcome_of};
use endstop::{Limits, Outcome};
use endstop_restate::engine::{Worker, WorkerOptions, listen};
use endstop_restate::{AgentSource, Agents, BuiltAgent, RunPlan, Stop, Store};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tokio::task::JoinSet;

/// The name of the agent. Its source builds the case of the run's id.
const AGENT: &str = "case";

/// A worker of a server.
pub struct Engine {
    cases: Cases,
    store: Store,
    ingress: SocketAddr,
    next: AtomicU64,
    _worker: JoinSet<()>,
}

/// A server, which ends with the value. Not a part of the engine, which a scenario may keep for longer than the
/// test.
#[must_use]
pub struct Server {
    process: Child,
    _folder: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The cases of all runs, by their ids.
#[derive(Clone, Default)]
struct Cases(Arc<Mutex<HashMap<String, Case>>>);

impl AgentSource for Cases {
    fn limits(&self) -> Limits {
        Limits::default()
    }

    fn build(&self, plan: &RunPlan) -> Result<BuiltAgent, String> {
        let case = self.0.lock().unwrap().get(&plan.run_id).cloned().ok_or("no such case")?;
        // The case has its own limits, because a request may only lower those of its agent.
        let plan = RunPlan { limits: case.limits.clone(), ..plan.clone() };
        Source { build: case.build, limits: case.limits }.build(&plan)
    }
}

fn free_port() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

impl Engine {
    /// Starts the server, and a worker that registers itself.
    pub async fn start(server: &Path) -> (Engine, Server) {
        let folder = tempfile::tempdir().unwrap();
        let [ingress, admin, node, own] = [(); 4].map(|()| free_port());
        let settings = format!(
            "disable-telemetry = true\nlisten-mode = \"tcp\"\nbind-ip = \"127.0.0.1\"\n\
             advertised-host = \"127.0.0.1\"\nbind-port = {}\nbase-dir = {:?}\n\
             rocksdb-total-memory-size = \"256 MB\"\ndefault-num-partitions = 4\n\
             [ingress]\nbind-port = {}\n[admin]\nbind-port = {}\n",
            node.port(),
            folder.path().join("data"),
            ingress.port(),
            admin.port(),
        );
        let file = folder.path().join("restate.toml");
        std::fs::write(&file, settings).unwrap();
        let log = std::fs::File::create(folder.path().join("server.log")).unwrap();
        let server = Command::new(server)
            .arg("-c")
            .arg(&file)
            .current_dir(folder.path())
            .env("DO_NOT_TRACK", "1")
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let data = folder.path().join("store");
        let server = Server { process: server, _folder: folder };
        answered(admin, "GET", "/health", None).await;

        let cases = Cases::default();
        let store = Store::open(data).unwrap();
        let source: Arc<dyn AgentSource> = Arc::new(cases.clone());
        let agents = Agents::new([(AGENT.to_owned(), source)]);
        let mut options = WorkerOptions::new(format!("http://{ingress}"));
        options.admin = Some(format!("http://{admin}"));
        options.advertised = format!("http://{own}");
        #[expect(clippy::print_stdout, reason = "shown if the test fails")]
        let report = |problem: &str| println!("worker: {problem}");
        let worker = Worker::open(agents, store.clone(), options, report).unwrap();
        let listener = listen(own, false).unwrap();
        let mut work = JoinSet::new();
        work.spawn(async move { worker.serve(listener, std::future::pending()).await.unwrap() });
        let began = Instant::now();
        while !answered(admin, "GET", "/services", None).await.to_string().contains("EndstopLedger")
        {
            assert!(began.elapsed() < HANG, "the worker is not registered");
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        let next = AtomicU64::new(1);
        (Engine { cases, store, ingress, next, _worker: work }, server)
    }
}

/// Sends a request; returns the status and the answer.
async fn request(
    at: SocketAddr,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> std::io::Result<(u16, Value)> {
    let body = body.map(Value::to_string).unwrap_or_default();
    let kind = if body.is_empty() { "" } else { "content-type: application/json\r\n" };
    // This version of HTTP has no chunked answers.
    let head = format!(
        "{method} {path} HTTP/1.0\r\nhost: {at}\r\n{kind}content-length: {}\r\n\r\n",
        body.len()
    );
    let work = tokio::task::spawn_blocking(move || {
        let mut stream = TcpStream::connect(at)?;
        stream.set_read_timeout(Some(HANG))?;
        stream.write_all(format!("{head}{body}").as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        Ok((status, serde_json::from_str(body).unwrap_or_default()))
    });
    work.await.unwrap()
}

/// Repeats a request until the server answers it with a success.
async fn answered(at: SocketAddr, method: &str, path: &str, body: Option<&Value>) -> Value {
    let began = Instant::now();
    loop {
        let answer = request(at, method, path, body).await;
        match answer {
            Ok((200..=299, answer)) => return answer,
            answer => assert!(began.elapsed() < HANG, "{path}: {answer:?}"),
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

impl Driver for Engine {
    fn start(&self, case: Case) -> Boxed<'_, Result<Box<dyn Live>, String>> {
        Box::pin(async move {
            let id = format!("run{}", self.next.fetch_add(1, Ordering::SeqCst));
            let stop_first = case.stop_first;
            self.cases.0.lock().unwrap().insert(id.clone(), case);
            let live = Durable { id, ingress: self.ingress, store: self.store.clone() };
            if let Some(stop) = stop_first {
                live.stop(stop).await;
            }
            let path = format!("/EndstopLedger/{}/start/send", live.id);
            answered(self.ingress, "POST", &path, Some(&live.request())).await;
            Ok(Box::new(live) as _)
        })
    }
}

/// `true` for the file of a step, `000007-3fa1….json`, and not for those of the list of runs.
fn is_step(name: &str) -> bool {
    name.split_once('-').is_some_and(|(number, _)| number.bytes().all(|byte| byte.is_ascii_digit()))
        && name.ends_with(".json")
}

struct Durable {
    id: String,
    ingress: SocketAddr,
    store: Store,
}

impl Durable {
    fn request(&self) -> Value {
        json!({"agent": AGENT, "task": TASK})
    }

    /// Starts the run, or finds it, and waits for its report.
    async fn report(&self) -> Value {
        let path = format!("/EndstopLedger/{}/start", self.id);
        answered(self.ingress, "POST", &path, Some(&self.request())).await
    }
}

impl Live for Durable {
    fn stop(&self, stop: Stop) -> Boxed<'_, ()> {
        Box::pin(async move {
            let path = format!("/EndstopRun/{}/stop", self.id);
            let stop = serde_json::to_value(stop).unwrap();
            answered(self.ingress, "POST", &path, Some(&stop)).await;
        })
    }

    fn end(&mut self) -> Boxed<'_, Ended> {
        Box::pin(async move {
            let report = self.report().await;
            let past = self.store.past(&self.id).unwrap();
            let outcome = outcome_of(&past);
            assert_eq!(report["termination"], outcome.termination.as_str(), "{report}");
            assert_eq!(report["category"], outcome.category().as_str(), "{report}");
            // Each step in the store is a file, of which a cut-off worker may have left more than one
            // for a number; none was cut off here.
            let folder = self.store.folder().join("runs").join(&self.id);
            let steps: Vec<String> = std::fs::read_dir(folder)
                .unwrap()
                .map(|file| file.unwrap())
                .filter(|file| is_step(&file.file_name().to_string_lossy()))
                .map(|file| std::fs::read_to_string(file.path()).unwrap())
                .filter(|step| step.contains(r#""state":"ended""#))
                .collect();
            let last = past.outcome().is_some() && steps.len() == 1;
            Ended { outcome, endings: steps.len(), last, recorded: past.recorded().unwrap() }
        })
    }

    fn stored(&self) -> Boxed<'_, Outcome> {
        Box::pin(async move {
            let outcome = outcome_of(&self.store.past(&self.id).unwrap());
            let report = self.report().await;
            assert_eq!(report["termination"], outcome.termination.as_str(), "{report}");
            outcome
        })
    }

    fn again(&self) -> Boxed<'_, String> {
        Box::pin(async move {
            let path = format!("/EndstopRun/{}/run", self.id);
            let answer = request(self.ingress, "POST", &path, Some(&self.request())).await;
            let (status, answer) = answer.unwrap();
            assert_eq!(status, 409, "{answer}");
            // The supervisor returns the ending.
            assert_eq!(self.report().await["termination"], "terminated");
            answer.to_string()
        })
    }
}
