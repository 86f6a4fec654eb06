//! The wiring of command lines.

use endstop_guard::clients::{
    Files, NoFiles, Request, Shell, Source, Unguardable, Warning, Wiring, print_env, wire,
};
use endstop_wire::WireFormat::{
    Anthropic, BedrockConverse, BedrockInvoke, CohereV1, CohereV2, Gemini, OpenAiChat,
    OpenAiResponses,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub(crate) const U: &str = "http://127.0.0.1:4000/run/r1";

/// Files by their paths.
pub(crate) struct Disk(pub(crate) Vec<(&'static str, &'static str)>);

impl Files for Disk {
    fn read(&self, path: &Path) -> Result<Option<String>, String> {
        let found = self.0.iter().find(|(known, _)| Path::new(known) == path);
        Ok(found.map(|(_, text)| (*text).to_owned()))
    }
}

/// Wires a command of words without spaces, in the folder `/src/repo` of the user `/home/u`.
pub(crate) fn wired(command: &str, variables: &[(&str, &str)], files: &dyn Files) -> Wiring {
    wired_as(command, variables, files, false)
}

fn wired_as(
    command: &str,
    variables: &[(&str, &str)],
    files: &dyn Files,
    is_strict: bool,
) -> Wiring {
    let command: Vec<_> = command.split_whitespace().map(Into::into).collect();
    let mut environment: BTreeMap<String, String> =
        [("HOME".to_owned(), "/home/u".to_owned())].into();
    environment.extend(variables.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())));
    wire(&Request {
        command: &command,
        environment: &environment,
        folder: Path::new("/src/repo"),
        proxy: U,
        private: Path::new("/private"),
        is_strict,
        files,
    })
}

/// The web search of codex is refused under a strict ceiling, so codex is not to offer it by itself.
#[test]
fn search_of_codex_is_off_under_a_strict_ceiling() {
    let off = "web_search=\"disabled\"";
    let find = |command: &str, is_strict: bool| {
        let wiring = wired_as(command, &[], &NoFiles, is_strict);
        let has_note = wiring.warnings.contains(&Warning::SearchOff { client: "codex" });
        let words = words(&wiring);
        (words.iter().any(|word| word == off), has_note)
    };
    for command in ["codex exec x", "npx @openai/codex exec x", "codex exec -- --search"] {
        assert_eq!(find(command, true), (true, true), "{command}");
        assert_eq!(find(command, false), (false, false), "{command}");
    }
    // A user who asks for it gets the refusal with its reason.
    for command in [
        "codex --search exec x",
        "codex -c web_search=live exec x",
        "codex --config=web_search=cached exec x",
        "codex -c tools.web_search=true exec x",
    ] {
        assert_eq!(find(command, true), (false, false), "{command}");
    }
    assert_eq!(find("claude -p x", true), (false, false));
}

pub(crate) fn words(wiring: &Wiring) -> Vec<String> {
    wiring.command.iter().map(|word| word.to_str().unwrap().to_owned()).collect()
}

