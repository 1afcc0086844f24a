//! The add-ons of a simulated cluster: objects with UIDs, the charts that helm-controller installs from them in its own
//! time, the Platform and what Flux installs for it.
//!
//! Nothing happens by itself here: what a controller would have done by a moment is worked out when the cluster is looked at.
//! Data, volumes and CRDs of a release stay when it goes, as they do with Helm.

use std::collections::BTreeSet;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher as _};
use std::sync::Arc;

use agent_core::pbx::addon::object::{
    ADDON_LABEL, Content, MANAGED_LABEL, NAMESPACE, Object, ObjectId, ObjectKind,
};
use agent_core::pbx::addon::seen::{
    AddonsSeen, AppliedObject, Fingerprint, Look, Release, SeenObject, Status,
};
use agent_core::pbx::task::{Doomed, Uid};
use agent_core::time::Monotonic;
use litemap::LiteMap;
use protocol::hash::Sha256Hex;
use protocol::id::AddonName;
use protocol::pbx::release::DeploymentRef;
use protocol::seal::{Sealed, Secret};

/// How long what happens to add-ons takes, in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddonCosts {
    /// Between two passes of k3s over its manifests.
    pub manifests_pass_ms: u64,
    /// A job of Helm that installs or upgrades a chart.
    pub install_ms: u64,
    /// One that uninstalls it.
    pub uninstall_ms: u64,
    /// From there until its Deployments are available.
    pub rollout_ms: u64,
    /// Until Flux has installed, or removed, what the Platform says.
    pub flux_ms: u64,
}

impl Default for AddonCosts {
    /// A small cluster.
    fn default() -> Self {
        Self {
            manifests_pass_ms: 15_000,
            install_ms: 12_000,
            uninstall_ms: 9_000,
            rollout_ms: 8_000,
            flux_ms: 20_000,
        }
    }
}

/// What etcd holds of add-ons.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Addons {
    objects: LiteMap<ObjectId, SimObject>,
    /// The releases that were there once: their data, volumes and CRDs.
    releases: LiteMap<Release, Installed>,
    /// The `SaaSApplication` objects, as `namespace/name`.
    applications: BTreeSet<String>,
}

/// What stands in the way of an add-on in a cluster; a test's hand.
#[derive(Debug, Clone, Default)]
pub struct Obstacles {
    /// Charts whose jobs fail.
    pub broken_charts: BTreeSet<String>,
    /// Why the Platform refuses to be removed.
    pub platform_refuses: Option<String>,
    /// Deployments that never become available.
    pub unavailable: BTreeSet<(String, String)>,
    /// The helm-controller knows nothing of the failure policy `retry`.
    pub is_old_controller: bool,
}

/// What is left of a release but its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Installed {
    /// It has a Secret of Helm's.
    There,
    /// Its HelmChart is gone, and its last resources and the Secret go until then.
    Leaving(Monotonic),
    Gone,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct SimObject {
    uid: u64,
    is_managed: bool,
    addon: String,
    /// An agent has applied it.
    is_applied: bool,
    fingerprint: Fingerprint,
    changed_at: Monotonic,
    deleting_since: Option<Monotonic>,
    body: Body,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Body {
    Plain,
    Chart { release: Release, chart: String },
    Platform { is_empty: bool },
}

/// What the API server knows of a HelmChart's `spec`; another member is refused by strict validation.
const CHART_MEMBERS: [&str; 25] = [
    "authPassCredentials",
    "authSecret",
    "backOffLimit",
    "bootstrap",
    "chart",
    "chartContent",
    "createNamespace",
    "dockerRegistrySecret",
    "driver",
    "failurePolicy",
    "helmVersion",
    "insecureSkipTLSVerify",
    "jobImage",
    "plainHTTP",
    "podSecurityContext",
    "repo",
    "repoCA",
    "repoCAConfigMap",
    "securityContext",
    "set",
    "targetNamespace",
    "timeout",
    "valuesContent",
    "valuesSecrets",
    "version",
];

/// The Kubernetes API, as far as add-ons go.
#[derive(Debug)]
pub struct AddonsApi<'a> {
    pub(crate) addons: &'a mut Addons,
    pub(crate) obstacles: &'a Obstacles,
    pub(crate) uids: &'a mut u64,
}

