//! The folders of a run: its home, its working folder, and a private one with its output and the files of started bodies.

use super::Launch;
use crate::case::{Case, Documented, PRICES};
use crate::evidence::Started;
use crate::profile::Serves;
use crate::vocabulary::Capability;
use endstop_guard::clients::{DiskFiles, Request, wire};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The variable that marks the processes of a program.
pub(super) const MARK: &str = "ENDSTOP_CONFORM";

/// The variable that marks the processes of a tool; the commands of the cases set it to the folder of the started bodies.
pub(super) const TOOL: &str = "ENDSTOP_CONFORM_TOOL";

/// The key that a program gets.
const KEY: &str = "sk-ant-conform-0000-not-a-key";

/// The most bytes of an output that are evidence. The end counts, because it has the verdict.
const MOST: u64 = 1 << 20;

/// The cap on turns of a guarded program, and in a file of the home folder, in cases without one.
const GUARDED_TURNS: u32 = 50;

/// The budget and the time in a file of the home folder, in cases without them.
const LARGE_USD: f64 = 1000.0;
const LARGE_SECONDS: u32 = 3600;

/// Variables that a program gets from this process. All others are removed: keys, logins and settings of agents.
const PASSED: [&str; 18] = [
    "PATH",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "USER",
    "LOGNAME",
    "SHELL",
    "VIRTUAL_ENV",
    "PYTHONPATH",
    "PYTHONHOME",
    "NODE_PATH",
    "LD_LIBRARY_PATH",
    "DYLD_LIBRARY_PATH",
    "JAVA_HOME",
    "GOROOT",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
];

/// The variable by which a keeper's host finds the processes of a command.
const COMMAND: &str = "ENDSTOP_COMMAND";

/// The value of a variable that the suite sets for each program.
enum Own {
    Home,
    Tmp,
    Elsewhere,
    Task,
    Text(&'static str),
}

/// The variables that the suite sets for each program.
const OWN: [(&str, Own); 15] = [
    ("HOME", Own::Home),
    ("TMPDIR", Own::Tmp),
    ("TERM", Own::Text("dumb")),
    ("PYTHONDONTWRITEBYTECODE", Own::Text("1")),
    ("HTTP_PROXY", Own::Elsewhere),
    ("HTTPS_PROXY", Own::Elsewhere),
    ("ALL_PROXY", Own::Elsewhere),
    ("http_proxy", Own::Elsewhere),
    ("https_proxy", Own::Elsewhere),
    ("all_proxy", Own::Elsewhere),
    ("OPENAI_API_KEY", Own::Text(KEY)),
    ("ANTHROPIC_API_KEY", Own::Text(KEY)),
    ("GEMINI_API_KEY", Own::Text(KEY)),
    ("OPENAI_MODEL", Own::Text("gpt-4o")),
    ("TASK", Own::Task),
];

/// A structured answer, for programs that can be asked for one.
const SCHEMA: &str = r#"{"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"], "additionalProperties": false}"#;

/// The folders of one run, which are removed with the value.
pub(super) struct Place {
    root: tempfile::TempDir,
    home: PathBuf,
    work: PathBuf,
    mark: String,
    /// A port that was free, for a program that serves a protocol.
    port: u16,
    /// Time of the start, on the clock of the files.
    start: SystemTime,
}

/// A prepared start.
pub(super) struct Start {
    words: Vec<OsString>,
    script: String,
    variables: BTreeMap<String, String>,
    task: String,
}

impl Start {
    /// Returns the task.
    pub(super) fn task(&self) -> &str {
        &self.task
    }

    /// Returns the script that a shell runs.
    pub(super) fn script(&self) -> &str {
        &self.script
    }

    /// Returns the variables of the program, which also the shell gets: a value on its command line could be read by each user.
    pub(super) fn variables(&self) -> &BTreeMap<String, String> {
        &self.variables
    }

