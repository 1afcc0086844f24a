//! Ours among the peers: the agents' transport, which posts the same bytes as they do, unsigned, in a closed loop.

use std::fs;
use std::path::Path;

use agent_drive::tls::{Trust, client_config};
use agent_drive::{BaseUrl, Exchange, Patience, Settings, Transport};
use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use fleet::usage::raise_files_limit;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method};
use protocol::dialect::Dialect;
use tokio::runtime::Builder;
use tokio::task::JoinSet;

use crate::nothing::{ANSWER, CA, REPORT};

/// The process: posts over so many connections until it is ended, or something is wrong.
///
/// # Errors
/// When something is wrong.
pub(crate) fn post_for_ever(folder: &Path, port: &str, connections: &str) -> Result<()> {
    let connections: u64 = connections.parse()?;
    let report = Bytes::from(fs::read(folder.join(REPORT))?);
    let answer = fs::metadata(folder.join(ANSWER))?.len() as usize;
    raise_files_limit();
    let trust = Trust::only_pem(&fs::read(folder.join(CA))?)?;
    let base = BaseUrl::parse(&format!("https://127.0.0.1:{port}"), &Dialect::default())?;
    let transport = Transport::new(base, &client_config(&trust)?, Settings::default())?;
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut posting = JoinSet::new();
        for _ in 0..connections {
            posting.spawn(post(transport.clone(), report.clone(), answer));
        }
        let ended = posting.join_next().await.context("no connection")?;
        ended?.context("it posts for ever")
    })
}

/// Posts again and again; ends only when something is wrong.
async fn post(transport: Transport, report: Bytes, answer_bytes: usize) -> Result<()> {
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
    }
}