#[test]
fn command_lines_are_recognised() {
    // The last column is the command with `@` at the place of the options of guard.
    let table: [(&str, Option<&str>, &str); 33] = [
        ("claude -p task", Some("Claude Code"), "claude @ -p task"),
        ("/usr/local/bin/claude", Some("Claude Code"), "/usr/local/bin/claude @"),
        ("claude.exe -p x", Some("Claude Code"), "claude.exe @ -p x"),
        ("npx claude -p x", Some("Claude Code"), "npx claude @ -p x"),
        (
            "npx -y @anthropic-ai/claude-code@2.1.3 -p x",
            Some("Claude Code"),
            "npx -y @anthropic-ai/claude-code@2.1.3 @ -p x",
        ),
        (
            "node /x/node_modules/@anthropic-ai/claude-code/cli.js -p",
            Some("Claude Code"),
            "node /x/node_modules/@anthropic-ai/claude-code/cli.js @ -p",
        ),
        ("env A=1 -u B claude -p x", Some("Claude Code"), "env A=1 -u B claude @ -p x"),
        ("codex exec --json task", Some("codex"), "codex @ exec --json task"),
        ("npx --yes @openai/codex exec", Some("codex"), "npx --yes @openai/codex @ exec"),
        (
            "npx --package=@openai/codex codex exec",
            Some("codex"),
            "npx --package=@openai/codex codex @ exec",
        ),
        ("bunx @openai/codex@latest", Some("codex"), "bunx @openai/codex@latest @"),
        ("node /opt/codex/bin/codex exec", Some("codex"), "node /opt/codex/bin/codex @ exec"),
        ("timeout -k 5 600 codex exec", Some("codex"), "timeout -k 5 600 codex @ exec"),
        ("nice -n 5 nohup codex", Some("codex"), "nice -n 5 nohup codex @"),
        ("gemini -p task --yolo", Some("Gemini CLI"), "gemini -p task --yolo"),
        ("opencode run task", Some("opencode"), "opencode run task"),
        ("pnpm dlx opencode-ai run task", Some("opencode"), "pnpm dlx opencode-ai run task"),
        ("qwen -p task --auth-type openai", Some("Qwen Code"), "qwen @ -p task --auth-type openai"),
        (
            "npm exec -- @qwen-code/qwen-code --auth-type openai",
            Some("Qwen Code"),
            "npm exec -- @qwen-code/qwen-code @ --auth-type openai",
        ),
        ("aider --message x", Some("aider"), "aider @ --message x"),
        ("python -m aider --message x", Some("aider"), "python -m aider @ --message x"),
        (
            "/venv/bin/python3.12 -X dev -m aider",
            Some("aider"),
            "/venv/bin/python3.12 -X dev -m aider @",
        ),
        (
            "uvx --python 3.12 aider-chat --yes",
            Some("aider"),
            "uvx --python 3.12 aider-chat @ --yes",
        ),
        ("uv run python -maider --yes", Some("aider"), "uv run python -maider @ --yes"),
        ("python3 /venv/bin/aider --yes", Some("aider"), "python3 /venv/bin/aider @ --yes"),
        ("pi -p --mode json task", Some("pi"), "pi @ -p --mode json task"),
        (
            "pi -e own.js -p --extension=more.js task",
            Some("pi"),
            "pi -e own.js -p --extension=more.js @ task",
        ),
        ("crush run task", Some("crush"), "crush run task"),
        ("cursor-agent -p task", Some("Cursor"), "cursor-agent -p task"),
        // Programs that are not known keep their arguments, also if a word names a client.
        ("python my_agent.py claude", None, "python my_agent.py claude"),
        ("python claude.py", None, "python claude.py"),
        ("sh -c codex", None, "sh -c codex"),
        ("timeout", None, "timeout"),
    ];
    for (command, client, expected) in table {
        let wiring =
            wired(command, &[("OPENAI_API_KEY", "sk-x"), ("GEMINI_API_KEY", "x")], &NoFiles);
        assert_eq!(wiring.client, client, "{command}");
        // The inserted options are one run of words.
        let (got, had): (Vec<String>, Vec<&str>) = (words(&wiring), command.split(' ').collect());
        let same = got.iter().zip(&had).take_while(|(a, b)| a == b).count();
        let mut shown: Vec<&str> = had[..same].to_vec();
        if got.len() > had.len() {
            shown.push("@");
        }
        shown.extend(&had[same..]);
        assert_eq!(shown.join(" "), expected, "{got:?}");
        assert_eq!(got[got.len() - (had.len() - same)..], had[same..], "{command}");
    }
}

#[test]
fn every_program_gets_the_variables() {
    let wiring = wired("./my-agent", &[("CLAUDECODE", "1"), ("NO_PROXY", "corp, .x")], &NoFiles);
    let v1 = format!("{U}/v1");
    let expected = [
        ("OPENAI_BASE_URL", &*v1),
        ("OPENAI_API_BASE", &*v1),
        ("ANTHROPIC_BASE_URL", U),
        ("ANTHROPIC_API_BASE", U),
        ("GOOGLE_GEMINI_BASE_URL", U),
        ("CO_API_URL", U),
        ("NO_PROXY", "corp,.x,127.0.0.1,localhost"),
        ("no_proxy", "corp,.x,127.0.0.1,localhost"),
    ];
    let got: Vec<(&str, &str)> = wiring.env.iter().map(|(n, v)| (&**n, &**v)).collect();
    assert_eq!(got, expected);
    assert_eq!(
        (wiring.cleared, wiring.files.len(), wiring.warnings.len()),
        (vec!["CLAUDECODE".into()], 0, 0)
    );
    let bases: Vec<(_, &str)> = wiring.upstreams.iter().map(|(f, b, _)| (*f, &**b)).collect();
    assert_eq!(
        bases,
        [
            (OpenAiChat, "https://api.openai.com/v1"),
            (OpenAiResponses, "https://api.openai.com/v1"),
            (Anthropic, "https://api.anthropic.com"),
            (Gemini, "https://generativelanguage.googleapis.com"),
            (CohereV2, "https://api.cohere.com"),
            (CohereV1, "https://api.cohere.com"),
        ]
    );
}

