//! The result: variables, arguments, upstreams, temporary files and warnings.
//!
//! ```
//! use endstop_guard::clients::{Unguardable, Warning};
//! let warning = Warning::Unguardable(Unguardable::Cursor);
//! assert!(warning.to_string().starts_with("cannot be guarded: Cursor"));
//! ```

use endstop_wire::WireFormat;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

/// The changes that point a command at the proxy.
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Wiring {
    /// Name of the client, if the program is known.
    pub client: Option<&'static str>,
    /// `true` if the program is known to offer tools with each turn.
    pub is_agent: bool,
    /// `true` if the command only shows a version or a help, logs in, or changes a configuration.
    pub makes_no_run: bool,
    /// Variables to set. The values can contain keys of the user's own configuration.
    pub env: Vec<(String, String)>,
    /// The program and its arguments, to be started instead of those of the request.
    pub command: Vec<OsString>,
    /// Command that continues the last session of the client.
    pub resume: Option<&'static str>,
    /// Word in the arguments of the tool call with which the client ends its work.
    pub submits_with: Option<&'static str>,
    /// `true` if the command starts the program as another user.
    pub changes_user: bool,
    /// Variables to remove.
    pub cleared: Vec<String>,
    /// The upstream of each format: a base URL as the format's own SDK expects it, and its source. A
    /// format whose upstream is not valid is missing, because a key must not go to another server.
    pub upstreams: Vec<(WireFormat, String, Source)>,
    /// Upstreams below a prefix of the path, for services whose calls have the format of another provider: the prefix,
    /// the base URL, and its source.
    pub services: Vec<(&'static str, String, Source)>,
    /// Temporary files in the private folder, to be written with access for the user only.
    pub files: Vec<TempFile>,
    /// Folders in the private folder, with links to the entries of the user's folders.
    pub mirrors: Vec<Mirror>,
    /// Facts that the user should know.
    pub warnings: Vec<Warning>,
}

impl Wiring {
    /// Returns the value of a variable that is set.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.env.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// `true` if a text is part of an argument, which other users of the machine can read.
    pub fn has_in_arguments(&self, text: &str) -> bool {
        self.command.iter().any(|word| word.to_string_lossy().contains(text))
    }

    /// Returns the base URL of a format's upstream.
    pub fn upstream(&self, format: WireFormat) -> Option<&str> {
        self.upstreams.iter().find(|(known, ..)| *known == format).map(|(_, base, _)| base.as_str())
    }
}

impl fmt::Debug for Wiring {
    /// Leaves out values and contents, which can contain keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wiring")
            .field("client", &self.client)
            .field("is_agent", &self.is_agent)
            .field("submits_with", &self.submits_with)
            .field("makes_no_run", &self.makes_no_run)
            .field("resume", &self.resume)
            .field("env", &self.env.iter().map(|(name, _)| name).collect::<Vec<_>>())
            .field("arguments", &self.command.len())
            .field("changes_user", &self.changes_user)
            .field("cleared", &self.cleared)
            .field("upstreams", &self.upstreams.iter().map(|(f, _, s)| (f, s)).collect::<Vec<_>>())
            .field("services", &self.services.iter().map(|(p, _, s)| (p, s)).collect::<Vec<_>>())
            .field("files", &self.files)
            .field("mirrors", &self.mirrors)
            .field("warnings", &self.warnings)
            .finish()
    }
}

/// A temporary file.
#[derive(Clone, PartialEq, Eq)]
pub struct TempFile {
    /// Path below the private folder.
    pub path: PathBuf,
    /// Text of the file.
    pub text: String,
}

impl fmt::Debug for TempFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TempFile({}, {} bytes)", self.path.display(), self.text.len())
    }
}

/// A temporary folder that stands for one of the user. Its entries are links, so what a client writes
/// into them stays; new entries are removed with the folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// Path below the private folder.
    pub path: PathBuf,
    /// The user's folder, which may not exist.
    pub of: PathBuf,
    /// Name of the entry that is replaced by a temporary file; empty if there is none.
    pub except: &'static str,
}

/// The place that names an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// The address of the format's own provider.
    Default,
    /// A variable of the environment.
    Variable(String),
    /// An argument of the command.
    Argument(String),
    /// The user's own configuration file, or that of the administrator.
    File(PathBuf),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Default => f.write_str("the default"),
            Source::Variable(name) => write!(f, "variable {name}"),
            Source::Argument(name) => write!(f, "argument {name}"),
            Source::File(path) => write!(f, "{}", shown(&path.display().to_string())),
        }
    }
}

