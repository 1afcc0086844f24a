//! Signed manifests, one copy for all agents of a process that hold the same: a node has one, a process of the load
//! generator as many as it has agents.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use agent_core::machine::{Call, Unreachable};
use agent_core::pbx::Agent;
use agent_core::port::Portal;
use protocol::pbx::call::{AnswerBody, Reply, Request};
use protocol::verified::SignedManifest;

/// The manifests that somebody holds. A clone is another handle to the same shelf.
#[derive(Debug, Clone, Default)]
pub struct Shelf(Arc<Mutex<Vec<Weak<SignedManifest>>>>);

impl Shelf {
    /// The copy that is held already, or this one.
    fn one_for_all(&self, fetched: Arc<SignedManifest>) -> Arc<SignedManifest> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let same = held.iter().filter_map(Weak::upgrade);
        if let Some(same) = same.into_iter().find(|manifest| *manifest == fetched) {
            return same;
        }
        held.retain(|manifest| manifest.strong_count() > 0);
        held.push(Arc::downgrade(&fetched));
        fetched
    }
}

/// A way to the portal on which manifests are put on a shelf as they come.
#[derive(Debug)]
pub struct Shelved<P> {
    /// The way.
    pub portal: P,
    /// The shelf.
    pub shelf: Shelf,
}

impl<P: Portal<Agent> + Send> Portal<Agent> for Shelved<P> {
    async fn call(&mut self, call: Call<Request>) -> Result<Reply, Unreachable> {
        let reply = self.portal.call(call).await?;
        Ok(match reply {
            Reply::Done(AnswerBody::Manifest(fetched)) => {
                Reply::Done(AnswerBody::Manifest(self.shelf.one_for_all(fetched)))
            }
            reply => reply,
        })
    }
}

#[cfg(test)]
mod tests {
    use protocol::sign::SigningKey;
    use protocol::verified::sign_manifest;

    use super::*;

    #[test]
    fn what_is_the_same_is_held_once_and_what_nobody_holds_is_forgotten() {
        let key = SigningKey::from_seed([7; 32]);
        let fetched = |payload: &[u8]| Arc::new(sign_manifest(&key, payload));
        let shelf = Shelf::default();
        let first = shelf.one_for_all(fetched(b"1"));
        assert!(Arc::ptr_eq(&first, &shelf.one_for_all(fetched(b"1"))));
        let second = shelf.one_for_all(fetched(b"2"));
        assert_ne!(first, second);
        drop((first, second));
        let third = shelf.one_for_all(fetched(b"3"));
        assert_eq!(
            Weak::strong_count(&shelf.0.lock().unwrap()[0]),
            1,
            "{third:?}"
        );
    }
}
