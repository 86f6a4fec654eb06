//! Resuming a run of a third-party journal: nothing that it asks for happens without consent.

use crate::cli::{Cli, Done, Started, agent_args, playing};
use endstop::testkit::{Server, Turn};
use serde_json::json;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Runs the binary as the user with this home.
fn run_as(home: &Path, cli: &Cli, args: &[&str]) -> Done {
    let mut command = cli.command(args);
    command.env("HOME", home).env("XDG_STATE_HOME", home.join("state"));
    Started::new(command, "").finish()
}

/// A run that was stopped by its limit, with the flags that it was started with.
fn stopped(home: &Path, cli: &Cli, server: &Server, more: &[&str]) {
    let args = agent_args(server, "openai-chat", &["Hi.", "--max-turns", "1"]);
    let args: Vec<&str> = args.iter().map(String::as_str).chain(more.iter().copied()).collect();
    run_as(home, cli, &args).exits(20);
}

fn asking() -> Server {
    playing([Turn::call("shell", &json!({"command": "touch ran"})), Turn::text("done")])
}

#[test]
fn third_party_journals_need_consent() {
    let (alice, mallory) = (tempfile::TempDir::new().unwrap(), tempfile::TempDir::new().unwrap());
    for (more, key, value) in [
        (&["--verify", "touch mark"][..], "verify", "touch mark"),
        (&["--tool", "shell", "--verify", "touch mark"], "tools", "shell"),
        (&["--price", "in=0,out=0", "--tool", "shell"], "price", "other settings"),
        (&["--retry-for", "99s", "--tool", "shell"], "limits.retry_for", "99"),
        (&["--allow-http", "--tool", "shell"], "allow_http", "true"),
        (&["--tool", "shell", "--dir", "/"], "dir", "/"),
        (&["--tool", "shell", "--proxy", "http://192.0.2.1:9"], "http.proxy", "192.0.2.1:9"),
        (&["--tool", "shell", "--user-agent", "me/1"], "http.user_agent", "me/1"),
    ] {
        let (cli, server) = (Cli::new(), asking());
        stopped(mallory.path(), &cli, &server, &[&["--journal", "j.db"], more].concat());
        let _ = fs::remove_file(cli.path("ran"));
        let asked = server.requests().len();
        let resume = ["run", "--resume", "last", "--max-turns", "9", "--journal", "j.db"];
        let done = run_as(alice.path(), &cli, &resume).exits(2);
        done.notes(&[&format!("`{key}`"), value, "--trust-journal", "not your own journal"]);
        assert_eq!(server.requests().len(), asked, "{key}");
        assert!(!cli.path("mark").exists() && !cli.path("ran").exists(), "{key}");
        // Also if the variable names it.
        let mut command = cli.command(["run", "--resume", "last"]);
        command.env("HOME", alice.path()).env("ENDSTOP_JOURNAL", "j.db");
        Started::new(command, "").finish().exits(2).notes(&["--trust-journal"]);
        assert_eq!(server.requests().len(), asked, "{key}");
        // The user who made it resumes it without a question.
        run_as(mallory.path(), &cli, &resume).exits(0);
    }
}

#[test]
fn flags_or_trust_allow_resume() {
    let (alice, mallory) = (tempfile::TempDir::new().unwrap(), tempfile::TempDir::new().unwrap());
    let (cli, server) = (Cli::new(), asking());
    let more = ["--journal", "j.db", "--tool", "shell", "--verify", "touch mark"];
    stopped(mallory.path(), &cli, &server, &more);
    let resume = ["run", "--resume", "last", "--max-turns", "9", "--journal", "j.db"];
    let some = [&resume[..], &["--verify", "true", "--tool", "shell"]].concat();
    run_as(alice.path(), &cli, &some).exits(2).notes(&["`base_url`"]);
    assert!(!cli.path("mark").exists());
    let trusting = [&resume[..], &["--trust-journal"]].concat();
    run_as(alice.path(), &cli, &trusting).exits(0);
    assert!(cli.path("mark").exists());
}

#[test]
fn own_journals_need_no_consent() {
    let home = tempfile::TempDir::new().unwrap();
    let (cli, server) = (Cli::new(), asking());
    stopped(home.path(), &cli, &server, &["--tool", "shell", "--verify", "touch mark"]);
    let resume = ["run", "--resume", "last", "--max-turns", "9"];
    // A default journal that others can write is not the user's own, unless the run carries the
    // user's seal.
    let (folder, key) = (home.path().join("state/endstop"), "state/endstop/seal.key");
    let kept = fs::read(home.path().join(key)).unwrap();
    fs::remove_file(home.path().join(key)).unwrap();
    for (path, mode) in [(folder.join("journal.db"), 0o622), (folder.clone(), 0o777)] {
        let was = fs::metadata(&path).unwrap().permissions();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        run_as(home.path(), &cli, &resume).exits(2).notes(&["chmod go-w", "`verify`"]);
        fs::set_permissions(&path, was).unwrap();
    }
    fs::write(home.path().join(key), kept).unwrap();
    // A run keeps the settings that it was started with, whatever file is in the folder.
    cli.write("endstop.toml", "verify = \"touch evil\"\n[mcp.x]\ncommand = \"touch evil\"\n");
    run_as(home.path(), &cli, &resume).exits(0);
    assert!(cli.path("mark").exists() && !cli.path("evil").exists());
}

/// Another user's journal in the user's own place is a third party's journal. Only root can make one.
#[test]
fn journal_of_other_owner_needs_consent() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let home = tempfile::TempDir::new().unwrap();
    let (cli, server) = (Cli::new(), asking());
    stopped(home.path(), &cli, &server, &["--tool", "shell", "--verify", "touch mark"]);
    let folder = home.path().join("state/endstop");
    fs::remove_file(folder.join("seal.key")).unwrap();
    let resume = ["run", "--resume", "last", "--max-turns", "9"];
    for path in [folder.join("journal.db"), folder.clone()] {
        std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
        run_as(home.path(), &cli, &resume).exits(2).notes(&["belongs to user 65534", "`verify`"]);
        assert!(!cli.path("mark").exists());
        std::os::unix::fs::chown(&path, Some(0), None).unwrap();
    }
}

#[test]
fn moved_seals_do_not_count() {
    let (home, other) = (tempfile::TempDir::new().unwrap(), Cli::new());
    let (cli, server) = (Cli::new(), asking());
    let more = ["--journal", "j.db", "--verify", "touch mark"];
    stopped(home.path(), &cli, &server, &more);
    for name in ["j.db", "j.db-wal", "j.db-shm"] {
        let _ = fs::copy(cli.path(name), other.path(name));
    }
    let resume = ["run", "--resume", "last", "--max-turns", "9", "--journal", "j.db"];
    run_as(home.path(), &other, &resume).exits(2).notes(&["`verify`", "your seal"]);
}
