//! One server: its files, keys, k3s, snapshots, and what a crash leaves of a task.
//!
//! A task has two ends. [`SimHost::begin`] says what it costs and does what cannot be undone at once; [`SimHost::finish`]
//! does the rest and says what it came to. Between the two, [`SimHost::interrupt`] is a crash: the node then shows one of
//! the states that a node could show, drawn by the caller, and [`SimHost::probe`] looks at it (OPS-4).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_core::journal::{StepRecord, Work};
use agent_core::machine::{Evidence, FieldPath, KeyHandle, LogLine, TaskFailure, Unopenable};
use agent_core::pbx::facts::Observation;
use agent_core::pbx::task::{Bucket, Done, DropIns, KeySlot, RestoreSource, Secrets, Task};
use agent_core::time::Monotonic;
use protocol::hash::Sha256Hex;
use protocol::id::{NodeName, OperationId, ServerId, SnapshotName};
use protocol::pbx::enroll::{BootstrapSecrets, EnrollAnswer};
use protocol::pbx::sync::{ApiState, BootReport, K3sReport, UnitState};
use protocol::seal::{Sealed, SealingSecretKey, Secret};
use protocol::sign::{Signature, rotation_proof_bytes};
use sha2::{Digest as _, Sha256};

use crate::cluster::{ApiDown, Data, SimCluster};
use crate::signing::NodeKey;

/// How long things take on a node, in milliseconds; what OP-4 asks to wait comes with the task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Costs {
    /// Writing a file durably.
    pub file_ms: u64,
    /// Making keys.
    pub keys_ms: u64,
    /// The metadata service's answer.
    pub metadata_ms: u64,
    /// k3s's start, up to the unit being active.
    pub k3s_start_ms: u64,
    /// From there until the API answers.
    pub api_ready_ms: u64,
    /// k3s's end.
    pub k3s_stop_ms: u64,
    /// A call of the Kubernetes API.
    pub api_call_ms: u64,
    /// A snapshot with its upload.
    pub snapshot_ms: u64,
    /// A question to the bucket.
    pub bucket_ms: u64,
    /// Unpacking a snapshot and resetting the cluster to it.
    pub reset_ms: u64,
}

impl Default for Costs {
    /// A small server with a small cluster.
    fn default() -> Self {
        Self {
            file_ms: 2,
            keys_ms: 5,
            metadata_ms: 20,
            k3s_start_ms: 6_000,
            api_ready_ms: 8_000,
            k3s_stop_ms: 4_000,
            api_call_ms: 30,
            snapshot_ms: 3_000,
            bucket_ms: 150,
            reset_ms: 15_000,
        }
    }
}

/// What is fixed about a server.
#[derive(Debug, Clone)]
pub struct Server {
    /// Its name.
    pub node: NodeName,
    /// Its number at the provider.
    pub id: ServerId,
    /// What was booted.
    pub boot: BootReport,
    /// The version of its k3s.
    pub k3s_version: String,
    /// How long things take on it.
    pub costs: Arc<Costs>,
    /// What its keys are made from.
    pub key_seed: u64,
}

/// What a crash inside a task leaves; any of the three can happen to a real node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Leftover {
    /// It had not begun to have an effect.
    Nothing,
    /// Some of it is done. For what is replaced atomically this is the same as nothing.
    Half,
    /// All of it is done, and nobody was told.
    Everything,
}

/// A simulated server.
#[derive(Debug)]
pub struct SimHost {
    server: Server,
    cluster: Arc<Mutex<SimCluster>>,
    keys: Vec<Keys>,
    keys_made: u64,
    opened: Option<Box<Opened>>,
    bootstrap: Option<Arc<EnrollAnswer>>,
    token_dropped: bool,
    k3s_configured: bool,
    drop_ins: Option<DropIns>,
    restart_pending: bool,
    k3s: K3s,
    local: BTreeMap<SnapshotName, Data>,
    bucket: BTreeMap<SnapshotName, Data>,
    resets: BTreeMap<OperationId, Reset>,
}

#[derive(Debug)]
struct Keys {
    handle: KeyHandle,
    signing: NodeKey,
    sealing: SealingSecretKey,
}

