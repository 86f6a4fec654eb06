//! The connection to the model's server: the table `[http]`, the flags over it, and the provider's
//! settings.

use crate::config::flag::Table;
use crate::config::kind::{Kind, Members, Problem, plain, restored, unless_empty};
use crate::config::servers::{expanded, only_names_variables};
use crate::config::trust::{Origin, file};
use crate::failure::{Failure, Result};
use endstop::core::limits::{parse_duration, unknown_key};
use endstop::provider::http::{HttpError, HttpProviderBuilder};
use endstop::wire::redact::{KnownKeys, address};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The keys of the table.
const KEYS: [&str; 4] = ["proxy", "ca_file", "user_agent", "connect_timeout"];

// The flags of the members. Not a doc comment, which would be the description of each command that has them.
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

/// The table `[http]`.
pub(crate) struct HttpTable;

impl Kind for HttpTable {
    type Own = HttpSettings;
    type Flag = Table<HttpArgs>;

    fn take(own: &mut HttpSettings, member: &str, value: &Value) -> Result<(), Problem> {
        own.take(member, value).map_err(Problem::Table)
    }

    fn above(own: &mut HttpSettings, given: &Table<HttpArgs>, _: &str) -> Result<(), String> {
        own.above(given)
    }

    fn json(own: &HttpSettings) -> Value {
        plain(own)
    }

    fn save(own: &HttpSettings) -> Value {
        unless_empty(plain(&own.saved()))
    }

    fn restore(own: &mut HttpSettings, stored: &Value) -> Result<(), String> {
        restored(own, stored)
    }
}

/// The settings as written. The proxy's password is a variable, so none of them is a secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct HttpSettings {
    #[serde(skip_serializing_if = "Option::is_none")]
    proxy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ca_file: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_agent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    connect_timeout: Option<String>,
}

impl HttpSettings {
    /// Merges a member of the table `[http]`.
    ///
    /// # Errors
    /// Describes the invalid value, without a credential in it.
    pub(crate) fn take(&mut self, member: &str, value: &Value) -> Result<(), String> {
        if !KEYS.contains(&member) {
            return Err(format!("`{member}`: {}", unknown_key(member, &KEYS)));
        }
        let text = value.as_str().ok_or_else(|| format!("`{member}`: expected a string"))?;
        self.set(member, text).map_err(|problem| format!("`{member}`: {problem}"))
    }

    /// Merges the flags.
    ///
    /// # Errors
    /// Names the flag, and describes the invalid value.
    fn above(&mut self, args: &HttpArgs) -> Result<(), String> {
        if let Some(path) = &args.ca_file {
            self.ca_file = Some(path.clone());
        }
        let texts = [
            ("proxy", &args.proxy),
            ("user_agent", &args.user_agent),
            ("connect_timeout", &args.connect_timeout),
        ];
        for (member, text) in texts {
            let Some(text) = text else { continue };
            self.set(member, text)
                .map_err(|problem| format!("--{}: {problem}", member.replace('_', "-")))?;
        }
        Ok(())
    }

    fn set(&mut self, member: &str, text: &str) -> Result<(), String> {
        match member {
            "proxy" => {
                if has_literal_credential(text) {
                    let host = text.rsplit('@').next().unwrap_or_default();
                    return Err(format!(
                        "{host}: the journal would store the credential in this address; use a variable as `$NAME`"
                    ));
                }
                self.proxy = Some(text.to_owned());
            }
            "ca_file" => self.ca_file = Some(text.into()),
            "user_agent" => self.user_agent = Some(text.to_owned()),
            _ => {
                let given = parse_duration(text).filter(|limit| !limit.is_zero());
                given.ok_or("expected a duration such as \"5s\" or \"500ms\"")?;
                self.connect_timeout = Some(text.to_owned());
            }
        }
        Ok(())
    }

    /// Returns the proxy as written, if there is one.
    pub(crate) fn proxy(&self) -> Option<&str> {
        self.proxy.as_deref().filter(|proxy| *proxy != "off")
    }

    /// Returns the credentials of the proxy. A variable that is not set is reported by
    /// [`applied`](Self::applied).
    pub(crate) fn secrets(&self) -> KnownKeys {
        KnownKeys::of_proxies(self.proxy().and_then(|proxy| expanded(proxy).ok()))
    }

    /// Returns a copy for the journal, with an absolute path, because the run may be resumed from
    /// another folder.
    pub(crate) fn saved(&self) -> HttpSettings {
        let mut saved = self.clone();
        if let (Some(path), Ok(here)) = (&mut saved.ca_file, std::env::current_dir()) {
            *path = here.join(&*path);
        }
        saved
    }

