//! Builds the settings of a run: of a new one from the files and the flags, of a stored one from the
//! journal and the flags.

use super::settings::{ROWS, SettingArgs, Settings};
use crate::config::settings::Stored;
use crate::config::trust::journal::Place;
use crate::config::trust::{self, Layers, seal};
use crate::failure::{Failure, Result};
use crate::output;
use endstop::journal::RecordedRun;
use std::path::Path;

impl Settings {
    /// Reads the settings of a new run in this folder: the files, and the flags over them.
    pub(crate) fn in_folder(
        args: &SettingArgs,
        config: Option<&Path>,
        folder: &Path,
    ) -> Result<Settings> {
        Settings::of_layers(&Layers::find(config, folder)?, args)
    }

    /// Reads the settings of these files, and the flags over them.
    pub(crate) fn of_layers(layers: &Layers, args: &SettingArgs) -> Result<Settings> {
        let mut settings = layers.settings(args)?;
        settings.above(args)?;
        layers.announce(&settings);
        let model = settings.model.as_deref();
        if let Some(warning) = settings.calibrated.as_mut().and_then(|own| own.check(model)) {
            output::note(&format!("endstop: warning: {warning}"));
        }
        Ok(settings)
    }

    /// Reads the settings of a stored run, and the flags over them. If the journal is not the user's own, its settings
    /// need consent.
    pub(crate) fn of_kept(
        run: &RecordedRun,
        args: &SettingArgs,
        place: &Place<'_>,
    ) -> Result<Settings> {
        let header = &run.header;
        let wrong = |problem: &str| Failure::usage(format!("run {}: {problem}", header.id));
        let restored = Settings::restored(&header.settings).ok_or_else(|| {
            wrong(&if header.settings["demo"].is_string() {
                "a demo has no model to continue with; set a model and start a run of your own: endstop run --model PROVIDER/MODEL \"TASK\"".to_owned()
            } else if header.settings["guard"] == true {
                format!("guard ran a program, which continues its own session: `endstop explain {}` shows how", header.id)
            } else {
                "it was not started by `endstop run`; resume it with the program that started it".to_owned()
            })
        })?;
        let mut settings = restored.map_err(|problem| wrong(&problem))?;
        if settings.replay && args.model.is_none() {
            return Err(wrong(
                "it was replayed from a recording (--replay), so it has no server to continue with; pass --model PROVIDER/MODEL and --accept-changes, or replay the recording again",
            ));
        }
        for row in &ROWS {
            if let Stored::Header(read, _) = row.stored {
                read(&mut settings, run)
                    .map_err(|problem| wrong(&format!("its {}: {problem}", row.name)))?;
            }
        }
        // The user's own ceilings apply to a resumed run as to a new one.
        let own = trust::journal::own_settings()?;
        settings.spend = settings.spend.below(&own.spend);
        settings.notify = own.notify;
        settings.stored_in = Some(place.journal.to_owned());
        // Consent is asked before the flags are merged, because flags come from the user and need
        // none.
        if !seal::fits(&header.settings, place.journal) {
            trust::journal::consent(&settings, &header.id, args, place)?;
        }
        settings.above(args)?;
        Ok(settings)
    }
}
