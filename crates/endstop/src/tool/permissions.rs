//! Permission rules: which tools may run, need approval, or are denied.
//!
//! ```
//! use endstop::Permission;
//! use endstop::tool::Permissions;
//! let rules = Permissions::default().allow("read_*").ask("*_file").deny("shell");
//! assert_eq!(rules.of("shell"), Permission::Deny);
//! assert_eq!(rules.of("write_file"), Permission::Ask);
//! assert_eq!(rules.of("read_file"), Permission::Ask); // the stricter of two rules applies
//! assert_eq!(rules.of("read_clock"), Permission::Allow);
//! ```

use super::Tool;
use endstop_core::Permission;

/// Rules by tool name; `*` matches any text. If several rules match, the strictest applies,
/// regardless of their order: deny, then ask, then allow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Permissions {
    rules: Vec<(String, Permission)>,
    otherwise: Permission,
    machine: Permission,
}

impl Permissions {
    /// Sets the permission of tools that no rule matches (default: allow).
    #[must_use]
    pub fn otherwise(mut self, permission: Permission) -> Permissions {
        self.otherwise = permission;
        self
    }

    /// Sets the permission of tools that touch the machine and that no rule matches, if it is
    /// stricter than the one for other tools.
    #[must_use]
    pub fn touching_machine(mut self, permission: Permission) -> Permissions {
        self.machine = permission;
        self
    }

    /// Allows tools that match the pattern.
    #[must_use]
    pub fn allow(self, pattern: impl Into<String>) -> Permissions {
        self.rule(pattern, Permission::Allow)
    }

    /// Requires approval before each call of tools that match the pattern.
    #[must_use]
    pub fn ask(self, pattern: impl Into<String>) -> Permissions {
        self.rule(pattern, Permission::Ask)
    }

    /// Denies tools that match the pattern.
    #[must_use]
    pub fn deny(self, pattern: impl Into<String>) -> Permissions {
        self.rule(pattern, Permission::Deny)
    }

    /// Returns the permission for this name, ignoring what the tool does.
    pub fn of(&self, name: &str) -> Permission {
        self.named(name).unwrap_or(self.otherwise)
    }

    /// Returns the permission of this tool.
    pub fn of_tool(&self, tool: &dyn Tool) -> Permission {
        self.named(tool.name()).unwrap_or_else(|| {
            if tool.touches_machine() {
                self.otherwise.stricter(self.machine)
            } else {
                self.otherwise
            }
        })
    }

    /// Returns the patterns that match none of these names, most likely because of a typo.
    pub fn idle<'a>(&'a self, names: &[&str]) -> impl Iterator<Item = &'a str> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        self.rules
            .iter()
            .map(|(pattern, _)| pattern.as_str())
            .filter(move |pattern| !names.iter().any(|name| fits(pattern, name)))
    }

    /// Adds a rule.
    #[must_use]
    pub fn rule(mut self, pattern: impl Into<String>, permission: Permission) -> Permissions {
        self.rules.push((pattern.into(), permission));
        self
    }

    fn named(&self, name: &str) -> Option<Permission> {
        self.rules
            .iter()
            .filter(|(pattern, _)| fits(pattern, name))
            .map(|(_, permission)| *permission)
            .reduce(Permission::stricter)
    }
}

/// `true` if the name matches the pattern, in which `*` matches any text. The first piece is
/// anchored at the start, the last at the end; each piece between matches at its first occurrence.
fn fits(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut left) = name.strip_prefix(first) else { return false };
    let (between, last) = rest.rsplit_once('*').unwrap_or(("", rest));
    for piece in between.split('*') {
        match left.find(piece) {
            Some(at) => left = &left[at + piece.len()..],
            None => return false,
        }
    }
    // Check only what is left, so that the last piece does not overlap an earlier one.
    left.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn patterns() {
        for (pattern, name) in [
            ("shell", "shell"),
            ("*", ""),
            ("*", "x"),
            ("read_*", "read_file"),
            ("*_file", "read_file"),
            ("a*b*c", "a__b__c"),
            ("a*b*c", "abc"),
            ("**", "x"),
            ("mcp*__*", "mcp__git__log"),
        ] {
            assert!(fits(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in
            [("shell", "shell2"), ("read_*", "bread_x"), ("aa*aa", "aaa"), ("a*b*c", "acb")]
        {
            assert!(!fits(pattern, name), "{pattern} {name}");
        }
    }
}
