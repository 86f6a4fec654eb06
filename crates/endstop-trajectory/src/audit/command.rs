//! Recognises calls that run commands, and classifies a command as a test, a build, a style check,
//! or another.
//!
//! ```text
//! assert_eq!(line(r#"{"command":["bash","-lc","cargo test"]}"#).as_deref(), Some("cargo test"));
//! assert_eq!(kind("cd app && npm run test:unit"), Kind::Test);
//! ```

use endstop_core::bounded_json;
use serde_json::Value;

/// The arguments in which tools take a command.
const FIELDS: &[&str] = &["command", "cmd", "script", "commands"];

/// The purpose of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Runs tests.
    Test,
    /// Builds, or checks types.
    Build,
    /// Checks the style.
    Lint,
    /// Anything else.
    Other,
}

/// Returns the command that a call runs; `None` if it runs none.
pub(super) fn of_call(name: &str, arguments: &str) -> Option<String> {
    // Editor tools have a `command` argument too, but it is not a shell command.
    let name = name.to_lowercase();
    if ["edit", "str_replace", "task", "skill"].iter().any(|other| name.contains(other)) {
        return None;
    }
    line(arguments)
}

/// Returns the command in a call's arguments; a list is joined to one line.
pub(super) fn line(arguments: &str) -> Option<String> {
    let arguments: Value = bounded_json::from_str(arguments).ok()?;
    let said = FIELDS.iter().find_map(|field| arguments.get(field))?;
    let line = match said {
        Value::String(line) => line.clone(),
        Value::Array(words) => {
            let words: Vec<&str> = words.iter().map(Value::as_str).collect::<Option<_>>()?;
            match words.as_slice() {
                // The shell wrapper is dropped, so that the command itself is classified.
                [_, flag, script] if matches!(*flag, "-c" | "-lc") => (*script).to_owned(),
                words => words.join(" "),
            }
        }
        _ => return None,
    };
    (!line.trim().is_empty()).then_some(line)
}

/// Classifies a command line by the most significant of its commands.
pub(super) fn kind(line: &str) -> Kind {
    let kinds: Vec<Kind> = commands(line).map(|words| kind_of(&words)).collect();
    let telling = [Kind::Test, Kind::Build, Kind::Lint];
    telling.into_iter().find(|kind| kinds.contains(kind)).unwrap_or(Kind::Other)
}

/// Returns `true` if a non-zero exit status of the line's last command is an answer, not a failure:
/// a search without matches, a comparison that finds a difference.
pub(super) fn says_no(line: &str) -> bool {
    const ASK: &[&str] = &[
        "grep", "egrep", "fgrep", "rg", "ag", "ack", "diff", "cmp", "test", "[", "[[", "which",
        "pgrep", "pidof", "command", "type", "timeout", "sleep", "kill", "pkill", "killall",
    ];
    // The exit status of a pipeline or a list is that of its last command.
    let last = commands(line).last();
    last.is_some_and(|words| match words.as_slice() {
        [program, next, ..] if *program == "git" => matches!(*next, "grep" | "diff"),
        [program, ..] => ASK.contains(&file_name(program)),
        [] => false,
    })
}

/// Splits a line into commands, each as a list of words, without wrappers that only run another
/// command.
fn commands(line: &str) -> impl Iterator<Item = Vec<&str>> {
    parts(line).into_iter().filter_map(|part| {
        let words: Vec<&str> = part.split_whitespace().collect();
        let mut rest = words.as_slice();
        loop {
            rest = match rest {
                ["timeout" | "nice", _, rest @ ..]
                | [
                    "uv" | "poetry" | "pipenv" | "hatch" | "rye" | "bundle",
                    "run" | "exec",
                    rest @ ..,
                ]
                | ["python" | "python3" | "py", "-m", rest @ ..]
                | [
                    "sudo" | "time" | "env" | "exec" | "npx" | "bunx" | "then" | "do" | "if" | "!",
                    rest @ ..,
                ] => rest,
                [word, rest @ ..] if is_assignment(word) => rest,
                _ => break,
            };
        }
        (!rest.is_empty()).then(|| rest.to_vec())
    })
}

