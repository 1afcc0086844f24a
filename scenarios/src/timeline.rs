//! What happens when: actions at moments of the run.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Map, Value, json};

use protocol::id::{AddonName, AgentVersion, NodeName, OperationId, ReleaseVersion};
use protocol::json::JsonRefusal;
use protocol::pbx::operation::{OperationKind, OperationOffer, ParamsRefusal};
use protocol::seal::Sealed;

use crate::form::leaf::{Count, duration_text};
use crate::form::{At, Reader};
use crate::mistake::{Found, Origin, Suggestion, shown, suggest};
use crate::population::Population;
use crate::portal::DocumentSpec;
use crate::share::Share;
use crate::written;

/// Something that happens at a moment.
#[derive(Debug, Clone, PartialEq)]
pub struct TimelineEntry {
    /// When, from the start of the run.
    pub at: Duration,
    /// What.
    pub action: Action,
}

/// What can happen. All of it is done to the embedded portal, by its control API.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Every cluster gets this document, under a new generation.
    SetDocument(Box<DocumentSpec>),
    /// A share of the clusters gets an operation.
    Operation(OperationSpec),
    /// A share of the agents is revoked.
    Revoke {
        /// Which share of all agents.
        share: Share,
    },
    /// The portal forgets everything but its addresses and keys.
    ResetPortal,
    /// The portal ends and starts again.
    RestartPortal {
        /// Whether it still knows what it knew.
        with_data: bool,
    },
    /// A release is published.
    Release(ReleaseSpec),
}

/// An operation for a share of the clusters.
#[derive(Debug, Clone, PartialEq)]
pub struct OperationSpec {
    /// What is to be done.
    pub kind: OperationKind,
    /// Its parameters, secrets in clear: the body of the control API. Checked against the kind.
    pub params: Map<String, Value>,
    /// Which share of the clusters ([`Share::takes`] by the cluster's index).
    pub share: Share,
    /// The clusters of this population; of all of them if none is named.
    pub population: Option<String>,
    /// The server that is to run it; without, the portal chooses (OPS-10).
    pub target: Option<ServerOf>,
    /// The server that it is about: the parameter `node` of a kind that has one.
    pub node: Option<ServerOf>,
    /// Who agreed to it; the moment is when it is set.
    pub consent: Option<ConsentSpec>,
}

/// One of a cluster's servers, whatever it is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerOf {
    /// The one with the lowest number.
    First,
    /// The one with the highest.
    Last,
}

impl ServerOf {
    pub(crate) const ALL: [(&'static str, Self); 2] =
        [("first", Self::First), ("last", Self::Last)];
}

/// Who agreed to an operation that needs consent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsentSpec {
    /// The person.
    pub by: String,
    /// What the person agreed to.
    pub text: String,
}

/// A release to publish. Its artifacts are made for the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleaseSpec {
    /// Its version.
    pub version: ReleaseVersion,
    /// The agent's version in it.
    pub agent_version: AgentVersion,
    /// Its floor: what is below the highest floor that an agent has seen is refused (UPD-6).
    pub floor: u64,
    /// The add-ons that it has.
    pub addons: Vec<AddonName>,
}

impl TimelineEntry {
    pub(crate) fn from_written(written: written::Entry, reader: &mut Reader) -> Option<Self> {
        let at = written.at.good().map(|at| at.value.0);
        let action = match written.action.value()? {
            written::Action::ResetPortal => Some(Action::ResetPortal),
            written::Action::SetDocument(document) => DocumentSpec::from_written(*document)
                .map(|document| Action::SetDocument(Box::new(document))),
            written::Action::Operation(operation) => {
                OperationSpec::from_written(*operation, reader).map(Action::Operation)
            }
            written::Action::Revoke(revoke) => {
                revoke.share.value().map(|share| Action::Revoke { share })
            }
            written::Action::RestartPortal(restart) => restart
                .with_data
                .value()
                .map(|with_data| Action::RestartPortal { with_data }),
            written::Action::Release(release) => {
                ReleaseSpec::from_written(release).map(Action::Release)
            }
        };
        Some(TimelineEntry {
            at: at?,
            action: action?,
        })
    }

    /// Tells a moment behind the end, and a population that does not exist.
    pub(crate) fn check(
        written: &written::Entry,
        duration: Option<&At<Duration>>,
        populations: &[String],
        reader: &mut Reader,
    ) {
        if let (Some(at), Some(duration)) = (written.at.good(), duration)
            && at.value.0 >= duration.value
        {
            let what = format!(
                "{} is not before the end of the run, {}",
                duration_text(at.value.0),
                duration_text(duration.value)
            );
            reader.unfit(&at.set_with(duration), what, None);
        }
        let Some(At {
            value: written::Action::Operation(operation),
            ..
        }) = written.action.good()
        else {
            return;
        };
        // Without a population at all there is another mistake to mend first.
        if let Some(name) = operation.population.good()
            && !populations.is_empty()
            && !populations.contains(&name.value.0)
        {
            let what = format!("there is no population `{}`", name.value.0);
            let suggestion = suggest(&name.value.0, populations.iter().map(String::as_str));
            reader.unfit(name, what, Some(suggestion));
        }
    }
}

