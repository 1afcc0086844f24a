//! Identities that outlive a run: a folder with a file an agent, so that a later run has the same agents, whatever its
//! seed, and without tokens.
//!
//! A file has what a node would still have: who it is, what its keys are made from, the answer to its enrollment and the
//! agent's durable record. It is written whenever that record is, as a whole, and read at the start of a run. What a node
//! has of its cluster (snapshots, Secrets, data) is not in it: that is as new as the run.
//!
//! Whoever has such a file is that agent, so folder and files are readable by their owner alone. An error never quotes
//! one: it may hold a token.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use agent_core::journal::{StepRecord, Work};
use agent_core::machine::KeyHandle;
use agent_core::pbx::durable::{Durable, EnrollStep};
use agent_core::pbx::task::{Done, KeySlot, Task};
use agent_core::time::Monotonic;
use agent_drive::files::{self, Outlives, Root};
use fleet_sim::host::{Ended, Server, SimHost};
use protocol::hash::Sha256Hex;
use protocol::id::{AgentVersion, ClusterId, EnrollmentToken, EntryName, NodeName, ServerId};
use protocol::pbx::enroll::EnrollAnswer;
use protocol::pbx::sync::BootReport;
use scenario::Population;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use crate::foreign::{Unusable, read_at_most};
use crate::population::{Lineage, Member};

/// The shape of a file.
const SCHEMA: u32 = 1;
/// How many keys a node may have made. An agent rotates them now and then; a file that wants more is spoiled.
const KEYS_MAX: u32 = 10_000;
/// No agent's file is larger: the answer to its enrollment and its record are a few hundred KiB at most.
const BYTES_MAX: usize = 4 << 20;

/// A folder of identities.
#[derive(Debug, Clone)]
pub struct Identities(Root);

/// What is kept of one member.
#[derive(Debug)]
pub struct Kept {
    file: PathBuf,
    /// What it was when the run began; none for a member that is new here.
    before: Option<Before>,
    /// The answer to its enrollment, once it is on the node.
    bootstrap: Mutex<Option<Arc<EnrollAnswer>>>,
}

/// A member as an earlier run has left it.
#[derive(Debug)]
struct Before {
    durable: Arc<Durable>,
    bootstrap: Option<Arc<EnrollAnswer>>,
}

/// A file of the folder.
#[derive(Serialize, Deserialize)]
struct Form {
    schema: u32,
    cluster_id: ClusterId,
    node_name: NodeName,
    server_id: ServerId,
    boot_image_sha256: Sha256Hex,
    token: Option<EnrollmentToken>,
    key_seed: u64,
    bootstrap: Option<Arc<EnrollAnswer>>,
    durable: Box<RawValue>,
}

impl Identities {
    /// Opens a folder, and makes it where there is none.
    ///
    /// # Errors
    /// When it cannot be made, or nothing can be written to it.
    pub fn open(folder: &Path) -> Result<Self, Unusable> {
        let unusable = |error: io::Error| Unusable::new(folder.display(), error);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(unusable)?;
        let probe = folder.join(".probe");
        File::create(&probe)
            .and_then(|_| fs::remove_file(&probe))
            .map_err(unusable)?;
        Ok(Self(Root::new(folder)))
    }

    /// The member that an earlier run has kept; none if there is none.
    ///
    /// # Errors
    /// When its file cannot be read, or is not what this program has written.
    pub fn member(
        &self,
        seed: u64,
        population: &Population,
        index: u64,
    ) -> Result<Option<Member>, Unusable> {
        let file = self.file(population, index);
        let unusable = |why: String| Unusable::new(file.display(), why);
        let bytes = match File::open(&file).and_then(|file| read_at_most(file, BYTES_MAX)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(|error| unusable(error.to_string()))?,
        };
        let form: Form = serde_json::from_slice(&bytes).map_err(|error| {
            // Not serde's text, which may quote what it has read.
            unusable(format!(
                "line {}, column {}: this is no identity that a run has kept",
                error.line(),
                error.column()
            ))
        })?;
        if form.schema > SCHEMA {
            return Err(unusable(format!(
                "it has schema {}, and this program reads up to {SCHEMA}: start the program that has written it",
                form.schema
            )));
        }
        let durable = Durable::read(form.durable.get().as_bytes())
            .map_err(|refused| unusable(refused.to_string()))?;
        let kept = Kept {
            file: file.clone(),
            bootstrap: Mutex::new(form.bootstrap.clone()),
            before: Some(Before {
                durable: Arc::new(durable),
                bootstrap: form.bootstrap.clone(),
            }),
        };
        // Tried on a node that nobody needs, so that a spoiled file is told before the run.
        kept.furnish(&mut form.trial(), Monotonic::from_ms(0))
            .map_err(unusable)?;
        Ok(Some(Member {
            lineage: Lineage::new(seed, &population.name, index),
            index,
            cluster: form.cluster_id,
            node: form.node_name,
            server_id: form.server_id,
            boot_image: form.boot_image_sha256,
            token: form.token,
            key_seed: form.key_seed,
            kept: Some(Arc::new(kept)),
        }))
    }