/// The secrets of the cluster that were opened last, and what the Secrets made of them hold: they are written again and
/// again (SYNC-3), and opening them is dearer than all else that a node does.
#[derive(Debug)]
struct Opened {
    sealed: BootstrapSecrets,
    hcloud: Sha256Hex,
    s3: Sha256Hex,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum K3s {
    Stopped,
    /// The unit is active or will be in a moment; the API answers from then on.
    Up {
        api_at: Monotonic,
    },
}

/// What a node shows of a cluster reset: the unit that ran it, and its result file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reset {
    Begun,
    Complete,
}

impl SimHost {
    /// A server that was just installed: no keys, no k3s that runs.
    pub fn new(server: Server, cluster: Arc<Mutex<SimCluster>>) -> Self {
        Self {
            server,
            cluster,
            keys: Vec::new(),
            keys_made: 0,
            opened: None,
            bootstrap: None,
            token_dropped: false,
            k3s_configured: false,
            drop_ins: None,
            restart_pending: false,
            k3s: K3s::Stopped,
            local: BTreeMap::new(),
            bucket: BTreeMap::new(),
            resets: BTreeMap::new(),
        }
    }

    /// What the node shows now.
    pub fn observe(&mut self, now: Monotonic) -> Observation {
        let api = self.pass_time(now);
        Observation {
            boot: self.server.boot.clone(),
            k3s: K3sReport {
                version: self.k3s_configured.then(|| self.server.k3s_version.clone()),
                unit: match self.k3s {
                    K3s::Stopped => UnitState::Inactive,
                    K3s::Up { .. } => UnitState::Active,
                },
                api,
            },
            leader: api == ApiState::Up,
            restart_pending: self.restart_pending,
            problems: Vec::new(),
        }
    }

    /// Whether all of these open with any key on the node; the first that does not is named (SEAL-3).
    ///
    /// # Errors
    /// With the field of the first that does not open.
    pub fn open(&self, values: &[(FieldPath, Sealed)]) -> Result<(), Unopenable> {
        match values
            .iter()
            .find(|(_, sealed)| self.open_one(sealed).is_none())
        {
            None => Ok(()),
            Some((field, _)) => Err(Unopenable {
                field: field.clone(),
            }),
        }
    }

    /// Signs with a key that a task made; none if there is no such key on the node.
    pub fn sign(&self, key: &KeyHandle, bytes: &[u8]) -> Option<Signature> {
        let keys = self.keys.iter().find(|keys| keys.handle == *key)?;
        Some(keys.signing.sign(bytes))
    }

    /// Whether a key that a task made is on the node.
    pub fn holds(&self, key: &KeyHandle) -> bool {
        self.keys.iter().any(|keys| keys.handle == *key)
    }

    /// Whether the token is gone from the configuration.
    pub fn token_dropped(&self) -> bool {
        self.token_dropped
    }

    /// A task begins: what it costs in milliseconds. [`Self::finish`] is due when they are over.
    pub fn begin(&mut self, record: &StepRecord, task: &Task, now: Monotonic) -> u64 {
        self.pass_time(now);
        let costs = &self.server.costs;
        let cost = match task {
            Task::MakeKeys(_) | Task::PromoteKeys(_) => costs.keys_ms,
            Task::ReadServerId => costs.metadata_ms,
            Task::StoreBootstrap(_)
            | Task::DropToken
            | Task::WriteK3sConfig
            | Task::WriteDropIns(_) => costs.file_ms,
            Task::StartK3s => costs.k3s_start_ms,
            Task::StopK3s { .. } => costs.k3s_stop_ms,
            Task::RestartK3s => costs.k3s_stop_ms + costs.k3s_start_ms,
            Task::WaitApi => match self.k3s {
                K3s::Up { api_at } => api_at
                    .as_ms()
                    .saturating_sub(now.as_ms())
                    .max(costs.api_call_ms),
                K3s::Stopped => costs.api_call_ms,
            },
            Task::WriteSecrets(_) => 2 * costs.api_call_ms,
            Task::SaveSnapshot { .. } => costs.snapshot_ms,
            Task::ConfirmSnapshot { .. } => costs.bucket_ms,
            Task::ResetRestore { .. } => costs.reset_ms,
            Task::ForgetStaleNodes { grace_ms } => grace_ms.saturating_add(costs.api_call_ms),
        };
        if let (Task::ResetRestore { snapshot, source }, Some(operation)) =
            (task, operation(record))
            && self.restorable(snapshot, source).is_ok()
        {
            self.resets.insert(operation.clone(), Reset::Begun);
        }
        if let (Task::RestartK3s, K3s::Up { .. }) = (task, self.k3s) {
            self.k3s = K3s::Up {
                api_at: Monotonic::from_ms(u64::MAX),
            };
            self.cluster().withdraw(&self.server.node);
        }
        cost
    }

