//! `mock-portal keys`: files with keys for tests.

use std::fs::{DirBuilder, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use anyhow::{Context as _, anyhow, bail};
use mock_portal::keys;
use mock_portal::tls::Certificate;
use portal_core::control::ReleaseKeyView;
use protocol::sign::SigningKey;
use serde_json::json;

use super::cli::Keys;
use super::{Failure, answer, file};

pub(super) fn run(command: Keys) -> Result<(), Failure> {
    match command {
        Keys::Make { folder } => make(&folder),
        Keys::Show { file } => show(&file),
    }
}

/// Reads the release key that an option names.
pub(super) fn read(option: &str, path: &Path) -> Result<SigningKey, Failure> {
    let bytes = zeroize::Zeroizing::new(file(option, path)?);
    let refused = |why: String| Failure::Usage(anyhow!("{option} {}: {why}", path.display()));
    let text = std::str::from_utf8(&bytes).map_err(|_| refused("it is no text".to_owned()))?;
    keys::read(text).map_err(|error| refused(error.to_string()))
}

fn show(path: &Path) -> Result<(), Failure> {
    Ok(answer(&public(&read("keys show", path)?))?)
}

/// Writes all files or, when one is there already, none.
fn make(folder: &Path) -> Result<(), Failure> {
    let key = keys::new().context("the system's random source failed")?;
    let certificate = Certificate::self_signed(None).context("the TLS files")?;
    let (chain, tls_key) = certificate.pem().context("the certificate was made here")?;
    let ca = certificate
        .ca_pem()
        .context("the certificate was made here")?;
    let public = public(&key);
    let release = format!("{}\n", json!({ "release_keys": [public] }));
    let secret = keys::write(&key);
    let files: [(&str, &str, u32); 5] = [
        ("release.key", &secret, 0o600),
        ("release.json", &release, 0o644),
        ("ca.pem", ca, 0o644),
        ("tls-cert.pem", chain, 0o644),
        ("tls-key.pem", tls_key, 0o600),
    ];

    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .with_context(|| format!("the folder {} cannot be made", folder.display()))?;
    let there = files
        .iter()
        .find(|(name, ..)| folder.join(name).symlink_metadata().is_ok());
    if let Some((name, ..)) = there {
        let path = folder.join(name);
        return Err(anyhow!(
            "{} is there already and is left alone; name another folder",
            path.display()
        )
        .into());
    }
    for (name, content, mode) in files {
        write(&folder.join(name), content.as_bytes(), mode)?;
    }
    let path = |name: &str| folder.join(name).display().to_string();
    Ok(answer(&json!({
        "release_keys": [public],
        "release_key_file": path("release.key"),
        "release_keys_file": path("release.json"),
        "ca_pem_file": path("ca.pem"),
        "tls": format!("{},{}", path("tls-cert.pem"), path("tls-key.pem")),
    }))?)
}

/// A release key as agents know it.
fn public(key: &SigningKey) -> ReleaseKeyView {
    let public = key.public();
    ReleaseKeyView {
        id: public.key_id(),
        public,
    }
}

fn write(path: &Path, content: &[u8], mode: u32) -> anyhow::Result<()> {
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)
        .and_then(|mut file| file.write_all(content).and_then(|()| file.sync_all()));
    match written {
        Ok(()) => Ok(()),
        Err(error) => bail!("{} cannot be written: {error}", path.display()),
    }
}
