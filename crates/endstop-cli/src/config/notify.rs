//! Notices for a person: the table `[notify]`, and `--notify`.
//!
//! ```toml
//! [notify]
//! command = "cat >> notices.jsonl"
//! webhook = "$SLACK_WEBHOOK"
//! thresholds = [80, 95]
//! ```

use crate::config::kind::{Kind, Members, Problem, json_value};
use crate::config::servers::{expanded, only_names_variables};
use endstop::core::limits::unknown_key;
use endstop::wire::endpoint::is_loopback;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use url::Url;

const KEYS: [&str; 3] = ["command", "webhook", "thresholds"];

/// Percentages of a limit at which a person is notified, unless the file names others.
const THRESHOLDS: [u8; 2] = [80, 95];

/// The table as a setting.
pub(crate) struct NotifyTable;

/// The table `[notify]`, as written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct NotifySettings {
    /// A command that reads a line of JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) command: Option<String>,
    /// An address that gets `{"text": …}`. Often a secret, and then a variable.
    #[serde(skip_serializing_if = "Option::is_none")]
    webhook: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thresholds: Option<Vec<u8>>,
}

impl Kind for NotifyTable {
    type Own = NotifySettings;
    type Flag = Option<String>;

    fn take(own: &mut NotifySettings, member: &str, value: &Value) -> Result<(), Problem> {
        own.take(member, value).map_err(Problem::Table)
    }

    fn above(own: &mut NotifySettings, given: &Option<String>, _: &str) -> Result<(), String> {
        if let Some(command) = given {
            own.command = Some(command.clone());
        }
        Ok(())
    }

    json_value!();
}

impl NotifySettings {
    /// Merges a member of the table.
    ///
    /// # Errors
    /// Describes the invalid value. An address is not quoted, because it may be a secret.
    fn take(&mut self, member: &str, value: &Value) -> Result<(), String> {
        let text = || {
            let text = value.as_str().filter(|text| !text.trim().is_empty());
            text.map(str::to_owned).ok_or_else(|| format!("`{member}`: expected a string"))
        };
        match member {
            "command" => self.command = Some(text()?),
            "webhook" => {
                let webhook = text()?;
                if !webhook.contains('$') {
                    parsed(&webhook, false).map_err(|problem| format!("`webhook`: {problem}"))?;
                }
                self.webhook = Some(webhook);
            }
            "thresholds" => self.thresholds = Some(thresholds(value)?),
            _ => return Err(format!("`{member}`: {}", unknown_key(member, &KEYS))),
        }
        Ok(())
    }

    /// Returns the table for display, without an address that may be a secret.
    pub(crate) fn shown(&self) -> Members {
        let host = |text: &String| {
            let host = Url::parse(text).ok().and_then(|url| url.host_str().map(str::to_owned));
            match host {
                _ if only_names_variables(text) => text.clone(),
                Some(host) => format!("{host}/…"),
                None => "…".to_owned(),
            }
        };
        vec![
            (".command".to_owned(), json!(self.command)),
            (".webhook".to_owned(), json!(self.webhook.as_ref().map(host))),
            (".thresholds".to_owned(), json!(self.percentages())),
        ]
    }

    /// Returns the percentages in rising order.
    pub(crate) fn percentages(&self) -> Vec<u8> {
        let mut all = self.thresholds.clone().unwrap_or_else(|| THRESHOLDS.to_vec());
        all.sort_unstable();
        all
    }

    /// Returns the address of the webhook, with its variables.
    ///
    /// # Errors
    /// A variable is not set, or the address is not valid.
    pub(crate) fn address(&self, allow_http: bool) -> Result<Option<Url>, String> {
        let Some(text) = &self.webhook else { return Ok(None) };
        let whole = expanded(text).map_err(|problem| format!("[notify]: `webhook`: {problem}"))?;
        let url = parsed(&whole, allow_http);
        url.map(Some).map_err(|problem| format!("[notify]: `webhook`: {problem}"))
    }
}

/// Reads an address.
fn parsed(text: &str, allow_http: bool) -> Result<Url, String> {
    let wrong = || "expected https://HOST/PATH, or a variable as `$NAME`".to_owned();
    let url = Url::parse(text.trim()).map_err(|_| wrong())?;
    let host = url.host_str().ok_or_else(wrong)?;
    match url.scheme() {
        "https" => Ok(url),
        // Every machine on the way could read the address, which is the key of most webhooks.
        "http" if allow_http || is_loopback(host) => Ok(url),
        "http" => Err("it would be called without encryption; use https".to_owned()),
        _ => Err(wrong()),
    }
}

fn thresholds(value: &Value) -> Result<Vec<u8>, String> {
    let wrong = |what: &str| {
        format!(
            "`thresholds`: {what}; expected whole percentages from 1 to 100, for example [80, 95]"
        )
    };
    let list = value.as_array().ok_or_else(|| wrong("not a list"))?;
    let mut all = Vec::new();
    for one in list {
        let percent = one.as_u64().and_then(|percent| u8::try_from(percent).ok());
        let percent = percent.filter(|percent| (1..=100).contains(percent));
        let percent = percent.ok_or_else(|| wrong(&format!("`{one}` is not one")))?;
        if all.contains(&percent) {
            return Err(wrong(&format!("`{percent}` is there twice")));
        }
        all.push(percent);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_members_name_the_fix() {
        for (member, value, says) in [
            ("thresholds", json!([80, 120]), "`120` is not one; expected whole percentages"),
            ("thresholds", json!([0]), "`0` is not one"),
            ("thresholds", json!([-5]), "`-5` is not one"),
            ("thresholds", json!([80.5]), "`80.5` is not one"),
            ("thresholds", json!([80, 80]), "`80` is there twice"),
            ("thresholds", json!(80), "not a list"),
            ("webhook", json!("ftp://x/y"), "expected https://HOST/PATH"),
            ("webhook", json!("hooks.example/T0"), "expected https://HOST/PATH"),
            ("webhook", json!("http://hooks.example/secret"), "use https"),
            ("webhook", json!(""), "expected a string"),
            ("comand", json!("true"), "command"),
        ] {
            let error = NotifySettings::default().take(member, &value).unwrap_err();
            assert!(error.contains(says) && !error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn literal_address_is_not_shown() {
        let mut settings = NotifySettings::default();
        settings.take("webhook", &json!("https://hooks.example/T0/secret")).unwrap();
        settings.take("thresholds", &json!([95, 50])).unwrap();
        assert_eq!(settings.percentages(), [50, 95]);
        let shown = format!("{:?}", settings.shown());
        assert!(shown.contains("hooks.example") && !shown.contains("secret"), "{shown}");
        assert_eq!(NotifySettings::default().percentages(), [80, 95]);
    }
}
