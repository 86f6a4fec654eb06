//! Files that decide about a run must be the user's own choice: a settings file, a token file, a FIFO for
//! messages, the folder of the control socket. Other users must not be able to write or replace them.

use crate::cli::{Cli, Done, Started, playing};
use endstop::testkit::Turn;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;

/// Another user, who owns nothing here.
const OTHER: u32 = 4711;

fn mode(path: impl AsRef<Path>, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A folder for the file, its state, and the words of the error; an empty error means a success.
type Case = (&'static str, fn(&Path), &'static str);

/// Ways in which other users may have chosen `safe/file`.
const CASES: [Case; 10] = [
    ("the user's own", |_| {}, ""),
    ("readable by others", |safe| mode(safe.join("file"), 0o644), ""),
    (
        "writable by all",
        |safe| mode(safe.join("file"), 0o666),
        "other users can change it (mode 0666)",
    ),
    ("writable by the group", |safe| mode(safe.join("file"), 0o660), "chmod go-w"),
    (
        "of another user",
        |safe| chown(safe.join("file"), Some(OTHER), None).unwrap(),
        "belongs to user 4711",
    ),
    ("in a folder for all", |safe| mode(safe, 0o777), "the folder "),
    ("in a folder of the group", |safe| mode(safe, 0o770), "the folder "),
    ("in a folder of another user", |safe| chown(safe, Some(OTHER), None).unwrap(), "the folder "),
    ("below a folder for all", |safe| mode(safe.parent().unwrap(), 0o777), "the folder "),
    (
        "through a link in a folder for all",
        |safe| {
            let open = safe.parent().unwrap().join("open");
            fs::create_dir(&open).unwrap();
            fs::rename(safe.join("file"), safe.join("real")).unwrap();
            symlink("../open/link", safe.join("file")).unwrap();
            symlink("../safe/real", open.join("link")).unwrap();
            mode(open, 0o777);
        },
        "the folder ",
    ),
];

/// Checks a command that reads `safe/file`, which `make` creates, in each of the cases. `good` is the
/// status with a file of the user.
#[expect(clippy::print_stderr, reason = "the notice of a case that is skipped")]
fn check(args: &[&str], make: impl Fn(&Path), more: &[(&str, &str)], good: impl Fn(Done, &str)) {
    for (what, change, expected) in CASES {
        if !is_root() && what.contains("another user") {
            eprintln!("skipped: only root can create a file of another user: {what}");
            continue;
        }
        let cli = Cli::new();
        let top = cli.path("top");
        let safe = top.join("safe");
        fs::create_dir_all(&safe).unwrap();
        make(&safe.join("file"));
        mode(safe.join("file"), 0o600);
        change(&safe);
        let mut command = cli.command(args);
        command.envs(more.iter().copied()).env("XDG_STATE_HOME", cli.path("state"));
        let done = Started::new(command, "").finish();
        if expected.is_empty() {
            good(done, what);
        } else {
            assert_eq!(done.code(), 2, "{what}: {done:#?}");
            assert!(done.stderr.contains(expected), "{what}: {}", done.stderr);
        }
    }
}

#[test]
fn settings_file_of_run_must_be_own() {
    let server = playing([Turn::text("Done.")]);
    let url = server.base_url();
    let text = "model = \"m\"\napi = \"openai-chat\"\n";
    let args = ["run", "Go.", "--base-url", &url, "--config", "top/safe/file", "--journal", "off"];
    check(&args, |file| fs::write(file, text).unwrap(), &[], |done, _| drop(done.exits(0)));
}

#[test]
fn settings_file_of_guard_must_be_own() {
    let text = "[limits]\nmax_turns = 9\n";
    let args = ["guard", "--config", "top/safe/file", "--journal", "off", "--", "true"];
    check(
        &args,
        |file| fs::write(file, text).unwrap(),
        &[],
        |done, what| {
            assert_ne!(done.code(), 2, "{what}: {done:#?}");
        },
    );
}

/// The proxy would start and serve, so the address is one that cannot be bound.
#[test]
fn settings_file_of_standing_proxy_must_be_own() {
    let text = "[tokens]\nci = \"a-literal-token-0123456789\"\n";
    let args = ["guard", "--listen", "nowhere", "--config", "top/safe/file", "--journal", "off"];
    check(
        &args,
        |file| fs::write(file, text).unwrap(),
        &[],
        |done, what| {
            assert!(done.stderr.contains("--listen nowhere"), "{what}: {}", done.stderr);
            let warned =
                done.stderr.contains("it has a token, and other users can read it (mode 0644)");
            assert_eq!(warned, what == "readable by others", "{what}: {}", done.stderr);
            assert!(!done.stderr.contains("a-literal-token"), "{}", done.stderr);
        },
    );
    // A token in a variable is not in the file.
    let text = "[tokens]\nci = \"$TOKEN\"\n";
    let token = [("TOKEN", "a-token-of-a-variable-0123")];
    check(
        &args,
        |file| fs::write(file, text).unwrap(),
        &token,
        |done, what| {
            assert!(!done.stderr.contains("it has a token"), "{what}: {}", done.stderr);
        },
    );
}

#[test]
fn token_file_must_be_own() {
    let text = "[tokens.ci]\ntoken = \"a-literal-token-0123456789\"\n";
    let args = ["serve", "--listen", "nowhere", "--token-file", "top/safe/file"];
    check(
        &args,
        |file| fs::write(file, text).unwrap(),
        &[],
        |done, what| {
            assert!(!done.stderr.contains("chmod go-w"), "{what}: {}", done.stderr);
            let warned = done.stderr.contains("other users can read it (mode 0644)");
            assert_eq!(warned, what == "readable by others", "{what}: {}", done.stderr);
        },
    );
}

#[test]
fn fifo_of_messages_must_be_own() {
    let server = playing([Turn::text("Done.")]);
    let url = server.base_url();
    let args = ["run", "Go.", "--model", "m", "--api", "openai-chat", "--base-url", &url];
    let args = [&args[..], &["--steer", "top/safe/file", "--journal", "off"]].concat();
    let make = |file: &Path| assert!(Command::new("mkfifo").arg(file).status().unwrap().success());
    check(&args, make, &[], |done, _| drop(done.exits(0)));
}

/// Standard input, an empty file and a pipe of the shell are the user's choice of this moment.
#[test]
fn pipes_and_standard_input_are_not_checked() {
    let cli = Cli::new();
    let server = playing([Turn::text("Done.")]);
    let url = server.base_url();
    let run = ["run", "Go.", "--model", "m", "--api", "openai-chat", "--base-url", &url];
    let with = |config: &str, input: &str| {
        cli.feed([&run[..], &["--config", config, "--journal", "off"]].concat(), input).exits(0)
    };
    with("-", "[limits]\nmax_turns = 3\n");
    with("/dev/null", "");
}

#[test]
fn control_socket_is_not_below_folder_of_another_user() {
    if !is_root() {
        eprintln!("not root: the folder of another user cannot be made");
        return;
    }
    let server = playing([Turn::text("Done.")]);
    let url = server.base_url();
    let run = ["run", "Go.", "--model", "m", "--api", "openai-chat", "--base-url", &url];
    for (owner, open, refused) in
        [(0, 0o755, false), (OTHER, 0o755, true), (0, 0o777, true), (0, 0o1777, false)]
    {
        let cli = Cli::new();
        fs::create_dir(cli.path("up")).unwrap();
        fs::create_dir(cli.path("up/runtime")).unwrap();
        chown(cli.path("up"), Some(owner), None).unwrap();
        mode(cli.path("up"), open);
        let with = |args: &[&str]| {
            let mut command = cli.command(args);
            command.env("XDG_RUNTIME_DIR", cli.path("up/runtime"));
            Started::new(command, "").finish()
        };
        let done = with(&[&run[..], &["--journal", "off"]].concat()).exits(0);
        let told = done.stderr.contains("`endstop runs --live` does not find this run");
        assert_eq!(told, refused, "{owner} {open:o}: {}", done.stderr);
        let live = with(&["runs", "--live"]);
        assert_eq!(live.code() == 2, refused, "{owner} {open:o}: {live:#?}");
        assert_eq!(live.stderr.contains("the folder "), refused, "{}", live.stderr);
    }
}
