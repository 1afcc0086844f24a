//! What came to the agents' address, the newest requests of it, for people and for tests.
//!
//! A ring with two bounds, entries and bytes of bodies; what falls out is counted, so that nobody takes a journal that
//! forgot for a request that never came. An enrollment's body is kept without its token; a body whose endpoint is not
//! known is not kept at all, because nobody can say what is secret in it.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::Method;
use portal_core::Explanation;
use protocol::endpoint::Endpoint;
use protocol::hash::Sha256Hex;
use protocol::id::AgentId;
use protocol::problem::ProblemCode;
use protocol::time::Timestamp;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::Value;

/// How much a journal keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// Requests; at least 1.
    pub entries: usize,
    /// Bytes of their bodies together.
    pub body_bytes: usize,
}

impl Default for Capacity {
    fn default() -> Self {
        Self {
            entries: 10_000,
            body_bytes: 16 * 1024 * 1024,
        }
    }
}

/// A request that was answered, as it came and as it ended.
#[derive(Debug, Clone)]
pub struct Entry {
    /// When it was decided, by the machine's clock.
    pub at: Timestamp,
    /// The agent that it came from, as far as its headers say.
    pub agent: Option<AgentId>,
    /// Whether that was proved: by its signature, or by its enrollment.
    pub proven: bool,
    /// The endpoint, where it had a route.
    pub endpoint: Option<Endpoint>,
    /// The method.
    pub method: Method,
    /// Path and query, cut at 512 bytes.
    pub target: String,
    /// The status of the answer.
    pub status: u16,
    /// The code of a refusal.
    pub code: Option<ProblemCode>,
    /// From the head's arrival to the answer's hand-over, in microseconds: reading the body, deciding, encoding.
    pub latency_us: u64,
    /// What came with it.
    pub body: Kept,
    /// Which rule a refused request broke, what was expected and what came.
    pub explanation: Option<Box<Explanation>>,
}

/// What is kept of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kept {
    /// All of it. Its hash is made when somebody asks.
    Whole(Bytes),
    /// All but its secrets.
    Redacted {
        /// The hash of the body as it came.
        hash: Sha256Hex,
        /// What is left.
        body: Bytes,
    },
    /// Nothing, since nobody can say what is secret in it.
    Withheld {
        /// The hash of the body as it came.
        hash: Sha256Hex,
    },
    /// It was not read to its end.
    Unread,
}

impl Kept {
    /// What may be kept of a request's body; none when it was not read to its end.
    pub fn of(endpoint: Option<Endpoint>, body: Option<&[u8]>) -> Self {
        let Some(body) = body else {
            return Self::Unread;
        };
        match endpoint {
            Some(Endpoint::Sync | Endpoint::Events | Endpoint::Manifest | Endpoint::RotateKey) => {
                Self::Whole(Bytes::copy_from_slice(body))
            }
            Some(Endpoint::Enroll) => match without_token(body) {
                Some(left) => Self::Redacted {
                    hash: Sha256Hex::of(body),
                    body: left,
                },
                None => Self::Withheld {
                    hash: Sha256Hex::of(body),
                },
            },
            Some(Endpoint::CheckIn) | None => Self::Withheld {
                hash: Sha256Hex::of(body),
            },
        }
    }

    /// The hash of the body as it came.
    pub fn hash(&self) -> Option<Sha256Hex> {
        match self {
            Self::Whole(body) => Some(Sha256Hex::of(body)),
            Self::Redacted { hash, .. } | Self::Withheld { hash } => Some(*hash),
            Self::Unread => None,
        }
    }

    fn bytes(&self) -> Option<&Bytes> {
        match self {
            Self::Whole(body) | Self::Redacted { body, .. } => Some(body),
            Self::Withheld { .. } | Self::Unread => None,
        }
    }

    fn len(&self) -> usize {
        self.bytes().map_or(0, Bytes::len)
    }
}

/// An enrollment's body with its token taken out; none when it is no JSON object, and the token could be anywhere.
fn without_token(body: &[u8]) -> Option<Bytes> {
    let mut object: serde_json::Map<String, Value> = protocol::json::parse(body).ok()?;
    if let Some(token) = object.get_mut("token") {
        *token = Value::from("(redacted)");
    }
    serde_json::to_vec(&object).ok().map(Bytes::from)
}