    /// A task ends: the rest of its effect, and what it came to.
    ///
    /// # Errors
    /// What a node would say when the task cannot be done in its state.
    pub fn finish(
        &mut self,
        record: &StepRecord,
        task: &Task,
        now: Monotonic,
    ) -> Result<Done, TaskFailure> {
        self.pass_time(now);
        self.effect(record, task, now)
            .map_err(|message| TaskFailure {
                log_tail: vec![LogLine::new(message.clone())],
                message,
            })
    }

    /// The node crashes inside a task, and comes back: k3s starts again if it ran, files are as they were written.
    pub fn interrupt(
        &mut self,
        record: &StepRecord,
        task: &Task,
        leftover: Leftover,
        now: Monotonic,
    ) {
        match (task, leftover) {
            (_, Leftover::Everything) => {
                // What fails has no effect, and nobody is there to hear why.
                let _ = self.effect(record, task, now);
            }
            (Task::ResetRestore { .. }, Leftover::Nothing) => {
                if let Some(operation) = operation(record) {
                    self.resets.remove(operation);
                }
            }
            (_, Leftover::Half | Leftover::Nothing) => {}
        }
        self.reboot(now);
    }

    /// Power comes back: a k3s that ran is started by systemd.
    pub fn reboot(&mut self, now: Monotonic) {
        if let K3s::Up { .. } = self.k3s {
            self.cluster().withdraw(&self.server.node);
            self.start_k3s(now);
        }
    }

    /// What the node shows of a task that was found started; changes nothing (OPS-4).
    pub fn probe(&self, record: &StepRecord, task: &Task) -> Evidence<Done> {
        match (
            task,
            operation(record).and_then(|operation| self.resets.get(operation)),
        ) {
            (Task::ResetRestore { .. }, None) => Evidence::NotStarted,
            (Task::ResetRestore { .. }, Some(Reset::Complete)) => Evidence::Completed(Done::Plain),
            (Task::ResetRestore { .. }, Some(Reset::Begun)) => Evidence::Unclear(
                "the unit of the reset has run, and there is no result of it".to_owned(),
            ),
            _ => Evidence::Unclear("this task leaves no evidence".to_owned()),
        }
    }