/// A fact that the user should know.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// The client will not use the proxy, or not for all calls.
    Unguardable(Unguardable),
    /// A configuration file of the working folder names an upstream. It is not used.
    RepositoryUpstream {
        /// Path of the file.
        file: PathBuf,
        /// Name of the setting.
        setting: String,
    },
    /// A base URL is not valid, so calls of its format fail.
    InvalidUpstream {
        /// Place of the base URL.
        source: Source,
    },
    /// A base URL is the address of the proxy itself, so the default is used.
    UpstreamIsProxy {
        /// Place of the base URL.
        source: Source,
    },
    /// Two places name different upstreams for a format; the first one is used.
    Conflict {
        /// The place that is used.
        used: Source,
        /// The place that is not used.
        ignored: Source,
    },
    /// A configuration file of the user could not be read.
    UnreadableFile {
        /// Path of the file.
        file: PathBuf,
        /// Reason.
        problem: String,
    },
    /// The client is logged in with a subscription, so costs are notional.
    Subscription {
        /// The service.
        service: &'static str,
    },
    /// The command clears the environment, so that the client may not get the variables.
    EnvironmentCleared {
        /// The word that does so.
        word: String,
    },
    /// A provider of the client keeps its own address.
    ProviderOutside {
        /// Name of the provider.
        provider: String,
        /// Reason.
        problem: &'static str,
        /// `true` if the program will call this provider, and not only may.
        is_chosen: bool,
    },
    /// The client would offer a web search that the provider runs; an option turns it off.
    SearchOff {
        /// Name of the client.
        client: &'static str,
    },
    /// The wiring of this client was not tested with the real program.
    Untested(&'static str),
}

/// A client, or a login of a client, that does not use a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unguardable {
    /// Gemini CLI with a Google login.
    GoogleLogin,
    /// Gemini CLI without an API key and without a selected login.
    GeminiWithoutKey,
    /// Gemini CLI on Vertex AI.
    GeminiOnVertex,
    /// Cursor.
    Cursor,
    /// Copilot CLI with the models of GitHub.
    CopilotHosted,
    /// Bedrock without keys in the environment or in a profile.
    BedrockWithoutKeys,
    /// Bedrock without a region.
    BedrockWithoutRegion,
    /// Claude Code on Vertex AI without a region.
    VertexWithoutRegion,
    /// Claude Code on Vertex AI with several regions.
    VertexRegions,
    /// Claude Code on Foundry without a resource.
    FoundryWithoutAddress,
    /// Claude Code on Bedrock's Mantle.
    Mantle,
    /// Claude Code on the Claude Platform of AWS.
    ClaudeOnAws,
    /// Qwen Code with a Qwen login.
    QwenLogin,
    /// Qwen Code without an API key and without a selected login.
    QwenWithoutKey,
    /// Claude Code whose administrator sets the base URL.
    ManagedSettings,
}

impl Unguardable {
    /// Returns the reason.
    pub fn reason(self) -> &'static str {
        match self {
            Unguardable::GoogleLogin => "Gemini CLI with a Google login ignores the base URL",
            Unguardable::GeminiWithoutKey => {
                "Gemini CLI without an API key would use a Google login, which ignores the base URL"
            }
            Unguardable::GeminiOnVertex => {
                "Gemini CLI on Vertex AI calls an address with its project"
            }
            Unguardable::Cursor => "Cursor calls its own service, which has no base URL",
            Unguardable::CopilotHosted => {
                "Copilot CLI calls the models of GitHub, which have no base URL"
            }
            Unguardable::BedrockWithoutKeys => {
                "calls to Bedrock are signed for their host, and there are no keys to sign them again"
            }
            Unguardable::BedrockWithoutRegion => {
                "the region of Bedrock, which is a part of its address, is not known"
            }
            Unguardable::VertexWithoutRegion => {
                "the region of Vertex AI, which is a part of its address, is not known"
            }
            Unguardable::VertexRegions => {
                "a variable VERTEX_REGION_… sends calls of one model to another address of Vertex AI"
            }
            Unguardable::FoundryWithoutAddress => "the address of Foundry is not known",
            Unguardable::Mantle => {
                "calls to Bedrock's Mantle (CLAUDE_CODE_USE_MANTLE) are not wired"
            }
            Unguardable::ClaudeOnAws => {
                "calls to the Claude Platform of AWS (CLAUDE_CODE_USE_ANTHROPIC_AWS) are not wired"
            }
            Unguardable::QwenWithoutKey => {
                "Qwen Code without an API key would use a Qwen login, which has its own base URL"
            }
            Unguardable::QwenLogin => {
                "Qwen Code with a Qwen login gets its base URL from the login"
            }
            Unguardable::ManagedSettings => {
                "the administrator's settings of Claude Code name a base URL, which no option overrides"
            }
        }
    }

    /// Returns the remedy.
    pub fn fix(self) -> &'static str {
        match self {
            Unguardable::GoogleLogin | Unguardable::GeminiWithoutKey => {
                "set GEMINI_API_KEY, and select the API key in Gemini CLI with /auth"
            }
            Unguardable::GeminiOnVertex => "use a key of the Gemini API",
            Unguardable::Cursor => "use a client with a base URL",
            Unguardable::CopilotHosted => {
                "name a provider in COPILOT_PROVIDER_BASE_URL, with its key in COPILOT_PROVIDER_API_KEY and a model in \
                 COPILOT_MODEL"
            }
            Unguardable::BedrockWithoutKeys => {
                "set AWS_BEARER_TOKEN_BEDROCK, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE \
                 for a profile that contains keys, and AWS_REGION"
            }
            Unguardable::BedrockWithoutRegion => "set AWS_REGION",
            Unguardable::VertexWithoutRegion => "set CLOUD_ML_REGION",
            Unguardable::VertexRegions => "set CLOUD_ML_REGION alone, or ANTHROPIC_VERTEX_BASE_URL",
            Unguardable::FoundryWithoutAddress => {
                "set ANTHROPIC_FOUNDRY_RESOURCE or ANTHROPIC_FOUNDRY_BASE_URL"
            }
            Unguardable::Mantle | Unguardable::ClaudeOnAws => {
                "use Bedrock (CLAUDE_CODE_USE_BEDROCK) or a key of the Anthropic API"
            }
            Unguardable::QwenLogin | Unguardable::QwenWithoutKey => {
                "set OPENAI_API_KEY and pass --auth-type openai"
            }
            Unguardable::ManagedSettings => "let the proxy be the base URL of those settings",
        }
    }
}

