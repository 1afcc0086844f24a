//! Peer: the same exchange of bytes without anything of the protocol. A thousand connections of the agents' transport,
//! over TLS, post a report's bytes to a route that reads them and answers with a sync's bytes; nobody signs, checks,
//! reads or counts anything.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use agent_core::port::Clock as _;
use agent_drive::tls::{Trust, client_config};
use agent_drive::{BaseUrl, Exchange, Patience, Settings, SystemClock, Transport};
use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use fleet::usage::{Part, cpu_us, raise_files_limit};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use mock_portal::serve::{Face, Phase, listen, serve};
use mock_portal::tls::Certificate;
use protocol::dialect::Dialect;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

use crate::Figures;
use crate::example::settled;

const CONNECTIONS: u64 = 1_000;
const SETTLE: Duration = Duration::from_secs(1);
const MEASURE: Duration = Duration::from_secs(4);

/// How it stands.
struct Seen {
    client_us: f64,
    server_us: f64,
    exchanges: f64,
}

pub(crate) fn measure() -> Result<Figures> {
    let example = settled()?;
    let report = Bytes::from(serde_json::to_vec(&example.report)?);
    let answer = Bytes::from(serde_json::to_vec(&example.answer)?);
    let needed = 2 * CONNECTIONS + 100;
    let allowed = raise_files_limit();
    ensure!(
        allowed >= needed,
        "{needed} open files needed, {allowed} allowed"
    );

    let (server, clients) = (threads(Part::Portal)?, threads(Part::Agents)?);
    let certificate = Certificate::self_signed(None)?;
    let (_serving, served) = watch::channel(Phase::Serving);
    let port = server.block_on(nothing(&certificate, answer.clone(), served))?;

    let trust = Trust::only_pem(certificate.ca_pem().unwrap_or_default().as_bytes())?;
    let base = BaseUrl::parse(&format!("https://127.0.0.1:{port}"), &Dialect::default())?;
    let transport = Transport::new(base, &client_config(&trust)?, Settings::default())?;
    let done = Arc::new(AtomicU64::new(0));
    let clock = SystemClock::start();
    let seen = || Seen {
        client_us: cpu_us(Part::Agents) as f64,
        server_us: cpu_us(Part::Portal) as f64,
        exchanges: done.load(Relaxed) as f64,
    };
    let (first, last) = clients.block_on(async {
        let mut posting = tokio::task::JoinSet::new();
        for _ in 0..CONNECTIONS {
            let (transport, done) = (transport.clone(), Arc::clone(&done));
            posting.spawn(post(transport, report.clone(), answer.len(), done));
        }
        while done.load(Relaxed) < CONNECTIONS && posting.len() as u64 == CONNECTIONS {
            pass(clock, Duration::from_millis(10)).await;
        }
        pass(clock, SETTLE).await;
        let first = seen();
        pass(clock, MEASURE).await;
        let last = seen();
        // None of them ends by itself.
        match posting.try_join_next() {
            Some(failed) => Err(failed?.expect_err("it posts for ever")),
            None => Ok((first, last)),
        }
    })?;
    let exchanges = last.exchanges - first.exchanges;
    Ok([
        ("client_us", (last.client_us - first.client_us) / exchanges),
        ("server_us", (last.server_us - first.server_us) / exchanges),
    ]
    .into())
}

fn threads(of: Part) -> Result<Runtime> {
    let made = Builder::new_multi_thread()
        .thread_name(of.thread_name())
        .enable_all()
        .build();
    made.context("no threads")
}

async fn pass(clock: SystemClock, time: Duration) {
    let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    clock.sleep_until(clock.now().monotonic.plus_ms(ms)).await;
}

/// Serves the route that does nothing, and tells at which port.
async fn nothing(
    certificate: &Certificate,
    answer: Bytes,
    phase: watch::Receiver<Phase>,
) -> Result<u16> {
    let listener = listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    let port = listener.local_addr()?.port();
    let face = Face {
        tls: Some(certificate.server_config()?),
        patience: mock_portal::wire::Patience::default(),
        connections: Arc::default(),
    };
    tokio::spawn(serve(listener, face, phase, move |progress| {
        let answer = answer.clone();
        service_fn(move |request: Request<Incoming>| {
            progress.request_begins();
            let (answer, progress) = (answer.clone(), Arc::clone(&progress));
            async move {
                let read = request.into_body().collect().await;
                progress.request_ended();
                let mut response = Response::new(Full::new(answer));
                if read.is_err() {
                    *response.status_mut() = http::StatusCode::BAD_REQUEST;
                }
                let json = HeaderValue::from_static("application/json");
                response.headers_mut().insert(CONTENT_TYPE, json);
                Ok::<_, Infallible>(response)
            }
        })
    }));
    Ok(port)
}

/// Posts again and again; ends only when something is wrong.
async fn post(
    transport: Transport,
    report: Bytes,
    answer_bytes: usize,
    done: Arc<AtomicU64>,
) -> Result<()> {
    let json = HeaderValue::from_static("application/json");
    let headers: HeaderMap = [(ACCEPT, json.clone()), (CONTENT_TYPE, json)]
        .into_iter()
        .collect();
    let mut connection = transport.connection();
    loop {
        let exchange = Exchange {
            method: Method::POST,
            path: "/sync",
            headers: headers.clone(),
            body: report.clone(),
            patience: Patience::Whole,
        };
        let raw = connection.exchange(exchange, &mut ()).await?;
        ensure!(
            raw.status == 200 && raw.body.len() == answer_bytes,
            "{} with {} bytes",
            raw.status,
            raw.body.len()
        );
        done.fetch_add(1, Relaxed);
    }
}
