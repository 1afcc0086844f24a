//! From a template of the signed release to the objects of an add-on (ADD-1 to ADD-4).
//!
//! A template sees its options and nothing else: no file, no other template, no clock, no chance. The work that it may do,
//! the memory that it may take and the text that it may write are bounded. What it has written is read as YAML without
//! anchors, doubled members or tags, and everything that is not on the list of ADD-2 refuses all of it.
//!
//! **Secret options.** A template gets a mark for each, never the secret: `{{ secret_options.acme_key }}`. A mark may stand
//! in `stringData` of the Secret `{{ secret_name }}` alone (ADD-4): as the whole text of a key, where it becomes the secret's
//! bytes, or as a value of the YAML in it, with or without quotes around it, where it becomes a JSON string. The host puts
//! the secrets in. Nothing is applied here, and nothing is compared.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error as _;
use std::io;

use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, UndefinedBehavior, Value as TemplateValue};
use protocol::id::{AddonName, ClusterId, ReleaseVersion};
use protocol::seal::Sealed;
use serde_json::{Map, Value};

use super::object::{
    Content, NAMESPACE, Object, ObjectId, ObjectKind, ObjectRefused, PLATFORM_ADDON, Piece,
    SecretForm, SecretText, labels_of, platform_name, secret_name,
};

/// What a template may do: about so many instructions, or 64 bytes of memory for each.
const FUEL: u64 = 50_000;
/// What a template may write, in bytes.
const TEXT_BYTES_MAX: usize = 128 * 1024;
/// Objects of an add-on.
const OBJECTS_MAX: usize = 32;
/// Nesting of an object, and the values in all of them.
const DEPTH_MAX: usize = 32;
const NODES_MAX: usize = 20_000;

/// Begins and ends the mark of a secret option: characters that nobody has a use for (Unicode's private ones).
const MARK_BEGIN: char = '\u{e000}';
const MARK_END: char = '\u{e001}';

/// What a template is rendered with.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    /// The add-on.
    pub addon: &'a AddonName,
    /// Its template.
    pub template: &'a str,
    /// Its options, from the document.
    pub options: &'a Map<String, Value>,
    /// Its secret options.
    pub secret_options: &'a BTreeMap<String, Sealed>,
    /// The cluster.
    pub cluster: &'a ClusterId,
    /// The release that the template is of.
    pub release: &'a ReleaseVersion,
}

/// Why nothing was rendered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RenderRefused {
    /// The template could not be carried out.
    #[error("its template fails: {0}")]
    Template(String),
    /// What it wrote is no YAML as it is wanted here.
    #[error("its template writes what is no YAML of an object: {0}")]
    Yaml(String),
    /// Something that an add-on may not have.
    #[error("its template writes {what}, which an add-on may not have (rule ADD-2)")]
    NotAllowed {
        /// What it is.
        what: String,
    },
    /// A name that an add-on's object may not have.
    #[error("its template writes an object that an add-on may not have: {0}")]
    Name(#[from] ObjectRefused),
    /// An object is of another shape.
    #[error("its template writes {object} with {what}")]
    Shape {
        /// The object.
        object: String,
        /// What is wrong with it.
        what: String,
    },
    /// A secret option stands where it would not be kept secret, or could break out.
    #[error("its template writes a secret option into {place}; {advice} (rule ADD-4)")]
    Secret {
        /// Where.
        place: String,
        /// What to do.
        advice: String,
    },
}

/// The objects of an add-on, with their labels; in the order in which the template has them.
///
/// # Errors
/// When anything about them is not as it must be; there is no part of them then.
pub fn render(inputs: Inputs<'_>) -> Result<Vec<Object>, RenderRefused> {
    let text = written(inputs)?;
    let documents = read_yaml(&text)?;
    if documents.len() > OBJECTS_MAX {
        let count = documents.len();
        return Err(RenderRefused::Yaml(format!(
            "{count} objects, and an add-on has at most {OBJECTS_MAX}"
        )));
    }
    let mut seen = BTreeSet::new();
    let mut objects = Vec::with_capacity(documents.len());
    for document in documents {
        let object = object(inputs, document)?;
        if !seen.insert(object.id.clone()) {
            return Err(shape(&object.id, "the same name as another one"));
        }
        objects.push(object);
    }
    Ok(objects)
}

