//! Secrets: a run writes none to any file, and the files stay valid. A command that the model wrote
//! sees none either.

use crate::cli::{Cli, Done, Started, answering, playing};
use endstop::testkit::{Reply, Server, Turn};
use serde_json::{Value, json};
use std::path::Path;

/// Variables that hold a secret, with the part of their value that must not be written.
const SECRET: [(&str, &str, &str); 36] = [
    ("DATABASE_URL", "postgres://app:Zk01-aQ71mmP@db:5432/app", "Zk01-aQ71mmP"),
    ("REDIS_URL", "redis://:Zk02-bQ71mmP@cache:6379/0", "Zk02-bQ71mmP"),
    ("HTTPS_PROXY_2", "http://me:Zk03-cQ71mmP@proxy.invalid:3128", "Zk03-cQ71mmP"),
    ("TOKEN_GITHUB", "Zk04dQ71mmPx8Lw2", "Zk04dQ71mmPx8Lw2"),
    ("GITHUB_TOKEN_RW", "Zk05eQ71mmPx8Lw2", "Zk05eQ71mmPx8Lw2"),
    ("GITHUB_PAT_2", "Zk06fQ71mmPx8Lw2", "Zk06fQ71mmPx8Lw2"),
    ("KEY_OPENAI", "Zk07gQ71mmPx8Lw2", "Zk07gQ71mmPx8Lw2"),
    ("ENCRYPTION_KEYS", "Zk08hQ71mmPx8Lw2", "Zk08hQ71mmPx8Lw2"),
    ("GPG_PRIVATE_KEY_B64", "WmswOWlRNzFtbVB4OEx3Mg==", "WmswOWlRNzFtbVB4OEx3Mg"),
    ("SIGNING_KEY_PEM", PEM, "MIIEvQIBADANBgkqhkiG9w0BAQEF"),
    ("NPM_CONFIG__AUTH", "Zk11jQ71mmPx8Lw2", "Zk11jQ71mmPx8Lw2"),
    ("BASIC_AUTH", "me:Zk12kQ71mmPx8Lw2", "Zk12kQ71mmPx8Lw2"),
    ("SESSION_COOKIE", "sid=Zk13lQ71mmPx8Lw2", "Zk13lQ71mmPx8Lw2"),
    ("CI_JOB_JWT", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl", "c2lnbmF0dXJl"),
    (
        "AZURE_STORAGE_CONNECTION_STRING",
        "AccountName=me;AccountKey=Zk15nQ71mmPx8Lw2;EndpointSuffix=x",
        "Zk15nQ71mmPx8Lw2",
    ),
    (
        "SLACK_WEBHOOK_URL",
        "https://hooks.slack.invalid/T0/B0/Zk16oQ71mmPx8Lw2ab",
        "Zk16oQ71mmPx8Lw2ab",
    ),
    (
        "SENTRY_DSN",
        "https://3f1c17b2d4e5f60718293a4b5c6d7e8f@o1.invalid/4",
        "3f1c17b2d4e5f60718293a4b5c6d7e8f",
    ),
    (
        "DOCKER_AUTH_CONFIG",
        r#"{"auths":{"r.invalid":{"auth":"WmsxOHFRNzFtbVB4OEx3Mg=="}}}"#,
        "WmsxOHFRNzFtbVB4OEx3Mg",
    ),
    ("DB_PW", "Zk19rQ71mmPx8Lw2", "Zk19rQ71mmPx8Lw2"),
    ("LDAP_BIND_PW", "correct horse battery staple", "horse battery"),
    ("STRIPE_SK", "sk_live_51HxAbCdEfGhIjKlMn", "51HxAbCdEfGhIjKlMn"),
    ("VAULT_UNSEAL", "Zk22uQ71mmPx8Lw2", "Zk22uQ71mmPx8Lw2"),
    ("MYSQL_PWD", "Zk23vQ71mmPx8Lw2", "Zk23vQ71mmPx8Lw2"),
    ("PGPASSWORD", "Zk24wQ71mmPx8Lw2", "Zk24wQ71mmPx8Lw2"),
    ("NGROK_AUTHTOKEN", "Zk25xQ71mmPx8Lw2", "Zk25xQ71mmPx8Lw2"),
    ("app_clientSecret", "Zk26yQ71mmPx8Lw2", "Zk26yQ71mmPx8Lw2"),
    ("DEPLOY", "ghp_abcdefghijklmnopqrstuvwxyzABCDEFGH27", "ghijklmnopqrst"),
    ("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE", "AKIAIOSFODNN7"),
    ("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "K7MDENG"),
    ("TF_VAR_admin_password", "Zk30cQ71mmPx8Lw2", "Zk30cQ71mmPx8Lw2"),
    ("MAIN__CONNSTR", "Server=db;Uid=app;Password=Zk31dQ71mmPx8Lw2;", "Zk31dQ71mmPx8Lw2"),
    ("SERVICE_CREDS", r#"{"user":"app","password":"Zk32eQ71mmPx8Lw2"}"#, "Zk32eQ71mmPx8Lw2"),
    ("SSH_PASSPHRASE", "Zk33fQ71mmPx8Lw2", "Zk33fQ71mmPx8Lw2"),
    ("BW_SESSION_KEY", "Zk34gQ71mmPx8Lw2", "Zk34gQ71mmPx8Lw2"),
    ("SMTP_PASS", "Tr0ub4dor&3x", "Tr0ub4dor&3x"),
    ("WEBHOOK_SIGNATURE", "Zk36iQ71mmPx8Lw2", "Zk36iQ71mmPx8Lw2"),
];

const PEM: &str = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEF\nAASCBKcwggSjAgEAAoIBAQC7\n-----END PRIVATE KEY-----\n";

/// Variables that hold no secret.
const HARMLESS: [(&str, &str); 36] = [
    ("MAX_TOKENS", "4096"),
    ("TOKENIZERS_PARALLELISM", "false"),
    ("KEYBOARD_LAYOUT", "de-latin1-nodeadkeys"),
    ("KEYMAP", "us-international-2"),
    ("KEY_REPEAT", "30"),
    ("MONKEY", "george-the-third-1"),
    ("SECRETARY", "alice-from-office-2"),
    ("AUTHOR", "Alice Liddell 1865"),
    ("GIT_AUTHOR_NAME", "Alice Liddell 1866"),
    ("GIT_AUTHOR_EMAIL", "alice1867@example.com"),
    ("GIT_COMMITTER_EMAIL", "alice1868@example.com"),
    ("XAUTHORITY", "/root/.Xauthority-1"),
    ("GPG_TTY", "/dev/pts/0"),
    ("GPG_AGENT_INFO", "/run/gpg/agent-1:0:1"),
    ("PASSWORD_STORE_DIR", "/root/.store-2"),
    ("SSH_ASKPASS", "/usr/bin/ask-3"),
    ("SSH_AUTH_SOCK", "/run/ssh-agent-4.sock"),
    ("SSH_AGENT_PID", "7701"),
    ("XDG_SESSION_TYPE", "wayland-session-1"),
    ("XDG_SESSION_ID", "c2"),
    ("DBUS_SESSION_BUS_ADDRESS", "unix:path=/run/user/1000/bus"),
    ("COLORTERM", "truecolor-24bit-1"),
    ("SSH_KEY_PATH", "/root/.ssh/id_ed25519"),
    ("POSTGRES_PASSWORD_FILE", "/run/secrets/pg-pass-1"),
    ("AUTH_METHOD", "oidc-with-device-flow-2"),
    ("USE_AUTH", "true"),
    ("TOKEN_TTL", "3600"),
    ("TOKEN_URL", "https://auth.example.com/oauth/token"),
    ("READ_DATABASE_URL", "postgres://db1.example.com:5432/app"),
    ("BUILD_PROXY", "http://proxy1.example.com:3128"),
    ("SSH_PUBLIC_KEY", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5 me"),
    ("COMPASS_HOME", "/opt/compass-5"),
    ("BYPASS", "none-of-them-1"),
    ("PATTERN", "glob-expression-77"),
    ("SESSION_MANAGER", "local/host1:@/tmp/.ICE-unix/1"),
    ("OLDPWD", "/srv/old-folder-12"),
];

fn with(cli: &Cli, variables: &[(&str, &str)], args: &[&str]) -> Done {
    let mut command = cli.command(args);
    command.envs(variables.iter().copied());
    Started::new(command, "").finish()
}

/// Returns all files that were written, by name; asserts that each line of JSON is valid.
fn written(cli: &Cli, but: &[&str]) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for file in std::fs::read_dir(cli.dir.path()).unwrap().flatten() {
        let name = file.file_name().into_string().unwrap();
        if but.contains(&name.as_str()) || !file.file_type().unwrap().is_file() {
            continue;
        }
        let bytes = std::fs::read(file.path()).unwrap();
        if Path::new(&name).extension().is_some_and(|end| end == "jsonl") {
            let text = String::from_utf8(bytes.clone()).unwrap();
            assert!(text.lines().count() > 2, "{name}: {text}");
            for line in text.lines() {
                serde_json::from_str::<Value>(line)
                    .unwrap_or_else(|e| panic!("{name}: {e}: {line}"));
            }
        }
        files.push((name, bytes));
    }
    files
}

fn has(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

/// A model that prints the environment, reads a file, and repeats its content.
fn telling(said: String) -> Server {
    answering(move |request| {
        let turn = match request.number {
            1 => Turn::call("shell", &json!({"command": "env > seen.txt; env; cat all.txt"})),
            _ => Turn::text(said.clone()),
        };
        Reply::turn(request, &turn)
    })
}

#[cfg(unix)]
#[test]
fn secret_variables_are_withheld_and_redacted() {
    let cli = Cli::new();
    let all: Vec<&str> = SECRET
        .iter()
        .map(|(_, value, _)| *value)
        .chain(HARMLESS.iter().map(|(_, value)| *value))
        .collect();
    let all = all.join("\n");
    cli.write("all.txt", &all);
    let server = telling(all);
    let variables: Vec<(&str, &str)> =
        SECRET.iter().map(|(name, value, _)| (*name, *value)).chain(HARMLESS).collect();
    let url = server.base_url();
    let base = ["run", "Look.", "--model", "scripted", "--api", "openai-chat", "--base-url", &url];
    let more =
        ["--tool", "shell", "--journal", "j.db", "--events", "e.jsonl", "--record", "r.jsonl"];
    with(&cli, &variables, &[&base[..], &more].concat()).exits(0);
    let explain = ["explain", "last", "--journal", "j.db"];
    with(&cli, &variables, &[&explain[..], &["--html", "page.html"]].concat()).exits(0);
    let story = cli.run([&explain[..], &["--json"]].concat()).exits(0);
    cli.write("story.json", &story.stdout);

    let seen = cli.read("seen.txt");
    for (name, _, _) in SECRET {
        let sees = seen.lines().any(|line| line.starts_with(&format!("{name}=")));
        assert!(!sees, "a command sees {name}");
    }
    for (name, value) in HARMLESS {
        assert!(seen.contains(&format!("{name}={value}\n")), "a command does not see {name}");
    }
    let files = written(&cli, &["all.txt", "seen.txt"]);
    assert!(files.len() >= 5, "journal, events, recording, page, story: {}", files.len());
    for (file, bytes) in files {
        for (name, _, secret) in SECRET {
            assert!(!has(&bytes, secret), "{name} is in {file}");
        }
        if file == "story.json" || file == "e.jsonl" || file == "r.jsonl" {
            for (name, value) in HARMLESS {
                assert!(has(&bytes, value), "{name} is not in {file}");
            }
        }
    }
}

#[test]
fn redacted_records_stay_valid_json() {
    let account =
        json!({"type": "service_account", "project_id": "my-project-1", "private_key": PEM});
    let (pretty, compact) = (serde_json::to_string_pretty(&account).unwrap(), account.to_string());
    for variables in [
        [
            ("GCP_SA_KEY", r#"{"type": "service_account", "project_id": "my-project-1"}"#),
            ("A_KEY", PEM),
        ],
        [("GOOGLE_CREDENTIALS", &pretty), ("GCLOUD_SERVICE_KEY", &compact)],
        [
            ("APP_SECRET", "turn_started-9f8a7b6c5d4e3f2a"),
            ("B_SECRET", "\"type\":\"tool_started1\""),
        ],
        [
            ("C_TOKEN", "\",\"turn\":1,\"attempt\":1"),
            ("D_TOKEN", "error_no_progress1{}[]:,\\\"\\u0041"),
        ],
        [("E_KEY", "4fQ9xTz71LmN"), ("F_KEY", "4fQ9xTz71LmN0pWv8aBcD")],
        [("G_PASSWORD", "type"), ("H_PASSWORD", "turn_started")],
        [("I_PASSWORD", "note.txt"), ("J_PASSWORD", "error_no_progress")],
    ] {
        let cli = Cli::new();
        let state = cli.path("state").to_str().unwrap().to_owned();
        let variables = [variables[0], variables[1], ("XDG_STATE_HOME", &state)];
        let done = with(&cli, &variables, &["demo", "loop", "--json"]).exits(20);
        assert_eq!(done.outcome()["termination"], "error_no_progress", "{variables:?}");
        assert_eq!(done.lines()[0]["type"], "turn_started");
        let told = with(&cli, &variables, &["explain", "last", "--json"]).exits(0).lines();
        assert_eq!(told[0]["problems"], json!([]), "{variables:?}");
        assert_eq!(told[0]["state"], "ended");
        let runs = with(&cli, &variables, &["runs", "--json"]).exits(0).lines();
        assert_eq!(runs[0]["termination"], "error_no_progress");

        // The model repeats the secret, in a call and in text.
        let secret = variables[1].1.to_owned();
        let call = Turn::call("shell", &json!({"command": format!("true || echo '{secret}'")}));
        let server = playing([call, Turn::text(format!("It is {secret}."))]);
        let url = server.base_url();
        let base = ["run", "Say it.", "--model", "m", "--api", "openai-chat", "--base-url", &url];
        let more = ["--tool", "shell", "--events", "e.jsonl", "--record", "r.jsonl", "--json"];
        let done = with(&cli, &variables, &[&base[..], &more].concat());
        done.outcome();
        written(&cli, &[]);
        let told = with(&cli, &variables, &["explain", "last", "--json"]).exits(0).lines();
        assert_eq!(told[0]["problems"], json!([]), "{variables:?}");
        let replay = ["run", "--replay", "r.jsonl", "--tool", "shell", "--journal", "off"];
        let replayed = cli.run(replay).exits(done.code());
        assert!(!replayed.stderr.contains("differs"), "{replayed:#?}");
    }
}

/// Secrets whose first part alone is not recognised: a variable's, and those of known formats.
const STREAMED: [&str; 5] = [
    "Zk04dQ71mmPx8Lw2",
    "correct horse battery staple",
    "ghp_abcdefghijklmnopqrstuvwxyzABCDEFGHIJ",
    "AKIAIOSFODNN7EXAMPLE",
    PEM,
];

fn with_tokens(cli: &Cli, args: &[&str]) -> Done {
    with(cli, &[("DEPLOY_TOKEN", STREAMED[0]), ("DB_PASSPHRASE", STREAMED[1])], args)
}

/// Joins the text of consecutive deltas.
fn deltas(lines: &[Value]) -> String {
    let texts = lines.iter().filter(|line| line["type"] == "delta");
    texts.filter_map(|line| line["text"].as_str()).collect()
}

#[test]
fn secret_split_over_deltas_is_redacted() {
    for secret in STREAMED {
        for size in [1, 3, secret.len() / 2, secret.len() - 1] {
            let cli = Cli::new();
            let said = format!("It is {secret}, as you see. Yes");
            let pieces: Vec<&str> = said
                .as_bytes()
                .chunks(size)
                .map(|piece| std::str::from_utf8(piece).unwrap())
                .collect();
            let server = playing([Turn::pieces(&pieces)]);
            let url = server.base_url();
            let base = ["run", "Look.", "--model", "m", "--api", "openai-chat", "--base-url", &url];
            let more = ["--journal", "off", "--events", "e.jsonl", "--json"];
            let done = with_tokens(&cli, &[&base[..], &more].concat()).exits(0);
            let file = cli.read("e.jsonl");
            let file: Vec<Value> =
                file.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            for lines in [done.lines(), file] {
                let text = deltas(&lines);
                let clean =
                    text.starts_with("It is [redacted]") && text.ends_with(", as you see. Yes");
                assert!(clean && !text.contains(secret), "{size}: {text}");
                let ended = lines.iter().position(|line| line["type"] == "turn_finished").unwrap();
                let last = lines.iter().rposition(|line| line["type"] == "delta").unwrap();
                assert!(last < ended, "the rest of the text comes before the end of its turn");
            }
        }
    }
}

#[test]
fn secret_split_over_journalled_deltas_redacted() {
    // A journal stores the deltas of a long text before its turn ends.
    let filler = "an ordinary word ".repeat(300);
    for secret in STREAMED {
        let (begin, end) = secret.split_at(secret.len() / 2);
        let cli = Cli::new();
        let (first, last) = (format!("{filler}{begin}"), format!("{end}, and the rest."));
        let server = playing([Turn::pieces(&[&first, &last])]);
        let url = server.base_url();
        let base = ["run", "Look.", "--model", "m", "--api", "openai-chat", "--base-url", &url];
        with_tokens(&cli, &[&base[..], &["--journal", "j.db"]].concat()).exits(0);
        for (file, bytes) in written(&cli, &[]) {
            // The first line of a private key is not a secret.
            let begin = begin.lines().last().unwrap();
            let found = [begin, end].into_iter().find(|half| has(&bytes, half));
            let text = String::from_utf8_lossy(&bytes);
            let at = |half: &str| text.find(half).map(|at| text[..at + 99].to_owned());
            assert_eq!(found.and_then(at), None, "{file} has a half of {secret}");
        }
    }
}

#[test]
fn ordinary_word_as_password_changes_nothing() {
    let cli = Cli::new();
    let call = json!({"command": "echo 'jdbc:postgresql://db/postgres'"});
    let server = answering(move |request| {
        let turn = match request.number {
            1 => Turn::call("shell", &call),
            2 => Turn::error(401, "{}"),
            _ => Turn::text("It uses the image postgres:16, and that is true on localhost."),
        };
        Reply::turn(request, &turn)
    });
    let url = server.base_url();
    let variables =
        [("POSTGRES_PASSWORD", "postgres"), ("FEATURE_TOKEN", "true"), ("DB_AUTH", "localhost")];
    let base = ["run", "Look.", "--model", "scripted", "--api", "openai-chat", "--base-url", &url];
    let more = ["--tool", "shell", "--journal", "j.db"];
    with(&cli, &variables, &[&base[..], &more].concat()).exits(30);
    let again = ["run", "--resume", "last", "--trust-journal", "--journal", "j.db", "--json"];
    let done = with(&cli, &variables, &again).exits(0);
    let said = "It uses the image postgres:16, and that is true on localhost.";
    assert_eq!(done.outcome()["last_text"], said);
    let sent = server.requests()[2].body.to_string();
    assert!(
        sent.contains("jdbc:postgresql://db/postgres") && !sent.contains("[redacted]"),
        "{sent}"
    );
}

#[test]
fn redacted_conversation_needs_acceptance() {
    let secret = [("DEPLOY_TOKEN", "Zk04dQ71mmPx8Lw2")];
    let resume = ["run", "--resume", "last", "--trust-journal", "--journal", "j.db"];
    for (said, cuts) in [("It is Zk04dQ71mmPx8Lw2.", true), ("It is [redacted].", false)] {
        let cli = Cli::new();
        let server = answering(move |request| {
            let turn = match request.number {
                1 => Turn::call("shell", &json!({"command": format!("echo '{said}'")})),
                2 | 3 => Turn::error(401, "{}"),
                _ => Turn::text("Done."),
            };
            Reply::turn(request, &turn)
        });
        let url = server.base_url();
        let base = ["run", "Look.", "--model", "m", "--api", "openai-chat", "--base-url", &url];
        let more = ["--tool", "shell", "--journal", "j.db"];
        with(&cli, &secret, &[&base[..], &more].concat()).exits(30);
        if !cuts {
            // The same text in the user's own task is not a redaction.
            with(&cli, &secret, &resume).exits(30);
            continue;
        }
        let refused = "2 secrets were cut out of the run's conversation";
        with(&cli, &secret, &resume).exits(2).notes(&[refused, "--accept-redacted"]);
        assert_eq!(server.requests().len(), 2, "the model was asked");
        let accept = [&resume[..], &["--accept-redacted"]].concat();
        with(&cli, &secret, &accept).exits(30).notes(&["2 secrets were removed"]);
        assert!(server.requests()[2].body.to_string().contains("It is [redacted]."));
        // The resumed run has the same redactions, also without the secret in the environment.
        with(&cli, &[], &resume).exits(2).notes(&[refused]);
        with(&cli, &[], &accept).exits(0);
    }
}

#[test]
fn unlisted_keys_are_redacted() {
    const KEYS: [&str; 4] = [
        "sk_live_51HxAbCdEfGhIjKlMn",
        "ghp_abcdefghijklmnopqrstuvwxyzABCDEFGHIJ",
        "xoxb-123456789012-abcdefABCDEF",
        "AASCBKcwggSjAgEAAoIBAQC7",
    ];
    let cli = Cli::new();
    let said = format!("{} and {} and {} and {PEM}", KEYS[0], KEYS[1], KEYS[2]);
    let server = playing([Turn::text(said)]);
    let url = server.base_url();
    let task = format!("Use {} here.", KEYS[1]);
    let verify = format!("true {}", KEYS[0]);
    let base = ["run", &task, "--model", "m", "--api", "openai-chat", "--base-url", &url];
    let more =
        ["--verify", &verify, "--journal", "j.db", "--events", "e.jsonl", "--record", "r.jsonl"];
    let done = cli.run([&base[..], &more, &["--json", "--no-stream"]].concat()).exits(0);
    cli.write("out.jsonl", &done.stdout);
    cli.run(["explain", "e.jsonl", "--html", "events.html"]).exits(0);
    cli.run(["explain", "last", "--html", "page.html", "--journal", "j.db"]).exits(0);
    // Events of a process that did not know the key contain it; a page of them must not, because pages
    // are shared.
    let old = cli.read("e.jsonl").replace("[redacted]", KEYS[0]);
    assert!(old.contains(KEYS[0]));
    cli.write("old", old);
    cli.run(["explain", "old", "--html", "old.html"]).exits(0);
    let told = cli.run(["explain", "old"]).exits(0);
    cli.write("told.txt", &told.stdout);
    let files = written(&cli, &["old"]);
    assert!(files.len() >= 7, "{}", files.len());
    for (file, bytes) in files {
        for key in KEYS {
            assert!(!has(&bytes, key), "{key} is in {file}");
        }
    }
}

#[cfg(unix)]
#[test]
fn written_files_are_private() {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;
    let cli = Cli::new();
    let mode = |name: &str| fs::metadata(cli.path(name)).unwrap().permissions().mode() & 0o777;
    let server = playing([Turn::text("Done.")]);
    let url = server.base_url();
    let run = ["run", "Go.", "--model", "m", "--api", "openai-chat", "--base-url", &url];
    let more = ["--journal", "j.db", "--events", "e.jsonl"];
    // Access of other users to an existing file is removed.
    cli.write("old.html", "");
    fs::set_permissions(cli.path("old.html"), Permissions::from_mode(0o644)).unwrap();
    cli.run([&run[..], &more].concat()).exits(0);
    for html in ["new.html", "old.html"] {
        cli.run(["explain", "last", "--html", html, "--journal", "j.db"]).exits(0);
    }
    cli.run(["backtest", "j.db", "--report", "b.html"]).exits(0);
    cli.run(["audit", "j.db", "--report", "a.html"]);
    for file in ["j.db", "e.jsonl", "new.html", "old.html", "b.html", "a.html"] {
        assert_eq!(mode(file), 0o600, "{file}");
    }
    fs::set_permissions(cli.path("j.db"), Permissions::from_mode(0o666)).unwrap();
    let again = [&run[..], &more, &["--overwrite"]].concat();
    cli.run(again).exits(0).notes(&["other users could access it (mode 0666)"]);
    assert_eq!(mode("j.db"), 0o600);
}

/// A command of the same user reads the environment of `endstop`, which holds a key that the
/// command must not get.
#[cfg(target_os = "linux")]
#[test]
fn environment_of_endstop_is_hidden() {
    use std::os::unix::process::CommandExt as _;
    if !rustix::process::geteuid().is_root() {
        eprintln!("not root: the key of another user's process cannot be tried");
        return;
    }
    let cli = Cli::new();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(cli.dir.path(), open).unwrap();
    let look = "p=$PPID; for i in 1 2 3; do echo \"$p: $(tr '\\0' '\\n' < /proc/$p/environ | grep -c API_KEY)\"; p=$(awk '{print $4}' /proc/$p/stat); done > seen.txt 2>&1";
    let server = playing([Turn::call("shell", &json!({"command": look})), Turn::text("Done.")]);
    let url = server.base_url();
    let run = ["run", "Go.", "--model", "m", "--api", "openai-chat", "--base-url", &url];
    // In a place that every user may execute.
    let binary = cli.path("endstop");
    std::fs::copy(env!("CARGO_BIN_EXE_endstop"), &binary).unwrap();
    let mut command = std::process::Command::new(&binary);
    command.args([&run[..], &["--tool", "shell", "--journal", "off"]].concat());
    command.current_dir(cli.dir.path()).env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    command.env("OPENAI_API_KEY", crate::cli::OPENAI_KEY).uid(65534).gid(65534);
    Started::new(command, "").finish().exits(0);
    let seen = cli.read("seen.txt");
    assert!(seen.contains("Permission denied"), "{seen}");
    assert!(!seen.lines().any(|line| line.ends_with(": 1")), "{seen}");
}
