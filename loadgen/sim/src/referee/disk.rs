//! Referees 1, 2 and 7: what is on disk, and what may therefore be done to the node.

use std::sync::Arc;

use agent_core::journal::Work;
use agent_core::pbx::durable::Durable;
use protocol::id::{OperationId, ReleaseVersion};
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
}

impl Disk {
    pub(super) fn see(&mut self, event: &Event, keys: &ReleaseKeys, bench: &mut Bench<'_>) {
        match event {
            Event::Booted(durable) | Event::Stored(durable) => {
                self.durable = Some(Arc::clone(durable));
            }
            Event::Began(began) => {
                bench.judge(1, self.unrecorded(began));
                if let Work::Operation { operation, step } = &began.record.work
                    && step.is_destructive()
                {
                    bench.judge(2, self.destroys(operation, *step));
                }
                if let Work::Document { .. } = began.record.work {
                    bench.judge(7, self.unverified(keys));
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
                let verified = keys.verify(&document.manifest, &document.release).is_ok();
                self.manifest = Some((
                    Arc::clone(&document.manifest),
                    document.release.clone(),
                    verified,
                ));
                verified
            }
        };
        (!verified).then(|| {
            format!(
                "a task of a document began, and no key verifies the manifest of {}",
                document.release
            )
        })
    }
}
