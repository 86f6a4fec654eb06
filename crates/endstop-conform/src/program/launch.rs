//! A program to start, with its profile.

use crate::profile::Profile;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A program to start in each case.
#[derive(Clone, Debug)]
pub struct Launch<'a> {
    /// The program and its arguments.
    pub command: &'a [OsString],
    /// Profile of the program; with guard, that of [`Profile::guarded`].
    pub profile: &'a Profile,
    /// The `endstop` whose guard stands in front of the program.
    pub guard: Option<OsString>,
    /// Time from the first call of a run after which it is stopped.
    pub patience: Duration,
    /// Names of variables of this process that the program gets in addition.
    pub pass: &'a [String],
    /// `true` if the program gets the working folder and the home of the user, and not fresh ones.
    pub in_place: bool,
    /// A number in the task, so that two runs of the suite differ in it.
    pub seed: u64,
}

/// Returns the command with absolute paths, because it is started in another folder: the program, and each word that names
/// a file of the working folder.
///
/// # Errors
/// There is no such program; the message says where it was looked for.
pub fn absolute(command: &[OsString], folder: &Path, path: &str) -> Result<Vec<OsString>, String> {
    let Some((program, words)) = command.split_first() else {
        return Err(
            "no program: give it after `--`, for example `endstop conform -- my-agent`".to_owned()
        );
    };
    let named = Path::new(program);
    let found = if named.components().count() > 1 {
        Some(folder.join(named)).filter(|file| file.is_file())
    } else {
        std::env::split_paths(path)
            .map(|place: PathBuf| place.join(named))
            .find(|file| file.is_file())
    };
    let Some(found) = found else {
        return Err(format!(
            "program {:?} not found: give its path, or add its folder to PATH",
            program.to_string_lossy()
        ));
    };
    let mut absolute = vec![found.into_os_string()];
    absolute.extend(words.iter().map(|word| {
        let file = folder.join(word);
        // A word such as `run` may name a folder by accident; a file that an interpreter runs has an extension.
        let is_script = Path::new(word).extension().is_some() && file.is_file();
        if is_script { file.into_os_string() } else { word.clone() }
    }));
    Ok(absolute)
}

#[cfg(test)]
mod tests {
    use super::absolute;
    use std::ffi::OsString;

    #[test]
    fn programs_and_scripts_get_absolute_paths() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("agent.py"), "").unwrap();
        std::fs::write(folder.path().join("python9"), "").unwrap();
        let path = folder.path().to_str().unwrap();
        let words: Vec<OsString> = ["python9", "agent.py", "run", "--flag"].map(Into::into).into();
        let made = absolute(&words, folder.path(), path).unwrap();
        assert_eq!(made[0], folder.path().join("python9"));
        assert_eq!(made[1], folder.path().join("agent.py"));
        assert_eq!(made[2..], words[2..]);
        let missing = absolute(&["no-such-agent".into()], folder.path(), path).unwrap_err();
        assert!(missing.contains("no-such-agent") && missing.contains("PATH"), "{missing}");
        assert!(absolute(&[], folder.path(), path).unwrap_err().contains("--"));
    }
}
