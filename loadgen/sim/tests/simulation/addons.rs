//! Add-ons for a fleet: a release with some of every kind, documents that switch them on and off, hands that meddle, and what
//! must come of it, worked out from the document alone.

use std::collections::BTreeSet;

use agent_core::time::Monotonic;
use fleet_sim::cluster::SimCluster;
use protocol::id::{AddonName, ClusterId};
use protocol::pbx::release::{
    AddonTemplate, AgentRelease, DeploymentRef, HealthCheck, ImageRelease, Manifest, TemplateEngine,
};
use protocol::time::Timestamp;
use serde_json::{Value, json};

pub(crate) const RELEASE: &str = "2026.11.9";

fn chart(name: &str) -> String {
    format!(
        "apiVersion: helm.cattle.io/v1\nkind: HelmChart\nmetadata: {{name: {name}, namespace: kube-system}}\n\
         spec: {{chart: {name}, targetNamespace: {name}, valuesContent: '{{{{ options | tojson }}}}'}}\n"
    )
}

fn addon(name: &str, requires: &[&str], conflicts: &[&str], template: String) -> AddonTemplate {
    let names = |names: &[&str]| names.iter().map(|name| name.parse().unwrap()).collect();
    AddonTemplate {
        name: name.parse().unwrap(),
        requires: names(requires),
        conflicts: names(conflicts),
        template,
        health: (name == "base" || name == "alt").then(|| HealthCheck {
            deployments: vec![DeploymentRef {
                namespace: name.to_owned(),
                name: "controller".to_owned(),
            }],
        }),
    }
}

/// The release that most documents name.
pub(crate) fn release() -> Manifest {
    let secret = "---\napiVersion: v1\nkind: Secret\nmetadata: {name: '{{ secret_name }}', namespace: kube-system}\n\
                  stringData:\n  values.yaml: |\n    key: {{ secret_options.acme_key }}\n";
    let platform = "---\napiVersion: platform.pbx.io/v1alpha1\nkind: Platform\nmetadata: {name: '{{ platform_name }}'}\n\
                    spec: {components: [database, cache]}\n";
    Manifest {
        version: RELEASE.parse().unwrap(),
        created_at: Timestamp::from_unix_ms(1_793_836_800_000),
        floor: 12,
        template_engine: TemplateEngine::Minijinja,
        agent: AgentRelease {
            version: "1.4.0".parse().unwrap(),
            artifacts: Vec::new(),
        },
        image: ImageRelease {
            k3s_version: "v1.34.1+k3s1".to_owned(),
            artifacts: Vec::new(),
        },
        addons: vec![
            addon("dns", &["base"], &[], chart("dns")),
            addon("base", &[], &[], chart("base") + secret),
            addon("alt", &[], &["base"], chart("alt")),
            addon(
                "flaky",
                &[],
                &[],
                "{% if options.fails %}{{ options.missing }}{% endif %}".to_owned()
                    + &chart("flaky"),
            ),
            // k3s installs it by its first-start manifest, where that has its release.
            addon(
                "hcloud-ccm",
                &[],
                &[],
                chart("hcloud-ccm").replace(
                    "targetNamespace: hcloud-ccm",
                    "targetNamespace: kube-system",
                ),
            ),
            addon("platform", &[], &[], chart("platform") + platform),
        ],
    }
}

/// The add-ons of a document.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wanted {
    pub(crate) release: &'static str,
    /// Whether each is on; what is not here the document does not have.
    addons: Vec<(&'static str, bool)>,
    flaky_fails: bool,
}

/// What is added to the number of the last document.
pub(crate) const LAST: u32 = 1_000;