    /// Keeps a member that is new here, from its first record on.
    #[must_use]
    pub fn keep(&self, member: Member, population: &Population) -> Member {
        let kept = Kept {
            file: self.file(population, member.index),
            before: None,
            bootstrap: Mutex::default(),
        };
        Member {
            kept: Some(Arc::new(kept)),
            ..member
        }
    }

    fn file(&self, population: &Population, index: u64) -> PathBuf {
        self.0.path(format!("{}-{index}.json", population.name))
    }
}

impl Kept {
    /// The durable record that the member's disk begins with.
    pub(crate) fn durable(&self) -> Durable {
        match &self.before {
            Some(before) => Durable::clone(&before.durable),
            None => Durable::default(),
        }
    }

    /// Brings a new node to where the member's record says that it was.
    ///
    /// # Errors
    /// When the keys in the record are not made from the seed beside it, or the node's model does not take what was kept.
    pub(crate) fn furnish(&self, host: &mut SimHost, now: Monotonic) -> Result<(), String> {
        let Some(before) = &self.before else {
            return Ok(());
        };
        let enrollment = before.durable.enrollment.as_deref();
        let identity = before.durable.identity.as_ref();
        let pairs =
            identity.map(|identity| [Some(identity.active), identity.other.as_deref().copied()]);
        let pairs = pairs.unwrap_or([enrollment.and_then(|enrollment| enrollment.keys), None]);
        let mut wanted = pairs.into_iter().flatten().map(|pairs| pairs.handle);
        let Some(first_wanted) = wanted.next() else {
            return Ok(());
        };
        let mut node = Furnished { host, now };
        let first = node.keys(KeySlot::First)?;
        // Its secrets are sealed to the first keys.
        let through = |step| enrollment.is_none_or(|enrollment| enrollment.step > step);
        if let Some(bootstrap) = &before.bootstrap {
            node.does(Task::StoreBootstrap(Arc::clone(bootstrap)))?;
        }
        for (step, task) in [
            (EnrollStep::DropToken, Task::DropToken),
            (EnrollStep::WriteK3s, Task::WriteK3sConfig),
            (EnrollStep::StartK3s, Task::StartK3s),
        ] {
            if identity.is_some() && through(step) {
                node.does(task)?;
            }
        }
        node.keys_up_to(first, first_wanted, wanted.next())
    }

    /// The answer to the enrollment is on the node.
    pub(crate) fn bootstrapped(&self, answer: &Arc<EnrollAnswer>) {
        *self
            .bootstrap
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(answer));
    }

    /// Writes what is on the member's disk now. Small and not synced, so that it is quick enough for a thread that others
    /// share; what the system loses with its power is one run's progress.
    pub(crate) fn write(&self, member: &Member, durable: &Durable) {
        let bootstrap = self
            .bootstrap
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let form = Form {
            schema: SCHEMA,
            cluster_id: member.cluster.clone(),
            node_name: member.node.clone(),
            server_id: member.server_id,
            boot_image_sha256: member.boot_image,
            token: match durable.identity {
                Some(_) => None,
                None => member.token.clone(),
            },
            key_seed: member.key_seed,
            bootstrap: bootstrap.clone(),
            durable: to_raw_value(durable)
                .expect("a durable record has string keys and raw JSON only"),
        };
        let written = serde_json::to_vec(&form)
            .map_err(io::Error::from)
            .and_then(|form| files::replace(&self.file, 0o600, &form, Outlives::ProgramEnd));
        if let Err(error) = written {
            tracing::error!(file = %self.file.display(), %error, "an identity was not kept");
        }
    }
}

/// A node that is being brought to where it was.
struct Furnished<'a> {
    host: &'a mut SimHost,
    now: Monotonic,
}

