//! `endstop completions` and `endstop man`: the shell completions and the man pages.

use crate::args::{Args, CompletionsArgs, ManArgs};
use crate::failure::{Failure, Result};
use crate::output;
use clap::CommandFactory;
use std::fs;

/// Prints the completions of a shell.
pub(crate) fn completions(args: &CompletionsArgs) -> u8 {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command(), "endstop", &mut text);
    output::unredacted_line(String::from_utf8_lossy(&text).trim_end());
    0
}

/// Prints the man page of the command, or writes the pages of all commands into a folder.
pub(crate) fn man(args: &ManArgs) -> Result {
    let Some(folder) = &args.folder else {
        let mut text = Vec::new();
        let rendered = clap_mangen::Man::new(command()).render(&mut text);
        rendered.map_err(|problem| Failure::fault(problem.to_string()))?;
        output::unredacted_line(String::from_utf8_lossy(&text).trim_end());
        return Ok(0);
    };
    fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(command(), folder)).map_err(
        |problem| Failure::usage(format!("{} cannot be written: {problem}", folder.display())),
    )?;
    Ok(0)
}

fn command() -> clap::Command {
    // The pages of `help` would repeat the others.
    Args::command().disable_help_subcommand(true)
}