/// What the template writes.
fn written(inputs: Inputs<'_>) -> Result<String, RenderRefused> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_fuel(Some(FUEL));
    let marks = (inputs.secret_options.keys().enumerate())
        .map(|(at, name)| (name.clone(), format!("{MARK_BEGIN}{at}{MARK_END}")))
        .collect::<BTreeMap<_, _>>();
    let context = BTreeMap::from([
        ("addon", TemplateValue::from(inputs.addon.as_str())),
        ("cluster_id", TemplateValue::from(inputs.cluster.as_str())),
        (
            "platform_name",
            TemplateValue::from(platform_name(inputs.cluster)),
        ),
        ("release", TemplateValue::from(inputs.release.as_str())),
        ("options", TemplateValue::from(Serde(inputs.options))),
        ("secret_options", TemplateValue::from(Serde(&marks))),
        (
            "secret_name",
            TemplateValue::from(secret_name(inputs.addon)),
        ),
    ]);
    let mut text = Bounded(Vec::new());
    let rendered = environment
        .template_from_named_str(inputs.addon.as_str(), inputs.template)
        .and_then(|template| template.render_captured_to(context, &mut text).map(drop));
    if let Err(why) = rendered {
        let mut message = why.to_string();
        let mut source = why.source();
        while let Some(cause) = source {
            message.push_str(": ");
            message.push_str(&cause.to_string());
            source = cause.source();
        }
        return Err(RenderRefused::Template(one_line(&message)));
    }
    String::from_utf8(text.0).map_err(|_| RenderRefused::Yaml("its text is not UTF-8".to_owned()))
}

/// Takes so much and no more.
struct Bounded(Vec<u8>);

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > TEXT_BYTES_MAX {
            let why = format!("it writes more than {TEXT_BYTES_MAX} bytes");
            return Err(io::Error::other(why));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn read_yaml(text: &str) -> Result<Vec<Value>, RenderRefused> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_aliases: 0,
            max_anchors: 0,
            max_depth: DEPTH_MAX,
            max_nodes: NODES_MAX,
            max_documents: OBJECTS_MAX + 1,
            max_merge_keys: 0,
        },
        duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::Error,
        strict_booleans: true,
        reject_unsupported_tags: true,
        with_snippet: false,
    };
    serde_saphyr::from_multiple_with_options(text, options)
        .map_err(|why| RenderRefused::Yaml(one_line(&why.to_string())))
}

/// What others say, on one line and no longer than a message should be.
fn one_line(text: &str) -> String {
    const CHARS_MAX: usize = 300;
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().take(CHARS_MAX).collect()
}

fn shape(object: &ObjectId, what: impl Into<String>) -> RenderRefused {
    RenderRefused::Shape {
        object: object.to_string(),
        what: what.into(),
    }
}

