//! Referees 1, 2 and 7: what is on disk, and what may therefore be done to the node.

use std::collections::VecDeque;
use std::sync::Arc;

use agent_core::journal::Work;
use agent_core::pbx::durable::{Durable, StepData};
use protocol::hash::Sha256Hex;
use protocol::id::{OperationId, ReleaseVersion};
use protocol::pbx::call::{AnswerBody, Request};
use protocol::pbx::operation::Step;
use protocol::verified::{ReleaseKeys, SignedManifest};

use super::Bench;
use crate::trace::{Began, Event, holds};

/// What is known of one agent's disk.
#[derive(Debug, Clone, Default)]
pub(super) struct Disk {
    durable: Option<Arc<Durable>>,
    /// The destructive step that began last, and whether a look at the node has allowed it again.
    destructive: Option<(OperationId, Step, bool)>,
    /// The manifest that was looked at last, and whether a built-in key verifies it.
    manifest: Option<(Arc<SignedManifest>, ReleaseVersion, bool)>,
    /// What the last manifests that a built-in key verifies have brought: programs and images, by their hash.
    verified: VecDeque<Sha256Hex>,
    /// What was on disk when the program started, from a life before.
    inherited: [Option<Sha256Hex>; 2],
}

/// Programs and images that are remembered.
const VERIFIED_KEPT: usize = 16;

impl Disk {
    pub(super) fn see(&mut self, event: &Event, keys: &ReleaseKeys, bench: &mut Bench<'_>) {
        match event {
            Event::Booted(durable) => {
                self.inherited = [program(durable), image(durable)];
                self.durable = Some(Arc::clone(durable));
            }
            Event::Stored(durable) => self.durable = Some(Arc::clone(durable)),
            Event::Answered {
                call,
                body: AnswerBody::Manifest(signed),
            } => {
                if let Request::Manifest(release) = &call.request {
                    self.keep_verified(keys, signed, release);
                }
            }
            Event::Began(began) => {
                bench.judge(1, self.unrecorded(began));
                if let Work::Operation { operation, step } = &began.record.work
                    && step.is_destructive()
                {
                    bench.judge(2, self.destroys(operation, *step));
                }
                match &began.record.work {
                    Work::Document { .. } => bench.judge(7, self.unverified(keys)),
                    Work::Update { .. } => {
                        // The document on disk goes with a manifest of its own.
                        self.unverified(keys);
                        let program = self.durable.as_deref().and_then(program);
                        bench.judge(7, self.unheard_of("program", program));
                    }
                    // Before the manifest was asked for there is none.
                    Work::Operation { .. } => {
                        if let Some(image) = self.durable.as_deref().and_then(image) {
                            bench.judge(7, self.unheard_of("image", Some(image)));
                        }
                    }
                    Work::Enrollment { .. } => {}
                }
            }
            Event::Probed {
                record,
                not_started: true,
            } => {
                if let (Work::Operation { operation, step }, Some(last)) =
                    (&record.work, &mut self.destructive)
                    && (&last.0, last.1) == (operation, *step)
                {
                    last.2 = true;
                }
            }
            _ => {}
        }
    }

    fn unrecorded(&self, began: &Began) -> Option<String> {
        (!holds(self.durable.as_ref(), &began.record))
            .then(|| format!("{:?} began, and the disk does not hold it", began.record))
    }

    fn destroys(&mut self, operation: &OperationId, step: Step) -> Option<String> {
        let again = match &self.destructive {
            Some((last, last_step, allowed)) => last == operation && *last_step == step && !allowed,
            None => false,
        };
        self.destructive = Some((operation.clone(), step, false));
        again.then(|| {
            format!(
                "{step:?} of {operation} began again, and no look at the node has said NotStarted"
            )
        })
    }

    fn unverified(&mut self, keys: &ReleaseKeys) -> Option<String> {
        let Some(document) = self
            .durable
            .as_ref()
            .and_then(|durable| durable.document.as_ref())
        else {
            return Some("a task of a document began, and no document is on disk".to_owned());
        };
        let verified = match &self.manifest {
            Some((manifest, release, verified))
                if Arc::ptr_eq(manifest, &document.manifest) && *release == document.release =>
            {
                *verified
            }
            _ => {
                let (manifest, release) =
                    (Arc::clone(&document.manifest), document.release.clone());
                let verified = self.keep_verified(keys, &manifest, &release);
                self.manifest = Some((manifest, release, verified));
                verified
            }
        };
        let release = self.manifest.as_ref().map(|(_, release, _)| release);
        release.filter(|_| !verified).map(|release| {
            format!("a task of a document began, and no key verifies the manifest of {release}")
        })
    }

    /// Whether a built-in key verifies a manifest; what it brings is remembered then.
    fn keep_verified(
        &mut self,
        keys: &ReleaseKeys,
        signed: &SignedManifest,
        release: &ReleaseVersion,
    ) -> bool {
        let Ok(manifest) = keys.verify(signed, release) else {
            return false;
        };
        let programs = manifest.agent.artifacts.iter().map(|it| it.sha256);
        let images = manifest.image.artifacts.iter().map(|it| it.image_sha256);
        for hash in programs.chain(images) {
            if !self.verified.contains(&hash) {
                self.verified.push_back(hash);
            }
        }
        while self.verified.len() > VERIFIED_KEPT {
            self.verified.pop_front();
        }
        true
    }

    fn unheard_of(&self, what: &str, hash: Option<Sha256Hex>) -> Option<String> {
        let Some(hash) = hash else {
            return Some(format!("work on a {what} began, and none is on disk"));
        };
        let is_known = self.verified.contains(&hash) || self.inherited.contains(&Some(hash));
        (!is_known).then(|| format!("work on {what} {hash} began, and no verified manifest has it"))
    }
}

/// The program of the agent's own update that is on disk.
fn program(durable: &Durable) -> Option<Sha256Hex> {
    let update = durable.update.as_deref()?;
    Some(update.program.sha256)
}

/// The image of the upgrade that is on disk.
fn image(durable: &Durable) -> Option<Sha256Hex> {
    match &durable.operation.as_deref()?.data {
        StepData::ClusterUpgrade(upgrade) => Some(upgrade.image.as_ref()?.image_sha256),
        _ => None,
    }
}
