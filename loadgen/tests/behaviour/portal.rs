//! A portal that somebody else runs, and what can stand between it and a fleet.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mock_portal::tls::Certificate;
use mock_portal::{Config, Running, Server, keys};
use record::PortalCounters;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

/// A mock portal in this process.
pub(crate) struct Portal {
    runtime: Runtime,
    pub(crate) running: Running,
}

impl Portal {
    /// One on loopback without TLS.
    pub(crate) fn plain() -> Self {
        Self::start(None)
    }

    /// One with a certificate of an authority of its own.
    pub(crate) fn tls() -> Self {
        Self::start(Some(Certificate::self_signed(None).unwrap()))
    }

    fn start(certificate: Option<Certificate>) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let config = Config {
            certificate,
            ..Config::new(keys::settings_of_seed(7))
        };
        let running = runtime.block_on(Server::start(config)).unwrap();
        Self { runtime, running }
    }

    /// Its address.
    pub(crate) fn address(&self) -> SocketAddr {
        address(&self.running.agents_url)
    }

    /// Tokens as JSON lines, for nodes `n-1` and on of cluster `c`, a cluster each.
    pub(crate) fn tokens(&self, count: u64) -> String {
        let input =
            json!({"cluster_id": "c", "node_name": "n", "count": count, "servers_per_cluster": 1});
        let input = serde_json::from_value(input).unwrap();
        let (made, _) = self.running.control().make_tokens(&input).unwrap();
        let made = serde_json::to_value(made).unwrap();
        let lines = made["tokens"].as_array().unwrap().iter();
        lines.map(|line| format!("{line}\n")).collect()
    }

    pub(crate) fn counters(&self) -> PortalCounters {
        self.running.counters()
    }

    /// Its agents, as its control API shows them.
    pub(crate) fn agents(&self) -> Vec<Value> {
        let (_, agents) = self.lab("GET", "/agents");
        agents["agents"].as_array().unwrap().clone()
    }

    /// Calls its control API.
    pub(crate) fn lab(&self, method: &str, path: &str) -> (u16, Value) {
        call_lab(&self.running.lab_url, method, path, "")
    }

    /// Crashes it and starts it again without its data.
    pub(crate) fn restart(&mut self) {
        let restarted = self.runtime.block_on(self.running.restart(false));
        restarted.unwrap();
    }
}

/// Calls a control API with a body of JSON.
pub(crate) fn call_lab(lab_url: &str, method: &str, path: &str, body: &str) -> (u16, Value) {
    let at = address(lab_url);
    let mut stream = TcpStream::connect(at).unwrap();
    let base = "/_lab/v1";
    let request = format!(
        "{method} {base}{path} HTTP/1.1\r\nHost: {at}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    let answer = Message::read(&mut BufReader::new(stream)).unwrap();
    let status = answer.first.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_slice(&answer.body).unwrap())
}

/// The address in a URL.
pub(crate) fn address(url: &str) -> SocketAddr {
    url.split('/').nth(2).unwrap().parse().unwrap()
}

/// An HTTP message with its length said, which is all that travels here.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    /// Its first line.
    pub(crate) first: String,
    headers: String,
    pub(crate) body: Vec<u8>,
}

impl Message {
    /// An answer.
    pub(crate) fn answer(status: u16, content_type: &str, body: &str) -> Self {
        Self {
            first: format!("HTTP/1.1 {status} Whatever"),
            headers: format!(
                "content-type: {content_type}\r\ncontent-length: {}\r\n",
                body.len()
            ),
            body: body.as_bytes().to_vec(),
        }
    }

    fn read(stream: &mut BufReader<TcpStream>) -> Option<Self> {
        let mut line = String::new();
        let mut next = move |stream: &mut BufReader<TcpStream>| {
            line.clear();
            let read = stream.read_line(&mut line).ok()?;
            (read > 0).then(|| line.trim_end().to_owned())
        };
        let first = next(stream)?;
        let mut headers = String::new();
        let mut length = 0;
        loop {
            let line = next(stream)?;
            if line.is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().ok()?;
            }
            headers.push_str(&format!("{line}\r\n"));
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).ok()?;
        Some(Self {
            first,
            headers,
            body,
        })
    }

    fn write(&self, stream: &mut TcpStream) -> std::io::Result<()> {
        stream.write_all(format!("{}\r\n{}\r\n", self.first, self.headers).as_bytes())?;
        stream.write_all(&self.body)
    }

    /// What its first header of this name says.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.lines().filter_map(|line| line.split_once(':'));
        let (_, value) = headers.find(|(it, _)| it.eq_ignore_ascii_case(name))?;
        Some(value.trim())
    }

    /// The endpoint that a request is for: the last part of its path.
    pub(crate) fn endpoint(&self) -> &str {
        let path = self.first.split(' ').nth(1).unwrap_or_default();
        path.rsplit('/').next().unwrap_or_default()
    }
}

