//! Add-ons, seen from outside: what is applied and deleted, in which order, and what the portal hears (ADD-1 to ADD-17).
//!
//! The table itself is tested beside it, row by row; here it meets time, crashes and a cluster.

use std::sync::Arc;

use agent_core::pbx::addon::object::{Content, Object};
use agent_core::pbx::addon::seen::{Fingerprint, Status};
use agent_core::pbx::durable::Durable;
use agent_core::pbx::task::{Task, Uid};
use protocol::pbx::call::AnswerBody;
use protocol::pbx::release::{AddonTemplate, DeploymentRef, HealthCheck, Manifest, TemplateEngine};
use protocol::pbx::sync::{AddonSpec, AddonState, DesiredState, DocumentResult};
use protocol::seal::{Sealed, Secret};
use protocol::sign::SigningKey;
use protocol::verified::{ReleaseKeys, SignedManifest};
use serde_json::json;

use crate::world::{
    World, api_down, desired, document, facts, failure, healthy, manifest, release_keys, sealed,
    signed, signed_by,
};

/// A template with one HelmChart of this name.
fn chart(name: &str) -> String {
    format!(
        "apiVersion: helm.cattle.io/v1\nkind: HelmChart\nmetadata: {{name: {name}, namespace: kube-system}}\n\
         spec: {{chart: {name}, targetNamespace: {name}, valuesContent: '{{{{ options | tojson }}}}'}}\n"
    )
}

fn names(names: &[&str]) -> Vec<protocol::id::AddonName> {
    names.iter().map(|name| name.parse().unwrap()).collect()
}

/// An add-on with one chart of its name.
fn addon(name: &str, requires: &[&str], conflicts: &[&str]) -> AddonTemplate {
    AddonTemplate {
        name: name.parse().unwrap(),
        requires: names(requires),
        conflicts: names(conflicts),
        template: chart(name),
        health: None,
    }
}

fn with_health(mut addon: AddonTemplate) -> AddonTemplate {
    let name = addon.name.to_string();
    let namespace = name.clone();
    addon.health = Some(HealthCheck {
        deployments: vec![DeploymentRef { namespace, name }],
    });
    addon
}

fn release(addons: Vec<AddonTemplate>) -> Manifest {
    Manifest {
        addons,
        ..manifest("2026.11.1", 1, "1.4.0")
    }
}

/// Add-ons as a document has them: `a` is on, `-a` is off.
fn specs(words: &str) -> Vec<AddonSpec> {
    let spec = |word: &str| AddonSpec {
        name: word.trim_start_matches('-').parse().unwrap(),
        enabled: !word.starts_with('-'),
        options: serde_json::Map::new(),
        secret_options: std::collections::BTreeMap::new(),
    };
    words.split_whitespace().map(spec).collect()
}

impl World {
    /// Gives a document with these add-ons, of this release.
    fn switch(&mut self, generation: u64, manifest: &Arc<SignedManifest>, words: &str) {
        self.give(generation, manifest, |desired| {
            desired.addons = specs(words);
        });
    }

    fn give(
        &mut self,
        generation: u64,
        manifest: &Arc<SignedManifest>,
        change: impl FnOnce(&mut DesiredState),
    ) {
        let mut desired = desired(generation);
        desired.release = "2026.11.1".parse().unwrap();
        change(&mut desired);
        self.sync();
        self.answer_sync(Some(&desired.to_raw()), None);
        if let Some(protocol::endpoint::Endpoint::Manifest) = self.out_endpoint() {
            self.answer(AnswerBody::Manifest(Arc::clone(manifest)));
        }
        self.settle();
    }

    /// What the next report says of the add-ons, `a applied` or `a failed: why`; the sync is answered.
    fn states(&mut self) -> Vec<String> {
        let report = self.sync();
        let said = report
            .report()
            .addons
            .iter()
            .map(|addon| match &addon.message {
                Some(message) => format!("{} {}: {message}", addon.name, addon.state),
                None => format!("{} {}", addon.name, addon.state),
            });
        let said = said.collect();
        self.answer_sync(None, None);
        said
    }