#[test]
fn base_url_of_environment_is_upstream() {
    let set = [
        ("OPENAI_BASE_URL", "https://gw.example/api/v1/"),
        ("OPENAI_API_BASE", "https://other.example"),
        ("GOOGLE_GEMINI_BASE_URL", "https://u:secret@host"),
        ("ANTHROPIC_BASE_URL", "http://127.0.0.1:4000/run/outer"),
    ];
    let wiring = wired("./my-agent", &set, &NoFiles);
    for format in [OpenAiChat, OpenAiResponses] {
        assert_eq!(wiring.upstream(format), Some("https://gw.example/api/v1"));
    }
    // Not the default: a key for the host of the user must not go to another one.
    assert_eq!(wiring.upstream(Gemini), None);
    assert_eq!(wiring.upstream(Anthropic), Some("https://api.anthropic.com"));
    let variable = |name: &str| Source::Variable(name.to_owned());
    assert_eq!(
        wiring.warnings,
        [
            Warning::Conflict {
                used: variable("OPENAI_BASE_URL"),
                ignored: variable("OPENAI_API_BASE")
            },
            Warning::UpstreamIsProxy { source: variable("ANTHROPIC_BASE_URL") },
            Warning::InvalidUpstream { source: variable("GOOGLE_GEMINI_BASE_URL") },
        ]
    );
    let all = format!(
        "{wiring:?} {}",
        wiring.warnings.iter().map(ToString::to_string).collect::<String>()
    );
    assert!(!all.contains("secret"), "{all}");
}

#[test]
fn outer_guard_is_upstream_of_inner() {
    let wiring =
        wired("claude", &[("ANTHROPIC_BASE_URL", "http://127.0.0.1:3999/run/a")], &NoFiles);
    assert_eq!(wiring.upstream(Anthropic), Some("http://127.0.0.1:3999/run/a"));
}

#[test]
fn assignment_before_program_is_upstream() {
    let wiring = wired("env X=1 ANTHROPIC_BASE_URL=https://gw.example claude -p x", &[], &NoFiles);
    assert_eq!(wiring.upstream(Anthropic), Some("https://gw.example"));
    let words = words(&wiring);
    assert_eq!(words[..4], ["env", "X=1", &*format!("ANTHROPIC_BASE_URL={U}"), "claude"]);
    for (command, word) in [("env -i claude", "env -i"), ("sudo -u me claude", "sudo")] {
        let word = word.to_owned();
        let wiring = wired(command, &[], &NoFiles);
        assert!(wiring.warnings.contains(&Warning::EnvironmentCleared { word }), "{command}");
    }
}

