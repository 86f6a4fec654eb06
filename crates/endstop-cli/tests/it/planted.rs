//! Secrets that are planted wherever a client, a server or a model can put one. None of them may be in
//! any file, on any stream, or on any page.
//!
//! The server repeats each request in its error, as some gateways do. Each secret has a place and a value
//! of its own, so that one which is found names the place that failed.

use crate::cli::{Cli, Done, Started, eventually};
use crate::planted_places::{BODIES, HEADERS, NAMES, Place, QUERIES};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::HashMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// The secret of a place: no known format, and no two of them share more than the first letters.
pub(crate) fn secret(at: usize) -> String {
    // A generator of letters, so that no secret has a part of another one.
    let mut state = (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1;
    let letters = b"abcdefghijkmnopqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789";
    let random = (0..24).map(|_| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(letters[(state >> 33) as usize % letters.len()])
    });
    format!("own{at:02}-{}", random.collect::<String>())
}

/// A server that answers each request with an error that repeats it.
fn repeating() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || repeat(stream.unwrap()));
        }
    });
    address
}

fn repeat(mut stream: TcpStream) {
    let request = read_message(&mut stream);
    let request = String::from_utf8_lossy(&request).into_owned();
    // The whole request, once as it is and once with each character as an escape.
    let escaped: String = request.chars().map(|c| format!("\\u{:04x}", u32::from(c))).collect();
    let plain = serde_json::to_string(&format!("bad key: {request}")).unwrap();
    let body = match request.contains("escaped-please") {
        true => format!(
            r#"{{"error":{{"type":"authentication_error","message":"bad key: {escaped}"}}}}"#
        ),
        false => format!(r#"{{"error":{{"type":"authentication_error","message":{plain}}}}}"#),
    };
    let _ = write!(
        stream,
        "HTTP/1.1 401 Unauthorized\r\ncontent-type: application/json\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
}

fn read_message(stream: &mut TcpStream) -> Vec<u8> {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let read = stream.read(&mut buffer).unwrap_or(0);
        bytes.extend_from_slice(&buffer[..read]);
        let text = String::from_utf8_lossy(&bytes).to_lowercase();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            if read == 0 {
                return bytes;
            }
            continue;
        };
        let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
        let length: usize = length.and_then(|length| length.trim().parse().ok()).unwrap_or(0);
        if read == 0 || body.len() >= length {
            return bytes;
        }
    }
}

fn all_places() -> Vec<&'static Place> {
    HEADERS.iter().chain(&QUERIES).chain(&NAMES).chain(&BODIES).collect()
}

