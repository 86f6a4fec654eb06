//! `endstop pages`: writes the shell completions and the man pages, for the archives of a release.

use crate::args::Args;
use crate::failure::{Failure, Result};
use clap::CommandFactory;
use clap_complete::{Shell, generate_to};
use std::fs;
use std::path::Path;

const SHELLS: [Shell; 4] = [Shell::Bash, Shell::Fish, Shell::PowerShell, Shell::Zsh];

/// Writes `completions` and `man` into the folder.
pub(crate) fn run(folder: &Path) -> Result {
    let (completions, man) = (folder.join("completions"), folder.join("man"));
    let written = || -> std::io::Result<()> {
        fs::create_dir_all(&completions)?;
        fs::create_dir_all(&man)?;
        // The pages of `help` would repeat the others.
        let mut command = Args::command().disable_help_subcommand(true);
        for shell in SHELLS {
            generate_to(shell, &mut command, "endstop", &completions)?;
        }
        clap_mangen::generate_to(command, &man)
    };
    written().map_err(|problem| {
        Failure::usage(format!("{} cannot be written: {problem}", folder.display()))
    })?;
    Ok(0)
}