    /// Returns the command for a report.
    pub(super) fn shown(&self) -> Vec<String> {
        self.words.iter().map(|word| word.to_string_lossy().into_owned()).collect()
    }
}

impl Place {
    pub(super) fn new(launch: &Launch<'_>) -> io::Result<Place> {
        let root = tempfile::Builder::new().prefix("endstop-conform-").tempdir()?;
        let mut place = Place {
            home: root.path().join("home"),
            work: root.path().join("work"),
            // The random part of the folder's name.
            mark: root.path().display().to_string(),
            // Another program may take it before this one does, which then says so and makes no call.
            port: TcpListener::bind("127.0.0.1:0")?.local_addr()?.port(),
            start: fs::metadata(root.path())?.modified()?,
            root,
        };
        for folder in ["home", "work", "tmp", "private", "started"] {
            fs::create_dir(place.root.path().join(folder))?;
        }
        fs::write(place.work.join("README.md"), "# scratch\n")?;
        if launch.in_place {
            place.work = std::env::current_dir()?;
            place.home = std::env::var_os("HOME").map_or(place.home, PathBuf::from);
        } else {
            for (path, text) in &launch.profile.home {
                let file = place.home.join(path);
                if let Some(folder) = file.parent() {
                    fs::create_dir_all(folder)?;
                }
                // The text is filled in `prepare`, when the address is known.
                fs::write(file, text)?;
            }
        }
        Ok(place)
    }

    pub(super) fn work(&self) -> &Path {
        &self.work
    }

    pub(super) fn mark(&self) -> &str {
        &self.mark
    }