    /// What was asked of the host since the last time: tasks about add-ons with what they are about.
    fn work(&mut self) -> Vec<String> {
        let work = self.node.performed.drain(..).filter_map(|task| {
            Some(match &*task {
                Task::LookAtAddons(_) => "look".to_owned(),
                Task::ApplyAddon { addon, objects } => format!("apply {addon} {}", ids(objects)),
                Task::EmptyPlatform(object) => format!("empty {}", object.id),
                Task::DeleteAddon { addon, objects } => {
                    let ids: Vec<_> = objects.iter().map(|it| it.id.to_string()).collect();
                    format!("delete {addon} {}", ids.join(" "))
                }
                Task::WriteSecrets(_) => "secrets".to_owned(),
                _ => return None,
            })
        });
        work.collect()
    }

    /// The tasks that were performed, as they are.
    fn applied(&self) -> Vec<Object> {
        let objects = self.node.performed.iter().filter_map(|task| match &**task {
            Task::ApplyAddon { objects, .. } => Some(objects.clone()),
            _ => None,
        });
        objects.flatten().collect()
    }

    /// Lets ten minutes pass, with syncs that bring nothing new.
    fn ten_minutes(&mut self) {
        let end = self.now.monotonic.plus_ms(600_000);
        while self.now.monotonic < end {
            self.sync();
            self.answer_sync(None, None);
        }
    }
}

fn ids(objects: &[Object]) -> String {
    let ids: Vec<_> = objects.iter().map(|object| object.id.name()).collect();
    ids.join(" ")
}

fn signed_release(addons: Vec<AddonTemplate>) -> Arc<SignedManifest> {
    signed(&release(addons))
}

// rules SYNC-2, ADD-1, ADD-16: behind the Secrets, and what is required first.
#[test]
fn add_16_add_ons_are_applied_behind_the_secrets_in_the_order_of_what_they_require() {
    let mut world = World::enrolled();
    let release = signed_release(vec![addon("a", &["b"], &[]), addon("b", &[], &[])]);
    world.switch(1, &release, "a b");
    assert_eq!(world.work(), ["secrets", "look", "apply b b", "apply a a"]);
    assert!(world.disk.in_force);
    let report = world.sync().report().clone();
    assert_eq!(report.document.result, DocumentResult::Applied);
    assert_eq!(world.states(), ["a applied", "b applied"]);
}

// rule FILE-11: on every server, whether it leads or not, and before anything is applied.
#[test]
fn file_11_k3s_lets_go_of_first_start_manifests_before_an_add_on_is_applied() {
    let release = signed_release(vec![addon("a", &[], &[]), addon("b", &[], &[])]);
    for leader in [true, false] {
        let mut world = if leader {
            World::enrolled()
        } else {
            crate::lead::looking()
        };
        if !leader {
            world.node.another_leads();
        }
        world.node.holds = Some("LetGoOfManifests");
        world.switch(1, &release, "a -b");
        let (_, task, _) = world.node.held.as_ref().unwrap();
        let Task::LetGoOfManifests(addons) = &**task else {
            panic!("{task:?}");
        };
        assert_eq!(*addons, names(&["a", "b"]));
        assert_eq!(world.work(), [""; 0], "nothing before");
        world.release_well();
        assert!(world.disk.in_force);
        assert_eq!(world.work().is_empty(), !leader);
    }
}

// rule SYNC-3: every ten minutes; what is as it should be is looked at and left, what a hand has changed is applied again.
#[test]
fn sync_3_a_change_by_hand_is_overwritten_and_nothing_else_is_written() {
    let mut world = World::enrolled();
    let release = signed_release(vec![addon("a", &[], &[]), addon("b", &[], &[])]);
    world.switch(1, &release, "a b");
    world.ten_minutes();
    world.work();
    let stores = world.stores;
    world.ten_minutes();
    assert_eq!(world.work(), ["secrets", "look"]);
    assert_eq!(world.stores, stores);

    type Hand = fn(&mut World);
    let hands: [(&str, Hand); 4] = [
        ("changed", |world| {
            world.node.addons.find("HelmChart/b").unwrap().fingerprint = Fingerprint(7);
        }),
        ("deleted", |world| {
            let objects = &mut world.node.addons.seen.objects;
            objects.retain(|object| object.id.name() != "b");
        }),
        ("made anew", |world| {
            let uid = Uid("other".into());
            world.node.addons.find("HelmChart/b").unwrap().uid = uid;
        }),
        ("taken from its add-on", |world| {
            world.node.addons.find("HelmChart/b").unwrap().addon = "c".to_owned();
        }),
    ];
    for (hand, change) in hands {
        change(&mut world);
        world.ten_minutes();
        assert_eq!(world.work(), ["secrets", "look", "apply b b"], "{hand}");
        assert_eq!(world.states(), ["a applied", "b applied"], "{hand}");
    }
}

