//! The script of the GitHub action, with a simulated runner: its command files, its variables, and a command
//! that writes where it must not.

use crate::cli::{Cli, playing};
use endstop::testkit::Turn;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The command files of a step: the variable of each, and its name without the step's id.
const FILES: [(&str, &str); 5] = [
    ("GITHUB_ENV", "set_env"),
    ("GITHUB_PATH", "add_path"),
    ("GITHUB_OUTPUT", "set_output"),
    ("GITHUB_STATE", "save_state"),
    ("GITHUB_STEP_SUMMARY", "step_summary"),
];

/// A step on a runner.
struct Step {
    cli: Cli,
    inputs: Vec<(&'static str, String)>,
}

/// The end of a step.
struct Ended {
    status: i32,
    log: String,
    folder: PathBuf,
    /// Deleted when it is dropped.
    _cli: Cli,
}

impl Step {
    /// A step whose command runs this program under guard. `$FILES` is the folder of the command files.
    fn running(program: &str) -> Step {
        let cli = Cli::new();
        let folder = cli.path("temp/_runner_file_commands");
        fs::create_dir_all(&folder).unwrap();
        for (_, name) in FILES {
            fs::write(folder.join(format!("{name}_1a2b")), "").unwrap();
        }
        // Of the step around this one.
        fs::write(folder.join("set_env_outer"), "KEPT=1\n").unwrap();
        let program = program.replace("$FILES", "\"$RUNNER_TEMP\"/_runner_file_commands");
        let inputs = vec![
            ("COMMAND", "guard".to_owned()),
            ("ARGS", format!("--\nsh\n-c\n{program}")),
            ("BINARY", env!("CARGO_BIN_EXE_endstop").to_owned()),
            ("JOURNAL", "endstop.db".to_owned()),
            ("FAIL_ON", "capacity".to_owned()),
            ("PAGE", "endstop.html".to_owned()),
        ];
        Step { cli, inputs }
    }

    fn with(mut self, input: &'static str, value: &str) -> Step {
        self.inputs.retain(|(name, _)| *name != input);
        self.inputs.push((input, value.to_owned()));
        self
    }

    fn run(self) -> Ended {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/action");
        let folder = self.cli.path("temp/_runner_file_commands");
        let mut command = Command::new("bash");
        command.arg(script).current_dir(self.cli.dir.path()).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap());
        command.env("HOME", self.cli.dir.path()).env("RUNNER_TEMP", self.cli.path("temp"));
        for (variable, name) in FILES {
            command.env(variable, folder.join(format!("{name}_1a2b")));
        }
        for (name, value) in &self.inputs {
            command.env(format!("ENDSTOP_ACTION_{name}"), value);
        }
        let done = command.output().unwrap();
        let log = [done.stdout, done.stderr].concat();
        let log = String::from_utf8_lossy(&log).into_owned();
        Ended { status: done.status.code().unwrap(), log, folder, _cli: self.cli }
    }
}

impl Ended {
    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.folder.join(name)).unwrap_or_default()
    }

    /// The lines that the runner takes as outputs.
    fn outputs(&self) -> Vec<String> {
        self.read("set_output_1a2b").lines().map(str::to_owned).collect()
    }

    /// Asserts that later steps get nothing of the command.
    #[track_caller]
    fn leaves_nothing(&self) {
        for name in ["set_env_1a2b", "add_path_1a2b", "save_state_1a2b"] {
            assert_eq!(self.read(name), "", "{name}: {}", self.log);
        }
        assert_eq!(self.read("set_env_outer"), "KEPT=1\n", "{}", self.log);
        let summary = self.read("step_summary_1a2b");
        assert!(summary.starts_with("### endstop guard: "), "{summary}");
        let outputs = self.outputs();
        assert!(outputs.iter().all(|line| !line.contains("scratch")), "{outputs:?}");
        assert_eq!(outputs.len(), 3, "{outputs:?}");
        let names = fs::read_dir(&self.folder).unwrap().flatten();
        let mut names: Vec<String> =
            names.map(|entry| entry.file_name().into_string().unwrap()).collect();
        names.retain(|name| !name.ends_with("_1a2b"));
        assert_eq!(names, ["set_env_outer"]);
    }
}

#[test]
fn harmless_command_passes() {
    let done = Step::running("echo hello; echo more >&2").run();
    assert_eq!(done.status, 0, "{}", done.log);
    assert_eq!(done.outputs()[0], "page=endstop.html");
    assert_eq!(done.outputs()[1], "status=0");
    done.leaves_nothing();
    assert!(!done.log.contains("::error"), "{}", done.log);
}

/// The level decides, and its table is the summary.
#[test]
fn conform_writes_its_table_and_page() {
    let program = env!("CARGO_BIN_EXE_endstop");
    for (script, status) in [(program.to_owned(), 0), ("sh\n-c\nexit 0".to_owned(), 1)] {
        let args = format!("--only\nT-01\n--\n{script}");
        let step = Step::running("").with("COMMAND", "conform").with("ARGS", &args);
        let done = step.run();
        assert_eq!(done.status, status, "{}", done.log);
        assert_eq!(
            done.outputs()[..2],
            ["page=endstop.html".to_owned(), format!("status={status}")]
        );
        let summary = done.read("step_summary_1a2b");
        assert!(summary.starts_with("### How the runs of "), "{summary}");
    }
}