/// What becomes of a request.
pub(crate) enum Fate {
    /// The portal answers it.
    Honest,
    /// The portal answers it, and this makes something else of the answer.
    Answered(Box<dyn FnOnce(Message) -> Message>),
    /// The portal answers it, after a while.
    Late(Duration),
    /// The portal answers it, and the answer is lost with its connection.
    Lost,
    /// The portal does not get it; this is answered.
    Instead(Message),
    /// Nobody answers, and the connection stays.
    Silence,
}

/// What stands before a portal. It ends with the test.
pub(crate) struct Between {
    pub(crate) url: String,
    connections: Arc<AtomicU64>,
}

impl Between {
    /// Passes on everything, and tells each endpoint that is called.
    pub(crate) fn watching(portal: SocketAddr) -> (Self, Receiver<String>) {
        let (seen, requests) = channel();
        let between = Self::stand(portal, move |_, request| {
            let _ = seen.send(request.endpoint().to_owned());
            Fate::Honest
        });
        (between, requests)
    }

    /// Whoever enrolls gets the answer that the first one got.
    pub(crate) fn enrolling_all_as_one(portal: SocketAddr) -> Self {
        let first = Arc::new(Mutex::new(None));
        Self::stand(portal, move |_, request| match request.endpoint() {
            "enroll" => {
                let first = Arc::clone(&first);
                Fate::Answered(Box::new(move |answer| {
                    first.lock().unwrap().get_or_insert(answer).clone()
                }))
            }
            _ => Fate::Honest,
        })
    }

    /// Stands before `portal`; `fate` says what becomes of each request, told how many came before it.
    pub(crate) fn stand(
        portal: SocketAddr,
        fate: impl Fn(u64, &Message) -> Fate + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let fate = Arc::new(fate);
        let count = Arc::new(AtomicU64::new(0));
        let connections = Arc::new(AtomicU64::new(0));
        let accepted = Arc::clone(&connections);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                accepted.fetch_add(1, Ordering::SeqCst);
                let (fate, count) = (Arc::clone(&fate), Arc::clone(&count));
                std::thread::spawn(move || {
                    let next = || count.fetch_add(1, Ordering::SeqCst);
                    carry(stream, portal, |request| fate(next(), request))
                });
            }
        });
        Self { url, connections }
    }

    /// How many connections were made to it.
    pub(crate) fn connections(&self) -> u64 {
        self.connections.load(Ordering::SeqCst)
    }
}

/// Carries the requests of one connection to the portal, and its answers back.
fn carry(agent: TcpStream, portal: SocketAddr, fate: impl Fn(&Message) -> Fate) -> Option<()> {
    let mut back = agent.try_clone().ok()?;
    let mut requests = BufReader::new(agent);
    let mut forth: Option<(TcpStream, BufReader<TcpStream>)> = None;
    while let Some(request) = Message::read(&mut requests) {
        let fate = fate(&request);
        let mut ask = || {
            if forth.is_none() {
                let stream = TcpStream::connect(portal).ok()?;
                forth = Some((stream.try_clone().ok()?, BufReader::new(stream)));
            }
            let (out, answers) = forth.as_mut()?;
            request.write(out).ok()?;
            Message::read(answers)
        };
        let answer = match fate {
            Fate::Honest => ask()?,
            Fate::Answered(change) => change(ask()?),
            Fate::Late(by) => {
                pass(by);
                ask()?
            }
            Fate::Lost => {
                ask()?;
                return None;
            }
            Fate::Instead(answer) => answer,
            Fate::Silence => continue,
        };
        answer.write(&mut back).ok()?;
    }
    Some(())
}

#[expect(
    clippy::disallowed_methods,
    reason = "a slow portal is one that lets time pass"
)]
fn pass(time: Duration) {
    std::thread::sleep(time);
}

/// A place on loopback that answers every request with one text, once it is asked.
pub(crate) fn page(status: u16, text: &str) -> String {
    let answer = Message::answer(status, "text/plain", text);
    let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
    Between::stand(nobody, move |_, _| Fate::Instead(answer.clone())).url
}

/// An address at which nobody listens.
pub(crate) fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

/// A request that no agent has sent, to a portal whose certificate nobody has to trust for that.
pub(crate) fn uninvited(agents_url: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let _ = rustls::crypto::ring::default_provider().install_default();
    runtime.block_on(async {
        let client = reqwest::Client::builder()
            .danger_accept_invalid_certs(true)
            .no_proxy()
            .build()
            .unwrap();
        let request = client.post(format!("{agents_url}/sync")).body("{}");
        let answer = request
            .header("content-type", "application/json")
            .send()
            .await
            .unwrap();
        assert!(answer.status().is_client_error(), "{answer:?}");
    });
}
