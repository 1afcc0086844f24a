//! One connection below HTTP: how long it may be silent, and what hyper does not tell about a request.
//!
//! hyper has one clock for a head that is being read and for a connection that waits for the next request. An agent
//! calls every 30 s and keeps its connection; a head that takes so long is an attack or a fault. So the two are told
//! apart here, by looking at when bytes come. Nothing here changes a byte.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Interval, MissedTickBehavior};

/// How long a connection may keep the server waiting. Looked at as often as the shortest of them, so that a busy
/// connection pays for no timer: a wait ends between one and two times its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// For the TLS handshake.
    pub handshake: Duration,
    /// From a head's first byte to its last.
    pub head: Duration,
    /// Between two requests. At least 75 s: more than twice an agent's pace, so that the server is never the one that
    /// closes while a request is on its way.
    pub idle: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(10),
            head: Duration::from_secs(10),
            idle: Duration::from_secs(90),
        }
    }
}

/// What a connection is at; shared by the socket's side and the requests' side of it.
#[derive(Debug, Default)]
pub struct Progress {
    phase: AtomicU8,
    content_length_line: AtomicBool,
}

const WAITING: u8 = 0;
const HEAD: u8 = 1;
const BUSY: u8 = 2;

impl Progress {
    /// A request's head is complete. Tells whether a `Content-Length` line came since the last one: hyper takes it out
    /// where `Transfer-Encoding` stands beside it, so this is the only trace of a head that has both.
    ///
    /// A client that sends a second request before it has the first one's answer can be taken for one; agents do not.
    pub fn request_begins(&self) -> bool {
        self.phase.store(BUSY, Relaxed);
        self.content_length_line.swap(false, Relaxed)
    }

    /// The answer is on its way; the next request may be waited for.
    pub fn request_ended(&self) {
        self.phase.store(WAITING, Relaxed);
    }
}

/// A socket, or TLS over one, that watches its own progress.
#[derive(Debug)]
pub struct Watched<T> {
    inner: T,
    progress: Arc<Progress>,
    patience: Patience,
    look: Interval,
    /// The phase at the last look or byte, and since when.
    since: (u8, Instant),
    line: LineFinder,
}

impl<T> Watched<T> {
    /// Watches `inner` from now on.
    pub fn new(inner: T, patience: Patience, progress: Arc<Progress>) -> Self {
        let now = Instant::now();
        let period = patience.head.min(patience.idle);
        let mut look = tokio::time::interval_at(now + period, period);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            inner,
            progress,
            patience,
            look,
            since: (WAITING, now),
            line: LineFinder::default(),
        }
    }

    /// Whether the connection has been silent for too long, by the phase that it is in.
    fn verdict(&mut self, now: Instant) -> Option<Silence> {
        let phase = self.progress.phase.load(Relaxed);
        if phase != self.since.0 {
            self.since = (phase, now);
        }
        let silent = now.saturating_duration_since(self.since.1);
        match phase {
            WAITING if silent >= self.patience.idle => Some(Silence::Idle),
            HEAD if silent >= self.patience.head => Some(Silence::Head),
            _ => None,
        }
    }
}

enum Silence {
    Idle,
    Head,
}

impl<T: AsyncRead + Unpin> AsyncRead for Watched<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        match Pin::new(&mut this.inner).poll_read(context, buffer) {
            Poll::Ready(Ok(())) => {
                let came = &buffer.filled()[before..];
                if !came.is_empty() && this.progress.phase.load(Relaxed) == WAITING {
                    this.progress.phase.store(HEAD, Relaxed);
                }
                if this.line.feed(came) {
                    this.progress.content_length_line.store(true, Relaxed);
                }
                return Poll::Ready(Ok(()));
            }
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => {}
        }
        while let Poll::Ready(now) = this.look.poll_tick(context) {
            match this.verdict(now) {
                None => {}
                Some(Silence::Idle) => return Poll::Ready(Ok(())), // end of stream: hyper closes in peace
                Some(Silence::Head) => {
                    return Poll::Ready(Err(io::Error::new(
                        io::ErrorKind::TimedOut,
                        "a request's head was not complete in time",
                    )));
                }
            }
        }
        Poll::Pending
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Watched<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

