//! The one client transport to a portal: HTTP/1.1 over TLS, one connection an agent, kept open between calls.
//!
//! It decides where a connection may go, how long it is waited for, how much of an answer is read, and how an exchange
//! that failed is called. It does not retry, does not follow redirects, does not sign and does not read bodies: one
//! request in, one raw answer or one [`Failure`] out. A request that was sent once is never sent again here; the portal
//! would take the second one for a replay.
//!
//! A connection is driven by the call that uses it, not by a task of its own: a call wakes one task, and dropping the
//! call closes the socket. Between two calls only the stream is kept, without the buffers of HTTP, which are most of what
//! an open connection takes; what the portal did to it meanwhile is looked at when the next call begins, before a byte of
//! it is sent.

use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, HOST};
use http::{HeaderMap, HeaderValue, Method, Request, Uri};
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use protocol::limits;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, HandshakeKind};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::base_url::{BaseUrl, Host};
use crate::failure::Failure;
use crate::observe::Observer;
use crate::tls;

/// Bytes of an answer's head; a proxy's cookies fit in, a flood does not.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// How long a portal may keep a call waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeOuts {
    /// For the connection: name, TCP and TLS together.
    pub connect: Duration,
    /// For a whole request, its connection included; for a download, between two pieces of it.
    pub request: Duration,
}

impl Default for TimeOuts {
    /// WIRE-7: 10 s to connect, 30 s for a request.
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(limits::CONNECT_SECONDS_MAX),
            request: Duration::from_secs(limits::REQUEST_SECONDS_MAX),
        }
    }
}

/// How connections are made; the default is what a node does.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// How long they are waited for.
    pub time_outs: TimeOuts,
    /// Addresses of this machine that they leave from in turn; none: the system chooses. Above some 14,000 connections
    /// from one address to one port its search for a free source port gets dear, and above 28,000 it finds none.
    pub sources: Vec<IpAddr>,
}

/// What the time-out of a request counts (WIRE-7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// The whole request.
    Whole,
    /// The time without a byte: for downloads, which may be slow but must not stand still.
    Stall,
}

/// One request.
#[derive(Debug, Clone)]
pub struct Exchange<'a> {
    /// The method.
    pub method: Method,
    /// What follows the base URL: what is signed (SIGN-2). Begins with `/`.
    pub path: &'a str,
    /// Headers beside `Host` and `Content-Length`.
    pub headers: HeaderMap,
    /// The body, empty for a `GET`.
    pub body: Bytes,
    /// What its time-out counts.
    pub patience: Patience,
}

/// An answer as it came, whatever its status.
#[derive(Debug, Clone)]
pub struct Raw {
    /// The status, a redirect's too: none is followed (WIRE-3).
    pub status: u16,
    /// The headers, every line of them.
    pub headers: HeaderMap,
    /// The whole body, at most 256 KiB (WIRE-2).
    pub body: Bytes,
}

/// What the connections to one portal share.
#[derive(Debug, Clone)]
pub struct Transport(Arc<Shared>);

struct Shared {
    base: BaseUrl,
    host: HeaderValue,
    secure: Option<Secure>,
    time_outs: TimeOuts,
    sources: Vec<IpAddr>,
    next_source: AtomicUsize,
    http: http1::Builder,
    /// Moments of [`Seen`] count from here.
    start: Instant,
}

struct Secure {
    config: ClientConfig,
    name: ServerName<'static>,
}

/// A host name that TLS cannot ask for.
#[derive(Debug, thiserror::Error)]
#[error("portal address {base}: its host is no name that a certificate can carry")]
pub struct HostRefused {
    base: BaseUrl,
}

impl Transport {
    /// A transport to the portal at `base`; no connection is opened yet. `tls` is used for `https` only; its sessions
    /// are not: each connection keeps its own.
    ///
    /// # Errors
    /// [`HostRefused`].
    pub fn new(base: BaseUrl, tls: &ClientConfig, settings: Settings) -> Result<Self, HostRefused> {
        let name = match base.host() {
            Host::Address(address) => Some(ServerName::from(*address)),
            Host::Name(name) => ServerName::try_from(name.clone()).ok(),
        };
        let host = HeaderValue::from_str(base.authority()).ok();
        let (Some(name), Some(host)) = (name, host) else {
            return Err(HostRefused { base });
        };
        let secure = base.is_secure().then(|| Secure {
            config: tls.clone(),
            name,
        });
        let mut http = http1::Builder::new();
        http.max_buf_size(HEAD_BYTES_MAX)
            .max_header_size(HEAD_BYTES_MAX);
        Ok(Self(Arc::new(Shared {
            base,
            host,
            secure,
            time_outs: settings.time_outs,
            sources: settings.sources,
            next_source: AtomicUsize::new(0),
            http,
            start: Instant::now(),
        })))
    }

