//! `POST /sync`: a report, for the desired state and at most one operation: the words of it; what they mean is decided elsewhere.
//!
//! The answer is read in two stages. The envelope ([`SyncAnswer`]) comes first and keeps `desired` as raw text; whoever
//! wants it reads it with [`DesiredState::read`]. So a document that is refused still has a generation to report, the
//! operation beside it still runs, and a document that has not changed costs no reading at all.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::enroll::BootstrapSecrets;
use super::operation::{OperationKind, OperationOffer, Step};
use super::{ProtocolVersion, raw, same_raw};
use crate::hash::Sha256Hex;
use crate::id::{
    AddonName, AgentVersion, Arch, EntryName, Generation, NodeName, OperationId, ReleaseVersion,
};
use crate::json::{self, JsonRefusal};
use crate::seal::{Sealed, SecretPlaces, first_in_clear};
use crate::time::Timestamp;
use crate::words::{closed_words, open_words, schema, serde_by_text};

/// What an agent says of its node. A try after a 400 sends the same report again, byte for byte.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct SyncReport {
    /// The protocol that the agent speaks.
    pub protocol: ProtocolVersion,
    /// Counts the reports since this start of the program, from 1; a restart can repeat one (ANS-3).
    pub sequence: u64,
    /// The running agent program.
    pub agent_version: AgentVersion,
    /// What the node runs on.
    pub arch: Arch,
    /// The node's name.
    pub node_name: NodeName,
    /// What was booted.
    pub boot: BootReport,
    /// How k3s is.
    pub k3s: K3sReport,
    /// Whether this agent leads (SYNC-6).
    pub leader: bool,
    /// Where the document stands.
    pub document: DocumentReport,
    /// Where the add-ons stand (ADD-7).
    pub addons: Arc<[AddonReport]>,
    /// The operation that runs, or whose end was not delivered yet.
    pub operation: Option<OperationReport>,
    /// Where the agent's own update stands.
    pub update: UpdateReport,
    /// A drop-in waits for the maintenance window (SYNC-5).
    pub restart_pending: bool,
    /// The portal's time minus the node's raw clock, in milliseconds (ANS-5).
    pub clock_offset_ms: i64,
    /// When the agent's keys were made (OP-9).
    pub keys_created_at: Timestamp,
    /// After repeated refusals: the last one (ANS-2).
    pub last_error: Option<LastError>,
    /// What is wrong with the node: disk full, a damaged state file … (FAIL-7, FILE-13, OPS-9).
    pub problems: Vec<String>,
}

/// What was booted.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct BootReport {
    /// The hash of the image.
    pub image_sha256: Sha256Hex,
    /// The boot entry.
    pub entry: EntryName,
}

/// How k3s is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct K3sReport {
    /// Its version; null while it is not known.
    pub version: Option<String>,
    /// The state of its systemd unit.
    pub unit: UnitState,
    /// Whether the Kubernetes API answers.
    pub api: ApiState,
}

closed_words! {
    /// A systemd unit's `ActiveState` (org.freedesktop.systemd1).
    pub enum UnitState ("unit state") {
        /// Running.
        Active = "active",
        /// Running, taking its configuration again.
        Reloading = "reloading",
        /// Not running.
        Inactive = "inactive",
        /// Not running, because it failed.
        Failed = "failed",
        /// On its way up.
        Activating = "activating",
        /// On its way down.
        Deactivating = "deactivating",
        /// Not running while it is maintained.
        Maintenance = "maintenance",
        /// Running, taking its mounts again.
        Refreshing = "refreshing",
    }
}

closed_words! {
    /// Whether the Kubernetes API answers (FAIL-2).
    pub enum ApiState ("API state") {
        /// It answers.
        Up = "up",
        /// It does not.
        Down = "down",
    }
}

/// Where the document stands. Before the first one both generations are 0 and the result is `applied`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct DocumentReport {
    /// The document that is in force.
    pub applied_generation: Generation,
    /// The document that came last.
    pub seen_generation: Generation,
    /// What became of the last one.
    pub result: DocumentResult,
    /// Why.
    pub message: Option<String>,
}

closed_words! {
    /// What became of a document.
    pub enum DocumentResult ("document result") {
        /// In force.
        Applied = "applied",
        /// Being applied.
        Pending = "pending",
        /// Its manifest counts for nothing (SYNC-4, UPD-6).
        ManifestRejected = "manifest_rejected",
        /// It has a secret in clear (SEAL-2).
        UnsealedSecret = "unsealed_secret",
        /// It has a secret that does not open (SEAL-3).
        UnopenableSecret = "unopenable_secret",
        /// It is older than the one in force (SYNC-7).
        StaleDocument = "stale_document",
        /// Anything else.
        Failed = "failed",
    }
}