    fn effect(&mut self, record: &StepRecord, task: &Task, now: Monotonic) -> Result<Done, String> {
        match task {
            Task::MakeKeys(KeySlot::First) => {
                if self.keys.is_empty() {
                    self.make_keys();
                }
                Ok(Done::Keys {
                    handle: self.keys[0].handle,
                    proof: None,
                })
            }
            Task::MakeKeys(KeySlot::Next { old }) => {
                self.keep_keys(|handle| handle.signing == *old);
                if self.keys.is_empty() {
                    return Err(format!("there is no key {} on this node", old.key_id()));
                }
                let new = self.make_keys();
                let proof = new
                    .signing
                    .sign(&rotation_proof_bytes(old, &new.handle.signing));
                Ok(Done::Keys {
                    handle: new.handle,
                    proof: Some(proof),
                })
            }
            Task::PromoteKeys(handle) => {
                if !self.keys.iter().any(|keys| keys.handle == *handle) {
                    return Err(format!(
                        "there is no key {} on this node",
                        handle.signing.key_id()
                    ));
                }
                self.keep_keys(|kept| kept == handle);
                Ok(Done::Plain)
            }
            Task::ReadServerId => Ok(Done::ServerId(self.server.id)),
            Task::StoreBootstrap(answer) => {
                self.bootstrap = Some(Arc::clone(answer));
                Ok(Done::Plain)
            }
            Task::DropToken => {
                self.token_dropped = true;
                Ok(Done::Plain)
            }
            Task::WriteK3sConfig => {
                let bootstrap = self.bootstrap.as_ref().ok_or(NO_BOOTSTRAP)?;
                for (name, token) in [
                    ("token", &bootstrap.k3s.token),
                    ("agent_token", &bootstrap.k3s.agent_token),
                ] {
                    self.open_one(token)
                        .ok_or_else(|| format!("k3s.{name} in bootstrap.json does not open"))?;
                }
                self.k3s_configured = true;
                Ok(Done::Plain)
            }
            Task::StartK3s => {
                if !self.k3s_configured {
                    return Err(NO_CONFIG.to_owned());
                }
                if self.k3s == K3s::Stopped {
                    self.start_k3s(now);
                }
                Ok(Done::Plain)
            }
            Task::StopK3s { .. } => {
                self.k3s = K3s::Stopped;
                self.cluster().withdraw(&self.server.node);
                Ok(Done::Plain)
            }
            Task::RestartK3s => {
                if !self.k3s_configured {
                    return Err(NO_CONFIG.to_owned());
                }
                self.start_k3s(now);
                Ok(Done::Plain)
            }
            Task::WaitApi => match self.cluster().is_up() {
                true => Ok(Done::Plain),
                false => Err(ApiDown.to_string()),
            },
            Task::WriteSecrets(Secrets::Bootstrap) => {
                let bootstrap = Arc::clone(self.bootstrap.as_ref().ok_or(NO_BOOTSTRAP)?);
                self.write_secrets(&bootstrap.secrets)
            }
            Task::WriteSecrets(Secrets::Document(secrets)) => self.write_secrets(secrets),
            Task::WriteDropIns(wanted) => {
                let mut next = wanted.clone();
                if next.ingress_mode.is_none() {
                    next.ingress_mode = self.drop_ins.as_ref().and_then(|d| d.ingress_mode.clone());
                }
                // k3s reads its configuration when it starts, so a running one has the old one until then.
                if self.drop_ins.as_ref() != Some(&next) && self.k3s != K3s::Stopped {
                    self.restart_pending = true;
                }
                self.drop_ins = Some(next);
                Ok(Done::DropIns {
                    restart_pending: self.restart_pending,
                })
            }
            Task::SaveSnapshot { name } => {
                let data = self.cluster().snapshot().map_err(|down| down.to_string())?;
                let full = format!("{name}-{}-{}", self.server.node, now.as_ms());
                let full: SnapshotName = full.parse().map_err(|refused| format!("{refused}"))?;
                self.local.insert(full.clone(), data.clone());
                self.bucket.insert(full.clone(), data);
                Ok(Done::SnapshotSaved { name: full })
            }
            Task::ConfirmSnapshot { name, s3 } => {
                self.bucket_opens(s3)?;
                let data = self
                    .bucket
                    .get(name)
                    .ok_or("the bucket has no object of that name")?;
                let bytes = format!("{data:?}");
                Ok(Done::SnapshotConfirmed {
                    size: bytes.len() as u64,
                    sha256: Sha256Hex::of(bytes.as_bytes()),
                    location: format!("s3://{}/{name}", self.server.node),
                })
            }
            Task::ResetRestore { snapshot, source } => {
                let data = self.restorable(snapshot, source)?;
                self.cluster()
                    .reset_to(data)
                    .map_err(|node| format!("k3s still runs on {node}"))?;
                if let Some(operation) = operation(record) {
                    self.resets.insert(operation.clone(), Reset::Complete);
                }
                Ok(Done::Plain)
            }
            Task::ForgetStaleNodes { .. } => {
                let own = self.server.node.clone();
                let forgotten = self
                    .cluster()
                    .forget_stale(&own)
                    .map_err(|down| down.to_string())?;
                Ok(Done::NodesForgotten(forgotten))
            }
        }
    }

