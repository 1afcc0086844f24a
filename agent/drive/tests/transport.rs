//! The transport against a server that does exactly what a row says: what comes back, how often it was sent, and what
//! an observer was told.

#![expect(
    clippy::unwrap_used,
    reason = "a test that unwraps fails where it was wrong"
)]

use std::time::Duration;

use agent_drive::{
    BaseUrl, Connection, Exchange, Failure, Observer, Patience, Raw, Settings, TimeOuts, Transport,
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method};
use portal::{Act, Server, answer, ok};
use protocol::dialect::Dialect;
use protocol::limits::BODY_BYTES_MAX;
use record::Outcome;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::time::Instant;

mod portal;

const LONG: TimeOuts = TimeOuts {
    connect: Duration::from_secs(10),
    request: Duration::from_secs(30),
};

fn post(body: &'static str) -> Exchange<'static> {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    Exchange {
        method: Method::POST,
        path: "/agent/v1/sync",
        headers,
        body: Bytes::from_static(body.as_bytes()),
        patience: Patience::Whole,
    }
}

async fn send(connection: &mut Connection, body: &'static str) -> Result<Raw, Failure> {
    connection.exchange(post(body), &mut ()).await
}

async fn outcome(connection: &mut Connection) -> Outcome {
    match send(connection, "{}").await {
        Ok(raw) => Outcome::of_status(raw.status),
        Err(failure) => failure.outcome(),
    }
}

/// What an observer was told, as words, and the moments.
#[derive(Debug, Default)]
struct Told {
    words: Vec<&'static str>,
    first_byte_out: Option<Instant>,
    last_byte_in: Option<Instant>,
}

impl Observer for Told {
    fn dns(&mut self, _: Duration) {
        self.words.push("dns");
    }
    fn tcp(&mut self, _: Duration) {
        self.words.push("tcp");
    }
    fn tls(&mut self, _: Duration, resumed: bool) {
        self.words
            .push(if resumed { "tls resumed" } else { "tls full" });
    }
    fn connected(&mut self, kept: bool) {
        self.words.push(if kept { "kept" } else { "new" });
    }
    fn first_byte_out(&mut self, at: Instant) {
        self.first_byte_out = Some(at);
    }
    fn last_byte_in(&mut self, at: Instant) {
        self.last_byte_in = Some(at);
    }
}

// rule WIRE-1: and one connection serves call after call.
#[tokio::test]
async fn a_connection_is_kept_and_each_call_says_what_it_took() {
    let server = Server::tls([ok("1"), ok("2"), ok("3")]).await;
    let mut connection = server.transport(LONG).connection();
    assert!(!connection.is_open());
    for (body, words) in [
        ("1", &["tcp", "tls full", "new"][..]),
        ("2", &["kept"]),
        ("3", &["kept"]),
    ] {
        let mut told = Told::default();
        let before = Instant::now();
        let raw = connection.exchange(post("{}"), &mut told).await.unwrap();
        assert_eq!((raw.status, &raw.body[..]), (200, body.as_bytes()));
        assert_eq!(told.words, words);
        let (out, last) = (told.first_byte_out.unwrap(), told.last_byte_in.unwrap());
        assert!(before <= out && out <= last && last <= Instant::now());
    }
    assert!(connection.is_open());
    assert_eq!(server.connections(), 1);
    let first = &server.requests()[0];
    assert!(
        first.starts_with("POST /agent/v1/sync HTTP/1.1\r\n"),
        "{first}"
    );
    assert!(
        first.contains(&format!("host: {}\r\n", server.address)),
        "{first}"
    );
}

// rule SIGN-2: a prefix inside the base is asked for; what is signed begins after it.
#[tokio::test]
async fn a_prefix_of_the_base_stands_before_the_path() {
    let server = Server::plain([ok("1")]).await;
    let transport = server.transport_below("/some/prefix/agent/v1", LONG);
    send(&mut transport.connection(), "{}").await.unwrap();
    let first = &server.requests()[0];
    assert!(
        first.starts_with("POST /some/prefix/agent/v1/sync HTTP/1.1\r\n"),
        "{first}"
    );
}

// case L34: a session is resumed by the connection that made it, and by no other.
#[tokio::test]
async fn full_and_resumed_handshakes_are_told_apart() {
    let close = || Act::SendAndClose(answer("200 OK", "1"));
    let server = Server::tls([close(), close(), close()]).await;
    let transport = server.transport(LONG);
    let (mut one, mut other) = (transport.connection(), transport.connection());
    let mut rows = Vec::new();
    for (at, connection) in [&mut one, &mut other].into_iter().chain([]).enumerate() {
        let mut told = Told::default();
        connection.exchange(post("{}"), &mut told).await.unwrap();
        server.closed(at + 1).await;
        rows.push(told.words);
    }
    let mut told = Told::default();
    one.exchange(post("{}"), &mut told).await.unwrap();
    rows.push(told.words);
    assert_eq!(
        rows,
        [
            ["tcp", "tls full", "new"],
            ["tcp", "tls full", "new"],
            ["tcp", "tls resumed", "new"]
        ]
    );
}

// case L35: closed while idle is no failure; closed under the request is a class of its own. Neither is sent twice.
#[tokio::test]
async fn a_request_is_never_sent_twice() {
    let rows = [
        // Closed after the first answer, and we could know it: a new connection, nothing lost.
        (
            Act::SendAndClose(answer("200 OK", "1")),
            ok("2"),
            Outcome::Ok,
            2,
        ),
        // Closed while the second request was on its way.
        (
            ok("1"),
            Act::SendAndClose(Vec::new()),
            Outcome::StaleConnection,
            1,
        ),
        (ok("1"), Act::Reset, Outcome::StaleConnection, 1),
        // A byte of the answer came: not the race.
        (
            ok("1"),
            Act::SendAndClose(b"HTTP/1.1 2".to_vec()),
            Outcome::ClosedEarly,
            1,
        ),
    ];
    for (first, second, expected, connections) in rows {
        for secure in [true, false] {
            let acts = [first.clone(), second.clone()];
            let server = match secure {
                true => Server::tls(acts).await,
                false => Server::plain(acts).await,
            };
            let mut connection = server.transport(LONG).connection();
            assert_eq!(outcome(&mut connection).await, Outcome::Ok);
            if matches!(first, Act::SendAndClose(_)) {
                server.closed(1).await;
            }
            let context = format!("{first:?} then {second:?}, secure {secure}");
            assert_eq!(outcome(&mut connection).await, expected, "{context}");
            assert_eq!(server.requests().len(), 2, "{context}");
            assert_eq!(server.connections(), connections, "{context}");
            assert_eq!(connection.is_open(), expected == Outcome::Ok, "{context}");
        }
    }
}

// Between two calls nobody asks anything, so what comes then is no answer: the next request goes where it gets its own.
#[tokio::test]
async fn what_nobody_asked_for_is_no_answer() {
    let two_at_once = [answer("200 OK", "1"), answer("200 OK", "forged")].concat();
    for secure in [true, false] {
        let acts = [Act::Send(two_at_once.clone()), ok("2")];
        let server = match secure {
            true => Server::tls(acts).await,
            false => Server::plain(acts).await,
        };
        let mut connection = server.transport(LONG).connection();
        for (body, connections) in [("1", 1), ("2", 2)] {
            let raw = send(&mut connection, "{}").await.unwrap();
            assert_eq!(&raw.body[..], body.as_bytes(), "secure {secure}");
            assert_eq!(server.connections(), connections, "secure {secure}");
        }
    }
}

#[tokio::test]
async fn a_new_connection_that_breaks_is_no_race() {
    for (act, expected) in [
        (Act::SendAndClose(Vec::new()), Outcome::ClosedEarly),
        (
            Act::SendAndClose(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n123".to_vec()),
            Outcome::ClosedEarly,
        ),
        (Act::Reset, Outcome::Reset),
        (
            Act::SendAndClose(b"SSH-2.0-OpenSSH_9.6\r\n".to_vec()),
            Outcome::BrokenAnswer,
        ),
        (
            Act::SendAndClose(b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n".to_vec()),
            Outcome::BrokenAnswer,
        ),
    ] {
        let server = Server::plain([act.clone()]).await;
        assert_eq!(
            outcome(&mut server.transport(LONG).connection()).await,
            expected,
            "{act:?}"
        );
        assert_eq!(server.requests().len(), 1, "{act:?}");
    }
}

// rule WIRE-2
#[tokio::test]
async fn an_answer_of_256_kib_is_read_and_one_byte_more_is_not() {
    let max = "x".repeat(BODY_BYTES_MAX);
    let chunked = |bytes: usize| {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        Act::Send(format!("{head}{bytes:x}\r\n{}\r\n0\r\n\r\n", "x".repeat(bytes)).into_bytes())
    };
    for (act, expected) in [
        (ok(&max), Ok(BODY_BYTES_MAX)),
        (ok(&format!("{max}x")), Err(Outcome::AnswerTooLarge)),
        (chunked(BODY_BYTES_MAX), Ok(BODY_BYTES_MAX)),
        (chunked(BODY_BYTES_MAX + 1), Err(Outcome::AnswerTooLarge)),
    ] {
        let server = Server::tls([act]).await;
        let answered = send(&mut server.transport(LONG).connection(), "{}").await;
        let got = answered
            .map(|raw| raw.body.len())
            .map_err(|failure| failure.outcome());
        assert_eq!(got, expected);
    }
}

// rule WIRE-2: reading stops, it does not only forget.
#[tokio::test]
async fn an_endless_answer_is_not_read_on() {
    let piece = || {
        let mut piece = b"10000\r\n".to_vec();
        piece.extend_from_slice(&[b'x'; 0x10000]);
        piece.extend_from_slice(b"\r\n");
        piece
    };
    let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    let header = b"HTTP/1.1 200 OK\r\nX-Endless: ".to_vec();
    for act in [
        Act::Flood(chunked, piece()),
        Act::Flood(header, vec![b'y'; 4096]),
    ] {
        let server = Server::plain([act]).await;
        let mut connection = server.transport(LONG).connection();
        assert_eq!(outcome(&mut connection).await, Outcome::AnswerTooLarge);
        server.closed(1).await;
        // What was read, and what the kernel's buffers took before they saw the close.
        assert!(
            server.flooded_bytes() < 16 << 20,
            "{}",
            server.flooded_bytes()
        );
    }
}

// rule WIRE-3
#[tokio::test]
async fn a_redirect_is_an_answer_and_is_not_followed() {
    for status in [
        "301 Moved",
        "302 Found",
        "303 See Other",
        "307 Temporary Redirect",
        "308 Permanent Redirect",
    ] {
        let target = Server::plain([ok("1")]).await;
        let redirect = format!(
            "HTTP/1.1 {status}\r\nLocation: {}\r\nContent-Length: 0\r\n\r\n",
            target.url("/agent/v1/sync")
        );
        let server = Server::plain([Act::Send(redirect.into_bytes())]).await;
        let raw = send(&mut server.transport(LONG).connection(), "{}")
            .await
            .unwrap();
        assert_eq!(raw.status.to_string(), status[..3]);
        assert!(raw.headers.contains_key("location"));
        assert_eq!(
            (server.requests().len(), target.connections()),
            (1, 0),
            "{status}"
        );
    }
}

#[tokio::test]
async fn a_portal_that_is_not_there_is_told_by_what_was_missing() {
    let free = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let untrusted = Server::tls([]).await;
    let clear = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let in_clear = clear.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = clear.accept().await.unwrap();
        stream
            .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .await
            .unwrap();
    });
    let rows = [
        (format!("http://{free}"), Outcome::ConnectRefused),
        ("https://portal.invalid".to_owned(), Outcome::Dns),
        (untrusted.url(""), Outcome::Tls),
        (
            format!("https://localhost:{}", in_clear.port()),
            Outcome::Tls,
        ),
    ];
    let nobody =
        agent_drive::tls::client_config(&agent_drive::tls::Trust::Only(Vec::new())).unwrap();
    for (url, expected) in rows {
        let base = BaseUrl::parse(&url, &Dialect::default()).unwrap();
        let transport = Transport::new(base, &nobody, Settings::default()).unwrap();
        assert_eq!(
            outcome(&mut transport.connection()).await,
            expected,
            "{url}"
        );
    }
}

// rule WIRE-7
#[tokio::test]
async fn nobody_is_waited_for_longer_than_said() {
    let of_a_node = Settings::default().time_outs;
    assert_eq!(of_a_node.connect, Duration::from_secs(10));
    assert_eq!(of_a_node.request, Duration::from_secs(30));

    let short = TimeOuts {
        connect: Duration::from_millis(100),
        request: Duration::from_millis(200),
    };
    let head = || b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n".to_vec();
    // Accepts TCP, never speaks TLS.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = BaseUrl::parse(
        &format!("https://{}", silent.local_addr().unwrap()),
        &Dialect::default(),
    );
    let nobody =
        agent_drive::tls::client_config(&agent_drive::tls::Trust::Only(Vec::new())).unwrap();
    let never = Duration::from_secs(3600);
    let connects_soon = TimeOuts {
        request: never,
        ..short
    };
    let settings = Settings {
        time_outs: connects_soon,
        ..Settings::default()
    };
    let silent = Transport::new(base.unwrap(), &nobody, settings).unwrap();
    let mut connection = silent.connection();
    let ended = tokio::time::timeout(LONG.request, outcome(&mut connection)).await;
    assert_eq!(
        ended.expect("a connection has its own limit"),
        Outcome::TimedOutConnect
    );

    for act in [Act::Hang, Act::Drip(head(), b"12".to_vec(), never)] {
        let server = Server::tls([act.clone()]).await;
        let mut connection = server.transport(short).connection();
        let before = Instant::now();
        assert_eq!(
            outcome(&mut connection).await,
            Outcome::TimedOutAnswer,
            "{act:?}"
        );
        assert!(before.elapsed() >= short.request, "{act:?}");
        assert!(
            !connection.is_open(),
            "{act:?}: its answer would be taken for the next one's"
        );
    }
}