// rule ADD-5: with its labels and of a name that was applied, by its UID; removed only once nothing is there, seen twice.
#[test]
fn add_5_what_is_switched_off_is_deleted_and_nothing_else() {
    let mut world = World::enrolled();
    let release = signed_release(vec![addon("a", &[], &[]), addon("b", &[], &[])]);
    world.switch(1, &release, "a b");
    world.work();
    // Somebody's own object with the add-on's labels, and one of its name with another's.
    let mut foreign = world.node.addons.find("HelmChart/a").unwrap().clone();
    foreign.id = "HelmChart/mine".parse().unwrap();
    foreign.uid = Uid("mine".into());
    foreign.is_applied = false;
    world.node.addons.seen.objects.push(foreign);
    world.node.addons.charts_wait = true;
    world.switch(2, &release, "-a b");
    assert_eq!(
        world.work(),
        ["secrets", "look", "delete a HelmChart kube-system/a"]
    );
    let waits = "a pending: waits until its objects and its releases are gone";
    assert_eq!(world.states(), [waits, "b applied"]);
    assert_eq!(
        world.states(),
        [waits, "b applied"],
        "the object is on its way"
    );
    assert!(!world.work().iter().any(|task| task.starts_with("delete")));

    // The object is gone, and its release is not.
    let objects = &mut world.node.addons.seen.objects;
    objects.retain(|object| object.id.name() != "a");
    world.states();
    assert_eq!(world.states(), [waits, "b applied"]);
    world.node.addons.seen.releases.retain(|it| it.name != "a");
    world.work();
    world.states();
    assert_eq!(world.work(), ["secrets", "look", "look"], "a second look");
    assert_eq!(world.states(), ["a removed", "b applied"]);
    assert!(world.node.addons.find("HelmChart/mine").is_some());
    assert_eq!(world.states(), ["a removed", "b applied"]);
    assert_eq!(world.work(), [""; 0], "and that is that");

    // A restore brings it back: it is known by name, and goes again.
    world.node.addons.charts_wait = false;
    let mut back = world.node.addons.find("HelmChart/b").unwrap().clone();
    back.id = "HelmChart/a".parse().unwrap();
    back.addon = "a".to_owned();
    world.node.addons.seen.objects.push(back);
    world.ten_minutes();
    let work = world.work();
    assert!(
        work.contains(&"delete a HelmChart kube-system/a".to_owned()),
        "{work:?}"
    );
    assert_eq!(world.states(), ["a removed", "b applied"]);
}

// rules ADD-5, SYNC-6: what another server's agent has applied while that led goes, too, even if the document does not have it
// any more, nor the release. What has the labels and was applied by nobody of ours stays.
#[test]
fn add_5_what_another_leader_has_applied_is_deleted_as_well() {
    let mut other = World::enrolled();
    let release = signed_release(vec![addon("a", &[], &[])]);
    other.switch(1, &release, "a");
    let mut world = World::enrolled();
    world.node.addons = other.node.addons;
    let mut mine = world.node.addons.find("HelmChart/a").unwrap().clone();
    mine.id = "HelmChart/mine".parse().unwrap();
    mine.is_applied = false;
    world.node.addons.seen.objects.push(mine);
    world.switch(2, &signed_release(vec![addon("b", &[], &[])]), "-b");
    assert_eq!(
        world.work(),
        [
            "secrets",
            "look",
            "delete a HelmChart kube-system/a",
            "look"
        ]
    );
    world.states();
    assert_eq!(world.states(), ["b removed"]);
    assert!(world.node.addons.find("HelmChart/mine").is_some());
}