/// What an agent asks of it.
impl AddonsApi<'_> {
    /// What a look shows.
    pub fn look(&mut self, look: &Look, now: Monotonic, costs: &AddonCosts) -> AddonsSeen {
        let Self {
            addons, obstacles, ..
        } = self;
        let obstacles = *obstacles;
        addons.pass_time(now, costs, obstacles);
        let objects = addons.objects.iter().filter(|(_, it)| it.is_managed);
        let seen = |(id, object): (&ObjectId, &SimObject)| SeenObject {
            id: id.clone(),
            addon: object.addon.clone(),
            is_applied: object.is_applied,
            uid: uid(object.uid),
            fingerprint: object.fingerprint,
            is_deleting: object.deleting_since.is_some(),
            status: status(object, now, costs, obstacles),
        };
        let has_chart = |release: &Release| {
            let mut charts = addons.objects.values();
            charts.any(
                |it| matches!(&it.body, Body::Chart { release: of, .. } if of.name == release.name),
            )
        };
        let is_there = |release: &&Release| {
            let installed = addons.releases.get(*release);
            installed.is_some_and(|it| *it != Installed::Gone) && !has_chart(release)
        };
        let is_down = |it: &&DeploymentRef| !addons.is_available(it, now, costs, obstacles);
        AddonsSeen {
            objects: objects.map(seen).collect(),
            releases: look.releases.iter().filter(is_there).cloned().collect(),
            unavailable: look.deployments.iter().filter(is_down).cloned().collect(),
            applications: addons.applications.iter().cloned().collect(),
            offers_retry: !obstacles.is_old_controller,
        }
    }

    /// The `SaaSApplication` objects.
    pub fn applications(&self) -> Vec<String> {
        self.addons.applications.iter().cloned().collect()
    }

    /// Applies an object that was admitted.
    pub fn apply(
        &mut self,
        object: &Object,
        fingerprint: Fingerprint,
        now: Monotonic,
    ) -> AppliedObject {
        let label = |key: &str| object.labels.get(key).map(String::as_str);
        let is_managed = label(MANAGED_LABEL.0) == Some(MANAGED_LABEL.1);
        let addon = label(ADDON_LABEL).unwrap_or_default().to_owned();
        let there = self.write(&object.id, fingerprint, body(object), now);
        (there.is_managed, there.addon, there.is_applied) = (is_managed, addon, true);
        AppliedObject {
            uid: uid(there.uid),
            fingerprint,
        }
    }

    /// k3s applies a first-start manifest: a HelmChart of that name, as it was in the beginning. The labels that others have
    /// set stay.
    pub fn apply_first_manifest(
        &mut self,
        addon: &AddonName,
        content: Fingerprint,
        now: Monotonic,
    ) {
        let Ok(id) = ObjectId::new(ObjectKind::HelmChart, addon.as_str()) else {
            return;
        };
        let name = addon.to_string();
        let body = Body::Chart {
            release: Release {
                name: name.clone(),
                namespace: NAMESPACE.to_owned(),
            },
            chart: name,
        };
        self.write(&id, content, body, now).is_managed = true;
    }

    /// An object is there, and holds this; nothing happens to one that held it before.
    fn write(
        &mut self,
        id: &ObjectId,
        fingerprint: Fingerprint,
        body: Body,
        now: Monotonic,
    ) -> &mut SimObject {
        if let Body::Chart { release, .. } = &body {
            (self.addons.releases).insert(release.clone(), Installed::There);
        }
        let uids = &mut *self.uids;
        let there = self.addons.objects.entry(id.clone()).or_insert_with(|| {
            *uids += 1;
            SimObject {
                uid: *uids,
                is_managed: false,
                addon: String::new(),
                is_applied: false,
                fingerprint,
                changed_at: now,
                deleting_since: None,
                body: body.clone(),
            }
        });
        if there.fingerprint != fingerprint {
            (there.fingerprint, there.body, there.changed_at) = (fingerprint, body, now);
        }
        there
    }

    /// Deletes an object that still has this UID; what has a controller goes when that is through.
    pub fn delete(&mut self, doomed: &Doomed, now: Monotonic) {
        let objects = &mut self.addons.objects;
        let Some(object) = objects
            .get_mut(&doomed.id)
            .filter(|it| uid(it.uid) == doomed.uid)
        else {
            return;
        };
        match object.body {
            Body::Chart { .. } => {
                object.deleting_since.get_or_insert(now);
            }
            Body::Plain | Body::Platform { .. } => {
                objects.remove(&doomed.id);
            }
        }
    }
}