// rule WIRE-7: a download is limited by how long it stands still, not by its total time.
#[tokio::test]
async fn a_slow_download_goes_on_and_a_stalled_one_does_not() {
    let second = TimeOuts {
        connect: Duration::from_secs(1),
        request: Duration::from_secs(1),
    };
    let drip = |bytes: &str, length: usize| {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
        Act::Drip(head.into_bytes(), bytes.into(), Duration::from_millis(250))
    };
    for (patience, act, expected) in [
        (Patience::Stall, drip("1234567", 7), Ok(7)),
        (
            Patience::Whole,
            drip("1234567", 7),
            Err(Outcome::TimedOutAnswer),
        ),
        (
            Patience::Stall,
            drip("1234", 7),
            Err(Outcome::TimedOutAnswer),
        ),
    ] {
        let server = Server::plain([act, Act::Hang]).await;
        let request = Exchange {
            patience,
            ..post("{}")
        };
        let answered = server
            .transport(second)
            .connection()
            .exchange(request, &mut ())
            .await;
        let got = answered
            .map(|raw| raw.body.len())
            .map_err(|failure| failure.outcome());
        assert_eq!(got, expected, "{patience:?}");
    }
}

// rule WIRE-2: a portal answers 413 before it has the whole body, and the agent can read it.
#[tokio::test]
async fn an_answer_that_comes_before_the_request_is_sent_is_read() {
    let early = Act::SendAfterHead(answer("413 Content Too Large", "{}"));
    let server = Server::plain([early]).await;
    let big = Exchange {
        body: Bytes::from(vec![b'x'; 8 << 20]),
        ..post("")
    };
    let raw = server
        .transport(LONG)
        .connection()
        .exchange(big, &mut ())
        .await
        .unwrap();
    assert_eq!((raw.status, &raw.body[..]), (413, &b"{}"[..]));
}