/// The category decides about a program that reports a success, and its own status about one that does not.
#[test]
fn guarded_program_fails_the_step_by_category() {
    const ASKS: &str = "python3 -c 'import json, os, urllib.request as web; \
        tool = {\"type\": \"function\", \"function\": {\"name\": \"work\", \"parameters\": {}}}; \
        asked = {\"model\": \"gpt-4o\", \"tools\": [tool], \"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]}; \
        url = os.environ[\"OPENAI_BASE_URL\"] + \"/chat/completions\"; \
        head = {\"content-type\": \"application/json\", \"authorization\": \"Bearer x\"}; \
        web.urlopen(web.Request(url, json.dumps(asked).encode(), head)).read()'";
    let whole = || Turn::text("the word");
    let cut = || Turn::text("the wo").finish("length");
    for (turn, after, fail_on, status, category) in [
        (whole(), "", "capacity", 0, "success"),
        (cut(), "", "retryable,capacity", 1, "capacity"),
        (cut(), "", "fatal", 0, "capacity"),
        (cut(), "; exit 3", "fatal", 3, "capacity"),
        (whole(), "; exit 3", "", 3, "retryable"),
    ] {
        let server = playing([turn]);
        let address = format!("OPENAI_BASE_URL={}", server.base_url());
        let step = Step::running("true").with("FAIL_ON", fail_on);
        let args = format!("--\nenv\n{address}\nsh\n-c\n{ASKS}{after}");
        let done = step.with("ARGS", &args).run();
        assert_eq!(done.status, status, "{fail_on} {after}: {}", done.log);
        let outputs = done.outputs();
        assert!(outputs.contains(&format!("category={category}")), "{outputs:?}: {}", done.log);
    }
}

#[test]
fn written_command_files_fail_the_step() {
    for (program, told) in [
        ("echo LD_PRELOAD=scratch >> $FILES/set_env_1a2b", "(set_env)"),
        ("echo /scratch >> $FILES/add_path_1a2b", "(add_path)"),
        ("echo category=scratch >> $FILES/set_output_1a2b", "(set_output)"),
        ("echo scratch=1 >> $FILES/save_state_1a2b", "(save_state)"),
        ("echo '![x](scratch)' >> $FILES/step_summary_1a2b", "(step_summary)"),
        ("echo A=scratch >> $FILES/set_env_outer", "(set_env)"),
        ("echo A=scratch > $FILES/set_env_outer; rm $FILES/set_env_1a2b", "(set_env)"),
        ("for file in $FILES/*; do echo scratch=1 >> \"$file\"; done", "set_env"),
        ("echo scratch=1 > $FILES/set_env_new", "(new-files)"),
        ("rm $FILES/set_env_1a2b; ln -s /etc/passwd $FILES/set_env_1a2b", "(set_env)"),
        ("rm $FILES/set_env_1a2b; mkdir $FILES/set_env_1a2b", "(set_env)"),
        ("ln -s /etc/passwd $FILES/\"$(printf 'a\\n::set-env::b')\"", "(new-files)"),
    ] {
        let done = Step::running(program).run();
        assert_eq!(done.status, 1, "{program}: {}", done.log);
        let message = "::error title=Endstop::the command wrote to files through which a step changes later steps";
        assert!(done.log.contains(message) && done.log.contains(told), "{program}: {}", done.log);
        done.leaves_nothing();
    }
}

/// The variables that name the files are not there, so that a program which writes to them as a step does
/// fails or writes elsewhere.
#[test]
fn command_has_no_variables_of_the_files() {
    let done = Step::running("env | grep -c '^GITHUB_' > seen.txt; true").run();
    assert_eq!(done.status, 0, "{}", done.log);
    let seen = fs::read_to_string(done.folder.join("../../seen.txt")).unwrap();
    assert_eq!(seen.trim(), "0");
}

#[test]
fn line_break_in_path_is_refused() {
    for (input, value) in [
        ("PAGE", "a.html\nstatus=0\ncategory=success"),
        ("PAGE", "a.html\rstatus=0"),
        ("JOURNAL", "j.db\nx=1"),
    ] {
        let done = Step::running("true").with(input, value).run();
        assert_eq!(done.status, 2, "{}", done.log);
        assert!(done.log.contains("must not have line breaks"), "{}", done.log);
        assert_eq!(done.outputs(), Vec::<String>::new());
    }
    // Other characters are a part of the value.
    let done = Step::running("true").with("PAGE", "a b=c<<d.html").run();
    assert_eq!(done.outputs()[0], "page=a b=c<<d.html");
}

/// A program that the command has put in the place of the binary runs without the variables, too.
#[test]
fn replaced_binary_gets_no_variables() {
    let step = Step::running("true");
    let own = step.cli.path("own");
    symlink(env!("CARGO_BIN_EXE_endstop"), &own).unwrap();
    let program = "rm own; printf '#!/bin/sh\\necho x=scratch >> \"$GITHUB_OUTPUT\"\\nexit 0\\n' > own; chmod +x own";
    let step = step.with("ARGS", &format!("--\nsh\n-c\n{program}"));
    let done = step.with("BINARY", own.to_str().unwrap()).run();
    assert!(done.outputs().iter().all(|line| !line.contains("scratch")), "{:?}", done.outputs());
}
