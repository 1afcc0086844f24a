//! The portal on real sockets: TLS, framing, what is slow, its end and its restart under load.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use mock_portal::agent_api::Profile;
use mock_portal::tls::{self, Certificate};
use mock_portal::wire::Patience;
use mock_portal::{Config, Running, Server, StartError, keys};
use protocol::endpoint::Endpoint;
use protocol::problem::ProblemCode;
use record::Outcome;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::client::{Agent, Message, SYNC, address, exchange, post, read_answer, server, token};

/// Nothing here takes so long; a test that hangs fails instead.
const LONG: Duration = Duration::from_secs(60);

fn with_tls(config: &mut Config) {
    config.certificate = Some(Certificate::self_signed(None).unwrap());
}

fn connector(running: &Running) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    let ca = running.ca_pem.as_ref().unwrap();
    roots
        .add(CertificateDer::from_pem_slice(ca.as_bytes()).unwrap())
        .unwrap();
    let config = ClientConfig::builder_with_provider(tls::provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

async fn connect(
    connector: &TlsConnector,
    address: SocketAddr,
) -> std::io::Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from("localhost").unwrap();
    connector
        .connect(name, TcpStream::connect(address).await?)
        .await
}

/// Enrolls an agent over a connection of its own.
async fn enrolled(running: &Running, connector: &TlsConnector, node: &str) -> Agent {
    let mut agent = Agent::new(node);
    let token = token(&running.portal, node);
    let mut stream = connect(connector, address(&running.agents_url))
        .await
        .unwrap();
    let answer = exchange(&mut stream, &agent.enrollment(&token))
        .await
        .unwrap();
    assert_eq!(answer.status, 200, "{:?}", answer.json());
    agent.id = answer.json()["agent_id"].as_str().unwrap().to_owned();
    agent
}