#[tokio::test]
async fn an_answer_that_ends_with_its_connection_is_whole() {
    let ends = || Act::SendAndClose(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n123".to_vec());
    let server = Server::plain([ends(), ends()]).await;
    let mut connection = server.transport(LONG).connection();
    for connections in 1..=2 {
        assert_eq!(send(&mut connection, "{}").await.unwrap().body, "123");
        assert_eq!(server.connections(), connections);
    }
}

// A crash of an agent is a dropped future: its socket goes with it.
#[tokio::test]
async fn a_dropped_exchange_closes_its_connection() {
    let server = Server::tls([Act::Hang]).await;
    let mut connection = server.transport(LONG).connection();
    let mut exchange = Box::pin(send(&mut connection, "{}"));
    tokio::select! {
        biased;
        _ = &mut exchange => unreachable!("nobody answers"),
        () = async { while server.requests().is_empty() { tokio::task::yield_now().await; } } => {}
    }
    drop(exchange);
    assert!(!connection.is_open());
}

#[tokio::test]
async fn connections_leave_from_the_addresses_they_were_given() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = BaseUrl::parse(
        &format!("http://{}", listener.local_addr().unwrap()),
        &Dialect::default(),
    );
    let nobody =
        agent_drive::tls::client_config(&agent_drive::tls::Trust::Only(Vec::new())).unwrap();
    let sources = ["127.0.0.2", "127.0.0.3"]
        .map(|ip| ip.parse().unwrap())
        .to_vec();
    let settings = Settings {
        sources: sources.clone(),
        ..Settings::default()
    };
    let transport = Transport::new(base.unwrap(), &nobody, settings).unwrap();
    let mut from = Vec::new();
    for _ in 0..3 {
        let mut connection = transport.connection();
        let accept = async { listener.accept().await.unwrap().1.ip() };
        tokio::select! {
            biased;
            _ = send(&mut connection, "{}") => unreachable!("nobody answers"),
            ip = accept => from.push(ip),
        }
    }
    assert_eq!(from, [sources[0], sources[1], sources[0]]);
}
