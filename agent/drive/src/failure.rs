//! The ways in which an exchange ends without an answer, told apart by what a reader of a run would do about them.
//!
//! Each is one [`Outcome`] of `record`; which of them is whose fault is decided here, once.

use std::io;

use record::Outcome;

/// Why there is no answer. The text says what happened, not what to do: the agent's pace does that.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The portal's name did not resolve.
    #[error("the portal's name does not resolve: {0}")]
    Dns(io::Error),
    /// Nobody listens there.
    #[error("the connection was refused")]
    ConnectRefused,
    /// No connection, for another reason.
    #[error("no connection: {0}")]
    ConnectOther(io::Error),
    /// No source port is left on this machine.
    #[error("no source port is left for a connection to the portal")]
    ClientPorts,
    /// No file descriptor is left in this process.
    #[error("no file descriptor is left for a connection")]
    ClientFiles,
    /// The TLS handshake failed, or TLS broke later.
    #[error("TLS failed: {0}")]
    Tls(io::Error),
    /// No connection within the time-out (WIRE-7).
    #[error("no connection in time")]
    TimedOutConnect,
    /// The connection broke after the request had begun.
    #[error("the connection broke: {0}")]
    Reset(io::Error),
    /// The connection ended inside the answer, or before it on a new connection.
    #[error("the connection ended before the answer was whole")]
    ClosedEarly,
    /// A kept connection ended before any byte of the answer: the portal closed it while the request was on its way.
    #[error("the kept connection was closed before the answer began")]
    StaleConnection,
    /// The answer is larger than WIRE-2 allows; nothing more of it was read.
    #[error("the answer is larger than allowed")]
    AnswerTooLarge,
    /// What came is no HTTP.
    #[error("the answer is no HTTP: {0}")]
    NotHttp(hyper::Error),
    /// No whole answer within the time-out (WIRE-7).
    #[error("no answer in time")]
    TimedOutAnswer,
}

impl Failure {
    /// How the request counts in a run.
    pub fn outcome(&self) -> Outcome {
        match self {
            Failure::Dns(_) => Outcome::Dns,
            Failure::ConnectRefused => Outcome::ConnectRefused,
            Failure::ConnectOther(_) => Outcome::ConnectOther,
            Failure::ClientPorts => Outcome::ClientPorts,
            Failure::ClientFiles => Outcome::ClientFiles,
            Failure::Tls(_) => Outcome::Tls,
            Failure::TimedOutConnect => Outcome::TimedOutConnect,
            Failure::Reset(_) => Outcome::Reset,
            Failure::ClosedEarly => Outcome::ClosedEarly,
            Failure::StaleConnection => Outcome::StaleConnection,
            Failure::AnswerTooLarge => Outcome::AnswerTooLarge,
            Failure::NotHttp(_) => Outcome::BrokenAnswer,
            Failure::TimedOutAnswer => Outcome::TimedOutAnswer,
        }
    }

    /// A TCP connection that was not made.
    pub(crate) fn connecting(error: io::Error) -> Self {
        const EMFILE: i32 = 24;
        const ENFILE: i32 = 23;
        match (error.kind(), error.raw_os_error()) {
            (io::ErrorKind::ConnectionRefused, _) => Failure::ConnectRefused,
            (io::ErrorKind::AddrNotAvailable, _) => Failure::ClientPorts,
            (_, Some(EMFILE | ENFILE)) => Failure::ClientFiles,
            _ => Failure::ConnectOther(error),
        }
    }

    /// A connection that broke under a request. `fresh`: no byte had come since the request began. `kept`: the
    /// connection had served an earlier request.
    pub(crate) fn exchanging(error: hyper::Error, kept: bool, fresh: bool) -> Self {
        if error.is_parse_too_large() {
            return Failure::AnswerTooLarge;
        }
        if error.is_parse() {
            return Failure::NotHttp(error);
        }
        let cause = broken_by(&error);
        if cause
            .get_ref()
            .is_some_and(|inner| inner.is::<rustls::Error>())
        {
            return Failure::Tls(cause);
        }
        match cause.kind() {
            _ if kept && fresh => Failure::StaleConnection,
            io::ErrorKind::UnexpectedEof => Failure::ClosedEarly,
            _ => Failure::Reset(cause),
        }
    }
}

/// What the socket said; an end of stream where hyper says only that a message was not complete.
fn broken_by(error: &hyper::Error) -> io::Error {
    use std::error::Error;
    let mut cause = error.source();
    while let Some(inner) = cause {
        if let Some(io) = inner.downcast_ref::<io::Error>() {
            // An io::Error is not Clone: its kind, its number or its text is kept.
            return match (io.raw_os_error(), tls_error(io)) {
                (Some(number), _) => io::Error::from_raw_os_error(number),
                (None, Some(tls)) => io::Error::new(io.kind(), tls),
                (None, None) => io::Error::new(io.kind(), io.to_string()),
            };
        }
        cause = inner.source();
    }
    io::Error::from(io::ErrorKind::UnexpectedEof)
}

fn tls_error(error: &io::Error) -> Option<rustls::Error> {
    error.get_ref()?.downcast_ref::<rustls::Error>().cloned()
}
