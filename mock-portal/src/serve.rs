//! The accept loop: from an address to requests, for either face of the portal.
//!
//! It owns sockets, TLS handshakes, keep-alive and the end of all that; what a request means is its service's affair.
//! Its own loop, and not axum's, because a load test needs a deep backlog, a server that keeps accepting when the
//! process runs out of descriptors, and a hand on each single connection.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::TokioIo;
use rustix::io::Errno;
use rustls::HandshakeKind;
use rustls::ServerConfig;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::wire::{Patience, Progress, Watched};

/// Connections that may wait to be accepted: a fleet that comes back in one second must not be refused by the kernel.
const BACKLOG: i32 = 4096;
/// Bytes of a request's head, and of the buffer that it is read into; a longer one is answered 431 by hyper.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// How long requests that are being answered may take when the server ends.
const DRAIN: Duration = Duration::from_secs(5);
/// How long the loop waits for a free descriptor before it tries again.
const OUT_OF_DESCRIPTORS: Duration = Duration::from_millis(100);

/// An address that cannot be listened on; says which and what to do.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {why}")]
pub struct BindError {
    /// The address.
    pub address: SocketAddr,
    /// What the system says, in its words or clearer ones, and what to do.
    why: String,
    source: io::Error,
}

impl BindError {
    fn new(address: SocketAddr, source: io::Error) -> Self {
        let why = match source.kind() {
            io::ErrorKind::AddrInUse => {
                "the address is in use; stop what listens there, or choose another port (0 picks a free one)".to_owned()
            }
            io::ErrorKind::AddrNotAvailable => "this machine does not have that address".to_owned(),
            io::ErrorKind::PermissionDenied => {
                "not allowed; ports below 1024 need privileges, choose a higher one".to_owned()
            }
            _ => "the system refuses it".to_owned(),
        };
        Self {
            address,
            why,
            source,
        }
    }
}

/// Opens a listening socket; port 0 picks a free one. To be called inside a tokio runtime.
///
/// # Errors
/// When the address is in use, not this machine's, or not allowed.
pub fn listen(address: SocketAddr) -> Result<TcpListener, BindError> {
    let open = || -> io::Result<TcpListener> {
        let socket = Socket::new(
            Domain::for_address(address),
            Type::STREAM,
            Some(Protocol::TCP),
        )?;
        socket.set_reuse_address(true)?; // a server that starts again must not wait for its old connections to fade
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        TcpListener::from_std(socket.into())
    };
    open().map_err(|error| BindError::new(address, error))
}

/// What happened to connections, counted from the start of the server; nothing of it is a request.
#[derive(Debug, Default)]
pub struct Connections {
    /// Taken from the kernel's queue.
    pub accepted: AtomicU64,
    /// Open now.
    pub open: AtomicU64,
    /// TLS handshakes that ended well, in full.
    pub tls_full: AtomicU64,
    /// TLS handshakes that ended well, resumed.
    pub tls_resumed: AtomicU64,
    /// TLS handshakes that failed or took too long.
    pub tls_failed: AtomicU64,
    /// Connections that ended in a head that is no HTTP/1.1 or was not complete in time, or in the middle of a message.
    pub broken: AtomicU64,
    /// Times that the process had no descriptor left for a connection that was waiting.
    pub out_of_descriptors: AtomicU64,
}

/// How a server ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// It serves.
    Serving,
    /// No new connection; what is being answered is finished, within a few seconds.
    Ending,
    /// Everything at once, as if the machine had lost its power.
    Killed,
}

/// One listening address: how it is served.
pub struct Face {
    /// TLS, or none.
    pub tls: Option<Arc<ServerConfig>>,
    /// Time-outs of its connections.
    pub patience: Patience,
    /// Where its connections are counted.
    pub connections: Arc<Connections>,
}

