//! The connection to the model's server: flags and the table `[http]`, and values that are refused.

use crate::cli::{Cli, Started};
use endstop::testkit::{Reply, Server, Turn};
use serde_json::json;
use std::fs;

const PASSWORD: &str = "hush-4711";

/// The scripted server plays the proxy: it calls a tool that does not exist, then answers.
fn proxy() -> Server {
    Server::start(|request| match request.number {
        1 => Reply::turn(request, &Turn::call("nothing", &json!({}))),
        _ => Reply::turn(request, &Turn::text("done")),
    })
    .unwrap()
}

/// A run on a server that only a proxy can reach, with a journal and a recording.
const RECORDED_RUN: [&str; 10] = [
    "run",
    "Go.",
    "--model",
    "m",
    "--base-url",
    "http://model.test/v1",
    "--journal",
    "j.db",
    "--record",
    "r.jsonl",
];

#[test]
fn proxy_of_flag_serves_run_and_resume() {
    let (cli, proxy) = (Cli::new(), proxy());
    let place = proxy.base_url().replace("http://", "").replace("/v1", "");
    let address = format!("http://me:$PROXY_PASSWORD@{place}");
    let begin = [
        "--max-turns",
        "1",
        "--proxy",
        &address,
        "--user-agent",
        "me/1",
        "--connect-timeout",
        "5s",
    ];
    let begin = [&RECORDED_RUN[..], &begin].concat();
    let resume =
        ["run", "--resume", "last", "--journal", "j.db", "--trust-journal", "--max-turns", "9"];
    for (args, status) in [(&begin[..], 20), (&resume[..], 0)] {
        let mut command = cli.command(args);
        // A key would not be sent to another host without encryption.
        command.env_remove("OPENAI_API_KEY").env("PROXY_PASSWORD", PASSWORD);
        let done = Started::new(command, "").finish().exits(status);
        assert!(!done.stderr.contains("hush") && !done.stdout.contains("hush"), "{done:#?}");
    }
    let requests = proxy.requests();
    assert_eq!(requests.len(), 2);
    for request in requests {
        assert_eq!(request.path, "http://model.test/v1/chat/completions");
        assert_eq!(request.headers["user-agent"], "me/1");
        // `me:hush-4711` in base64.
        assert_eq!(request.headers["proxy-authorization"], "Basic bWU6aHVzaC00NzEx");
    }
    for file in ["j.db", "r.jsonl"] {
        let bytes = fs::read(cli.path(file)).unwrap();
        for secret in [PASSWORD, "bWU6aHVzaC00NzEx"] {
            let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
            assert!(!found, "{secret} in {file}");
        }
    }
    // Without the variable nothing is sent.
    cli.run(resume).exits(2).notes(&["`http.proxy`", "PROXY_PASSWORD"]);
    assert_eq!(proxy.requests().len(), 2);
}

#[test]
fn invalid_flags_are_named() {
    let (cli, server) = (Cli::new(), proxy());
    cli.write("no.pem", "hush");
    let base = ["run", "Go.", "--model", "m", "--base-url", &server.base_url()];
    for (more, notes) in [
        (["--proxy", "ftp://h"], ["--proxy: ", "`ftp:` is not http or https"]),
        (["--proxy", "h:8080"], ["--proxy: ", "expected http://"]),
        (["--proxy", "http://me:hush@h"], ["--proxy: ", "use a variable as `$NAME`"]),
        (["--proxy", "http://me:$NO_SUCH_VARIABLE@h"], ["--proxy: ", "`NO_SUCH_VARIABLE`"]),
        (["--ca-file", "missing.pem"], ["--ca-file: missing.pem: ", ""]),
        (["--ca-file", "no.pem"], ["--ca-file: ", "no certificate found"]),
        (["--user-agent", "a\nb"], ["--user-agent: ", "can be sent in a header"]),
        (["--connect-timeout", "0s"], ["--connect-timeout: ", "expected a duration"]),
        (["--connect-timeout", "soon"], ["--connect-timeout: ", "expected a duration"]),
        (["--param", "key=hush"], ["--param key: ", "not JSON"]),
        (["--param", "hush"], ["--param: ", "expected KEY=JSON"]),
    ] {
        let done = cli.run(base.iter().chain(&more)).exits(2).notes(&notes);
        assert!(!done.stderr.contains("hush"), "{done:#?}");
    }
    assert!(server.requests().is_empty());
}

