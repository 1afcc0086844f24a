//! One server: its files, keys, k3s, snapshots, and what a crash leaves of a task.
//!
//! A task has two ends. [`SimHost::begin`] says what it costs; [`SimHost::finish`] does it and says what it came to.
//! Between the two, [`SimHost::interrupt`] is a crash: of the durable effects of the task, as many are done as the caller
//! says ([`Leftover`]), and [`SimHost::probe`] looks at what that leaves (OPS-4).
//!
//! - `effects`: the durable effects of a task, counted.
//! - `log`: the logs of operations.
//! - `programs`: the agent's program, the one before, and the timer that puts that back.
//! - `slots`: what it boots from, and the way back.

mod effects;
mod log;
mod programs;
mod slots;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_core::journal::{StepRecord, Work};
use agent_core::machine::{
    Evidence, FieldPath, KeyHandle, LeaseFailure, LogLine, TaskFailure, Unopenable,
};
use agent_core::pbx::addon::seen::Fingerprint;
use agent_core::pbx::boot::{Health, NodeFacts, Rollout};
use agent_core::pbx::diagnostics::{self, Section};
use agent_core::pbx::facts::Observation;
use agent_core::pbx::k3s::DropIn;
use agent_core::pbx::lease::{LeaseCall, LeaseReply};
use agent_core::pbx::task::{Bucket, Done, KeySlot, RestoreSource, Secrets, StopFor, Task};
use agent_core::time::Monotonic;
use litemap::LiteMap;
use protocol::hash::Sha256Hex;
use protocol::id::{
    AddonName, AgentVersion, EntryName, NodeName, OperationId, ServerId, SnapshotName,
};
use protocol::pbx::enroll::{BootstrapSecrets, EnrollAnswer, FirstManifest};
use protocol::pbx::operation::ServerRejoinParams;
use protocol::pbx::sync::{ApiState, BootReport, K3sReport, UnitState};
use protocol::seal::{Sealed, SealingSecretKey, Secret, seal};
use protocol::sign::{Signature, rotation_proof_bytes};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng as _;
use sha2::{Digest as _, Sha256};

pub use self::effects::{Fall, Leftover};
pub use self::programs::{Defect, Defects};

use self::effects::{Effects, Undone};
use self::log::Logs;
use self::programs::Programs;
use self::slots::{Reboot, Slots};
use crate::addons::{self, AddonCosts};
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
    /// Moving a node's pods elsewhere.
    pub evict_ms: u64,
    /// Collecting a diagnostic bundle.
    pub collect_ms: u64,
    /// Fetching the program of an agent.
    pub fetch_program_ms: u64,
    /// What happens to add-ons.
    pub addons: AddonCosts,
    /// Fetching an image.
    pub fetch_ms: u64,
    /// Copying an image onto the boot partition and reading it back.
    pub stage_ms: u64,
    /// From the moment at which the API answers until the Deployments of `kube-system` are available.
    pub rollout_ms: u64,
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
            evict_ms: 30_000,
            collect_ms: 800,
            fetch_program_ms: 2_000,
            addons: AddonCosts::default(),
            fetch_ms: 20_000,
            stage_ms: 4_000,
            rollout_ms: 25_000,
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
    /// The agent program that it came with.
    pub agent_version: AgentVersion,
    /// What is wrong with it.
    pub quirks: Arc<Quirks>,
}

/// What is wrong with a server, or with images and programs on it. By default nothing is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Quirks {
    /// Boot entries on which no Deployment ever becomes available.
    pub sick: Vec<EntryName>,
    /// It forgets the EFI variables that are written.
    pub forgets_variables: bool,
    /// Agent programs that are not as they should be.
    pub programs: Defects,
}

/// How a task ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// The agent hears what it came to.
    Told(Result<Done, TaskFailure>),
    /// The node went down with the agent on it, and comes back.
    WentDown,
}

/// A simulated server.
#[derive(Debug)]
pub struct SimHost {
    server: Server,
    cluster: Arc<Mutex<SimCluster>>,
    keys: Vec<Keys>,
    keys_made: u64,
    /// What was opened last: it is written again and again (SYNC-3), and opening is dearer than all else that a node does.
    opened: Vec<(Sealed, Arc<Secret>)>,
    bootstrap: Option<Bootstrap>,
    token_dropped: bool,
    k3s_configured: bool,
    /// k3s's drop-ins, each by its name (FILE-16).
    drop_ins: LiteMap<&'static str, String>,
    restart_pending: bool,
    /// The add-ons whose first-start manifest k3s has let go of (FILE-11).
    let_go: BTreeSet<AddonName>,
    /// k3s was started, and has not applied its first-start manifests since.
    owes_manifests: bool,
    k3s: K3s,
    /// systemd starts k3s at boot.
    k3s_enabled: bool,
    /// Whether k3s has a datastore here.
    has_datastore: bool,
    /// The server that a k3s without a datastore joins; it founds a cluster otherwise.
    joins: Option<String>,
    /// Datastores that were set aside, by the operation.
    set_aside: BTreeSet<OperationId>,
    local: BTreeMap<SnapshotName, Data>,
    resets: BTreeMap<OperationId, Reset>,
    logs: Logs,
    slots: Slots,
    programs: Programs,
    last_effects: u32,
    drawn: u64,
}

/// Of `bootstrap.json` what a node looks at again (FILE-11): a thousand of them are a load generator's, each with its own.
#[derive(Debug)]
struct Bootstrap {
    token: Sealed,
    agent_token: Sealed,
    secrets: Arc<BootstrapSecrets>,
    /// The first-start manifests that are an add-on's.
    manifests: Box<[(AddonName, Fingerprint)]>,
}

impl From<&EnrollAnswer> for Bootstrap {
    fn from(answer: &EnrollAnswer) -> Self {
        let manifests = answer.manifests.iter();
        Self {
            token: answer.k3s.token.clone(),
            agent_token: answer.k3s.agent_token.clone(),
            secrets: Arc::new(answer.secrets.clone()),
            manifests: manifests
                .filter_map(|it| Some((addon_of(it)?, addons::fingerprint_of(&it.content))))
                .collect(),
        }
    }
}

#[derive(Debug)]
struct Keys {
    handle: KeyHandle,
    signing: NodeKey,
    sealing: SealingSecretKey,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum K3s {
    Stopped,
    /// The unit is starting: the server that it is to join does not answer.
    Joining,
    /// The unit is active or will be in a moment; the API answers from then on.
    Up {
        api_at: Monotonic,
    },
}

impl K3s {
    /// Stopping, to be started right away.
    const RESTARTING: Self = Self::Up {
        api_at: Monotonic::from_ms(u64::MAX),
    };
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
        let programs = Programs::new(&server.agent_version);
        Self {
            slots: Slots::new(&server.boot, &server.k3s_version),
            server,
            cluster,
            keys: Vec::new(),
            keys_made: 0,
            opened: Vec::new(),
            bootstrap: None,
            token_dropped: false,
            k3s_configured: false,
            drop_ins: LiteMap::new(),
            restart_pending: false,
            let_go: BTreeSet::new(),
            owes_manifests: false,
            k3s: K3s::Stopped,
            k3s_enabled: false,
            has_datastore: false,
            joins: None,
            set_aside: BTreeSet::new(),
            local: BTreeMap::new(),
            resets: BTreeMap::new(),
            logs: Logs::default(),
            programs,
            last_effects: 0,
            drawn: 0,
        }
    }