/// Where an add-on stands (ADD-7).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct AddonReport {
    /// Its name.
    pub name: AddonName,
    /// Its state.
    pub state: AddonState,
    /// Why.
    pub message: Option<String>,
}

open_words! {
    /// The state of an add-on (ADD-7); an unknown one fails that add-on alone (WIRE-5).
    pub enum AddonState ("add-on state") {
        /// Applied and healthy (ADD-13).
        Applied = "applied",
        /// On its way (ADD-10, ADD-11, ADD-12).
        Pending = "pending",
        /// Failed, its objects kept (ADD-6, ADD-8, ADD-9, ADD-14).
        Failed = "failed",
        /// Switched off, its objects gone (ADD-5).
        Removed = "removed",
    }
}

/// The operation that runs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct OperationReport {
    /// Its ID.
    pub id: OperationId,
    /// Its kind.
    pub kind: OperationKind,
    /// The step that it is in.
    pub step: Option<Step>,
    /// How it goes.
    pub state: OperationState,
}

closed_words! {
    /// How an operation goes.
    pub enum OperationState ("operation state") {
        /// It runs.
        Running = "running",
        /// It ended well; its final event is not stored by the portal yet.
        Succeeded = "succeeded",
        /// It ended badly; its final event is not stored by the portal yet.
        Failed = "failed",
        /// The agent does not know the kind (OPS-5).
        Unsupported = "unsupported",
        /// The agent would not begin it (OPS-6, OPS-10).
        Refused = "refused",
    }
}

/// Where the agent's own update stands.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct UpdateReport {
    /// The version that runs.
    pub running: AgentVersion,
    /// The version that was tried and put back (UPD-3).
    pub rolled_back_from: Option<AgentVersion>,
}

/// A refusal that came again and again (ANS-2).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct LastError {
    /// Its code, or its status where it had none.
    pub code: String,
    /// How often.
    pub count: u32,
}

/// What a report is answered with; `desired` is read in a second stage.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct SyncAnswer {
    /// The portal's time.
    pub portal_time: Timestamp,
    /// The document as raw text; none until one is set.
    #[schemars(with = "Option<DesiredState>")]
    pub desired: Option<Arc<RawValue>>,
    /// The operation that this agent is to run (OPS-9).
    pub operation: Option<OperationOffer>,
}

impl PartialEq for SyncAnswer {
    /// Raw text is compared byte for byte.
    fn eq(&self, other: &Self) -> bool {
        self.portal_time == other.portal_time
            && self.operation == other.operation
            && same_raw(&self.desired, &other.desired)
    }
}

/// A document: what a node is to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DesiredState {
    /// Which document it is; an older one is refused (SYNC-7).
    pub generation: Generation,
    /// The release whose manifest it goes with (SYNC-4).
    pub release: ReleaseVersion,
    /// The agent program that is to run; must be the manifest's (UPD-6).
    pub agent_version: AgentVersion,
    /// The host's configuration.
    pub host: HostConfig,
    /// When k3s may be restarted (SYNC-5).
    pub maintenance_window: MaintenanceWindow,
    /// The cluster's secrets.
    pub secrets: BootstrapSecrets,
    /// The add-ons.
    pub addons: Vec<AddonSpec>,
}

/// The host's configuration (FILE-16).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct HostConfig {
    /// When snapshots are taken, as cron says it.
    pub snapshot_schedule: String,
    /// How many are kept.
    pub snapshot_retention: u32,
    /// Who serves ingress.
    pub ingress_mode: IngressMode,
}

open_words! {
    /// Who serves ingress (FILE-16); an unknown one fails that part alone (WIRE-5).
    pub enum IngressMode ("ingress mode") {
        /// k3s's own.
        Bundled = "bundled",
        /// An add-on; k3s's own is off.
        Addon = "addon",
    }
}

/// When k3s may be restarted (SYNC-8).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct MaintenanceWindow {
    /// The days on which it opens.
    pub days: Vec<Weekday>,
    /// When it opens, by the zone's clock.
    pub start: TimeOfDay,
    /// For how long, in minutes.
    pub duration_minutes: u32,
    /// The IANA name of the zone, not looked up here.
    pub time_zone: String,
}

closed_words! {
    /// A day of the week.
    pub enum Weekday ("weekday") {
        /// Monday.
        Monday = "mon",
        /// Tuesday.
        Tuesday = "tue",
        /// Wednesday.
        Wednesday = "wed",
        /// Thursday.
        Thursday = "thu",
        /// Friday.
        Friday = "fri",
        /// Saturday.
        Saturday = "sat",
        /// Sunday.
        Sunday = "sun",
    }
}

/// A time of day, `00:00` to `23:59`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimeOfDay {
    minutes: u16,
}

/// A text that is no time of day.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no time of day: it must be HH:MM, 00:00 to 23:59")]
pub struct TimeOfDayRefused(pub String);

