//! The scenarios that come with the program, known by name.

use crate::mistake::suggest;

/// A scenario that comes with the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shipped {
    /// What `loadgen run NAME` calls it.
    pub name: &'static str,
    /// Its file's text.
    pub text: &'static str,
}

/// All of them.
pub const SHIPPED: &[Shipped] = &[
    Shipped {
        name: "steady",
        text: include_str!("../steady.toml"),
    },
    Shipped {
        name: "enrollment-storm",
        text: include_str!("../enrollment-storm.toml"),
    },
    Shipped {
        name: "ramp-to-1000",
        text: include_str!("../ramp-to-1000.toml"),
    },
    Shipped {
        name: "rotation-wave",
        text: include_str!("../rotation-wave.toml"),
    },
    Shipped {
        name: "operations-mix",
        text: include_str!("../operations-mix.toml"),
    },
    Shipped {
        name: "two-servers",
        text: include_str!("../two-servers.toml"),
    },
];

/// All of them.
pub const fn shipped() -> &'static [Shipped] {
    SHIPPED
}

/// The one of that name.
///
/// # Errors
/// There is none; says what is near, or what there is.
pub fn find(name: &str) -> Result<Shipped, String> {
    let found = SHIPPED.iter().find(|shipped| shipped.name == name);
    found.copied().ok_or_else(|| {
        let name = crate::mistake::shown(name);
        match suggest(&name, SHIPPED.iter().map(|shipped| shipped.name)) {
            crate::mistake::Suggestion::DidYouMean(near) => {
                format!("there is no scenario `{name}`; did you mean `{near}`?")
            }
            _ => {
                let names: Vec<&str> = SHIPPED.iter().map(|shipped| shipped.name).collect();
                format!(
                    "there is no scenario `{name}`; there are {}",
                    names.join(", ")
                )
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::scenario::Scenario;

    #[test]
    fn every_shipped_scenario_is_valid_and_named_as_it_is_called() {
        for shipped in shipped() {
            let scenario =
                Scenario::parse(shipped.name, shipped.text).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(scenario.name, shipped.name);
            assert!(!scenario.about.is_empty(), "{}", shipped.name);
            let schema = shipped
                .text
                .lines()
                .next()
                .and_then(|line| line.strip_prefix("#:schema "));
            let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(schema.unwrap_or_default());
            let schema: serde_json::Value =
                serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
            assert_eq!(schema["title"], "Scenario", "{}", shipped.name);
            assert!(shipped.text.contains("\n\n# "), "{}", shipped.name);
            let kept =
                Scenario::parse(shipped.name, &scenario.text).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(kept.expect, scenario.expect);
        }
    }

    #[test]
    fn a_name_that_is_none_gets_a_suggestion() {
        let rows = [
            (
                "stedy",
                "there is no scenario `stedy`; did you mean `steady`?",
            ),
            (
                "zzz",
                "there is no scenario `zzz`; there are steady, enrollment-storm, ramp-to-1000, rotation-wave, \
                 operations-mix, two-servers",
            ),
        ];
        for (name, error) in rows {
            assert_eq!(find(name).unwrap_err(), error);
        }
        assert_eq!(find("steady").unwrap().name, "steady");
    }
}
