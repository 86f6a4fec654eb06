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

/// Tools by name, in the order in which they were added: what the model is told stays the same
/// from run to run.
#[derive(Clone, Default)]
pub struct ToolSet(Vec<Arc<dyn Tool>>);

/// Why a tool could not be added or found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ToolSetError {
    /// There is a tool of that name.
    Duplicate(String),
    /// There is no tool of that name.
    Unknown {
        /// The name that was asked for.
        name: String,
        /// The names that there are.
        choices: Vec<String>,
    },
    /// Providers would refuse the name.
    Name(String),
}

impl fmt::Display for ToolSetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ToolSetError::Duplicate(name) => {
                write!(f, "there are two tools named `{name}`: rename one, or replace it")
            }
            ToolSetError::Unknown { name, choices } if choices.is_empty() => {
                write!(f, "tool `{name}`: there are no tools")
            }
            ToolSetError::Unknown { name, choices } => {
                let choices: Vec<&str> = choices.iter().map(String::as_str).collect();
                let problem = endstop_core::limits::unknown_key(name, &choices);
                write!(f, "tool `{name}`: {problem}")
            }
            ToolSetError::Name(name) => write!(
                f,
                "`{name}` is no name for a tool: it takes 1 to 64 letters, digits, `_` and `-`"
            ),
        }
    }
}

impl std::error::Error for ToolSetError {}

impl ToolSet {
    /// Adds a tool.
    ///
    /// # Errors
    /// A tool of that name is there, or providers would refuse the name.
    pub fn add(&mut self, tool: impl Tool + 'static) -> Result<(), ToolSetError> {
        self.add_shared(Arc::new(tool))
    }

    /// Adds a tool that is shared.
    ///
    /// # Errors
    /// As [`add`](ToolSet::add).
    pub fn add_shared(&mut self, tool: Arc<dyn Tool>) -> Result<(), ToolSetError> {
        check_name(tool.name())?;
        if self.find(tool.name()).is_some() {
            return Err(ToolSetError::Duplicate(tool.name().to_owned()));
        }
        self.0.push(tool);
        Ok(())
    }

    /// Puts a tool in the place of the one of its name; the old one comes back.
    ///
    /// # Errors
    /// There is none of its name.
    pub fn replace(&mut self, tool: impl Tool + 'static) -> Result<Arc<dyn Tool>, ToolSetError> {
        match self.0.iter_mut().find(|old| old.name() == tool.name()) {
            Some(old) => Ok(std::mem::replace(old, Arc::new(tool))),
            None => Err(self.unknown(tool.name())),
        }
    }

    /// The tool of that name.
    ///
    /// # Errors
    /// There is none; the message names the choices.
    pub fn get(&self, name: &str) -> Result<&Arc<dyn Tool>, ToolSetError> {
        self.find(name).ok_or_else(|| self.unknown(name))
    }

    /// The names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|tool| tool.name())
    }

    /// The tools, in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Arc<dyn Tool>> {
        self.0.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
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
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if (1..=64).contains(&name.len()) && name.bytes().all(fits) {
        Ok(())
    } else {
        Err(ToolSetError::Name(name.to_owned()))
    }
}