impl Action {
    /// As a person would say it.
    pub fn text(&self) -> String {
        match self {
            Action::SetDocument(document) => {
                format!(
                    "every cluster gets a document: release {}",
                    document.release
                )
            }
            Action::Operation(operation) => operation.text(),
            Action::Revoke { share } => format!("{share} of the agents are revoked"),
            Action::ResetPortal => {
                "the portal forgets everything but its addresses and keys".to_owned()
            }
            Action::RestartPortal { with_data: true } => {
                "the portal ends and starts again with what it knew".to_owned()
            }
            Action::RestartPortal { with_data: false } => {
                "the portal ends and starts again without what it knew".to_owned()
            }
            Action::Release(release) => {
                format!(
                    "release {} is published, floor {}",
                    release.version, release.floor
                )
            }
        }
    }
}

impl ServerOf {
    const fn text(self) -> &'static str {
        match self {
            Self::First => "the first server",
            Self::Last => "the last server",
        }
    }
}

impl OperationSpec {
    fn text(&self) -> String {
        let mut text = format!(
            "operation `{}` for {} of the clusters",
            self.kind, self.share
        );
        if let Some(population) = &self.population {
            text.push_str(&format!(" of `{population}`"));
        }
        if let Some(target) = self.target {
            text.push_str(&format!(", run by {}", target.text()));
        }
        if let Some(node) = self.node {
            text.push_str(&format!(", about {}", node.text()));
        }
        text
    }

    /// Whether a cluster of a population gets it.
    pub fn takes(&self, population: &Population, cluster: u64) -> bool {
        self.population
            .as_ref()
            .is_none_or(|name| *name == population.name)
            && self.share.takes(cluster)
    }

    fn from_written(written: written::Operation, reader: &mut Reader) -> Option<Self> {
        let params = match written.params {
            crate::form::Slot::Absent => written.kind.good().map(|kind| At {
                value: Map::new(),
                path: kind.path.replace(".kind", ".params"),
                origin: kind.origin.clone(),
            }),
            slot => slot.good().map(|at| At {
                value: at.value.0.clone(),
                path: at.path.clone(),
                origin: at.origin.clone(),
            }),
        };
        let kind = written.kind.value();
        let node = written.node.optional()?;
        if let (Some(kind), Some(params)) = (&kind, &params) {
            let mut params = params.clone();
            if node.is_some() {
                // What it stands for is known only once the cluster has servers.
                params.value.insert("node".to_owned(), "any".into());
            }
            check_params(kind, &params, reader);
        }
        let consent = match written.consent.optional()? {
            None => None,
            Some(consent) => Some(ConsentSpec {
                by: consent.by.value()?,
                text: consent.text.value()?,
            }),
        };
        Some(OperationSpec {
            kind: kind?,
            params: params?.value,
            share: written.share.or(Share::ALL)?,
            population: written.population.optional()?.map(|name| name.0),
            target: written.target.optional()?,
            node,
            consent,
        })
    }
}

impl ReleaseSpec {
    fn from_written(written: written::Release) -> Option<Self> {
        Some(ReleaseSpec {
            version: written.version.value()?,
            agent_version: written.agent_version.value()?,
            floor: written.floor.or(Count(0))?.get(),
            addons: written
                .addons
                .optional()?
                .unwrap_or_default()
                .into_iter()
                .map(|at| at.value)
                .collect(),
        })
    }
}