    /// The address at which a program serves that gets `{port}`.
    pub(super) fn address(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The folder in which started bodies write their files.
    pub(super) fn started(&self) -> PathBuf {
        self.root.path().join("started")
    }

    pub(super) fn started_text(&self) -> String {
        self.started().display().to_string()
    }

    /// `true` if a word of a command line has the port.
    fn is_in(&self, word: &OsStr) -> bool {
        word.to_string_lossy().contains(&self.port.to_string())
    }

    fn private(&self, name: &str) -> PathBuf {
        self.root.path().join("private").join(name)
    }

    /// Prepares a start: the words, the variables, the files. `again` is true for one that continues a conversation.
    pub(super) fn prepare(
        &self,
        launch: &Launch<'_>,
        case: &Case,
        base: &str,
        elsewhere: &str,
        again: bool,
    ) -> io::Result<Start> {
        let profile = launch.profile;
        let veto = self.private("veto.sh");
        let schema = self.private("schema.json");
        fs::write(&veto, "echo 'the work is not finished' >&2\nexit 2\n")?;
        fs::write(&schema, SCHEMA)?;
        // The program itself is not informed which case it is in.
        let task = if again {
            "Continue, and then report.".to_owned()
        } else {
            format!("Run the steps with your tools and then report. ({})", launch.seed)
        };
        let number = |number: Option<u32>| number.map(|n| n.to_string()).unwrap_or_default();
        let usd = case.limits.budget_usd.map(|usd| usd.to_string()).unwrap_or_default();
        let private = self.root.path().join("private").display().to_string();
        let fill = |text: &str, n: Option<u32>| {
            text.replace("{task}", &task)
                .replace("{base}", base)
                .replace("{key}", KEY)
                .replace("{private}", &private)
                .replace("{port}", &self.port.to_string())
                .replace("{n}", &number(n))
                .replace("{usd}", &usd)
                .replace("{veto}", &format!("sh {}", veto.display()))
                .replace("{schema}", &schema.display().to_string())
                .replace("{prices}", &PRICES.map(|price| price.to_string()).join(","))
        };
        let options = &profile.options;
        let mut words: Vec<OsString> = Vec::new();
        let mut has_task = false;
        for word in launch.command {
            has_task |= word.to_string_lossy().contains("{task}");
            words.push(match word.to_str() {
                Some(word) => fill(word, None).into(),
                None => word.clone(),
            });
        }
        let add = |words: &mut Vec<OsString>, arguments: &[String], n: Option<u32>| {
            words.extend(arguments.iter().map(|word| OsString::from(fill(word, n))));
        };
        let limits = &case.limits;
        let turns = limits.turns.or(launch.guard.is_some().then_some(GUARDED_TURNS));
        let limits = [
            (&options.turns, turns.map(Some)),
            (&options.time, limits.seconds.map(Some)),
            (&options.budget, limits.budget_usd.map(|_| None)),
        ];
        let mut front: Vec<OsString> = launch.guard.iter().cloned().collect();
        if launch.guard.is_some() {
            add(&mut front, &profile.front, None);
            for (arguments, n) in limits {
                if let Some(n) = n {
                    add(&mut front, arguments, n);
                }
            }
            if case.documented == Some(Documented::Response) {
                add(&mut front, &profile.front_short, None);
            }
            front.push("--".into());
        }
        if again && options.again_alone {
            add(&mut words, &options.again, None);
        } else {
            if !has_task {
                add(&mut words, &profile.args, None);
            }
            let needs = |capability| case.needs.contains(&capability).then_some(None);
            let limits = limits.into_iter().filter(|_| launch.guard.is_none());
            for (arguments, n) in limits.chain([
                (&options.stop_hook, needs(Capability::StopHook)),
                (&options.structured, needs(Capability::Structured)),
                (&options.wrap_up, needs(Capability::WrapUp)),
                (&options.short, case.documented.map(|_| None)),
                (if again { &options.again } else { &options.first }, case.resume.then_some(None)),
            ]) {
                if let Some(n) = n {
                    add(&mut words, arguments, n);
                }
            }
        }
        if profile.serves == Some(Serves::A2a) && !words.iter().any(|word| self.is_in(word)) {
            let problem = "the program needs the port of the suite: give it as `{port}`, for example `-- my-agent --port {port}`";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
        }
        if !launch.in_place {
            let limits = &case.limits;
            let turns = limits.turns.unwrap_or(GUARDED_TURNS).to_string();
            let usd = limits.budget_usd.unwrap_or(LARGE_USD).to_string();
            let seconds = limits.seconds.unwrap_or(LARGE_SECONDS).to_string();
            for (path, text) in &profile.home {
                let text = text
                    .replace("{n}", &turns)
                    .replace("{usd}", &usd)
                    .replace("{seconds}", &seconds);
                fs::write(self.home.join(path), fill(&text, None))?;
            }
        }

        let mut variables = passed(launch.pass);
        let mut set = |name: &str, value: &str| variables.insert(name.to_owned(), value.to_owned());
        let (home, tmp) = (self.home.display().to_string(), self.root.path().join("tmp"));
        let tmp = tmp.display().to_string();
        for (name, value) in OWN {
            set(
                name,
                match value {
                    Own::Home => &home,
                    Own::Tmp => &tmp,
                    Own::Elsewhere => elsewhere,
                    Own::Task => &task,
                    Own::Text(text) => text,
                },
            );
        }
        for (name, value) in &profile.env {
            set(name, &fill(value, None));
        }
        let private = self.root.path().join("private");
        let wiring = wire(&Request {
            command: &words,
            environment: &variables,
            folder: &self.work,
            proxy: base,
            private: &private,
            is_strict: false,
            files: &DiskFiles,
        });
        for (name, value) in &wiring.env {
            variables.insert(name.clone(), value.clone());
        }
        for mirror in &wiring.mirrors {
            link(&private.join(&mirror.path), &mirror.of, mirror.except)?;
        }
        for file in &wiring.files {
            let path = private.join(&file.path);
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder)?;
            }
            fs::write(path, &file.text)?;
        }
        // Guard takes the provider from the wiring, as it would from the settings of a user.
        front.extend(wiring.command);
        let script = self.script(&front, &variables, profile.serves == Some(Serves::Acp));
        for name in ["pid", "status", "out", "err", "in"] {
            // Of an earlier start.
            match fs::remove_file(self.private(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(Start { words: front, script, variables, task })
    }

    fn script(
        &self,
        words: &[OsString],
        variables: &BTreeMap<String, String>,
        has_input: bool,
    ) -> String {
        let file = |name: &str| quoted(self.private(name).as_os_str());
        let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
        // The inner shell becomes the program, so that its number is that of the program. The outer one stays, and has
        // handlers, which a program does not inherit, so that a signal to the group does not end it. The mark of its processes
        // stays, so that what is left of them is found without a keeper. With `setsid`, which is on Linux, the outer shell is
        // not in the group of the program either, which may send SIGKILL to it.
        format!(
            "trap : INT TERM HUP; {pipe}\n\
             apart=; command -v setsid >/dev/null 2>&1 && apart=setsid\n\
             $apart env {removed} {MARK}={mark} sh -c 'echo $$ >\"$0\"; exec \"$@\"' {pid} {words} >{out} 2>{err} <{input}\n\
             echo $? >{status}.new; mv {status}.new {status}\n\
             while :; do sleep 1000; done",
            pipe = if has_input { format!("mkfifo {}", file("in")) } else { ":".to_owned() },
            input = if has_input { file("in") } else { "/dev/null".to_owned() },
            pid = file("pid"),
            removed = removed(variables),
            mark = quoted(OsStr::new(&self.mark)),
            words = words.join(" "),
            out = file("out"),
            err = file("err"),
            status = file("status"),
        )
    }

    /// Returns the exit status of the program, once it has ended.
    pub(super) fn status(&self) -> Option<i32> {
        read_end(&self.private("status"))?.trim().parse().ok()
    }

    /// Returns the path of the pipe that is the input of the program, once there is one.
    pub(super) fn input(&self) -> Option<PathBuf> {
        Some(self.private("in")).filter(|path| path.exists())
    }

    /// Returns the number of the program's process.
    pub(super) fn pid(&self) -> Option<i32> {
        read_end(&self.private("pid"))?.trim().parse().ok()
    }

    pub(super) fn output_size(&self) -> u64 {
        let size = |name| fs::metadata(self.private(name)).map_or(0, |data| data.len());
        size("out").max(size("err"))
    }

    /// Returns the end of standard output and of standard error.
    pub(super) fn output(&self) -> (String, String) {
        let read = |name: &str| read_end(&self.private(name)).unwrap_or_default();
        (read("out"), read("err"))
    }

    /// Returns the end of a file that a profile names.
    pub(super) fn text(&self, file: &str) -> String {
        let private = self.root.path().join("private").display().to_string();
        read_end(Path::new(&file.replace("{private}", &private))).unwrap_or_default()
    }

    /// `true` if a body has started.
    pub(super) fn has_bodies(&self) -> bool {
        fs::read_dir(self.started()).is_ok_and(|mut entries| entries.next().is_some())
    }

    /// Returns the started bodies, in order.
    pub(super) fn bodies(&self) -> Vec<Started> {
        let entries = fs::read_dir(self.started()).into_iter().flatten().flatten();
        let mut bodies: Vec<Started> = entries
            .map(|entry| {
                let made = entry.metadata().and_then(|data| data.modified()).unwrap_or(self.start);
                let at = made.duration_since(self.start).unwrap_or_default().as_secs_f64();
                body(&entry.file_name().to_string_lossy(), at)
            })
            .collect();
        bodies.sort_by(|a, b| a.at.total_cmp(&b.at));
        bodies
    }
}

/// `true` if the suite sets this variable for each program.
pub fn is_own(name: &str) -> bool {
    OWN.iter().any(|(own, _)| *own == name)
}

/// Returns the variables that a program gets from this process.
pub(super) fn passed(pass: &[String]) -> BTreeMap<String, String> {
    let names = PASSED.iter().copied().chain(pass.iter().map(String::as_str));
    names.filter_map(|name| Some((name.to_owned(), std::env::var(name).ok()?))).collect()
}

/// Returns the options of `env` that remove all other variables of this process: keys, logins and settings of agents. The command
/// line has names only, because each user can read it.
pub(super) fn removed(variables: &BTreeMap<String, String>) -> String {
    let names = std::env::vars_os().map(|(name, _)| name).filter(|name| {
        let name = name.to_string_lossy();
        name != COMMAND && !variables.contains_key(name.as_ref())
    });
    names.map(|name| format!("-u {}", quoted(&name))).collect::<Vec<_>>().join(" ")
}

/// Returns the end of a file. Something else in its place, such as a pipe without a writer, is not waited for.
fn read_end(path: &Path) -> Option<String> {
    let mut options = fs::OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
    }
    let mut file = options.open(path).ok()?;
    let about = file.metadata().ok().filter(fs::Metadata::is_file)?;
    let size = about.len();
    file.seek(SeekFrom::Start(size.saturating_sub(MOST))).ok()?;
    let mut bytes = Vec::new();
    file.take(MOST).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// A started body, from the file that it has made.
fn body(name: &str, at: f64) -> Started {
    Started { name: name.split('.').next().unwrap_or_default().to_owned(), at }
}

/// Makes a folder that stands for one of the user: with links to its entries, except one.
fn link(folder: &Path, of: &Path, except: &str) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let Ok(entries) = fs::read_dir(of) else { return Ok(()) };
    for entry in entries {
        let name = entry?.file_name();
        if name != except {
            #[cfg(unix)]
            std::os::unix::fs::symlink(of.join(&name), folder.join(&name))?;
        }
    }
    Ok(())
}

/// Quotes a word for a shell.
pub(super) fn quoted(word: &OsStr) -> String {
    format!("'{}'", word.to_string_lossy().replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn quotes_stay_in_a_word() {
        let word = "it's $HOME `id` \"x\" \\ \n*";
        let output = std::process::Command::new("sh")
            .args(["-c", &format!("printf %s {}", quoted(word.as_ref()))])
            .output()
            .unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), word);
    }
}