/// Splits a line at the operators between commands. Those in quotes, in redirections such as `2>&1`
/// and in here-documents are not operators.
fn parts(line: &str) -> Vec<&str> {
    let bytes = line.as_bytes();
    let (mut parts, mut from, mut at) = (Vec::new(), 0, 0);
    let mut quote = None;
    // The words that end the here-documents which begin in the next line.
    let mut documents: Vec<&str> = Vec::new();
    while let Some(&byte) = bytes.get(at) {
        match (quote, byte) {
            (Some(open), _) if open == byte => quote = None,
            (None | Some(b'"'), b'\\') => at += 1,
            (None, b'\'' | b'"') => quote = Some(byte),
            (None, b'<') if bytes[at..].starts_with(b"<<<") => at += 2,
            (None, b'<') if bytes[at..].starts_with(b"<<") => {
                documents.extend(end_word(&line[at + 2..]));
                at += 1;
            }
            (None, b'&')
                if bytes.get(at + 1) == Some(&b'>')
                    || at > 0 && matches!(bytes[at - 1], b'>' | b'<') => {}
            (None, b'\n' | b';' | b'|' | b'&') => {
                parts.push(&line[from..at]);
                if byte == b'\n' {
                    at = documents.drain(..).fold(at, |at, word| end_of_document(line, at, word));
                }
                from = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    parts.extend(line.get(from..));
    parts
}

/// Returns the word that ends a here-document: `'EOF'` after `<<`.
fn end_word(text: &str) -> Option<&str> {
    let text = text.strip_prefix('-').unwrap_or(text).trim_start_matches(' ');
    let text = text.trim_start_matches(['\'', '"', '\\']);
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(text.len());
    // A number is a shift: `$((1<<2))`.
    (!text[..end].is_empty() && !text.starts_with(|c: char| c.is_ascii_digit()))
        .then_some(&text[..end])
}

/// Returns the end of the line that ends a here-document, or the end of the text.
fn end_of_document(text: &str, from: usize, word: &str) -> usize {
    let mut at = from;
    while let Some(rest) = text.get(at + 1..) {
        let end = rest.find('\n').unwrap_or(rest.len());
        at += 1 + end;
        if rest[..end].trim() == word {
            break;
        }
    }
    at.min(text.len())
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    })
}

fn file_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

fn kind_of(words: &[&str]) -> Kind {
    let Some((program, rest)) = words.split_first() else { return Kind::Other };
    let program = file_name(program);
    // The first word after the program that is not an option: `cargo +nightly test`.
    let verb = rest.iter().find(|word| !word.starts_with(['-', '+'])).copied().unwrap_or("");
    match program {
        "pytest" | "py.test" | "jest" | "vitest" | "mocha" | "ava" | "rspec" | "phpunit"
        | "tox" | "nox" | "ctest" | "unittest" | "nose2" | "bats" | "playwright" | "cypress"
        | "runtests.py" => Kind::Test,
        // `make test` and the like run tests, so the guard leaves them to the arms below.
        "tsc" | "mypy" | "pyright" | "make" | "cmake" | "ninja" | "javac" | "gcc" | "g++"
        | "clang" | "rustc" | "webpack" | "vite" | "msbuild" | "xcodebuild"
            if !verb_is_test(verb) =>
        {
            Kind::Build
        }
        "eslint" | "ruff" | "flake8" | "pylint" | "black" | "prettier" | "biome" | "rubocop"
        | "golangci-lint" | "rustfmt" | "clippy-driver" | "shellcheck" => Kind::Lint,
        "make" | "npm" | "pnpm" | "yarn" | "bun" | "deno" | "just" | "rake" | "ninja" | "task"
        | "turbo" | "nx" => {
            // `npm run X` and `npm X` both run a script.
            let script = if verb == "run" {
                rest.iter().filter(|word| !word.starts_with('-')).nth(1).copied().unwrap_or("")
            } else {
                verb
            };
            of_script(script)
        }
        "cargo" | "go" | "mvn" | "mvnw" | "gradle" | "gradlew" | "dotnet" | "swift" | "mix"
        | "sbt" | "bazel" | "flutter" | "dart" | "zig" | "stack" | "cabal" | "lein" => match verb {
            "nextest" => Kind::Test,
            "clippy" | "fmt" | "vet" | "format" | "analyze" => Kind::Lint,
            "check" => Kind::Build,
            other => of_script(other),
        },
        "python" | "python3" | "node" | "ruby" | "bash" | "sh" => {
            // A test file that is run directly, without a test runner.
            let file = file_name(verb);
            if file.starts_with("test") || file.contains("_test.") || file.contains(".test.") {
                Kind::Test
            } else {
                Kind::Other
            }
        }
        "manage.py" => of_script(verb),
        _ => Kind::Other,
    }
}

fn verb_is_test(verb: &str) -> bool {
    of_script(verb) == Kind::Test
}

/// Classifies by the name of a script, a target or a subcommand.
fn of_script(name: &str) -> Kind {
    let has = |parts: &[&str]| {
        name.split([':', '-', '_', '.', '/'])
            .any(|word| parts.contains(&word.to_lowercase().as_str()))
    };
    if has(&["test", "tests", "t", "spec", "e2e", "verify"]) {
        Kind::Test
    } else if has(&["build", "compile", "typecheck", "tsc", "types", "package", "assemble"]) {
        Kind::Build
    } else if has(&["lint", "format", "fmt", "style"]) {
        Kind::Lint
    } else {
        Kind::Other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_is_read_from_shell_arguments() {
        let of = |name: &str, arguments: &str| of_call(name, arguments);
        assert_eq!(of("Bash", r#"{"command":"ls","timeout":5}"#).as_deref(), Some("ls"));
        assert_eq!(
            of("shell", r#"{"command":["bash","-lc","cargo test"]}"#).as_deref(),
            Some("cargo test")
        );
        assert_eq!(of("exec_command", r#"{"cmd":"rg --files"}"#).as_deref(), Some("rg --files"));
        assert_eq!(of("str_replace_editor", r#"{"command":"view"}"#), None);
        assert_eq!(of("Read", r#"{"file_path":"a"}"#), None);
        assert_eq!(of("Bash", r#""half"#), None);
    }

    #[test]
    fn command_kind_ignores_wrappers() {
        for (line, want) in [
            ("cargo test -p core 2>&1 | tail -5", Kind::Test),
            ("cargo +nightly test", Kind::Test),
            ("cd app && npm run test:unit -- --watch=false", Kind::Test),
            ("RUST_LOG=debug timeout 60 pytest -q", Kind::Test),
            ("uv run python -m pytest tests", Kind::Test),
            ("./venv/bin/pytest", Kind::Test),
            ("go test ./...", Kind::Test),
            ("make test", Kind::Test),
            ("make", Kind::Build),
            ("npx tsc --noEmit", Kind::Build),
            ("cargo build && cargo test", Kind::Test),
            ("npm run build", Kind::Build),
            ("cargo clippy", Kind::Lint),
            ("python test_app.py", Kind::Test),
            ("python app.py", Kind::Other),
            ("ls tests", Kind::Other),
            ("git commit -m 'fix; cargo test passes'", Kind::Other),
            ("cat > run.sh <<'EOF'\ncargo test\nEOF", Kind::Other),
            ("cat > a <<'EOF'\nit's\nEOF\ncargo test", Kind::Test),
            ("", Kind::Other),
        ] {
            assert_eq!(kind(line), want, "{line}");
        }
    }

    #[test]
    fn operators_in_quotes_do_not_split() {
        for (line, want) in [
            ("a && b; c | d & e", &["a", "b", "c", "d", "e"][..]),
            ("grep -E 'x|y' f 2>&1", &["grep -E 'x|y' f 2>&1"]),
            ("rg \"a;\\\"b\" &> out", &["rg \"a;\\\"b\" &> out"]),
            ("a <&3 && b", &["a <&3", "b"]),
            ("a \\\n --long && b", &["a \\\n --long", "b"]),
            ("cat <<'EOF' > f\ndon't | x\nEOF\nmake", &["cat <<'EOF' > f", "make"]),
            ("cat <<-A <<B\na;\n\tA\nb|\nB\nmake", &["cat <<-A <<B", "make"]),
            ("cat <<EOF\nno end | x", &["cat <<EOF"]),
            ("x=$((1<<2))\nmake", &["x=$((1<<2))", "make"]),
            ("cat <<< 'a|b'\nmake", &["cat <<< 'a|b'", "make"]),
            ("echo 'open | x", &["echo 'open | x"]),
            ("echo é\\é|b", &["echo é\\é", "b"]),
            ("a\\", &["a\\"]),
        ] {
            let found: Vec<&str> =
                parts(line).into_iter().map(str::trim).filter(|part| !part.is_empty()).collect();
            assert_eq!(found, want, "{line:?}");
        }
    }

    #[test]
    fn searches_answer_with_their_status() {
        for (line, want) in [
            ("cat a | grep b", true),
            ("git diff --exit-code", true),
            ("git push", false),
            ("grep -rn \"foo|bar\" src", true),
            ("rg 'a; b' 2>&1", true),
            ("grep x f >/dev/null 2>&1", true),
            ("grep x f && cargo test", false),
            ("cargo test 2>&1 | grep failed", true),
            ("cat <<EOF | sh\ngrep x\nEOF", false),
        ] {
            assert_eq!(says_no(line), want, "{line:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn quoted_text_runs_nothing(text in "(cargo test|make|grep|[;&|<>()$ \n\\\\\"é-]|<<EOF|EOF){0,12}") {
            for line in [format!("echo '{text}'"), format!("cat <<'_END_'\n{text}\n_END_\n")] {
                proptest::prop_assert_eq!(kind(&line), Kind::Other, "{}", line);
                proptest::prop_assert!(!says_no(&line), "{}", line);
                // The command after the quotes is found, whatever they contain.
                let tested = format!("{line}\ncargo test");
                proptest::prop_assert_eq!(kind(&tested), Kind::Test, "{}", tested);
            }
        }

        #[test]
        fn parts_contain_each_word_once(line in "[ab<>&|;'\"\\\\ \né$(_]{0,60}") {
            // The parts are in order, and apart from operators and here-documents nothing is lost.
            let mut from = line.as_ptr() as usize;
            for part in parts(&line) {
                proptest::prop_assert!(part.as_ptr() as usize >= from, "{line:?}");
                from = part.as_ptr() as usize + part.len();
            }
            proptest::prop_assert!(from <= line.as_ptr() as usize + line.len());
            if !line.contains("<<") {
                let count = |text: &str| text.matches(['a', 'b', 'é', '_', '$']).count();
                let kept: usize = parts(&line).into_iter().map(count).sum();
                proptest::prop_assert_eq!(kept, count(&line), "{:?}", line);
            }
        }
    }
}
