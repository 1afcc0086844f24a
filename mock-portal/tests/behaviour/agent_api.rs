//! The agents' side without sockets: what reaches the portal, what is written back, what the journal says.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response, Version};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body, Frame, SizeHint};
use mock_portal::agent_api::{Aborted, AgentApi, HttpCounters, Profile, Wiring};
use mock_portal::clock::Clock;
use mock_portal::journal::{Capacity, Filter, Journal, Line};
use mock_portal::keys;
use mock_portal::latency::Latencies;
use portal_core::Portal;
use protocol::endpoint::Endpoint;
use protocol::limits;
use serde_json::{Value, json};

use super::client::{Agent, ENROLL, Message, SYNC, post, token};

struct Bench {
    api: AgentApi,
    portal: Arc<Portal>,
    journal: Arc<Journal>,
    latencies: Arc<Latencies>,
    counters: Arc<HttpCounters>,
}

fn bench(profile: Profile) -> Bench {
    let settings = keys::settings_of_seed(7);
    let dialect = settings.dialect.clone();
    let portal = Arc::new(Portal::new(settings));
    let journal = Arc::new(Journal::new(Capacity::default()));
    let latencies = Arc::new(Latencies::default());
    let counters = Arc::new(HttpCounters::default());
    let api = AgentApi::new(Wiring {
        portal: Arc::clone(&portal),
        dialect,
        profile,
        clock: Clock::start(),
        journal: Arc::clone(&journal),
        latencies: Arc::clone(&latencies),
        counters: Arc::clone(&counters),
        store: None,
    });
    Bench {
        api,
        portal,
        journal,
        latencies,
        counters,
    }
}

impl Bench {
    async fn send(&self, message: &Message) -> Response<Value> {
        let request = request(message)
            .body(Full::new(Bytes::from(message.body.clone())))
            .unwrap();
        self.answer(request).await.unwrap()
    }

    async fn answer<B>(&self, request: Request<B>) -> Result<Response<Value>, Aborted>
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Send,
    {
        let (head, body) = self.api.answer(request, false).await?.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Ok(Response::from_parts(
            head,
            serde_json::from_slice(&body).unwrap(),
        ))
    }

    fn journal(&self, bodies: bool) -> Vec<Line> {
        self.journal
            .page(&Filter {
                limit: 100,
                bodies,
                ..Filter::default()
            })
            .entries
    }

    async fn enrolled(&self, node: &str) -> Agent {
        let mut agent = Agent::new(node);
        let answer = self
            .send(&agent.enrollment(&token(&self.portal, node)))
            .await;
        assert_eq!(answer.status(), 200, "{answer:?}");
        agent.id = answer.body()["agent_id"].as_str().unwrap().to_owned();
        agent
    }
}

fn request(message: &Message) -> http::request::Builder {
    let builder = Request::builder()
        .method(message.method)
        .uri(&message.path)
        .header("Host", "127.0.0.1");
    message
        .headers
        .iter()
        .fold(builder, |builder, (name, value)| {
            builder.header(*name, value)
        })
}

#[tokio::test]
async fn an_agent_enrolls_and_syncs_and_the_journal_has_both() {
    let bench = bench(Profile::Strict);
    let mut agent = bench.enrolled("n1").await;
    let answer = bench.send(&agent.sync()).await;
    assert_eq!(
        (answer.status().as_u16(), &answer.headers()["content-type"]),
        (200, &"application/json".parse().unwrap())
    );
    assert!(answer.body()["portal_time"].is_string(), "{answer:?}");

    let journal = bench.journal(true);
    let said: Vec<_> = journal
        .iter()
        .map(|line| (line.endpoint, line.status, line.proven, line.code))
        .collect();
    assert_eq!(
        said,
        [
            (Some(Endpoint::Enroll), 200, true, None),
            (Some(Endpoint::Sync), 200, true, None)
        ]
    );
    assert!(
        journal.iter().all(|line| line
            .agent
            .as_ref()
            .is_some_and(|id| id.as_str() == agent.id)),
        "{journal:?}"
    );
    assert!(
        !format!("{journal:?}").contains("pbxe_"),
        "a token is in the journal: {journal:?}"
    );
    assert!(
        journal[1].body.as_ref().unwrap().contains("\"sequence\":1"),
        "{journal:?}"
    );
    let measured: Vec<_> = bench
        .latencies
        .lines()
        .iter()
        .map(|line| (line.endpoint, line.count))
        .collect();
    assert_eq!(measured, [(Endpoint::Enroll, 1), (Endpoint::Sync, 1)]);
}

