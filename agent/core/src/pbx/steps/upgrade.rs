//! `cluster.upgrade`: another image in the node's second slot, tried for one boot, kept only if the node is well on it
//! (OP-5, OP-6).
//!
//! The default entry stays the old one until `commit`, so the way back is a reboot, and that is the node's own affair: a
//! timer that is armed before the reboot takes it if nobody commits within 20 minutes of the boot. The agent then finds
//! the old entry running and fails, with `returned`; it never tries again by itself.

use protocol::id::{Arch, ReleaseVersion, SnapshotName};
use protocol::pbx::call::Request;
use protocol::pbx::operation::{
    ClusterUpgradeParams, ClusterUpgradeResult, OperationResult, Params, ParamsRefusal, Reason,
    Step,
};
use protocol::pbx::release::Manifest;
use protocol::verified::ManifestRejected;

use super::{Doing, Failure, Progress, bucket, other_answer, snapshot};
use crate::limits::{HEALTH_PASSES, Limits, PREFLIGHT_LOOKS_MAX};
use crate::pbx::boot::{Booted, Health, Image, NodeFacts};
use crate::pbx::durable::{CameFrom, Durable, RunningOperation, StepData, Upgrade};
use crate::pbx::events::End;
use crate::pbx::facts::BootFacts;
use crate::pbx::task::{Done, Task};

/// rule UPD-4: without release keys nothing is ever verified.
pub(super) fn begin(facts: &BootFacts) -> Result<StepData, End> {
    if facts.release_keys.is_empty() {
        let why = ManifestRejected::NoReleaseKeys.to_string();
        return Err(End::refused(why, Reason::ManifestRejected));
    }
    Ok(StepData::ClusterUpgrade(Box::default()))
}

pub(super) fn doing(
    durable: &Durable,
    step: Step,
    params: ClusterUpgradeParams,
    data: &StepData,
    limits: &Limits,
) -> Option<Doing> {
    let StepData::ClusterUpgrade(upgrade) = data else {
        return None;
    };
    let image = match &upgrade.image {
        Some(image) => image,
        None => return Some(Doing::Call(Request::Manifest(params.release))),
    };
    let entry = image.entry.clone();
    Some(Doing::Task(match step {
        Step::Preflight => Task::InspectNode,
        Step::PreSnapshot => match &upgrade.saved {
            None => Task::SaveSnapshot {
                name: snapshot_name(&params.release)?,
            },
            Some(name) => Task::ConfirmSnapshot {
                name: name.clone(),
                s3: bucket(durable),
            },
        },
        Step::FetchImage => Task::FetchImage(Box::new(image.clone())),
        Step::StageSlot => Task::StageSlot {
            image: Box::new(image.clone()),
            keep: upgrade.from.as_ref()?.booted.entry.clone(),
        },
        Step::Reboot => Task::Reboot {
            entry,
            return_after_ms: limits.return_after_ms,
        },
        Step::HealthGate => Task::CheckHealth,
        Step::Commit => Task::Commit { entry },
        _ => return None,
    }))
}

/// The name of the snapshot to go back to.
fn snapshot_name(release: &ReleaseVersion) -> Option<SnapshotName> {
    SnapshotName::new(format!("pbx-pre-upgrade-{release}")).ok()
}

/// The release whose manifest the running operation needs and has not got.
pub(in crate::pbx) fn wants_manifest(running: &RunningOperation) -> Option<ReleaseVersion> {
    match (&running.data, running.offer.params()) {
        (StepData::ClusterUpgrade(upgrade), Ok(Params::ClusterUpgrade(params)))
            if upgrade.image.is_none() =>
        {
            Some(params.release)
        }
        _ => None,
    }
}

