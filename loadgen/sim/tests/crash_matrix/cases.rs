//! What each kind of operation needs before it, and what its node must look like after it, however it came there.

use portal_core::control::OperationView;
use protocol::hash::Sha256Hex;
use protocol::id::NodeName;
use protocol::pbx::operation::{
    AccessIssueResult, NodeDrainResult, OperationKind, Role, SnapshotSaveResult,
};
use protocol::seal::SealingSecretKey;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::bench::{Bench, MEMBER};
use crate::rows::End;

/// A kind, with all that a run of it needs.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    kind: &'static str,
    /// Servers of the cluster.
    pub(crate) servers: u32,
    pub(crate) prepare: fn(&mut Bench),
    pub(crate) params: fn(&Bench) -> Value,
    /// Looks at node, cluster and result in the end.
    pub(crate) check: fn(&Bench, &OperationView),
}

impl Case {
    pub(crate) fn kind(&self) -> OperationKind {
        OperationKind::from(self.kind)
    }
}

fn nothing(_: &mut Bench) {}

/// All kinds.
pub(crate) const CASES: &[Case] = &[
    Case {
        name: "a snapshot",
        kind: "snapshot.save",
        servers: 1,
        prepare: nothing,
        params: |_| json!({"name": "nightly"}),
        check: |bench, view| {
            let saved: SnapshotSaveResult = result(view);
            assert!(
                bench
                    .cluster()
                    .lock()
                    .unwrap()
                    .in_bucket(&saved.name)
                    .is_some()
            );
            runs(bench);
        },
    },
    Case {
        name: "a restore, with access that was revoked since",
        kind: "cluster.restore",
        servers: 1,
        prepare: |bench| {
            issue(bench, "ann");
            let now = bench.now();
            bench
                .cluster()
                .lock()
                .unwrap()
                .report(&ghost(), now)
                .unwrap();
            let (_, view) = bench.operate(OperationKind::SnapshotSave, json!({"name": "nightly"}));
            let saved: SnapshotSaveResult = result(&view);
            bench.notes.insert("snapshot", saved.name.to_string());
            bench.operate(OperationKind::AccessRevoke, json!({"subject": "ann"}));
            issue(bench, "bob");
        },
        params: |bench| json!({"snapshot": bench.notes["snapshot"], "source": "local"}),
        check: |bench, view| {
            if End::of(view) != End::Succeeded {
                return;
            }
            runs(bench);
            let cluster = bench.cluster();
            let cluster = cluster.lock().unwrap();
            assert_eq!(
                cluster.accounts().unwrap(),
                [],
                "ann's is deleted again, bob's came later"
            );
            assert_eq!(cluster.tokens_that_work(bench.now()), 0);
            assert!(!cluster.nodes().any(|node| *node == ghost()));
            let result: Value = result(view);
            assert_eq!(result["revoked"].as_array().unwrap().len(), 1, "{result}");
        },
    },
    Case {
        name: "an upgrade",
        kind: "cluster.upgrade",
        servers: 1,
        prepare: |bench| {
            let hash = |what: &str| Sha256Hex::of(what.as_bytes());
            let manifest = json!({
                "version": "2026.11.2", "created_at": "2026-11-30T00:00:00Z", "floor": 12,
                "template_engine": "minijinja", "agent": {"version": "1.4.0", "artifacts": []},
                "image": {"k3s_version": "v1.34.2+k3s1", "artifacts": [{
                    "arch": "amd64", "url": "https://artifacts.invalid/image", "sha256": hash("download"),
                    "size": 512_000_000, "entry": NEW, "image_sha256": hash("booted"),
                }]},
                "addons": [],
            });
            let payload = serde_json::to_vec(&manifest).unwrap();
            bench
                .simulation
                .control()
                .publish_release(&payload)
                .unwrap();
        },
        params: |_| json!({"release": "2026.11.2"}),
        check: |bench, view| {
            runs(bench);
            let host = bench.simulation.host(MEMBER);
            let (all, default, selected) = host.entries();
            let stays = if End::of(view) == End::Succeeded {
                NEW
            } else {
                OLD
            };
            assert_eq!((default.as_str(), selected.as_str()), (stays, stays));
            let names: Vec<&str> = all.iter().map(|entry| entry.as_str()).collect();
            assert_eq!(names, [OLD, NEW], "two entries are kept");
            assert_eq!(host.goes_back_at(), None, "nothing is on trial any more");
        },
    },
    Case {
        name: "access that is issued",
        kind: "access.issue",
        servers: 1,
        prepare: nothing,
        params: |_| access("ann"),
        check: |bench, view| {
            let issued: AccessIssueResult = result(view);
            let kubeconfig = asker().open(&issued.sealed_kubeconfig).unwrap();
            let text = kubeconfig.expose_text().unwrap();
            let token = text.rsplit("token: ").next().unwrap();
            let cluster = bench.cluster();
            let cluster = cluster.lock().unwrap();
            let role = cluster.role_of(&Sha256Hex::of(token.as_bytes()), bench.now());
            assert_eq!(role, Some(Role::Edit));
            assert_eq!(cluster.accounts().unwrap().len(), 1);
        },
    },
    Case {
        name: "access that is revoked",
        kind: "access.revoke",
        servers: 1,
        prepare: |bench| {
            issue(bench, "ann");
            issue(bench, "bob");
        },
        params: |_| json!({"everyone": true}),
        check: |bench, view| {
            let cluster = bench.cluster();
            let cluster = cluster.lock().unwrap();
            assert_eq!(cluster.accounts().unwrap(), []);
            assert_eq!(cluster.tokens_that_work(bench.now()), 0);
            let result: Value = result(view);
            assert_eq!(result["deleted"].as_array().unwrap().len(), 2, "{result}");
        },
    },
    Case {
        name: "a rotation of the keys",
        kind: "agent.rotate_key",
        servers: 1,
        prepare: nothing,
        params: |_| json!({}),
        check: |bench, view| {
            let durable = bench.durable();
            let identity = durable.identity.as_ref().unwrap();
            let result: Value = result(view);
            let key = identity.active.handle.signing.key_id().to_string();
            assert_eq!(result["active_key_id"], json!(key));
            assert!(identity.other.is_none());
            assert!(bench.simulation.host(MEMBER).holds(&identity.active.handle));
        },
    },
    Case {
        name: "keys to the bucket that are tried",
        kind: "s3.verify",
        servers: 1,
        prepare: |bench| {
            bench.operate(OperationKind::SnapshotSave, json!({"name": "nightly"}));
        },
        params: |_| {
            json!({"endpoint": "https://fsn1.example", "region": "fsn1", "bucket": "snapshots", "folder": "lab",
                   "access_key": "canary-new-access-key", "secret_key": "canary-new-secret-key"})
        },
        check: |_, view| assert_eq!(result::<Value>(view), json!({"objects_seen": 1})),
    },
    Case {
        name: "diagnostics",
        kind: "diag.collect",
        servers: 1,
        prepare: nothing,
        params: |_| json!({}),
        // That no token is in the bundle is a referee's affair.
        check: |_, view| assert_eq!(result::<Value>(view)["truncated"], json!(false)),
    },
    Case {
        name: "a server that joins again",
        kind: "server.rejoin",
        servers: 2,
        prepare: nothing,
        params: |_| json!({"server_url": "https://10.0.0.2:6443", "token": "canary-join-token"}),
        check: |bench, view| {
            runs(bench);
            let result: Value = result(view);
            assert_eq!(result["node"], json!(bench.nodes[MEMBER]));
            let cluster = bench.cluster();
            let cluster = cluster.lock().unwrap();
            assert!(bench.nodes.iter().all(|node| cluster.is_served_by(node)));
        },
    },
    Case {
        name: "a drained node",
        kind: "node.drain",
        servers: 2,
        prepare: nothing,
        params: |bench| json!({"node": bench.nodes[MEMBER]}),
        check: |bench, view| {
            let node = &bench.nodes[MEMBER];
            let drained: NodeDrainResult = result(view);
            let pod = |name: &str| format!("default/{name}-{node}");
            assert_eq!(drained.evicted, [pod("shop"), pod("queue")]);
            assert_eq!(drained.left, [pod("database")]);
            let cluster = bench.cluster();
            let mut cluster = cluster.lock().unwrap();
            assert!(cluster.is_cordoned(node));
            assert_eq!(cluster.pods(node), drained.left);
            let elsewhere = cluster.pods(&bench.nodes[1]);
            assert!(drained.evicted.iter().all(|pod| elsewhere.contains(pod)));
        },
    },
    Case {
        name: "a node that is forgotten",
        kind: "node.forget",
        servers: 1,
        prepare: |bench| {
            let now = bench.now();
            bench
                .cluster()
                .lock()
                .unwrap()
                .report(&ghost(), now)
                .unwrap();
        },
        params: |_| json!({"node": ghost()}),
        check: |bench, view| {
            assert_eq!(result::<Value>(view), json!({"deleted": true}));
            let cluster = bench.cluster();
            let cluster = cluster.lock().unwrap();
            assert_eq!(cluster.nodes().collect::<Vec<_>>(), [&bench.nodes[MEMBER]]);
        },
    },
];

const OLD: &str = "pbx-2026.11.1-amd64.efi";
const NEW: &str = "pbx-2026.11.2-amd64.efi";

/// A node that has reported once and is gone.
fn ghost() -> NodeName {
    "ghost".parse().unwrap()
}

fn asker() -> SealingSecretKey {
    SealingSecretKey::from_seed([5; 32])
}

fn access(subject: &str) -> Value {
    json!({"subject": subject, "role": "edit", "recipient_key": asker().public(), "lifetime_seconds": 86_400})
}

fn issue(bench: &mut Bench, subject: &str) {
    let (_, view) = bench.operate(OperationKind::AccessIssue, access(subject));
    assert_eq!(End::of(&view), End::Succeeded, "{view:#?}");
}

fn result<T: DeserializeOwned>(view: &OperationView) -> T {
    let raw = view.result.as_ref();
    let raw = raw.unwrap_or_else(|| panic!("no result: {view:#?}"));
    serde_json::from_str(raw.get()).unwrap()
}

/// k3s runs and serves the API.
fn runs(bench: &Bench) {
    let cluster = bench.cluster();
    assert!(cluster.lock().unwrap().is_served_by(&bench.nodes[MEMBER]));
}