/// Reads the parameters as an agent would. Where one keeps a secret a string stands for the box that the portal will make
/// of it. What is left over after reading is no parameter.
fn check_params(kind: &OperationKind, params: &At<Map<String, Value>>, reader: &mut Reader) {
    let mut sealed = Value::Object(params.value.clone());
    for place in kind.secrets() {
        let pointer: String = place.iter().map(|name| format!("/{name}")).collect();
        let dotted = format!("{}.{}", params.path, place.join("."));
        if let Some(value) = sealed.pointer_mut(&pointer)
            && value.is_string()
        {
            reader.secrets.extend(reader.places.get(&dotted).cloned());
            *value = a_box();
        }
    }
    // Each reading tells one mistake; what would have been right in its place then lets the next one be told.
    let right = right_params(kind);
    let mut told = BTreeSet::new();
    let known = loop {
        match read_params(kind, &sealed) {
            Ok(known) => break known,
            // What is wrong with the whole may come of what was put right.
            Err((path, _)) if path.is_empty() && !told.is_empty() => return,
            Err((path, what)) => {
                tell(params, &path, what, None, reader);
                // A part's mistake is its parameter's.
                let name = path.split(['.', '[']).next().unwrap_or_default().to_owned();
                let (Some(all), true) = (sealed.as_object_mut(), told.insert(name.clone())) else {
                    return;
                };
                match right.get(&name) {
                    Some(right) => all.insert(name, right.clone()),
                    None => all.remove(&name),
                };
            }
        }
    };
    let unknown = params.value.keys().filter(|name| !told.contains(*name));
    for name in unknown.filter(|name| !known.contains_key(*name)) {
        let what = format!("is no parameter of `{kind}`, or says nothing beside the others");
        let suggestion = match known.is_empty() {
            true => Suggestion::Write("`params = {}`: it has none".to_owned()),
            false => suggest(name, known.keys().map(String::as_str)),
        };
        tell(params, &shown(name), what, Some(suggestion), reader);
    }
}

/// What an agent makes of parameters, or the member that it stumbles over first and why.
fn read_params(
    kind: &OperationKind,
    params: &Value,
) -> Result<Map<String, Value>, (String, String)> {
    let raw = serde_json::value::to_raw_value(params).expect("JSON that was read is written again");
    let offer = OperationOffer {
        id: OperationId::new("check").expect("a word of letters is an ID"),
        kind: kind.clone(),
        target: NodeName::new("check").expect("a word of letters is a name"),
        params: raw.into(),
        consent: None,
    };
    match offer.params() {
        Ok(read) => {
            Ok(serde_json::from_str(read.to_raw().get())
                .expect("parameters are written as an object"))
        }
        Err(ParamsRefusal::UnsealedSecret { field }) => Err((
            field,
            "is a secret: a string, or a box as {sealed = \"…\"}".to_owned(),
        )),
        Err(ParamsRefusal::Shape {
            why: JsonRefusal::Shape { path, why },
        }) => {
            let what = format!("does not fit `{kind}`: {why}");
            // A member that is missing is no part of its own path.
            let missing = why.strip_prefix("missing field `");
            match missing.and_then(|rest| rest.split('`').next()) {
                Some(member) if path.is_empty() => Err((member.to_owned(), what)),
                _ => Err((path, what)),
            }
        }
        Err(other) => Err((String::new(), other.to_string())),
    }
}

/// Parameters of each kind that can be read: those that must be there, and what may be wrong in the others.
fn right_params(kind: &OperationKind) -> Map<String, Value> {
    let params = match kind {
        OperationKind::SnapshotSave => json!({ "name": "a" }),
        OperationKind::ClusterRestore => json!({ "snapshot": "a", "source": "local" }),
        OperationKind::ClusterUpgrade => json!({ "release": "2026.1.1" }),
        OperationKind::AccessIssue => json!({
            "subject": "a",
            "role": "view",
            "recipient_key": "CQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
            "lifetime_seconds": 60,
        }),
        OperationKind::S3Verify => json!({
            "endpoint": "https://s3.example",
            "region": "r",
            "bucket": "b",
            "folder": "f",
            "access_key": a_box(),
            "secret_key": a_box(),
        }),
        OperationKind::ServerRejoin => json!({ "server_url": "https://a", "token": a_box() }),
        OperationKind::NodeDrain | OperationKind::NodeForget => json!({ "node": "a" }),
        OperationKind::AccessRevoke => json!({ "subject": "a" }),
        OperationKind::AgentRotateKey | OperationKind::DiagCollect | OperationKind::Unknown(_) => {
            json!({})
        }
    };
    match params {
        Value::Object(params) => params,
        _ => Map::new(),
    }
}

/// A box of the right shape that opens for nobody.
fn a_box() -> Value {
    let sealed: Sealed = Sealed::from_bytes(vec![0; 64]);
    serde_json::to_value(&sealed).expect("a box is written as an object with a string")
}

/// Tells a mistake at the place of a parameter, or of the nearest thing around it that is written.
fn tell(
    params: &At<Map<String, Value>>,
    path: &str,
    what: String,
    suggestion: Option<Suggestion>,
    reader: &mut Reader,
) {
    let key = match path.is_empty() {
        true => params.path.clone(),
        false => format!("{}.{path}", params.path),
    };
    let mut around = key.as_str();
    let origin = loop {
        if let Some(span) = reader.places.get(around) {
            break Origin::File(span.clone());
        }
        match around.rsplit_once('.') {
            Some((outer, _)) if outer.len() >= params.path.len() => around = outer,
            _ => break params.origin.clone(),
        }
    };
    reader.found.push(Found {
        origin,
        key,
        what,
        suggestion,
    });
}