/// The image of a verified manifest for this node.
pub(in crate::pbx) fn image_of(manifest: &Manifest, arch: Arch) -> Result<Image, Failure> {
    let release = &manifest.version;
    let artifacts = &mut manifest.image.artifacts.iter();
    let Some(artifact) = artifacts.find(|artifact| artifact.arch == arch) else {
        return Err(rejected(format!(
            "release {release} has no image for {arch}"
        )));
    };
    let expected = format!("pbx-{release}-{arch}.efi");
    if artifact.entry.as_str() != expected {
        let why = format!("its boot entry is {}, not {expected}", artifact.entry);
        return Err(rejected(why));
    }
    Ok(Image {
        entry: artifact.entry.clone(),
        url: artifact.url.clone(),
        sha256: artifact.sha256,
        size: artifact.size,
        image_sha256: artifact.image_sha256,
        k3s_version: manifest.image.k3s_version.clone(),
    })
}

pub(in crate::pbx) fn rejected(why: String) -> Failure {
    Failure {
        why,
        reason: Some(Reason::ManifestRejected),
    }
}

pub(super) fn done(
    step: Step,
    upgrade: &mut Upgrade,
    done: Done,
    limits: &Limits,
) -> Result<Progress, Failure> {
    let Some(image) = &upgrade.image else {
        return Err(other_answer(&done));
    };
    match (step, done) {
        (Step::Preflight, Done::Inspected(facts)) => {
            can_be(&facts, image)?;
            if let Some(what) = not_yet(&facts) {
                upgrade.looks += 1;
                return match upgrade.looks {
                    PREFLIGHT_LOOKS_MAX.. => Err(what.into()),
                    _ => Ok(Progress::MoreAfter(limits.health_look_ms)),
                };
            }
            let deployments = facts.deployments.into_iter().map(|it| it.name);
            upgrade.from = Some(CameFrom {
                booted: facts.booted,
                k3s_version: facts.k3s_version,
                deployments: deployments.collect(),
            });
            Ok(Progress::Over)
        }
        (Step::PreSnapshot, Done::SnapshotSaved { name }) if upgrade.saved.is_none() => {
            upgrade.saved = Some(name);
            Ok(Progress::More)
        }
        (Step::PreSnapshot, done) => {
            let name = upgrade.saved.clone().ok_or_else(|| other_answer(&done))?;
            snapshot::confirmation(name, done).map(|_| Progress::Over)
        }
        (Step::FetchImage | Step::StageSlot, Done::Plain) => Ok(Progress::Over),
        (Step::Reboot | Step::Commit, Done::Booted(booted)) => {
            is_new(&booted, upgrade).map(|()| Progress::Over)
        }
        (Step::HealthGate, Done::Health(health)) => {
            is_new(&health.booted, upgrade)?;
            gate(&health, upgrade);
            match upgrade.passes {
                HEALTH_PASSES.. => Ok(Progress::Over),
                _ => Ok(Progress::MoreAfter(limits.health_look_ms)),
            }
        }
        (_, done) => Err(other_answer(&done)),
    }
}

/// Whether the new entry runs. If not, the node went back, and that is the end of it (OP-6).
fn is_new(booted: &Booted, upgrade: &Upgrade) -> Result<(), Failure> {
    let (Some(image), Some(from)) = (&upgrade.image, &upgrade.from) else {
        return Ok(());
    };
    if booted.entry == image.entry {
        return Ok(());
    }
    let mut why = format!("the node runs {}, not {}", booted.entry, image.entry);
    if let Some(unwell) = &upgrade.unwell {
        why = format!("{why}; before it went back: {unwell}");
    }
    let is_minor_kept = minor_of(&image.k3s_version) == minor_of(&from.k3s_version);
    let reason = match is_minor_kept {
        true => Reason::Returned,
        false => Reason::ReturnedMinorChanged,
    };
    Err(Failure {
        why,
        reason: Some(reason),
    })
}

/// Whether an upgrade of this node can be (OP-5).
fn can_be(facts: &NodeFacts, image: &Image) -> Result<(), Failure> {
    if !facts.variables_persist {
        return Err(Failure {
            why: "an EFI variable that was written is not read back".to_owned(),
            reason: Some(Reason::NoPersistentEfiVariables),
        });
    }
    let needed = image.size.saturating_add(image.size / 10);
    let why = if !facts.knows_one_shot {
        "the boot loader knows no entry for one boot only".to_owned()
    } else if facts.booted.entry == image.entry {
        format!("{} is what runs already", image.entry)
    } else if facts.boot_bytes_free < needed {
        let free = facts.boot_bytes_free;
        format!("the boot partition has {free} bytes free, and the image needs {needed}")
    } else {
        return may_step(&facts.k3s_version, &image.k3s_version).map_err(Failure::from);
    };
    Err(why.into())
}

