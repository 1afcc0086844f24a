//! What an add-on may consist of: a closed list of kinds and names, so that nothing else can be written down, let alone
//! applied or deleted (ADD-2); and how a secret stands in it (ADD-4).

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use protocol::hash::Sha256Hex;
use protocol::id::{AddonName, ClusterId};
use protocol::seal::{Sealed, Secret};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Where all objects of add-ons are that are in a namespace: helm-controller lets a chart read Secrets of its own one only.
pub const NAMESPACE: &str = "kube-system";
/// The add-on that may have a [`ObjectKind::Platform`].
pub const PLATFORM_ADDON: &str = "platform";
/// The label of every managed object, and its value (ADD-3).
pub const MANAGED_LABEL: (&str, &str) = ("pbx.io/managed", "true");
/// The label that names the add-on that an object is of (ADD-3).
pub const ADDON_LABEL: &str = "pbx.io/addon";
/// The labels that every object of an add-on has (ADD-3).
pub(super) fn labels_of(addon: &AddonName) -> [(String, String); 2] {
    let (managed, yes) = MANAGED_LABEL;
    [
        (managed.to_owned(), yes.to_owned()),
        (ADDON_LABEL.to_owned(), addon.to_string()),
    ]
}

/// What the name of an add-on's Secret begins with.
const SECRET_PREFIX: &str = "pbx-addon-";
/// The longest name that Kubernetes takes, in bytes (RFC 1123 subdomain).
const NAME_BYTES_MAX: usize = 253;

/// A kind of object that an add-on may have (ADD-2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectKind {
    /// A chart that helm-controller installs.
    HelmChart,
    /// Values for a chart of k3s's own.
    HelmChartConfig,
    /// A Secret that a chart reads.
    Secret,
    /// The PaaSbox Platform; cluster-wide (ADD-17).
    Platform,
}

impl ObjectKind {
    /// All there are.
    pub const ALL: [Self; 4] = [
        Self::HelmChart,
        Self::HelmChartConfig,
        Self::Secret,
        Self::Platform,
    ];

    /// Its name, as `kind` says it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::HelmChart => "HelmChart",
            Self::HelmChartConfig => "HelmChartConfig",
            Self::Secret => "Secret",
            Self::Platform => "Platform",
        }
    }

    /// Its group and version, as `apiVersion` says it.
    pub const fn api_version(self) -> &'static str {
        match self {
            Self::HelmChart | Self::HelmChartConfig => "helm.cattle.io/v1",
            Self::Secret => "v1",
            Self::Platform => "platform.pbx.io/v1alpha1",
        }
    }

    /// The namespace of its objects; none where they are cluster-wide.
    pub const fn namespace(self) -> Option<&'static str> {
        match self {
            Self::HelmChart | Self::HelmChartConfig | Self::Secret => Some(NAMESPACE),
            Self::Platform => None,
        }
    }
}

/// Names an object that an add-on may have. There is none for anything else: not for the Secrets `hcloud` and
/// `pbx-etcd-s3`, so that they cannot be deleted (ADD-5).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ObjectId {
    kind: ObjectKind,
    name: Arc<str>,
}

/// A name that no object of an add-on may have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ObjectRefused {
    /// Not a name that Kubernetes takes.
    #[error(
        "{name:?} is no name of a Kubernetes object: it must be a-z 0-9 - ., beginning and ending with a letter or digit"
    )]
    Name {
        /// The name, cut at 80 characters.
        name: String,
    },
    /// A Secret that is not an add-on's.
    #[error(
        "Secret {name} is not an add-on's: an add-on's are called {SECRET_PREFIX}* (rule ADD-2)"
    )]
    ForeignSecret {
        /// The name.
        name: String,
    },
    /// Not written as kind and name.
    #[error("{text:?} does not name an object of an add-on: it must be KIND/NAME")]
    Text {
        /// The text, cut at 80 characters.
        text: String,
    },
}

impl ObjectId {
    /// Checks a name against what its kind allows.
    ///
    /// # Errors
    /// When no object of an add-on may be called so.
    pub fn new(kind: ObjectKind, name: &str) -> Result<Self, ObjectRefused> {
        if !is_kubernetes_name(name) {
            let name = name.chars().take(80).collect();
            return Err(ObjectRefused::Name { name });
        }
        if kind == ObjectKind::Secret && !name.starts_with(SECRET_PREFIX) {
            let name = name.to_owned();
            return Err(ObjectRefused::ForeignSecret { name });
        }
        Ok(Self {
            kind,
            name: Arc::from(name),
        })
    }

