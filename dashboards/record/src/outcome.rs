//! Every way in which a request can end.
//!
//! Closed, so that a table over it has a fixed size and nothing ends in a bucket called "other error". Codes go by
//! their name, not only by status. What the outcome means for an agent is the engine's business, not decided here.

use protocol::endpoint::Endpoint;
use protocol::problem::ProblemCode;

use crate::label::{Label, named};

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// 200 with the body that was due.
    Ok,
    /// 304 of the check-in protocol: nothing has changed, which is a success.
    NotModified,
    /// 200 whose body was short, not JSON or of the wrong shape.
    BrokenAnswer,
    /// A status from 300 to 399 but 304; a redirect is never followed (WIRE-3).
    Status3xx,
    /// A status from 400 to 499 without a code of the table: not the portal's word.
    Status4xx,
    /// A status from 500 to 599 without a code of the table: not the portal's word.
    Status5xx,
    /// Any other status: 1xx, a 2xx that is not 200, 600 and up.
    StatusOther,
    /// The name of the portal did not resolve.
    Dns,
    /// Nobody listens at the portal's address.
    ConnectRefused,
    /// The connection could not be made for another reason.
    ConnectOther,
    /// No source port was left for the portal's address (`EADDRNOTAVAIL`): the generator's limit, not the portal's.
    ClientPorts,
    /// No file descriptor was left (`EMFILE`, `ENFILE`): the generator's limit, not the portal's.
    ClientFiles,
    /// The TLS handshake failed.
    Tls,
    /// The connection was reset after the request had begun.
    Reset,
    /// The connection ended inside the answer, or before it on a new connection.
    ClosedEarly,
    /// A kept connection was closed before any byte of the answer: the keep-alive race (a 30 s poll against a 30 s idle
    /// time-out), no fault of the request.
    StaleConnection,
    /// The answer was larger than WIRE-2 allows; reading stopped there.
    AnswerTooLarge,
    /// No connection within the time-out of WIRE-7.
    TimedOutConnect,
    /// No whole answer within the time-out of WIRE-7.
    TimedOutAnswer,
    /// The run ended while the request was under way.
    Aborted,
    /// The portal answered with a code of its table.
    Problem(ProblemCode),
}

/// What kind of an end it was: the four rows that add up to what was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// An answer came, whatever it said.
    Answered,
    /// No connection, or it broke.
    Transport,
    /// Nobody waited any longer.
    TimedOut,
    /// The run was over first.
    Aborted,
}

/// The outcomes without a code, in order.
const PLAIN: [Outcome; 20] = [
    Outcome::Ok,
    Outcome::NotModified,
    Outcome::BrokenAnswer,
    Outcome::Status3xx,
    Outcome::Status4xx,
    Outcome::Status5xx,
    Outcome::StatusOther,
    Outcome::Dns,
    Outcome::ConnectRefused,
    Outcome::ConnectOther,
    Outcome::ClientPorts,
    Outcome::ClientFiles,
    Outcome::Tls,
    Outcome::Reset,
    Outcome::ClosedEarly,
    Outcome::StaleConnection,
    Outcome::AnswerTooLarge,
    Outcome::TimedOutConnect,
    Outcome::TimedOutAnswer,
    Outcome::Aborted,
];

impl Outcome {
    /// How many there are.
    pub const COUNT: usize = PLAIN.len() + ProblemCode::ALL.len();

    /// Every outcome, each at its [`index`](Label::index).
    pub const ALL: [Outcome; Self::COUNT] = {
        let mut all = [Outcome::Ok; Self::COUNT];
        let mut at = 0;
        while at < PLAIN.len() {
            all[at] = PLAIN[at];
            at += 1;
        }
        while at < Self::COUNT {
            all[at] = Outcome::Problem(ProblemCode::ALL[at - PLAIN.len()]);
            at += 1;
        }
        all
    };

    /// The outcome of an answer that carried no code of the table.
    pub const fn of_status(status: u16) -> Outcome {
        match status {
            200 => Outcome::Ok,
            304 => Outcome::NotModified,
            300..=399 => Outcome::Status3xx,
            400..=499 => Outcome::Status4xx,
            500..=599 => Outcome::Status5xx,
            _ => Outcome::StatusOther,
        }
    }

    /// What kind of an end it is.
    pub const fn class(self) -> Class {
        match self {
            Outcome::Ok
            | Outcome::NotModified
            | Outcome::BrokenAnswer
            | Outcome::Status3xx
            | Outcome::Status4xx
            | Outcome::Status5xx
            | Outcome::StatusOther
            | Outcome::Problem(_) => Class::Answered,
            Outcome::Dns
            | Outcome::ConnectRefused
            | Outcome::ConnectOther
            | Outcome::ClientPorts
            | Outcome::ClientFiles
            | Outcome::Tls
            | Outcome::Reset
            | Outcome::ClosedEarly
            | Outcome::StaleConnection
            | Outcome::AnswerTooLarge => Class::Transport,
            Outcome::TimedOutConnect | Outcome::TimedOutAnswer => Class::TimedOut,
            Outcome::Aborted => Class::Aborted,
        }
    }

    /// Whether the caller got what it asked for. Throughput counts these alone.
    pub const fn is_success(self) -> bool {
        matches!(self, Outcome::Ok | Outcome::NotModified)
    }

    /// Whether the portal counts an answer under this very name. The others never left the portal in this form: a
    /// proxy's word, an answer that was damaged, or none at all.
    pub const fn is_portals_word(self) -> bool {
        matches!(
            self,
            Outcome::Ok | Outcome::NotModified | Outcome::Problem(_)
        )
    }