/// What an upgrade of this node waits for, since it passes by itself: a node that was just started becomes Ready.
fn not_yet(facts: &NodeFacts) -> Option<String> {
    let missing = facts.deployments.iter().filter(|it| !it.available);
    let missing: Vec<&str> = missing.map(|it| it.name.as_str()).collect();
    if facts.default_entry != facts.booted.entry {
        // It would become the entry that is gone back to, and nobody has seen it well.
        Some(format!(
            "{} runs for this boot only, since an earlier upgrade was not kept; {} is what the node goes back to",
            facts.booted.entry, facts.default_entry
        ))
    } else if let Some(job) = facts.helm_jobs.first() {
        Some(format!("{job} is under way"))
    } else if !facts.node_ready {
        Some("the node is not Ready".to_owned())
    } else if !missing.is_empty() {
        Some(format!(
            "not available in kube-system: {}",
            missing.join(", ")
        ))
    } else {
        None
    }
}

/// k3s goes to the same minor version or the next one; nothing else can be undone or is supported.
fn may_step(from: &str, to: &str) -> Result<(), String> {
    match (minor_of(from), minor_of(to)) {
        (Some((major, minor)), Some(next))
            if next == (major, minor) || next == (major, minor + 1) =>
        {
            Ok(())
        }
        _ => Err(format!(
            "k3s cannot go from {from} to {to}: only to the same minor version or the next"
        )),
    }
}

/// Major and minor of `v1.34.1+k3s1`.
fn minor_of(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.strip_prefix('v')?.split('.');
    let major = numbers.next()?.parse().ok()?;
    let minor = numbers.next()?.parse().ok()?;
    Some((major, minor))
}

/// One look through the gate: it counts if all is well, and all counting begins anew if not (OP-6).
fn gate(health: &Health, upgrade: &mut Upgrade) {
    match unwell(health, upgrade) {
        None => {
            upgrade.passes += 1;
            upgrade.unwell = None;
        }
        Some(what) => {
            upgrade.passes = 0;
            upgrade.unwell = Some(what);
        }
    }
}

/// What is not well, if anything.
fn unwell(health: &Health, upgrade: &Upgrade) -> Option<String> {
    let (image, from) = (upgrade.image.as_ref()?, upgrade.from.as_ref()?);
    if !health.api_ready {
        return Some("the Kubernetes API is not ready".to_owned());
    }
    if health.node_boot_id.as_ref() != Some(&health.booted.boot_id) {
        return Some("the Node speaks of another boot".to_owned());
    }
    if !health.node_ready {
        return Some("the Node is not Ready".to_owned());
    }
    if health.kubelet_version.as_deref() != Some(&*image.k3s_version) {
        let version = health.kubelet_version.as_deref().unwrap_or("nothing");
        return Some(format!(
            "the kubelet is {version}, not {}",
            image.k3s_version
        ));
    }
    if !health.etcd_healthy {
        return Some("etcd is not healthy".to_owned());
    }
    let is_well = |name: &String| {
        let mut now = health.deployments.iter();
        now.any(|it| it.name == *name && it.available && it.of_this_boot)
    };
    let known = health.deployments.iter().map(|it| &it.name);
    let mut expected = from.deployments.iter().chain(known);
    let missing = expected.find(|name| !is_well(name))?;
    Some(format!("Deployment {missing} is not available"))
}

pub(super) fn result(
    params: Result<Params, ParamsRefusal>,
    upgrade: &Upgrade,
) -> Option<OperationResult> {
    let (Ok(Params::ClusterUpgrade(params)), Some(image)) = (params, &upgrade.image) else {
        return None;
    };
    Some(OperationResult::ClusterUpgrade(ClusterUpgradeResult {
        release: params.release,
        entry: image.entry.clone(),
        k3s_version: image.k3s_version.clone(),
    }))
}

