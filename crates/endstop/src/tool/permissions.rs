//! Which tools may be run, which must be asked about, which may not.
//!
//! ```
//! use endstop::Permission;
//! use endstop::tool::Permissions;
//! let rules = Permissions::default().allow("read_*").ask("*_file").deny("shell");
//! assert_eq!(rules.of("shell"), Permission::Deny);
//! assert_eq!(rules.of("write_file"), Permission::Ask);
//! assert_eq!(rules.of("read_file"), Permission::Ask); // the stricter of two rules counts
//! assert_eq!(rules.of("read_clock"), Permission::Allow);
//! ```

use super::Tool;
use endstop_core::Permission;

/// Rules by name; `*` stands for any text. Where several rules fit, the strictest counts,
/// whatever their order: deny, then ask, then allow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Permissions {
    rules: Vec<(String, Permission)>,
    otherwise: Permission,
    machine: Permission,
}

impl Permissions {
    /// What counts for tools that no rule names (allow, unless told otherwise).
    #[must_use]
    pub fn otherwise(mut self, permission: Permission) -> Permissions {
        self.otherwise = permission;
        self
    }

    /// What counts for tools that touch the machine and that no rule names, where it is stricter.
    #[must_use]
    pub fn touching_machine(mut self, permission: Permission) -> Permissions {
        self.machine = permission;
        self
    }

    /// Tools of such names may be run.
    #[must_use]
    pub fn allow(self, pattern: impl Into<String>) -> Permissions {
        self.rule(pattern, Permission::Allow)
    }

    /// A person is asked before each call of tools of such names.
    #[must_use]
    pub fn ask(self, pattern: impl Into<String>) -> Permissions {
        self.rule(pattern, Permission::Ask)
    }

    /// Tools of such names may not be run.
    #[must_use]
    pub fn deny(self, pattern: impl Into<String>) -> Permissions {
        self.rule(pattern, Permission::Deny)
    }

    /// What counts for a tool of this name, by its name alone.
    pub fn of(&self, name: &str) -> Permission {
        self.named(name).unwrap_or(self.otherwise)
    }

    /// What counts for this tool.
    pub fn of_tool(&self, tool: &dyn Tool) -> Permission {
        self.named(tool.name()).unwrap_or_else(|| {
            if tool.touches_machine() {
                stricter(self.otherwise, self.machine)
            } else {
                self.otherwise
            }
        })
    }

    /// The patterns of rules that fit none of these names: most likely misspelt.
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
            .reduce(stricter)
    }
}

fn stricter(a: Permission, b: Permission) -> Permission {
    match (a, b) {
        (Permission::Deny, _) | (_, Permission::Deny) => Permission::Deny,
        (Permission::Ask, _) | (_, Permission::Ask) => Permission::Ask,
        (Permission::Allow, Permission::Allow) => Permission::Allow,
    }
}

/// Whether a name fits a pattern in which `*` stands for any text: the first piece at the start,
/// the last at the end, the others one after another where they are first found.
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