/// Sends the request of a place with its secret, and returns the answer.
fn send(address: &str, prefix: &str, at: usize, place: &Place, more: &str) -> String {
    let fill = |text: &str| text.replace("SECRET", &place.spelled(&secret(at)));
    let name = if place.run.is_empty() { format!("run{at}") } else { fill(place.run) };
    // Another conversation each, because guard ends a run whose refused call is repeated.
    let tools = r#""tools":[{"type":"function","function":{"name":"work"}}]"#;
    let said = format!(r#"{tools},"messages":[{{"role":"user","content":"Go {at}."}}"#);
    let body = match fill(place.body) {
        body if body.is_empty() => format!(r#"{{"model":"gpt-4o",{said}]}}"#),
        body => body
            .replace(r#""messages":[{"role":"user","content":"Go."}"#, &said)
            .replace(r#""messages":[]"#, &format!("{said}]")),
    };
    let prefix = if prefix.is_empty() { format!("/run/{name}") } else { prefix.to_owned() };
    let mut stream = TcpStream::connect(address).unwrap();
    let (query, headers) = (fill(place.query), fill(place.headers));
    write!(
        stream,
        "POST {prefix}/v1/chat/completions{query} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\
         content-length: {}\r\n{more}{headers}\r\n{body}",
        body.len()
    )
    .unwrap();
    String::from_utf8_lossy(&read_message(&mut stream)).into_owned()
}

/// All bytes that a command has printed and the files below this folder.
fn collect(folder: &Path, printed: Vec<(String, Vec<u8>)>, but: &[&str]) -> Vec<(String, Vec<u8>)> {
    let mut all = printed;
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let (path, kind) = (entry.path(), entry.file_type().unwrap());
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() && !but.iter().any(|but| path.ends_with(but)) {
                let bytes = fs::read(&path).unwrap();
                all.push((path.display().to_string(), bytes));
            }
        }
    }
    all
}

/// Returns the places whose secret is in one of the outputs, whole or a part of ten characters.
fn found(outputs: &[(String, Vec<u8>)], places: &[&Place]) -> Vec<String> {
    let mut parts: HashMap<[u8; 10], &str> = HashMap::new();
    for (at, place) in places.iter().enumerate() {
        for part in secret(at).as_bytes().windows(10) {
            parts.insert(part.try_into().unwrap(), place.what);
        }
    }
    for at in 90..=92 {
        for part in secret(at).as_bytes().windows(10) {
            parts.insert(part.try_into().unwrap(), "a token of the proxy");
        }
    }
    let mut found = Vec::new();
    for (output, bytes) in outputs {
        let mut before = None;
        for (at, part) in bytes.windows(10).enumerate() {
            let Some(what) = parts.get(part) else { continue };
            if before != Some(what) {
                let near = String::from_utf8_lossy(&bytes[at.saturating_sub(60)..at + 10]);
                found.push(format!("{what} in {output}: …{near}"));
                before = Some(what);
            }
        }
    }
    found
}

fn pid(started: &Started) -> Pid {
    Pid::from_child(&started.child)
}

/// Everything that other commands print about the runs of a journal.
fn told(cli: &Cli, journal: &str) -> Vec<(String, Vec<u8>)> {
    let mut printed = Vec::new();
    let mut keep = |what: &str, done: Done| {
        printed.push((format!("{what}: standard output"), done.stdout.into_bytes()));
        printed.push((format!("{what}: standard error"), done.stderr.into_bytes()));
    };
    let list = cli.run(["runs", "--json", "--journal", journal]).exits(0);
    let ids: Vec<String> =
        list.lines().iter().map(|line| line["run_id"].as_str().unwrap().to_owned()).collect();
    assert!(!ids.is_empty());
    keep("runs --json", list);
    keep("runs", cli.run(["runs", "--journal", journal]));
    keep("spend", cli.run(["spend", "--json", "--journal", journal]));
    keep("audit", cli.run(["audit", journal, "--report", "audit.html"]));
    keep("audit --json", cli.run(["audit", journal, "--json"]));
    for (nth, id) in ids.iter().enumerate() {
        // Each run has the same commands; a page of every fifth one is enough.
        let page = format!("page{nth}.html");
        keep("explain", cli.run(["explain", id, "--journal", journal]));
        if nth % 5 == 0 {
            keep("explain --json", cli.run(["explain", id, "--journal", journal, "--json"]));
            keep("explain --html", cli.run(["explain", id, "--journal", journal, "--html", &page]));
        }
    }
    printed
}

#[test]
fn standing_proxy_shows_no_planted_secret() {
    let places = all_places();
    assert!(places.len() >= 60, "{}", places.len());
    for json in [true, false] {
        let (cli, upstream) = (Cli::new(), repeating());
        cli.write(
            "guard.toml",
            format!(
                "idle_after = \"1s\"\n[upstream]\nopenai = \"http://{upstream}/v1\"\n[tokens]\nci = \"{}\"\n\
                 [profile.default]\nlimits = {{ max_turns = 3 }}\n[profile.beta]\nruns = [\"beta-*\"]\n",
                secret(90)
            ),
        );
        let flags = ["guard", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"];
        let more = ["--config", "guard.toml", "--journal", "j.db"];
        let json_flag: &[&str] = if json { &["--json"] } else { &[] };
        let mut command = cli.command([&flags[..], &more, json_flag].concat());
        command.env("XDG_STATE_HOME", cli.path("state"));
        let started = Started::new(command, "");
        let address = |nth: usize| {
            let out = if json { started.stdout() } else { started.stderr() };
            if json {
                let line: Value = serde_json::from_str(out.lines().next()?).ok()?;
                line[["address", "metrics"][nth]].as_str().map(str::to_owned)
            } else {
                let urls = out.split("http://").nth(1 + nth)?;
                Some(urls.split(['/', '\n']).next()?.trim().to_owned())
            }
        };
        eventually("the addresses", || address(1).is_some());
        let (proxy, metrics) = (address(0).unwrap(), address(1).unwrap());
        let token = format!("x-endstop-token: {}\r\n", secret(90));
        for (at, place) in places.iter().enumerate() {
            send(&proxy, "", at, place, &token);
        }
        // Without a token, with the wrong one, and for a profile that does not exist.
        send(&proxy, "", 0, places[0], "");
        send(&proxy, "", 1, places[1], &format!("x-endstop-token: {}\r\n", secret(91)));
        send(&proxy, "", 2, places[2], &format!("{token}x-endstop-profile: {}\r\n", secret(92)));
        let mut scraped = String::new();
        let mut stream = TcpStream::connect(&metrics).unwrap();
        write!(stream, "GET /metrics HTTP/1.1\r\nhost: {metrics}\r\nconnection: close\r\n\r\n")
            .unwrap();
        stream.read_to_string(&mut scraped).unwrap();
        assert!(scraped.contains("endstop_guard_calls_total{profile=\"default\"}"), "{scraped}");
        let live = cli.command(["runs", "--live", "--json"]);
        let mut live = live;
        live.env("XDG_STATE_HOME", cli.path("state"));
        let live = Started::new(live, "").finish();
        // Idle runs end with the error of their last call.
        let out = || if json { started.stdout() } else { started.stderr() };
        eventually("the ends", || out().matches("bad key: ").count() > 45);
        kill_process(pid(&started), Signal::TERM).unwrap();
        let done = started.finish().exits(143);
        if json {
            let endings = done.lines().iter().filter(|line| line["type"] == "outcome").count();
            assert!(endings > 50, "{endings} runs ended");
        }
        let mut printed = vec![
            ("standard output".to_owned(), done.stdout.into_bytes()),
            ("standard error".to_owned(), done.stderr.into_bytes()),
            ("metrics".to_owned(), scraped.into_bytes()),
            ("runs --live".to_owned(), live.stdout.into_bytes()),
        ];
        let all = String::from_utf8_lossy(&printed[usize::from(!json)].1).into_owned();
        assert!(all.contains("bad key: ") && all.contains("[redacted]"), "{all}");
        printed.extend(told(&cli, "j.db"));
        let outputs = collect(cli.dir.path(), printed, &["guard.toml"]);
        assert!(outputs.iter().any(|(name, _)| name.ends_with("j.db")));
        assert_eq!(found(&outputs, &places), Vec::<String>::new());
    }
}

#[cfg(unix)]
#[test]
fn guarded_program_shows_no_planted_secret() {
    let places = all_places();
    // The run has one name, so places in names are those of the standing proxy only.
    for json in [true, false] {
        let (cli, upstream) = (Cli::new(), repeating());
        let program = "printf %s \"$OPENAI_BASE_URL\" > url.new; mv url.new url; \
                       while [ ! -e done ]; do sleep 0.05; done";
        let flags = ["guard", "--journal", "j.db", "--events", "e.jsonl", "--name", "planted"];
        let json_flag: &[&str] = if json { &["--json"] } else { &[] };
        // Keys of the program's own, which no request has.
        let (apart, glued) = (secret(900), secret(901));
        let glued_option = format!("--service-token={glued}");
        let command = ["--", "sh", "-c", program, "sh", "--api-key", &apart, &glued_option];
        let mut command = cli.command([&flags[..], json_flag, &command].concat());
        command.env("OPENAI_BASE_URL", format!("http://{upstream}/v1"));
        let started = Started::new(command, "");
        eventually("the address", || cli.path("url").exists());
        let url = cli.read("url");
        let rest = url.strip_prefix("http://").unwrap();
        let (address, prefix) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let prefix = prefix.trim_end_matches('/').trim_end_matches("/v1");
        let prefix = if prefix.is_empty() { "/." } else { prefix };
        let answers = Arc::new(Mutex::new(0));
        for (at, place) in places.iter().enumerate().filter(|(_, place)| place.run.is_empty()) {
            let answer = send(address, prefix, at, place, "");
            *answers.lock().unwrap() += usize::from(answer.contains("bad key"));
        }
        assert!(
            *answers.lock().unwrap() > 40,
            "{:?} of the calls arrived",
            answers.lock().unwrap()
        );
        cli.write("done", "");
        let done = started.finish();
        let mut printed = vec![
            ("standard output".to_owned(), done.stdout.into_bytes()),
            ("standard error".to_owned(), done.stderr.into_bytes()),
        ];
        printed.extend(told(&cli, "j.db"));
        let outputs = collect(cli.dir.path(), printed, &["url"]);
        for file in ["j.db", "e.jsonl"] {
            assert!(outputs.iter().any(|(name, _)| name.ends_with(file)), "{file}");
        }
        assert_eq!(found(&outputs, &places), Vec::<String>::new());
        for key in [apart, glued] {
            let shows = |bytes: &[u8]| String::from_utf8_lossy(bytes).contains(&key);
            let shown: Vec<&String> =
                outputs.iter().filter(|(_, bytes)| shows(bytes)).map(|(name, _)| name).collect();
            assert!(shown.is_empty(), "{key}: {shown:?}");
        }
    }
}

/// Only one file opens the standard streams, so that nothing is written without redaction.
#[test]
fn one_file_writes_to_the_streams() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut folders = vec![root.clone()];
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            files += 1;
            let text = fs::read_to_string(&path).unwrap();
            for stream in ["io::stdout()", "io::stderr()"] {
                for (at, _) in text.match_indices(stream) {
                    let only_asked = text[at + stream.len()..].starts_with(".is_terminal()")
                        || text[..at].trim_end_matches("std::").ends_with("shows_colours(&")
                        || text[..at].trim_end_matches("std::").ends_with("ttyname(")
                        // Frames of a protocol, whose events are redacted.
                        || text[..at].ends_with("Stdout(tokio::");
                    let is_own = path.ends_with("src/output.rs");
                    assert!(is_own || only_asked, "{}: {stream}", path.display());
                }
            }
        }
    }
    assert!(files > 100, "{files}");
}