#[cfg(test)]
mod tests {
    use protocol::hash::Sha256Hex;
    use protocol::id::EntryName;

    use super::*;
    use crate::pbx::boot::{BootId, Rollout};

    fn entry(name: &str) -> EntryName {
        EntryName::new(name).unwrap()
    }

    fn image() -> Image {
        Image {
            entry: entry("pbx-2026.12.1-amd64.efi"),
            url: "https://artifacts.invalid/image".into(),
            sha256: Sha256Hex::of(b"download"),
            size: 1_000,
            image_sha256: Sha256Hex::of(b"booted"),
            k3s_version: "v1.35.0+k3s1".into(),
        }
    }

    fn rollouts() -> Vec<Rollout> {
        ["coredns", "metrics-server"]
            .map(|name| Rollout {
                name: name.to_owned(),
                available: true,
                of_this_boot: true,
            })
            .into()
    }

    fn facts() -> NodeFacts {
        NodeFacts {
            booted: Booted {
                boot_id: BootId("one".into()),
                entry: entry("pbx-2026.11.1-amd64.efi"),
            },
            default_entry: entry("pbx-2026.11.1-amd64.efi"),
            k3s_version: "v1.34.1+k3s1".into(),
            variables_persist: true,
            knows_one_shot: true,
            boot_bytes_free: 1_100,
            helm_jobs: Vec::new(),
            node_ready: true,
            deployments: rollouts(),
        }
    }