impl TimeOfDay {
    /// The hour, 0 to 23.
    pub const fn hour(self) -> u8 {
        (self.minutes / 60) as u8
    }

    /// The minute, 0 to 59.
    pub const fn minute(self) -> u8 {
        (self.minutes % 60) as u8
    }
}

impl FromStr for TimeOfDay {
    type Err = TimeOfDayRefused;

    fn from_str(text: &str) -> Result<Self, TimeOfDayRefused> {
        let digit = |b: u8| b.is_ascii_digit().then(|| u16::from(b - b'0'));
        let minutes = match text.as_bytes() {
            [h1, h2, b':', m1, m2] => (|| {
                let (hour, minute) = (
                    digit(*h1)? * 10 + digit(*h2)?,
                    digit(*m1)? * 10 + digit(*m2)?,
                );
                (hour < 24 && minute < 60).then_some(hour * 60 + minute)
            })(),
            _ => None,
        };
        minutes
            .map(|minutes| Self { minutes })
            .ok_or_else(|| TimeOfDayRefused(crate::id::shown(text).to_owned()))
    }
}

impl fmt::Display for TimeOfDay {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:02}:{:02}", self.hour(), self.minute())
    }
}

serde_by_text!(TimeOfDay, "a time of day as HH:MM");
schema!(
    TimeOfDay,
    schemars::json_schema!({
        "description": "A time of day.", "type": "string", "pattern": "^([01][0-9]|2[0-3]):[0-5][0-9]$",
    })
);

/// What an add-on is to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AddonSpec {
    /// Its name.
    pub name: AddonName,
    /// Whether it is on.
    pub enabled: bool,
    /// Its options, for the template (ADD-1).
    pub options: Map<String, Value>,
    /// Its secret options, for its Secret only (ADD-4).
    pub secret_options: BTreeMap<String, Sealed>,
}

/// Why a document was refused as a whole; nothing of it is applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DocumentRefusal {
    /// A secret came in clear: `unsealed_secret` (SEAL-2).
    #[error("{field} is a secret that is not sealed")]
    UnsealedSecret {
        /// The secret's member, as `secrets.s3.access_key`.
        field: String,
        /// The document's generation, where it could be read.
        generation: Option<Generation>,
    },
    /// Not a document: `failed`.
    #[error("the document is refused: {why}")]
    Shape {
        /// What was wrong with it.
        why: JsonRefusal,
        /// The document's generation, where it could be read.
        generation: Option<Generation>,
    },
}

impl DocumentRefusal {
    /// The generation to report, where it could be read.
    pub fn generation(&self) -> Option<Generation> {
        match self {
            Self::UnsealedSecret { generation, .. } | Self::Shape { generation, .. } => *generation,
        }
    }

    /// The word to report.
    pub fn result(&self) -> DocumentResult {
        match self {
            Self::UnsealedSecret { .. } => DocumentResult::UnsealedSecret,
            Self::Shape { .. } => DocumentResult::Failed,
        }
    }
}

impl DesiredState {
    pub(crate) const SECRETS: SecretPlaces = &[
        &["secrets", "hcloud_token"],
        &["secrets", "s3", "access_key"],
        &["secrets", "s3", "secret_key"],
        &["addons", "*", "secret_options", "*"],
    ];

    /// The second stage: the document in its raw text. A secret in clear is named as such even where the document has
    /// another mistake before it (SEAL-2).
    pub fn read(raw: &RawValue) -> Result<Self, DocumentRefusal> {
        json::parse(raw.get().as_bytes()).map_err(|why| Self::refusal(raw, why))
    }

    fn refusal(raw: &RawValue, why: JsonRefusal) -> DocumentRefusal {
        let document: Value = serde_json::from_str(raw.get()).unwrap_or_default();
        let generation = document
            .get("generation")
            .and_then(Value::as_u64)
            .map(Generation);
        match first_in_clear(&document, Self::SECRETS) {
            Some(field) => DocumentRefusal::UnsealedSecret { field, generation },
            None => DocumentRefusal::Shape { why, generation },
        }
    }

    /// The document as raw text, as an answer carries it.
    pub fn to_raw(&self) -> Arc<RawValue> {
        raw(self)
    }

    /// Every secret with the path of its member, for asking whether all of them open before anything is applied (SEAL-3).
    pub fn sealed_values(&self) -> Vec<(String, &Sealed)> {
        let mut sealed = Vec::with_capacity(3);
        self.secrets.add_to("secrets", &mut sealed);
        for (at, addon) in self.addons.iter().enumerate() {
            for (name, value) in &addon.secret_options {
                let mut path = String::from("addons");
                json::push_index(&mut path, at);
                json::push_member(&mut path, "secret_options");
                json::push_member(&mut path, name);
                sealed.push((path, value));
            }
        }
        sealed
    }
}