#[tokio::test]
async fn a_wrong_signature_is_explained_down_to_the_byte() {
    let bench = bench(Profile::Strict);
    let agent = bench.enrolled("n1").await;
    // Signed with a newline at the end, as half of all first attempts are (SIGN-2).
    let mut message = agent.signed("POST", SYNC, b"{}".to_vec());
    let at: u64 = message.headers[1].1.parse().unwrap();
    let body = protocol::hash::Sha256Hex::of(b"{}");
    let signed = format!("POST\n{SYNC}\n{at}\n{body}\n");
    message.headers[2].1 = agent.key.sign(signed.as_bytes()).to_string();

    let answer = bench.send(&message).await;
    assert_eq!(
        (answer.status().as_u16(), &answer.body()["code"]),
        (401, &json!("bad_signature"))
    );
    assert_eq!(answer.headers()["www-authenticate"], "Pbx");
    let line = bench.journal(false).pop().unwrap();
    assert_eq!(
        (line.agent.unwrap().as_str(), line.proven),
        (agent.id.as_str(), false)
    );
    let explanation = serde_json::to_value(line.explanation.unwrap()).unwrap();
    assert_eq!(explanation["signature"]["canonical"], signed.trim_end());
    let found = &explanation["signature"]["near_miss"];
    assert_eq!(
        (&found["search"], &found["offset"]),
        (&json!("found"), &json!(signed.len() - 1)),
        "{explanation}"
    );
    assert_eq!(
        (&found["expected"], &found["came"]),
        (&Value::Null, &json!(b'\n')),
        "{explanation}"
    );
}

/// A body that says how long it will be and would fail whoever reads it.
struct Announced(u64);

impl Body for Announced {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        panic!("{} bytes were announced and read", self.0)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0)
    }
}

// rule WIRE-2: an announced body is refused before a byte of it is read, one that only grows at its limit.
#[tokio::test]
async fn a_body_that_is_too_large_is_not_read_whole() {
    let bench = bench(Profile::Strict);
    let limit = limits::BODY_BYTES_MAX as u64;
    let head = || request(&post(ENROLL, b"")).header("Expect", "100-continue"); // nothing is drained then
    let answer = bench
        .answer(head().body(Announced(limit + 1)).unwrap())
        .await
        .unwrap();
    assert_eq!(
        (answer.status().as_u16(), &answer.body()["code"]),
        (413, &json!("body_too_large"))
    );
    assert_eq!(answer.headers()["connection"], "close");

    for (kib, status) in [(256, 400), (257, 413)] {
        let body = Chunks::new(kib, Ends::Well);
        let given = Arc::clone(&body.given);
        let answer = bench.answer(head().body(body).unwrap()).await.unwrap();
        assert_eq!(answer.status(), status, "{kib} KiB");
        assert!(given.load(Relaxed) <= 257, "read on behind the limit");
    }
    assert_eq!(
        bench
            .journal(true)
            .first()
            .map(|line| (line.body_sha256, line.body.clone())),
        Some((None, None))
    );
}

/// KiBs of blanks, and how they end.
struct Chunks {
    count: usize,
    given: Arc<AtomicUsize>,
    ends: Ends,
}

#[derive(Debug, Clone, Copy)]
enum Ends {
    Well,
    Broken,
    Never,
}

impl Chunks {
    fn new(count: usize, ends: Ends) -> Self {
        Self {
            count,
            given: Arc::default(),
            ends,
        }
    }
}