    fn restorable(&self, snapshot: &SnapshotName, source: &RestoreSource) -> Result<Data, String> {
        let (place, found) = match source {
            RestoreSource::Local => ("this node", self.local.get(snapshot)),
            RestoreSource::S3(bucket) => {
                self.bucket_opens(bucket)?;
                ("the bucket", self.bucket.get(snapshot))
            }
        };
        if self.k3s != K3s::Stopped {
            return Err("k3s still runs".to_owned());
        }
        found
            .cloned()
            .ok_or_else(|| format!("there is no snapshot {snapshot} on {place}"))
    }

    fn bucket_opens(&self, bucket: &Bucket) -> Result<(), String> {
        let s3 = match bucket {
            Bucket::Bootstrap => &self.bootstrap.as_ref().ok_or(NO_BOOTSTRAP)?.secrets.s3,
            Bucket::Document(s3) => s3,
        };
        match (self.open_one(&s3.access_key), self.open_one(&s3.secret_key)) {
            (Some(_), Some(_)) => Ok(()),
            _ => Err("the keys of the bucket do not open".to_owned()),
        }
    }

    fn write_secrets(&mut self, secrets: &BootstrapSecrets) -> Result<Done, String> {
        let (hcloud, s3) = match &self.opened {
            Some(opened) if opened.sealed == *secrets => (opened.hcloud, opened.s3),
            _ => {
                let hcloud = self.content(&[&secrets.hcloud_token])?;
                let s3 = self.content(&[&secrets.s3.access_key, &secrets.s3.secret_key])?;
                self.opened = Some(Box::new(Opened {
                    sealed: secrets.clone(),
                    hcloud,
                    s3,
                }));
                (hcloud, s3)
            }
        };
        let mut cluster = self.cluster();
        for (name, content) in [
            ("kube-system/hcloud", hcloud),
            ("kube-system/pbx-etcd-s3", s3),
        ] {
            cluster
                .write_secret(name, content)
                .map_err(|down| down.to_string())?;
        }
        Ok(Done::Plain)
    }

    /// What a Secret holds that is made of these, as a hash.
    fn content(&self, sealed: &[&Sealed]) -> Result<Sha256Hex, String> {
        let mut hash = Sha256::new();
        for sealed in sealed {
            let secret = self
                .open_one(sealed)
                .ok_or("a secret of the cluster does not open")?;
            hash.update(secret.expose());
        }
        Ok(Sha256Hex::of(&hash.finalize()))
    }

    /// All other keys are forgotten, and with them what was opened.
    fn keep_keys(&mut self, kept: impl Fn(&KeyHandle) -> bool) {
        self.keys.retain(|keys| kept(&keys.handle));
        self.opened = None;
    }

    fn open_one(&self, sealed: &Sealed) -> Option<Secret> {
        self.keys
            .iter()
            .find_map(|keys| keys.sealing.open(sealed).ok())
    }

    fn make_keys(&mut self) -> &Keys {
        self.keys_made += 1;
        let seed = |purpose: &[u8]| -> [u8; 32] {
            let mut hash = Sha256::new();
            hash.update(self.server.key_seed.to_le_bytes());
            hash.update(self.keys_made.to_le_bytes());
            hash.update(purpose);
            hash.finalize().into()
        };
        let (signing, public) = NodeKey::from_seed(seed(b"signing"));
        let sealing = SealingSecretKey::from_seed(seed(b"sealing"));
        let handle = KeyHandle {
            signing: public,
            sealing: sealing.public(),
        };
        self.keys.push(Keys {
            handle,
            signing,
            sealing,
        });
        self.keys.last().expect("one was pushed just now")
    }

    fn start_k3s(&mut self, now: Monotonic) {
        self.restart_pending = false;
        self.k3s = K3s::Up {
            api_at: now.plus_ms(self.server.costs.api_ready_ms),
        };
    }

    /// What happens by itself: a k3s that was started serves once it is ready, and its kubelet reports.
    fn pass_time(&mut self, now: Monotonic) -> ApiState {
        let mut cluster = self.cluster.lock().unwrap_or_else(PoisonError::into_inner);
        match self.k3s {
            K3s::Up { api_at } if api_at <= now => cluster.serve(&self.server.node, now),
            K3s::Up { .. } | K3s::Stopped => {}
        }
        if cluster.is_up() {
            ApiState::Up
        } else {
            ApiState::Down
        }
    }