// rule ADD-5: an add-on that the document does not have is off; it is reported until it is gone.
#[test]
fn add_5_what_the_document_does_not_have_is_deleted() {
    let mut world = World::enrolled();
    let release = signed_release(vec![addon("a", &[], &[])]);
    world.switch(1, &release, "a");
    world.node.addons.charts_wait = true;
    world.switch(2, &signed_release(vec![]), "");
    let waits = "a pending: waits until its objects and its releases are gone";
    assert_eq!(world.states(), [waits]);
    world.node.addons.clear();
    world.states();
    assert_eq!(world.states(), [""; 0]);
}

// rule ADD-6: a template that fails keeps what is there, and holds up no other.
#[test]
fn add_6_a_failed_render_uninstalls_nothing() {
    let mut world = World::enrolled();
    let good = vec![addon("a", &[], &[]), addon("b", &[], &[])];
    world.switch(1, &signed_release(good.clone()), "a b");
    world.work();
    let mut bad = good;
    bad[0].template = "{{ options.missing }}".to_owned();
    bad[1].template = chart("b").replace("chart: b", "chart: b, version: '2'");
    let mut second = release(bad);
    second.version = "2026.12.1".parse().unwrap();
    world.give(2, &signed(&second), |desired| {
        desired.release = "2026.12.1".parse().unwrap();
        desired.addons = specs("a b");
    });
    assert_eq!(world.work(), ["secrets", "look", "apply b b"]);
    let states = world.states();
    assert!(
        states[0].starts_with("a failed: its template fails: undefined value"),
        "{states:?}"
    );
    assert_eq!(states[1], "b applied");
    assert!(world.disk.in_force, "the document is, all the same");
    assert!(world.node.addons.find("HelmChart/a").is_some());
}

// rule ADD-6: an apply that fails keeps what is there, holds up no other, and is tried again at the next cycle.
#[test]
fn add_6_a_failed_apply_is_tried_again_and_holds_up_no_other() {
    let mut world = World::enrolled();
    world.node.failures = vec![("ApplyAddon", failure("422: spec.chrt: field not declared"))];
    let release = signed_release(vec![addon("a", &[], &[]), addon("b", &[], &[])]);
    world.switch(1, &release, "a b");
    assert_eq!(world.work(), ["secrets", "look", "apply a a", "apply b b"]);
    assert!(world.disk.in_force);
    let failed = "a failed: 422: spec.chrt: field not declared";
    assert_eq!(world.states(), [failed, "b applied"]);
    assert_eq!(world.work(), ["secrets", "look", "apply a a"]);
    assert_eq!(world.states(), ["a applied", "b applied"]);
}

// rule ADD-12: at every cycle until it passes; read only after the change was observed.
#[test]
fn add_12_the_cluster_is_configured_at_every_cycle_until_the_health_check_passes() {
    let mut world = World::enrolled();
    world.node.addons.charts_wait = true;
    let release = signed_release(vec![
        with_health(addon("a", &[], &[])),
        addon("b", &["a"], &[]),
    ]);
    world.switch(1, &release, "a b");
    assert_eq!(world.work(), ["secrets", "look", "apply a a"]);
    let states = world.states();
    assert_eq!(
        states,
        [
            "a pending: health check not passing yet",
            "b pending: waits for add-on a"
        ]
    );
    assert_eq!(world.work(), ["secrets", "look"]);
    world.node.addons.find("HelmChart/a").unwrap().fingerprint = Fingerprint(7);
    world.states();
    assert_eq!(
        world.work(),
        ["secrets", "look", "apply a a"],
        "a hand is overwritten at once"
    );

    // Deployed, and its Deployment is not available yet.
    let deployed = |world: &mut World| {
        world.node.addons.find("HelmChart/a").unwrap().status = Status::Chart {
            is_deployed: true,
            failed: None,
            namespace: "a".to_owned(),
        };
    };
    deployed(&mut world);
    let down = DeploymentRef {
        namespace: "a".to_owned(),
        name: "a".to_owned(),
    };
    world.node.addons.seen.unavailable = vec![down];
    world.states();
    assert_eq!(world.states()[0], "a pending: health check not passing yet");
    world.work();
    world.node.addons.seen.unavailable.clear();
    world.states();
    assert_eq!(world.work(), ["secrets", "look", "apply b b"]);
    assert_eq!(world.states(), ["a applied", "b applied"]);
    world.work();
    world.states();
    assert_eq!(world.work(), [""; 0], "no more");
}

