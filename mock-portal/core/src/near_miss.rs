//! What a wrong signature was probably made over: the mistakes that clients make, tried one by one.
//!
//! A signature cannot be read backwards, so each mistake is made on purpose and verified. That costs about 30 µs a try; a
//! [`Budget`] keeps a flood of wrong signatures from buying the portal's time with it.

use protocol::dialect::Dialect;
use protocol::hash::Sha256Hex;
use protocol::limits::BODY_BYTES_MAX;
use protocol::sign::{Signature, SigningPublicKey, VerifyingKey, canonical};
use protocol::time::UnixSeconds;
use serde_json::Value;

use crate::answer::{NearMiss, SignatureExplanation};
use crate::identities::Keys;

/// How many searches there are within a minute.
const SEARCHES_PER_MINUTE_MAX: u32 = 100;
/// Bodies larger than this are not written anew in other spellings.
const RESPELLED_BYTES_MAX: usize = BODY_BYTES_MAX / 4;

/// So much of what was signed is shown.
const SHOWN_BYTES_MAX: usize = 1024;

/// What is left of a minute's searches.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    minute: u64,
    used: u32,
}

impl Budget {
    /// Takes one search, if one is left.
    pub(crate) fn take(&mut self, monotonic_ms: u64) -> bool {
        let minute = monotonic_ms / 60_000;
        if minute != self.minute {
            *self = Self { minute, used: 0 };
        }
        let left = self.used < SEARCHES_PER_MINUTE_MAX;
        self.used += u32::from(left);
        left
    }
}

/// A request whose signature is wrong.
pub(crate) struct Wrong<'a> {
    pub(crate) dialect: &'a Dialect,
    pub(crate) method: &'a str,
    pub(crate) target: &'a str,
    pub(crate) host: Option<&'a str>,
    pub(crate) agent: &'a str,
    pub(crate) at: UnixSeconds,
    pub(crate) body: &'a [u8],
    pub(crate) signature: &'a Signature,
    /// The agent's keys, in force or not.
    pub(crate) keys: &'a Keys,
}

