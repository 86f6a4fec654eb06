//! The flags for the connection to the model's server.

use std::path::PathBuf;

// The flags that set the connection. Not a doc comment, as in `param_args`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct HttpArgs {
    /// The proxy of the requests to the model, instead of HTTPS_PROXY and the like: http://HOST:PORT,
    /// or `off` for none. Write a password as $VARIABLE.
    #[arg(long, value_name = "URL")]
    pub(crate) proxy: Option<String>,
    /// A file with the certificates of authorities to trust in addition to those of the system, as
    /// PEM.
    #[arg(long, value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,
    /// The User-Agent header of the requests [default: endstop/VERSION].
    #[arg(long, value_name = "TEXT")]
    pub(crate) user_agent: Option<String>,
    /// The time limit for connecting to the model's server, for example 5s [default: 15s].
    #[arg(long, value_name = "TIME")]
    pub(crate) connect_timeout: Option<String>,
}

impl HttpArgs {
    /// Returns the settings that the flags set, each with its flag.
    pub(crate) fn given(&self) -> impl Iterator<Item = (&'static str, String)> {
        let given = [
            ("proxy", self.proxy.is_some()),
            ("ca_file", self.ca_file.is_some()),
            ("user_agent", self.user_agent.is_some()),
            ("connect_timeout", self.connect_timeout.is_some()),
        ];
        given.into_iter().filter(|(_, given)| *given).map(|(name, _)| (name, flag(name)))
    }
}

/// Returns the flag of a setting.
pub(crate) fn flag(name: &str) -> String {
    format!("--{}", name.replace('_', "-"))
}