/// Other hands than an agent's.
impl AddonsApi<'_> {
    /// Somebody changes an object, if it is there.
    pub fn edit(&mut self, id: &ObjectId, now: Monotonic) {
        if let Some(object) = self.addons.objects.get_mut(id) {
            object.fingerprint.0 = !object.fingerprint.0;
            object.changed_at = now;
        }
    }

    /// Somebody deletes an object.
    pub fn delete_by_hand(&mut self, id: &ObjectId, now: Monotonic) {
        if let Some(uid) = self.addons.objects.get(id).map(|object| uid(object.uid)) {
            self.delete(
                &Doomed {
                    id: id.clone(),
                    uid,
                },
                now,
            );
        }
    }

    /// Somebody makes an object with an add-on's labels, of a name that no template has.
    pub fn create_by_hand(&mut self, id: &ObjectId, addon: &AddonName, now: Monotonic) {
        let there = self.write(id, Fingerprint(0), Body::Plain, now);
        (there.is_managed, there.addon) = (true, addon.to_string());
    }

    /// Somebody makes an application on the Platform.
    pub fn create_application(&mut self, name: &str) {
        self.addons.applications.insert(name.to_owned());
    }

    /// Somebody deletes it.
    pub fn delete_application(&mut self, name: &str) {
        self.addons.applications.remove(name);
    }

    /// The objects that are there.
    pub fn objects(&self) -> impl Iterator<Item = &ObjectId> {
        self.addons.objects.keys()
    }

    /// The releases whose data, volumes and CRDs are there.
    pub fn left_behind(&self) -> impl Iterator<Item = &Release> {
        self.addons.releases.keys()
    }
}

impl Addons {
    /// What controllers have done by now.
    fn pass_time(&mut self, now: Monotonic, costs: &AddonCosts, obstacles: &Obstacles) {
        // The object goes before the release does.
        let releases = &mut self.releases;
        self.objects.retain(|_, object| {
            let Some(since) = object.deleting_since else {
                return true;
            };
            let Body::Chart { release, chart } = &object.body else {
                return false;
            };
            if obstacles.broken_charts.contains(chart) {
                return true;
            }
            let goes = since.plus_ms(costs.uninstall_ms / 2) <= now;
            if goes {
                let until = since.plus_ms(costs.uninstall_ms);
                releases.insert(release.clone(), Installed::Leaving(until));
            }
            !goes
        });
        for (_, installed) in self.releases.iter_mut() {
            if matches!(*installed, Installed::Leaving(until) if until <= now) {
                *installed = Installed::Gone;
            }
        }
    }

