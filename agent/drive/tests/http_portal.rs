//! The portal over a network: what is on the wire for a call, what comes back, and what is counted of it.

#![expect(
    clippy::unwrap_used,
    reason = "a test that unwraps fails where it was wrong"
)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_core::machine::{Action, Call, Input, KeyHandle, Machine, Stamp, Unreachable, Wake};
use agent_core::seed::Seed;
use agent_core::time::{Monotonic, Now};
use agent_drive::{CallRecord, HttpPortal, Meter, Signer, Spoken, TimeOuts, Transport};
use portal::{Act, Server, answer, ok};
use protocol::dialect::Dialect;
use protocol::endpoint::Endpoint;
use protocol::hash::Sha256Hex;
use protocol::id::ReleaseVersion;
use protocol::pbx::call::{Reply, Request};
use protocol::pbx::operation::OperationEvents;
use protocol::problem::ProblemCode;
use protocol::seal::SealingSecretKey;
use protocol::sign::{Signature, SigningKey, VerifyingKey, canonical};
use protocol::time::UnixSeconds;
use tokio::time::Instant;

mod portal;

const LONG: TimeOuts = TimeOuts {
    connect: Duration::from_secs(10),
    request: Duration::from_secs(30),
};

/// A machine that speaks the portal protocol and wants nothing.
#[derive(Debug)]
struct Silent;

impl Machine for Silent {
    type Durable = ();
    type Facts = ();
    type Observation = ();
    type Request = Request;
    type Reply = Reply;
    type Task = ();
    type Done = ();
    type LeaseCall = std::convert::Infallible;
    type LeaseReply = std::convert::Infallible;

    fn boot(_: Arc<()>, (): (), _: Seed, _: Now) -> Self {
        Silent
    }
    fn handle(&mut self, _: Input<Self>, _: Now) {}
    fn poll_action(&mut self) -> Option<Action<Self>> {
        None
    }
    fn poll_wake(&self) -> Option<Wake> {
        None
    }
}

/// Holds one key.
struct OneKey(SigningKey);

impl Signer for OneKey {
    fn sign(&self, key: &KeyHandle, bytes: &[u8]) -> Option<Signature> {
        (key.signing == self.0.public()).then(|| self.0.sign(bytes))
    }
}

/// What a meter was told, as words.
#[derive(Clone, Default)]
struct Counted(Arc<Mutex<Vec<String>>>);

impl Meter for Counted {
    fn planned(&mut self, endpoint: Endpoint, intended: Monotonic) {
        self.say(format!("planned {endpoint} {}", intended.as_ms()));
    }
    fn dropped(&mut self, endpoint: Endpoint) {
        self.say(format!("dropped {endpoint}"));
    }
    fn started(&mut self, endpoint: Endpoint, _: Instant) {
        self.say(format!("started {endpoint}"));
    }
    fn ended(&mut self, call: &CallRecord) {
        assert!(call.started <= call.ended);
        if let Some(out) = call.first_byte_out {
            assert!(call.started <= out && out <= call.ended);
        }
        let connected = match call.connect {
            None => "kept",
            Some(connect) => {
                assert!(connect.total() >= connect.tcp);
                match connect.tls {
                    None => "plain",
                    Some((_, false)) => "full",
                    Some((_, true)) => "resumed",
                }
            }
        };
        let (endpoint, outcome) = (call.endpoint, call.outcome);
        self.say(format!("ended {endpoint} {outcome} {connected}"));
    }
}

