//! What a client costs that posts a report's bytes to a route that does nothing: ours, and programs that others make.
//! All of them alike, from outside: the process and its children are looked at by the kernel's counts while they run, and
//! the route says how many requests came. What a client says of itself counts for nothing.

use std::env;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use agent_core::port::Clock as _;
use agent_drive::SystemClock;
use anyhow::{Context as _, Result, bail, ensure};
use fleet::usage::raise_files_limit;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::Figures;
use crate::machine::{Tree, pass};
use crate::nothing::{Nothing, REPORT, Seen};

/// Connections: the growth of memory is from the fewer to the more; processor time is measured with the more.
const FEW: u64 = 100;
const MANY: u64 = 1_000;
/// Until all connections are open. Locust takes the longest: it warns of more than a hundred new users a second.
const OPEN_WITHIN: Duration = Duration::from_secs(60);
const SETTLE: Duration = Duration::from_secs(1);
const MEASURE: Duration = Duration::from_secs(4);
/// A client ends by itself after so long, should nobody end it.
const LONGEST_SECONDS: u64 = 90;

/// A client.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Peer<'a> {
    /// The agents' transport.
    Ours,
    /// The program that the path names.
    Wrk(&'a str),
    Oha(&'a str),
    Hey(&'a str),
    K6(&'a str),
    Locust(&'a str),
    Goose(&'a str),
}

pub(crate) fn measure(peer: Peer<'_>) -> Result<Figures> {
    let allowed = raise_files_limit();
    ensure!(
        allowed > MANY + 100,
        "{MANY} connections need more open files than {allowed}"
    );
    let folder = tempfile::tempdir()?;
    let mut nothing = Nothing::start(folder.path())?;
    let few = run(peer, folder.path(), &mut nothing, FEW, Duration::ZERO)?;
    let many = run(peer, folder.path(), &mut nothing, MANY, MEASURE)?;
    nothing.end()?;
    let requests = (many.last.requests - many.first.requests) as f64;
    ensure!(requests > 0.0, "no request came");
    let server_us = many.last.cpu_us - many.first.cpu_us;
    let memory = many.resident_kib - few.resident_kib;
    Ok([
        ("client_us", many.client_us / requests),
        ("server_us", server_us as f64 / requests),
        ("connection_kib", memory / (MANY - FEW) as f64),
        ("requests_per_second", requests / many.seconds),
        (
            "handshakes",
            (many.last.accepted - many.first.accepted) as f64,
        ),
    ]
    .into())
}

/// What was seen of one run.
struct Run {
    first: Seen,
    last: Seen,
    client_us: f64,
    seconds: f64,
    /// When the connections were open for a while.
    resident_kib: f64,
}

fn run(
    peer: Peer<'_>,
    folder: &Path,
    nothing: &mut Nothing,
    connections: u64,
    measure: Duration,
) -> Result<Run> {
    let clock = SystemClock::start();
    let client = Client::start(
        peer.command(folder, nothing.seen()?.port, connections)?,
        folder,
    )?;
    let mut opened = nothing.seen()?.open;
    while opened < connections {
        ensure!(
            !client.tree()?.processes.is_empty(),
            "it ended: {}",
            client.said()
        );
        ensure!(
            clock.now().monotonic.as_ms() < OPEN_WITHIN.as_millis() as u64,
            "{opened} of {connections} connections are open: {}",
            client.said()
        );
        pass(Duration::from_millis(20));
        opened = nothing.seen()?.open;
    }
    pass(SETTLE);
    let (first, before, began) = (nothing.seen()?, client.tree()?, clock.now());
    pass(measure);
    let (last, after, ended) = (nothing.seen()?, client.tree()?, clock.now());
    ensure!(
        last.open >= connections,
        "{} of {connections} connections are open at the end: {}",
        last.open,
        client.said()
    );
    client.end()?;
    while nothing.seen()?.open > 0 {
        pass(Duration::from_millis(20));
    }
    let passed_ms = ended.monotonic.as_ms() - began.monotonic.as_ms();
    Ok(Run {
        first,
        last,
        client_us: (after.cpu_seconds - before.cpu_seconds) * 1e6,
        seconds: passed_ms as f64 / 1e3,
        resident_kib: before.resident_kib,
    })
}

/// A client's process and its children, a process group of their own.
struct Client {
    process: Child,
    output: std::path::PathBuf,
}

impl Client {
    fn start(mut command: Command, folder: &Path) -> Result<Self> {
        let output = folder.join("output");
        let file = fs::File::create(&output)?;
        let process = command
            .current_dir(folder)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("start {}", command.get_program().display()))?;
        Ok(Self { process, output })
    }

    fn tree(&self) -> Result<Tree> {
        Tree::of(self.process.id())
    }

    /// The end of what it printed.
    fn said(&self) -> String {
        let text = fs::read(&self.output).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text
            .lines()
            .filter(|line| !line.trim().is_empty())
            .collect();
        lines[lines.len().saturating_sub(4)..].join("; ")
    }

    fn end(mut self) -> Result<()> {
        self.kill();
        self.process.wait()?;
        Ok(())
    }

    fn kill(&mut self) {
        if let Some(group) = i32::try_from(self.process.id())
            .ok()
            .and_then(Pid::from_raw)
        {
            // It may have ended by itself.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// However a measurement ends, its client ends with it.
impl Drop for Client {
    fn drop(&mut self) {
        if matches!(self.process.try_wait(), Ok(None)) {
            self.kill();
        }
    }
}

impl<'a> Peer<'a> {
    /// The peer of that name, with its program.
    pub(crate) fn named(name: &str, program: &'a str) -> Result<Self> {
        Ok(match name {
            "wrk" => Peer::Wrk(program),
            "oha" => Peer::Oha(program),
            "hey" => Peer::Hey(program),
            "k6" => Peer::K6(program),
            "locust" => Peer::Locust(program),
            "goose" => Peer::Goose(program),
            _ => bail!("no peer is called {name}"),
        })
    }

    /// Posts over so many connections, as fast as answers come, and does not mind the certificate.
    fn command(self, folder: &Path, port: u16, connections: u64) -> Result<Command> {
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/peers");
        let body = folder.join(REPORT);
        let base = format!("https://127.0.0.1:{port}");
        let url = format!("{base}/sync");
        let connections = connections.to_string();
        let longest = format!("{LONGEST_SECONDS}s");
        let json = "application/json";
        let command = |program: &str, arguments: &[&str]| {
            let mut command = Command::new(program);
            command
                .args(arguments)
                .env("PEER_BODY", &body)
                .env("PEER_URL", &url);
            command
        };
        let path = |path: &Path| path.to_string_lossy().into_owned();
        let (body, script) = (path(&body), |name: &str| path(&scripts.join(name)));
        Ok(match self {
            Peer::Ours => {
                let own = env::current_exe()?;
                let folder = path(folder);
                let port = port.to_string();
                command(&path(&own), &["post", &folder, &port, &connections])
            }
            Peer::Wrk(program) => command(
                program,
                &[
                    "--threads",
                    "2",
                    "--connections",
                    &connections,
                    "--duration",
                    &longest,
                    "--timeout",
                    "30s",
                    "--script",
                    &script("wrk.lua"),
                    &url,
                ],
            ),
            Peer::Oha(program) => command(
                program,
                &[
                    "--no-tui",
                    "--insecure",
                    "-c",
                    &connections,
                    "-z",
                    &longest,
                    "-m",
                    "POST",
                    "-T",
                    json,
                    "-H",
                    "accept: application/json",
                    "-D",
                    &body,
                    &url,
                ],
            ),
            // It asks TLS for the name in `Host`; for the address and port that stand there otherwise rustls ends the handshake.
            Peer::Hey(program) => command(
                program,
                &[
                    "-c",
                    &connections,
                    "-z",
                    &longest,
                    "-m",
                    "POST",
                    "-T",
                    json,
                    "-A",
                    json,
                    "-host",
                    "localhost",
                    "-t",
                    "30",
                    "-D",
                    &body,
                    &url,
                ],
            ),
            Peer::K6(program) => command(
                program,
                &[
                    "run",
                    "--quiet",
                    "--no-summary",
                    "--no-usage-report",
                    "--address",
                    "",
                    "--vus",
                    &connections,
                    "--duration",
                    &longest,
                    &script("k6.js"),
                ],
            ),
            Peer::Locust(program) => command(
                program,
                &[
                    "--headless",
                    "--skip-log",
                    "--only-summary",
                    "--host",
                    &base,
                    "--users",
                    &connections,
                    "--spawn-rate",
                    "100",
                    "--run-time",
                    &longest,
                    "--locustfile",
                    &script("locustfile.py"),
                ],
            ),
            Peer::Goose(program) => command(
                program,
                &[
                    "--host",
                    &base,
                    "--users",
                    &connections,
                    "--increase-rate",
                    &connections,
                    "--run-time",
                    &longest,
                    "--accept-invalid-certs",
                    "--no-telnet",
                    "--no-print-metrics",
                ],
            ),
        })
    }
}
