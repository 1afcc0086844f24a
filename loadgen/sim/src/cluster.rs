//! The Kubernetes API of a cluster and what lies behind it: Nodes with their heartbeats, Secrets, and the epoch of the
//! data, which a restore sets back.
//!
//! The API answers while the k3s of at least one server is up. Which server leads among several is not modelled here yet;
//! a single server leads while the API is up (SYNC-6).

use std::collections::{BTreeMap, BTreeSet};

use agent_core::time::Monotonic;
use protocol::hash::Sha256Hex;
use protocol::id::NodeName;

/// A cluster's API.
#[derive(Debug, Clone, Default)]
pub struct SimCluster {
    data: Data,
    serving: BTreeSet<NodeName>,
    up_since: Option<Monotonic>,
}

/// What etcd holds; a snapshot is a copy of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Data {
    /// Nodes, with the last time that their kubelet reported.
    nodes: BTreeMap<NodeName, Monotonic>,
    /// Secrets by `namespace/name`, as the hash of what is in them.
    secrets: BTreeMap<String, Sha256Hex>,
}

impl Data {
    fn seen(&mut self, node: &NodeName, now: Monotonic) {
        match self.nodes.get_mut(node) {
            Some(seen) => *seen = now,
            None => {
                self.nodes.insert(node.clone(), now);
            }
        }
    }
}

/// The API does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the Kubernetes API does not answer")]
pub struct ApiDown;

impl SimCluster {
    /// Whether the API answers (FAIL-2).
    pub fn is_up(&self) -> bool {
        !self.serving.is_empty()
    }

    /// A server's k3s serves the API from now on, and its kubelet reports.
    pub fn serve(&mut self, node: &NodeName, now: Monotonic) {
        if self.serving.is_empty() {
            self.up_since = Some(now);
        }
        if !self.serving.contains(node) {
            self.serving.insert(node.clone());
        }
        self.data.seen(node, now);
    }

    /// A server's k3s no longer serves.
    pub fn withdraw(&mut self, node: &NodeName) {
        self.serving.remove(node);
        if self.serving.is_empty() {
            self.up_since = None;
        }
    }

    /// The kubelet of a node reports; a Node that was deleted comes back.
    ///
    /// # Errors
    /// While the API is down.
    pub fn report(&mut self, node: &NodeName, now: Monotonic) -> Result<(), ApiDown> {
        self.api()?.seen(node, now);
        Ok(())
    }

    /// Writes a Secret; whether it is another than before.
    ///
    /// # Errors
    /// While the API is down.
    pub fn write_secret(&mut self, name: &str, content: Sha256Hex) -> Result<bool, ApiDown> {
        Ok(self.api()?.secrets.insert(name.to_owned(), content) != Some(content))
    }

    /// What a Secret holds.
    pub fn secret(&self, name: &str) -> Option<Sha256Hex> {
        self.data.secrets.get(name).copied()
    }

    /// Deletes the Nodes, other than `own`, whose kubelet has not reported since the API came up (OP-4).
    ///
    /// # Errors
    /// While the API is down.
    pub fn forget_stale(&mut self, own: &NodeName) -> Result<Vec<NodeName>, ApiDown> {
        let up_since = self.up_since.ok_or(ApiDown)?;
        let stale: Vec<_> = (self.data.nodes.iter())
            .filter(|(node, seen)| *node != own && **seen < up_since)
            .map(|(node, _)| node.clone())
            .collect();
        for node in &stale {
            self.data.nodes.remove(node);
        }
        Ok(stale)
    }

    /// The Nodes that the API lists.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeName> {
        self.data.nodes.keys()
    }

    /// A copy of the data, as an etcd snapshot is.
    ///
    /// # Errors
    /// While the API is down.
    pub fn snapshot(&self) -> Result<Data, ApiDown> {
        if self.is_up() {
            Ok(self.data.clone())
        } else {
            Err(ApiDown)
        }
    }

    /// Sets the data back, as a cluster reset does; possible only while nothing serves.
    ///
    /// # Errors
    /// With the server that still serves.
    pub fn reset_to(&mut self, data: Data) -> Result<(), NodeName> {
        match self.serving.first() {
            Some(serving) => Err(serving.clone()),
            None => {
                self.data = data;
                Ok(())
            }
        }
    }

    fn api(&mut self) -> Result<&mut Data, ApiDown> {
        if self.is_up() {
            Ok(&mut self.data)
        } else {
            Err(ApiDown)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> NodeName {
        name.parse().unwrap()
    }

    fn at(seconds: u64) -> Monotonic {
        Monotonic::from_ms(seconds * 1000)
    }

    #[test]
    fn the_api_answers_while_one_server_serves() {
        let mut cluster = SimCluster::default();
        let content = Sha256Hex::of(b"token");
        assert_eq!(
            cluster.write_secret("kube-system/hcloud", content),
            Err(ApiDown)
        );
        cluster.serve(&node("a"), at(1));
        cluster.serve(&node("b"), at(2));
        cluster.withdraw(&node("a"));
        assert_eq!(
            cluster.write_secret("kube-system/hcloud", content),
            Ok(true)
        );
        assert_eq!(
            cluster.write_secret("kube-system/hcloud", content),
            Ok(false)
        );
        cluster.withdraw(&node("b"));
        assert_eq!(cluster.snapshot(), Err(ApiDown));
        assert_eq!(
            cluster.secret("kube-system/hcloud"),
            Some(content),
            "etcd keeps what it has"
        );
    }

    // rule OP-4
    #[test]
    fn after_a_restore_only_nodes_that_stay_silent_are_forgotten() {
        let mut cluster = SimCluster::default();
        for name in ["a", "b", "c"] {
            cluster.serve(&node(name), at(10));
        }
        let snapshot = cluster.snapshot().unwrap();
        assert_eq!(
            cluster.reset_to(snapshot.clone()),
            Err(node("a")),
            "it still serves"
        );
        for name in ["a", "b", "c"] {
            cluster.withdraw(&node(name));
        }
        cluster.reset_to(snapshot).unwrap();
        cluster.serve(&node("a"), at(100));
        cluster.report(&node("b"), at(130)).unwrap();
        assert_eq!(cluster.forget_stale(&node("a")), Ok(vec![node("c")]));
        assert_eq!(
            cluster.nodes().cloned().collect::<Vec<_>>(),
            [node("a"), node("b")]
        );
    }
}