// rules ADD-9, ADD-10: one after the other.
#[test]
fn add_10_a_conflicting_add_on_is_waited_for_until_it_is_gone() {
    let mut world = World::enrolled();
    // Only one of the two says so.
    let release = signed_release(vec![addon("x", &[], &["c"]), addon("c", &[], &[])]);
    world.switch(1, &release, "c");
    world.switch(2, &release, "x c");
    assert_eq!(
        world.states(),
        [
            "x failed: conflicts with add-on c; switch that off first",
            "c applied"
        ]
    );
    world.node.addons.charts_wait = true;
    world.switch(3, &release, "x -c");
    let states = world.states();
    assert_eq!(states[0], "x pending: waits until add-on c is gone");
    world.node.addons.charts_wait = false;
    world.node.addons.clear();
    world.states();
    assert_eq!(world.states(), ["x applied", "c removed"]);
}

fn platform() -> AddonTemplate {
    let platform = "apiVersion: platform.pbx.io/v1alpha1\nkind: Platform\nmetadata: {name: '{{ platform_name }}'}\n\
                    spec: {components: [database]}\n";
    let mut template = addon("platform", &[], &[]);
    template.template = format!("{}---\n{platform}", template.template);
    template
}

// rules ADD-15, ADD-17
#[test]
fn add_15_the_platform_is_switched_off_in_two_steps() {
    let release = signed_release(vec![platform()]);
    let mut world = World::enrolled();
    world.switch(1, &release, "platform");
    assert_eq!(world.states(), ["platform applied"]);
    world.work();

    let applications = |world: &mut World, names: &[&str]| {
        let names = names.iter().map(|name| (*name).to_owned());
        world.node.addons.seen.applications = names.collect();
    };
    applications(&mut world, &["shop/web", "shop/api"]);
    world.switch(2, &release, "-platform");
    assert_eq!(world.work(), ["secrets", "look"], "nothing changes");
    let exist = "platform failed: SaaSApplications exist: shop/web, shop/api; delete them first";
    assert_eq!(world.states(), [exist]);

    // One that comes between the look and the apply is seen by the fresh read.
    applications(&mut world, &[]);
    world.node.holds = Some("EmptyPlatform");
    world.states();
    applications(&mut world, &["shop/late"]);
    world.release_well();
    let exist = "platform failed: SaaSApplications exist: shop/late; delete them first";
    assert_eq!(world.states(), [exist]);

    applications(&mut world, &[]);
    world.work();
    world.states();
    assert_eq!(world.work(), ["secrets", "look", "empty Platform clu-1"]);
    let clears = "platform pending: waits until Flux has removed what the platform has installed";
    assert_eq!(world.states(), [clears]);
    assert!(!world.work().iter().any(|task| task.starts_with("delete")));

    let status = |is_cleared, refuses: Option<&str>| Status::Platform {
        is_empty: true,
        is_cleared,
        refuses: refuses.map(str::to_owned),
    };
    let refuses = Some("database orders needs a part of it");
    world.node.addons.find("Platform/clu-1").unwrap().status = status(false, refuses);
    world.states();
    assert_eq!(
        world.states(),
        ["platform failed: database orders needs a part of it"]
    );
    assert!(!world.work().iter().any(|task| task.starts_with("delete")));

    world.node.addons.find("Platform/clu-1").unwrap().status = status(true, None);
    world.states();
    let deleted = "delete platform HelmChart kube-system/platform Platform clu-1".to_owned();
    assert!(world.work().contains(&deleted));
    world.states();
    assert_eq!(world.states(), ["platform removed"]);
}