#[test]
fn claude_settings_are_merged() {
    let disk = Disk(vec![
        (
            "/home/u/.claude/settings.json",
            r#"{"env":{"ANTHROPIC_BASE_URL":"https://user.example"}}"#,
        ),
        ("/src/repo/mine.json", r#"{"model":"x","env":{"ANTHROPIC_AUTH_TOKEN":"secret"}}"#),
    ]);
    let wiring = wired("claude -p task", &[], &disk);
    assert_eq!(wiring.upstream(Anthropic), Some("https://user.example"));
    // A file, because other users can read arguments, and the address is a secret.
    assert_eq!(
        words(&wiring),
        ["claude", "--settings", "/private/claude-settings.json", "-p", "task"]
    );
    assert!(!wiring.has_in_arguments("127.0.0.1"));
    let settings: serde_json::Value = serde_json::from_str(&wiring.files[0].text).unwrap();
    assert_eq!(settings["env"]["ANTHROPIC_BASE_URL"], U);
    assert_eq!(settings["env"]["CLAUDE_CODE_USE_BEDROCK"], "0");
    // Another user could not read the file.
    let wiring = wired("sudo -u me claude -p task", &[], &disk);
    assert!(wiring.changes_user && wiring.has_in_arguments("127.0.0.1"), "{wiring:?}");
    // The user's own option is merged. It can contain keys.
    for command in ["claude --settings mine.json -p task", "claude --settings=mine.json -p task"] {
        let wiring = wired(command, &[], &disk);
        assert_eq!(
            words(&wiring),
            ["claude", "--settings", "/private/claude-settings.json", "-p", "task"]
        );
        let settings: serde_json::Value = serde_json::from_str(&wiring.files[0].text).unwrap();
        assert_eq!(
            (&settings["model"], &settings["env"]["ANTHROPIC_AUTH_TOKEN"]),
            (&"x".into(), &"secret".into())
        );
        assert_eq!(settings["env"]["ANTHROPIC_BASE_URL"], U);
        assert!(!format!("{wiring:?}").contains("secret"));
    }
}

#[test]
fn bedrock_needs_keys() {
    let on = ("CLAUDE_CODE_USE_BEDROCK", "1");
    let wiring = wired("claude", &[on], &NoFiles);
    assert!(wiring.warnings.contains(&Warning::Unguardable(Unguardable::BedrockWithoutKeys)));
    let keys = [
        on,
        ("AWS_ACCESS_KEY_ID", "A"),
        ("AWS_SECRET_ACCESS_KEY", "s"),
        ("AWS_REGION", "eu-west-1"),
    ];
    let wiring = wired("claude", &keys, &NoFiles);
    assert_eq!(wiring.warnings, []);
    assert_eq!(wiring.variable("ANTHROPIC_BEDROCK_BASE_URL"), Some(U));
    assert_eq!(
        wiring.upstream(BedrockInvoke),
        Some("https://bedrock-runtime.eu-west-1.amazonaws.com")
    );
    // Keys that a profile contains will do.
    let file = "[work]\naws_access_key_id=A\naws_secret_access_key=s\n[corp]\nsso_session=corp\n";
    let disk = Disk(vec![("/home/u/.aws/credentials", file)]);
    for (profile, guarded) in [("work", true), ("corp", false)] {
        let with = [on, ("AWS_PROFILE", profile), ("AWS_REGION", "eu-west-1")];
        assert_eq!(wired("claude", &with, &disk).warnings.is_empty(), guarded, "{profile}");
    }
    // A key of Bedrock is not a signature, and passes.
    let bearer = [on, ("AWS_BEARER_TOKEN_BEDROCK", "b"), ("AWS_DEFAULT_REGION", "us-west-2")];
    let wiring = wired("claude", &bearer, &NoFiles);
    assert_eq!(wiring.warnings, []);
    assert_eq!(wiring.variable("ANTHROPIC_BEDROCK_BASE_URL"), Some(U));
    for format in [BedrockInvoke, BedrockConverse] {
        let base = "https://bedrock-runtime.us-west-2.amazonaws.com";
        assert_eq!(wiring.upstream(format), Some(base));
    }
    // A key that lies in the environment selects nothing.
    assert_eq!(wired("claude", &bearer[1..], &NoFiles).services, []);
    let wiring = wired("claude", &bearer[..2], &NoFiles);
    assert_eq!(wiring.warnings, [Warning::Unguardable(Unguardable::BedrockWithoutRegion)]);
    // A gateway needs no region.
    let gateway = [on, bearer[1], ("ANTHROPIC_BEDROCK_BASE_URL", "https://gw.example/bedrock")];
    let wiring = wired("claude", &gateway, &NoFiles);
    assert_eq!(wiring.upstream(BedrockInvoke), Some("https://gw.example/bedrock"));
}

/// The settings in the file that Claude Code gets by its option.
fn passed(wiring: &Wiring) -> serde_json::Value {
    assert!(wiring.command.iter().any(|word| word == "--settings"));
    serde_json::from_str(&wiring.files[0].text).unwrap()
}

#[test]
fn claude_on_vertex_has_its_own_upstream() {
    let on = ("CLAUDE_CODE_USE_VERTEX", "1");
    for (variables, base) in [
        (vec![("CLOUD_ML_REGION", "us-east5")], "https://us-east5-aiplatform.googleapis.com/v1"),
        (vec![("CLOUD_ML_REGION", "global")], "https://aiplatform.googleapis.com/v1"),
        (vec![("CLOUD_ML_REGION", "eu")], "https://aiplatform.eu.rep.googleapis.com/v1"),
        (
            vec![("CLOUD_ML_REGION", "us-east5"), ("VERTEX_REGION_CLAUDE_HAIKU_4_5", "us-east5")],
            "https://us-east5-aiplatform.googleapis.com/v1",
        ),
        (
            vec![("ANTHROPIC_VERTEX_BASE_URL", "https://gw.example/vertex/v1/")],
            "https://gw.example/vertex/v1",
        ),
    ] {
        let wiring = wired("claude -p t", &[&[on][..], &variables].concat(), &NoFiles);
        assert_eq!(wiring.warnings, [], "{variables:?}");
        let services: Vec<_> = wiring.services.iter().map(|(p, b, _)| (*p, b.as_str())).collect();
        assert_eq!(services, [("/vertex", base)]);
        let url = format!("{U}/vertex");
        assert_eq!(wiring.variable("ANTHROPIC_VERTEX_BASE_URL"), Some(&*url));
        assert_eq!(passed(&wiring)["env"]["ANTHROPIC_VERTEX_BASE_URL"], url);
        // A key of Anthropic does not go to Google.
        assert_eq!(wiring.upstream(Anthropic), Some("https://api.anthropic.com"));
    }
    for (variables, problem) in [
        (vec![], Unguardable::VertexWithoutRegion),
        (
            vec![("CLOUD_ML_REGION", "global"), ("VERTEX_REGION_CLAUDE_4_6_OPUS", "us-east5")],
            Unguardable::VertexRegions,
        ),
    ] {
        let wiring = wired("claude -p t", &[&[on][..], &variables].concat(), &NoFiles);
        assert_eq!(wiring.warnings, [Warning::Unguardable(problem)], "{variables:?}");
        assert!(wiring.warnings[0].is_unguarded());
    }
    assert!(wired("claude", &[("CLOUD_ML_REGION", "global")], &NoFiles).services.is_empty());
}

#[test]
fn claude_on_foundry_has_its_own_upstream() {
    let on = ("CLAUDE_CODE_USE_FOUNDRY", "true");
    let resource = [on, ("ANTHROPIC_FOUNDRY_RESOURCE", "acme")];
    let wiring = wired("claude -p t", &resource, &NoFiles);
    assert_eq!(wiring.warnings, []);
    let base = "https://acme.services.ai.azure.com/anthropic".to_owned();
    assert_eq!(wiring.services, [("/foundry", base, Source::Default)]);
    let url = format!("{U}/foundry");
    assert_eq!(wiring.variable("ANTHROPIC_FOUNDRY_BASE_URL"), Some(&*url));
    // Its client accepts one of the two.
    assert!(wiring.cleared.contains(&"ANTHROPIC_FOUNDRY_RESOURCE".to_owned()), "{wiring:?}");
    let env = &passed(&wiring)["env"];
    assert_eq!(
        (&env["ANTHROPIC_FOUNDRY_BASE_URL"], &env["ANTHROPIC_FOUNDRY_RESOURCE"]),
        (&url.into(), &"".into())
    );
    assert_eq!(wiring.upstream(Anthropic), Some("https://api.anthropic.com"));
    // The settings of the user are stronger than the environment.
    let file = r#"{"env":{"CLAUDE_CODE_USE_FOUNDRY":"1","ANTHROPIC_FOUNDRY_BASE_URL":"https://own.example/anthropic"}}"#;
    let disk = Disk(vec![("/home/u/.claude/settings.json", file)]);
    let other = [("ANTHROPIC_FOUNDRY_BASE_URL", "https://other.example")];
    let wiring = wired("claude -p t", &other, &disk);
    assert_eq!(wiring.services[0].1, "https://own.example/anthropic");
    // One of a repository is not used, and neither is its switch.
    let disk = Disk(vec![("/src/repo/.claude/settings.json", file)]);
    let wiring = wired("claude -p t", &[], &disk);
    assert_eq!((wiring.services.len(), wiring.warnings.len()), (0, 2), "{wiring:?}");
    assert_eq!(passed(&wiring)["env"]["CLAUDE_CODE_USE_FOUNDRY"], "0");
    let wiring = wired("claude", &[on], &NoFiles);
    assert_eq!(wiring.warnings, [Warning::Unguardable(Unguardable::FoundryWithoutAddress)]);
    assert!(!wiring.warnings[0].to_string().contains("Vertex"), "{}", wiring.warnings[0]);
}

#[test]
fn services_of_claude_that_are_not_wired_are_named() {
    for (name, value, reported) in [
        ("CLAUDE_CODE_USE_MANTLE", "1", Some(Unguardable::Mantle)),
        ("CLAUDE_CODE_USE_ANTHROPIC_AWS", "yes", Some(Unguardable::ClaudeOnAws)),
        ("CLAUDE_CODE_USE_MANTLE", "0", None),
        ("CLAUDE_CODE_USE_MANTLE", "off", None),
        ("CLAUDE_CODE_USE_VERTEX", "", None),
        ("CLAUDE_CODE_USE_POWERSHELL_TOOL", "1", None),
        ("ANTHROPIC_FOUNDRY_API_KEY", "k", None),
    ] {
        let warnings: Vec<Warning> = reported.map(Warning::Unguardable).into_iter().collect();
        let wiring = wired("claude -p t", &[(name, value)], &NoFiles);
        assert_eq!(wiring.warnings, warnings, "{name}={value}");
        assert_eq!(wiring.warnings.iter().any(Warning::is_unguarded), reported.is_some());
    }
    let managed = r#"{"env":{"CLAUDE_CODE_USE_VERTEX":"1","CLOUD_ML_REGION":"global","ANTHROPIC_VERTEX_BASE_URL":"https://g"}}"#;
    let disk = Disk(vec![("/etc/claude-code/managed-settings.json", managed)]);
    let wiring = wired("claude", &[], &disk);
    assert_eq!(wiring.warnings, [Warning::Unguardable(Unguardable::ManagedSettings)]);
}

#[test]
fn login_of_claude_is_a_subscription() {
    let login = r#"{"claudeAiOauth":{"accessToken":"sk-ant-oat01-x","subscriptionType":"max"}}"#;
    let disk = Disk(vec![("/home/u/.claude/.credentials.json", login)]);
    let note = Warning::Subscription { service: "a Claude subscription" };
    for (variables, files, noted) in [
        (&[][..], &disk as &dyn Files, true),
        (&[("CLAUDE_CODE_OAUTH_TOKEN", "t")], &NoFiles, true),
        (&[("ANTHROPIC_API_KEY", "k")], &disk, false),
        (&[("CLAUDE_CONFIG_DIR", "/elsewhere")], &disk, false),
        (
            &[
                ("CLAUDE_CODE_USE_BEDROCK", "1"),
                ("AWS_BEARER_TOKEN_BEDROCK", "b"),
                ("AWS_REGION", "r"),
            ],
            &disk,
            false,
        ),
        (&[], &Disk(vec![("/home/u/.claude/.credentials.json", r#"{"mcpOAuth":{}}"#)]), false),
    ] {
        let warnings = wired("claude", variables, files).warnings;
        assert_eq!(warnings.contains(&note), noted, "{variables:?}: {warnings:?}");
        assert!(warnings.len() <= 1, "{warnings:?}");
    }
}

#[test]
fn codex_provider_is_found() {
    const CONFIG: &str = r#"
        model_provider = "corp"
        [model_providers.corp]
        base_url = "https://corp.example/v1"
        wire_api = "chat"
        [model_providers.azure]
        base_url = "https://azure.example/openai"
        [profiles.plain]
        model_provider = "openai"
        openai_base_url = "https://plain.example/v1"
    "#;
    let disk = Disk(vec![("/home/u/.codex/config.toml", CONFIG)]);
    let v1 = format!("{U}/v1");
    let openai = (format!("openai_base_url=\"{v1}\""), "model_provider=\"openai\"".to_owned());
    for (command, format, base, first) in [
        (
            "codex exec t",
            OpenAiChat,
            "https://corp.example/v1",
            format!("model_providers.corp.base_url=\"{v1}\""),
        ),
        (
            "codex -c model_provider=azure",
            OpenAiResponses,
            "https://azure.example/openai",
            format!("model_providers.azure.base_url=\"{v1}\""),
        ),
        ("codex --profile plain", OpenAiResponses, "https://plain.example/v1", openai.0.clone()),
    ] {
        let wiring = wired(command, &[], &disk);
        assert_eq!(wiring.upstream(format), Some(base), "{command}");
        assert_eq!(words(&wiring)[1..3], ["-c".to_owned(), first], "{command}");
        assert_eq!(wiring.warnings, [], "{command}");
    }
    // An option of the user is the upstream, and is replaced where it is: the last one counts.
    let wiring = wired("codex exec -c openai_base_url=\"https://gw.example/v1\" t", &[], &NoFiles);
    assert_eq!(wiring.upstream(OpenAiResponses), Some("https://gw.example/v1"));
    assert_eq!(words(&wiring), ["codex", "-c", &openai.1, "exec", "-c", &openai.0, "t"]);
}

#[test]
fn chatgpt_login_has_its_own_upstream() {
    let disk = Disk(vec![(
        "/home/u/.codex/auth.json",
        r#"{"OPENAI_API_KEY":null,"tokens":{"access_token":"t"}}"#,
    )]);
    let wiring = wired("codex", &[], &disk);
    assert_eq!(wiring.upstream(OpenAiResponses), Some("https://chatgpt.com/backend-api/codex"));
    assert_eq!(wiring.warnings, [Warning::Subscription { service: "a ChatGPT login" }]);
    let wiring = wired("codex exec", &[("CODEX_API_KEY", "sk-x")], &disk);
    assert_eq!(wiring.upstream(OpenAiResponses), Some("https://api.openai.com/v1"));
}

#[test]
fn gemini_login_decides() {
    let google = r#"{"security":{"auth":{"selectedType":"oauth-personal"}}} // comment"#;
    let key = ("GEMINI_API_KEY", "k");
    for (file, variables, reported) in [
        (google, &[key][..], Some(Unguardable::GoogleLogin)),
        ("{}", &[], Some(Unguardable::GeminiWithoutKey)),
        ("{}", &[key, ("GOOGLE_GENAI_USE_VERTEXAI", "true")], Some(Unguardable::GeminiOnVertex)),
        ("{}", &[key, ("GOOGLE_GENAI_USE_GCA", "true")], Some(Unguardable::GoogleLogin)),
        (
            r#"{"selectedAuthType":"gemini-api-key"}"#,
            &[key, ("GOOGLE_GENAI_USE_VERTEXAI", "true")],
            None,
        ),
        (
            r#"{"security":{"auth":{"selectedType":"vertex-ai"}}}"#,
            &[key],
            Some(Unguardable::GeminiOnVertex),
        ),
        (r#"{"selectedAuthType":"gemini-api-key"}"#, &[], None),
        ("{}", &[key], None),
    ] {
        let wiring =
            wired("gemini -p x", variables, &Disk(vec![("/home/u/.gemini/settings.json", file)]));
        let warnings: Vec<Warning> = reported.map(Warning::Unguardable).into_iter().collect();
        assert_eq!(wiring.warnings, warnings, "{file}");
        // Settings that select the key are enough as they are.
        let home = wiring.variable("GEMINI_CLI_HOME");
        assert_eq!(home.is_some(), file == "{}" && reported.is_none(), "{file}");
        if home.is_some() {
            assert_eq!((home, wiring.mirrors.len()), (Some("/private/gemini-home"), 2));
            assert_eq!(
                wiring.files[0].text,
                r#"{"security":{"auth":{"selectedType":"gemini-api-key"}}}"#
            );
        }
    }
}

#[test]
fn gemini_settings_of_user_are_kept() {
    let disk = Disk(vec![("/home/u/.gemini/settings.json", r#"{"tools":{"sandbox":"docker"}}"#)]);
    let wiring = wired("gemini", &[("GEMINI_API_KEY", "k")], &disk);
    assert!(wiring.files[0].text.contains("docker"), "{}", wiring.files[0].text);
}

#[test]
fn opencode_provider_of_model_is_wired() {
    let config = r#"{"model":"corp/m","provider":{
        "anthropic":{"options":{"baseURL":"https://a.example/v1"}},
        "corp":{"npm":"@ai-sdk/openai-compatible","options":{"baseURL":"https://corp.example/v2"}},
        "other":{"options":{"baseURL":"https://o.example"}},},}"#;
    let disk = Disk(vec![("/home/u/.config/opencode/opencode.jsonc", config)]);
    let content = r#"{"provider":{"openai":{"options":{"apiKey":"k"}}}}"#;
    let wiring = wired("opencode run t", &[("OPENCODE_CONFIG_CONTENT", content)], &disk);
    assert_eq!(wiring.upstream(Anthropic), Some("https://a.example/v1"));
    assert_eq!(wiring.upstream(OpenAiChat), Some("https://corp.example/v2"));
    let content: serde_json::Value =
        serde_json::from_str(wiring.variable("OPENCODE_CONFIG_CONTENT").unwrap()).unwrap();
    let url = |name: &str| content["provider"][name]["options"]["baseURL"].as_str();
    let v1 = format!("{U}/v1");
    assert_eq!((url("anthropic"), url("corp"), url("other")), (Some(&*v1), Some(&*v1), None));
    assert_eq!(content["provider"]["openai"]["options"]["apiKey"], "k");
    assert!(
        matches!(&wiring.warnings[..], [Warning::ProviderOutside { provider, .. }] if provider == "other")
    );
}

#[test]
fn pi_gets_an_extension() {
    let models =
        r#"{"providers":{"corp":{"baseUrl":"https://corp.example","api":"anthropic-messages"}}}"#;
    let disk = Disk(vec![("/home/u/.pi/agent/models.json", models)]);
    let wiring = wired("pi --provider corp -p t", &[], &disk);
    assert_eq!(wiring.upstream(Anthropic), Some("https://corp.example"));
    assert_eq!(words(&wiring)[..3], ["pi", "--extension", "/private/endstop-pi.js"]);
    assert!(
        wiring.files[0]
            .text
            .contains(&format!("pi.registerProvider(\"corp\", {{\"baseUrl\":\"{U}\"}});"))
    );
}

#[test]
fn qwen_login_is_reported() {
    let wiring = wired("qwen -p t", &[], &NoFiles);
    assert_eq!(wiring.warnings, [Warning::Unguardable(Unguardable::QwenWithoutKey)]);
    assert!(!wiring.warnings[0].is_unguarded(), "it has no key yet");
    let wiring = wired("qwen -p t --auth-type qwen-oauth", &[], &NoFiles);
    assert_eq!(wiring.warnings, [Warning::Unguardable(Unguardable::QwenLogin)]);
    assert!(wiring.warnings[0].is_unguarded());
    let command = "qwen --openai-base-url=https://dashscope.example/v1 --auth-type openai";
    let wiring = wired(command, &[], &NoFiles);
    assert_eq!(wiring.upstream(OpenAiChat), Some("https://dashscope.example/v1"));
    assert_eq!(words(&wiring)[1..3], ["--openai-base-url".to_owned(), format!("{U}/v1")]);
}

#[test]
fn provider_of_copilot_has_its_own_upstream() {
    let base = "https://acme.openai.azure.com/openai/deployments/gpt";
    for program in ["copilot -p t", "npx @github/copilot@latest -p t"] {
        let wiring = wired(program, &[("COPILOT_PROVIDER_BASE_URL", base)], &NoFiles);
        assert_eq!(wiring.warnings, []);
        let source = Source::Variable("COPILOT_PROVIDER_BASE_URL".to_owned());
        assert_eq!(wiring.services, [("/copilot", base.to_owned(), source)]);
        let url = format!("{U}/copilot");
        assert_eq!(wiring.variable("COPILOT_PROVIDER_BASE_URL"), Some(&*url));
        assert_eq!(wiring.resume, Some("copilot --continue"));
    }
    let wiring = wired("copilot -p t", &[("OPENAI_API_KEY", "k")], &NoFiles);
    assert_eq!(wiring.warnings, [Warning::Unguardable(Unguardable::CopilotHosted)]);
    assert!(wiring.warnings[0].is_unguarded());
    assert!(wired("copilot help", &[], &NoFiles).makes_no_run);
}

#[test]
fn mini_swe_agent_needs_only_the_variables() {
    for program in ["mini -t task -y", "uvx mini-swe-agent -t task", "python -m minisweagent"] {
        let wiring = wired(program, &[], &NoFiles);
        assert_eq!((wiring.client, wiring.is_agent), (Some("mini-SWE-agent"), false), "{program}");
        assert_eq!(wiring.submits_with, Some("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"));
        assert_eq!(words(&wiring).join(" "), program);
        assert_eq!(wiring.warnings, []);
    }
    assert!(wired("mini-extra config setup", &[], &NoFiles).makes_no_run);
}

#[test]
fn broken_user_file_is_reported() {
    let disk = Disk(vec![("/home/u/.codex/config.toml", "a = = sk-secret")]);
    let wiring = wired("codex", &[], &disk);
    let file = PathBuf::from("/home/u/.codex/config.toml");
    let problem = "line 1: invalid TOML".to_owned();
    assert_eq!(wiring.warnings, [Warning::UnreadableFile { file, problem }]);
}

#[test]
fn printed_variables_survive_the_shell() {
    let hostile = "a'b\\c $(touch x) `y` \"z\"\n;d";
    let env = [("A_1".to_owned(), hostile.to_owned()), ("B;rm".to_owned(), "x".to_owned())];
    let lines = print_env(Shell::Sh, &env, &["C".to_owned(), "D E".to_owned()]);
    let script =
        format!("C=1; export C\n{lines}printf %s \"$A_1\"; test -z \"${{C+x}}\" || exit 3");
    let ran = std::process::Command::new("sh").args(["-c", &script]).output();
    if cfg!(unix) {
        let ran = ran.unwrap();
        assert!(ran.status.success());
        assert_eq!(String::from_utf8(ran.stdout).unwrap(), hostile);
    }
    assert!(!lines.contains("rm") && !lines.contains("D E"), "{lines}");
    let fish = print_env(Shell::Fish, &[("A".to_owned(), r"a'\".to_owned())], &["C".to_owned()]);
    assert_eq!(fish, "set -gx A 'a\\'\\\\'\nset -e C\n");
    assert_eq!("/usr/bin/fish".parse(), Ok(Shell::Fish));
    assert!("powershell".parse::<Shell>().is_err());
}
