//! Which manifest is believed, whoever has asked for it: a document, an upgrade, or a portal that finds this agent too old
//! (UPD-4, UPD-6).
//!
//! What is then read from it, and whether that fits, is the affair of whoever asked.

use protocol::id::ReleaseVersion;
use protocol::pbx::release::Manifest;
use protocol::verified::{SignedManifest, Verified};

use super::shared::Shared;

/// The manifest of a release: a built-in key has signed it, it names that release, and its floor is not below the highest
/// one seen.
///
/// # Errors
/// Why it is not believed, for people.
pub(super) fn believe(
    shared: &Shared,
    release: &ReleaseVersion,
    signed: &SignedManifest,
) -> Result<Verified<Manifest>, String> {
    let verified = shared.facts.release_keys.verify(signed, release);
    let manifest = verified.map_err(|rejected| rejected.to_string())?;
    let (floor, seen) = (manifest.floor, shared.journal.floor);
    if floor < seen {
        return Err(format!(
            "its floor {floor} is below {seen}, which was seen before"
        ));
    }
    Ok(manifest)
}
