//! `loadgen check`: everything that is wrong with a scenario, at once.

use record::Exit;
use record::judgement::grouped;

use crate::cli::CheckOptions;
use crate::read::{NoScenario, scenario};
use crate::{Usage, answer};

pub(crate) fn check(options: CheckOptions) -> Result<Exit, Usage> {
    match scenario(&options.scenario) {
        Ok(scenario) => {
            if options.json {
                answer("[]");
            } else {
                let (agents, expected) = (grouped(scenario.agents()), scenario.expect.len());
                answer(&format!(
                    "{}: no mistake: {agents} agents, {expected} expectations",
                    options.scenario.scenario
                ));
            }
            Ok(Exit::Held)
        }
        Err(NoScenario::Mistakes(mistakes)) if options.json => {
            answer(&mistakes.to_json().to_string());
            Ok(Exit::Usage)
        }
        Err(NoScenario::Mistakes(mistakes)) => Err(Usage(mistakes.to_string())),
        Err(NoScenario::Unreadable(why)) => Err(Usage(why)),
    }
}
