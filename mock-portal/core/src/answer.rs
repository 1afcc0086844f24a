//! What the portal answers, and why it refuses. Writing an answer down is here; sending it is not.

use protocol::dialect::Dialect;
use protocol::endpoint::Endpoint;
use protocol::id::AgentId;
use protocol::pbx::call::{AnswerBody, Refusal, Reply};
use protocol::problem::{Problem, ProblemCode};
use schemars::JsonSchema;
use serde::Serialize;

/// An answer, decided and not yet written.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The endpoint, where the request had a route.
    pub endpoint: Option<Endpoint>,
    /// The agent, once it is proven: its signature was right, or it was enrolled.
    pub agent: Option<AgentId>,
    /// What it says.
    pub content: Content,
}

/// What an answer says.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// 200.
    Done(AnswerBody),
    /// Anything else.
    Refused(Box<Refused>),
}

/// A refusal: what the agent is told, and what the portal's own people are told.
#[derive(Debug, Clone, PartialEq)]
pub struct Refused {
    /// For the agent.
    pub problem: Problem,
    /// What `Allow` says, with 405 only.
    pub allow: Option<&'static str>,
    /// For the journal.
    pub explanation: Explanation,
}

/// Why a request was refused, for whoever writes the other side. Holds no secret: values that may be one are left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Explanation {
    /// The rule that refuses, by its ID in `docs/rules.md`.
    pub rule: &'static str,
    /// What the rule wants.
    pub expected: String,
    /// What came.
    pub came: String,
    /// What was to be signed, where the signature was wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signature: Option<Box<SignatureExplanation>>,
}

/// How a wrong signature came about, as far as it can be found out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SignatureExplanation {
    /// The bytes that the portal expected to be signed (SIGN-2), as text.
    pub canonical: String,
    /// What else the signature was tried over.
    pub near_miss: NearMiss,
}

/// The outcome of trying what is often signed by mistake.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "search")]
pub enum NearMiss {
    /// The signature is right over other bytes: this is the mistake.
    Found {
        /// The mistake, in words.
        mistake: String,
        /// The bytes that were signed, as text.
        signed: String,
        /// Where the first byte differs, from 0.
        offset: usize,
        /// The byte that was due there; none at the end of what was due.
        expected: Option<u8>,
        /// The byte that was signed there; none at the end of what was signed.
        came: Option<u8>,
    },
    /// The bytes are right, the key is not the one in force.
    OtherKey {
        /// Which key it is, in words.
        mistake: String,
    },
    /// None of the mistakes that are tried.
    NotFound {
        /// How many were tried.
        tried: usize,
    },
    /// Not tried: there were too many wrong signatures within a minute.
    NotSearched,
}

/// An answer as HTTP has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoded {
    /// The status.
    pub status: u16,
    /// The headers, but for those that belong to the connection (`Date`, `Content-Length`).
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Refused {
    /// A refusal by this rule. What it says to the agent is made of the same words.
    pub(crate) fn new(
        code: ProblemCode,
        rule: &'static str,
        expected: impl Into<String>,
        came: impl Into<String>,
    ) -> Box<Self> {
        let explanation = Explanation {
            rule,
            expected: expected.into(),
            came: came.into(),
            signature: None,
        };
        let detail = format!(
            "{rule}: expected {}; got {}",
            explanation.expected, explanation.came
        );
        Box::new(Self {
            problem: Problem::new(code, detail),
            allow: None,
            explanation,
        })
    }
}

impl Answer {
    /// The HTTP status.
    pub fn status(&self) -> u16 {
        match &self.content {
            Content::Done(_) => 200,
            Content::Refused(refused) => refused.problem.status,
        }
    }

    /// The problem's code, of a refusal.
    pub fn code(&self) -> Option<ProblemCode> {
        self.refused().map(|refused| refused.problem.code)
    }

    /// The refusal, if it is one.
    pub fn refused(&self) -> Option<&Refused> {
        match &self.content {
            Content::Done(_) => None,
            Content::Refused(refused) => Some(refused),
        }
    }

    /// The answer's body, if it is no refusal.
    pub fn done(&self) -> Option<&AnswerBody> {
        match &self.content {
            Content::Done(body) => Some(body),
            Content::Refused(_) => None,
        }
    }

    /// Writes it for HTTP.
    pub fn encode(&self, dialect: &Dialect) -> Encoded {
        match &self.content {
            Content::Done(body) => Encoded {
                status: 200,
                headers: vec![("Content-Type", "application/json".to_owned())],
                body: body.to_json(),
            },
            Content::Refused(refused) => {
                let mut headers = vec![("Content-Type", Problem::CONTENT_TYPE.to_owned())];
                headers.extend(refused.problem.headers());
                headers.extend(refused.allow.map(|allow| ("Allow", allow.to_owned())));
                Encoded {
                    status: refused.problem.status,
                    headers,
                    body: refused.problem.encode(dialect),
                }
            }
        }
    }

    /// What an agent learns from it when it arrives whole, for worlds without bytes.
    pub fn into_reply(self) -> Reply {
        match self.content {
            Content::Done(body) => Reply::Done(body),
            Content::Refused(refused) => Reply::Refused(Refusal::from(&refused.problem)),
        }
    }
}