/// One object, if it is on the list (ADD-2), with the labels of ADD-3.
fn object(inputs: Inputs<'_>, document: Value) -> Result<Object, RenderRefused> {
    let Value::Object(mut members) = document else {
        return Err(RenderRefused::Yaml("a document is no mapping".to_owned()));
    };
    let mut word = |member: &str| match members.remove(member) {
        Some(Value::String(word)) => Ok(word),
        _ => Err(RenderRefused::Yaml(format!("an object has no {member}"))),
    };
    let (api_version, kind) = (word("apiVersion")?, word("kind")?);
    let known = (ObjectKind::ALL.into_iter())
        .find(|it| it.name() == kind && it.api_version() == api_version)
        .filter(|it| *it != ObjectKind::Platform || inputs.addon.as_str() == PLATFORM_ADDON);
    let Some(kind) = known else {
        let what = format!("a {kind} of {api_version}");
        return Err(RenderRefused::NotAllowed {
            what: one_line(&what),
        });
    };
    let Some(Value::Object(mut metadata)) = members.remove("metadata") else {
        return Err(RenderRefused::Yaml(format!(
            "a {} has no metadata",
            kind.name()
        )));
    };
    let name = match metadata.remove("name") {
        Some(Value::String(name)) => name,
        _ => {
            let kind = kind.name();
            return Err(RenderRefused::Yaml(format!("a {kind} has no name")));
        }
    };
    let id = ObjectId::new(kind, &name)?;
    if kind == ObjectKind::Platform && name != platform_name(inputs.cluster) {
        let own = platform_name(inputs.cluster);
        return Err(shape(
            &id,
            format!("another name than the cluster's, {own}"),
        ));
    }
    let namespace = metadata.remove("namespace");
    if namespace.as_ref().and_then(Value::as_str) != kind.namespace() {
        let advice = match kind.namespace() {
            Some(NAMESPACE) => "a namespace other than kube-system",
            _ => "a namespace, and it is cluster-wide",
        };
        return Err(shape(&id, advice));
    }
    let mut labels = texts(&id, &mut metadata, "labels")?;
    let annotations = texts(&id, &mut metadata, "annotations")?;
    if let Some(other) = metadata.keys().next() {
        return Err(shape(&id, format!("metadata.{}", one_line(other))));
    }
    labels.extend(labels_of(inputs.addon));
    let content = match kind {
        ObjectKind::Secret => secret(inputs, &id, &mut members)?,
        ObjectKind::HelmChart | ObjectKind::HelmChartConfig | ObjectKind::Platform => {
            match members.remove("spec") {
                Some(Value::Object(spec)) => Content::Spec(spec),
                _ => return Err(shape(&id, "no spec")),
            }
        }
    };
    if let Some(other) = members.keys().next() {
        return Err(shape(&id, format!("a member {}", one_line(other))));
    }
    if let Content::Spec(spec) = &content
        && spec
            .iter()
            .any(|(key, value)| is_marked(key) || has_mark(value))
    {
        return Err(misplaced(inputs, id.to_string()));
    }
    let mut plain = labels.iter().chain(&annotations);
    if plain.any(|(key, value)| is_marked(key) || is_marked(value)) {
        return Err(misplaced(inputs, format!("the metadata of {id}")));
    }
    Ok(Object {
        id,
        labels,
        annotations,
        content,
    })
}

/// Labels or annotations.
fn texts(
    id: &ObjectId,
    metadata: &mut Map<String, Value>,
    member: &str,
) -> Result<BTreeMap<String, String>, RenderRefused> {
    let texts = match metadata.remove(member) {
        None | Some(Value::Null) => return Ok(BTreeMap::new()),
        Some(Value::Object(texts)) => texts,
        Some(_) => return Err(shape(id, format!("{member} that are no mapping"))),
    };
    let text = |(key, value)| match value {
        Value::String(text) => Ok((key, text)),
        _ => Err(shape(id, format!("{member} that are no texts"))),
    };
    texts.into_iter().map(text).collect()
}