    /// What the node shows now.
    pub fn observe(&mut self, now: Monotonic) -> Observation {
        let api = self.pass_time(now);
        Observation {
            boot: self.slots.report(),
            k3s: K3sReport {
                version: (self.k3s_configured).then(|| self.slots.k3s_version().to_owned()),
                unit: match self.k3s {
                    K3s::Stopped => UnitState::Inactive,
                    K3s::Joining => UnitState::Activating,
                    K3s::Up { .. } => UnitState::Active,
                },
                api,
            },
            restart_pending: self.restart_pending,
            problems: Vec::new(),
        }
    }

    /// Whether all of these open with any key on the node; the first that does not is named (SEAL-3).
    ///
    /// # Errors
    /// With the field of the first that does not open.
    pub fn open(&mut self, values: &[(FieldPath, Sealed)]) -> Result<(), Unopenable> {
        let mut opened = Vec::with_capacity(values.len());
        for (field, sealed) in values {
            let Some(secret) = self.open_one(sealed) else {
                return Err(Unopenable {
                    field: field.clone(),
                });
            };
            opened.push((sealed.clone(), secret));
        }
        self.opened = opened;
        Ok(())
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

    /// What the API says about the Lease (SYNC-6).
    ///
    /// # Errors
    /// While the API is down.
    pub fn lease(&mut self, call: &LeaseCall, now: Monotonic) -> Result<LeaseReply, LeaseFailure> {
        self.pass_time(now);
        let mut cluster = self.cluster();
        let reply = match call {
            LeaseCall::Read => cluster
                .lease(&self.server.node)
                .map(|(lease, servers)| LeaseReply::Read { lease, servers }),
            LeaseCall::Write {
                holder,
                renewed_at,
                over,
                ..
            } => cluster
                .write_lease(&self.server.node, holder, *renewed_at, over.as_ref())
                .map(|written| match written {
                    Some((lease, servers)) => LeaseReply::Written { lease, servers },
                    None => LeaseReply::Conflict,
                }),
        };
        reply.map_err(|down| LeaseFailure {
            why: down.to_string().into(),
        })
    }

    /// What a question about the Lease costs in milliseconds.
    pub fn lease_cost_ms(&self) -> u64 {
        self.server.costs.api_call_ms
    }

    /// The API of its cluster answers nobody until then.
    pub fn pause_api(&self, until: Monotonic) {
        self.cluster().pause(until);
    }

    /// The agent program that is started next, or runs.
    pub fn agent_version(&self) -> &AgentVersion {
        self.programs.version()
    }

    /// The version that the rollback timer has put back, as the node has noted it (UPD-3).
    pub fn rolled_back_from(&self) -> Option<AgentVersion> {
        self.programs.rolled_back_from()
    }

    /// What is wrong with the program that is started next, or runs.
    pub fn defect(&self) -> Option<Defect> {
        let hash = self.programs.hash()?;
        self.server.quirks.programs.get(&hash).copied()
    }

    /// When the rollback timer fires, if it is armed (UPD-1).
    pub fn rolls_back_at(&self) -> Option<Monotonic> {
        self.programs.fires_at()
    }

    /// Whether a program is on trial or was put back: the agent is stopped when the rollback timer fires.
    pub fn is_on_trial(&self) -> bool {
        self.programs.is_on_trial()
    }

    /// The rollback timer fires: whether the previous program was put back, and the agent is to be started again (UPD-2).
    pub fn roll_back(&mut self) -> bool {
        self.programs.fire()
    }

    /// A task begins: what it costs in milliseconds. [`Self::finish`] is due when they are over.
    pub fn begin(&mut self, record: &StepRecord, task: &Task, now: Monotonic) -> u64 {
        self.pass_time(now);
        let costs = &self.server.costs;
        let cost = match task {
            Task::MakeKeys(_) | Task::PromoteKeys(_) => costs.keys_ms,
            Task::FetchProgram(_) => costs.fetch_program_ms,
            Task::CheckProgram(_)
            | Task::KeepProgram
            | Task::ArmRollback { .. }
            | Task::SwapPrograms(_)
            | Task::CommitProgram => costs.file_ms,
            Task::ReadServerId => costs.metadata_ms,
            Task::StoreBootstrap(_)
            | Task::DropToken
            | Task::WriteK3sConfig
            | Task::WriteDropIns(_)
            | Task::SealKubeconfig { .. } => costs.file_ms,
            Task::StartK3s => costs.k3s_start_ms,
            Task::StopK3s(_) => costs.k3s_stop_ms,
            Task::RestartK3s => costs.k3s_stop_ms + costs.k3s_start_ms,
            Task::WaitApi => match self.k3s {
                K3s::Up { api_at } => api_at
                    .as_ms()
                    .saturating_sub(now.as_ms())
                    .max(costs.api_call_ms),
                K3s::Joining | K3s::Stopped => costs.api_call_ms,
            },
            Task::WriteSecrets(_) | Task::EmptyPlatform(_) => 2 * costs.api_call_ms,
            Task::LookAtAddons(_) => 5 * costs.api_call_ms,
            Task::LetGoOfManifests(addons) => {
                let mut held = addons.iter().filter(|it| !self.let_go.contains(*it));
                let is_one_new = held.any(|addon| self.has_first_manifest(addon));
                costs.file_ms + u64::from(is_one_new) * costs.addons.manifests_pass_ms
            }
            // Each for trial, and each in earnest.
            Task::ApplyAddon { objects, .. } => 2 * objects.len() as u64 * costs.api_call_ms,
            Task::DeleteAddon { objects, .. } => objects.len() as u64 * costs.api_call_ms,
            Task::SaveSnapshot { .. } => costs.snapshot_ms,
            Task::ConfirmSnapshot { .. } => costs.bucket_ms,
            Task::ResetRestore { .. } => costs.reset_ms,
            Task::ForgetStaleNodes { grace_ms: ms } | Task::ConfirmGone { silent_ms: ms, .. } => {
                ms.saturating_add(costs.api_call_ms)
            }
            Task::EnsureAccount(_) => 2 * costs.api_call_ms,
            Task::RequestToken { .. }
            | Task::ListAccounts
            | Task::DeleteAccounts(_)
            | Task::Cordon(_)
            | Task::DeleteNode { .. } => costs.api_call_ms,
            Task::ListBucket(_) => costs.bucket_ms,
            Task::CollectDiagnostics => costs.collect_ms,
            Task::ClearDatastore(_) => costs.k3s_stop_ms + costs.file_ms,
            Task::Evict(_) => costs.evict_ms,
            Task::InspectNode | Task::CheckHealth => 2 * costs.api_call_ms,
            Task::FetchImage(_) => costs.fetch_ms,
            Task::StageSlot { .. } => costs.stage_ms,
            Task::Reboot { .. } | Task::Commit { .. } => costs.file_ms,
        };
        if let (Task::RestartK3s, K3s::Up { .. }) = (task, self.k3s) {
            self.k3s = K3s::RESTARTING;
            self.cluster().withdraw(&self.server.node);
        }
        self.tell(record, "begins");
        cost
    }

    /// A line in the log of the operation that a task is a step of.
    fn tell(&mut self, record: &StepRecord, what: &str) {
        if let Work::Operation { operation, step } = &record.work {
            let line = format!("{step}, attempt {}: {what}", record.attempt);
            self.logs.write(operation, LogLine::new(line));
        }
    }

    /// A task ends: its effect, and what it came to.
    ///
    /// # Errors
    /// What a node would say when the task cannot be done in its state.
    pub fn finish(&mut self, record: &StepRecord, task: &Task, now: Monotonic) -> Ended {
        let mut effects = Effects::all();
        self.pass_time(now);
        let ended = self.effect(record, task, now, &mut effects);
        self.last_effects = effects.done;
        Ended::Told(match ended {
            Ok(done) => {
                self.tell(record, "done");
                Ok(done)
            }
            Err(Undone::Crashed) => unreachable!("so many effects no task has"),
            Err(Undone::WentDown) => return Ended::WentDown,
            Err(Undone::Failed(message)) => {
                self.tell(record, &message);
                let log_tail = match operation(record) {
                    Some(operation) => self.logs.tail(operation),
                    None => vec![LogLine::new(message.clone())],
                };
                Err(TaskFailure { message, log_tail })
            }
        })
    }

    /// How many durable effects the task had that ended last: between any two of them a crash can come.
    pub fn last_effects(&self) -> u32 {
        self.last_effects
    }

    /// When the node reboots by itself, if nothing happens until then (OP-6).
    pub fn goes_back_at(&self) -> Option<Monotonic> {
        self.slots.goes_back_at()
    }

    /// The boot entries of the node, the one that is the default, and the one that runs.
    pub fn entries(&self) -> (Vec<EntryName>, EntryName, EntryName) {
        let all = self.slots.entries().cloned().collect();
        (all, self.slots.default().clone(), self.slots.booted().entry)
    }

    /// A crash inside a task, and the coming back after it: files are as they were written, and after a power cut k3s is
    /// started again if it is enabled. Tells how many durable effects were done.
    pub fn interrupt(
        &mut self,
        record: &StepRecord,
        task: &Task,
        leftover: Leftover,
        now: Monotonic,
    ) -> u32 {
        self.pass_time(now);
        let mut effects = Effects::up_to(leftover.effects);
        // Nobody is there to hear what it came to.
        if self.effect(record, task, now, &mut effects) != Err(Undone::WentDown) {
            self.fall(leftover.fall, now);
        }
        effects.done
    }

    /// A crash between two tasks, and the coming back after it.
    pub fn fall(&mut self, fall: Fall, now: Monotonic) {
        match fall {
            // A restart that systemd was told of goes on.
            Fall::Program if self.k3s == K3s::RESTARTING => self.start_k3s(now),
            Fall::Program => {}
            Fall::Power => {
                self.stop_k3s();
                self.slots.boot(now);
                self.programs.boot(now);
                if self.k3s_enabled {
                    self.start_k3s(now);
                }
            }
        }
    }

    /// What the node shows of a task that was found started; changes nothing (OPS-4).
    pub fn probe(&self, record: &StepRecord, task: &Task) -> Evidence<Done> {
        let no_evidence = Evidence::Unclear("this task leaves no evidence".to_owned());
        let Some(operation) = operation(record) else {
            return no_evidence;
        };
        match task {
            Task::ResetRestore { .. } => match self.resets.get(operation) {
                None => Evidence::NotStarted,
                Some(Reset::Complete) => Evidence::Completed(Done::Plain),
                Some(Reset::Begun) => Evidence::Unclear(
                    "the unit of the reset has run, and there is no result of it".to_owned(),
                ),
            },
            Task::Reboot { entry, .. } => match self.slots.reboot(operation, entry) {
                Reboot::NotIssued => Evidence::NotStarted,
                Reboot::Booted(booted) => Evidence::Completed(Done::Booted(booted)),
                Reboot::Unclear => Evidence::Unclear(
                    "a reboot was about to be issued in this boot, and no entry is set for one boot"
                        .to_owned(),
                ),
            },
            Task::ClearDatastore(_) if self.set_aside.contains(operation) => {
                Evidence::Completed(Done::Plain)
            }
            Task::ClearDatastore(_) if self.has_datastore => Evidence::NotStarted,
            Task::ClearDatastore(_) => Evidence::Unclear(
                "there is no datastore, and none that was set aside for this operation".to_owned(),
            ),
            _ => no_evidence,
        }
    }

    /// Does a task, up to the crash if there is one: each durable effect is counted right before it.
    fn effect(
        &mut self,
        record: &StepRecord,
        task: &Task,
        now: Monotonic,
        effects: &mut Effects,
    ) -> Result<Done, Undone> {
        match task {
            Task::MakeKeys(KeySlot::First) => {
                if self.keys.is_empty() {
                    effects.next()?;
                    self.make_keys();
                }
                Ok(Done::Keys {
                    handle: self.keys[0].handle,
                    proof: None,
                })
            }
            Task::MakeKeys(KeySlot::Next { old }) => {
                if !self.keys.iter().any(|keys| keys.handle.signing == *old) {
                    return Err(format!("there is no key {} on this node", old.key_id()).into());
                }
                effects.next()?;
                self.keep_keys(|handle| handle.signing == *old);
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
                    )
                    .into());
                }
                effects.next()?;
                self.keep_keys(|kept| kept == handle);
                Ok(Done::Plain)
            }
            Task::FetchProgram(program) => {
                (self.programs).fetch(program, &self.server.quirks.programs, effects)?;
                Ok(Done::Plain)
            }
            Task::CheckProgram(version) => {
                self.programs.check(version, &self.server.quirks.programs)?;
                Ok(Done::Plain)
            }
            Task::KeepProgram => {
                self.programs.keep(effects)?;
                Ok(Done::Plain)
            }
            Task::ArmRollback { version, after_ms } => {
                self.programs.arm(version, *after_ms, now, effects)?;
                Ok(Done::Plain)
            }
            Task::SwapPrograms(sha256) => {
                self.programs.swap(*sha256, effects)?;
                Ok(Done::Plain)
            }
            Task::CommitProgram => {
                self.programs.commit(effects)?;
                Ok(Done::Plain)
            }
            Task::ReadServerId => Ok(Done::ServerId(self.server.id)),
            Task::StoreBootstrap(answer) => {
                effects.next()?;
                self.bootstrap = Some(Bootstrap::from(&**answer));
                Ok(Done::Plain)
            }
            Task::DropToken => {
                effects.next()?;
                self.token_dropped = true;
                Ok(Done::Plain)
            }
            Task::WriteK3sConfig => {
                let bootstrap = self.bootstrap.as_ref().ok_or(NO_BOOTSTRAP)?;
                for (name, token) in [
                    ("token", &bootstrap.token),
                    ("agent_token", &bootstrap.agent_token),
                ] {
                    self.open_one(token)
                        .ok_or_else(|| format!("k3s.{name} in bootstrap.json does not open"))?;
                }
                effects.next()?;
                self.k3s_configured = true;
                Ok(Done::Plain)
            }
            Task::StartK3s => {
                if !self.k3s_configured {
                    return Err(NO_CONFIG.into());
                }
                effects.next()?;
                self.k3s_enabled = true;
                if self.k3s == K3s::Stopped {
                    self.start_k3s(now);
                }
                Ok(Done::Plain)
            }
            Task::StopK3s(what_for) => {
                match what_for {
                    StopFor::Restore {
                        snapshot,
                        source,
                        token_hash,
                    } => {
                        self.restorable(snapshot, source)?;
                        self.is_token_of(token_hash.as_deref())?;
                    }
                    StopFor::Rejoin(params) => self.joinable(params)?,
                }
                effects.next()?;
                self.stop_k3s();
                Ok(Done::Plain)
            }
            Task::RestartK3s => {
                if !self.k3s_configured {
                    return Err(NO_CONFIG.into());
                }
                effects.next()?;
                self.start_k3s(now);
                Ok(Done::Plain)
            }
            Task::WaitApi => match self.cluster().is_served_by(&self.server.node) {
                true => Ok(Done::Plain),
                false => Err(ApiDown.into()),
            },
            Task::WriteSecrets(Secrets::Bootstrap) => {
                let bootstrap = self.bootstrap.as_ref().ok_or(NO_BOOTSTRAP)?;
                self.write_secrets(&Arc::clone(&bootstrap.secrets), effects)
            }
            Task::WriteSecrets(Secrets::Document(secrets)) => self.write_secrets(secrets, effects),
            Task::WriteDropIns(wanted) => {
                for DropIn { name, content } in wanted.files() {
                    if self.drop_ins.get(name) == Some(&content) {
                        continue;
                    }
                    effects.next()?;
                    self.drop_ins.insert(name, content);
                    // k3s reads its configuration when it starts, so a running one has the old one until then.
                    self.restart_pending |= self.k3s != K3s::Stopped;
                }
                Ok(Done::DropIns {
                    restart_pending: self.restart_pending,
                })
            }
            Task::LetGoOfManifests(addons) => {
                for addon in addons {
                    if self.has_first_manifest(addon) && !self.let_go.contains(addon) {
                        effects.next()?;
                        self.let_go.insert(addon.clone());
                    }
                }
                Ok(Done::Plain)
            }
            Task::LookAtAddons(look) => {
                let costs = Arc::clone(&self.server.costs);
                let seen = self.cluster().addons()?.look(look, now, &costs.addons);
                Ok(Done::AddonsSeen(Box::new(seen)))
            }
            Task::ApplyAddon { objects, .. } => {
                // Nothing is applied before all of them are admitted.
                let open = |sealed: &Sealed| self.open_one(sealed);
                let ready: Result<Vec<_>, String> =
                    objects.iter().map(|it| addons::admit(it, open)).collect();
                let mut applied = Vec::with_capacity(objects.len());
                for (object, fingerprint) in objects.iter().zip(ready?) {
                    effects.next()?;
                    let mut cluster = self.cluster();
                    applied.push(cluster.addons()?.apply(object, fingerprint, now));
                }
                Ok(Done::AddonApplied(applied))
            }
            Task::EmptyPlatform(platform) => {
                let mut cluster = self.cluster();
                let applications = cluster.addons()?.applications();
                if applications.is_empty() {
                    let fingerprint = addons::admit(platform, |_| None)?;
                    effects.next()?;
                    cluster.addons()?.apply(platform, fingerprint, now);
                }
                Ok(Done::Applications(applications))
            }
            Task::DeleteAddon { objects, .. } => {
                for doomed in objects {
                    effects.next()?;
                    self.cluster().addons()?.delete(doomed, now);
                }
                Ok(Done::Plain)
            }
            Task::SaveSnapshot { name } => {
                let data = self.cluster().snapshot()?;
                let full = format!("{name}-{}-{}", self.server.node, now.as_ms());
                let full: SnapshotName = full.parse().map_err(|refused| format!("{refused}"))?;
                effects.next()?;
                self.local.insert(full.clone(), data.clone());
                effects.next()?;
                self.cluster().upload(full.clone(), data);
                Ok(Done::SnapshotSaved { name: full })
            }
            Task::ConfirmSnapshot { name, s3 } => {
                self.bucket_opens(s3)?;
                let cluster = self.cluster();
                let data =
                    (cluster.in_bucket(name)).ok_or("the bucket has no object of that name")?;
                let bytes = format!("{data:?}");
                Ok(Done::SnapshotConfirmed {
                    size: bytes.len() as u64,
                    sha256: Sha256Hex::of(bytes.as_bytes()),
                    location: format!("s3://{}/{name}", self.server.node),
                })
            }
            Task::ResetRestore { snapshot, source } => {
                let data = self.restorable(snapshot, source)?;
                let operation = operation(record).ok_or("only an operation resets a cluster")?;
                // A reboot may have started it since.
                self.stop_k3s();
                if self.cluster().is_served_beside(&self.server.node) {
                    return Err("k3s still runs on another server".into());
                }
                effects.next()?;
                self.resets.insert(operation.clone(), Reset::Begun);
                effects.next()?;
                self.cluster()
                    .reset_to(data)
                    .map_err(|node| format!("k3s still runs on {node}"))?;
                self.resets.insert(operation.clone(), Reset::Complete);
                Ok(Done::Plain)
            }
            Task::ForgetStaleNodes { .. } => {
                let own = self.server.node.clone();
                effects.next()?;
                let forgotten = self.cluster().forget_stale(&own)?;
                Ok(Done::NodesForgotten(forgotten))
            }
            Task::EnsureAccount(account) => {
                effects.next()?;
                self.cluster().ensure_account(account)?;
                Ok(Done::Plain)
            }
            Task::RequestToken {
                account,
                lifetime_seconds,
                seal_to,
            } => {
                let mut rng = self.chance();
                let token = format!("{TOKEN_MARK}-{:016x}", self.server.key_seed ^ self.drawn);
                let hash = Sha256Hex::of(token.as_bytes());
                let ends_at = now.plus_ms(lifetime_seconds.saturating_mul(1000));
                effects.next()?;
                if !self.cluster().issue_token(account, hash, now, ends_at)? {
                    return Err(format!("there is no ServiceAccount {account}").into());
                }
                Ok(Done::TokenIssued {
                    token: seal(seal_to, token.as_bytes(), &mut rng),
                    lifetime_seconds: *lifetime_seconds,
                })
            }
            Task::SealKubeconfig { token, recipient } => {
                let token = self.open_one(token).ok_or("the token does not open")?;
                let mut rng = self.chance();
                let mut kubeconfig = format!(
                    "apiVersion: v1\nkind: Config\nclusters:\n- name: pbx\n  cluster:\n    server: https://{}:6443\n\
                     users:\n- name: pbx\n  user:\n    token: ",
                    self.server.node
                )
                .into_bytes();
                kubeconfig.extend_from_slice(token.expose());
                let kubeconfig = Secret::from(kubeconfig);
                Ok(Done::KubeconfigSealed(seal(
                    recipient,
                    kubeconfig.expose(),
                    &mut rng,
                )))
            }
            Task::ListAccounts => Ok(Done::Accounts(self.cluster().accounts()?)),
            Task::DeleteAccounts(names) => {
                for name in names {
                    effects.next()?;
                    self.cluster().delete_account(name)?;
                }
                Ok(Done::Plain)
            }
            Task::ListBucket(s3) => {
                let key = self.open_one(&s3.access_key);
                let (Some(key), Some(_)) = (key, self.open_one(&s3.secret_key)) else {
                    return Err("the keys of the bucket do not open".into());
                };
                let objects = self.cluster().list_bucket(Sha256Hex::of(key.expose()))?;
                Ok(Done::BucketListed { objects })
            }
            Task::CollectDiagnostics => Ok(Done::Collected(diagnostics::bundle(
                Section::ALL.map(|section| (section, self.section(section))),
            ))),
            Task::ClearDatastore(params) => {
                let operation = operation(record).ok_or("only an operation clears a datastore")?;
                self.joinable(params)?;
                // A reboot may have started it since.
                self.stop_k3s();
                effects.next()?;
                self.joins = Some(params.server_url.clone());
                effects.next()?;
                self.has_datastore = false;
                self.set_aside.insert(operation.clone());
                Ok(Done::Plain)
            }
            Task::Cordon(node) => {
                effects.next()?;
                let pods = self.cluster().cordon(node)?;
                let pods = pods.ok_or_else(|| format!("there is no Node {node}"))?;
                Ok(Done::Cordoned { pods })
            }
            Task::Evict(node) => {
                loop {
                    let Some(pod) = self.cluster().next_to_evict(node)? else {
                        break;
                    };
                    effects.next()?;
                    self.cluster().evict(node, &pod)?;
                }
                let left = self.cluster().pods(node);
                Ok(Done::Evicted { left })
            }
            Task::ConfirmGone { node, silent_ms } => {
                let since = now.as_ms().saturating_sub(*silent_ms);
                let uid = self.cluster().silent(node, Monotonic::from_ms(since))?;
                Ok(Done::Gone { uid })
            }
            Task::InspectNode => {
                // A variable of the agent's own is written, read back and deleted: that leaves nothing.
                let healthy = self.rollouts(now);
                let cluster = self.cluster();
                let is_up = cluster.is_served_by(&self.server.node);
                Ok(Done::Inspected(Box::new(NodeFacts {
                    booted: self.slots.booted(),
                    default_entry: self.slots.default().clone(),
                    k3s_version: self.slots.k3s_version().to_owned(),
                    variables_persist: !self.server.quirks.forgets_variables,
                    knows_one_shot: true,
                    boot_bytes_free: self.slots.bytes_free(),
                    helm_jobs: Vec::new(),
                    node_ready: is_up,
                    deployments: healthy,
                })))
            }
            Task::FetchImage(image) => {
                if !self.slots.has_fetched(image) {
                    // What is fetched in part is fetched again, or on from there.
                    effects.next()?;
                    effects.next()?;
                    self.slots.fetch(image);
                }
                Ok(Done::Plain)
            }
            Task::StageSlot { image, keep } => {
                if !self.slots.has_fetched(image) {
                    return Err("the image is not there".into());
                }
                effects.next()?;
                self.slots.set_default(keep);
                if !self.slots.has_staged(image) {
                    // The copy lies where no loader looks until it is whole.
                    effects.next()?;
                    effects.next()?;
                    self.slots.stage(image);
                }
                effects.next()?;
                self.slots.keep([keep, &image.entry]);
                Ok(Done::Plain)
            }
            Task::Reboot {
                entry,
                return_after_ms,
            } => {
                let operation = operation(record).ok_or("only an operation reboots a node")?;
                effects.next()?;
                self.slots.arm(entry, *return_after_ms);
                effects.next()?;
                self.slots.issue(operation);
                effects.next()?;
                self.slots.set_one_shot(entry);
                effects.next()?;
                self.fall(Fall::Power, now);
                Err(Undone::WentDown)
            }
            Task::CheckHealth => {
                let deployments = self.rollouts(now);
                let booted = self.slots.booted();
                let is_up = self.cluster().is_served_by(&self.server.node);
                Ok(Done::Health(Box::new(Health {
                    api_ready: is_up,
                    node_ready: is_up,
                    node_boot_id: is_up.then(|| booted.boot_id.clone()),
                    kubelet_version: is_up.then(|| self.slots.k3s_version().to_owned()),
                    etcd_healthy: is_up,
                    booted,
                    deployments,
                })))
            }
            Task::Commit { entry } => {
                let booted = self.slots.booted();
                if booted.entry == *entry {
                    effects.next()?;
                    self.slots.set_default(entry);
                    effects.next()?;
                    self.slots.disarm();
                }
                Ok(Done::Booted(booted))
            }
            Task::DeleteNode { node, uid } => {
                effects.next()?;
                self.cluster().delete_node(node, uid)?;
                Ok(Done::Plain)
            }
        }
    }

    /// The Deployments of `kube-system`, as they are now.
    fn rollouts(&self, now: Monotonic) -> Vec<Rollout> {
        let is_sick = self.server.quirks.sick.contains(&self.slots.booted().entry);
        let is_over = match self.k3s {
            K3s::Up { api_at } => api_at.plus_ms(self.server.costs.rollout_ms) <= now,
            K3s::Joining | K3s::Stopped => false,
        };
        let rollout = |name: &str| Rollout {
            name: name.to_owned(),
            available: is_over && !is_sick,
            of_this_boot: is_over,
        };
        KUBE_SYSTEM.map(rollout).into()
    }

    /// What a section of a diagnostic bundle has here. k3s says a token now and then; it must not get into a bundle.
    fn section(&self, section: Section) -> Vec<LogLine> {
        let lines = match section {
            Section::Versions => vec![
                format!("k3s {}", self.slots.k3s_version()),
                format!("image {}", self.slots.booted().entry),
            ],
            Section::Units => vec![format!("k3s.service {:?}", self.k3s)],
            Section::K3sLog => vec![
                format!(
                    "level=info msg=\"Starting k3s {}\"",
                    self.slots.k3s_version()
                ),
                format!("level=info msg=\"server token is {TOKEN_MARK}\""),
            ],
            Section::AgentLog => vec![format!("{} waits for the next sync", self.server.node)],
        };
        lines.into_iter().map(LogLine::new).collect()
    }

    /// Whether the node's token has this hash, as k3s writes it: the first 12 hex digits of SHA-256.
    fn is_token_of(&self, hash: Option<&str>) -> Result<(), String> {
        let Some(wanted) = hash else { return Ok(()) };
        let bootstrap = self.bootstrap.as_ref().ok_or(NO_BOOTSTRAP)?;
        let token = self.open_one(&bootstrap.token);
        let token = token.ok_or("k3s.token in bootstrap.json does not open")?;
        let hash = Sha256Hex::of(token.expose()).to_string();
        if hash.starts_with(wanted) && wanted.len() == 12 {
            Ok(())
        } else {
            Err("the snapshot was taken with another token than this node's".to_owned())
        }
    }

    /// Whether a server stands that this one can join.
    fn joinable(&self, params: &ServerRejoinParams) -> Result<(), String> {
        if self.open_one(&params.token).is_none() {
            return Err("the token does not open".to_owned());
        }
        match self.cluster().is_served_beside(&self.server.node) {
            true => Ok(()),
            false => Err(format!("nothing answers at {}", params.server_url)),
        }
    }

    fn stop_k3s(&mut self) {
        self.k3s = K3s::Stopped;
        self.cluster().withdraw(&self.server.node);
    }

    /// A stream of draws that was never used before.
    fn chance(&mut self) -> ChaCha20Rng {
        self.drawn += 1;
        let mut hash = Sha256::new();
        hash.update(b"host chance");
        hash.update(self.server.key_seed.to_le_bytes());
        hash.update(self.drawn.to_le_bytes());
        ChaCha20Rng::from_seed(hash.finalize().into())
    }

    /// Whether an add-on has a first-start manifest: `pbx-<name>.yaml`.
    fn has_first_manifest(&self, addon: &AddonName) -> bool {
        let mut manifests = self.bootstrap.iter().flat_map(|it| &it.manifests);
        manifests.any(|(of, _)| of == addon)
    }

    fn restorable(&self, snapshot: &SnapshotName, source: &RestoreSource) -> Result<Data, String> {
        let (place, found) = match source {
            RestoreSource::Local => ("this node", self.local.get(snapshot).cloned()),
            RestoreSource::S3(bucket) => {
                self.bucket_opens(bucket)?;
                let found = self.cluster().in_bucket(snapshot).cloned();
                ("the bucket", found)
            }
        };
        found.ok_or_else(|| format!("there is no snapshot {snapshot} on {place}"))
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

    fn write_secrets(
        &mut self,
        secrets: &BootstrapSecrets,
        effects: &mut Effects,
    ) -> Result<Done, Undone> {
        let hcloud = self.content(&[&secrets.hcloud_token])?;
        let s3 = self.content(&[&secrets.s3.access_key, &secrets.s3.secret_key])?;
        let mut cluster = self.cluster();
        for (name, content) in [
            ("kube-system/hcloud", hcloud),
            ("kube-system/pbx-etcd-s3", s3),
        ] {
            effects.next()?;
            cluster.write_secret(name, content)?;
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
        self.opened.clear();
    }

    fn open_one(&self, sealed: &Sealed) -> Option<Arc<Secret>> {
        if let Some((_, secret)) = self.opened.iter().find(|(known, _)| known == sealed) {
            return Some(Arc::clone(secret));
        }
        self.keys
            .iter()
            .find_map(|keys| keys.sealing.open(sealed).ok())
            .map(Arc::new)
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
        self.keys.reserve_exact(1);
        self.keys.push(Keys {
            handle,
            signing,
            sealing,
        });
        self.keys.last().expect("one was pushed just now")
    }

    fn start_k3s(&mut self, now: Monotonic) {
        self.restart_pending = false;
        self.owes_manifests = true;
        if self.joins.is_some() && !self.has_datastore {
            self.k3s = K3s::Joining;
            self.pass_time(now);
        } else {
            self.has_datastore = true;
            self.k3s = self.coming_up(now);
        }
    }

    fn coming_up(&self, now: Monotonic) -> K3s {
        K3s::Up {
            api_at: now.plus_ms(self.server.costs.api_ready_ms),
        }
    }

    /// What happens by itself: a k3s that was started serves once it is ready, and its kubelet reports.
    fn pass_time(&mut self, now: Monotonic) -> ApiState {
        let coming_up = self.coming_up(now);
        let mut cluster = self.cluster.lock().unwrap_or_else(PoisonError::into_inner);
        cluster.pass_time(now);
        match self.k3s {
            K3s::Up { api_at } if api_at <= now => {
                cluster.serve(&self.server.node, now);
                if self.owes_manifests
                    && let (Some(bootstrap), Ok(mut addons)) = (&self.bootstrap, cluster.addons())
                {
                    // At each start all that it has not let go of, whatever has become of them.
                    let first = bootstrap.manifests.iter();
                    for (addon, content) in first.filter(|(it, _)| !self.let_go.contains(it)) {
                        addons.apply_first_manifest(addon, *content, now);
                    }
                }
                self.owes_manifests = false;
            }
            K3s::Joining if cluster.is_served_beside(&self.server.node) => {
                self.has_datastore = true;
                self.k3s = coming_up;
            }
            K3s::Up { .. } | K3s::Joining | K3s::Stopped => {}
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
/// What every token of a simulated cluster begins with, to be looked for where none may be.
pub const TOKEN_MARK: &str = "canary-account-token";

/// The Deployments that k3s brings.
const KUBE_SYSTEM: [&str; 3] = ["coredns", "local-path-provisioner", "metrics-server"];

const NO_BOOTSTRAP: &str = "there is no bootstrap.json";

/// The add-on that a first-start manifest is of.
fn addon_of(manifest: &FirstManifest) -> Option<AddonName> {
    let name = manifest.name.as_str().strip_prefix("pbx-")?;
    AddonName::new(name.strip_suffix(".yaml")?).ok()
}

fn operation(record: &StepRecord) -> Option<&OperationId> {
    match &record.work {
        Work::Operation { operation, .. } => Some(operation),
        Work::Enrollment { .. } | Work::Document { .. } | Work::Update { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use agent_core::pbx::boot::Image;
    use agent_core::pbx::task::DropIns;
    use agent_core::pbx::task::{Account, AccountName, SubjectHash};
    use protocol::pbx::operation::{Role, Step};
    use protocol::time::Timestamp;
    use rand_chacha::ChaCha8Rng;

    use super::*;

    const SECOND: u64 = 1000;

    struct Lab {
        host: SimHost,
        cluster: Arc<Mutex<SimCluster>>,
        now: Monotonic,
    }

    impl Lab {
        fn new() -> Self {
            Self::of(Arc::default(), "fsn1-server-1")
        }

        fn of(cluster: Arc<Mutex<SimCluster>>, node: &str) -> Self {
            let server = Server {
                node: node.parse().unwrap(),
                id: ServerId(42),
                boot: BootReport {
                    image_sha256: Sha256Hex::of(b"image"),
                    entry: "pbx-2026.11.1-amd64.efi".parse().unwrap(),
                },
                k3s_version: "v1.34.1+k3s1".to_owned(),
                costs: Arc::new(Costs::default()),
                key_seed: 7,
                agent_version: "1.4.0".parse().unwrap(),
                quirks: Arc::default(),
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
            lab.enroll();
            lab
        }

        fn enroll(&mut self) {
            let keys = self.keys(KeySlot::First);
            let sealed = self.secrets(&keys);
            self.run(Task::StoreBootstrap(Arc::new(bootstrap(sealed))))
                .unwrap();
            for task in [Task::WriteK3sConfig, Task::StartK3s, Task::WaitApi] {
                self.run(task).unwrap();
            }
        }

        fn run(&mut self, task: Task) -> Result<Done, String> {
            let record = record(&task);
            self.now = self.now.plus_ms(self.host.begin(&record, &task, self.now));
            match self.host.finish(&record, &task, self.now) {
                Ended::Told(told) => told.map_err(|failure| failure.message),
                Ended::WentDown => Err("the node went down".to_owned()),
            }
        }

        fn crash_in(&mut self, task: &Task, effects: u32, fall: Fall) {
            let record = record(task);
            self.host.begin(&record, task, self.now);
            let leftover = Leftover { effects, fall };
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
            Task::ClearDatastore(_) => Step::ClearDatastore,
            Task::Reboot { .. } => Step::Reboot,
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

    fn stop(snapshot: &SnapshotName) -> Task {
        Task::StopK3s(StopFor::Restore {
            snapshot: snapshot.clone(),
            source: RestoreSource::Local,
            token_hash: None,
        })
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
        let snapshot = lab.snapshot();
        lab.run(stop(&snapshot)).unwrap();
        assert_eq!(
            lab.run(Task::WriteSecrets(Secrets::Bootstrap)),
            Err(ApiDown.to_string())
        );
        let seen = lab.host.observe(lab.now);
        assert_eq!(
            (seen.k3s.unit, seen.k3s.api),
            (UnitState::Inactive, ApiState::Down)
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
        let opens =
            |host: &mut SimHost, sealed: &Sealed| host.open(&[(field.clone(), sealed.clone())]);
        assert_eq!(opens(&mut lab.host, &old_box), Ok(()));
        assert_eq!(opens(&mut lab.host, &new_box), Ok(()));
        lab.run(Task::PromoteKeys(next)).unwrap();
        assert_eq!(
            opens(&mut lab.host, &old_box),
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

    // R37: nothing is stopped for a restore that cannot be.
    #[test]
    fn k3s_is_stopped_only_for_a_snapshot_that_is_there_and_of_this_token() {
        let mut lab = Lab::enrolled();
        let snapshot = lab.snapshot();
        let stop_with = |hash: &str| {
            Task::StopK3s(StopFor::Restore {
                snapshot: snapshot.clone(),
                source: RestoreSource::Local,
                token_hash: Some(hash.to_owned()),
            })
        };
        let missing: SnapshotName = "weekly".parse().unwrap();
        let right = Sha256Hex::of(b"hcloud").to_string();
        let refused = [
            (stop(&missing), "no snapshot weekly"),
            (stop_with("0123456789ab"), "another token"),
            (stop_with(&right[..11]), "another token"),
        ];
        for (task, expected) in refused {
            let why = lab.run(task).unwrap_err();
            assert!(why.contains(expected), "{why}");
            assert_eq!(lab.host.observe(lab.now).k3s.unit, UnitState::Active);
        }
        lab.run(stop_with(&right[..12])).unwrap();
        assert_eq!(lab.host.observe(lab.now).k3s.unit, UnitState::Inactive);
    }

    #[test]
    fn a_restore_sets_the_data_back_and_stops_a_k3s_that_a_reboot_has_started() {
        let mut lab = Lab::enrolled();
        let snapshot = lab.snapshot();
        lab.run(Task::WriteSecrets(Secrets::Bootstrap)).unwrap();
        let restore = |name: &SnapshotName| Task::ResetRestore {
            snapshot: name.clone(),
            source: RestoreSource::Local,
        };
        let missing: SnapshotName = "weekly".parse().unwrap();
        let why = lab.run(restore(&missing)).unwrap_err();
        assert!(why.contains("no snapshot weekly"), "{why}");
        let record = record(&restore(&missing));
        let evidence = lab.host.probe(&record, &restore(&missing));
        assert_eq!(evidence, Evidence::NotStarted);
        lab.run(stop(&snapshot)).unwrap();
        lab.host.fall(Fall::Power, lab.now);
        assert_eq!(lab.host.observe(lab.now).k3s.unit, UnitState::Active);
        lab.run(restore(&snapshot)).unwrap();
        assert_eq!(lab.host.observe(lab.now).k3s.unit, UnitState::Inactive);
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
        let unclear = Evidence::Unclear(
            "the unit of the reset has run, and there is no result of it".to_owned(),
        );
        let rows = [
            (0, Evidence::NotStarted),
            (1, unclear),
            (2, Evidence::Completed(Done::Plain)),
        ];
        for ((effects, expected), fall) in
            rows.into_iter()
                .zip([Fall::Program, Fall::Power, Fall::Power])
        {
            let mut lab = Lab::enrolled();
            let snapshot = lab.snapshot();
            lab.run(stop(&snapshot)).unwrap();
            let restore = Task::ResetRestore {
                snapshot,
                source: RestoreSource::Local,
            };
            lab.crash_in(&restore, effects, fall);
            assert_eq!(lab.host.probe(&record(&restore), &restore), expected);
        }
    }

    /// Two servers of a cluster, and what the first needs to join the second again.
    fn two_servers() -> (Lab, Lab, Box<ServerRejoinParams>) {
        let mut one = Lab::enrolled();
        let keys = one.keys(KeySlot::First);
        let mut other = Lab::of(Arc::clone(&one.cluster), "fsn1-server-2");
        other.enroll();
        let token = one.secrets(&keys).hcloud_token;
        let server_url = "https://10.0.0.2:6443".to_owned();
        (
            one,
            other,
            Box::new(ServerRejoinParams { server_url, token }),
        )
    }

    // rules OP-12, OPS-4: the joining is configured before the datastore goes, and what was set aside is the evidence.
    #[test]
    fn a_crash_inside_a_clearing_founds_no_cluster_and_leaves_what_a_probe_can_tell() {
        let rows = [
            (0, Evidence::NotStarted),
            (1, Evidence::NotStarted),
            (2, Evidence::Completed(Done::Plain)),
        ];
        for (effects, expected) in rows {
            let (mut lab, mut other, params) = two_servers();
            lab.run(Task::StopK3s(StopFor::Rejoin(params.clone())))
                .unwrap();
            let clear = Task::ClearDatastore(params);
            lab.crash_in(&clear, effects, Fall::Power);
            // The power cut has started k3s, beside a server that stands.
            assert_eq!(lab.host.probe(&record(&clear), &clear), expected);
            lab.host.fall(Fall::Power, lab.now);
            other.host.fall(Fall::Power, lab.now);
            let is_joining = lab.host.observe(lab.now).k3s.unit == UnitState::Activating;
            assert!(
                !is_joining,
                "it has a datastore by now, its own or the other's"
            );
        }
        let (mut lab, _, params) = two_servers();
        let clear = Task::ClearDatastore(params);
        lab.host.has_datastore = false;
        let evidence = lab.host.probe(&record(&clear), &clear);
        assert!(matches!(evidence, Evidence::Unclear(_)), "{evidence:?}");
    }

    #[test]
    fn a_server_stops_for_a_rejoin_only_while_another_one_stands_and_then_waits_for_it() {
        let (mut lab, mut other, params) = two_servers();
        lab.run(Task::StopK3s(StopFor::Rejoin(params.clone())))
            .unwrap();
        lab.run(Task::ClearDatastore(params.clone())).unwrap();
        other.host.stop_k3s();
        lab.run(Task::StartK3s).unwrap();
        assert_eq!(lab.host.observe(lab.now).k3s.unit, UnitState::Activating);
        assert!(lab.run(Task::WaitApi).is_err());
        other.run(Task::StartK3s).unwrap();
        other.run(Task::WaitApi).unwrap();
        lab.now = other.now;
        assert_eq!(lab.host.observe(lab.now).k3s.unit, UnitState::Active);
        lab.run(Task::WaitApi).unwrap();

        let mut alone = Lab::enrolled();
        let why = alone
            .run(Task::StopK3s(StopFor::Rejoin(params)))
            .unwrap_err();
        assert!(
            why.contains("open") || why.contains("nothing answers"),
            "{why}"
        );
        assert_eq!(alone.host.observe(alone.now).k3s.unit, UnitState::Active);
    }

    // rule OP-7: a token leaves the host sealed, works while its account is there, and ends with it or with its time.
    #[test]
    fn a_token_ends_with_its_account_even_if_one_of_the_same_name_comes_back() {
        let mut lab = Lab::enrolled();
        let keys = lab.keys(KeySlot::First);
        let account = Account {
            name: AccountName {
                subject: SubjectHash::of("ann@example.com"),
                role: Role::Edit,
            },
            asked_at: Timestamp::from_unix_ms(1),
        };
        let request = Task::RequestToken {
            account: account.name.clone(),
            lifetime_seconds: 600,
            seal_to: keys.sealing,
        };
        assert!(
            lab.run(request.clone())
                .unwrap_err()
                .contains("no ServiceAccount")
        );
        let ensure = Task::EnsureAccount(account.clone());
        lab.run(ensure.clone()).unwrap();
        let Done::TokenIssued { token, .. } = lab.run(request).unwrap() else {
            panic!("another answer");
        };
        let works = |lab: &Lab, after_seconds: u64| {
            let cluster = lab.cluster.lock().unwrap();
            cluster.tokens_that_work(lab.now.plus_ms(after_seconds * SECOND))
        };
        assert_eq!((works(&lab, 599), works(&lab, 600)), (1, 0));

        let asker = SealingSecretKey::from_seed([5; 32]);
        let seal = Task::SealKubeconfig {
            token,
            recipient: asker.public(),
        };
        let Done::KubeconfigSealed(sealed) = lab.run(seal).unwrap() else {
            panic!("another answer");
        };
        let kubeconfig = asker.open(&sealed).unwrap();
        assert!(kubeconfig.expose_text().unwrap().contains(TOKEN_MARK));

        let deletes = Task::DeleteAccounts(vec![account.name]);
        lab.run(deletes.clone()).unwrap();
        assert_eq!(works(&lab, 0), 0);
        lab.run(deletes).unwrap();
        lab.run(ensure).unwrap();
        assert_eq!(works(&lab, 0), 0, "the new account has another UID");
    }

    fn image() -> Box<Image> {
        Box::new(Image {
            entry: "pbx-2026.12.1-amd64.efi".parse().unwrap(),
            url: "https://artifacts.invalid/image".to_owned(),
            sha256: Sha256Hex::of(b"download"),
            size: 500_000_000,
            image_sha256: Sha256Hex::of(b"booted"),
            k3s_version: "v1.35.0+k3s1".to_owned(),
        })
    }

    const RETURN_MS: u64 = 1_200 * SECOND;

    /// A server that has staged an image, and its reboot into it.
    fn staged() -> (Lab, Task) {
        let mut lab = Lab::enrolled();
        let (_, keep, _) = lab.host.entries();
        let entry = image().entry;
        let stage = Task::StageSlot {
            image: image(),
            keep,
        };
        assert!(lab.run(stage.clone()).unwrap_err().contains("not there"));
        lab.run(Task::FetchImage(image())).unwrap();
        lab.run(stage).unwrap();
        let reboot = Task::Reboot {
            entry,
            return_after_ms: RETURN_MS,
        };
        (lab, reboot)
    }

    // rules OP-5, OP-6: the new entry runs for one boot, and for good once it is committed.
    #[test]
    fn an_entry_is_tried_for_one_boot_and_kept_once_it_is_committed() {
        let (mut lab, reboot) = staged();
        let (all, old, _) = lab.host.entries();
        let new = image().entry;
        assert_eq!(all, [old.clone(), new.clone()]);
        assert!(lab.run(reboot).unwrap_err().contains("went down"));
        assert_eq!(lab.host.entries(), (all.clone(), old.clone(), new.clone()));
        let seen = lab.host.observe(lab.now);
        assert_eq!(seen.boot.image_sha256, image().image_sha256);
        assert_eq!(seen.k3s.version.as_deref(), Some("v1.35.0+k3s1"));
        let back_at = lab.now.plus_ms(RETURN_MS);
        assert_eq!(lab.host.goes_back_at(), Some(back_at));
        lab.host.fall(Fall::Power, lab.now);
        assert_eq!(lab.host.entries().2, old, "it was for one boot");
        assert_eq!(
            lab.host.goes_back_at(),
            None,
            "there is nothing to go back from"
        );

        let (mut lab, reboot) = staged();
        let _ = lab.run(reboot);
        let commit = Task::Commit { entry: new.clone() };
        lab.run(commit).unwrap();
        assert_eq!(lab.host.goes_back_at(), None);
        lab.host.fall(Fall::Power, lab.now);
        assert_eq!(lab.host.entries(), (all, new.clone(), new));
    }

    // rule OPS-4: what a crash at each point of a reboot leaves, and what a look tells of it.
    #[test]
    fn a_crash_inside_a_reboot_leaves_what_a_probe_can_tell() {
        let new = Some(image().entry);
        let old = Some(staged().0.host.entries().1);
        let rows = [
            (0, Fall::Program, "not started", None),
            (1, Fall::Program, "not started", None),
            (2, Fall::Program, "unclear", None),
            (3, Fall::Program, "not started", None),
            (4, Fall::Program, "booted", new.clone()),
            (0, Fall::Power, "not started", None),
            (1, Fall::Power, "not started", None),
            (2, Fall::Power, "booted", old),
            (3, Fall::Power, "booted", new.clone()),
            (4, Fall::Power, "booted", new),
        ];
        for (effects, fall, expected, entry) in rows {
            let (mut lab, reboot) = staged();
            lab.crash_in(&reboot, effects, fall);
            let came = match lab.host.probe(&record(&reboot), &reboot) {
                Evidence::NotStarted => ("not started", None),
                Evidence::Completed(Done::Booted(booted)) => ("booted", Some(booted.entry)),
                Evidence::Unclear(_) => ("unclear", None),
                other @ Evidence::Completed(_) => panic!("{other:?}"),
            };
            assert_eq!(came, (expected, entry), "{effects}, {fall:?}");
        }
    }

    // rule OP-5: two entries are kept, the one that runs and the one it goes to.
    #[test]
    fn of_three_entries_the_oldest_goes() {
        let (mut lab, reboot) = staged();
        let _ = lab.run(reboot);
        let first = image().entry;
        lab.run(Task::Commit {
            entry: first.clone(),
        })
        .unwrap();
        let mut next = image();
        next.entry = "pbx-2027.1.1-amd64.efi".parse().unwrap();
        next.sha256 = Sha256Hex::of(b"another download");
        lab.run(Task::FetchImage(next.clone())).unwrap();
        let stage = Task::StageSlot {
            image: next.clone(),
            keep: first.clone(),
        };
        lab.run(stage).unwrap();
        assert_eq!(lab.host.entries().0, [first, next.entry]);
    }

    // rule OP-11: k3s has said its token, and the bundle does not.
    #[test]
    fn a_bundle_of_a_node_holds_no_token() {
        let mut lab = Lab::enrolled();
        let Done::Collected(collected) = lab.run(Task::CollectDiagnostics).unwrap() else {
            panic!("another answer");
        };
        let text = crate::trace::text_of(&collected.bundle);
        assert!(text.contains("k3s v1.34.1+k3s1"), "{text}");
        assert!(!text.contains(TOKEN_MARK), "{text}");
    }

    #[test]
    fn k3s_comes_back_after_a_crash_and_takes_its_time() {
        let mut lab = Lab::enrolled();
        let snapshot = Task::SaveSnapshot {
            name: "nightly".parse().unwrap(),
        };
        lab.crash_in(&snapshot, 0, Fall::Program);
        assert_eq!(lab.host.observe(lab.now).k3s.api, ApiState::Up);
        lab.crash_in(&snapshot, 0, Fall::Power);
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
        let snapshot = lab.snapshot();
        lab.run(stop(&snapshot)).unwrap();
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
        assert_eq!(done, Ended::Told(Ok(Done::Plain)));
        assert_eq!(lab.host.observe(ends).k3s.api, ApiState::Down);
        let ready = ends.plus_ms(costs.api_ready_ms);
        assert_eq!(lab.host.observe(ready).k3s.api, ApiState::Up);

        for (effects, fall) in [(0, Fall::Program), (0, Fall::Power), (1, Fall::Program)] {
            let mut lab = Lab::enrolled();
            lab.crash_in(&Task::RestartK3s, effects, fall);
            let ready = lab.now.plus_ms(costs.api_ready_ms);
            let seen = lab.host.observe(ready);
            assert_eq!((seen.k3s.api, seen.restart_pending), (ApiState::Up, false));
        }
    }
}