impl Wrong<'_> {
    /// What was to be signed, and what probably was.
    pub(crate) fn explain(&self, search: bool) -> SignatureExplanation {
        let due = canonical(
            self.dialect,
            self.method,
            self.target,
            self.at,
            &Sha256Hex::of(self.body),
        );
        let near_miss = if search {
            self.search(&due)
        } else {
            NearMiss::NotSearched
        };
        SignatureExplanation {
            canonical: text(&due),
            near_miss,
        }
    }

    fn search(&self, due: &[u8]) -> NearMiss {
        if let Some(mistake) = self.other_key(due) {
            return NearMiss::OtherKey { mistake };
        }
        let keys: Vec<&VerifyingKey> = self.keys.all().map(|pair| &pair.signing).collect();
        let mut tried = 0;
        for (mistake, signed) in self.mistakes(due) {
            tried += 1;
            if keys.iter().any(|key| key.verify(&signed, self.signature)) {
                let (offset, expected, came) = first_difference(due, &signed);
                return NearMiss::Found {
                    mistake,
                    signed: text(&signed[..signed.len().min(SHOWN_BYTES_MAX)]),
                    offset,
                    expected,
                    came,
                };
            }
        }
        NearMiss::NotFound { tried }
    }

    /// The right bytes, signed with a key that was in force once.
    fn other_key(&self, due: &[u8]) -> Option<String> {
        let verifies = |key: &SigningPublicKey| {
            VerifyingKey::parse(key).is_ok_and(|key| key.verify(due, self.signature))
        };
        self.keys.all().find_map(|pair| {
            let replaced = pair.replaces.filter(verifies).map(|key| format!("key {}, which was replaced", key.key_id()));
            let expired = || verifies(&pair.signing.public()).then(|| {
                format!("key {}, which is no longer in force: its 24 hours beside the new one are over", pair.signing.key_id())
            });
            replaced.or_else(expired)
        })
    }

    /// Every mistake with the bytes that it would have signed.
    fn mistakes(&self, due: &[u8]) -> Vec<(String, Vec<u8>)> {
        let mut all = Vec::new();
        let mut add = |mistake: &str, signed: Vec<u8>| {
            if signed != due {
                all.push((mistake.to_owned(), signed));
            }
        };
        let (method, target) = (self.method, self.target);
        let hash = Sha256Hex::of(self.body);
        let with = |method: &str, target: &str, hash: &Sha256Hex| {
            canonical(self.dialect, method, target, self.at, hash)
        };

        // The end and the separators.
        add("a newline at the end", [due, b"\n"].concat());
        add("CR LF at the end", [due, b"\r\n"].concat());
        add("CR LF between the parts", replace(due, "\r\n"));
        add("nothing between the parts", replace(due, ""));
        add("blanks between the parts", replace(due, " "));

        // The path.
        let base = self.dialect.base_path();
        let path = target.split_once('?').map_or(target, |(path, _)| path);
        let below = path.strip_prefix(base).unwrap_or(path);
        add("a path without its query", with(method, path, &hash));
        add("a path without the base path", with(method, below, &hash));
        add(
            "a path with the base path twice",
            with(method, &format!("{base}{path}"), &hash),
        );
        add(
            "a path with a slash at the end",
            with(method, &format!("{path}/"), &hash),
        );
        add(
            "a path without its first slash",
            with(method, path.trim_start_matches('/'), &hash),
        );
        if let Some(host) = self.host {
            for scheme in ["https://", "http://", ""] {
                add(
                    "a whole URL instead of the path",
                    with(method, &format!("{scheme}{host}{path}"), &hash),
                );
            }
        }

        // The method.
        add(
            "the method in lower case",
            with(&method.to_lowercase(), target, &hash),
        );

        // The timestamp.
        let ms = UnixSeconds(self.at.0.saturating_mul(1000));
        add(
            "the timestamp in milliseconds",
            canonical(self.dialect, method, target, ms, &hash),
        );

        // The hash of the body.
        let with_text = |hash: &str| {
            let kept = due.len().saturating_sub(64);
            [&due[..kept], hash.as_bytes()].concat()
        };
        add(
            "the hash in upper case",
            with_text(&hash.to_string().to_uppercase()),
        );
        add(
            "the body itself instead of its hash",
            [&due[..due.len() - 64], self.body].concat(),
        );
        add("no hash", with_text(""));
        for (mistake, body) in respelled(self.body) {
            add(mistake, with(method, target, &Sha256Hex::of(&body)));
        }

        // The order, and what does not belong there.
        let hash_text = hash.to_string();
        let at = self.at.to_string();
        let prefix = self.dialect.signed_prefix();
        let parts = |parts: &[&str]| format!("{prefix}{}", parts.join("\n")).into_bytes();
        add(
            "the timestamp before the method",
            parts(&[&at, method, target, &hash_text]),
        );
        add(
            "the hash before the timestamp",
            parts(&[method, target, &hash_text, &at]),
        );
        add(
            "the agent's ID before the method",
            parts(&[self.agent, method, target, &at, &hash_text]),
        );
        add(
            "the agent's ID before the timestamp",
            parts(&[method, target, self.agent, &at, &hash_text]),
        );
        add(
            "the agent's ID at the end",
            parts(&[method, target, &at, &hash_text, self.agent]),
        );
        add(
            "without the dialect's prefix",
            due[prefix.len().min(due.len())..].to_vec(),
        );

        // A hash of the whole.
        let whole = Sha256Hex::of(due);
        add("the SHA-256 of the bytes, raw", whole.as_bytes().to_vec());
        add(
            "the SHA-256 of the bytes, in hex",
            whole.to_string().into_bytes(),
        );
        all
    }
}