impl Warning {
    /// `true` if the program is set to call a place that guard does not see, so that no limit would hold. It is `false`
    /// if the program only may do so, for example because it has no key yet.
    pub fn is_unguarded(&self) -> bool {
        match self {
            Warning::Unguardable(what) => {
                !matches!(what, Unguardable::GeminiWithoutKey | Unguardable::QwenWithoutKey)
            }
            Warning::ProviderOutside { is_chosen, .. } => *is_chosen,
            Warning::RepositoryUpstream { .. }
            | Warning::InvalidUpstream { .. }
            | Warning::UpstreamIsProxy { .. }
            | Warning::Conflict { .. }
            | Warning::UnreadableFile { .. }
            | Warning::Subscription { .. }
            | Warning::EnvironmentCleared { .. }
            | Warning::SearchOff { .. }
            | Warning::Untested(_) => false,
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::Unguardable(what) => {
                write!(f, "cannot be guarded: {}; {}", what.reason(), what.fix())
            }
            Warning::RepositoryUpstream { file, setting } => write!(
                f,
                "{} sets {}, which a repository must not choose: it is not used; \
                 set the base URL in the environment if you want it",
                shown(&file.display().to_string()),
                shown(setting)
            ),
            Warning::InvalidUpstream { source } => write!(
                f,
                "invalid base URL from {source}: expected http:// or https:// and a host, without user \
                 name and query; calls of its format will fail"
            ),
            Warning::UpstreamIsProxy { source } => {
                write!(f, "the base URL from {source} is the proxy itself; the default is used")
            }
            Warning::Conflict { used, ignored } => {
                write!(f, "{used} and {ignored} name different base URLs; that of {used} is used")
            }
            Warning::UnreadableFile { file, problem } => write!(
                f,
                "could not read {}: {}",
                shown(&file.display().to_string()),
                shown(problem)
            ),
            Warning::Subscription { service } => {
                write!(
                    f,
                    "logged in with {service}: costs are what the same calls would cost by key"
                )
            }
            Warning::EnvironmentCleared { word } => write!(
                f,
                "`{}` clears the environment, so the program may not use the proxy; \
                 put it before `endstop guard`",
                shown(word)
            ),
            Warning::ProviderOutside { provider, problem, .. } => {
                write!(f, "calls to the provider `{}` are not guarded: {problem}", shown(provider))
            }
            Warning::SearchOff { client } => write!(
                f,
                "the web search of {client} is off, because its uses are billed in addition and --cap-output \
                 could not keep the ceiling"
            ),
            Warning::Untested(client) => {
                write!(f, "{client} was not tested with the proxy; check that calls are counted")
            }
        }
    }
}

/// Returns text of a file or a path without characters that a terminal would obey or hide.
fn shown(text: &str) -> String {
    // Long enough for a path, too short to push other lines off the screen.
    const MOST: usize = 300;
    let mut shown = String::new();
    for c in text.chars().take(MOST) {
        match c {
            // `escape_debug` also escapes quotes, which are harmless here.
            '"' | '\'' | '\\' => shown.push(c),
            c => shown.extend(c.escape_debug()),
        }
    }
    shown
}
