//! The agents of `endstop worker` that settings files define.
//!
//! ```text
//! let agent = DurableAgent::connect("reviewer", settings, None, notifier).await?; // servers, key, tools
//! let built = agent.build(&plan)?;                                      // for each attempt at a run
//! ```

use super::served::{ServedAgent, built};
use crate::config::park::ParkSettings;
use crate::config::settings::Settings;
use crate::failure::{Failure, Result};
use crate::notify::Notifier;
use endstop::Limits;
use endstop::wire::redact::KnownKeys;
use endstop_restate::{AgentSource, BudgetCeiling, BuiltAgent, RunPlan};

/// An agent of a settings file, whose calls that need approval park the run.
pub(crate) struct DurableAgent {
    served: ServedAgent,
    park: ParkSettings,
    budget: Option<BudgetCeiling>,
}

impl DurableAgent {
    /// Connects the servers of an agent, and reads its key.
    pub(crate) async fn connect(
        name: &str,
        settings: Settings,
        budget: Option<BudgetCeiling>,
        notifier: Notifier,
    ) -> Result<DurableAgent> {
        if settings.spend.budget(settings.project.as_deref(), false, None).is_err() {
            return Err(Failure::usage(
                "[spend]: the ceilings per day are kept in a journal file, which workers do not share; remove them, and \
                 set --shared-budget NAME=USD",
            ));
        }
        let park = settings.park.unwrap_or_default();
        let served = ServedAgent::connect(name, settings, None, notifier).await?;
        Ok(DurableAgent { served, park, budget })
    }

    /// Returns the secrets that must not be stored or shown.
    pub(crate) fn secrets(&self) -> &KnownKeys {
        self.served.secrets()
    }
}

impl AgentSource for DurableAgent {
    fn limits(&self) -> Limits {
        endstop_serve::AgentSource::limits(&self.served)
    }

    fn budget(&self) -> Option<BudgetCeiling> {
        self.budget.clone()
    }

    fn build(&self, plan: &RunPlan) -> std::result::Result<BuiltAgent, String> {
        let builder = self.served.builder(plan.limits.clone());
        let builder = builder
            .map(|builder| builder.journal(plan.journal.clone()).approver(self.park.approver()));
        let agent = builder.and_then(built).map_err(|failure| failure.message)?;
        let secrets = self.served.secrets().clone();
        Ok(BuiltAgent { agent, secrets, resources: Box::new(()) })
    }
}
