//! Reads a profile of Amazon's command line and SDKs.
//!
//! ```text
//! ~/.aws/credentials   [work]             aws_access_key_id = …
//! ~/.aws/config        [profile work]     region = …
//! ```

use std::collections::BTreeMap;

/// A key with its id, by which a signed request names it. It has no `Debug`, because that would show the secret.
#[derive(Clone)]
#[cfg_attr(not(feature = "bedrock"), expect(dead_code, reason = "only a signature reads them"))]
pub(crate) struct AwsKey {
    pub(crate) id: String,
    pub(crate) secret: String,
    pub(crate) session: Option<String>,
}

/// Settings of a profile whose keys are not in a file, and the way in which they are obtained.
const ELSEWHERE: [(&str, &str); 7] = [
    ("role_arn", "assumes a role"),
    ("source_profile", "assumes a role"),
    ("web_identity_token_file", "assumes a role"),
    ("credential_process", "runs a program"),
    ("sso_session", "signs in with a browser"),
    ("sso_start_url", "signs in with a browser"),
    ("login_session", "signs in with a browser"),
];

/// A profile: its settings, with names in lower case.
pub(super) struct Profile(BTreeMap<String, String>);

impl Profile {
    /// Returns the key of a profile. `files` are the texts of the file with credentials and of the
    /// file with settings; the first one takes precedence.
    ///
    /// # Errors
    /// The profile has its keys elsewhere, or a file cannot be read. The message contains no key.
    pub(super) fn read(
        name: &str,
        files: [Option<Result<String, String>>; 2],
    ) -> Result<Option<AwsKey>, String> {
        let mut settings = BTreeMap::new();
        for (at, file) in files.into_iter().enumerate() {
            let Some(text) = file else { continue };
            let is_config = at == 1;
            for (key, value) in section(&text?, name, is_config) {
                settings.entry(key).or_insert(value);
            }
        }
        Profile(settings).key(name)
    }

    fn key(&self, name: &str) -> Result<Option<AwsKey>, String> {
        let value = |name: &str| self.0.get(name).filter(|value| !value.is_empty());
        if let (Some(id), Some(secret)) =
            (value("aws_access_key_id"), value("aws_secret_access_key"))
        {
            return Ok(Some(AwsKey {
                id: id.clone(),
                secret: secret.clone(),
                session: value("aws_session_token").cloned(),
            }));
        }
        match ELSEWHERE.iter().find(|(setting, _)| value(setting).is_some()) {
            Some((setting, what)) => Err(format!(
                "the profile `{name}` {what} (`{setting}`), and guard reads only keys that are in a \
                 file; export them with `aws configure export-credentials --profile {name} \
                 --format env`"
            )),
            None => Ok(None),
        }
    }
}

/// Returns the settings of a profile in a file. In the file with settings, the names of sections
/// begin with `profile`, except that of the default.
fn section(text: &str, profile: &str, is_config: bool) -> Vec<(String, String)> {
    let mut inside = false;
    let mut settings = Vec::new();
    for line in text.lines() {
        // Comments, and the settings of a service, which are indented below its name.
        if line.trim().is_empty() || line.starts_with(['#', ';', ' ', '\t']) {
            continue;
        }
        if let Some(header) = line.strip_prefix('[') {
            let header = header.split(']').next().unwrap_or_default().trim();
            inside = name_of(header, is_config).is_some_and(|name| name == profile);
        } else if let (true, Some((name, value))) = (inside, line.split_once('=')) {
            let end = [" #", " ;", "\t#", "\t;"].iter().filter_map(|mark| value.find(mark)).min();
            let value = value[..end.unwrap_or(value.len())].trim();
            settings.push((name.trim().to_ascii_lowercase(), value.to_owned()));
        }
    }
    settings
}

fn name_of(header: &str, is_config: bool) -> Option<&str> {
    let name = match header.strip_prefix("profile") {
        Some(rest) if is_config && rest.starts_with([' ', '\t']) => rest.trim(),
        // Sections such as `sso-session` are no profiles.
        _ if is_config && header != "default" => return None,
        _ => header,
    };
    Some(name.trim_matches(['"', '\'']))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CREDENTIALS: &str = "; of this machine\n[default]\naws_access_key_id=AKIDDEFAULT\n\
        aws_secret_access_key = wJalr/XUtn+FEMI= # old\n\n[work]\nAWS_ACCESS_KEY_ID = AKIDWORK\n\
        aws_secret_access_key=s3\naws_session_token=t==\n[half]\naws_access_key_id=AKIDHALF\n";
    const CONFIG: &str = "[default]\nregion=eu-west-3\n[profile half]\naws_secret_access_key=h\n\
        [profile role]\nrole_arn=arn:aws:iam::1:role/x\nsource_profile=default\n\
        [profile \"two words\"]\nsso_session=corp\n[sso-session corp]\nsso_region=x\n\
        [profile nested]\ns3 =\n  aws_access_key_id=INNER\n  aws_secret_access_key=x\n\
        [profile tool]\ncredential_process=/bin/keys --secret hidden-word\n[work]\nrole_arn=no\n";

    fn key_of(name: &str) -> Result<Option<String>, String> {
        let files = [Some(Ok(CREDENTIALS.to_owned())), Some(Ok(CONFIG.to_owned()))];
        Ok(Profile::read(name, files)?.map(|key| {
            let session = key.session.as_deref().unwrap_or("-");
            format!("{} {} {session}", key.id, key.secret)
        }))
    }

    #[test]
    fn keys_come_from_both_files() {
        for (name, expected) in [
            ("default", Some("AKIDDEFAULT wJalr/XUtn+FEMI= -")),
            ("work", Some("AKIDWORK s3 t==")),
            ("half", Some("AKIDHALF h -")),
            ("nested", None),
            ("missing", None),
            ("corp", None),
        ] {
            assert_eq!(key_of(name), Ok(expected.map(str::to_owned)), "{name}");
        }
    }

    #[test]
    fn profile_without_written_keys_is_reported() {
        for (name, words) in
            [("role", "assumes a role"), ("two words", "sso_session"), ("tool", "runs a program")]
        {
            let problem = key_of(name).unwrap_err();
            assert!(problem.contains(words) && problem.contains("export-credentials"), "{problem}");
            assert!(!problem.contains("hidden-word"), "{problem}");
        }
        let unreadable = Profile::read("x", [Some(Err("denied".to_owned())), None]);
        assert_eq!(unreadable.err().as_deref(), Some("denied"));
    }
}