    /// Its kind.
    pub fn kind(&self) -> ObjectKind {
        self.kind
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for ObjectId {
    /// `HelmChart kube-system/cert-manager`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.kind.name())?;
        match self.kind.namespace() {
            Some(namespace) => write!(formatter, " {namespace}/{}", self.name),
            None => write!(formatter, " {}", self.name),
        }
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{self}")
    }
}

impl From<ObjectId> for String {
    fn from(id: ObjectId) -> Self {
        format!("{}/{}", id.kind.name(), id.name)
    }
}

impl TryFrom<String> for ObjectId {
    type Error = ObjectRefused;

    fn try_from(text: String) -> Result<Self, ObjectRefused> {
        text.parse()
    }
}

impl FromStr for ObjectId {
    type Err = ObjectRefused;

    fn from_str(text: &str) -> Result<Self, ObjectRefused> {
        let named = text.split_once('/').and_then(|(kind, name)| {
            let kind = ObjectKind::ALL.into_iter().find(|it| it.name() == kind)?;
            Some((kind, name))
        });
        let (kind, name) = named.ok_or_else(|| ObjectRefused::Text {
            text: text.chars().take(80).collect(),
        })?;
        Self::new(kind, name)
    }
}

/// The name of the Secret that an add-on's secret options may stand in (ADD-4).
pub fn secret_name(addon: &AddonName) -> String {
    format!("{SECRET_PREFIX}{addon}")
}

/// The name of a cluster's Platform: the cluster's ID as Kubernetes takes names (ADD-2).
pub fn platform_name(cluster: &ClusterId) -> String {
    let plain = cluster.as_str().to_ascii_lowercase().replace('_', "-");
    plain.trim_matches('-').to_owned()
}

/// RFC 1123 subdomain, as Kubernetes wants the names of most objects.
fn is_kubernetes_name(name: &str) -> bool {
    let is_label = |label: &str| {
        let ends = [label.as_bytes().first(), label.as_bytes().last()];
        let is_plain = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        ends.iter().all(|end| end.is_some_and(is_plain))
            && label.bytes().all(|b| is_plain(&b) || b == b'-')
    };
    name.len() <= NAME_BYTES_MAX && name.split('.').all(is_label)
}

/// An object of an add-on, as it should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Object {
    /// Which one.
    pub id: ObjectId,
    /// Its labels, the two of ADD-3 among them.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// What is in it.
    pub content: Content,
}

/// What is in an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum Content {
    /// `spec`.
    Spec(Map<String, Value>),
    /// A Secret's `type` and `data`, in clear before base64; its secrets are opened by the host alone.
    Secret {
        /// `type`.
        kind: String,
        /// The keys and their texts.
        data: BTreeMap<String, SecretText>,
    },
}

impl Object {
    /// Stands for all of it: two with one hash are the same. Secrets count as they are sealed.
    pub fn hash(&self) -> Sha256Hex {
        let json = serde_json::to_vec(self).expect("an object has string keys only");
        Sha256Hex::of(&json)
    }

    /// Of a HelmChart: the namespace that its release is in.
    pub fn release_namespace(&self) -> Option<&str> {
        let Content::Spec(spec) = &self.content else {
            return None;
        };
        (self.id.kind == ObjectKind::HelmChart)
            .then(|| spec.get("targetNamespace").and_then(Value::as_str))
            .map(|target| target.unwrap_or(NAMESPACE))
    }
}

/// A text in a Secret, with secrets in it that are still sealed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SecretText(pub Vec<Piece>);

/// A piece of a text in a Secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum Piece {
    /// As it stands.
    Text(String),
    /// A secret, and how it stands there.
    Secret {
        /// The secret.
        sealed: Sealed,
        /// How it is written.
        form: SecretForm,
    },
}

/// How a secret is written into a text, so that it cannot break out of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum SecretForm {
    /// It is all of the text: its bytes.
    Whole,
    /// It is a value in YAML or JSON: a JSON string with its quotes.
    Quoted,
    /// The text has the quotes: a JSON string without its own.
    WithinQuotes,
}

/// A text in a Secret cannot be put together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SecretTextRefused {
    /// One of its secrets does not open.
    #[error("a secret option does not open")]
    Unopenable,
    /// One of its secrets stands in a text and is none.
    #[error("a secret option is not UTF-8 and stands inside a text")]
    NoText,
}