#[test]
fn invalid_file_is_named() {
    let (cli, server) = (Cli::new(), proxy());
    let base = ["run", "Go.", "--model", "m", "--base-url", &server.base_url()];
    for (toml, notes) in [
        ("[http]\nproxy = 1\n", ["c.toml: line 2: [http]: `proxy`", "expected a string"]),
        ("[http]\nproxi = \"h\"\n", ["c.toml: line 2: [http]: `proxi`", "did you mean `proxy`"]),
        ("http = 1\n", ["c.toml: `http`", "expected a table"]),
        ("[http]\nproxy = \"ftp://h\"\n", ["[http]: `proxy`", "not http or https"]),
        ("[http]\nproxy = \"http://:hush@h\"\n", ["[http]: `proxy`", "`$NAME`"]),
        ("[http]\nca_file = \"no.pem\"\n", ["[http]: `ca_file`", "no.pem"]),
        ("[http]\nconnect_timeout = \"0s\"\n", ["[http]: `connect_timeout`", "duration"]),
    ] {
        cli.write("c.toml", toml);
        let args = base.iter().chain(&["--config", "c.toml"]);
        let done = cli.run(args).exits(2).notes(&notes);
        assert!(!done.stderr.contains("hush"), "{done:#?}");
    }
    assert!(server.requests().is_empty());
}

#[test]
fn settings_are_shown_without_password() {
    let cli = Cli::new();
    cli.write("c.toml", "[http]\nproxy = \"http://me:$PW@h:1\"\nconnect_timeout = \"2s\"\n");
    let done = cli.run(["config", "show", "--config", "c.toml", "--user-agent", "me/1"]).exits(0);
    assert!(done.stdout.contains("http.connect_timeout = 2s  (c.toml"), "{done:#?}");
    assert!(done.stdout.contains("http.user_agent = me/1  (--user-agent)"), "{done:#?}");
    assert!(done.stdout.contains("http.proxy = ") && !done.stdout.contains("$PW"), "{done:#?}");
}

#[test]
fn replay_refuses_connection_flags() {
    let cli = Cli::new();
    for flag in ["--proxy", "--ca-file", "--user-agent", "--connect-timeout"] {
        let done = cli.run(["run", "--replay", "r.jsonl", flag, "5s"]).exits(2);
        done.notes(&[&format!("{flag} cannot be combined with --replay")]);
    }
}

#[test]
fn password_of_environment_proxy_is_not_written() {
    for (name, password, login) in [
        ("http_proxy", "Zk93-xQ71mmP", "bWU6Wms5My14UTcxbW1Q"),
        ("ALL_PROXY", "Zk93-xQ71mmP", "bWU6Wms5My14UTcxbW1Q"),
        // Words, which are no secret elsewhere.
        ("http_proxy", "swordfish", "bWU6c3dvcmRmaXNo"),
        ("--proxy", "swordfish", "bWU6c3dvcmRmaXNo"),
        ("[http]", "swordfish", "bWU6c3dvcmRmaXNo"),
    ] {
        // The proxy tells the model's reader what it was sent.
        let proxy = Server::start(move |request| {
            let login = request.headers.get("proxy-authorization").cloned().unwrap_or_default();
            Reply::turn(request, &Turn::text(format!("It is {password}, or {login}.")))
        })
        .unwrap();
        let place = proxy.base_url().replace("http://", "").replace("/v1", "");
        // Nothing listens at the second place.
        for (place, status) in [(place.as_str(), 0), ("127.0.0.1:9", 20)] {
            let cli = Cli::new();
            let mut command = cli.command(RECORDED_RUN);
            command.args(["--events", "e.jsonl", "--timeout", "2s"]);
            // A key would not be sent to another host without encryption.
            command.env_remove("OPENAI_API_KEY");
            match name {
                "--proxy" => {
                    command.arg(name).arg(format!("http://me:$WORD@{place}")).env("WORD", password);
                }
                "[http]" => {
                    let text = format!("[http]\nproxy = \"http://me:$WORD@{place}\"\n");
                    let file = cli.write("c.toml", text);
                    command.arg("--config").arg(file).env("WORD", password);
                }
                _ => {
                    command.env(name, format!("http://me:{password}@{place}"));
                }
            }
            let done = Started::new(command, "").finish().exits(status);
            // The answer on stdout is for the user, as the model wrote it.
            let mut written = done.stderr.clone().into_bytes();
            for file in ["j.db", "r.jsonl", "e.jsonl"] {
                written.extend(fs::read(cli.path(file)).unwrap());
            }
            for secret in [password, login] {
                let found = written.windows(secret.len()).any(|window| window == secret.as_bytes());
                assert!(!found, "{secret}: {}", String::from_utf8_lossy(&written));
            }
        }
        let requests = proxy.requests();
        assert_eq!(requests.len(), 1, "{name}");
        assert_eq!(requests[0].headers["proxy-authorization"], format!("Basic {login}"));
    }
}
