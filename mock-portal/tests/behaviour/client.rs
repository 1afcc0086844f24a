//! An agent by hand: keys, signed requests as bytes, and HTTP/1.1 over whatever carries bytes.

use std::collections::BTreeMap;

use mock_portal::clock::Clock;
use mock_portal::{Config, Running, Server, keys};
use portal_core::Portal;
use portal_core::control::TokensInput;
use protocol::dialect::Dialect;
use protocol::hash::Sha256Hex;
use protocol::id::EnrollmentToken;
use protocol::seal::SealingSecretKey;
use protocol::sign::{SigningKey, canonical, rotation_proof_bytes};
use protocol::time::UnixSeconds;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

pub(crate) const SYNC: &str = "/agent/v1/sync";
pub(crate) const ENROLL: &str = "/agent/v1/enroll";

/// A server on free ports with everything of seed 7.
pub(crate) async fn server(change: impl FnOnce(&mut Config)) -> Running {
    let mut config = Config::new(keys::settings_of_seed(7));
    change(&mut config);
    Server::start(config).await.unwrap()
}

/// The address in a URL.
pub(crate) fn address(url: &str) -> std::net::SocketAddr {
    url.split('/').nth(2).unwrap().parse().unwrap()
}

/// A token for that node of cluster `c1`.
pub(crate) fn token(portal: &Portal, node: &str) -> EnrollmentToken {
    let input: TokensInput =
        serde_json::from_value(json!({"cluster_id": "c1", "node_name": node})).unwrap();
    let (made, _) = portal
        .control(Clock::start().now())
        .make_tokens(&input)
        .unwrap();
    made.tokens.into_iter().next().unwrap().token
}

/// A request's headers and body, ready for any carrier.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
}

impl Message {
    /// As HTTP/1.1 with a `Host` and, with POST, a `Content-Length`.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut text = format!(
            "{} {} HTTP/1.1\r\nHost: 127.0.0.1\r\n",
            self.method, self.path
        );
        for (name, value) in &self.headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        if self.method != "GET" {
            text.push_str(&format!("Content-Length: {}\r\n", self.body.len()));
        }
        text.push_str("\r\n");
        let mut bytes = text.into_bytes();
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

/// An unsigned POST of JSON.
pub(crate) fn post(path: &str, body: &[u8]) -> Message {
    let headers = vec![("Content-Type", "application/json".to_owned())];
    Message {
        method: "POST",
        path: path.to_owned(),
        headers,
        body: body.to_vec(),
    }
}

/// An agent's keys and, once it has one, its ID.
#[derive(Debug, Clone)]
pub(crate) struct Agent {
    pub(crate) id: String,
    pub(crate) key: SigningKey,
    pub(crate) cluster: String,
    pub(crate) node: String,
    sequence: u64,
}

impl Agent {
    /// An agent that nobody knows yet; its keys come from the node's name.
    pub(crate) fn new(node: &str) -> Self {
        let seed = *Sha256Hex::of(node.as_bytes()).as_bytes();
        Self {
            id: "agt_unknown".to_owned(),
            key: SigningKey::from_seed(seed),
            cluster: "c1".to_owned(),
            node: node.to_owned(),
            sequence: 0,
        }
    }

    /// The request that enrolls it.
    pub(crate) fn enrollment(&self, token: &EnrollmentToken) -> Message {
        let sealing = SealingSecretKey::from_seed(*self.key.seed()).public();
        let request = json!({
            "protocol": 1, "token": token, "cluster_id": self.cluster, "node_name": self.node, "server_id": 42,
            "signing_key": self.key.public(), "sealing_key": sealing, "boot_image_sha256": "ab".repeat(32),
            "agent_version": "1.4.0", "arch": "amd64",
        });
        post(ENROLL, request.to_string().as_bytes())
    }

    /// A report, never the same twice.
    pub(crate) fn report(&mut self) -> Value {
        self.sequence += 1;
        json!({
            "protocol": 1, "sequence": self.sequence, "agent_version": "1.4.0", "arch": "amd64", "node_name": self.node,
            "boot": {"image_sha256": "ab".repeat(32), "entry": "pbx-2026.11.1-amd64.efi"},
            "k3s": {"version": "v1.34.1+k3s1", "unit": "active", "api": "up"}, "leader": true,
            "document": {"applied_generation": 0, "seen_generation": 0, "result": "applied", "message": null},
            "addons": [], "operation": null, "update": {"running": "1.4.0", "rolled_back_from": null},
            "restart_pending": false, "clock_offset_ms": 0, "keys_created_at": "2026-09-01T00:00:00Z",
            "last_error": null, "problems": [],
        })
    }

    /// A rotation to another key, signed with the one that it has; the sealing key is of the same seed.
    pub(crate) fn rotation(&self, new: &SigningKey) -> Message {
        let sealing = SealingSecretKey::from_seed(*new.seed()).public();
        let proof = rotation_proof_bytes(&self.key.public(), &new.public());
        let request =
            json!({"signing_key": new.public(), "sealing_key": sealing, "proof": new.sign(&proof)});
        let body = request.to_string().into_bytes();
        self.signed("POST", "/agent/v1/rotate-key", body)
    }

    /// A signed sync.
    pub(crate) fn sync(&mut self) -> Message {
        let body = self.report().to_string().into_bytes();
        self.signed("POST", SYNC, body)
    }

    /// A signed request, now.
    pub(crate) fn signed(&self, method: &'static str, path: &str, body: Vec<u8>) -> Message {
        let at = UnixSeconds(u64::try_from(Clock::start().now().wall.unix_seconds()).unwrap());
        let signed = canonical(&Dialect::default(), method, path, at, &Sha256Hex::of(&body));
        let mut headers = vec![
            ("Pbx-Agent-Id", self.id.clone()),
            ("Pbx-Timestamp", at.to_string()),
            ("Pbx-Signature", self.key.sign(&signed).to_string()),
        ];
        if method != "GET" {
            headers.push(("Content-Type", "application/json".to_owned()));
        }
        Message {
            method,
            path: path.to_owned(),
            headers,
            body,
        }
    }
}

/// An answer read from the wire.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Names in lower case.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// Status and code of a refusal.
    pub(crate) fn refusal(&self) -> (u16, String) {
        (
            self.status,
            self.json()["code"].as_str().unwrap_or_default().to_owned(),
        )
    }
}

/// Reads one answer with a `Content-Length`; none when the connection ends before it.
pub(crate) async fn read_answer<S: AsyncRead + Unpin>(stream: &mut S) -> Option<Answer> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let text = String::from_utf8(head).unwrap();
    let mut lines = text.lines();
    let status = lines
        .next()
        .unwrap()
        .split(' ')
        .nth(1)
        .unwrap()
        .parse()
        .unwrap();
    let headers: BTreeMap<String, String> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let length = headers
        .get("content-length")
        .map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some(Answer {
        status,
        headers,
        body,
    })
}

/// Sends a request and reads its answer.
pub(crate) async fn exchange<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    message: &Message,
) -> Option<Answer> {
    stream.write_all(&message.bytes()).await.ok()?;
    stream.flush().await.ok()?;
    read_answer(stream).await
}