/// What is in a Secret. `data` is refused: a mark in base64 is none, and what was applied as `stringData` is owned by nobody.
fn secret(
    inputs: Inputs<'_>,
    id: &ObjectId,
    members: &mut Map<String, Value>,
) -> Result<Content, RenderRefused> {
    if members.contains_key("data") {
        return Err(shape(id, "data; its texts belong into stringData"));
    }
    let kind = match members.remove("type") {
        None => "Opaque".to_owned(),
        Some(Value::String(kind)) if !is_marked(&kind) => kind,
        Some(_) => return Err(shape(id, "a type that is no word")),
    };
    let texts = match members.remove("stringData") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(texts)) => texts,
        Some(_) => return Err(shape(id, "stringData that is no mapping")),
    };
    let may_have = id.name() == secret_name(inputs.addon);
    let mut data = BTreeMap::new();
    for (key, value) in texts {
        let Value::String(text) = value else {
            return Err(shape(id, "stringData that are no texts"));
        };
        if is_marked(&key) || is_marked(&text) && !may_have {
            return Err(misplaced(inputs, id.to_string()));
        }
        data.insert(key, secret_text(inputs, id, &text)?);
    }
    Ok(Content::Secret { kind, data })
}

fn is_marked(text: &str) -> bool {
    text.contains([MARK_BEGIN, MARK_END])
}

fn has_mark(value: &Value) -> bool {
    match value {
        Value::String(text) => is_marked(text),
        Value::Array(items) => items.iter().any(has_mark),
        Value::Object(members) => {
            let mut members = members.iter();
            members.any(|(key, value)| is_marked(key) || has_mark(value))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

fn misplaced(inputs: Inputs<'_>, place: String) -> RenderRefused {
    let advice = format!(
        "it may stand in stringData of the Secret {} alone",
        secret_name(inputs.addon)
    );
    RenderRefused::Secret { place, advice }
}

/// A text of a Secret, its marks exchanged for what they stand for.
fn secret_text(inputs: Inputs<'_>, id: &ObjectId, text: &str) -> Result<SecretText, RenderRefused> {
    let refused = |advice: &str| RenderRefused::Secret {
        place: id.to_string(),
        advice: advice.to_owned(),
    };
    let cut = || refused("its mark was cut; write it as it is, without filters");
    let mut pieces = Vec::new();
    let mut rest = text;
    let mut before = None;
    while let Some((plain, behind)) = rest.split_once(MARK_BEGIN) {
        let (number, behind) = behind.split_once(MARK_END).ok_or_else(cut)?;
        let at: usize = number.parse().map_err(|_| cut())?;
        let sealed = inputs.secret_options.values().nth(at).ok_or_else(cut)?;
        if plain.contains(MARK_END) {
            return Err(cut());
        }
        let left = plain.chars().next_back().or(before);
        let form = match (left, behind.chars().next()) {
            (None, None) => SecretForm::Whole,
            (Some('"'), Some('"')) => SecretForm::WithinQuotes,
            (left, right) if left.is_none_or(ends_value) && right.is_none_or(ends_value) => {
                SecretForm::Quoted
            }
            _ => {
                return Err(refused(
                    "it must be a whole value there, with nothing else beside it",
                ));
            }
        };
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain.to_owned()));
        }
        pieces.push(Piece::Secret {
            sealed: sealed.clone(),
            form,
        });
        (rest, before) = (behind, Some(MARK_END));
    }
    if rest.contains(MARK_END) {
        return Err(cut());
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest.to_owned()));
    }
    Ok(SecretText(pieces))
}