    fn cluster(&self) -> MutexGuard<'_, SimCluster> {
        self.cluster.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const NO_CONFIG: &str = "k3s.service failed: there is no config.yaml";
const NO_BOOTSTRAP: &str = "there is no bootstrap.json";

fn operation(record: &StepRecord) -> Option<&OperationId> {
    match &record.work {
        Work::Operation { operation, .. } => Some(operation),
        Work::Enrollment { .. } | Work::Document { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use protocol::pbx::operation::Step;
    use protocol::seal::seal;
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::SeedableRng as _;

    use super::*;

    const SECOND: u64 = 1000;

    struct Lab {
        host: SimHost,
        cluster: Arc<Mutex<SimCluster>>,
        now: Monotonic,
    }

    impl Lab {
        fn new() -> Self {
            let cluster = Arc::default();
            let server = Server {
                node: "fsn1-server-1".parse().unwrap(),
                id: ServerId(42),
                boot: BootReport {
                    image_sha256: Sha256Hex::of(b"image"),
                    entry: "pbx-2026.11.1-amd64.efi".parse().unwrap(),
                },
                k3s_version: "v1.34.1+k3s1".to_owned(),
                costs: Arc::new(Costs::default()),
                key_seed: 7,
            };
            Self {
                host: SimHost::new(server, Arc::clone(&cluster)),
                cluster,
                now: Monotonic::from_ms(SECOND),
            }
        }

        /// A server that was enrolled: keys, bootstrap, k3s that answers.
        fn enrolled() -> Self {
            let mut lab = Self::new();
            let keys = lab.keys(KeySlot::First);
            let sealed = lab.secrets(&keys);
            lab.run(Task::StoreBootstrap(Arc::new(bootstrap(sealed))))
                .unwrap();
            for task in [Task::WriteK3sConfig, Task::StartK3s, Task::WaitApi] {
                lab.run(task).unwrap();
            }
            lab
        }

        fn run(&mut self, task: Task) -> Result<Done, String> {
            let record = record(&task);
            self.now = self.now.plus_ms(self.host.begin(&record, &task, self.now));
            self.host
                .finish(&record, &task, self.now)
                .map_err(|failure| failure.message)
        }

        fn crash_in(&mut self, task: &Task, leftover: Leftover) {
            let record = record(task);
            self.host.begin(&record, task, self.now);
            self.host.interrupt(&record, task, leftover, self.now);
        }

        fn keys(&mut self, slot: KeySlot) -> KeyHandle {
            match self.run(Task::MakeKeys(slot)).unwrap() {
                Done::Keys { handle, .. } => handle,
                other => panic!("{other:?}"),
            }
        }

        fn secrets(&self, keys: &KeyHandle) -> BootstrapSecrets {
            let mut rng = ChaCha8Rng::seed_from_u64(1);
            let mut one = |text: &str| -> Sealed { seal(&keys.sealing, text.as_bytes(), &mut rng) };
            let json = serde_json::json!({
                "hcloud_token": one("hcloud"),
                "s3": {"endpoint": "https://fsn1.example", "region": "fsn1", "bucket": "b", "folder": "f",
                       "access_key": one("access"), "secret_key": one("secret")},
            });
            serde_json::from_value(json).unwrap()
        }

        fn snapshot(&mut self) -> SnapshotName {
            match self
                .run(Task::SaveSnapshot {
                    name: "nightly".parse().unwrap(),
                })
                .unwrap()
            {
                Done::SnapshotSaved { name } => name,
                other => panic!("{other:?}"),
            }
        }
    }

    fn bootstrap(secrets: BootstrapSecrets) -> EnrollAnswer {
        let token = serde_json::to_value(&secrets.hcloud_token).unwrap();
        let json = serde_json::json!({
            "agent_id": "agt_1", "portal_time": "2026-11-30T01:02:03Z", "release": "2026.11.1",
            "k3s": {"config": {"cluster-init": true}, "token": token, "agent_token": token},
            "secrets": secrets, "manifests": [],
        });
        serde_json::from_value(json).unwrap()
    }

    fn record(task: &Task) -> StepRecord {
        let step = match task {
            Task::ResetRestore { .. } => Step::ResetRestore,
            _ => Step::Save,
        };
        StepRecord {
            work: Work::Operation {
                operation: "op_1".parse().unwrap(),
                step,
            },
            attempt: 1,
        }
    }

    fn stop() -> Task {
        Task::StopK3s { token_hash: None }
    }

    #[test]
    fn a_task_can_do_only_what_the_node_allows() {
        let mut lab = Lab::new();
        assert_eq!(lab.run(Task::WriteK3sConfig), Err(NO_BOOTSTRAP.to_owned()));
        assert!(lab.run(Task::StartK3s).unwrap_err().contains("config.yaml"));
        assert_eq!(lab.run(Task::WaitApi), Err(ApiDown.to_string()));

        let mut lab = Lab::enrolled();
        assert_eq!(
            lab.run(Task::WriteSecrets(Secrets::Bootstrap)),
            Ok(Done::Plain)
        );
        assert!(
            lab.cluster
                .lock()
                .unwrap()
                .secret("kube-system/pbx-etcd-s3")
                .is_some()
        );
        lab.run(stop()).unwrap();
        assert_eq!(
            lab.run(Task::WriteSecrets(Secrets::Bootstrap)),
            Err(ApiDown.to_string())
        );
        let seen = lab.host.observe(lab.now);
        assert_eq!(
            (seen.k3s.unit, seen.k3s.api, seen.leader),
            (UnitState::Inactive, ApiState::Down, false)
        );
    }

    // rule SEAL-3: the previous key of a rotation, until the new ones are promoted
    #[test]
    fn secrets_open_with_either_key_of_a_rotation_and_with_no_other() {
        let mut lab = Lab::new();
        let first = lab.keys(KeySlot::First);
        assert_eq!(
            lab.keys(KeySlot::First),
            first,
            "made again, they are the same"
        );
        let next = lab.keys(KeySlot::Next { old: first.signing });
        let old_box = lab.secrets(&first).hcloud_token;
        let new_box = lab.secrets(&next).hcloud_token;
        let field = FieldPath("secrets.hcloud_token".to_owned());
        let opens = |host: &SimHost, sealed: &Sealed| host.open(&[(field.clone(), sealed.clone())]);
        assert_eq!(opens(&lab.host, &old_box), Ok(()));
        assert_eq!(opens(&lab.host, &new_box), Ok(()));
        lab.run(Task::PromoteKeys(next)).unwrap();
        assert_eq!(
            opens(&lab.host, &old_box),
            Err(Unopenable {
                field: field.clone()
            })
        );
        assert_eq!(lab.host.sign(&first, b"x"), None);
    }

    #[test]
    fn a_new_key_proves_that_it_is_held() {
        let mut lab = Lab::new();
        let old = lab.keys(KeySlot::First).signing;
        let Done::Keys { handle, proof } = lab.run(Task::MakeKeys(KeySlot::Next { old })).unwrap()
        else {
            panic!("other keys");
        };
        let key = protocol::sign::VerifyingKey::parse(&handle.signing).unwrap();
        assert!(key.verify(
            &rotation_proof_bytes(&old, &handle.signing),
            &proof.unwrap()
        ));
    }

    #[test]
    fn a_restore_needs_a_snapshot_and_a_k3s_that_is_stopped() {
        let mut lab = Lab::enrolled();
        let snapshot = lab.snapshot();
        lab.run(Task::WriteSecrets(Secrets::Bootstrap)).unwrap();
        let restore = |name: &SnapshotName| Task::ResetRestore {
            snapshot: name.clone(),
            source: RestoreSource::Local,
        };
        assert_eq!(
            lab.run(restore(&snapshot)),
            Err("k3s still runs".to_owned())
        );
        lab.run(stop()).unwrap();
        let missing: SnapshotName = "weekly".parse().unwrap();
        assert!(
            lab.run(restore(&missing))
                .unwrap_err()
                .contains("no snapshot weekly")
        );
        assert_eq!(
            lab.host
                .probe(&record(&restore(&missing)), &restore(&missing)),
            Evidence::NotStarted
        );
        lab.run(restore(&snapshot)).unwrap();
        lab.run(Task::StartK3s).unwrap();
        lab.run(Task::WaitApi).unwrap();
        let secret = lab.cluster.lock().unwrap().secret("kube-system/hcloud");
        assert_eq!(
            secret, None,
            "the data are those of the snapshot, from before the Secrets"
        );
    }

    #[test]
    fn a_crash_inside_a_restore_leaves_what_a_probe_can_tell() {
        let rows = [
            (Leftover::Nothing, Evidence::NotStarted),
            (
                Leftover::Half,
                Evidence::Unclear(
                    "the unit of the reset has run, and there is no result of it".to_owned(),
                ),
            ),
            (Leftover::Everything, Evidence::Completed(Done::Plain)),
        ];
        for (leftover, expected) in rows {
            let mut lab = Lab::enrolled();
            let snapshot = lab.snapshot();
            lab.run(stop()).unwrap();
            let restore = Task::ResetRestore {
                snapshot,
                source: RestoreSource::Local,
            };
            lab.crash_in(&restore, leftover);
            assert_eq!(lab.host.probe(&record(&restore), &restore), expected);
        }
    }

    #[test]
    fn k3s_comes_back_after_a_crash_and_takes_its_time() {
        let mut lab = Lab::enrolled();
        let snapshot = Task::SaveSnapshot {
            name: "nightly".parse().unwrap(),
        };
        lab.crash_in(&snapshot, Leftover::Nothing);
        assert_eq!(lab.host.observe(lab.now).k3s.api, ApiState::Down);
        let later = lab.now.plus_ms(Costs::default().api_ready_ms);
        assert_eq!(lab.host.observe(later).k3s.api, ApiState::Up);
    }

    #[test]
    fn a_drop_in_that_differs_waits_for_a_restart() {
        let mut lab = Lab::enrolled();
        let drop_ins = |retention| DropIns {
            snapshot_schedule: "0 */6 * * *".to_owned(),
            snapshot_retention: retention,
            ingress_mode: None,
        };
        lab.run(stop()).unwrap();
        lab.run(Task::WriteDropIns(drop_ins(14))).unwrap();
        assert!(
            !lab.host.observe(lab.now).restart_pending,
            "k3s reads it when it starts"
        );
        lab.run(Task::StartK3s).unwrap();
        lab.run(Task::WriteDropIns(drop_ins(14))).unwrap();
        assert!(
            !lab.host.observe(lab.now).restart_pending,
            "nothing changed"
        );
        assert_eq!(
            lab.run(Task::WriteDropIns(drop_ins(7))),
            Ok(Done::DropIns {
                restart_pending: true
            })
        );
        assert!(lab.host.observe(lab.now).restart_pending);
    }

    #[test]
    fn a_restart_of_k3s_takes_its_api_down_for_a_while_and_a_crash_inside_it_starts_k3s() {
        let costs = Costs::default();
        let mut lab = Lab::enrolled();
        let begins = lab.now;
        let cost_ms = lab
            .host
            .begin(&record(&Task::RestartK3s), &Task::RestartK3s, begins);
        let inside = begins.plus_ms(cost_ms / 2);
        assert_eq!(lab.host.observe(inside).k3s.api, ApiState::Down);
        let ends = begins.plus_ms(cost_ms);
        let done = lab
            .host
            .finish(&record(&Task::RestartK3s), &Task::RestartK3s, ends);
        assert_eq!(done, Ok(Done::Plain));
        assert_eq!(lab.host.observe(ends).k3s.api, ApiState::Down);
        let ready = ends.plus_ms(costs.api_ready_ms);
        assert_eq!(lab.host.observe(ready).k3s.api, ApiState::Up);

        for leftover in [Leftover::Nothing, Leftover::Half, Leftover::Everything] {
            let mut lab = Lab::enrolled();
            lab.crash_in(&Task::RestartK3s, leftover);
            let ready = lab.now.plus_ms(costs.api_ready_ms);
            let seen = lab.host.observe(ready);
            assert_eq!((seen.k3s.api, seen.restart_pending), (ApiState::Up, false));
        }
    }
}