    /// Where it leads.
    pub fn base(&self) -> &BaseUrl {
        &self.0.base
    }

    /// A connection of one agent; opened by its first exchange.
    pub fn connection(&self) -> Connection {
        let session = self
            .0
            .secure
            .as_ref()
            .map(|s| tls::with_own_session(&s.config));
        Connection {
            shared: Arc::clone(&self.0),
            tls: session.map(TlsConnector::from),
            kept: None,
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport")
            .field("base", &self.base)
            .field("time_outs", &self.time_outs)
            .finish_non_exhaustive()
    }
}

/// One agent's connection. It is open or it is not; the next exchange opens it again.
pub struct Connection {
    shared: Arc<Shared>,
    tls: Option<TlsConnector>,
    kept: Option<Tap>,
}

impl Connection {
    /// Whether a connection is held; the portal may have closed it since.
    pub fn is_open(&self) -> bool {
        self.kept.is_some()
    }

    /// Sends one request and reads its answer. Dropping the future closes the connection.
    ///
    /// # Errors
    /// [`Failure`]; the connection is closed then.
    pub async fn exchange(
        &mut self,
        exchange: Exchange<'_>,
        observer: &mut impl Observer,
    ) -> Result<Raw, Failure> {
        let shared = Arc::clone(&self.shared);
        let begun = Instant::now();
        let patience = exchange.patience;
        let deadline = begun + shared.time_outs.request;
        let mut request = shared.request(exchange)?;
        loop {
            let (stream, kept) = match self.take_kept().await {
                Some(stream) => (stream, true),
                None => (self.connect(begun, observer).await?, false),
            };
            observer.connected(kept);
            let mut open = Open::new(stream, &shared.http).await?;
            open.seen.begin();
            let wait = Wait {
                patience,
                deadline,
                limit: shared.time_outs.request,
            };
            let seen = Arc::clone(&open.seen);
            let answered = wait
                .over(&seen, open.answer(request))
                .await
                .unwrap_or(Err(Broken::TimedOut));
            if let Some(at) = seen.first_out() {
                observer.first_byte_out(at);
            }
            let failure = match answered {
                Ok(raw) => {
                    if let Some(at) = seen.last_in() {
                        observer.last_byte_in(at);
                    }
                    self.kept = open.at_rest().await;
                    return Ok(raw);
                }
                // Closed while it was idle: nothing of the request has left, so this is no second sending of it.
                Err(Broken::Unsent(unsent)) if kept && seen.first_out().is_none() => {
                    request = *unsent;
                    continue;
                }
                Err(Broken::Unsent(_)) if kept => Failure::StaleConnection,
                Err(Broken::Unsent(_)) => Failure::ClosedEarly,
                Err(Broken::Hyper(error)) => {
                    Failure::exchanging(error, kept, seen.last_in().is_none())
                }
                Err(Broken::TooLarge) => Failure::AnswerTooLarge,
                Err(Broken::TimedOut) => Failure::TimedOutAnswer,
            };
            return Err(failure);
        }
    }

    /// The kept stream, if the portal has neither closed it meanwhile nor said anything that nobody asked for.
    async fn take_kept(&mut self) -> Option<Tap> {
        let mut stream = self.kept.take()?;
        let is_silent = poll_fn(|context| {
            let mut byte = [0];
            let read = Pin::new(&mut stream).poll_read(context, &mut ReadBuf::new(&mut byte));
            Poll::Ready(read.is_pending())
        });
        is_silent.await.then_some(stream)
    }

    /// Opens a connection.
    async fn connect(&self, begun: Instant, observer: &mut impl Observer) -> Result<Tap, Failure> {
        let time_outs = self.shared.time_outs;
        let deadline = begun + time_outs.connect.min(time_outs.request);
        let connected = timeout_at(deadline, self.dial(observer)).await;
        let stream = connected.unwrap_or(Err(Failure::TimedOutConnect))?;
        Ok(Tap {
            stream,
            seen: Arc::new(Seen::new(self.shared.start)),
        })
    }