/// The newest requests.
#[derive(Debug)]
pub struct Journal {
    capacity: Capacity,
    ring: Mutex<Ring>,
}

#[derive(Debug, Default)]
struct Ring {
    entries: VecDeque<Entry>,
    body_bytes: usize,
    /// The number of the first entry that is still there; numbers begin at 1 and never come twice.
    first: u64,
}

/// Which entries are asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Of that agent, proved or not.
    pub agent: Option<AgentId>,
    /// To that endpoint.
    pub endpoint: Option<Endpoint>,
    /// Answered so.
    pub code: Option<CodeFilter>,
    /// With a number above this: the `next` of the page before. One that is not reached yet is of the journal before a
    /// reset or a restart, and everything is after it.
    pub since: Option<u64>,
    /// At most so many: the oldest of them with `since`, else the newest.
    pub limit: usize,
    /// With what is kept of their bodies.
    pub bodies: bool,
}

/// An answer as it is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodeFilter {
    /// 200.
    Ok,
    /// Refused with any code.
    Refused,
    /// Refused with that code.
    Code(ProblemCode),
}

impl JsonSchema for CodeFilter {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "CodeFilter".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let code = generator.subschema_for::<ProblemCode>();
        json_schema!({"anyOf": [{"enum": ["ok", "refused"]}, code]})
    }
}

impl std::str::FromStr for CodeFilter {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "ok" => Ok(Self::Ok),
            "refused" => Ok(Self::Refused),
            code => code
                .parse()
                .map(Self::Code)
                .map_err(|error| format!("{error}; or ok, or refused")),
        }
    }
}

/// Entries, the oldest first.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Page {
    /// The entries.
    pub entries: Vec<Line>,
    /// What to ask for next with `since`: everything up to this number was looked at.
    pub next: u64,
    /// How many entries are no longer there, since the start or the last reset.
    pub dropped: u64,
}

/// An entry as the control API shows it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "JournalLine")]
pub struct Line {
    /// Its number.
    pub sequence: u64,
    /// When it was decided, by the machine's clock.
    pub at: Timestamp,
    /// The agent that it said it is of.
    pub agent: Option<AgentId>,
    /// Whether that was proved.
    pub proven: bool,
    /// The endpoint, where it had a route.
    pub endpoint: Option<Endpoint>,
    /// The method.
    pub method: String,
    /// Path and query.
    pub target: String,
    /// The status of the answer.
    pub status: u16,
    /// The code of a refusal.
    pub code: Option<ProblemCode>,
    /// How long it took here.
    pub latency_us: u64,
    /// The body's hash.
    pub body_sha256: Option<Sha256Hex>,
    /// What is kept of the body, when it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// Why it was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub explanation: Option<Box<Explanation>>,
}

impl Journal {
    /// An empty journal.
    pub fn new(capacity: Capacity) -> Self {
        let capacity = Capacity {
            entries: capacity.entries.max(1),
            ..capacity
        };
        Self {
            capacity,
            ring: Mutex::new(Ring {
                first: 1,
                ..Ring::default()
            }),
        }
    }

    /// Adds an entry; the oldest make room.
    pub fn push(&self, entry: Entry) {
        let mut ring = self.ring();
        ring.body_bytes += entry.body.len();
        ring.entries.push_back(entry);
        while ring.entries.len() > self.capacity.entries
            || (ring.body_bytes > self.capacity.body_bytes && ring.entries.len() > 1)
        {
            ring.forget_oldest();
        }
    }

    /// Forgets everything and begins at number 1 again.
    pub fn clear(&self) {
        *self.ring() = Ring {
            first: 1,
            ..Ring::default()
        };
    }

