//! What a connected agent takes of memory, engine, node model, HTTP and TLS together, and what its connection takes at the
//! portal: the growth of resident memory while a thousand come to some hundred that are there, in two processes, so that
//! the two are not mixed.

use std::env;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use fleet::embedded::{Embedded, MakeTokens, PortalSetup, SetDocuments};
use fleet::foreign::{TokenCommand, TokenSource};
use fleet::run::ForeignPortal;
use fleet::usage::raise_files_limit;
use fleet::worker::Hand;
use record::result::IndexRange;
use scenario::{Arrival, Scenario, Stage};
use serde_json::json;

use crate::Figures;
use crate::machine::resident_kib;
use crate::runs::{calm, run};

/// Those that are there first: with them comes what is there once, such as histograms and code.
const FIRST: u64 = 200;
const MORE: u64 = 1_000;
/// When the first ones are settled, and when all are: five syncs after the last has come, which are due every 3 s, so that
/// what enrollments and first rounds of add-ons took for a while is given back.
const FIRST_SETTLED_SECONDS: f64 = 16.0;
const SETTLED_SECONDS: f64 = 36.0;
const TEMPO: f64 = 0.1;

const TOKENS: &str = "tokens.jsonl";
const CA: &str = "ca.pem";
const RELEASE_KEYS: &str = "release.pub";
const PORTAL: &str = "portal";

/// Starts the two processes.
pub(crate) fn measure() -> Result<Figures> {
    let folder = tempfile::tempdir()?;
    let own = env::current_exe()?;
    let mut portal = Command::new(&own)
        .arg("memory-portal")
        .arg(folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("start a portal")?;
    let mut ready = String::new();
    if let Some(output) = portal.stdout.take() {
        BufReader::new(output).read_line(&mut ready)?;
    }
    let fleet = Command::new(own)
        .arg("memory-fleet")
        .arg(folder.path())
        .env("SSL_CERT_FILE", folder.path().join(CA))
        .stderr(Stdio::inherit())
        .output()
        .context("start a fleet")?;
    // The end of its input is the portal's end.
    drop(portal.stdin.take());
    let ended = portal.wait()?;
    ensure!(ended.success(), "the portal ended with {ended}");
    ensure!(
        fleet.status.success(),
        "the fleet ended with {}",
        fleet.status
    );
    let figures: std::collections::BTreeMap<String, f64> = serde_json::from_slice(&fleet.stdout)?;
    let figure = |name| {
        figures
            .get(name)
            .copied()
            .with_context(|| format!("no {name}"))
    };
    Ok([
        ("agent_kib", figure("agent_kib")?),
        ("portal_kib", figure("portal_kib")?),
    ]
    .into())
}

/// The fleet: some first, more later, at another portal than its own.
fn scenario() -> Result<Scenario> {
    let stage = |count, seconds| Stage {
        count,
        over: Duration::from_secs(seconds),
    };
    let arrival = Arrival::Stages(vec![stage(FIRST, 1), stage(0, 17), stage(MORE, 3)]);
    let mut scenario = calm(FIRST + MORE, arrival, TEMPO)?;
    scenario.warm_up = Duration::ZERO;
    scenario.duration = Duration::from_secs_f64(SETTLED_SECONDS + 1.0);
    Ok(scenario)
}

/// The portal's process: tells by a line that it is ready, and ends with its input.
pub(crate) fn portal(folder: &Path) -> Result<()> {
    let scenario = scenario()?;
    let [population] = &scenario.populations[..] else {
        bail!("one population");
    };
    let document = scenario.portal.document.as_ref().context("a document")?;
    raise_files_limit();
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let setup = PortalSetup::of(&scenario.portal, scenario.seed, 0);
    let (mut portal, ready) = runtime
        .block_on(Hand::<Embedded>::here(setup))
        .map_err(|why| anyhow!(why))?;
    let all = IndexRange {
        first: 0,
        count: population.count,
    };
    let tokens = runtime.block_on(portal.ask(MakeTokens::of(population, all)))??;
    let clusters = tokens.iter().map(|token| token.cluster_id.clone());
    let set = runtime.block_on(portal.ask(SetDocuments::of(document, clusters.collect())))?;
    set.into_iter().collect::<Result<Vec<_>, _>>()?;
    let mut lines = String::new();
    for token in &tokens {
        let line = json!({
            "token": token.token, "cluster_id": token.cluster_id, "node_name": token.node_name,
            "server_id": token.server_id, "boot_image_sha256": token.boot_image_sha256,
        });
        lines.push_str(&format!("{line}\n"));
    }
    let keys: String = ready
        .release_keys
        .iter()
        .map(|key| format!("{key}\n"))
        .collect();
    fs::write(folder.join(TOKENS), lines)?;
    fs::write(folder.join(CA), ready.ca_pem)?;
    fs::write(folder.join(RELEASE_KEYS), keys)?;
    let about = json!({"url": ready.base_url, "process": std::process::id().to_string()});
    fs::write(folder.join(PORTAL), about.to_string())?;
    drop((tokens, scenario));
    writeln!(io::stdout(), "ready")?;
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// The fleet's process.
pub(crate) fn fleet(folder: &Path) -> Result<Figures> {
    let about: serde_json::Value = serde_json::from_slice(&fs::read(folder.join(PORTAL))?)?;
    let about = |member: &str| about[member].as_str().map(str::to_owned);
    let process = about("process").context("the portal's process")?;
    let portal = ForeignPortal {
        url: about("url").context("the portal's URL")?,
        tokens: Some(TokenSource::File(folder.join(TOKENS))),
        token_command: TokenCommand::default(),
        identities: None,
        release_key: Some(folder.join(RELEASE_KEYS)),
    };
    let mut before = None;
    let mut after = None;
    run(scenario()?, Some(portal), |second| {
        let at = |seconds: f64| second.seconds.round() == seconds;
        let look = || {
            anyhow::Ok((
                second.connected,
                resident_kib("self")?,
                resident_kib(&process)?,
            ))
        };
        if at(FIRST_SETTLED_SECONDS) {
            before = Some(look());
        } else if at(SETTLED_SECONDS) {
            after = Some(look());
        }
        false
    })?;
    let (connected, own_before, portal_before) = before.context("the run was too short")??;
    ensure!(
        connected == FIRST,
        "{connected} of {FIRST} first agents are connected"
    );
    let (connected, own_after, portal_after) = after.context("the run was too short")??;
    ensure!(
        connected == FIRST + MORE,
        "{connected} of {} agents are connected",
        FIRST + MORE
    );
    Ok([
        ("agent_kib", (own_after - own_before) / MORE as f64),
        ("portal_kib", (portal_after - portal_before) / MORE as f64),
    ]
    .into())
}