impl SecretText {
    /// Puts the text together, for the one place that needs it.
    ///
    /// # Errors
    /// When a secret does not open, or is no text where it must be one.
    pub fn open<S: Borrow<Secret>>(
        &self,
        mut open: impl FnMut(&Sealed) -> Option<S>,
    ) -> Result<Secret, SecretTextRefused> {
        // With room for all of it from the start: what grows leaves copies of itself behind.
        const ESCAPED_BYTES_MAX: usize = 6;
        let room = self.0.iter().map(|piece| match piece {
            Piece::Text(text) => text.len(),
            Piece::Secret { sealed, .. } => 2 + ESCAPED_BYTES_MAX * sealed.as_bytes().len(),
        });
        let mut whole = Vec::with_capacity(room.sum());
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => whole.extend_from_slice(text.as_bytes()),
                Piece::Secret { sealed, form } => {
                    let secret = open(sealed).ok_or(SecretTextRefused::Unopenable)?;
                    let secret = secret.borrow();
                    match form {
                        SecretForm::Whole => whole.extend_from_slice(secret.expose()),
                        SecretForm::Quoted | SecretForm::WithinQuotes => {
                            let text = secret.expose_text().ok_or(SecretTextRefused::NoText)?;
                            let quotes = *form == SecretForm::Quoted;
                            write_json_string(text, quotes, &mut whole);
                        }
                    }
                }
            }
        }
        Ok(whole.into())
    }
}

/// A JSON string that is a YAML scalar as well: YAML has more characters that must not stand bare.
fn write_json_string(text: &str, quotes: bool, out: &mut Vec<u8>) {
    let quote = |out: &mut Vec<u8>| out.extend(quotes.then_some(b'"'));
    quote(out);
    for char in text.chars() {
        match char {
            '"' | '\\' => out.extend_from_slice(&[b'\\', char as u8]),
            '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' => {
                const HEX: &[u8; 16] = b"0123456789abcdef";
                let code = char as u32;
                out.extend_from_slice(b"\\u");
                let digit = |shift: u32| HEX[(code >> shift & 0xf) as usize];
                out.extend([12, 8, 4, 0].map(digit));
            }
            _ => out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    quote(out);
}

#[cfg(test)]
mod tests {
    use super::*;

    // rule ADD-2, rule ADD-5: what is not on the list cannot be named, so neither created nor deleted.
    #[test]
    fn add_2_only_what_is_on_the_list_can_be_named() {
        let rows = [
            ("HelmChart/cert-manager", true),
            ("HelmChartConfig/traefik", true),
            ("Secret/pbx-addon-cert-manager", true),
            ("Platform/clu-01j9", true),
            ("Secret/hcloud", false),
            ("Secret/pbx-etcd-s3", false),
            ("Secret/my-pbx-addon-x", false),
            ("Deployment/x", false),
            ("ConfigMap/pbx-addon-x", false),
            ("HelmChart/Upper", false),
            ("HelmChart/a_b", false),
            ("HelmChart/-a", false),
            ("HelmChart/a..b", false),
            ("HelmChart/", false),
            ("HelmChart", false),
            ("HelmChart/kube-system/x", false),
        ];
        for (text, is_allowed) in rows {
            assert_eq!(text.parse::<ObjectId>().is_ok(), is_allowed, "{text}");
        }
        let id: ObjectId = "HelmChart/cert-manager".parse().unwrap();
        assert_eq!(id.to_string(), "HelmChart kube-system/cert-manager");
        let json = serde_json::to_string(&id).unwrap();
        assert_eq!(serde_json::from_str::<ObjectId>(&json).unwrap(), id);
        assert!(serde_json::from_str::<ObjectId>(r#""Secret/hcloud""#).is_err());
    }

    #[test]
    fn a_platform_is_named_after_its_cluster_as_kubernetes_takes_names() {
        for (cluster, name) in [
            ("clu_01J9ZK", "clu-01j9zk"),
            ("-_a_", "a"),
            ("plain", "plain"),
        ] {
            assert_eq!(platform_name(&cluster.parse().unwrap()), name);
        }
    }

    #[test]
    fn a_secret_cannot_break_out_of_the_text_that_it_stands_in() {
        let secret = "a\"b\\c\nd: e\u{85}é";
        let escaped = r#"a\"b\\c\u000ad: e\u0085é"#;
        let rows = [
            (SecretForm::Whole, secret.to_owned()),
            (SecretForm::Quoted, format!("\"{escaped}\"")),
            (SecretForm::WithinQuotes, escaped.to_owned()),
        ];
        for (form, written) in rows {
            let piece = Piece::Secret {
                sealed: Sealed::from_bytes(*b"box"),
                form,
            };
            let text = SecretText(vec![Piece::Text("k: ".into()), piece]);
            let opened = text
                .open(|_| Some(Secret::from(secret.to_owned())))
                .unwrap();
            assert_eq!(opened.expose_text().unwrap(), format!("k: {written}"));
            assert_eq!(
                text.open(|_| None::<Secret>).err(),
                Some(SecretTextRefused::Unopenable)
            );
        }
        let quoted = format!("\"{escaped}\"");
        assert_eq!(serde_json::from_str::<String>(&quoted).unwrap(), secret);
    }
}