/// Serves a listener until `phase` says otherwise; then returns when the last connection has ended. `service` makes a
/// service for each connection.
pub async fn serve<M, S, B>(
    listener: TcpListener,
    face: Face,
    mut phase: watch::Receiver<Phase>,
    service: M,
) where
    M: Fn(Arc<Progress>) -> S,
    S: Service<Request<Incoming>, Response = Response<B>> + Send + 'static,
    S::Future: Send,
    S::Error: std::error::Error + Send + Sync + 'static,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    let acceptor = face.tls.clone().map(TlsAcceptor::from);
    let http = http();
    let mut open = JoinSet::new();
    loop {
        let stream = tokio::select! {
            biased;
            _ = phase.changed() => break,
            Some(_) = open.join_next(), if !open.is_empty() => continue,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    if is_out_of_descriptors(&error) {
                        if face.connections.out_of_descriptors.fetch_add(1, Relaxed) == 0 {
                            tracing::warn!(%error, "no descriptor left for a connection; waiting for one to close");
                        }
                        // Accepting again at once would spin: the kernel reports the same connection again.
                        let closed = tokio::time::timeout(OUT_OF_DESCRIPTORS, open.join_next());
                        tokio::select! { biased; _ = phase.changed() => break, _ = closed => {} }
                    }
                    continue; // otherwise that one connection was gone before it was accepted
                }
            },
        };
        face.connections.accepted.fetch_add(1, Relaxed);
        let progress = Arc::new(Progress::default());
        let connection = Connection {
            service: service(Arc::clone(&progress)),
            progress,
            http: http.clone(),
            patience: face.patience,
            connections: Arc::clone(&face.connections),
            phase: phase.clone(),
        };
        open.spawn(connection.run(stream, acceptor.clone()));
    }
    drop(listener);
    let killed = async {
        loop {
            if *phase.borrow_and_update() == Phase::Killed || phase.changed().await.is_err() {
                return;
            }
        }
    };
    let drained = async { while open.join_next().await.is_some() {} };
    tokio::select! {
        biased;
        () = killed => {}
        _ = tokio::time::timeout(DRAIN, drained) => {}
    }
    open.shutdown().await;
}

/// HTTP/1.1 as both faces speak it. Time-outs are [`Watched`]'s.
fn http() -> http1::Builder {
    let mut http = http1::Builder::new();
    http.header_read_timeout(None)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_header_size(HEAD_BYTES_MAX);
    http
}

/// The process or the machine has no room for another connection.
fn is_out_of_descriptors(error: &io::Error) -> bool {
    let full = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    Errno::from_io_error(error).is_some_and(|errno| full.contains(&errno))
}

struct Connection<S> {
    service: S,
    progress: Arc<Progress>,
    http: http1::Builder,
    patience: Patience,
    connections: Arc<Connections>,
    phase: watch::Receiver<Phase>,
}

/// Counts a connection as open for as long as it lives, however it ends.
struct Open(Arc<Connections>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Relaxed);
    }
}

impl<S, B> Connection<S>
where
    S: Service<Request<Incoming>, Response = Response<B>> + Send,
    S::Future: Send,
    S::Error: std::error::Error + Send + Sync + 'static,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    async fn run(mut self, stream: TcpStream, acceptor: Option<TlsAcceptor>) {
        self.connections.open.fetch_add(1, Relaxed);
        let _open = Open(Arc::clone(&self.connections));
        // A lost option costs milliseconds, not the connection.
        let _ = stream.set_nodelay(true);
        let Some(acceptor) = acceptor else {
            return self.speak(stream).await;
        };
        let handshake = tokio::time::timeout(self.patience.handshake, acceptor.accept(stream));
        let done = tokio::select! {
            biased;
            done = handshake => done,
            _ = self.phase.changed() => return,
        };
        let stream = match done {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                self.connections.tls_failed.fetch_add(1, Relaxed);
                return tracing::debug!(%error, "a TLS handshake failed");
            }
            Err(_) => {
                self.connections.tls_failed.fetch_add(1, Relaxed);
                return tracing::debug!("a TLS handshake took too long");
            }
        };
        let counter = match stream.get_ref().1.handshake_kind() {
            Some(HandshakeKind::Resumed) => &self.connections.tls_resumed,
            _ => &self.connections.tls_full,
        };
        counter.fetch_add(1, Relaxed);
        self.speak(stream).await;
    }

    async fn speak<T: AsyncRead + AsyncWrite + Unpin + Send + 'static>(mut self, stream: T) {
        let io = TokioIo::new(Watched::new(stream, self.patience, self.progress));
        let connection = self.http.serve_connection(io, self.service);
        let mut connection = std::pin::pin!(connection);
        let ended = {
            let mut ending = std::pin::pin!(self.phase.changed());
            tokio::select! {
                biased;
                ended = connection.as_mut() => Some(ended),
                _ = ending.as_mut() => None,
            }
        };
        let ended = match ended {
            Some(ended) => ended,
            None => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            self.connections.broken.fetch_add(1, Relaxed);
            tracing::debug!(error = %chain(&error), "a connection broke");
        }
    }
}

/// An error with what caused it, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
