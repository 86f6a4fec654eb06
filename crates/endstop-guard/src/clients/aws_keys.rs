//! The keys of this machine for Amazon Web Services: from variables, or from a profile.
//!
//! Only keys that are written down are read. A profile that assumes a role, signs in with a browser
//! or runs a program has none, and guard reports that when a signed request arrives.

use super::aws_profile::{AwsKey, Profile};
use std::fmt;
use std::path::{Path, PathBuf};

/// The name of the profile that is used if none is named.
const DEFAULT: &str = "default";

/// The keys with which the clients of a guard sign their calls to Amazon Bedrock.
#[derive(Clone)]
pub struct AwsKeys {
    /// SDKs differ in the source that they prefer, so the id in a request decides.
    keys: Vec<AwsKey>,
    /// The reason why a profile has no key here.
    problem: Option<String>,
}

impl fmt::Debug for AwsKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AwsKeys").field("problem", &self.problem).finish_non_exhaustive()
    }
}

impl AwsKeys {
    /// Returns the keys of the variables `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and
    /// `AWS_SESSION_TOKEN`. `None` if one of the first two is missing or empty.
    ///
    /// ```
    /// use endstop_guard::clients::AwsKeys;
    /// let keys = AwsKeys::from_variables(|name| Some(format!("value of {name}")));
    /// assert!(!format!("{:?}", keys.unwrap()).contains("SECRET"));
    /// assert!(AwsKeys::from_variables(|_| None).is_none());
    /// ```
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Option<AwsKeys> {
        let key = of_variables(&variable)?;
        Some(AwsKeys { keys: vec![key], problem: None })
    }

    /// Returns the keys of the variables and those of the profile that `AWS_PROFILE` names, or of the
    /// profile `default`: `aws_access_key_id`, `aws_secret_access_key` and `aws_session_token` in the
    /// files `~/.aws/credentials` and `~/.aws/config`, or in those that `AWS_SHARED_CREDENTIALS_FILE`
    /// and `AWS_CONFIG_FILE` name. `None` if nothing names a key.
    ///
    /// `read` returns the text of a file, `None` if there is no such file, and an error for one that
    /// cannot be read.
    ///
    /// ```
    /// use endstop_guard::clients::AwsKeys;
    /// let file = "[work]\naws_access_key_id = AKIDEXAMPLE\naws_secret_access_key = a-secret\n";
    /// let variable = |name: &str| match name {
    ///     "AWS_PROFILE" => Some("work".to_owned()),
    ///     "HOME" => Some("/home/me".to_owned()),
    ///     _ => None,
    /// };
    /// let keys = AwsKeys::of_machine(variable, |path| {
    ///     Ok(path.ends_with(".aws/credentials").then(|| file.to_owned()))
    /// });
    /// assert!(keys.is_some_and(|keys| keys.problem().is_none()));
    /// ```
    ///
    /// Source: <https://docs.aws.amazon.com/sdkref/latest/guide/file-format.html>.
    pub fn of_machine(
        variable: impl Fn(&str) -> Option<String>,
        read: impl Fn(&Path) -> Result<Option<String>, String>,
    ) -> Option<AwsKeys> {
        let value = |name: &str| variable(name).filter(|value| !value.is_empty());
        let named = value("AWS_PROFILE");
        let home = value("HOME").or_else(|| value("USERPROFILE")).map(PathBuf::from);
        let file = |name: &str, usual: &str| {
            let usual = || home.as_ref().map(|home| home.join(".aws").join(usual));
            let path = value(name).map(PathBuf::from).or_else(usual)?;
            match read(&path) {
                Ok(text) => text.map(Ok),
                Err(error) => Some(Err(format!("{}: {error}", path.display()))),
            }
        };
        let files =
            [file("AWS_SHARED_CREDENTIALS_FILE", "credentials"), file("AWS_CONFIG_FILE", "config")];
        let mut keys: Vec<AwsKey> = of_variables(&variable).into_iter().collect();
        let problem = match Profile::read(named.as_deref().unwrap_or(DEFAULT), files) {
            Ok(Some(key)) => {
                keys.push(key);
                None
            }
            Ok(None) => named.map(|name| format!("the profile `{name}` has no keys")),
            // A default profile without keys does not matter to a guard that has others.
            Err(problem) => Some(problem).filter(|_| named.is_some() || keys.is_empty()),
        };
        (!keys.is_empty() || problem.is_some()).then_some(AwsKeys { keys, problem })
    }

    /// The reason why the keys of a profile are not used. Contains no key.
    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// `true` if there is a key.
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns the key with this id.
    #[cfg(feature = "bedrock")]
    pub(crate) fn find(&self, id: &str) -> Option<&AwsKey> {
        self.keys.iter().find(|key| key.id == id)
    }
}

fn of_variables(variable: &impl Fn(&str) -> Option<String>) -> Option<AwsKey> {
    let value = |name: &str| variable(name).filter(|value| !value.is_empty());
    Some(AwsKey {
        id: value("AWS_ACCESS_KEY_ID")?,
        secret: value("AWS_SECRET_ACCESS_KEY")?,
        session: value("AWS_SESSION_TOKEN"),
    })
}