/// The body in other spellings: hashed before it was written anew on the way out, or the other way round.
fn respelled(body: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let mut all = vec![
        ("the hash of an empty body", Vec::new()),
        ("the hash of the body and a newline", [body, b"\n"].concat()),
    ];
    let Some(json) = (body.len() <= RESPELLED_BYTES_MAX)
        .then(|| std::str::from_utf8(body).ok())
        .flatten()
    else {
        return all;
    };
    let Ok(value) = serde_json::from_str::<Value>(json) else {
        return all;
    };
    let sorted = sorted(value).to_string();
    all.push((
        "the hash of the body without blanks at its ends",
        json.trim().as_bytes().to_vec(),
    ));
    let spellings = [
        (
            Spelling::Compact,
            "the hash of the body without blanks",
            "the hash of the body with its members sorted",
        ),
        (
            Spelling::Blanks,
            "the hash of the body with a blank behind each comma and colon",
            "the hash of the body with its members sorted and a blank behind each comma and colon",
        ),
        (
            Spelling::Indented(2),
            "the hash of the body indented by 2",
            "the hash of the body with its members sorted, indented by 2",
        ),
        (
            Spelling::Indented(4),
            "the hash of the body indented by 4",
            "the hash of the body with its members sorted, indented by 4",
        ),
    ];
    for (spelling, as_it_is, with_sorted_members) in spellings {
        all.push((as_it_is, respell(json, spelling)));
        all.push((with_sorted_members, respell(&sorted, spelling)));
    }
    all
}

/// With the members of every object in the order of their names, whatever map serde_json was built with.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members
                .into_iter()
                .map(|(name, value)| (name, sorted(value)))
                .collect();
            members.sort_by(|(one, _), (other, _)| one.cmp(other));
            Value::Object(members.into_iter().collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
        other => other,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Spelling {
    Compact,
    Blanks,
    Indented(usize),
}

/// JSON with other blanks; members keep their order, and values their spelling. `json` must be JSON.
fn respell(json: &str, spelling: Spelling) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len() * 2);
    let (mut depth, mut in_text, mut escaped) = (0_usize, false, false);
    let line = |out: &mut Vec<u8>, depth: usize| {
        if let Spelling::Indented(width) = spelling {
            out.push(b'\n');
            out.resize(out.len() + depth * width, b' ');
        }
    };
    let mut bytes = json.bytes().peekable();
    while let Some(byte) = bytes.next() {
        if in_text {
            out.push(byte);
            in_text = byte != b'"' || escaped;
            escaped = byte == b'\\' && !escaped;
            continue;
        }
        match byte {
            b' ' | b'\t' | b'\n' | b'\r' => {}
            b'{' | b'[' => {
                out.push(byte);
                while bytes.next_if(|next| next.is_ascii_whitespace()).is_some() {}
                if bytes.peek().is_some_and(|next| matches!(next, b'}' | b']')) {
                    out.extend(bytes.next());
                } else {
                    depth += 1;
                    line(&mut out, depth);
                }
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                line(&mut out, depth);
                out.push(byte);
            }
            b',' => {
                out.push(byte);
                line(&mut out, depth);
                out.extend((spelling == Spelling::Blanks).then_some(b' '));
            }
            b':' => {
                out.push(byte);
                out.extend((spelling != Spelling::Compact).then_some(b' '));
            }
            _ => {
                in_text = byte == b'"';
                out.push(byte);
            }
        }
    }
    out
}

/// The signed bytes with another separator.
fn replace(due: &[u8], separator: &str) -> Vec<u8> {
    text(due).replace('\n', separator).into_bytes()
}

fn first_difference(due: &[u8], signed: &[u8]) -> (usize, Option<u8>, Option<u8>) {
    let offset = due
        .iter()
        .zip(signed)
        .take_while(|(one, other)| one == other)
        .count();
    (
        offset,
        due.get(offset).copied(),
        signed.get(offset).copied(),
    )
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