    fn is_available(
        &self,
        deployment: &DeploymentRef,
        now: Monotonic,
        costs: &AddonCosts,
        obstacles: &Obstacles,
    ) -> bool {
        let DeploymentRef { namespace, name } = deployment;
        let never = (namespace.clone(), name.clone());
        let is_rolled_out = |object: &SimObject| match &object.body {
            Body::Chart { release, .. } => {
                let is_deployed = matches!(
                    status(object, now, costs, obstacles),
                    Status::Chart {
                        is_deployed: true,
                        ..
                    }
                );
                let rolled_out = costs.install_ms + costs.rollout_ms;
                release.namespace == *namespace
                    && is_deployed
                    && object.changed_at.plus_ms(rolled_out) <= now
            }
            Body::Plain | Body::Platform { .. } => false,
        };
        !obstacles.unavailable.contains(&never) && self.objects.values().any(is_rolled_out)
    }
}

fn uid(number: u64) -> Uid {
    Uid(format!("uid-{number}"))
}

fn status(object: &SimObject, now: Monotonic, costs: &AddonCosts, obstacles: &Obstacles) -> Status {
    match &object.body {
        Body::Plain => Status::None,
        Body::Chart { chart, release } => {
            let is_over = object.changed_at.plus_ms(costs.install_ms) <= now;
            let is_broken = obstacles.broken_charts.contains(chart);
            Status::Chart {
                is_deployed: is_over && !is_broken,
                failed: (is_over && is_broken).then(|| format!("the job of {chart} failed")),
                namespace: release.namespace.clone(),
            }
        }
        Body::Platform { is_empty } => {
            let is_taken_up = object.changed_at.plus_ms(costs.flux_ms) <= now;
            let refuses = obstacles.platform_refuses.clone();
            Status::Platform {
                is_empty: *is_empty,
                is_cleared: *is_empty && is_taken_up && refuses.is_none(),
                refuses,
            }
        }
    }
}

/// Strict validation, and what the API server will have of an object, its secrets opened.
///
/// # Errors
/// With what the API server refuses, or the secret that does not open.
pub(crate) fn admit(
    object: &Object,
    mut open: impl FnMut(&Sealed) -> Option<Arc<Secret>>,
) -> Result<Fingerprint, String> {
    let content = match &object.content {
        Content::Spec(spec) => {
            let is_chart = object.id.kind() == ObjectKind::HelmChart;
            let is_strange = |member: &&String| !CHART_MEMBERS.contains(&member.as_str());
            if let Some(member) = spec.keys().find(is_strange).filter(|_| is_chart) {
                let id = &object.id;
                return Err(format!(
                    "{id}: .spec.{member}: field not declared in schema"
                ));
            }
            serde_json::to_vec(spec).unwrap_or_default()
        }
        Content::Secret { kind, data } => {
            let mut content = kind.clone().into_bytes();
            for (key, text) in data {
                let text = text.open(&mut open);
                let text = text.map_err(|why| format!("{}: {key}: {why}", object.id))?;
                content.extend_from_slice(key.as_bytes());
                content.extend_from_slice(Sha256Hex::of(text.expose()).as_bytes());
            }
            content
        }
    };
    Ok(fingerprint_of(&(
        &object.labels,
        &object.annotations,
        content,
    )))
}

fn body(object: &Object) -> Body {
    let Content::Spec(spec) = &object.content else {
        return Body::Plain;
    };
    let text = |member: &str| spec.get(member).and_then(|value| value.as_str());
    match object.id.kind() {
        ObjectKind::HelmChart => Body::Chart {
            release: Release {
                name: object.id.name().to_owned(),
                namespace: object.release_namespace().unwrap_or_default().to_owned(),
            },
            chart: text("chart").unwrap_or_default().to_owned(),
        },
        ObjectKind::Platform => Body::Platform {
            is_empty: (spec.get("components").and_then(|it| it.as_array()))
                .is_none_or(|components| components.is_empty()),
        },
        ObjectKind::HelmChartConfig | ObjectKind::Secret => Body::Plain,
    }
}

pub(crate) fn fingerprint_of(value: &impl Hash) -> Fingerprint {
    let mut hash = DefaultHasher::new();
    value.hash(&mut hash);
    Fingerprint(hash.finish())
}