    /// Name, TCP, TLS.
    async fn dial(&self, observer: &mut impl Observer) -> Result<Stream, Failure> {
        let shared = &*self.shared;
        let mut failure = None;
        for address in shared.addresses(observer).await? {
            let started = Instant::now();
            let tcp = match shared.tcp(address).await {
                Ok(tcp) => tcp,
                Err(error) => {
                    failure = Some(Failure::connecting(error));
                    continue;
                }
            };
            observer.tcp(started.elapsed());
            let (Some(tls), Some(secure)) = (&self.tls, &shared.secure) else {
                return Ok(Stream::Plain(tcp));
            };
            let started = Instant::now();
            let stream = tls
                .connect(secure.name.clone(), tcp)
                .await
                .map_err(Failure::Tls)?;
            let resumed = stream.get_ref().1.handshake_kind() == Some(HandshakeKind::Resumed);
            observer.tls(started.elapsed(), resumed);
            return Ok(Stream::Tls(Box::new(stream)));
        }
        Err(failure.unwrap_or_else(|| {
            Failure::Dns(io::Error::other(
                "it has no address that may be called; plain http is for loopback only",
            ))
        }))
    }
}

impl Shared {
    fn request(&self, exchange: Exchange<'_>) -> Result<Request<Full<Bytes>>, Failure> {
        // A path is made of checked words, so this says no only if that stops being true.
        let target = self
            .base
            .target(exchange.path)
            .map_err(|error| Failure::ConnectOther(io::Error::other(error)))?;
        let mut request = Request::new(Full::new(exchange.body));
        *request.method_mut() = exchange.method;
        *request.uri_mut() = Uri::from(target);
        *request.headers_mut() = exchange.headers;
        request.headers_mut().insert(HOST, self.host.clone());
        Ok(request)
    }

    /// The portal's addresses, in the resolver's order, without those that must not be called (WIRE-3).
    async fn addresses(&self, observer: &mut impl Observer) -> Result<Vec<SocketAddr>, Failure> {
        let port = self.base.port();
        let name = match self.base.host() {
            Host::Address(address) => return Ok(vec![SocketAddr::new(*address, port)]),
            Host::Name(name) => name,
        };
        let started = Instant::now();
        let found = tokio::net::lookup_host((name.as_str(), port))
            .await
            .map_err(Failure::Dns)?;
        observer.dns(started.elapsed());
        Ok(found.filter(|address| self.base.allows(address)).collect())
    }

    async fn tcp(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        if !self.sources.is_empty() {
            let next = self.next_source.fetch_add(1, Relaxed) % self.sources.len();
            socket.bind(SocketAddr::new(self.sources[next], 0))?;
        }
        socket.set_nodelay(true)?;
        socket.connect(address).await
    }
}

/// A connection in use.
struct Open {
    sender: http1::SendRequest<Full<Bytes>>,
    http: Http,
    seen: Arc<Seen>,
}

/// Why an open connection gave no answer.
enum Broken {
    /// hyper gave the request back: it had not begun to write it.
    Unsent(Box<Request<Full<Bytes>>>),
    Hyper(hyper::Error),
    TooLarge,
    TimedOut,
}

impl From<hyper::Error> for Broken {
    fn from(error: hyper::Error) -> Self {
        Broken::Hyper(error)
    }
}

impl Open {
    /// Nothing is sent here: hyper's handshake of HTTP/1.1 makes values only.
    async fn new(stream: Tap, http: &http1::Builder) -> Result<Self, Failure> {
        let seen = Arc::clone(&stream.seen);
        let (sender, http) = http
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| Failure::ConnectOther(io::Error::other(error)))?;
        Ok(Self {
            sender,
            http: Http(Some(http)),
            seen,
        })
    }

    /// The stream, if another request may follow on it: both sides are through with this one and neither closes.
    async fn at_rest(mut self) -> Option<Tap> {
        let ready = poll_fn(|context| Poll::Ready(self.sender.poll_ready(context)));
        let Poll::Ready(Ok(())) = self.http.drive(ready).await else {
            return None;
        };
        let parts = self.http.0?.into_parts();
        parts.read_buf.is_empty().then(|| parts.io.into_inner())
    }

    async fn answer(&mut self, request: Request<Full<Bytes>>) -> Result<Raw, Broken> {
        let sent = self.sender.try_send_request(request);
        let response = match self.http.drive(sent).await {
            Ok(response) => response,
            Err(mut error) => {
                return Err(match error.take_message() {
                    Some(request) => Broken::Unsent(Box::new(request)),
                    None => Broken::Hyper(error.into_error()),
                });
            }
        };
        let (head, body) = response.into_parts();
        if declared_length(&head.headers) > limits::BODY_BYTES_MAX as u64 {
            return Err(Broken::TooLarge);
        }
        let body = self.body(body).await?;
        Ok(Raw {
            status: head.status.as_u16(),
            headers: head.headers,
            body,
        })
    }

