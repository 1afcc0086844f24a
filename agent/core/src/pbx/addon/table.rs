//! The decision table of add-ons: what a document wants, what a release says and what a cluster shows come to one state, one
//! message and one thing to do (ADD-5 to ADD-16); which objects are an add-on's is the [`plan`](super::plan)'s, and what
//! order they come in [`order`](super::order)'s.
//!
//! It is read from the top: the first row that fits counts. Nothing is rendered, applied or waited for here, and where the
//! facts come from is not known.

use protocol::id::AddonName;
use protocol::pbx::sync::AddonState;

/// All that decides about one add-on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Facts {
    /// The document has it, switched on.
    pub(super) is_on: bool,
    /// The document names it twice.
    pub(super) is_doubled: bool,
    /// The release has it.
    pub(super) is_in_release: bool,
    /// The way from it to itself by `requires`.
    pub(super) cycle: Option<Vec<AddonName>>,
    /// The add-ons that it requires.
    pub(super) requires: Vec<Other>,
    /// The add-ons that conflict with it, whichever of the two says so.
    pub(super) conflicts: Vec<Other>,
    /// The add-ons that require it.
    pub(super) required_by: Vec<Other>,
    /// What the cluster shows of it.
    pub(super) shows: Shows,
    /// What its objects are beside those that it should have; to be asked for only where it counts.
    pub(super) form: Form,
    /// What it was tried to do about it just now, and what came of it.
    pub(super) failed: Option<String>,
}

/// What counts of another add-on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Other {
    pub(super) name: AddonName,
    /// The document has it, switched on.
    pub(super) is_on: bool,
    /// Objects or releases of it are in the cluster.
    pub(super) is_there: bool,
    /// Its state is `applied`.
    pub(super) is_applied: bool,
}

/// What a cluster shows of an add-on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Shows {
    /// Objects or releases of it.
    pub(super) is_there: bool,
    /// Objects of it that are not being deleted and that the agent may delete.
    pub(super) has_deletable: bool,
    /// An object of it that is being deleted.
    pub(super) deleting: Option<String>,
    /// That nothing of it is there was seen twice in a row.
    pub(super) is_gone_for_sure: bool,
    /// A release of it that has failed for good.
    pub(super) failed_release: Option<String>,
    /// Its health check passes, or it has none.
    pub(super) is_healthy: bool,
    /// Its Platform, if it has one.
    pub(super) platform: Option<Platform>,
}

/// What a cluster shows of the Platform (ADD-15).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Platform {
    /// The `SaaSApplication` objects.
    pub(super) applications: Vec<String>,
    pub(super) refuses: Option<String>,
    pub(super) is_empty: bool,
    pub(super) is_cleared: bool,
}

/// What an add-on's objects are beside those that it should have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Form {
    /// Nobody has asked.
    Unknown,
    /// What it should have cannot be had: the template fails, or must not be followed.
    Refused(String),
    /// Not as they should be, or not there.
    Differs,
    /// As they should be.
    Same,
}

/// What is decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) state: AddonState,
    pub(super) message: Option<String>,
    pub(super) act: Act,
    /// It is looked at again at every cycle; else with everything else, or when something has changed (ADD-12).
    pub(super) again: bool,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    Nothing,
    /// Render its template, compare, and ask again.
    Compare,
    /// Apply its objects.
    Apply,
    /// Apply a Platform that installs nothing, if there is no application (ADD-15).
    EmptyPlatform,
    /// Delete its objects (ADD-5).
    Delete,
    /// Look once more whether it is gone, and ask again.
    LookAgain,
}

/// The table.
pub(super) fn decide(facts: &Facts) -> Verdict {
    if facts.is_doubled {
        return failed("the document names it twice");
    }
    if facts.is_on { on(facts) } else { off(facts) }
}

fn on(facts: &Facts) -> Verdict {
    let Facts { shows, .. } = facts;
    if !facts.is_in_release {
        return failed("the release has no such add-on");
    }
    if let Some(way) = &facts.cycle {
        let way: Vec<&str> = way.iter().map(AddonName::as_str).collect();
        return failed(format!("requires itself: {}", way.join(" → ")));
    }
    if let Some(off) = facts.requires.iter().find(|other| !other.is_on) {
        return failed(format!("requires add-on {}, which is off", off.name));
    }
    let installed = facts.conflicts.iter().filter(|other| other.is_there);
    if let Some(other) = installed.clone().find(|other| other.is_on) {
        let other = &other.name;
        return failed(format!(
            "conflicts with add-on {other}; switch that off first"
        ));
    }
    if let Some(other) = installed.clone().next() {
        return pending(format!("waits until add-on {} is gone", other.name));
    }
    if let Some(other) = facts.requires.iter().find(|other| !other.is_applied) {
        return pending(format!("waits for add-on {}", other.name));
    }
    if let Some(object) = &shows.deleting {
        return pending(format!(
            "waits until {object}, which is being deleted, is gone"
        ));
    }
    match &facts.form {
        Form::Unknown => to_do(Act::Compare, pending("is looked at")),
        Form::Refused(why) => failed(why.as_str()),
        Form::Differs => match &facts.failed {
            Some(why) => failed_for_now(why.as_str()),
            None => to_do(Act::Apply, pending("is applied")),
        },
        Form::Same => match &shows.failed_release {
            Some(release) => failed_for_now(format!("release {release} is failed, needs retry")),
            None if !shows.is_healthy => pending("health check not passing yet"),
            None => settled(AddonState::Applied),
        },
    }
}