impl Wanted {
    /// What a document of a run wants. The last one of a run wants only what can be had together.
    pub(crate) fn of(seed: u64, number: u32) -> Self {
        if number == 1 {
            return Self {
                release: "2026.11.1",
                addons: vec![("cert-manager", true), ("metrics", true)],
                flaky_fails: false,
            };
        }
        // SplitMix64, as good as any.
        let mut mixed = (seed << 20 ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let bit = |at: u32| mixed >> (20 + at) & 1 == 1;
        let is_last = number > LAST;
        let base = bit(0);
        let addons = vec![
            ("base", base),
            ("dns", if is_last { base && bit(1) } else { bit(1) }),
            ("alt", if is_last { !base } else { bit(2) }),
            ("flaky", bit(3)),
            ("hcloud-ccm", bit(4)),
            ("platform", bit(5)),
        ];
        // Some are not in the document at all.
        let is_named = |&(name, is_on): &(&str, bool)| is_on || name != "flaky" || bit(6);
        Self {
            release: RELEASE,
            addons: addons.into_iter().filter(is_named).collect(),
            flaky_fails: bit(7),
        }
    }

    /// As a document has them.
    pub(crate) fn specs(&self) -> Value {
        let spec = |(name, is_on): &(&str, bool)| {
            json!({"name": name, "enabled": is_on, "options": {"replicas": 2, "fails": self.flaky_fails},
                   "secret_options": {"acme_key": "canary-acme-key"}})
        };
        self.addons.iter().map(spec).collect()
    }

    /// What a leader says of them in the end.
    pub(crate) fn states(&self, there: &BTreeSet<String>, applications: &[String]) -> Vec<String> {
        let of_platform = |id: &String| id.starts_with("Platform/") || id == "HelmChart/platform";
        let has_platform = there.iter().any(of_platform);
        let state = |&(name, is_on): &(&str, bool)| match is_on {
            true if self.fails(name) => {
                format!("{name} failed: its template fails: undefined value (in {name}:1)")
            }
            true => format!("{name} applied"),
            // A restore has brought one back.
            false if name == "platform" && has_platform && !applications.is_empty() => {
                let names = applications.join(", ");
                format!("{name} failed: SaaSApplications exist: {names}; delete them first")
            }
            false => format!("{name} removed"),
        };
        self.addons.iter().map(state).collect()
    }

    fn fails(&self, name: &str) -> bool {
        name == "flaky" && self.flaky_fails
    }

    /// What is in a cluster in the end: what is on, and nothing of what is off. What fails keeps what there was of it.
    pub(crate) fn check_objects(
        &self,
        there: &BTreeSet<String>,
        applications: &[String],
        cluster: &ClusterId,
    ) {
        let platform = cluster.as_str().to_lowercase().replace('_', "-");
        for (name, objects) in [
            (
                "base",
                vec![
                    "HelmChart/base".to_owned(),
                    "Secret/pbx-addon-base".to_owned(),
                ],
            ),
            ("dns", vec!["HelmChart/dns".to_owned()]),
            ("alt", vec!["HelmChart/alt".to_owned()]),
            ("flaky", vec!["HelmChart/flaky".to_owned()]),
            (
                "platform",
                vec![
                    "HelmChart/platform".to_owned(),
                    format!("Platform/{platform}"),
                ],
            ),
            ("cert-manager", vec!["HelmChart/cert-manager".to_owned()]),
            ("metrics", vec!["HelmChart/metrics".to_owned()]),
        ] {
            let is_on = self.addons.iter().any(|(it, is_on)| *it == name && *is_on);
            let is_kept = name == "platform" && !applications.is_empty();
            if is_on && self.fails(name) || !is_on && is_kept {
                continue;
            }
            for object in objects {
                assert_eq!(there.contains(&object), is_on, "{object} of {there:?}");
            }
        }
        let is_on = self.addons.contains(&("hcloud-ccm", true));
        assert!(!is_on || there.contains("HelmChart/hcloud-ccm"));
    }
}

/// Somebody changes some objects, deletes others, and has an application on the Platform for a while.
pub(crate) fn meddle(cluster: &mut SimCluster, number: u64, now: Monotonic) {
    let obstacles = &mut cluster.obstacles;
    obstacles.platform_refuses = (number % 5 == 1).then(|| "a database needs it".to_owned());
    obstacles.is_old_controller = number % 7 == 1;
    let Ok(mut api) = cluster.addons() else {
        return;
    };
    let ids: Vec<_> = api.objects().cloned().collect();
    for (at, id) in (0..).zip(&ids) {
        match (number + at) % 4 {
            0 => api.edit(id, now),
            1 => api.delete_by_hand(id, now),
            _ => {}
        }
    }
    match number % 3 {
        0 => api.create_application("shop/web"),
        _ => api.delete_application("shop/web"),
    }
    let base: AddonName = "base".parse().unwrap();
    let own = "Secret/pbx-addon-base-of-somebody".parse().unwrap();
    api.create_by_hand(&own, &base, now);
}

/// Nobody meddles any more.
pub(crate) fn leave_alone(cluster: &mut SimCluster) {
    cluster.obstacles = fleet_sim::addons::Obstacles::default();
    if let Ok(mut api) = cluster.addons() {
        api.delete_application("shop/web");
    }
}
