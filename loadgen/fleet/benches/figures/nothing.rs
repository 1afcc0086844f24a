//! The portal that does nothing, in a process of its own: a route that reads a request and answers with the bytes of a
//! sync's answer. Nobody checks, parses or counts anything there but how many came.

use std::convert::Infallible;
use std::env;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use fleet::usage::{process_cpu_us, raise_files_limit};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use mock_portal::serve::{Connections, Face, Phase, listen, serve};
use mock_portal::tls::Certificate;
use mock_portal::wire::Patience;
use serde::{Deserialize, Serialize};
use tokio::runtime::Builder;
use tokio::sync::watch;

use crate::example::settled;

/// In its folder: what a report says, what is answered, and the certificate to trust.
pub(crate) const REPORT: &str = "report.json";
pub(crate) const ANSWER: &str = "answer.json";
pub(crate) const CA: &str = "ca.pem";

/// How it stands.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Seen {
    pub(crate) port: u16,
    /// Requests that were answered.
    pub(crate) requests: u64,
    /// Connections that are open now.
    pub(crate) open: u64,
    /// Connections that were ever taken.
    pub(crate) accepted: u64,
    /// Processor time of the process.
    pub(crate) cpu_us: u64,
}

/// The process, seen from another one.
pub(crate) struct Nothing {
    process: Child,
    ask: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Nothing {
    /// Starts it; what it needs and what it tells lies in `folder` then.
    ///
    /// # Errors
    /// When it does not start.
    pub(crate) fn start(folder: &Path) -> Result<Self> {
        let mut process = Command::new(env::current_exe()?)
            .arg("nothing")
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("start the route that does nothing")?;
        let (ask, answers) = (process.stdin.take(), process.stdout.take());
        Ok(Self {
            process,
            ask,
            answers: BufReader::new(answers.context("its output is piped")?),
        })
    }

    /// How it stands now.
    ///
    /// # Errors
    /// When it has ended.
    pub(crate) fn seen(&mut self) -> Result<Seen> {
        let ask = self.ask.as_mut().context("it has not been ended")?;
        ask.write_all(b"\n")?;
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        serde_json::from_str(&line).context("the route that does nothing has ended")
    }

    /// Ends it.
    ///
    /// # Errors
    /// When it ended badly.
    pub(crate) fn end(mut self) -> Result<()> {
        drop(self.ask.take());
        let ended = self.process.wait()?;
        ensure!(
            ended.success(),
            "the route that does nothing ended with {ended}"
        );
        Ok(())
    }
}

/// The process itself: says for each line of its input how it stands, and ends with its input.
///
/// # Errors
/// When it cannot serve.
pub(crate) fn serve_nothing(folder: &Path) -> Result<()> {
    let example = settled()?;
    let answer = Bytes::from(serde_json::to_vec(&example.answer)?);
    let certificate = Certificate::self_signed(None)?;
    fs::write(folder.join(REPORT), serde_json::to_vec(&example.report)?)?;
    fs::write(folder.join(ANSWER), &answer)?;
    fs::write(folder.join(CA), certificate.ca_pem().unwrap_or_default())?;
    drop(example);
    raise_files_limit();

    let runtime = Builder::new_multi_thread().enable_all().build()?;
    let connections = Arc::new(Connections::default());
    let requests = Arc::new(AtomicU64::new(0));
    let (_serving, phase) = watch::channel(Phase::Serving);
    let face = Face {
        tls: Some(certificate.server_config()?),
        patience: Patience::default(),
        connections: Arc::clone(&connections),
    };
    let port = runtime.block_on(answering(face, answer, phase, Arc::clone(&requests)))?;
    for line in io::stdin().lines() {
        line?;
        let seen = Seen {
            port,
            requests: requests.load(Relaxed),
            open: connections.open.load(Relaxed),
            accepted: connections.accepted.load(Relaxed),
            cpu_us: process_cpu_us(),
        };
        writeln!(io::stdout(), "{}", serde_json::to_string(&seen)?)?;
    }
    runtime.shutdown_background();
    Ok(())
}

/// Serves the route, and tells at which port.
async fn answering(
    face: Face,
    answer: Bytes,
    phase: watch::Receiver<Phase>,
    requests: Arc<AtomicU64>,
) -> Result<u16> {
    let listener = listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    let port = listener.local_addr()?.port();
    tokio::spawn(serve(listener, face, phase, move |progress| {
        let (answer, requests) = (answer.clone(), Arc::clone(&requests));
        service_fn(move |request: Request<Incoming>| {
            progress.request_begins();
            let (answer, progress) = (answer.clone(), Arc::clone(&progress));
            let requests = Arc::clone(&requests);
            async move {
                let read = request.into_body().collect().await;
                progress.request_ended();
                requests.fetch_add(1, Relaxed);
                let mut response = Response::new(Full::new(answer));
                if read.is_err() {
                    *response.status_mut() = StatusCode::BAD_REQUEST;
                }
                let json = HeaderValue::from_static("application/json");
                response.headers_mut().insert(CONTENT_TYPE, json);
                Ok::<_, Infallible>(response)
            }
        })
    }));
    Ok(port)
}
