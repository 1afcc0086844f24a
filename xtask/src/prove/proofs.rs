//! What is proved: tests that the test command runs through a few seeds of, run through all of them.

/// Tests that are run through much.
#[derive(Debug)]
pub(super) struct Proof {
    /// Its name on the command line.
    pub(super) name: &'static str,
    /// What it shows.
    pub(super) shows: &'static str,
    /// The test's target, in the package `fleet-sim`.
    pub(super) target: &'static str,
    /// The test's name.
    pub(super) test: &'static str,
    /// Variables that it is run with, beside its seeds.
    pub(super) variables: &'static [(&'static str, &'static str)],
    /// The seeds; none for a test that has no chance in it.
    pub(super) seeds: Option<Seeds>,
}

/// Seeds, and how they are parted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seeds {
    pub(super) all: u64,
    pub(super) a_part: u64,
}

/// All proofs.
pub(super) const PROOFS: &[Proof] = &[
    Proof {
        name: "crash-matrix",
        shows: "every operation, crashed at every point of every step and then at every point of its recovery, ends as it must",
        target: "crash_matrix",
        test: "every_operation_survives_a_crash_at_every_point_and_another_one_while_it_recovers",
        variables: &[("PBX_LAB_MATRIX", "all")],
        seeds: None,
    },
    Proof {
        name: "small-fleets",
        shows: "whatever goes wrong in a fleet of one to four, every agent ends well, and the run can be repeated",
        target: "simulation",
        test: "property::whatever_goes_wrong_every_agent_ends_well_and_the_run_can_be_repeated",
        variables: &[],
        seeds: Some(Seeds {
            all: 5_000,
            a_part: 1_250,
        }),
    },
    Proof {
        name: "mixed-fleets",
        shows: "fifty agents in clusters of one to three servers live through six hours of trouble, and no referee is broken",
        target: "simulation",
        test: "mixed::fifty_agents_of_mixed_clusters_live_through_six_hours_of_trouble",
        variables: &[],
        seeds: Some(Seeds {
            all: 2_000,
            a_part: 200,
        }),
    },
];

/// A piece of a proof, small enough to be run again when it was interrupted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    pub(super) proof: &'static Proof,
    /// The first seed, and how many.
    pub(super) seeds: Option<(u64, u64)>,
}

impl Part {
    /// Its name, and the name of the file that says it was done.
    pub(super) fn name(&self) -> String {
        match self.seeds {
            None => self.proof.name.to_owned(),
            Some((first, count)) => format!("{}-{first}-{}", self.proof.name, first + count - 1),
        }
    }
}

impl Proof {
    pub(super) fn parts(&'static self) -> Vec<Part> {
        let part = |seeds| Part { proof: self, seeds };
        match self.seeds {
            None => vec![part(None)],
            Some(Seeds { all, a_part }) => (0..all.div_ceil(a_part))
                .map(|at| {
                    let first = at * a_part;
                    part(Some((first, a_part.min(all - first))))
                })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_proof_has_a_name_of_its_own() {
        let names: BTreeSet<&str> = PROOFS.iter().map(|proof| proof.name).collect();
        assert_eq!(names.len(), PROOFS.len());
    }

    #[test]
    fn the_parts_of_a_proof_are_all_its_seeds_once() {
        static PROOF: Proof = Proof {
            name: "p",
            shows: "",
            target: "",
            test: "",
            variables: &[],
            seeds: Some(Seeds {
                all: 25,
                a_part: 10,
            }),
        };
        let parts = PROOF.parts();
        let seeds: Vec<_> = parts.iter().filter_map(|part| part.seeds).collect();
        assert_eq!(seeds, [(0, 10), (10, 10), (20, 5)]);
        assert_eq!(parts[2].name(), "p-20-24");
    }
}