#[tokio::test]
async fn agents_keep_a_tls_connection_and_resume_the_next() {
    let running = server(with_tls).await;
    let connector = connector(&running);
    let mut agent = enrolled(&running, &connector, "n1").await;
    let mut stream = connect(&connector, address(&running.agents_url))
        .await
        .unwrap();
    for _ in 0..3 {
        assert_eq!(
            exchange(&mut stream, &agent.sync()).await.unwrap().status,
            200
        );
    }
    let lab = lab_call(&running, "GET", "/counters").await;
    let connections = &lab["connections"];
    assert_eq!(
        (&connections["tls_full"], &connections["tls_resumed"]),
        (&json!(1), &json!(1)),
        "{lab}"
    );
    assert_eq!(
        (&connections["open"], &connections["broken"]),
        (&json!(1), &json!(0)),
        "{lab}"
    );
    assert_eq!(running.counters().answered[Endpoint::Sync][Outcome::Ok], 3);

    let asked = format!(
        "/journal?agent={}&endpoint=sync&code=ok&limit=2&bodies=true",
        agent.id
    );
    let journal = lab_call(&running, "GET", &asked).await;
    let sequences: Vec<_> = journal["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| &line["sequence"])
        .collect();
    assert_eq!(sequences, [&json!(3), &json!(4)], "{journal}");
    assert!(
        journal["entries"][1]["body"]
            .as_str()
            .unwrap()
            .contains("\"sequence\":3"),
        "{journal}"
    );
    let later = lab_call(&running, "GET", "/journal?since=1&limit=1").await;
    assert_eq!(
        (&later["entries"][0]["sequence"], &later["next"]),
        (&json!(2), &json!(2)),
        "{later}"
    );
    assert!(later["entries"][0].get("body").is_none(), "{later}");

    assert_eq!(
        lab_call(&running, "GET", "/agents?state=active").await["agents"][0]["id"],
        agent.id
    );
    let revoked = lab_call(&running, "POST", &format!("/agents/{}/revoke", agent.id)).await;
    assert_eq!(revoked["state"], "revoked");
    let answer = exchange(&mut stream, &agent.sync()).await.unwrap();
    assert_eq!(answer.refusal(), (401, "revoked".to_owned()));

    let mut plain = TcpStream::connect(address(&running.agents_url))
        .await
        .unwrap();
    plain.write_all(&agent.sync().bytes()).await.unwrap();
    timeout(LONG, plain.read_to_end(&mut Vec::new()))
        .await
        .unwrap()
        .ok();
    let mut odd = connect(&connector, address(&running.agents_url))
        .await
        .unwrap();
    odd.write_all(b"POST /agent/v1/sync HTTP/1.0\r\n\r\n")
        .await
        .unwrap();
    assert_eq!(read_answer(&mut odd).await.unwrap().status, 400);
    let until_then = lab_call(&running, "POST", "/reset").await;
    assert_eq!(until_then["http_refused"], 1);
    assert_eq!(until_then["connections"]["tls_failed"], 1);
    let since = lab_call(&running, "GET", "/counters").await;
    assert_eq!(
        (
            &since["answers"],
            &since["http_refused"],
            &since["latencies"]
        ),
        (&json!([]), &json!(0), &json!([]))
    );
    assert_eq!(
        lab_call(&running, "GET", "/journal").await,
        json!({"entries": [], "next": 0, "dropped": 0})
    );
    running.shutdown().await;
}

/// A control call over a socket that must succeed.
async fn lab_call(running: &Running, method: &'static str, path: &str) -> serde_json::Value {
    let mut stream = TcpStream::connect(address(&running.lab_url)).await.unwrap();
    let path = format!("/_lab/v1{path}");
    let message = Message {
        method,
        path,
        headers: vec![],
        body: vec![],
    };
    let answer = timeout(LONG, exchange(&mut stream, &message))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(answer.status, 200, "{:?}", answer.json());
    answer.json()
}

// rule WIRE-2, SIGN-6: a client that sends all of its large body reads its 413, and one that never stops is cut off.
#[tokio::test]
async fn a_large_body_is_drained_for_a_second_and_no_longer() {
    let running = server(with_tls).await;
    let connector = connector(&running);
    let mut stream = connect(&connector, address(&running.agents_url))
        .await
        .unwrap();
    let sent_whole = async {
        stream
            .write_all(&post(SYNC, &vec![b' '; 4 << 20]).bytes())
            .await
            .unwrap();
        read_answer(&mut stream).await
    };
    let answer = timeout(LONG, sent_whole).await.unwrap().unwrap();
    assert_eq!(answer.refusal(), (413, "body_too_large".to_owned()));

    let mut stream = connect(&connector, address(&running.agents_url))
        .await
        .unwrap();
    let head = format!("POST {SYNC} HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000000\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    assert_eq!(
        timeout(LONG, read_answer(&mut stream))
            .await
            .unwrap()
            .unwrap()
            .status,
        413
    );
    let answered = Instant::now();
    let cut_off = async {
        while stream.write_all(&[b' '; 512]).await.is_ok() && stream.flush().await.is_ok() {}
    };
    timeout(LONG, cut_off).await.unwrap();
    let drained = answered.elapsed();
    assert!(
        (Duration::from_millis(500)..Duration::from_secs(3)).contains(&drained),
        "drained for {drained:?}"
    );
    running.shutdown().await;
}

// rule WIRE-2: whoever asks first is told before a byte of the body is sent.
#[tokio::test]
async fn a_client_that_asks_before_it_sends_is_told() {
    let running = server(|_| {}).await;
    let head = |length: usize| {
        let mut message = post(SYNC, b"");
        message.headers.push(("Expect", "100-continue".to_owned()));
        String::from_utf8(message.bytes())
            .unwrap()
            .replace("Content-Length: 0", &format!("Content-Length: {length}"))
    };
    let mut stream = TcpStream::connect(address(&running.agents_url))
        .await
        .unwrap();
    stream.write_all(head(2).as_bytes()).await.unwrap();
    assert_eq!(
        timeout(LONG, read_answer(&mut stream))
            .await
            .unwrap()
            .unwrap()
            .status,
        100
    );
    stream.write_all(b"{}").await.unwrap();
    assert_eq!(
        timeout(LONG, read_answer(&mut stream))
            .await
            .unwrap()
            .unwrap()
            .status,
        401
    );

    stream.write_all(head(1 << 20).as_bytes()).await.unwrap();
    assert_eq!(
        timeout(LONG, read_answer(&mut stream))
            .await
            .unwrap()
            .unwrap()
            .status,
        413
    );
    let rest = timeout(LONG, stream.read_to_end(&mut Vec::new()))
        .await
        .unwrap();
    assert!(
        matches!(rest, Ok(0)),
        "nothing follows, no 100 either: {rest:?}"
    );
}

#[tokio::test]
async fn framing_that_two_readers_could_read_differently_is_refused() {
    let strict = server(|_| {}).await;
    let friendly = server(|config| config.profile = Profile::Friendly).await;
    let chunked = "2\r\n{}\r\n0\r\n\r\n";
    let large = format!("X-Large: {}", "x".repeat(20_000));
    let many = (0..101)
        .map(|at| format!("X-{at}: x\r\n"))
        .collect::<String>();
    let post = |headers: &str, body: &str| {
        format!(
            "POST /agent/v1/enroll HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n{headers}\r\n\r\n{body}"
        )
    };
    // What is sent; the answers of a strict and a friendly portal: 400 of the portal names a code, hyper's own none.
    let portals = (400, "invalid_request");
    let hypers = (400, "");
    let rows = [
        (
            "a length",
            post("Content-Length: 2", "{}"),
            portals,
            portals,
        ),
        (
            "chunks",
            post("Transfer-Encoding: chunked", chunked),
            portals,
            portals,
        ),
        (
            "two equal lengths",
            post("Content-Length: 2\r\nContent-Length: 2", "{}"),
            portals,
            portals,
        ),
        (
            "two lengths",
            post("Content-Length: 2\r\nContent-Length: 3", "{}"),
            hypers,
            hypers,
        ),
        (
            "a signed length",
            post("Content-Length: +2", "{}"),
            hypers,
            hypers,
        ),
        (
            "chunks in HTTP/1.0",
            post("Transfer-Encoding: chunked", chunked).replace("1.1", "1.0"),
            hypers,
            hypers,
        ),
        (
            "another coding",
            post("Transfer-Encoding: gzip", chunked),
            hypers,
            hypers,
        ),
        ("a folded line", post("X: a\r\n b", ""), hypers, hypers),
        (
            "a blank before the colon",
            post("Content-Length : 2", "{}"),
            hypers,
            hypers,
        ),
        (
            "no HTTP",
            "\u{16}\u{3}\u{1}\r\n\r\n".to_owned(),
            hypers,
            hypers,
        ),
        ("a large header", post(&large, ""), (431, ""), (431, "")),
        ("many headers", post(&many, ""), (431, ""), (431, "")),
    ];
    for (what, bytes, strictly, friendly_too) in rows {
        for (running, (status, code)) in [(&strict, strictly), (&friendly, friendly_too)] {
            let mut stream = TcpStream::connect(address(&running.agents_url))
                .await
                .unwrap();
            stream.write_all(bytes.as_bytes()).await.unwrap();
            let answer = timeout(LONG, read_answer(&mut stream))
                .await
                .unwrap()
                .unwrap();
            assert_eq!(answer.refusal(), (status, code.to_owned()), "{what}");
        }
    }

    // Both, in either order: the strict portal says so; for a friendly one the chunks count (RFC 9112, 6.3).
    for both in [
        "Content-Length: 2\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 2",
    ] {
        for (running, says) in [(&strict, "RFC 9112, 6.1"), (&friendly, "missing field")] {
            let mut stream = TcpStream::connect(address(&running.agents_url))
                .await
                .unwrap();
            stream
                .write_all(post(both, chunked).as_bytes())
                .await
                .unwrap();
            let answer = timeout(LONG, read_answer(&mut stream))
                .await
                .unwrap()
                .unwrap();
            let detail = answer.json()["detail"].as_str().unwrap().to_owned();
            assert!(
                answer.status == 400 && detail.contains(says),
                "{both:?}: {detail}"
            );
            timeout(LONG, stream.read_to_end(&mut Vec::new()))
                .await
                .expect("the connection ends")
                .unwrap();
        }
    }
    strict.shutdown().await;
    friendly.shutdown().await;
}

#[tokio::test]
async fn a_head_that_stalls_ends_the_connection_and_a_quiet_one_is_kept() {
    let patience = Patience {
        handshake: Duration::from_millis(100),
        head: Duration::from_millis(100),
        idle: LONG,
    };
    let running = server(|config| config.patience = patience).await;
    let mut quiet = TcpStream::connect(address(&running.agents_url))
        .await
        .unwrap();
    let mut slow = TcpStream::connect(address(&running.agents_url))
        .await
        .unwrap();
    slow.write_all(b"POST /agent/v1/sync HT").await.unwrap();
    let ended = timeout(LONG, slow.read_to_end(&mut Vec::new()))
        .await
        .expect("the head's time is over");
    assert!(
        matches!(ended, Ok(0) | Err(_)),
        "something was answered: {ended:?}"
    );
    let answer = timeout(LONG, exchange(&mut quiet, &post(SYNC, b"{}")))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(answer.status, 401, "the quiet one is still there");

    let with_tls = server(|config| {
        with_tls(config);
        config.patience = patience;
    })
    .await;
    let mut silent = TcpStream::connect(address(&with_tls.agents_url))
        .await
        .unwrap();
    timeout(LONG, silent.read_to_end(&mut Vec::new()))
        .await
        .expect("the handshake's time is over")
        .ok();
    assert_eq!(
        lab_call(&with_tls, "GET", "/counters").await["connections"]["tls_failed"],
        1
    );
}

#[tokio::test]
async fn an_end_finishes_what_is_being_answered_and_nothing_else() {
    let running = server(|_| {}).await;
    let at = address(&running.agents_url);
    let mut idle = TcpStream::connect(at).await.unwrap();
    assert_eq!(
        exchange(&mut idle, &post(SYNC, b"{}"))
            .await
            .unwrap()
            .status,
        401
    );
    let (mut busy, rest) = half_a_request(at).await;
    let end = tokio::spawn(running.shutdown());
    let closed = timeout(LONG, idle.read_to_end(&mut Vec::new()))
        .await
        .unwrap();
    assert!(
        matches!(closed, Ok(0)),
        "an idle connection is closed in peace: {closed:?}"
    );
    busy.write_all(&rest).await.unwrap();
    let answer = timeout(LONG, read_answer(&mut busy)).await.unwrap();
    assert_eq!(answer.expect("what had begun is answered").status, 401);
    timeout(LONG, end).await.unwrap().unwrap();
    assert!(
        TcpStream::connect(at).await.is_err(),
        "nobody listens any more"
    );
}

#[tokio::test]
async fn a_connection_that_waits_too_long_after_its_answer_is_closed_in_peace() {
    let idle = Duration::from_millis(100);
    let running = server(|config| config.patience.idle = idle).await;
    let mut stream = TcpStream::connect(address(&running.agents_url))
        .await
        .unwrap();
    for _ in 0..2 {
        assert_eq!(
            exchange(&mut stream, &post(SYNC, b"{}"))
                .await
                .unwrap()
                .status,
            401
        );
    }
    let closed = timeout(LONG, stream.read_to_end(&mut Vec::new()))
        .await
        .expect("its time is over");
    assert!(matches!(closed, Ok(0)), "{closed:?}");
    assert_eq!(
        lab_call(&running, "GET", "/counters").await["connections"]["broken"],
        0
    );
}

#[tokio::test]
async fn a_fleet_larger_than_any_table_of_sessions_resumes() {
    let running = server(with_tls).await;
    let at = address(&running.agents_url);
    let fleet: Vec<_> = (0..300).map(|_| connector(&running)).collect();
    for _ in 0..2 {
        for connector in &fleet {
            let mut stream = connect(connector, at).await.unwrap();
            assert_eq!(
                exchange(&mut stream, &post(SYNC, b"{}"))
                    .await
                    .unwrap()
                    .status,
                401
            );
        }
    }
    let connections = &lab_call(&running, "GET", "/counters").await["connections"];
    assert_eq!(
        (&connections["tls_full"], &connections["tls_resumed"]),
        (&json!(300), &json!(300))
    );
}

#[tokio::test]
async fn a_restart_breaks_what_is_being_answered() {
    let mut running = server(|_| {}).await;
    let at = address(&running.agents_url);
    let (mut busy, rest) = half_a_request(at).await;
    timeout(Duration::from_secs(3), running.restart(false))
        .await
        .expect("a restart waits for nobody")
        .unwrap();
    busy.write_all(&rest).await.ok();
    let answer = timeout(LONG, read_answer(&mut busy))
        .await
        .expect("the connection is gone");
    assert_eq!(answer, None);
    let mut next = TcpStream::connect(at).await.unwrap();
    assert_eq!(
        exchange(&mut next, &post(SYNC, b"{}"))
            .await
            .unwrap()
            .status,
        401
    );
}

/// A connection on which the server has read all of a request but its end, and that end.
async fn half_a_request(at: SocketAddr) -> (TcpStream, Vec<u8>) {
    let (mut busy, mut other) = (
        TcpStream::connect(at).await.unwrap(),
        TcpStream::connect(at).await.unwrap(),
    );
    let message = post(SYNC, b"{}");
    for stream in [&mut busy, &mut other] {
        assert_eq!(exchange(stream, &message).await.unwrap().status, 401);
    }
    let mut begun = message.bytes();
    let rest = begun.split_off(begun.len() - 1);
    busy.write_all(&begun).await.unwrap();
    // One thread, two connections: it reads what came first before it answers what came second.
    assert_eq!(exchange(&mut other, &message).await.unwrap().status, 401);
    (busy, rest)
}

#[tokio::test]
async fn an_address_in_use_is_named_with_what_to_do() {
    let running = server(|_| {}).await;
    let mut config = Config::new(keys::settings_of_seed(7));
    config.agents = address(&running.agents_url);
    let Err(error @ StartError::Bind(_)) = Server::start(config).await else {
        panic!("two servers on one address")
    };
    let text = error.to_string();
    assert!(
        text.contains(&address(&running.agents_url).to_string()),
        "{text}"
    );
    assert!(
        text.contains("in use") && text.contains("another port"),
        "{text}"
    );
}

/// Agents that sync for ever, each on a connection of its own that it opens again whenever it breaks.
struct Load {
    stop: Arc<AtomicBool>,
    tally: Arc<Tally>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

#[derive(Default)]
struct Tally {
    ok: AtomicU64,
    unknown: AtomicU64,
    other: AtomicU64,
    broken: AtomicU64,
}

impl Load {
    fn start(connector: &TlsConnector, at: SocketAddr, agents: Vec<Agent>) -> Self {
        let (stop, tally) = (Arc::new(AtomicBool::new(false)), Arc::new(Tally::default()));
        let tasks = agents
            .into_iter()
            .map(|agent| {
                tokio::spawn(sync_for_ever(
                    agent,
                    connector.clone(),
                    at,
                    Arc::clone(&stop),
                    Arc::clone(&tally),
                ))
            })
            .collect();
        Self { stop, tally, tasks }
    }

    /// Waits until the agents together have seen so much of something.
    async fn until(&self, of: impl Fn(&Tally) -> &AtomicU64, more: u64) {
        let due = of(&self.tally).load(Relaxed) + more;
        let seen = async {
            while of(&self.tally).load(Relaxed) < due {
                tokio::task::yield_now().await;
            }
        };
        timeout(LONG, seen).await.expect("the load goes on");
    }

    async fn end(self) -> Arc<Tally> {
        self.stop.store(true, Relaxed);
        for task in self.tasks {
            timeout(LONG, task).await.expect("an agent hangs").unwrap();
        }
        self.tally
    }
}

async fn sync_for_ever(
    mut agent: Agent,
    connector: TlsConnector,
    at: SocketAddr,
    stop: Arc<AtomicBool>,
    tally: Arc<Tally>,
) {
    let mut kept = None;
    while !stop.load(Relaxed) {
        let mut stream = match kept.take() {
            Some(stream) => stream,
            None => match connect(&connector, at).await {
                Ok(stream) => stream,
                Err(_) => {
                    tally.broken.fetch_add(1, Relaxed);
                    tokio::task::yield_now().await;
                    continue;
                }
            },
        };
        let counter = match exchange(&mut stream, &agent.sync()).await {
            None => &tally.broken,
            Some(answer) => {
                kept = Some(stream);
                match answer.refusal() {
                    (200, _) => &tally.ok,
                    (401, code) if code == "unknown_agent" => &tally.unknown,
                    _ => &tally.other,
                }
            }
        };
        counter.fetch_add(1, Relaxed);
    }
}

async fn fleet(running: &Running, connector: &TlsConnector) -> Vec<Agent> {
    let mut agents = Vec::new();
    for at in 0..20 {
        agents.push(enrolled(running, connector, &format!("n{at}")).await);
    }
    agents
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_under_load_loses_no_count() {
    let running = server(with_tls).await;
    let connector = connector(&running);
    let agents = fleet(&running, &connector).await;
    let load = Load::start(&connector, address(&running.agents_url), agents);
    load.until(|tally| &tally.ok, 100).await;
    let before = lab_call(&running, "POST", "/reset").await;
    load.until(|tally| &tally.unknown, 100).await;
    let tally = load.end().await;
    let (ok, unknown) = (tally.ok.load(Relaxed), tally.unknown.load(Relaxed));
    assert_eq!(
        (tally.other.load(Relaxed), tally.broken.load(Relaxed)),
        (0, 0),
        "a reset breaks nothing"
    );

    let count = |of: &serde_json::Value, code: serde_json::Value| -> u64 {
        let lines = of["answers"].as_array().unwrap().iter();
        lines
            .filter(|line| line["endpoint"] == "sync" && line["code"] == code)
            .map(|line| line["count"].as_u64().unwrap())
            .sum()
    };
    let after = lab_call(&running, "GET", "/counters").await;
    assert_eq!(count(&before, json!(null)) + count(&after, json!(null)), ok);
    assert_eq!(
        count(&before, json!("unknown_agent")) + count(&after, json!("unknown_agent")),
        unknown
    );

    let again = enrolled(&running, &connector, "n0").await;
    assert_eq!(
        again.key.public(),
        Agent::new("n0").key.public(),
        "the same keys enroll with a new token"
    );
    running.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_without_data_under_load_ends_in_unknown_agents_not_in_a_hang() {
    let mut running = server(with_tls).await;
    let connector = connector(&running);
    let (url, release_keys) = (running.agents_url.clone(), running.release_keys.clone());
    let agents = fleet(&running, &connector).await;
    let load = Load::start(&connector, address(&url), agents);
    for round in 1..=3 {
        load.until(
            |tally| {
                if round == 1 {
                    &tally.ok
                } else {
                    &tally.unknown
                }
            },
            100,
        )
        .await;
        timeout(LONG, running.restart(false))
            .await
            .expect("a restart hangs")
            .unwrap();
        load.until(|tally| &tally.unknown, 100).await;
    }
    let tally = load.end().await;
    assert_eq!(
        tally.other.load(Relaxed),
        0,
        "a restarted portal says unknown_agent and nothing else"
    );
    assert!(
        tally.broken.load(Relaxed) >= 20,
        "every connection broke at least once"
    );

    // What agents read was counted; what broke may have been counted and not read.
    let answered = &running.counters().answered[Endpoint::Sync];
    let unknown = answered[Outcome::Problem(ProblemCode::UnknownAgent)];
    let read = (tally.ok.load(Relaxed), tally.unknown.load(Relaxed));
    assert!(
        answered[Outcome::Ok] >= read.0 && unknown >= read.1,
        "{answered:?} {read:?}"
    );
    let lost = answered[Outcome::Ok] + unknown - read.0 - read.1;
    assert!(
        lost <= tally.broken.load(Relaxed),
        "{lost} answers were lost in {:?} breaks",
        tally.broken
    );

    assert_eq!(
        (&running.agents_url, &running.release_keys),
        (&url, &release_keys)
    );
    let mut agent = enrolled(&running, &connector, "n0").await;
    let mut stream = connect(&connector, address(&url)).await.unwrap();
    assert_eq!(
        exchange(&mut stream, &agent.sync()).await.unwrap().status,
        200
    );
    running.shutdown().await;
}
