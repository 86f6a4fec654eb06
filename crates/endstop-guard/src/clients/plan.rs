//! A wiring while it is made.
//!
//! ```text
//! plan.set("ANTHROPIC_BASE_URL", plan.url(""));
//! plan.upstream(&[WireFormat::Anthropic], "https://gateway.example", Source::Default);
//! ```

use super::command::Command;
use super::parse::{self, is_base_url};
use super::request::Request;
use super::wiring::{Source, TempFile, Warning, Wiring};
use endstop_wire::WireFormat;
use endstop_wire::catalog::providers::public_base_url;
use serde_json::Value;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Maximum number of folders above the working folder whose files are looked at.
const MOST_FOLDERS: usize = 40;

pub(super) struct Plan<'a> {
    pub(super) request: &'a Request<'a>,
    pub(super) command: Command,
    pub(super) wiring: Wiring,
    /// Formats whose upstream is not valid.
    broken: Vec<WireFormat>,
}

impl<'a> Plan<'a> {
    pub(super) fn new(request: &'a Request<'a>, command: Command) -> Plan<'a> {
        let mut wiring = Wiring::default();
        let cleared_by = command.cleared_by.clone();
        wiring.changes_user = command.changes_user();
        wiring.warnings.extend(cleared_by.map(|word| Warning::EnvironmentCleared { word }));
        Plan { request, command, wiring, broken: Vec::new() }
    }

    /// Returns a variable that the program would see. An empty one counts as not set.
    pub(super) fn var(&self, name: &str) -> Option<&str> {
        let assigned = self.command.assignments.iter().rev().find(|(_, known, _)| known == name);
        let value = match assigned {
            Some((_, _, value)) => Some(value.as_str()),
            None => self.request.environment.get(name).map(String::as_str),
        };
        value.filter(|value| !value.is_empty())
    }

    /// Returns the address of the proxy with a path after it.
    pub(super) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.request.proxy.trim_end_matches('/'))
    }

    pub(super) fn set(&mut self, name: &str, value: impl Into<String>) {
        self.wiring.env.retain(|(known, _)| known != name);
        self.wiring.env.push((name.to_owned(), value.into()));
    }

    pub(super) fn warn(&mut self, warning: Warning) {
        if !self.wiring.warnings.contains(&warning) {
            self.wiring.warnings.push(warning);
        }
    }

    /// Inserts arguments after the name of the program.
    pub(super) fn insert(&mut self, arguments: &[&str]) {
        let at = self.command.after;
        self.command.words.splice(at..at, arguments.iter().map(OsString::from));
        for (index, ..) in &mut self.command.assignments {
            // Assignments stand before the program, so they do not move.
            debug_assert!(*index < at, "an assignment after the program");
        }
    }

    /// Inserts arguments after the last of these options, or after the name of the program if there is none of them.
    pub(super) fn insert_after(&mut self, options: &[&str], arguments: &[&str]) {
        let last = options.iter().filter_map(|name| self.command.option(name));
        match last.map(|(words, _)| words.end).max() {
            Some(at) => {
                self.command.words.splice(at..at, arguments.iter().map(OsString::from));
            }
            None => self.insert(arguments),
        }
    }

    /// Adds a temporary file and returns its path.
    pub(super) fn file(&mut self, name: &str, text: String) -> String {
        self.wiring.files.push(TempFile { path: name.into(), text });
        self.request.private.join(name).display().to_string()
    }

    /// Returns a path in the user's home folder.
    pub(super) fn home(&self, path: &str) -> Option<PathBuf> {
        let home = self.var("HOME").or_else(|| self.var("USERPROFILE"))?;
        Some(Path::new(home).join(path))
    }

    /// Names the upstream of formats, which replaces an earlier one.
    pub(super) fn upstream(&mut self, formats: &[WireFormat], base: &str, source: Source) {
        self.wiring.upstreams.retain(|(format, ..)| !formats.contains(format));
        self.broken.retain(|format| !formats.contains(format));
        if self.is_proxy(base) {
            self.warn(Warning::UpstreamIsProxy { source });
        } else if is_base_url(base) {
            let base = base.trim_end_matches('/');
            let new = formats.iter().map(|format| (*format, base.to_owned(), source.clone()));
            self.wiring.upstreams.extend(new);
        } else {
            self.broken.extend(formats);
            self.warn(Warning::InvalidUpstream { source });
        }
    }

    /// Names the upstream of a service below a prefix, and returns the proxy's address for it. Its calls have the format
    /// of another provider, whose upstream must not get its key.
    pub(super) fn service(&mut self, prefix: &'static str, base: &str, source: Source) -> String {
        if self.is_proxy(base) {
            self.warn(Warning::UpstreamIsProxy { source });
        } else if is_base_url(base) {
            let base = base.trim_end_matches('/').to_owned();
            self.wiring.services.push((prefix, base, source));
        } else {
            self.warn(Warning::InvalidUpstream { source });
        }
        self.url(prefix)
    }

    /// `true` if a base URL is the address of the proxy.
    fn is_proxy(&self, base: &str) -> bool {
        let origin = self.request.proxy.splitn(4, '/').take(3).collect::<Vec<_>>().join("/");
        base.strip_prefix(&origin).is_some_and(|r| r.is_empty() || r.starts_with('/'))
    }

    /// Reads a file of the user as JSON. An unreadable one is reported and counts as missing.
    pub(super) fn user_json(&mut self, path: &Path) -> Option<Value> {
        self.user_file(path, parse::json)
    }

    /// Reads a file of the user as TOML.
    pub(super) fn user_toml(&mut self, path: &Path) -> Option<Value> {
        self.user_file(path, parse::toml)
    }

    /// Reads a file of the user as lines of variables.
    pub(super) fn user_text(&mut self, path: &Path) -> Option<String> {
        let read = self.request.files.read(path);
        read.unwrap_or_else(|problem| {
            self.warn(Warning::UnreadableFile { file: path.to_owned(), problem });
            None
        })
    }

    fn user_file(
        &mut self,
        path: &Path,
        parse: fn(&str) -> Result<Value, String>,
    ) -> Option<Value> {
        match parse(&self.user_text(path)?) {
            Ok(value) => Some(value),
            Err(problem) => {
                self.warn(Warning::UnreadableFile { file: path.to_owned(), problem });
                None
            }
        }
    }

    /// Reports the settings of a repository's file that name an upstream: files with one of these
    /// names in the working folder and above. `settings` returns the names of such settings. Files of
    /// the user (`own`) are left out. Returns `true` if there is one.
    pub(super) fn report_repository(
        &mut self,
        names: &[&str],
        own: &[PathBuf],
        settings: impl Fn(&str) -> Vec<String>,
    ) -> bool {
        // Clients look upwards to the root of the repository, which need not be the working folder.
        let folders: Vec<&Path> = self.request.folder.ancestors().take(MOST_FOLDERS).collect();
        let mut found = false;
        for file in folders.iter().flat_map(|folder| names.iter().map(|name| folder.join(name))) {
            if own.contains(&file) {
                continue;
            }
            // An unreadable file of a repository is not the user's problem.
            let Ok(Some(text)) = self.request.files.read(&file) else { continue };
            for setting in settings(&text) {
                found = true;
                self.warn(Warning::RepositoryUpstream { file: file.clone(), setting });
            }
        }
        found
    }

    /// Completes the wiring.
    pub(super) fn finish(mut self) -> Wiring {
        for &format in WireFormat::ALL {
            let Some(base) = public_base_url(format) else { continue };
            // A broken one gets no default: the key is for the server that the user meant.
            let known = self.wiring.upstreams.iter().any(|(known, ..)| *known == format);
            if !known && !self.broken.contains(&format) {
                self.wiring.upstreams.push((format, base.to_owned(), Source::Default));
            }
        }
        // `env NAME=VALUE program` would set the variable again, after us.
        for (index, name, _) in &self.command.assignments {
            if let Some(value) = self.wiring.variable(name) {
                self.command.words[*index] = format!("{name}={value}").into();
            }
        }
        self.wiring.command = self.command.words;
        self.wiring
    }
}