// rule ADD-12: what has changed between the two looks of a round is decided in the next one.
#[test]
fn add_12_a_change_that_only_the_second_look_has_seen_is_acted_on() {
    let release = signed_release(vec![platform(), addon("x", &[], &[])]);
    let mut world = World::enrolled();
    world.switch(1, &release, "platform x");
    world.states();
    world.switch(2, &release, "-x -platform");
    world.work();
    // The Platform is not cleared when the cluster is looked at, and is when it is looked at again, since x seems gone.
    world.node.holds = Some("LookAtAddons");
    world.states();
    world.release_well_and_hold(Some("LookAtAddons"));
    let object = world.node.addons.find("Platform/clu-1").unwrap();
    object.status = Status::Platform {
        is_empty: true,
        is_cleared: true,
        refuses: None,
    };
    world.release_well();
    assert_eq!(world.work(), ["secrets", "look", "look"]);
    world.states();
    let deleted = "delete platform HelmChart kube-system/platform Platform clu-1";
    assert_eq!(world.work(), ["secrets", "look", deleted]);
}

// rule SYNC-6: what a round has found out is lost with the Lease, so that it ends with nothing and another one begins.
#[test]
fn sync_6_a_round_in_which_another_has_led_is_made_again() {
    let mut world = crate::lead::looking();
    let release = signed_release(vec![addon("a", &[], &[]), addon("b", &[], &[])]);
    world.node.holds = Some("ApplyAddon");
    world.switch(1, &release, "a b");
    world.node.another_leads();
    world.states();
    world.states();
    world.node.no_other_is_left();
    world.states();
    world.states();
    world.node.holds = None;
    world.work();
    world.release_well();
    let again = ["apply a a", "secrets", "look", "apply a a", "apply b b"];
    assert_eq!(world.work(), again);
    assert_eq!(world.states(), ["a applied", "b applied"]);
}

// rule SYNC-6: who does not lead touches nothing and says nothing; who comes to lead does it at once.
#[test]
fn sync_6_add_ons_are_the_leaders() {
    let mut world = crate::lead::looking();
    world.node.another_leads();
    let release = signed_release(vec![addon("a", &[], &[])]);
    world.switch(1, &release, "a");
    assert!(world.disk.in_force);
    assert_eq!(world.states(), [""; 0]);
    assert_eq!(world.work(), [""; 0]);
    world.node.no_other_is_left();
    world.states();
    world.states();
    assert_eq!(world.work(), ["secrets", "look", "apply a a"]);
    assert_eq!(world.states(), ["a applied"]);
    world.node.another_leads();
    world.states();
    assert_eq!(world.states(), [""; 0]);
    world.ten_minutes();
    assert_eq!(world.work(), [""; 0]);
}

// After a restart of k3s or a restore what is in the cluster may be from another time: it is looked at as soon as the API is
// back (rule SYNC-3).
#[test]
fn sync_3_the_add_ons_are_looked_at_as_soon_as_the_api_is_back() {
    let mut world = World::enrolled();
    let release = signed_release(vec![addon("a", &[], &[])]);
    world.switch(1, &release, "a");
    world.states();
    world.node.shows = api_down();
    world.states();
    world.work();
    world.node.addons.clear();
    world.node.shows = healthy();
    world.states();
    assert_eq!(world.work(), ["secrets", "look", "apply a a"]);
}

// rules ADD-5, OPS-2: a crash at any write or task ends with the same cluster and the same states.
#[test]
fn add_5_a_crash_anywhere_leaves_nothing_unknown() {
    let release = signed_release(vec![addon("a", &["b"], &[]), addon("b", &[], &[])]);
    for crash_at in 1..40 {
        for is_kept in [false, true] {
            let mut world = World::enrolled();
            let crash = |world: &mut World| {
                if world.is_dead() {
                    world.crash();
                }
            };
            world.dies_in_store = Some((crash_at, is_kept));
            let give = |world: &mut World, generation: u64, words: &str| {
                let mut wanted = desired(generation);
                wanted.addons = specs(words);
                let raw = wanted.to_raw();
                for _ in 0..8 {
                    let Some(sent) = world.next_call() else {
                        crash(world);
                        continue;
                    };
                    match sent.endpoint() {
                        protocol::endpoint::Endpoint::Sync => world.answer_sync(Some(&raw), None),
                        _ => world.answer(AnswerBody::Manifest(Arc::clone(&release))),
                    }
                    crash(world);
                }
            };
            give(&mut world, 1, "a b");
            give(&mut world, 2, "-a -b");
            assert_eq!(world.node.addons.seen.objects, [], "{crash_at} {is_kept}");
            assert_eq!(
                world.states(),
                ["a removed", "b removed"],
                "{crash_at} {is_kept}"
            );
        }
    }
}