/// Finds a line that begins with `content-length`, however the bytes are cut into reads. A body of JSON never holds
/// one: a raw line break is only ever between its tokens.
#[derive(Debug, Default)]
struct LineFinder {
    /// How much of the needle the last bytes are.
    matched: usize,
}

const NEEDLE: &[u8] = b"\ncontent-length";

impl LineFinder {
    fn feed(&mut self, bytes: &[u8]) -> bool {
        let (mut found, mut at) = (false, 0);
        while at < bytes.len() {
            if self.matched == 0 {
                // The needle's first byte occurs nowhere else in it, so nothing before the next one matters.
                match bytes[at..].iter().position(|byte| *byte == b'\n') {
                    Some(skip) => at += skip,
                    None => return found,
                }
            }
            if bytes[at].to_ascii_lowercase() == NEEDLE[self.matched] {
                self.matched += 1;
                at += 1;
                if self.matched == NEEDLE.len() {
                    (found, self.matched) = (true, 0);
                }
            } else if self.matched == 0 {
                at += 1;
            } else {
                self.matched = 0; // and the same byte again, as a possible first one
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[test]
    fn a_content_length_line_is_found_however_it_is_cut() {
        let rows: &[(&str, bool)] = &[
            ("POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\n", true),
            ("POST / HTTP/1.1\r\nCONTENT-LENGTH:1\r\n", true),
            ("a\n\ncontent-length", true),
            ("a\ncontent-\ncontent-length", true),
            ("POST / HTTP/1.1\r\nX-Content-Length: 1\r\n", false),
            ("{\"content-length\": 1}", false),
            ("\ncontent-lengt", false),
        ];
        for (text, found) in rows {
            for cut in 0..=text.len() {
                let mut line = LineFinder::default();
                let (head, tail) = text.as_bytes().split_at(cut);
                assert_eq!(
                    line.feed(head) | line.feed(tail),
                    *found,
                    "{text:?} cut at {cut}"
                );
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_judged_by_what_the_connection_is_at() {
        let patience = Patience {
            handshake: Duration::from_secs(1),
            head: Duration::from_secs(10),
            idle: Duration::from_secs(90),
        };
        /// Reads until the watched end gives up, and tells after how many seconds, and how.
        async fn ends(
            mut watched: Watched<tokio::io::DuplexStream>,
        ) -> (u64, Result<usize, io::ErrorKind>) {
            let start = Instant::now();
            let reading = async {
                loop {
                    match watched.read(&mut [0; 64]).await {
                        Ok(0) => return Ok(0),
                        Ok(_) => {}
                        Err(error) => return Err(error.kind()),
                    }
                }
            };
            let day = Duration::from_secs(86_400);
            let ended = tokio::time::timeout(day, reading)
                .await
                .expect("it gives up within a day");
            (start.elapsed().as_secs(), ended)
        }
        let connection = || {
            let (client, server) = tokio::io::duplex(1024);
            let progress = Arc::new(Progress::default());
            (
                client,
                Watched::new(server, patience, Arc::clone(&progress)),
                progress,
            )
        };

        let (_client, watched, _progress) = connection();
        assert_eq!(ends(watched).await, (90, Ok(0)), "idle: closed in peace");

        let (mut client, watched, _progress) = connection();
        client.write_all(b"GET / HTT").await.unwrap();
        let (seconds, ended) = ends(watched).await;
        assert_eq!(ended, Err(io::ErrorKind::TimedOut), "a head that stalls");
        assert!((10..=20).contains(&seconds), "{seconds} s");

        let (client, watched, progress) = connection();
        progress.request_begins();
        let answered = async {
            tokio::time::timeout(Duration::from_secs(3600), std::future::pending::<()>())
                .await
                .unwrap_err();
            progress.request_ended();
            client
        };
        let (_client, (seconds, ended)) = tokio::join!(answered, ends(watched));
        assert_eq!(
            ended,
            Ok(0),
            "a request that takes an hour is not the connection's silence"
        );
        assert!((3690..=3710).contains(&seconds), "{seconds} s");
    }
}
