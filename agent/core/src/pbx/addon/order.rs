//! The order of work on add-ons: what is required comes first, and a cycle is named (ADD-16).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use protocol::id::AddonName;
use protocol::pbx::release::AddonTemplate;

/// What the add-ons of a release require of each other; what it does not have is passed over.
pub(super) struct Requirements<'a>(BTreeMap<&'a AddonName, &'a AddonTemplate>);

impl<'a> Requirements<'a> {
    pub(super) fn new(addons: &'a [AddonTemplate]) -> Self {
        // Of two with one name the first counts.
        Self(
            addons
                .iter()
                .rev()
                .map(|addon| (&addon.name, addon))
                .collect(),
        )
    }

    /// What an add-on requires.
    fn of(&self, name: &AddonName) -> impl Iterator<Item = &'a AddonName> + use<'a> {
        let addon = self.0.get(name).copied();
        addon.into_iter().flat_map(|addon| &addon.requires)
    }

    /// These add-ons in the order of work: each behind all that it requires, else as they are given.
    pub(super) fn order(&self, names: &[AddonName]) -> Vec<AddonName> {
        let mut order = Order {
            requirements: self,
            wanted: names.iter().collect(),
            seen: BTreeSet::new(),
            names: Vec::with_capacity(names.len()),
        };
        for name in names {
            order.visit(name);
        }
        order.names
    }

    /// The shortest way from an add-on to itself, if there is one: `a b a`.
    pub(super) fn cycle(&self, name: &AddonName) -> Option<Vec<AddonName>> {
        let mut came_from: BTreeMap<&AddonName, Option<&AddonName>> = BTreeMap::new();
        let mut next: VecDeque<(Option<&AddonName>, &AddonName)> =
            self.of(name).map(|required| (None, required)).collect();
        while let Some((from, at)) = next.pop_front() {
            if came_from.contains_key(at) {
                continue;
            }
            came_from.insert(at, from);
            if at == name {
                let mut way = vec![name.clone()];
                let mut back = from;
                while let Some(step) = back {
                    way.push(step.clone());
                    back = came_from.get(step).copied().flatten();
                }
                way.push(name.clone());
                way.reverse();
                return Some(way);
            }
            next.extend(self.of(at).map(|required| (Some(at), required)));
        }
        None
    }
}

struct Order<'a> {
    requirements: &'a Requirements<'a>,
    wanted: BTreeSet<&'a AddonName>,
    seen: BTreeSet<&'a AddonName>,
    names: Vec<AddonName>,
}

impl<'a> Order<'a> {
    fn visit(&mut self, name: &'a AddonName) {
        if !self.seen.insert(name) {
            return;
        }
        for required in self.requirements.of(name) {
            self.visit(required);
        }
        if self.wanted.contains(name) {
            self.names.push(name.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addons(text: &str) -> Vec<AddonTemplate> {
        let addon = |line: &str| {
            let (name, requires) = line.split_once(':').unwrap();
            AddonTemplate {
                name: name.parse().unwrap(),
                requires: requires
                    .split_whitespace()
                    .map(|it| it.parse().unwrap())
                    .collect(),
                conflicts: Vec::new(),
                template: String::new(),
                health: None,
            }
        };
        text.split(',').map(|line| addon(line.trim())).collect()
    }

    fn words(names: &[AddonName]) -> String {
        let names: Vec<&str> = names.iter().map(AddonName::as_str).collect();
        names.join(" ")
    }

    // rule ADD-16
    #[test]
    fn add_16_what_is_required_comes_first_and_a_cycle_is_named() {
        let rows: &[(&str, &str, &[&str])] = &[
            ("a:, b:, c:", "a b c", &[]),
            ("a: b, b: c, c:", "c b a", &[]),
            ("a: b c, b: d, c: d, d:", "d b c a", &[]),
            ("a: nobody, b:", "a b", &[]),
            ("a: a", "a", &["a a"]),
            ("a: b, b: a, c: a", "b a c", &["a b a", "b a b"]),
            (
                "d:, a: b, b: c, c: a",
                "d c b a",
                &["a b c a", "b c a b", "c a b c"],
            ),
            // The shortest way, and no add-on of a knot is forgotten.
            (
                "a: b c, b: a, c: b",
                "b c a",
                &["a b a", "b a b", "c b a c"],
            ),
        ];
        for (text, names, cycles) in rows {
            let addons = addons(text);
            let requirements = Requirements::new(&addons);
            let all: Vec<AddonName> = addons.iter().map(|addon| addon.name.clone()).collect();
            assert_eq!(words(&requirements.order(&all)), *names, "{text}");
            let found = all.iter().filter_map(|name| requirements.cycle(name));
            let found: Vec<String> = found.map(|way| words(&way)).collect();
            assert_eq!(found, *cycles, "{text}");
        }
    }

    // The order goes through what is not asked for.
    #[test]
    fn the_order_of_some_is_that_of_all() {
        let addons = addons("a: b, b: c, c:");
        let some = ["a", "c"].map(|name| name.parse().unwrap());
        assert_eq!(words(&Requirements::new(&addons).order(&some)), "c a");
    }
}