    /// The whole body. Most come in one piece, which is handed on as it is.
    async fn body(&mut self, mut body: Incoming) -> Result<Bytes, Broken> {
        let mut first = Bytes::new();
        let mut whole = BytesMut::new();
        loop {
            let frame = self
                .http
                .drive(poll_fn(|context| Pin::new(&mut body).poll_frame(context)))
                .await;
            let Some(frame) = frame.transpose()? else {
                break;
            };
            let Ok(piece) = frame.into_data() else {
                continue; // trailers
            };
            if first.len().max(whole.len()) + piece.len() > limits::BODY_BYTES_MAX {
                return Err(Broken::TooLarge);
            }
            if first.is_empty() {
                first = piece;
                continue;
            }
            if whole.is_empty() {
                whole.extend_from_slice(&first);
            }
            whole.extend_from_slice(&piece);
        }
        Ok(if whole.is_empty() {
            first
        } else {
            whole.freeze()
        })
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("base", &self.shared.base)
            .field("open", &self.is_open())
            .finish_non_exhaustive()
    }
}

/// `Content-Length`, or 0 where there is none; hyper has refused one that is no number.
fn declared_length(headers: &HeaderMap) -> u64 {
    headers
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse().ok())
        .unwrap_or(0)
}

/// hyper's side of the connection, which does nothing unless it is polled. Gone when it has ended: whoever still waits
/// for it is told by its drop.
struct Http(Option<http1::Connection<TokioIo<Tap>, Full<Bytes>>>);

impl Http {
    /// Waits for `wanted` and keeps the connection going meanwhile.
    async fn drive<F: Future>(&mut self, wanted: F) -> F::Output {
        let mut wanted = pin!(wanted);
        poll_fn(|context| {
            if let Some(http) = &mut self.0
                && Pin::new(http).poll(context).is_ready()
            {
                self.0 = None;
            }
            wanted.as_mut().poll(context)
        })
        .await
    }
}

/// A time-out that knows whether bytes are still coming.
struct Wait {
    patience: Patience,
    deadline: Instant,
    limit: Duration,
}

impl Wait {
    /// `None` when it took too long.
    async fn over<F: Future>(self, seen: &Seen, wanted: F) -> Option<F::Output> {
        let mut wanted = pin!(wanted);
        let mut deadline = self.deadline;
        loop {
            if let Ok(done) = timeout_at(deadline, wanted.as_mut()).await {
                return Some(done);
            }
            let still_moving = seen.last_in().map(|last| last + self.limit);
            match (self.patience, still_moving) {
                (Patience::Stall, Some(next)) if next > deadline => deadline = next,
                _ => return None,
            }
        }
    }
}

/// When bytes went and came, since the request began. Shared by the socket's side and the request's side.
#[derive(Debug)]
struct Seen {
    start: Instant,
    first_out: AtomicU64,
    last_in: AtomicU64,
}

/// No byte yet. Other values are nanoseconds since the start of the transport.
const NEVER: u64 = u64::MAX;

impl Seen {
    fn new(start: Instant) -> Self {
        Self {
            start,
            first_out: AtomicU64::new(NEVER),
            last_in: AtomicU64::new(NEVER),
        }
    }

    fn begin(&self) {
        self.first_out.store(NEVER, Relaxed);
        self.last_in.store(NEVER, Relaxed);
    }

    fn nanos(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(NEVER - 1)
    }

    fn at(&self, moment: &AtomicU64) -> Option<Instant> {
        match moment.load(Relaxed) {
            NEVER => None,
            nanos => Some(self.start + Duration::from_nanos(nanos)),
        }
    }

    fn first_out(&self) -> Option<Instant> {
        self.at(&self.first_out)
    }

    fn last_in(&self) -> Option<Instant> {
        self.at(&self.last_in)
    }
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// A stream that notes when its bytes move; it changes none.
struct Tap {
    stream: Stream,
    seen: Arc<Seen>,
}

impl Tap {
    fn writing(&self) {
        if self.seen.first_out.load(Relaxed) == NEVER {
            self.seen.first_out.store(self.seen.nanos(), Relaxed);
        }
    }
}

impl AsyncRead for Tap {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Stream::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        };
        if buffer.filled().len() > before {
            self.seen.last_in.store(self.seen.nanos(), Relaxed);
        }
        polled
    }
}

impl AsyncWrite for Tap {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.writing();
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.writing();
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Stream::Tls(stream) => Pin::new(stream).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Stream::Plain(stream) => stream.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(context),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
