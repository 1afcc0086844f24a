//! What it costs to open a connection with a full TLS handshake, either side: as many at once as a large fleet has, each
//! with keys of its own and nothing that it could resume, from the addresses that a run would have them leave from.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};

use agent_drive::tls::{Trust, client_config};
use agent_drive::{BaseUrl, Connection, Exchange, Patience, Settings, Transport};
use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use fleet::usage::raise_files_limit;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method};
use protocol::dialect::Dialect;
use tokio::runtime::Builder;
use tokio::task::JoinSet;

use crate::Figures;
use crate::machine::process_cpu_seconds;
use crate::nothing::{CA, Nothing, REPORT, Seen};

const CONNECTIONS: u64 = 10_000;
/// As the preflight has so many leave.
const SOURCES: [Ipv4Addr; 2] = [Ipv4Addr::new(127, 0, 0, 1), Ipv4Addr::new(127, 0, 0, 2)];
/// So many are opened at once.
const AT_ONCE: u64 = 100;

pub(crate) fn measure() -> Result<Figures> {
    let files = raise_files_limit();
    ensure!(
        files > CONNECTIONS + 100,
        "{CONNECTIONS} connections need more open files than {files}"
    );

    let folder = tempfile::tempdir()?;
    let mut nothing = Nothing::start(folder.path())?;
    let port = nothing.seen()?.port;
    let report = Bytes::from(fs::read(folder.path().join(REPORT))?);
    let trust = Trust::only_pem(&fs::read(folder.path().join(CA))?)?;
    let base = BaseUrl::parse(&format!("https://127.0.0.1:{port}"), &Dialect::default())?;
    let settings = Settings {
        sources: SOURCES.map(IpAddr::from).to_vec(),
        ..Settings::default()
    };
    let transport = Transport::new(base, &client_config(&trust)?, settings)?;
    let runtime = Builder::new_multi_thread().enable_all().build()?;

    let mut looks = vec![look(&mut nothing)?];
    let mut connections: Vec<Connection> =
        (0..CONNECTIONS).map(|_| transport.connection()).collect();
    // The first exchange opens each; the second is without that, and what it takes is taken off.
    for _ in 0..2 {
        connections = runtime.block_on(post_over(connections, &report))?;
        looks.push(look(&mut nothing)?);
    }
    let [before, (open_cpu, open), (last_cpu, last)] = looks[..] else {
        unreachable!("there were three looks")
    };
    let (before_cpu, before) = before;
    ensure!(
        open.open == CONNECTIONS && last.accepted == CONNECTIONS,
        "{} connections are open and {} were opened, of {CONNECTIONS}",
        open.open,
        last.accepted
    );
    drop(connections);
    nothing.end()?;
    let each = |first: f64, second: f64| (first - second) / CONNECTIONS as f64;
    let server_us = |from: Seen, to: Seen| (to.cpu_us - from.cpu_us) as f64;
    Ok([
        (
            "generator_us",
            each(open_cpu - before_cpu, last_cpu - open_cpu) * 1e6,
        ),
        (
            "portal_us",
            each(server_us(before, open), server_us(open, last)),
        ),
    ]
    .into())
}

/// This process's time, and how the route stands.
fn look(nothing: &mut Nothing) -> Result<(f64, Seen)> {
    Ok((process_cpu_seconds(), nothing.seen()?))
}

/// One exchange over each, some at once.
async fn post_over(connections: Vec<Connection>, report: &Bytes) -> Result<Vec<Connection>> {
    let mut waiting = connections.into_iter();
    let mut posting = JoinSet::new();
    let mut done = Vec::new();
    loop {
        while (posting.len() as u64) < AT_ONCE
            && let Some(connection) = waiting.next()
        {
            posting.spawn(post(connection, report.clone()));
        }
        let Some(posted) = posting.join_next().await else {
            return Ok(done);
        };
        done.push(posted??);
    }
}

async fn post(mut connection: Connection, report: Bytes) -> Result<Connection> {
    let json = HeaderValue::from_static("application/json");
    let exchange = Exchange {
        method: Method::POST,
        path: "/sync",
        headers: HeaderMap::from_iter([(CONTENT_TYPE, json)]),
        body: report,
        patience: Patience::Whole,
    };
    let raw = connection.exchange(exchange, &mut ()).await;
    let status = raw.context("the exchange failed")?.status;
    ensure!(status == 200, "{status}");
    Ok(connection)
}