    /// Whether the portal may have received and even answered the request although this is all we saw.
    pub const fn may_be_lost_answer(self) -> bool {
        match self {
            Outcome::BrokenAnswer
            | Outcome::Reset
            | Outcome::ClosedEarly
            | Outcome::StaleConnection
            | Outcome::AnswerTooLarge
            | Outcome::TimedOutAnswer
            | Outcome::Aborted => true,
            // A status without a code comes from whatever stands before the portal, or from its HTTP library; the
            // portal's own table may have answered first (a proxy that replaces the page).
            Outcome::Status3xx | Outcome::Status4xx | Outcome::Status5xx | Outcome::StatusOther => {
                true
            }
            Outcome::Ok
            | Outcome::NotModified
            | Outcome::Problem(_)
            | Outcome::Dns
            | Outcome::ConnectRefused
            | Outcome::ConnectOther
            | Outcome::ClientPorts
            | Outcome::ClientFiles
            | Outcome::Tls
            | Outcome::TimedOutConnect => false,
        }
    }
}

impl Label for Outcome {
    const WHAT: &'static str = "outcome";

    fn all() -> &'static [Self] {
        &Self::ALL
    }

    fn index(self) -> usize {
        match self {
            Outcome::Ok => 0,
            Outcome::NotModified => 1,
            Outcome::BrokenAnswer => 2,
            Outcome::Status3xx => 3,
            Outcome::Status4xx => 4,
            Outcome::Status5xx => 5,
            Outcome::StatusOther => 6,
            Outcome::Dns => 7,
            Outcome::ConnectRefused => 8,
            Outcome::ConnectOther => 9,
            Outcome::ClientPorts => 10,
            Outcome::ClientFiles => 11,
            Outcome::Tls => 12,
            Outcome::Reset => 13,
            Outcome::ClosedEarly => 14,
            Outcome::StaleConnection => 15,
            Outcome::AnswerTooLarge => 16,
            Outcome::TimedOutConnect => 17,
            Outcome::TimedOutAnswer => 18,
            Outcome::Aborted => 19,
            Outcome::Problem(code) => PLAIN.len() + code as usize,
        }
    }

    fn label(self) -> &'static str {
        match self {
            Outcome::Ok => "ok",
            Outcome::NotModified => "not_modified",
            Outcome::BrokenAnswer => "broken_answer",
            Outcome::Status3xx => "status_3xx",
            Outcome::Status4xx => "status_4xx",
            Outcome::Status5xx => "status_5xx",
            Outcome::StatusOther => "status_other",
            Outcome::Dns => "dns",
            Outcome::ConnectRefused => "connect_refused",
            Outcome::ConnectOther => "connect_other",
            Outcome::ClientPorts => "client_ports",
            Outcome::ClientFiles => "client_files",
            Outcome::Tls => "tls",
            Outcome::Reset => "reset",
            Outcome::ClosedEarly => "closed_early",
            Outcome::StaleConnection => "stale_connection",
            Outcome::AnswerTooLarge => "answer_too_large",
            Outcome::TimedOutConnect => "timed_out_connect",
            Outcome::TimedOutAnswer => "timed_out_answer",
            Outcome::Aborted => "aborted",
            Outcome::Problem(code) => code.as_str(),
        }
    }
}

named!(Outcome);

impl Label for Endpoint {
    const WHAT: &'static str = "endpoint";

    fn all() -> &'static [Self] {
        Endpoint::ALL
    }

    fn index(self) -> usize {
        self as usize
    }

    fn label(self) -> &'static str {
        Endpoint::label(self)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn dense<K: Label + std::fmt::Debug>() {
        let names: BTreeSet<&str> = K::all().iter().map(|l| l.label()).collect();
        assert_eq!(names.len(), K::all().len(), "two members share a name");
        for (at, label) in K::all().iter().enumerate() {
            assert_eq!(label.index(), at, "{label:?}");
            assert_eq!(K::from_label(label.label()), Some(*label));
        }
    }

    #[test]
    fn the_index_is_the_place_and_names_are_unique() {
        dense::<Outcome>();
        dense::<Endpoint>();
    }

    #[test]
    fn an_answer_that_the_portal_counts_is_never_also_a_lost_one() {
        for outcome in Outcome::ALL {
            assert!(
                !(outcome.is_portals_word() && outcome.may_be_lost_answer()),
                "{outcome}"
            );
            if outcome.is_portals_word() {
                assert_eq!(outcome.class(), Class::Answered, "{outcome}");
            }
        }
    }

    #[test]
    fn a_status_without_a_code_has_its_own_name() {
        let rows = [
            (100, "status_other"),
            (200, "ok"),
            (204, "status_other"),
            (301, "status_3xx"),
            (304, "not_modified"),
            (418, "status_4xx"),
            (502, "status_5xx"),
            (600, "status_other"),
        ];
        for (status, name) in rows {
            assert_eq!(Outcome::of_status(status).label(), name, "{status}");
        }
    }

    #[test]
    fn a_file_spells_an_outcome_by_its_name() {
        for outcome in Outcome::ALL {
            let text = serde_json::to_string(&outcome).unwrap();
            assert_eq!(text, format!("\"{}\"", outcome.label()));
            assert_eq!(serde_json::from_str::<Outcome>(&text).unwrap(), outcome);
        }
        let error = serde_json::from_str::<Outcome>("\"okay\"").unwrap_err();
        assert!(
            error.to_string().contains("unknown outcome `okay`"),
            "{error}"
        );
    }
}