fn off(facts: &Facts) -> Verdict {
    let Facts { shows, .. } = facts;
    if facts.required_by.iter().any(|other| other.is_on) {
        return failed("still required");
    }
    if !shows.is_there {
        return match shows.is_gone_for_sure {
            true => settled(AddonState::Removed),
            false => to_do(Act::LookAgain, pending("is looked at once more")),
        };
    }
    if let Some(other) = facts.required_by.iter().find(|other| other.is_there) {
        let other = &other.name;
        return pending(format!(
            "waits until add-on {other}, which requires it, is gone"
        ));
    }
    if let Some(why) = &facts.failed {
        return failed_for_now(why.as_str());
    }
    if let Some(platform) = &shows.platform {
        let Platform {
            applications,
            refuses,
            is_empty,
            is_cleared,
        } = platform;
        if !applications.is_empty() {
            return failed_for_now(delete_them_first(applications));
        }
        if let Some(why) = refuses {
            return failed_for_now(why.as_str());
        }
        if !is_empty {
            return to_do(Act::EmptyPlatform, pending(CLEARS));
        }
        if !is_cleared {
            return pending(CLEARS);
        }
    }
    match shows.has_deletable {
        true => to_do(Act::Delete, pending(IS_DELETED)),
        false => pending(IS_DELETED),
    }
}

const IS_DELETED: &str = "waits until its objects and its releases are gone";
const CLEARS: &str = "waits until Flux has removed what the platform has installed";

/// What is said while there are applications (ADD-15).
pub(super) fn delete_them_first(applications: &[String]) -> String {
    const SHOWN_MAX: usize = 20;
    let shown = applications.len().min(SHOWN_MAX);
    let mut names = applications[..shown].join(", ");
    if applications.len() > shown {
        names.push_str(&format!(" and {} more", applications.len() - shown));
    }
    format!("SaaSApplications exist: {names}; delete them first")
}

fn settled(state: AddonState) -> Verdict {
    Verdict {
        state,
        message: None,
        act: Act::Nothing,
        again: false,
    }
}

/// It fails until the document, the release or the cluster changes.
fn failed(why: impl Into<String>) -> Verdict {
    Verdict {
        message: Some(why.into()),
        ..settled(AddonState::Failed)
    }
}

/// It fails for a reason that may pass by itself.
fn failed_for_now(why: impl Into<String>) -> Verdict {
    Verdict {
        again: true,
        ..failed(why)
    }
}

fn pending(why: impl Into<String>) -> Verdict {
    Verdict {
        state: AddonState::Pending,
        message: Some(why.into()),
        act: Act::Nothing,
        again: true,
    }
}