/// A tool prints JSON within JSON, in which a secret is spelled with escapes, and credentials that only
/// their context shows.
#[test]
fn escaped_and_contextual_secrets_of_tool_are_redacted() {
    use crate::cli::answering;
    use endstop::testkit::{Reply, Turn};
    use serde_json::json;
    let own = secret(0);
    let escaped: String =
        own.chars().fold(String::new(), |text, c| format!("{text}\\u{:04x}", u32::from(c)));
    let mut printed = vec![escaped.clone()];
    for _ in 0..3 {
        printed.push(json!({"inner": printed.last().unwrap()}).to_string());
        printed.push(format!("{{\"raw\": \"{}\"}}", escaped.replace('\\', "\\\\")));
    }
    printed.push(format!(
        "aws_access_key_id = AKIAIOSFODNN7EXAMPLE\naws_secret_access_key = {}\n",
        &AWS
    ));
    printed.push(format!("machine h.example\n  login me\n  password {}\n", secret(1)));
    printed.push(format!("DEPLOY_TOKEN={}\n", secret(2)));
    let text = printed.join("\n");
    let cli = Cli::new();
    cli.write("all.txt", &text);
    let said = text.clone();
    let server = answering(move |request| {
        let turn = match request.number {
            1 => Turn::call("shell", &json!({"command": "cat all.txt"})),
            _ => {
                let pieces: Vec<String> = said
                    .as_bytes()
                    .chunks(7)
                    .map(|piece| String::from_utf8_lossy(piece).into_owned())
                    .collect();
                Turn::pieces(&pieces.iter().map(String::as_str).collect::<Vec<_>>())
            }
        };
        Reply::turn(request, &turn)
    });
    let url = server.base_url();
    let run = ["run", "Look.", "--model", "m", "--api", "openai-chat", "--base-url", &url];
    let more = ["--tool", "shell", "--journal", "j.db", "--events", "e.jsonl", "--json"];
    let mut command = cli.command([&run[..], &more].concat());
    command.env("OWN_TOKEN", &own);
    let done = Started::new(command, "").finish().exits(0);
    let mut printed = vec![("standard output".to_owned(), done.stdout.into_bytes())];
    printed.extend(told(&cli, "j.db"));
    let outputs = collect(cli.dir.path(), printed, &["all.txt"]);
    let places = [
        Place { what: "an escaped secret", ..Place::NONE },
        Place { what: ".netrc", ..Place::NONE },
        Place { what: "a variable", ..Place::NONE },
    ];
    assert_eq!(found(&outputs, &places.iter().collect::<Vec<_>>()), Vec::<String>::new());
    // Neither as escapes, on any level.
    let letters = |text: &str| text.replace('\\', "");
    let (spelled, aws) = (letters(&escaped), &AWS[8..24]);
    for (output, bytes) in &outputs {
        let text = letters(&String::from_utf8_lossy(bytes));
        assert!(!text.contains(&spelled[..60]), "{output} has the escaped secret");
        assert!(!text.contains(aws), "{output} has the secret key of AWS");
    }
}

/// The secret key of the documentation of AWS, with other letters.
const AWS: &str = "wJa1rXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKE2";