    // rule OP-5: each thing that must be so before anything is changed.
    #[test]
    fn op_5_an_upgrade_begins_only_on_a_node_that_can_come_back() {
        type Row = (fn(&mut NodeFacts), Option<&'static str>);
        let rows: [Row; 9] = [
            (|_| (), None),
            (|it| it.k3s_version = "v1.35.9+k3s1".into(), None),
            (|it| it.variables_persist = false, Some("not read back")),
            (|it| it.knows_one_shot = false, Some("one boot only")),
            (|it| it.boot_bytes_free = 1_099, Some("needs 1100")),
            (|it| it.booted.entry = image().entry, Some("runs already")),
            (
                |it| it.k3s_version = "v1.36.0+k3s1".into(),
                Some("cannot go"),
            ),
            (
                |it| it.k3s_version = "v1.33.0+k3s1".into(),
                Some("cannot go"),
            ),
            (|it| it.k3s_version = "unknown".into(), Some("cannot go")),
        ];
        for (change, expected) in rows {
            let mut facts = facts();
            change(&mut facts);
            match (can_be(&facts, &image()), expected) {
                (Ok(()), None) => {}
                (Err(failure), Some(part)) => assert!(failure.why.contains(part), "{failure:?}"),
                (came, _) => panic!("{came:?}, expected {expected:?}: {facts:?}"),
            }
        }
        let failure = can_be(
            &NodeFacts {
                variables_persist: false,
                ..facts()
            },
            &image(),
        );
        let reason = failure.unwrap_err().reason;
        assert_eq!(reason, Some(Reason::NoPersistentEfiVariables));
    }

    // rule OP-5: what passes by itself is waited for, but not for ever.
    #[test]
    fn op_5_a_node_that_is_coming_up_gets_five_minutes() {
        type Row = (fn(&mut NodeFacts), &'static str);
        let rows: [Row; 4] = [
            (
                |it| it.default_entry = entry("pbx-2026.10.9-amd64.efi"),
                "for this boot only",
            ),
            (
                |it| it.helm_jobs = vec!["helm-install-x".into()],
                "helm-install-x",
            ),
            (|it| it.node_ready = false, "not Ready"),
            (|it| it.deployments[1].available = false, "metrics-server"),
        ];
        for (change, expected) in rows {
            let mut facts = facts();
            change(&mut facts);
            let mut upgrade = Upgrade {
                image: Some(image()),
                ..Upgrade::default()
            };
            let mut look = || {
                let came = Done::Inspected(Box::new(facts.clone()));
                done(Step::Preflight, &mut upgrade, came, &Limits::REAL)
            };
            for _ in 1..PREFLIGHT_LOOKS_MAX {
                assert_eq!(look(), Ok(Progress::MoreAfter(10_000)));
            }
            let failure = look().unwrap_err();
            assert!(failure.why.contains(expected), "{failure:?}");
        }
    }

    fn upgrade() -> Upgrade {
        Upgrade {
            image: Some(image()),
            from: Some(CameFrom {
                booted: facts().booted,
                k3s_version: facts().k3s_version,
                deployments: vec!["coredns".into(), "metrics-server".into()],
            }),
            ..Upgrade::default()
        }
    }

    fn health() -> Health {
        let boot_id = BootId("two".into());
        Health {
            booted: Booted {
                boot_id: boot_id.clone(),
                entry: image().entry,
            },
            api_ready: true,
            node_ready: true,
            node_boot_id: Some(boot_id),
            kubelet_version: Some(image().k3s_version),
            etcd_healthy: true,
            deployments: rollouts(),
        }
    }

    // rule OP-6: three looks in a row at which everything is well; one at which something is not begins the count anew.
    #[test]
    fn op_6_the_gate_opens_after_three_good_looks_in_a_row() {
        type Row = (fn(&mut Health), &'static str);
        let rows: [Row; 9] = [
            (|it| it.api_ready = false, "API"),
            (|it| it.node_ready = false, "not Ready"),
            (|it| it.node_boot_id = None, "another boot"),
            (
                |it| it.node_boot_id = Some(BootId("one".into())),
                "another boot",
            ),
            (
                |it| it.kubelet_version = Some("v1.34.1+k3s1".into()),
                "kubelet",
            ),
            (|it| it.etcd_healthy = false, "etcd"),
            (|it| it.deployments[0].available = false, "coredns"),
            (
                |it| it.deployments[1].of_this_boot = false,
                "metrics-server",
            ),
            (|it| drop(it.deployments.pop()), "metrics-server"),
        ];
        let look = |upgrade: &mut Upgrade, health: Health| {
            let done_ = Done::Health(Box::new(health));
            done(Step::HealthGate, upgrade, done_, &Limits::REAL).unwrap()
        };
        let later = Progress::MoreAfter(10_000);
        for (change, expected) in rows {
            let mut upgrade = upgrade();
            assert_eq!(look(&mut upgrade, health()), later);
            assert_eq!(look(&mut upgrade, health()), later);
            let mut sick = health();
            change(&mut sick);
            assert_eq!(look(&mut upgrade, sick), later);
            assert!(
                upgrade.unwell.as_deref().unwrap().contains(expected),
                "{upgrade:?}"
            );
            assert_eq!(look(&mut upgrade, health()), later);
            assert_eq!(look(&mut upgrade, health()), later);
            assert_eq!(look(&mut upgrade, health()), Progress::Over);
        }
    }

    // rule OP-6: the old entry runs: the node went back, at whichever step that is found.
    #[test]
    fn op_6_a_node_that_went_back_fails_the_upgrade() {
        let old = || facts().booted;
        let sick = || {
            Box::new(Health {
                booted: old(),
                ..health()
            })
        };
        let rows = [
            (Step::Reboot, Done::Booted(old())),
            (Step::HealthGate, Done::Health(sick())),
            (Step::Commit, Done::Booted(old())),
        ];
        for (step, came) in rows {
            for (k3s, reason) in [
                ("v1.35.0+k3s2", Reason::Returned),
                ("v1.34.1+k3s1", Reason::ReturnedMinorChanged),
            ] {
                let mut upgrade = upgrade();
                upgrade.unwell = Some("coredns".to_owned());
                upgrade.from.as_mut().unwrap().k3s_version = k3s.to_owned();
                let failure = done(step, &mut upgrade, came.clone(), &Limits::REAL).unwrap_err();
                assert_eq!(failure.reason, Some(reason), "{step}");
                assert!(failure.why.contains("coredns"), "{failure:?}");
            }
        }
    }
}