// What a HelmChart says so that a failure neither uninstalls what runs nor goes on for ever.
#[test]
fn a_chart_that_fails_is_never_installed_anew_once_it_has_run() {
    let policy = |world: &World| {
        let applied = world.applied();
        let Content::Spec(spec) = &applied.last().unwrap().content else {
            panic!("{applied:?}");
        };
        assert_eq!(
            (&spec["backOffLimit"], &spec["timeout"]),
            (&json!(5), &json!("10m"))
        );
        spec["failurePolicy"].as_str().unwrap().to_owned()
    };
    let release = signed_release(vec![addon("a", &[], &[])]);
    let mut world = World::enrolled();
    world.node.addons.seen.offers_retry = false;
    world.node.addons.charts_wait = true;
    world.switch(1, &release, "a");
    assert_eq!(policy(&world), "reinstall");
    world.node.addons.find("HelmChart/a").unwrap().status = Status::Chart {
        is_deployed: true,
        failed: None,
        namespace: "a".to_owned(),
    };
    world.ten_minutes();
    assert_eq!(policy(&world), "abort");
    // And so it stays, whatever the chart's state is now.
    world.node.addons.find("HelmChart/a").unwrap().fingerprint = Fingerprint(7);
    world.ten_minutes();
    assert_eq!(policy(&world), "abort");

    let mut world = World::enrolled();
    world.switch(1, &release, "a");
    assert_eq!(policy(&world), "retry");
    world.node.addons.find("HelmChart/a").unwrap().status = Status::Chart {
        is_deployed: false,
        failed: Some("job failed".to_owned()),
        namespace: "a".to_owned(),
    };
    world.ten_minutes();
    assert_eq!(
        world.states(),
        ["a failed: release a is failed, needs retry"]
    );
}

// rule ADD-6: what a template must not do to a chart that runs.
#[test]
fn add_6_a_template_neither_drops_nor_moves_what_is_there() {
    let rows = [
        (
            chart("other"),
            "its template has no HelmChart kube-system/a any more; it is kept",
        ),
        (
            chart("a").replace("targetNamespace: a", "targetNamespace: b"),
            "its template moves the release of HelmChart kube-system/a from namespace a to b; it is kept where it is",
        ),
        (
            format!("{}---\n{}", chart("a"), chart("b")),
            "HelmChart kube-system/b is of add-on b",
        ),
    ];
    for (template, refused) in rows {
        let mut world = World::enrolled();
        let good = vec![addon("a", &[], &[]), addon("b", &[], &[])];
        world.switch(1, &signed_release(good.clone()), "a b");
        world.work();
        let mut bad = good;
        bad[0].template = template;
        let mut second = release(bad);
        second.version = "2026.12.1".parse().unwrap();
        world.give(2, &signed(&second), |desired| {
            desired.release = "2026.12.1".parse().unwrap();
            desired.addons = specs("a b");
        });
        assert_eq!(world.work(), ["secrets", "look"]);
        assert_eq!(
            world.states(),
            [format!("a failed: {refused}"), "b applied".to_owned()]
        );
    }
}

// rule WIRE-5: a template engine that this agent does not know fails the add-ons alone.
#[test]
fn wire_5_an_unknown_template_engine_fails_the_add_ons_alone() {
    let mut world = World::enrolled();
    let mut unknown = release(vec![addon("a", &[], &[])]);
    unknown.template_engine = TemplateEngine::Unknown("gotmpl".into());
    world.switch(1, &signed(&unknown), "a b");
    assert!(world.disk.in_force);
    let states = world.states();
    assert_eq!(
        states,
        [
            "a failed: its template is written for gotmpl, which this agent does not know",
            "b failed: the release has no such add-on",
        ]
    );
    assert_eq!(
        world.sync().report().document.result,
        DocumentResult::Applied
    );
}