fn to_do(act: Act, verdict: Verdict) -> Verdict {
    Verdict { act, ..verdict }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn other(name: &str, is_on: bool, is_there: bool, is_applied: bool) -> Other {
        Other {
            name: name.parse().unwrap(),
            is_on,
            is_there,
            is_applied,
        }
    }

    /// On, in the release, applied and healthy.
    fn well() -> Facts {
        Facts {
            is_on: true,
            is_doubled: false,
            is_in_release: true,
            cycle: None,
            requires: Vec::new(),
            conflicts: Vec::new(),
            required_by: Vec::new(),
            shows: Shows {
                is_there: true,
                has_deletable: true,
                is_healthy: true,
                ..Shows::default()
            },
            form: Form::Same,
            failed: None,
        }
    }

    /// Off, and its objects are there.
    fn off_and_there() -> Facts {
        Facts {
            is_on: false,
            ..well()
        }
    }

    fn platform(change: fn(&mut Platform)) -> impl Fn(&mut Facts) {
        move |facts| {
            let mut platform = Platform::default();
            change(&mut platform);
            facts.shows.platform = Some(platform);
        }
    }

    /// What it is about, the facts to begin with, what is other in them, what is said, what is to be done.
    type Row<'a> = (&'a str, fn() -> Facts, Change<'a>, &'a str, Act);
    type Change<'a> = &'a dyn Fn(&mut Facts);

    #[test]
    fn every_row_of_the_table() {
        use Act::{Apply, Compare, Delete, EmptyPlatform, LookAgain, Nothing};
        const ON: fn() -> Facts = well;
        const OFF: fn() -> Facts = off_and_there;
        let rows: &[Row<'_>] = &[
            // rule ADD-8
            (
                "add_8",
                ON,
                &|f| f.requires = vec![other("r", false, true, true)],
                "failed: requires add-on r, which is off",
                Nothing,
            ),
            // rule ADD-9
            (
                "add_9",
                ON,
                &|f| f.conflicts = vec![other("c", true, true, false)],
                "failed: conflicts with add-on c; switch that off first",
                Nothing,
            ),
            (
                "add_9: on, but not installed",
                ON,
                &|f| f.conflicts = vec![other("c", true, false, false)],
                "applied",
                Nothing,
            ),
            // rule ADD-10
            (
                "add_10",
                ON,
                &|f| f.conflicts = vec![other("c", false, true, false)],
                "pending: waits until add-on c is gone",
                Nothing,
            ),
            (
                "add_10: gone",
                ON,
                &|f| f.conflicts = vec![other("c", false, false, false)],
                "applied",
                Nothing,
            ),
            (
                "add_9 before add_10",
                ON,
                &|f| {
                    f.conflicts = vec![
                        other("b", false, true, false),
                        other("c", true, true, false),
                    ];
                },
                "failed: conflicts with add-on c; switch that off first",
                Nothing,
            ),
            // rule ADD-11
            (
                "add_11",
                ON,
                &|f| f.requires = vec![other("r", true, true, false)],
                "pending: waits for add-on r",
                Nothing,
            ),
            (
                "add_11: applied",
                ON,
                &|f| f.requires = vec![other("r", true, true, true)],
                "applied",
                Nothing,
            ),
            // rule ADD-6
            (
                "add_6: the template",
                ON,
                &|f| f.form = Form::Refused("its template fails".into()),
                "failed: its template fails",
                Nothing,
            ),
            (
                "add_6: the apply",
                ON,
                &|f| {
                    f.form = Form::Differs;
                    f.failed = Some("403".into());
                },
                "failed: 403",
                Nothing,
            ),
            // rule ADD-1
            (
                "add_1: looked at",
                ON,
                &|f| f.form = Form::Unknown,
                "pending: is looked at",
                Compare,
            ),
            (
                "add_1: other than it should be",
                ON,
                &|f| f.form = Form::Differs,
                "pending: is applied",
                Apply,
            ),
            // rule ADD-12
            (
                "add_12",
                ON,
                &|f| f.shows.is_healthy = false,
                "pending: health check not passing yet",
                Nothing,
            ),
            // rule ADD-13
            ("add_13", ON, &|_| {}, "applied", Nothing),
            // rule ADD-14
            (
                "add_14",
                OFF,
                &|f| f.required_by = vec![other("x", true, false, false)],
                "failed: still required",
                Nothing,
            ),
            (
                "add_14: that is off, too",
                OFF,
                &|f| f.required_by = vec![other("x", false, false, false)],
                "pending: waits until its objects and its releases are gone",
                Delete,
            ),
            (
                "add_16: what requires it goes first",
                OFF,
                &|f| f.required_by = vec![other("x", false, true, false)],
                "pending: waits until add-on x, which requires it, is gone",
                Nothing,
            ),
            // rule ADD-15
            (
                "add_15: applications",
                OFF,
                &platform(|p| p.applications = vec!["a/b".into(), "c/d".into()]),
                "failed: SaaSApplications exist: a/b, c/d; delete them first",
                Nothing,
            ),
            (
                "add_15: applications, and it is empty",
                OFF,
                &platform(|p| {
                    (p.applications, p.is_empty, p.is_cleared) = (vec!["a/b".into()], true, true);
                }),
                "failed: SaaSApplications exist: a/b; delete them first",
                Nothing,
            ),
            (
                "add_15: it refuses",
                OFF,
                &platform(|p| {
                    (p.refuses, p.is_empty) = (Some("a database needs it".into()), true);
                }),
                "failed: a database needs it",
                Nothing,
            ),
            (
                "add_15: step one",
                OFF,
                &platform(|_| {}),
                "pending: waits until Flux has removed what the platform has installed",
                EmptyPlatform,
            ),
            (
                "add_15: waits",
                OFF,
                &platform(|p| p.is_empty = true),
                "pending: waits until Flux has removed what the platform has installed",
                Nothing,
            ),
            (
                "add_15: step two",
                OFF,
                &platform(|p| (p.is_empty, p.is_cleared) = (true, true)),
                "pending: waits until its objects and its releases are gone",
                Delete,
            ),
            // rule ADD-5
            (
                "add_5",
                OFF,
                &|_| {},
                "pending: waits until its objects and its releases are gone",
                Delete,
            ),
            (
                "add_5: being deleted",
                OFF,
                &|f| f.shows.has_deletable = false,
                "pending: waits until its objects and its releases are gone",
                Nothing,
            ),
            (
                "add_5: gone, as it seems",
                OFF,
                &|f| f.shows = Shows::default(),
                "pending: is looked at once more",
                LookAgain,
            ),
            (
                "add_5: gone",
                OFF,
                &|f| {
                    f.shows = Shows {
                        is_gone_for_sure: true,
                        ..Shows::default()
                    }
                },
                "removed",
                Nothing,
            ),
            (
                "add_6: the deletion fails",
                OFF,
                &|f| f.failed = Some("403".into()),
                "failed: 403",
                Nothing,
            ),
            // rule ADD-16
            (
                "add_16",
                ON,
                &|f| f.cycle = Some(["a", "b", "a"].map(|it| it.parse().unwrap()).to_vec()),
                "failed: requires itself: a → b → a",
                Nothing,
            ),
            (
                "add_16: off",
                OFF,
                &|f| f.cycle = Some(["a", "a"].map(|it| it.parse().unwrap()).to_vec()),
                "pending: waits until its objects and its releases are gone",
                Delete,
            ),
            // What the rules leave open.
            (
                "on again while it is being deleted",
                ON,
                &|f| f.shows.deleting = Some("HelmChart kube-system/x".into()),
                "pending: waits until HelmChart kube-system/x, which is being deleted, is gone",
                Nothing,
            ),
            (
                "a release that is stuck",
                ON,
                &|f| f.shows.failed_release = Some("x".into()),
                "failed: release x is failed, needs retry",
                Nothing,
            ),
            (
                "not in the release",
                ON,
                &|f| f.is_in_release = false,
                "failed: the release has no such add-on",
                Nothing,
            ),
            (
                "off, and not in the release",
                OFF,
                &|f| f.is_in_release = false,
                "pending: waits until its objects and its releases are gone",
                Delete,
            ),
            (
                "named twice",
                ON,
                &|f| f.is_doubled = true,
                "failed: the document names it twice",
                Nothing,
            ),
        ];
        for (row, facts, change, expected, act) in rows {
            let mut facts = facts();
            change(&mut facts);
            let verdict = decide(&facts);
            let said = match &verdict.message {
                Some(message) => format!("{}: {message}", verdict.state),
                None => verdict.state.to_string(),
            };
            assert_eq!((said.as_str(), verdict.act), (*expected, *act), "{row}");
            // rule ADD-12: what waits is looked at again at every cycle.
            let waits = verdict.state == AddonState::Pending;
            assert!(!waits || verdict.again, "{row}");
        }
    }

    // rule ADD-7: each has one of four states, and whatever is not `applied` or `removed` says why.
    #[test]
    fn add_7_every_combination_of_facts_has_one_state_and_says_why() {
        let bits = 12;
        for at in 0..1_u32 << bits {
            let bit = |of: u32| at & (1 << of) != 0;
            let facts = Facts {
                is_on: bit(0),
                is_in_release: bit(1),
                requires: vec![other("r", bit(2), bit(3), bit(4))],
                conflicts: vec![other("c", bit(5), bit(6), false)],
                required_by: vec![other("x", bit(7), bit(8), false)],
                form: match (bit(9), bit(10)) {
                    (false, false) => Form::Unknown,
                    (false, true) => Form::Refused("no".into()),
                    (true, false) => Form::Differs,
                    (true, true) => Form::Same,
                },
                shows: Shows {
                    is_there: bit(11),
                    ..Shows::default()
                },
                ..well()
            };
            let verdict = decide(&facts);
            let (is_on, says) = (facts.is_on, verdict.message.is_some());
            match verdict.state {
                AddonState::Applied => assert!(is_on && !says),
                AddonState::Removed => assert!(!is_on && !says),
                AddonState::Pending | AddonState::Failed => assert!(says, "{facts:?}"),
                AddonState::Unknown(word) => panic!("{word} is no state"),
            }
            // rule ADD-6: what is on is never deleted; rule ADD-5: what is off is never applied.
            match verdict.act {
                Act::Apply | Act::Compare => assert!(is_on),
                Act::Delete | Act::EmptyPlatform | Act::LookAgain => assert!(!is_on),
                Act::Nothing => {}
            }
        }
    }
}
