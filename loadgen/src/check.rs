//! `loadgen check`: everything that is wrong with a scenario, at once.

use record::Exit;
use record::judgement::grouped;
use scenario::Host;

use crate::cli::CheckOptions;
use crate::read::scenario;
use crate::{Usage, answer};

pub(crate) fn check(options: CheckOptions) -> Result<Exit, Usage> {
    match scenario(&options.scenario) {
        Ok(scenario) => {
            if options.json {
                answer("[]");
            } else {
                let file = &options.scenario.scenario;
                let agents = counted(scenario.agents(), "agent");
                let expected = counted(scenario.expect.len() as u64, "expectation");
                answer(&format!("{file}: no mistake: {agents}, {expected}"));
                for without_data in scenario.without_data(Host::Embedded) {
                    answer(&format!("{file}: NO_DATA ahead: {without_data}"));
                }
            }
            Ok(Exit::Held)
        }
        Err(none) if options.json => {
            answer(&none.to_json(&options.scenario.scenario).to_string());
            Ok(Exit::Usage)
        }
        Err(none) => Err(none.into()),
    }
}

pub(crate) fn counted(count: u64, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {what}{plural}", grouped(count))
}