// rule ADD-4: what goes to the host is sealed, in the Secret alone; what goes to the portal and to the disk has none of it.
#[test]
fn add_4_a_secret_option_goes_to_the_host_sealed() {
    let secret = "---\napiVersion: v1\nkind: Secret\nmetadata: {name: '{{ secret_name }}', namespace: kube-system}\n\
                  stringData:\n  values.yaml: |\n    key: {{ secret_options.key }}\n";
    let mut template = addon("a", &[], &[]);
    template.template.push_str(secret);
    let release = signed_release(vec![template]);
    let mut world = World::enrolled();
    world.give(1, &release, |desired| {
        desired.addons = specs("a");
        let options = &mut desired.addons[0].secret_options;
        options.insert("key".to_owned(), sealed("the box of the key"));
    });
    let objects = world.applied();
    assert_eq!(ids(&objects), "a pbx-addon-a");
    let Content::Secret { data, .. } = &objects[1].content else {
        panic!("{objects:?}");
    };
    let open = |sealed: &Sealed| {
        assert_eq!(sealed.as_bytes(), b"the box of the key");
        Some(Secret::from("opened".to_owned()))
    };
    let text = data["values.yaml"].open(open).unwrap();
    assert_eq!(text.expose_text(), Some("key: \"opened\"\n"));
    assert_eq!(world.states(), ["a applied"]);
}

// rule SYNC-4: an agent that does not believe the manifest of the document it has (its own keys are others now) changes
// nothing, not even what is off.
#[test]
fn sync_4_a_manifest_that_is_believed_no_more_changes_nothing() {
    let mut world = World::enrolled();
    let release = signed_release(vec![addon("a", &[], &[]), addon("b", &[], &[])]);
    world.switch(1, &release, "a b");
    let disk: Durable = (*world.disk).clone();
    let seen = world.node.addons.seen.clone();
    let mut other_keys = facts();
    let key = SigningKey::from_seed([77; 32]).public();
    let key = protocol::sign::VerifyingKey::parse(&key).unwrap();
    other_keys.release_keys = Arc::new(ReleaseKeys::new([key]).unwrap());
    let document = Arc::clone(&disk.document.as_ref().unwrap().raw);
    let mut world = World::with_facts(disk, other_keys, 5);
    world.node.addons.seen = seen;
    world.node.addons.find("HelmChart/a").unwrap().fingerprint = Fingerprint(7);
    world.states();
    let told = world.sync().report().document.clone();
    assert_eq!(told.result, DocumentResult::ManifestRejected);
    let why = "no signature is of a release key built into this agent";
    assert_eq!(told.message.as_deref(), Some(why));
    world.answer_sync(None, None);
    world.ten_minutes();
    assert_eq!(world.work(), [""; 0], "not even its Secrets are written");

    // The portal has its manifest signed by one of them meanwhile.
    world.sync();
    world.answer_sync(Some(&document), None);
    assert_eq!(
        world.out_endpoint(),
        Some(protocol::endpoint::Endpoint::Manifest)
    );
    let manifest = Manifest::clone(
        &release_keys()
            .verify(&release, &"2026.11.1".parse().unwrap())
            .unwrap(),
    );
    let signed = signed_by(&SigningKey::from_seed([77; 32]), &manifest);
    world.answer(AnswerBody::Manifest(signed));
    world.states();
    assert!(world.work().contains(&"apply a a".to_owned()));
    assert_eq!(world.states(), ["a applied", "b applied"]);
}

// rule ADD-7: a report has one state for each add-on of the document, in its order; a document without add-ons costs no look.
#[test]
fn add_7_a_report_has_one_state_for_each_add_on() {
    let mut world = World::enrolled();
    world.take(&document(1));
    assert_eq!(world.work(), ["secrets"]);
    assert_eq!(world.states(), [""; 0]);
    let release = signed_release(vec![
        addon("a", &[], &[]),
        addon("b", &["c"], &[]),
        addon("c", &[], &[]),
    ]);
    let mut world = World::enrolled();
    world.switch(1, &release, "b -c a x a");
    let states = world.states();
    assert_eq!(
        states,
        [
            "b failed: requires add-on c, which is off",
            "c failed: still required",
            "a failed: the document names it twice",
            "x failed: the release has no such add-on",
        ]
    );
    let report = world.sync().report().clone();
    assert!(
        report
            .addons
            .iter()
            .all(|addon| addon.state == AddonState::Failed)
    );
}