impl Furnished<'_> {
    fn does(&mut self, task: Task) -> Result<Done, String> {
        let record = StepRecord {
            work: Work::Enrollment {
                step: EnrollStep::MakeKeys,
            },
            attempt: 1,
        };
        match self.host.finish(&record, &task, self.now) {
            Ended::Told(told) => told.map_err(|failure| failure.message),
            Ended::WentDown => Err("the node went down".to_owned()),
        }
    }

    fn keys(&mut self, slot: KeySlot) -> Result<KeyHandle, String> {
        match self.does(Task::MakeKeys(slot))? {
            Done::Keys { handle, .. } => Ok(handle),
            other => Err(format!("keys were to be made, and {other:?} was done")),
        }
    }

    /// Makes keys after keys until those that are wanted are there, which are then the only ones.
    fn keys_up_to(
        &mut self,
        first: KeyHandle,
        wanted: KeyHandle,
        and: Option<KeyHandle>,
    ) -> Result<(), String> {
        let is_wanted = |handle: KeyHandle| handle == wanted || Some(handle) == and;
        let mut missing = 1 + usize::from(and.is_some());
        let (mut last, mut held) = (first, None);
        for _ in 0..KEYS_MAX {
            if is_wanted(last) {
                missing -= 1;
                held = held.or(Some(last));
            }
            if missing == 0 {
                return match and {
                    Some(_) => Ok(()),
                    None => self.does(Task::PromoteKeys(wanted)).map(drop),
                };
            }
            let old = held.unwrap_or(last).signing;
            last = self.keys(KeySlot::Next { old })?;
        }
        Err("its keys are not made from the seed beside them".to_owned())
    }
}

impl Form {
    /// A node to try a file on.
    fn trial(&self) -> SimHost {
        let server = Server {
            node: self.node_name.clone(),
            id: self.server_id,
            boot: BootReport {
                image_sha256: self.boot_image_sha256,
                entry: EntryName::new("trial.efi").expect("a name of plain letters"),
            },
            k3s_version: crate::live::K3S_VERSION.to_owned(),
            costs: Arc::default(),
            key_seed: self.key_seed,
            agent_version: AgentVersion::new("1.4.0").expect("digits and dots are a version"),
            quirks: Arc::default(),
        };
        SimHost::new(server, Arc::default())
    }
}

#[cfg(test)]
mod tests {
    use agent_core::pbx::durable::{Identity, KeyPairs};
    use protocol::time::Timestamp;

    use super::*;

    fn node() -> SimHost {
        let form = Form {
            schema: SCHEMA,
            cluster_id: "clu_1".parse().unwrap(),
            node_name: "n-1".parse().unwrap(),
            server_id: ServerId(1),
            boot_image_sha256: Sha256Hex::of(b"image"),
            token: None,
            key_seed: 7,
            bootstrap: None,
            durable: to_raw_value(&Durable::default()).unwrap(),
        };
        form.trial()
    }

    /// The first four keys that a node of this seed makes.
    fn keys() -> [KeyHandle; 4] {
        let mut host = node();
        let mut node = Furnished {
            host: &mut host,
            now: Monotonic::from_ms(0),
        };
        let mut last = node.keys(KeySlot::First).unwrap();
        std::array::from_fn(|_| {
            let made = last;
            last = node.keys(KeySlot::Next { old: made.signing }).unwrap();
            made
        })
    }

    fn furnished(active: KeyHandle, other: Option<KeyHandle>) -> Result<SimHost, String> {
        let pairs = |handle| KeyPairs {
            handle,
            created_at: Timestamp::from_unix_ms(0),
        };
        let durable = Durable {
            identity: Some(Identity {
                agent_id: "agt_1".parse().unwrap(),
                active: pairs(active),
                other: other.map(|other| Box::new(pairs(other))),
            }),
            enrollment: Some(Box::new(agent_core::pbx::durable::Enrollment {
                step: EnrollStep::StoreAnswer,
                attempt: 1,
                keys: Some(pairs(active)),
                server_id: Some(ServerId(1)),
                refusals: 0,
            })),
            ..Durable::default()
        };
        let kept = Kept {
            file: PathBuf::new(),
            bootstrap: Mutex::default(),
            before: Some(Before {
                durable: Arc::new(durable),
                bootstrap: None,
            }),
        };
        let mut host = node();
        kept.furnish(&mut host, Monotonic::from_ms(0))
            .map(|()| host)
    }

    #[test]
    fn a_node_gets_the_keys_back_that_its_record_names_and_no_others() {
        let keys = keys();
        // Which is active, which other one is there: before a rotation, inside one, after one, and after one that was
        // begun several times.
        for (active, other) in [
            (0, None),
            (0, Some(1)),
            (1, Some(0)),
            (1, None),
            (0, Some(3)),
            (3, Some(0)),
            (1, Some(3)),
            (3, None),
        ] {
            let host = furnished(keys[active], other.map(|at: usize| keys[at])).unwrap();
            for (at, key) in keys.iter().enumerate() {
                let expected = at == active || Some(at) == other;
                let held = host.sign(key, b"x").is_some();
                assert_eq!(held, expected, "{active} {other:?}: key {at}");
            }
        }
    }

    #[test]
    fn keys_of_another_seed_are_found_out() {
        let stranger = protocol::sign::SigningKey::from_seed([9; 32]).public();
        let spoiled = KeyHandle {
            signing: stranger,
            ..keys()[0]
        };
        let why = furnished(spoiled, None).map(drop).unwrap_err();
        assert!(why.contains("not made from the seed"), "{why}");
    }
}