    /// The entries that a filter lets through.
    pub fn page(&self, filter: &Filter) -> Page {
        let ring = self.ring();
        let numbered = ring.first..;
        let last = ring.first + ring.entries.len() as u64 - 1;
        let since = filter.since.filter(|since| *since <= last);
        let asked = numbered
            .zip(&ring.entries)
            .filter(|(number, _)| since.is_none_or(|since| *number > since))
            .filter(|(_, entry)| filter.takes(entry));
        let found: Vec<(u64, &Entry)> = match filter.since {
            Some(_) => asked.take(filter.limit).collect(),
            None => {
                let mut newest: Vec<_> = asked.collect();
                newest.split_off(newest.len().saturating_sub(filter.limit))
            }
        };
        // A page that is full may have left something behind its last entry; another one has seen everything.
        let next = match found.last() {
            Some((number, _)) if filter.since.is_some() && found.len() == filter.limit => *number,
            _ => last,
        };
        // Hashing takes time: no request should wait for it.
        let (found, dropped) = (
            found
                .into_iter()
                .map(|(number, entry)| (number, entry.clone()))
                .collect::<Vec<_>>(),
            ring.first - 1,
        );
        drop(ring);
        let entries = found
            .into_iter()
            .map(|(number, entry)| Line::of(number, entry, filter.bodies))
            .collect();
        Page {
            entries,
            next,
            dropped,
        }
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ring {
    fn forget_oldest(&mut self) {
        if let Some(entry) = self.entries.pop_front() {
            self.body_bytes -= entry.body.len();
            self.first += 1;
        }
    }
}

impl Filter {
    fn takes(&self, entry: &Entry) -> bool {
        self.agent
            .as_ref()
            .is_none_or(|agent| entry.agent.as_ref() == Some(agent))
            && self
                .endpoint
                .is_none_or(|endpoint| entry.endpoint == Some(endpoint))
            && match self.code {
                None => true,
                Some(CodeFilter::Ok) => entry.code.is_none(),
                Some(CodeFilter::Refused) => entry.code.is_some(),
                Some(CodeFilter::Code(code)) => entry.code == Some(code),
            }
    }
}

impl Line {
    fn of(sequence: u64, entry: Entry, bodies: bool) -> Self {
        let text = |body: &Bytes| String::from_utf8_lossy(body).into_owned();
        Self {
            sequence,
            at: entry.at,
            agent: entry.agent,
            proven: entry.proven,
            endpoint: entry.endpoint,
            method: entry.method.to_string(),
            target: entry.target,
            status: entry.status,
            code: entry.code,
            latency_us: entry.latency_us,
            body_sha256: entry.body.hash(),
            body: entry.body.bytes().filter(|_| bodies).map(text),
            explanation: entry.explanation,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(agent: &str, endpoint: Endpoint, code: Option<ProblemCode>, body: &str) -> Entry {
        Entry {
            at: Timestamp::from_unix_ms(0),
            agent: Some(agent.parse().unwrap()),
            proven: code.is_none(),
            endpoint: Some(endpoint),
            method: Method::POST,
            target: String::new(),
            status: code.map_or(200, |code| code.status()),
            code,
            latency_us: 0,
            body: Kept::of(Some(endpoint), Some(body.as_bytes())),
            explanation: None,
        }
    }

    fn numbers(page: &Page) -> Vec<u64> {
        page.entries.iter().map(|line| line.sequence).collect()
    }

    fn newest(limit: usize) -> Filter {
        Filter {
            limit,
            ..Filter::default()
        }
    }

    #[test]
    fn the_oldest_make_room_and_are_counted() {
        let journal = Journal::new(Capacity {
            entries: 3,
            body_bytes: 100,
        });
        for _ in 0..5 {
            journal.push(entry("a", Endpoint::Sync, None, "{}"));
        }
        let page = journal.page(&newest(10));
        assert_eq!(
            (numbers(&page), page.next, page.dropped),
            (vec![3, 4, 5], 5, 2)
        );

        journal.push(entry("a", Endpoint::Sync, None, &"x".repeat(99)));
        let page = journal.page(&newest(10));
        assert_eq!(
            (numbers(&page), page.dropped),
            (vec![6], 5),
            "bytes are a bound too"
        );
        journal.push(entry("a", Endpoint::Sync, None, &"x".repeat(1000)));
        assert_eq!(
            numbers(&journal.page(&newest(10))),
            [7],
            "the newest stays, however large"
        );

        journal.clear();
        let page = journal.page(&newest(10));
        assert_eq!((numbers(&page), page.next, page.dropped), (vec![], 0, 0));
        journal.push(entry("a", Endpoint::Sync, None, &"x".repeat(100)));
        assert_eq!(
            numbers(&journal.page(&newest(10))),
            [1],
            "the bytes were forgotten too"
        );
    }

    #[test]
    fn a_filter_takes_what_it_names() {
        let journal = Journal::new(Capacity::default());
        journal.push(entry("a", Endpoint::Enroll, None, "{}"));
        journal.push(entry(
            "a",
            Endpoint::Sync,
            Some(ProblemCode::ClockSkew),
            "{}",
        ));
        journal.push(entry("b", Endpoint::Sync, None, "{}"));
        journal.push(entry(
            "b",
            Endpoint::Sync,
            Some(ProblemCode::Replayed),
            "{}",
        ));
        let filter = newest(10);
        for (filter, found) in [
            (filter.clone(), vec![1, 2, 3, 4]),
            (newest(2), vec![3, 4]),
            (
                Filter {
                    agent: Some("a".parse().unwrap()),
                    ..filter.clone()
                },
                vec![1, 2],
            ),
            (
                Filter {
                    endpoint: Some(Endpoint::Sync),
                    ..filter.clone()
                },
                vec![2, 3, 4],
            ),
            (
                Filter {
                    code: Some(CodeFilter::Ok),
                    ..filter.clone()
                },
                vec![1, 3],
            ),
            (
                Filter {
                    code: Some(CodeFilter::Refused),
                    ..filter.clone()
                },
                vec![2, 4],
            ),
            (
                Filter {
                    code: Some("replayed".parse().unwrap()),
                    ..filter.clone()
                },
                vec![4],
            ),
            (
                Filter {
                    since: Some(2),
                    ..filter.clone()
                },
                vec![3, 4],
            ),
            (
                Filter {
                    since: Some(4),
                    ..filter.clone()
                },
                vec![],
            ),
            (
                Filter {
                    since: Some(9),
                    ..filter
                },
                vec![1, 2, 3, 4],
            ),
        ] {
            assert_eq!(numbers(&journal.page(&filter)), found, "{filter:?}");
        }
    }

    #[test]
    fn whoever_follows_by_next_misses_nothing_and_sees_nothing_twice() {
        let journal = Journal::new(Capacity::default());
        for number in 1..=25 {
            let agent = if number % 2 == 0 { "a" } else { "b" };
            journal.push(entry(agent, Endpoint::Sync, None, "{}"));
        }
        let mut filter = Filter {
            agent: Some("a".parse().unwrap()),
            since: Some(0),
            limit: 5,
            ..Filter::default()
        };
        let mut seen = Vec::new();
        loop {
            let page = journal.page(&filter);
            if page.entries.is_empty() {
                break;
            }
            seen.extend(numbers(&page));
            filter.since = Some(page.next);
        }
        assert_eq!(seen, (1..=12).map(|half| 2 * half).collect::<Vec<_>>());
        assert_eq!(filter.since, Some(25));
    }

    #[test]
    fn no_token_stays_and_the_hash_is_of_what_came() {
        let body = r#"{"protocol":1,"token":"pbxe_secret","node_name":"n"}"#;
        let kept = Kept::of(Some(Endpoint::Enroll), Some(body.as_bytes()));
        assert_eq!(kept.hash(), Some(Sha256Hex::of(body.as_bytes())));
        let journal = Journal::new(Capacity::default());
        journal.push(entry("a", Endpoint::Enroll, None, body));
        for broken in [
            r#"{"token":"pbxe_secret""#,
            r#"["pbxe_secret"]"#,
            r#"{"token":"pbxe_secret","token":"x"}"#,
        ] {
            journal.push(entry("a", Endpoint::Enroll, None, broken));
        }
        let page = journal.page(&Filter {
            bodies: true,
            ..newest(10)
        });
        assert!(
            page.entries[0].body.as_ref().unwrap().contains("node_name"),
            "{page:?}"
        );
        for line in &page.entries {
            assert!(!format!("{line:?}").contains("secret"), "{line:?}");
        }
        let nowhere = Kept::of(None, Some(body.as_bytes()));
        assert_eq!(
            nowhere,
            Kept::Withheld {
                hash: Sha256Hex::of(body.as_bytes())
            }
        );
        assert_eq!(Kept::of(Some(Endpoint::Sync), None).hash(), None);
    }
}
