//! A server that does exactly what a test tells it to, byte by byte, over TLS or in clear.
//!
//! It is no portal: it reads whole requests and plays one act for each. What it saw is what the tests judge.

#![allow(
    dead_code,
    clippy::allow_attributes,
    reason = "each test file uses its own part of it"
)]

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_drive::tls::{Trust, client_config};
use agent_drive::{BaseUrl, Settings, TimeOuts, Transport};
use protocol::dialect::Dialect;
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// What the server does with the next request.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    /// Sends these bytes and waits for the next request.
    Send(Vec<u8>),
    /// Sends these bytes and closes the connection in peace.
    SendAndClose(Vec<u8>),
    /// Waits for the head only, then sends and closes.
    SendAfterHead(Vec<u8>),
    /// Closes the connection with a reset.
    Reset,
    /// Never answers.
    Hang,
    /// Sends the first part, then the second one again and again, until nobody takes it any more.
    Flood(Vec<u8>, Vec<u8>),
    /// Sends the first part, then these bytes with a pause before each.
    Drip(Vec<u8>, Vec<u8>, Duration),
}

/// An answer with a body of JSON.
pub(crate) fn ok(body: &str) -> Act {
    Act::Send(answer("200 OK", body))
}

pub(crate) fn answer(status: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// A running server, and what it saw.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) trust: Trust,
    pub(crate) secure: bool,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    acts: Mutex<std::collections::VecDeque<Act>>,
    requests: Mutex<Vec<String>>,
    connections: AtomicUsize,
    closed: AtomicUsize,
    flooded_bytes: AtomicUsize,
}

impl Server {
    /// Over TLS, with a certificate of its own.
    pub(crate) async fn tls(acts: impl IntoIterator<Item = Act>) -> Self {
        let made =
            rcgen::generate_simple_self_signed(["localhost".into(), "127.0.0.1".into()]).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let certificate: CertificateDer<'static> = made.cert.der().clone();
        let mut config = ServerConfig::builder_with_provider(agent_drive::tls::provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key)
            .unwrap();
        config.ticketer = rustls::crypto::ring::Ticketer::new().unwrap();
        Self::start(acts, Some(Arc::new(config)), Trust::Only(vec![certificate])).await
    }

    /// In clear.
    pub(crate) async fn plain(acts: impl IntoIterator<Item = Act>) -> Self {
        Self::start(acts, None, Trust::Only(Vec::new())).await
    }

    async fn start(
        acts: impl IntoIterator<Item = Act>,
        tls: Option<Arc<ServerConfig>>,
        trust: Trust,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            address: listener.local_addr().unwrap(),
            trust,
            secure: tls.is_some(),
            seen: Arc::default(),
        };
        *server.seen.acts.lock().unwrap() = acts.into_iter().collect();
        let seen = Arc::clone(&server.seen);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                seen.connections.fetch_add(1, SeqCst);
                let (seen, tls) = (Arc::clone(&seen), tls.clone());
                tokio::spawn(async move {
                    stream.set_nodelay(true).unwrap();
                    let reset = Reset::of(&stream);
                    match tls {
                        None => play(stream, &seen, &reset).await,
                        Some(tls) => {
                            if let Ok(stream) = TlsAcceptor::from(tls).accept(stream).await {
                                play(stream, &seen, &reset).await;
                            }
                        }
                    }
                    seen.closed.fetch_add(1, SeqCst);
                });
            }
        });
        server
    }

    pub(crate) fn url(&self, prefix: &str) -> String {
        let scheme = if self.secure { "https" } else { "http" };
        format!("{scheme}://{}{prefix}", self.address)
    }

    /// A transport to it.
    pub(crate) fn transport(&self, time_outs: TimeOuts) -> Transport {
        self.transport_below("", time_outs)
    }

    pub(crate) fn transport_below(&self, prefix: &str, time_outs: TimeOuts) -> Transport {
        let base = BaseUrl::parse(&self.url(prefix), &Dialect::default()).unwrap();
        let settings = Settings {
            time_outs,
            ..Settings::default()
        };
        Transport::new(base, &client_config(&self.trust).unwrap(), settings).unwrap()
    }

    /// Whole requests, in the order in which they came.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.seen.requests.lock().unwrap().clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.seen.connections.load(SeqCst)
    }

    pub(crate) fn flooded_bytes(&self) -> usize {
        self.seen.flooded_bytes.load(SeqCst)
    }

    /// Waits until so many connections have ended on this side.
    pub(crate) async fn closed(&self, connections: usize) {
        while self.seen.closed.load(SeqCst) < connections {
            tokio::task::yield_now().await;
        }
    }
}

/// Turns the close of a socket into a reset.
struct Reset(socket2::Socket);

impl Reset {
    fn of(stream: &TcpStream) -> Self {
        Self(socket2::SockRef::from(stream).try_clone().unwrap())
    }

    fn arm(&self) {
        self.0.set_linger(Some(Duration::ZERO)).unwrap();
    }
}

async fn play<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, seen: &Seen, reset: &Reset) {
    loop {
        let head_only = matches!(
            seen.acts.lock().unwrap().front(),
            Some(Act::SendAfterHead(_))
        );
        let Some(request) = read_request(&mut stream, head_only).await else {
            return;
        };
        seen.requests.lock().unwrap().push(request);
        let act = seen.acts.lock().unwrap().pop_front();
        match act.expect("the script is as long as the test's requests") {
            Act::Send(bytes) => stream.write_all(&bytes).await.unwrap(),
            Act::SendAndClose(bytes) | Act::SendAfterHead(bytes) => {
                stream.write_all(&bytes).await.unwrap();
                stream.shutdown().await.unwrap();
                return;
            }
            Act::Reset => return reset.arm(),
            Act::Hang => std::future::pending().await,
            Act::Flood(head, piece) => {
                stream.write_all(&head).await.unwrap();
                while stream.write_all(&piece).await.is_ok() {
                    seen.flooded_bytes.fetch_add(piece.len(), SeqCst);
                }
                return;
            }
            Act::Drip(head, bytes, pause) => {
                stream.write_all(&head).await.unwrap();
                let mut drops = tokio::time::interval(pause);
                for byte in bytes {
                    drops.tick().await;
                    if stream.write_all(&[byte]).await.is_err() || stream.flush().await.is_err() {
                        return;
                    }
                }
            }
        }
    }
}

/// One request, or none when the connection has ended.
async fn read_request<S: AsyncRead + Unpin>(stream: &mut S, head_only: bool) -> Option<String> {
    let mut bytes = Vec::new();
    let whole = loop {
        if let Some(head) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            let text = String::from_utf8_lossy(&bytes[..head]).to_ascii_lowercase();
            let length = text
                .lines()
                .find_map(|line| line.strip_prefix("content-length:"))
                .map_or(0, |value| value.trim().parse::<usize>().unwrap());
            break head + 4 + if head_only { 0 } else { length };
        }
        read_some(stream, &mut bytes).await?;
    };
    while bytes.len() < whole {
        read_some(stream, &mut bytes).await?;
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

async fn read_some<S: AsyncRead + Unpin>(stream: &mut S, bytes: &mut Vec<u8>) -> Option<()> {
    match stream.read_buf(bytes).await {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(()),
    }
}
