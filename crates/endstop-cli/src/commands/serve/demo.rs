//! The built-in agent of `endstop serve`: the scripts of `endstop demo`, with real tools, in a folder
//! of each run.

use crate::commands::demo;
use crate::telemetry;
use endstop::testkit::Server;
use endstop::{Limits, Permission};
use endstop_serve::{AgentSource, BuiltAgent, RunPlan};
use std::path::{Path, PathBuf};

/// The name of the agent.
pub(in crate::commands) const NAME: &str = "demo";

/// The tasks that choose another script than `fix`. `approve` is `fix`, with a question before each
/// command.
const SCRIPTS: [&str; 6] = ["approve", "loop", "cut", "budget", "cancel", "filtered"];

/// The built-in agent.
pub(in crate::commands) struct DemoAgent {
    /// The folder with one folder for each run, which survives a restart.
    folder: PathBuf,
}

impl DemoAgent {
    /// Returns the agent for runs of this journal.
    pub(in crate::commands) fn next_to(journal: &Path) -> DemoAgent {
        let mut folder = journal.as_os_str().to_owned();
        folder.push(".demo");
        DemoAgent { folder: folder.into() }
    }

    /// Creates the folder of a run. A resumed run finds its own again, with what it has changed.
    fn folder_of(&self, run: &str) -> std::io::Result<PathBuf> {
        let dir = self.folder.join(run);
        if !dir.is_dir() {
            let mut builder = std::fs::DirBuilder::new();
            #[cfg(unix)]
            std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
            builder.recursive(true).create(&dir)?;
            demo::prepare(&dir, false)?;
        }
        Ok(dir)
    }
}

impl AgentSource for DemoAgent {
    fn limits(&self) -> Limits {
        // A waiting approval must not keep a demo forever.
        Limits { timeout: Some(std::time::Duration::from_secs(3600)), ..Limits::default() }
    }

    fn model(&self) -> Option<String> {
        Some("script".to_owned())
    }

    fn build(&self, plan: &RunPlan) -> Result<BuiltAgent, String> {
        let asked = plan.task.trim();
        let script = SCRIPTS.into_iter().find(|name| *name == asked).unwrap_or("fix");
        let plays = if script == "approve" { "fix" } else { script };
        let folder = self.folder_of(&plan.run_id);
        let dir = folder.map_err(|error| format!("{}: {error}", self.folder.display()))?;
        let server = Server::start(demo::script(plays));
        let server = server.map_err(|error| format!("the demo's server did not start: {error}"))?;
        let mut limits = plan.limits.clone();
        if script == "budget" {
            let ceiling = demo::limits(script).max_budget_usd;
            limits.max_budget_usd = limits.max_budget_usd.or(ceiling);
        }
        let builder = demo::builder(plays, &server, &dir, &limits, Some(&plan.journal));
        let mut builder = builder
            .map_err(|failure| failure.message)?
            .approval_events(true)
            .spans(telemetry::spans(Some(NAME)));
        if script == "approve" {
            builder = builder.permission("shell", Permission::Ask);
        }
        let agent = builder.build().map_err(|error| error.to_string())?;
        let secrets = endstop::process::environment_secrets();
        // A folder that is left behind costs a few kilobytes only.
        let at_end = move || drop(std::fs::remove_dir_all(dir));
        Ok(BuiltAgent {
            agent,
            secrets,
            resources: Box::new(server),
            at_end: Some(Box::new(at_end)),
        })
    }
}