/// Whether a value in YAML or JSON may end before this, or begin after it.
fn ends_value(char: char) -> bool {
    char.is_ascii_whitespace() || matches!(char, ',' | '[' | ']' | '{' | '}')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const CHART: &str = "apiVersion: helm.cattle.io/v1
kind: HelmChart
metadata: {name: x, namespace: kube-system}
spec: {chart: x, valuesContent: '{{ options | tojson }}'}
";

    fn render_as(
        addon: &str,
        template: &str,
        options: Value,
    ) -> Result<Vec<Object>, RenderRefused> {
        let secret_options = BTreeMap::from([
            ("acme_key".to_owned(), Sealed::from_bytes(*b"box 1")),
            ("token".to_owned(), Sealed::from_bytes(*b"box 2")),
        ]);
        let Value::Object(options) = options else {
            panic!("options are an object");
        };
        render(Inputs {
            addon: &addon.parse().unwrap(),
            template,
            options: &options,
            secret_options: &secret_options,
            cluster: &"clu_01J9".parse().unwrap(),
            release: &"2026.11.1".parse().unwrap(),
        })
    }

    fn render_x(template: &str) -> Result<Vec<Object>, RenderRefused> {
        render_as("x", template, json!({"replicas": 2}))
    }

    // rule ADD-1, rule ADD-3
    #[test]
    fn add_1_a_template_makes_objects_of_its_options() {
        let objects = render_x(CHART).unwrap();
        let [chart] = &objects[..] else {
            panic!("{objects:?}");
        };
        assert_eq!(chart.id.to_string(), "HelmChart kube-system/x");
        let Content::Spec(spec) = &chart.content else {
            panic!("{chart:?}");
        };
        assert_eq!(spec["valuesContent"], json!(r#"{"replicas": 2}"#));
        let labels = [("pbx.io/addon", "x"), ("pbx.io/managed", "true")];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(chart.labels, BTreeMap::from(labels));
        assert_eq!(render_x(CHART).unwrap()[0].hash(), chart.hash());
        let other = render_as("x", CHART, json!({"replicas": 3})).unwrap();
        assert_ne!(other[0].hash(), chart.hash());
    }

    // rule ADD-3: whatever the template says
    #[test]
    fn add_3_the_labels_are_the_agents() {
        let template = CHART.replace(
            "namespace: kube-system",
            "namespace: kube-system, labels: {pbx.io/addon: y, pbx.io/managed: 'no', team: a}",
        );
        let labels = &render_x(&template).unwrap()[0].labels;
        assert_eq!(labels["pbx.io/addon"], "x");
        assert_eq!(labels["pbx.io/managed"], "true");
        assert_eq!(labels["team"], "a");
    }

    // rules ADD-2, ADD-17: one object that is not on the list, and nothing is rendered.
    #[test]
    fn add_2_anything_that_is_not_on_the_list_refuses_all_of_it() {
        let object = |api: &str, kind: &str, name: &str, namespace: &str| {
            format!(
                "apiVersion: {api}\nkind: {kind}\nmetadata: {{name: {name}{namespace}}}\nspec: {{a: 1}}\n"
            )
        };
        let ours = ", namespace: kube-system";
        let rows = [
            ("x", object("helm.cattle.io/v1", "HelmChart", "y", ours), ""),
            (
                "x",
                object("helm.cattle.io/v1", "HelmChartConfig", "traefik", ours),
                "",
            ),
            (
                "platform",
                object("platform.pbx.io/v1alpha1", "Platform", "clu-01j9", ""),
                "",
            ),
            (
                "x",
                object("platform.pbx.io/v1alpha1", "Platform", "clu-01j9", ""),
                "a Platform of",
            ),
            (
                "platform",
                object("platform.pbx.io/v1alpha1", "Platform", "other", ""),
                "the cluster's",
            ),
            (
                "platform",
                object("platform.pbx.io/v1alpha1", "Platform", "clu-01j9", ours),
                "cluster-wide",
            ),
            (
                "x",
                object("apps/v1", "Deployment", "y", ours),
                "a Deployment of apps/v1",
            ),
            (
                "x",
                object("helm.cattle.io/v2", "HelmChart", "y", ours),
                "a HelmChart of helm.cattle.io/v2",
            ),
            (
                "x",
                object("v1", "Secret", "hcloud", ours),
                "Secret hcloud is not an add-on's",
            ),
            (
                "x",
                object("v1", "Secret", "pbx-etcd-s3", ours),
                "Secret pbx-etcd-s3 is not",
            ),
            (
                "x",
                object("v1", "ConfigMap", "pbx-addon-x", ours),
                "a ConfigMap of v1",
            ),
            (
                "x",
                object("v1", "Secret", "pbx-addon-x", ", namespace: default"),
                "kube-system",
            ),
            (
                "x",
                object("helm.cattle.io/v1", "HelmChart", "y", ""),
                "kube-system",
            ),
            (
                "x",
                object("helm.cattle.io/v1", "HelmChart", "y", ", namespace: a"),
                "kube-system",
            ),
            (
                "x",
                object(
                    "helm.cattle.io/v1",
                    "HelmChart",
                    "y",
                    ", namespace: kube-system, finalizers: [a]",
                ),
                "metadata.finalizers",
            ),
            ("x", format!("{CHART}status: {{}}\n"), "a member status"),
            ("x", format!("{CHART}---\n{CHART}"), "the same name"),
            ("x", "- a\n".to_owned(), "no mapping"),
            ("x", "kind: HelmChart\n".to_owned(), "no apiVersion"),
        ];
        for (addon, template, refused) in rows {
            // Beside one that is allowed.
            let both = format!("{}---\n{template}", CHART.replace("name: x", "name: z"));
            match render_as(addon, &both, json!({})) {
                Ok(objects) => {
                    assert_eq!((objects.len(), refused), (2, ""), "{template}");
                }
                Err(why) => {
                    let why = why.to_string();
                    assert!(
                        !refused.is_empty() && why.contains(refused),
                        "{template}\n{why}"
                    );
                }
            }
        }
    }

    const SECRET: &str = "apiVersion: v1
kind: Secret
metadata: {name: '{{ secret_name }}', namespace: kube-system}
stringData:
";

    fn texts(template: &str) -> Result<BTreeMap<String, String>, String> {
        let objects = render_x(template).map_err(|why| why.to_string())?;
        let Content::Secret { data, .. } = &objects[0].content else {
            panic!("{objects:?}");
        };
        let open = |sealed: &Sealed| {
            let name = match sealed.as_bytes() {
                b"box 1" => "the \"key\"",
                _ => "the token",
            };
            Some(protocol::seal::Secret::from(name.to_owned()))
        };
        let opened = data.iter().map(|(key, text)| {
            let text = text.open(open).unwrap();
            (key.clone(), text.expose_text().unwrap().to_owned())
        });
        Ok(opened.collect())
    }

    // rule ADD-4: a secret option stands in the add-on's own Secret, and the host alone opens it.
    #[test]
    fn add_4_a_secret_option_may_stand_in_the_add_ons_secret() {
        let rows = [
            ("{{ secret_options.acme_key }}", r#"the "key""#),
            (
                "\"key: {{ secret_options.acme_key }}\"",
                r#"key: "the \"key\"""#,
            ),
            (
                "'{key: \"{{ secret_options.acme_key }}\", t: {{ secret_options.token }}}'",
                r#"{key: "the \"key\"", t: "the token"}"#,
            ),
            (
                "'{{ secret_options | tojson }}'",
                r#"{"acme_key": "the \"key\"", "token": "the token"}"#,
            ),
            ("plain", "plain"),
        ];
        for (written, expected) in rows {
            let template = format!("{SECRET}  k: {written}\n");
            assert_eq!(texts(&template).unwrap()["k"], expected, "{written}");
        }
    }

    // rule ADD-4: and nowhere else, however it is tried; and it is never shown.
    #[test]
    fn add_4_a_secret_option_stands_nowhere_else() {
        let in_secret = |text: &str| format!("{SECRET}  k: {text}\n");
        let rows = [
            (
                CHART.replace("options | tojson", "secret_options.acme_key"),
                "into HelmChart kube-system/x",
            ),
            (
                CHART.replace("options | tojson", "secret_options | tojson"),
                "into HelmChart kube-system/x",
            ),
            (
                CHART.replace(
                    "chart: x",
                    "chart: x, set: {'{{ secret_options.token }}': 1}",
                ),
                "into HelmChart kube-system/x",
            ),
            (
                CHART.replace(
                    "name: x,",
                    "name: x, annotations: {a: '{{ secret_options.token }}'},",
                ),
                "into the metadata",
            ),
            (
                in_secret("{{ secret_options.token }}")
                    .replace("'{{ secret_name }}'", "pbx-addon-y"),
                "into Secret kube-system/pbx-addon-y",
            ),
            (
                format!("{SECRET}  '{{{{ secret_options.token }}}}': a\n"),
                "into Secret kube-system/pbx-addon-x",
            ),
            (
                in_secret("Bearer{{ secret_options.token }}"),
                "a whole value",
            ),
            (
                in_secret("'{{ secret_options.token }}{{ secret_options.token }}'"),
                "a whole value",
            ),
            (in_secret("'{{ secret_options.token | first }}'"), "was cut"),
            (in_secret("'{{ secret_options.token | last }}'"), "was cut"),
            (
                in_secret("'{{ secret_options.token | replace(\"1\", \"7\") }}'"),
                "was cut",
            ),
        ];
        for (template, refused) in rows {
            let why = render_x(&template).unwrap_err().to_string();
            assert!(why.contains(refused), "{template}\n{why}");
        }
        // What a template can do with a mark is to measure it.
        let template = CHART.replace("options | tojson", "secret_options.token | length");
        assert!(format!("{:?}", render_x(&template).unwrap()).contains("\"3\""));
    }

    // rule ADD-6: a template that fails says where, and nothing of it is there.
    #[test]
    fn add_6_a_template_is_bounded_and_sees_nothing_but_its_options() {
        let rows = [
            ("{{ options.missing }}", "undefined value"),
            ("{{ nobody }}", "undefined value"),
            ("{% include 'other' %}", "unknown statement include"),
            ("{% import 'other' as o %}", "unknown statement import"),
            ("{% if %}", "syntax error"),
            (
                "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
                "fuel",
            ),
            (
                "{% set x = 'a' * 1000000 %}{% for i in range(100) %}{% set y = x ~ x ~ i %}{% endfor %}",
                "fuel",
            ),
            ("{{ 'a' * 200000 }}", "more than 131072 bytes"),
            ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", ""),
            ("{{ now() }}", "now"),
        ];
        for (template, refused) in rows {
            let why = render_x(template).unwrap_err();
            assert!(
                matches!(why, RenderRefused::Template(_)),
                "{template}: {why}"
            );
            let why = why.to_string();
            assert!(
                why.contains(refused) && why.len() < 400,
                "{template}: {why}"
            );
        }
    }

    #[test]
    fn yaml_has_no_anchors_no_doubled_members_and_no_tags() {
        let deep = format!("a: {}1{}", "[".repeat(40), "]".repeat(40));
        let many = "- a\n".repeat(30_000);
        let rows = [
            "a: &a 1\nb: *a\n",
            "a: 1\na: 2\n",
            "a: !!python/object 1\n",
            "a: {b: 1\n",
            "a: .inf\n",
            &deep,
            &many,
        ];
        for text in rows {
            let why = render_x(text).unwrap_err();
            assert!(matches!(why, RenderRefused::Yaml(_)), "{text}: {why}");
            assert!(why.to_string().len() < 400);
        }
        assert_eq!(render_x("").unwrap(), []);
        assert_eq!(render_x("---\n# nothing\n---\n").unwrap(), []);
    }

    // A template must not be able to write what its options say where an object's name or kind stands, and get away with
    // more than the list.
    #[test]
    fn an_option_that_breaks_out_finds_the_same_list() {
        let options = json!({"name": "x\n  namespace: kube-system\n---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: y"});
        let template = "apiVersion: helm.cattle.io/v1\nkind: HelmChart\nmetadata:\n  name: {{ options.name }}\nspec: {}\n";
        let why = render_as("x", template, options).unwrap_err();
        assert!(
            matches!(
                why,
                RenderRefused::Shape { .. } | RenderRefused::NotAllowed { .. }
            ),
            "{why}"
        );
    }
}