    /// Returns the settings by name, as text without credentials.
    pub(crate) fn shown(&self) -> Members {
        let all = [
            ("proxy", self.proxy.as_deref().map(address)),
            ("ca_file", self.ca_file.as_ref().map(|path| path.display().to_string())),
            ("user_agent", self.user_agent.clone()),
            ("connect_timeout", self.connect_timeout.clone()),
        ];
        let set = all.into_iter();
        set.filter_map(|(name, value)| Some((format!(".{name}"), json!(value?)))).collect()
    }

    /// Sets the connection of a provider.
    ///
    /// # Errors
    /// A variable is not set, or the file of certificates cannot be read.
    pub(crate) fn applied(
        &self,
        mut builder: HttpProviderBuilder,
        origins: &BTreeMap<String, Origin>,
    ) -> Result<HttpProviderBuilder> {
        match self.proxy.as_deref() {
            None => {}
            Some("off") => builder = builder.no_proxy(),
            Some(proxy) => {
                let proxy = expanded(proxy).map_err(|problem| at(origins, "proxy", &problem))?;
                builder = builder.proxy(proxy);
            }
        }
        if let Some(path) = &self.ca_file {
            let (pem, _) = file::regular(path, file::MOST)
                .map_err(|error| at(origins, "ca_file", &format!("{}: {error}", path.display())))?;
            builder = builder.ca_certificate(pem);
        }
        if let Some(name) = &self.user_agent {
            builder = builder.user_agent(name);
        }
        if let Some(limit) = self.connect_timeout.as_deref().and_then(parse_duration) {
            builder = builder.connect_timeout(limit);
        }
        Ok(builder)
    }
}

/// Converts an error of a provider to a failure that names the flag or the file of the wrong value.
pub(crate) fn refused(error: &HttpError, origins: &BTreeMap<String, Origin>) -> Failure {
    match error.setting() {
        Some("ca_certificate") => at(origins, "ca_file", &error.to_string()),
        Some(setting) => at(origins, setting, &error.to_string()),
        None => Failure::usage(error.to_string()),
    }
}

/// Returns the failure of a setting.
fn at(origins: &BTreeMap<String, Origin>, member: &str, problem: &str) -> Failure {
    let place = match origins.get(&format!("http.{member}")) {
        Some(Origin::Flag(flag)) => flag.clone(),
        Some(origin) => format!("{}: [http]: `{member}`", origin.place()),
        // A stored run has no file.
        None => format!("`http.{member}`"),
    };
    Failure::usage(format!("{place}: {problem}"))
}

/// `true` if user and password of an address contain more than a user's name and variables.
fn has_literal_credential(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    // Up to the last `@` of everything, because a literal password may contain the other characters.
    let user = authority.rsplit_once('@').or_else(|| rest.rsplit_once('@'));
    user.is_some_and(|(user, _)| {
        let secret = user.split_once(':').map_or(user, |(_, password)| password);
        !secret.is_empty() && !only_names_variables(secret)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literal_proxy_password_is_refused() {
        for literal in [
            "http://me:hush@h:1",
            "http://me:hu$SH@h:1",
            "http://hush@h:1",
            "me:hush@h",
            "http://me:hu/sh@h",
            "http://me:hu$$sh@h",
        ] {
            let problem = HttpSettings::default().take("proxy", &json!(literal)).unwrap_err();
            assert!(problem.contains("$NAME") && !problem.contains("hu"), "{literal}: {problem}");
        }
        for fine in ["http://h:1", "http://me:$PW@h", "http://$TOKEN@h", "$WHOLE", "off", "h:1"] {
            HttpSettings::default().take("proxy", &json!(fine)).unwrap();
        }
    }

    #[test]
    fn invalid_values_are_refused() {
        let refused =
            |member: &str, value| HttpSettings::default().take(member, &value).unwrap_err();
        assert!(refused("prox", json!("x")).contains("did you mean `proxy`"));
        assert!(refused("proxy", json!(1)).contains("`proxy`: expected a string"));
        for time in ["soon", "0s", ""] {
            assert!(refused("connect_timeout", json!(time)).contains("duration"), "{time}");
        }
    }

    #[test]
    fn saved_settings_read_back() {
        let mut settings = HttpSettings::default();
        settings.take("ca_file", &json!("ca.pem")).unwrap();
        settings.take("proxy", &json!("http://me:$PW@h")).unwrap();
        let saved = settings.saved();
        assert!(saved.ca_file.as_ref().unwrap().is_absolute());
        let text = serde_json::to_value(&saved).unwrap();
        assert_eq!(serde_json::from_value::<HttpSettings>(text).unwrap(), saved);
        let (name, proxy) = settings.shown().swap_remove(0);
        assert_eq!((&*name, &proxy), (".proxy", &json!(address("http://me:$PW@h"))));
        assert!(!proxy.to_string().contains("PW"));
        assert_eq!(plain(&HttpSettings::default()), json!({}));
    }
}
