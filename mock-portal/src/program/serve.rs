//! `mock-portal serve`: from arguments to a portal that runs until it is told to end.

use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, anyhow};
use mock_portal::store::{Data, DataError};
use mock_portal::tls::Certificate;
use mock_portal::{Config, Server, StartError, keys};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tempfile::NamedTempFile;
use tokio::signal::unix::{SignalKind, signal};

use super::cli::{Serve, Tls};
use super::{Failure, answer, file};

pub(super) fn run(options: Serve) -> Result<(), Failure> {
    let config = config(options)?;
    raise_open_files();
    let runtime = tokio::runtime::Runtime::new().context("no runtime")?;
    runtime.block_on(serve(config))
}

/// A connection is a descriptor, and the usual soft limit of 1,024 is less than a fleet: takes what the hard one allows.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => tracing::debug!(limit = ?limit.maximum, "open files"),
        Err(error) => {
            tracing::warn!(%error, limit = ?limit.current, "the limit of open files stays as it is");
        }
    }
}

async fn serve(config: Config) -> Result<(), Failure> {
    // Before the ready line: whoever reads it may send a signal at once.
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM cannot be caught")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT cannot be caught")?;
    let plain =
        Some(config.agents).filter(|at| config.certificate.is_none() && !at.ip().is_loopback());
    let running = Server::start(config).await.map_err(|error| match error {
        StartError::Bind(error) => Failure::Failed(error.into()),
        StartError::OpenLab(address) => Failure::Usage(anyhow!(
            "--lab {address} is open to everybody and can revoke a fleet; add --lab-token, or take a loopback address"
        )),
        StartError::Data(error @ (DataError::InUse { .. } | DataError::Write { .. } | DataError::Thread(_))) => {
            Failure::Failed(error.into())
        }
        error @ (StartError::Tls(_) | StartError::Data(_)) => Failure::Usage(error.into()),
    })?;
    if let Some(address) = plain {
        tracing::warn!(%address, "agents take plain http for loopback addresses only (WIRE-3); give this one --tls");
    }
    let ca_pem_file = running.ca_pem.as_deref().map(ca_file).transpose()?;
    answer(&running.ready(ca_pem_file.as_ref().map(NamedTempFile::path)))?;
    tracing::info!(agents = %running.agents_url, lab = %running.lab_url, "ready");

    let failed = tokio::select! {
        _ = terminate.recv() => { tracing::info!("SIGTERM: ending"); None }
        _ = interrupt.recv() => { tracing::info!("SIGINT: ending"); None }
        why = running.failed() => Some(why),
    };
    running.shutdown().await;
    match failed {
        None => Ok(()),
        Some(why) => Err(Failure::Failed(anyhow!("--data: {why}"))),
    }
}

fn config(options: Serve) -> Result<Config, Failure> {
    let mut settings = match options.seed {
        Some(seed) => keys::settings_of_seed(seed),
        None => keys::settings().context("the system's random source failed")?,
    };
    if let Some(path) = &options.release_key {
        settings.release_key = super::keys::read("--release-key", path)?;
    }
    if let Some(path) = &options.dialect {
        settings.dialect = super::dialect(path)?;
    }
    let mut config = Config::new(settings);
    config.agents = options.listen;
    config.lab = options.lab;
    config.lab_token = options.lab_token;
    config.data = options.data.map(|file| Data {
        release_key_named: options.release_key.is_some(),
        checkpoint_bytes: options.data_checkpoint.saturating_mul(1024),
        ..Data::new(file)
    });
    config.profile = options.profile.into();
    config.certificate = options
        .tls
        .map(|tls| certificate(&tls, options.listen.ip()))
        .transpose()?;
    Ok(config)
}

fn certificate(tls: &Tls, listen: std::net::IpAddr) -> Result<Certificate, Failure> {
    let (chain_path, key_path) = match tls {
        Tls::SelfSigned => {
            return Ok(Certificate::self_signed(Some(listen)).context("--tls self-signed")?);
        }
        Tls::Files { chain, key } => (chain, key),
    };
    let refused = |path: &Path, error| Failure::Usage(anyhow!("--tls {}: {error}", path.display()));
    let chain = Certificate::read_chain(&file("--tls", chain_path)?)
        .map_err(|error| refused(chain_path, error))?;
    let key = zeroize::Zeroizing::new(file("--tls", key_path)?);
    let key = Certificate::read_key(&key).map_err(|error| refused(key_path, error))?;
    Ok(Certificate::given(chain, key))
}

/// The authority's certificate in a file that goes when the program ends.
fn ca_file(pem: &str) -> anyhow::Result<NamedTempFile> {
    let write = || {
        let mut file = tempfile::Builder::new()
            .prefix("mock-portal-ca-")
            .suffix(".pem")
            .tempfile()?;
        file.write_all(pem.as_bytes())?;
        Ok::<_, std::io::Error>(file)
    };
    write()
        .context("the authority's certificate cannot be written to the folder for temporary files")
}
