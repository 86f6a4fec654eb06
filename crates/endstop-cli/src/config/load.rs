//! Builds the settings of a run: of a new one from the files and the flags, of a stored one from the
//! journal and the flags.

use super::settings::{Saved, Settings};
use crate::args::RunArgs;
use crate::config::trust::{self, Layers, seal};
use crate::failure::{Failure, Result};
use crate::output;
use endstop::compaction::CompactionConfig;
use endstop::journal::RecordedRun;
use endstop::policy::Registry;
use std::collections::BTreeMap;
use std::path::Path;

impl Settings {
    /// Reads the settings of a new run: the files, and the flags over them.
    pub(crate) fn of(args: &RunArgs) -> Result<Settings> {
        Settings::in_folder(args, Path::new("."))
    }

    /// Reads the settings of a new run in this folder: the files, and the flags over them.
    pub(crate) fn in_folder(args: &RunArgs, folder: &Path) -> Result<Settings> {
        let layers = Layers::find(args, folder)?;
        let mut settings = layers.settings(args)?;
        settings.above(args)?;
        layers.announce(&settings);
        let model = settings.model.as_deref();
        if let Some(warning) = settings.calibrated.as_mut().and_then(|own| own.check(model)) {
            output::note(&format!("endstop: warning: {warning}"));
        }
        Ok(settings)
    }

    /// Reads the settings of a stored run, and the flags over them.
    ///
    /// `journal` is the file that the run was found in: if it is not the user's own, its settings
    /// need consent. `not_own` is the reason why the journal is not the user's own, determined
    /// before it was opened.
    pub(crate) fn of_kept(
        run: &RecordedRun,
        args: &RunArgs,
        journal: &Path,
        not_own: Option<String>,
    ) -> Result<Settings> {
        let header = &run.header;
        let wrong = |problem: String| Failure::usage(format!("run {}: {problem}", header.id));
        let saved: Saved = serde_json::from_value(header.settings.clone()).map_err(|_| {
            wrong(
                "it was not started by `endstop run`; resume it with the program that started it"
                    .to_owned(),
            )
        })?;
        if saved.replay && args.model.is_none() {
            return Err(wrong(
                "it was replayed from a recording (--replay), so it has no server to continue with; pass --model PROVIDER/MODEL and --accept-changes, or replay the recording again".to_owned(),
            ));
        }
        let mut settings = Settings {
            model: saved.model,
            fallback: saved.fallback,
            api: saved.api,
            base_url: saved.base_url,
            system: header.system.clone(),
            tools: saved.tools,
            background: saved.background,
            mcp: saved.mcp,
            ask: saved.ask,
            park: saved.park,
            dir: saved.dir,
            max_output_tokens: saved.max_output_tokens,
            verify: saved.verify,
            context_window: saved.context_window,
            no_stream: saved.no_stream,
            params: saved.params.into(),
            price: saved.price,
            limits: run.limits(),
            policy: None,
            // Always set, because the default rules of this version may differ from those of the
            // run.
            watches: Some(header.spec.watches.clone()),
            calibrated: saved.calibrated,
            project: saved.project,
            // The user's own ceilings apply to a resumed run as to a new one.
            spend: saved.spend.below(&trust::journal::own_settings()?.spend),
            output_schema: header.output_schema.clone(),
            journal: None,
            compaction: CompactionConfig::default(),
            replay: false,
            allow_http: saved.allow_http,
            http: saved.http,
            agents: BTreeMap::new(),
            stored_in: Some(journal.to_owned()),
            origins: BTreeMap::new(),
        };
        if let Some(said) = &saved.compaction {
            let config = CompactionConfig::read(said);
            settings.compaction =
                config.map_err(|problem| wrong(format!("its compaction: {problem}")))?;
        }
        if let Some(spec) = &header.policy {
            let policy = Registry::default().build(spec);
            settings.policy = Some(policy.map_err(|error| wrong(format!("its policy: {error}")))?);
        }
        // Consent is asked before the flags are merged, because flags come from the user and need
        // none.
        if !seal::fits(&header.settings, journal) {
            trust::journal::consent(&settings, &header.id, args, journal, not_own)?;
        }
        settings.above(args)?;
        Ok(settings)
    }
}