impl Body for Chunks {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        if self.given.fetch_add(1, Relaxed) < self.count {
            return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[b' '; 1024])))));
        }
        match self.ends {
            Ends::Well => Poll::Ready(None),
            Ends::Broken => Poll::Ready(Some(Err("reset"))),
            Ends::Never => Poll::Pending,
        }
    }
}

// rule WIRE-7: a request whose body does not come is never answered, and is counted as that.
#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_come_ends_the_request() {
    let bench = bench(Profile::Strict);
    for (ends, aborted) in [
        (Ends::Broken, Aborted::Broken),
        (Ends::Never, Aborted::Stalled),
    ] {
        let start = tokio::time::Instant::now();
        let answer = bench
            .answer(
                request(&post(SYNC, b""))
                    .body(Chunks::new(1, ends))
                    .unwrap(),
            )
            .await;
        assert_eq!(answer.unwrap_err(), aborted);
        let waited = start.elapsed().as_secs();
        assert_eq!(
            waited,
            if matches!(ends, Ends::Never) {
                limits::REQUEST_SECONDS_MAX
            } else {
                0
            }
        );
    }
    let nowhere = bench
        .answer(
            request(&post("/nowhere", b""))
                .body(Chunks::new(0, Ends::Broken))
                .unwrap(),
        )
        .await;
    assert_eq!(nowhere.unwrap_err(), Aborted::Broken);
    assert_eq!(
        (
            bench.counters.aborted()[Endpoint::Sync],
            bench.counters.aborted_elsewhere()
        ),
        (2, 1)
    );
    assert!(bench.journal(false).is_empty(), "nothing was answered");
}

#[tokio::test]
async fn a_strict_portal_refuses_odd_http_and_a_friendly_one_lets_it_pass() {
    let odd = |message: &Message| {
        request(message)
            .version(Version::HTTP_10)
            .body(Full::new(Bytes::from(message.body.clone())))
            .unwrap()
    };
    let strict = bench(Profile::Strict);
    let mut agent = strict.enrolled("n1").await;
    let answer = strict.answer(odd(&agent.sync())).await.unwrap();
    assert_eq!(
        (answer.status().as_u16(), &answer.body()["code"]),
        (400, &json!("invalid_request"))
    );
    assert_eq!(answer.headers()["connection"], "close");
    assert!(
        answer.body()["detail"]
            .as_str()
            .unwrap()
            .contains("RFC 9112, 2.3"),
        "{answer:?}"
    );
    assert_eq!(strict.counters.refused(), 1);
    let line = strict.journal(false).pop().unwrap();
    assert_eq!(
        (line.explanation.unwrap().rule, line.endpoint),
        ("RFC 9112, 2.3", Some(Endpoint::Sync))
    );

    let friendly = bench(Profile::Friendly);
    let mut agent = friendly.enrolled("n1").await;
    let answer = friendly.answer(odd(&agent.sync())).await.unwrap();
    assert_eq!(answer.status(), 200, "{answer:?}");
    let mut absolute = agent.sync();
    absolute.path = format!("http://127.0.0.1:8470{SYNC}");
    assert_eq!(
        friendly.send(&absolute).await.status(),
        200,
        "what is signed is the path"
    );
    assert_eq!(friendly.counters.refused(), 0);
}

// rule SIGN-6: a body that was not read does not change the order; route and method come before its size.
#[tokio::test]
async fn the_route_is_asked_before_the_size() {
    let bench = bench(Profile::Strict);
    let too_large = limits::BODY_BYTES_MAX as u64 + 1;
    for (method, path, status) in [
        ("POST", "/nowhere", 404),
        ("PUT", SYNC, 405),
        ("POST", SYNC, 413),
    ] {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("Host", "h")
            .header("Expect", "100-continue");
        let answer = bench
            .answer(request.body(Announced(too_large)).unwrap())
            .await
            .unwrap();
        assert_eq!(answer.status(), status, "{method} {path}");
        assert_eq!(
            answer.headers().get("allow").map(|allow| allow.as_bytes()),
            (status == 405).then_some(&b"POST"[..])
        );
    }
}
