//! The tools of a run, by name.
//!
//! ```
//! use endstop::tool::{ReadFile, Shell, ToolSet};
//! let mut tools = ToolSet::default();
//! tools.add(Shell::default())?;
//! tools.add(ReadFile::default())?;
//! assert_eq!(tools.names().collect::<Vec<_>>(), ["shell", "read_file"]);
//! assert!(tools.add(Shell::default()).is_err()); // `replace` is explicit
//! assert!(tools.get("shel").err().unwrap().to_string().contains("did you mean `shell`?"));
//! # Ok::<(), endstop::tool::ToolSetError>(())
//! ```

use super::Tool;
use std::fmt;
use std::sync::Arc;

/// Tools in the order in which they were added, so that the tool definitions for the model are the
/// same in every run.
#[derive(Clone, Default)]
pub struct ToolSet(Vec<Arc<dyn Tool>>);

/// The reason why a tool could not be added or found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ToolSetError {
    /// There already is a tool with that name.
    #[error("there are two tools named `{0}`: rename one, or replace it")]
    Duplicate(String),
    /// There is no tool with that name.
    #[error("tool `{name}`: {}", unknown(.name, .choices))]
    Unknown {
        /// The requested name.
        name: String,
        /// The existing names.
        choices: Vec<String>,
    },
    /// The name is one that providers would refuse.
    #[error("invalid tool name `{0}`: expected 1 to 64 letters, digits, `_` and `-`")]
    Name(String),
}

/// Names the choices, and the one that was probably meant.
fn unknown(name: &str, choices: &[String]) -> String {
    if choices.is_empty() {
        return "there are no tools".to_owned();
    }
    if name.split(',').skip(1).any(|part| choices.iter().any(|known| known == part.trim())) {
        let each: Vec<String> = name.split(',').map(|part| format!("`{}`", part.trim())).collect();
        return format!("several names in one; give each tool by itself: {}", each.join(", "));
    }
    let choices: Vec<&str> = choices.iter().map(String::as_str).collect();
    endstop_core::limits::unknown_key(name, &choices)
}

impl ToolSet {
    /// Adds a tool.
    ///
    /// # Errors
    /// There already is a tool with that name, or providers would refuse the name.
    pub fn add(&mut self, tool: impl Tool + 'static) -> Result<(), ToolSetError> {
        self.add_shared(Arc::new(tool))
    }

    /// Adds a shared tool.
    ///
    /// # Errors
    /// The same as [`add`](ToolSet::add).
    pub fn add_shared(&mut self, tool: Arc<dyn Tool>) -> Result<(), ToolSetError> {
        check_name(tool.name())?;
        if self.find(tool.name()).is_some() {
            return Err(ToolSetError::Duplicate(tool.name().to_owned()));
        }
        self.0.push(tool);
        Ok(())
    }

    /// Replaces the tool with the same name and returns the old one.
    ///
    /// # Errors
    /// There is no tool with that name.
    pub fn replace(&mut self, tool: impl Tool + 'static) -> Result<Arc<dyn Tool>, ToolSetError> {
        match self.0.iter_mut().find(|old| old.name() == tool.name()) {
            Some(old) => Ok(std::mem::replace(old, Arc::new(tool))),
            None => Err(self.unknown(tool.name())),
        }
    }

    /// Returns the tool with that name.
    ///
    /// # Errors
    /// There is no tool with that name. The message lists the choices.
    pub fn get(&self, name: &str) -> Result<&Arc<dyn Tool>, ToolSetError> {
        self.find(name).ok_or_else(|| self.unknown(name))
    }

    /// Returns the names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(Tool::name)
    }

    /// Returns the tools, in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Arc<dyn Tool>> {
        self.0.iter()
    }

    /// Returns the number of tools.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// `true` if there are no tools.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn find(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.0.iter().find(|tool| tool.name() == name)
    }

    fn unknown(&self, name: &str) -> ToolSetError {
        let choices = self.names().map(str::to_owned).collect();
        ToolSetError::Unknown { name: name.to_owned(), choices }
    }
}

impl IntoIterator for ToolSet {
    type Item = Arc<dyn Tool>;
    type IntoIter = std::vec::IntoIter<Arc<dyn Tool>>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a ToolSet {
    type Item = &'a Arc<dyn Tool>;
    type IntoIter = std::slice::Iter<'a, Arc<dyn Tool>>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Debug for ToolSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

fn check_name(name: &str) -> Result<(), ToolSetError> {
    // The rule of OpenAI's API for function names.
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if (1..=64).contains(&name.len()) && name.bytes().all(fits) {
        Ok(())
    } else {
        Err(ToolSetError::Name(name.to_owned()))
    }
}