impl Counted {
    fn say(&self, what: String) {
        self.0.lock().unwrap().push(what);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

fn key() -> SigningKey {
    SigningKey::from_seed([7; 32])
}

fn handle(signing: &SigningKey) -> KeyHandle {
    KeyHandle {
        signing: signing.public(),
        sealing: SealingSecretKey::from_seed([8; 32]).public(),
    }
}

fn manifest(signing: &SigningKey) -> Call<Request> {
    Call {
        request: Request::Manifest("2026.11.1".parse::<ReleaseVersion>().unwrap()),
        stamp: Some(Stamp {
            agent: "agt_1".parse().unwrap(),
            key: handle(signing),
            at: UnixSeconds(1_796_000_000),
        }),
        intended: Monotonic::from_ms(5),
    }
}

fn way(transport: &Transport, counted: &Counted) -> HttpPortal<OneKey, Counted> {
    HttpPortal::new(transport, Spoken::default(), OneKey(key()), counted.clone())
}

async fn call(
    way: &mut HttpPortal<OneKey, Counted>,
    call: Call<Request>,
) -> Result<Reply, Unreachable> {
    agent_core::port::Portal::<Silent>::call(way, call).await
}

// rule SIGN-1, rule SIGN-2, rule SIGN-3: three headers, each once, over the path below the base.
#[tokio::test]
async fn a_call_is_signed_over_what_follows_the_base() {
    let server = Server::tls([answer_404(), answer_404()]).await;
    for prefix in ["", "/stripped/by/a/proxy"] {
        let counted = Counted::default();
        let transport = server.transport_below(prefix, LONG);
        let reply = call(&mut way(&transport, &counted), manifest(&key()))
            .await
            .unwrap();
        assert!(
            matches!(reply, Reply::Refused(refusal) if refusal.code == Some(ProblemCode::NotFound))
        );

        let request = server.requests().pop().unwrap();
        let path = "/agent/v1/releases/2026.11.1/manifest";
        assert!(
            request.starts_with(&format!("GET {prefix}{path} HTTP/1.1\r\n")),
            "{request}"
        );
        let header = |name: &str| {
            let mut lines = request
                .lines()
                .filter_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            let value = lines.next().unwrap().to_owned();
            assert_eq!(lines.next(), None, "{name} twice");
            value
        };
        assert_eq!(header("pbx-agent-id"), "agt_1");
        assert_eq!(header("pbx-timestamp"), "1796000000");
        let signature: Signature = header("pbx-signature").parse().unwrap();
        let signed = canonical(
            &Dialect::default(),
            "GET",
            path,
            UnixSeconds(1_796_000_000),
            &Sha256Hex::of(b""),
        );
        assert!(
            VerifyingKey::parse(&key().public())
                .unwrap()
                .verify(&signed, &signature)
        );
    }
}

// rule WIRE-7: a manifest may take longer than a request, as long as something of it comes; nothing else may.
#[tokio::test]
async fn a_manifest_may_come_slowly_and_nothing_else() {
    let second = TimeOuts {
        request: Duration::from_secs(1),
        ..LONG
    };
    let events = Request::Events {
        operation: "op_1".parse().unwrap(),
        body: Arc::new(OperationEvents::new(Vec::new()).unwrap()),
    };
    for (request, comes) in [(manifest(&key()).request, true), (events, false)] {
        let mut head = answer("404 Not Found", "{\"code\": \"not_found\"}");
        let body = head.split_off(head.len() - 20);
        let slowly = Act::Drip(head, body, Duration::from_millis(80));
        let server = Server::tls([slowly]).await;
        let slow = Call {
            request,
            ..manifest(&key())
        };
        let transport = server.transport(second);
        let reply = call(&mut way(&transport, &Counted::default()), slow).await;
        assert_eq!(reply.is_ok(), comes, "{reply:?}");
    }
}

fn answer_404() -> Act {
    let body = r#"{"type":"about:blank","title":"Not found","status":404,"code":"not_found"}"#;
    Act::Send(answer("404 Not Found", body))
}

#[tokio::test]
async fn each_call_is_counted_once_from_plan_to_end() {
    let html =
        b"HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>";
    let server = Server::tls([
        answer_404(),
        ok("[]"),
        Act::Send(html.to_vec()),
        Act::SendAndClose(Vec::new()),
        Act::SendAndClose(Vec::new()),
        Act::Hang,
    ])
    .await;
    let counted = Counted::default();
    let transport = server.transport(LONG);
    let mut way = way(&transport, &counted);
    for ended in [
        "ended manifest not_found full",
        "ended manifest broken_answer kept",
        "ended manifest status_5xx kept",
        "ended manifest stale_connection kept",
        "ended manifest closed_early resumed",
    ] {
        let _ = call(&mut way, manifest(&key())).await;
        assert_eq!(
            counted.take(),
            ["planned manifest 5", "started manifest", ended]
        );
    }

    // Cut off while it waits: a crash, or the end of the run.
    let mut cut = Box::pin(call(&mut way, manifest(&key())));
    tokio::select! {
        biased;
        _ = &mut cut => unreachable!("nobody answers"),
        () = async { while server.requests().len() < 6 { tokio::task::yield_now().await; } } => {}
    }
    drop(cut);
    assert_eq!(
        counted.take(),
        [
            "planned manifest 5",
            "started manifest",
            "ended manifest aborted resumed"
        ]
    );
}

#[tokio::test]
async fn a_key_that_is_not_there_sends_nothing_and_is_accounted_for() {
    let server = Server::plain([]).await;
    let counted = Counted::default();
    let mut way = way(&server.transport(LONG), &counted);
    let stranger = SigningKey::from_seed([9; 32]);
    let why = call(&mut way, manifest(&stranger))
        .await
        .unwrap_err()
        .to_string();
    assert!(why.contains("does not hold the key"), "{why}");
    assert_eq!(counted.take(), ["planned manifest 5", "dropped manifest"]);
    assert_eq!(server.connections(), 0);
}
