//! The Kubernetes API of a cluster and what lies behind it: Nodes with their heartbeats and what runs on them, Secrets,
//! add-ons, the leader's Lease, ServiceAccounts with their tokens, the bucket of the snapshots, and the epoch of the data,
//! which a restore sets back.
//!
//! The API answers while the k3s of at least one server is up, and nobody has paused it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use agent_core::pbx::lease::{Holder, Lease, ResourceVersion, Servers};
use agent_core::pbx::task::{Account, AccountName, Uid};
use agent_core::time::Monotonic;
use litemap::LiteMap;
use protocol::hash::Sha256Hex;
use protocol::id::{NodeName, SnapshotName};
use protocol::pbx::operation::Role;
use protocol::time::Timestamp;

use crate::addons::{Addons, AddonsApi, Obstacles};

/// A cluster's API, and the bucket that it keeps its snapshots in.
#[derive(Debug, Clone, Default)]
pub struct SimCluster {
    data: Data,
    /// What stands in the way of its add-ons.
    pub obstacles: Obstacles,
    serving: BTreeSet<NodeName>,
    up_since: Option<Monotonic>,
    /// Until when it answers nobody, whatever serves it.
    paused_until: Option<Monotonic>,
    bucket: Bucket,
    /// Tokens that were issued; whether one works is asked of the data (OP-7).
    tokens: Vec<Token>,
    uids: u64,
}

/// What etcd holds; a snapshot is a copy of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Data {
    nodes: LiteMap<NodeName, Node>,
    /// Secrets by `namespace/name`, as the hash of what is in them.
    secrets: LiteMap<String, Sha256Hex>,
    accounts: BTreeMap<AccountName, ServiceAccount>,
    /// What runs on a node, made when somebody looks at it first.
    pods: BTreeMap<NodeName, Vec<Pod>>,
    addons: Addons,
    /// The Lease `pbx-system/pbx-agent-leader`.
    lease: Option<Arc<Lease>>,
    /// The last version that was given to it.
    version: u64,
}

/// A Node object.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Node {
    uid: u64,
    /// The last time that its kubelet reported.
    seen: Monotonic,
    cordoned: bool,
}

/// A ServiceAccount of access. Another one of the same name has another UID.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ServiceAccount {
    uid: u64,
    asked_at: Timestamp,
}

/// What runs on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pod {
    name: String,
    /// A disruption budget keeps it where it is.
    guarded: bool,
}

/// A token of a ServiceAccount. It ends with the account that it was issued to.
#[derive(Debug, Clone)]
struct Token {
    hash: Sha256Hex,
    account: AccountName,
    uid: u64,
    ends_at: Monotonic,
}

/// A bucket, as S3 has it: whoever has keys that it does not refuse sees what is in it.
#[derive(Debug, Clone, Default)]
struct Bucket {
    objects: BTreeMap<SnapshotName, Data>,
    /// Access keys that were taken back.
    refused: BTreeSet<Sha256Hex>,
}

/// The API does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the Kubernetes API does not answer")]
pub struct ApiDown;

impl SimCluster {
    /// Whether the API answers (FAIL-2).
    pub fn is_up(&self) -> bool {
        !self.serving.is_empty() && self.paused_until.is_none()
    }

    /// It answers nobody until then: its datastore is slow, or the way to it is cut.
    pub fn pause(&mut self, until: Monotonic) {
        self.paused_until = self.paused_until.max(Some(until));
    }

    /// Time has passed.
    pub fn pass_time(&mut self, now: Monotonic) {
        self.paused_until = self.paused_until.filter(|until| *until > now);
    }

    /// A server's k3s serves the API from now on, and its kubelet reports.
    pub fn serve(&mut self, node: &NodeName, now: Monotonic) {
        if self.serving.is_empty() {
            self.up_since = Some(now);
        }
        if !self.serving.contains(node) {
            self.serving.insert(node.clone());
        }
        self.seen(node, now);
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
        self.api()?;
        self.seen(node, now);
        Ok(())
    }

    fn seen(&mut self, node: &NodeName, now: Monotonic) {
        match self.data.nodes.get_mut(node) {
            Some(node) => node.seen = now,
            None => {
                let uid = self.next_uid();
                let fresh = Node {
                    uid,
                    seen: now,
                    cordoned: false,
                };
                self.data.nodes.insert(node.clone(), fresh);
            }
        }
    }

    fn next_uid(&mut self) -> u64 {
        self.uids += 1;
        self.uids
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
            .filter(|(name, node)| *name != own && node.seen < up_since)
            .map(|(name, _)| name.clone())
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

    /// The add-ons.
    ///
    /// # Errors
    /// While the API is down.
    pub fn addons(&mut self) -> Result<AddonsApi<'_>, ApiDown> {
        if !self.is_up() {
            return Err(ApiDown);
        }
        Ok(AddonsApi {
            addons: &mut self.data.addons,
            obstacles: &self.obstacles,
            uids: &mut self.uids,
        })
    }

    /// The leader's Lease, and which servers there are beside one.
    ///
    /// # Errors
    /// While the API is down.
    pub fn lease(&self, own: &NodeName) -> Result<(Option<Arc<Lease>>, Servers), ApiDown> {
        let data = self.asked()?;
        Ok((data.lease.clone(), data.servers(own)))
    }

    /// Writes the leader's Lease if it still has this version, or is not there where none is given; `None` if not. Answers as
    /// [`SimCluster::lease`] does.
    ///
    /// # Errors
    /// While the API is down.
    pub fn write_lease(
        &mut self,
        own: &NodeName,
        holder: &Holder,
        renewed_at: Timestamp,
        over: Option<&ResourceVersion>,
    ) -> Result<Option<(Arc<Lease>, Servers)>, ApiDown> {
        let data = self.api()?;
        if data.lease.as_ref().map(|lease| &lease.version) != over {
            return Ok(None);
        }
        data.version += 1;
        let lease = Arc::new(Lease {
            holder: holder.to_string().into(),
            renewed_at,
            version: ResourceVersion(data.version.to_string().into()),
        });
        data.lease = Some(Arc::clone(&lease));
        Ok(Some((lease, data.servers(own))))
    }

    fn api(&mut self) -> Result<&mut Data, ApiDown> {
        if self.is_up() {
            Ok(&mut self.data)
        } else {
            Err(ApiDown)
        }
    }

    fn asked(&self) -> Result<&Data, ApiDown> {
        if self.is_up() {
            Ok(&self.data)
        } else {
            Err(ApiDown)
        }
    }
}

/// Access (OP-7, OP-8).
impl SimCluster {
    /// Makes a ServiceAccount; one that is there stays as it is.
    ///
    /// # Errors
    /// While the API is down.
    pub fn ensure_account(&mut self, account: &Account) -> Result<(), ApiDown> {
        let uid = self.next_uid();
        let fresh = ServiceAccount {
            uid,
            asked_at: account.asked_at,
        };
        let accounts = &mut self.api()?.accounts;
        accounts.entry(account.name.clone()).or_insert(fresh);
        Ok(())
    }

    /// A token is issued to a ServiceAccount; the caller has made it. `false` if there is no such account.
    ///
    /// # Errors
    /// While the API is down.
    pub fn issue_token(
        &mut self,
        account: &AccountName,
        token: Sha256Hex,
        now: Monotonic,
        ends_at: Monotonic,
    ) -> Result<bool, ApiDown> {
        let Some(uid) = self.asked()?.accounts.get(account).map(|it| it.uid) else {
            return Ok(false);
        };
        self.tokens.retain(|token| now < token.ends_at);
        self.tokens.push(Token {
            hash: token,
            account: account.clone(),
            uid,
            ends_at,
        });
        Ok(true)
    }

    /// What somebody may do with a token now.
    pub fn role_of(&self, token: &Sha256Hex, now: Monotonic) -> Option<Role> {
        let token = self.tokens.iter().find(|issued| issued.hash == *token)?;
        let account = self.asked().ok()?.accounts.get(&token.account)?;
        (account.uid == token.uid && now < token.ends_at).then_some(token.account.role)
    }

    /// How many tokens work now.
    pub fn tokens_that_work(&self, now: Monotonic) -> usize {
        let works = |token: &&Token| self.role_of(&token.hash, now).is_some();
        self.tokens.iter().filter(works).count()
    }

    /// The ServiceAccounts of access.
    ///
    /// # Errors
    /// While the API is down.
    pub fn accounts(&self) -> Result<Vec<Account>, ApiDown> {
        let accounts = self.asked()?.accounts.iter();
        let account = |(name, account): (&AccountName, &ServiceAccount)| Account {
            name: name.clone(),
            asked_at: account.asked_at,
        };
        Ok(accounts.map(account).collect())
    }

    /// Deletes a ServiceAccount, if it is there.
    ///
    /// # Errors
    /// While the API is down.
    pub fn delete_account(&mut self, name: &AccountName) -> Result<(), ApiDown> {
        self.api()?.accounts.remove(name);
        Ok(())
    }
}

/// Nodes and what runs on them (OP-12).
impl SimCluster {
    /// Lets nothing new onto a node; what runs there and can be moved. None if there is no such Node.
    ///
    /// # Errors
    /// While the API is down.
    pub fn cordon(&mut self, node: &NodeName) -> Result<Option<Vec<String>>, ApiDown> {
        let data = self.api()?;
        let Some(found) = data.nodes.get_mut(node) else {
            return Ok(None);
        };
        found.cordoned = true;
        Ok(Some(
            data.pods_of(node)
                .iter()
                .map(|pod| pod.name.clone())
                .collect(),
        ))
    }

    /// Whether nothing new comes onto a node.
    pub fn is_cordoned(&self, node: &NodeName) -> bool {
        self.data.nodes.get(node).is_some_and(|node| node.cordoned)
    }

    /// What runs on a node.
    pub fn pods(&mut self, node: &NodeName) -> Vec<String> {
        let pods = self.data.pods_of(node).iter();
        pods.map(|pod| pod.name.clone()).collect()
    }

    /// The next pod of a node that may be moved.
    ///
    /// # Errors
    /// While the API is down.
    pub fn next_to_evict(&mut self, node: &NodeName) -> Result<Option<String>, ApiDown> {
        let mut pods = self.api()?.pods_of(node).iter();
        Ok(pods.find(|pod| !pod.guarded).map(|pod| pod.name.clone()))
    }

    /// Evicts a pod: it starts again on another node that takes it, if there is one.
    ///
    /// # Errors
    /// While the API is down.
    pub fn evict(&mut self, node: &NodeName, pod: &str) -> Result<(), ApiDown> {
        let data = self.api()?;
        let evicted: Vec<Pod> = match data.pods.get_mut(node) {
            Some(pods) => pods.extract_if(.., |found| found.name == pod).collect(),
            None => Vec::new(),
        };
        let mut others = data.nodes.iter();
        let other = others.find(|(name, found)| *name != node && !found.cordoned);
        if let Some(other) = other.map(|(name, _)| name.clone()) {
            let runs_there = data.pods_of(&other);
            runs_there.extend(evicted);
        }
        Ok(())
    }

    /// The UID of a Node whose kubelet has not reported since a moment; none if there is no such Node.
    ///
    /// # Errors
    /// While the API is down, or when it reports.
    pub fn silent(&self, node: &NodeName, since: Monotonic) -> Result<Option<Uid>, String> {
        let data = self.asked().map_err(|down| down.to_string())?;
        match data.nodes.get(node) {
            None => Ok(None),
            Some(found) if self.serving.contains(node) || found.seen > since => {
                Err(format!("{node} still reports"))
            }
            Some(found) => Ok(Some(Uid(found.uid.to_string()))),
        }
    }

    /// Deletes a Node, if it is the one with that UID; one that is not there is fine.
    ///
    /// # Errors
    /// While the API is down, or when it is another one.
    pub fn delete_node(&mut self, node: &NodeName, uid: &Uid) -> Result<(), String> {
        let data = self.api().map_err(|down| down.to_string())?;
        match data.nodes.get(node) {
            Some(found) if found.uid.to_string() != uid.0 => {
                Err(format!("{node} is another Node by now: it has come back"))
            }
            Some(_) => {
                data.nodes.remove(node);
                data.pods.remove(node);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Whether this server serves the API.
    pub fn is_served_by(&self, node: &NodeName) -> bool {
        self.serving.contains(node)
    }

    /// Whether another server than this one serves the API.
    pub fn is_served_beside(&self, node: &NodeName) -> bool {
        self.serving.iter().any(|serving| serving != node)
    }
}

impl Data {
    /// Which servers there are beside one.
    fn servers(&self, own: &NodeName) -> Servers {
        match self.nodes.keys().eq([own]) {
            true => Servers::OnlyThis,
            false => Servers::Several,
        }
    }

    /// What runs on a node: two pods that can be moved, and one that a disruption budget guards.
    fn pods_of(&mut self, node: &NodeName) -> &mut Vec<Pod> {
        self.pods.entry(node.clone()).or_insert_with(|| {
            let pod = |name: &str, guarded| Pod {
                name: format!("default/{name}-{node}"),
                guarded,
            };
            vec![
                pod("shop", false),
                pod("queue", false),
                pod("database", true),
            ]
        })
    }
}

/// The bucket (OP-1, OP-10).
impl SimCluster {
    /// Puts a snapshot into the bucket.
    pub fn upload(&mut self, name: SnapshotName, data: Data) {
        self.bucket.objects.insert(name, data);
    }

    /// A snapshot in the bucket.
    pub fn in_bucket(&self, name: &SnapshotName) -> Option<&Data> {
        self.bucket.objects.get(name)
    }

    /// How many objects an access key sees.
    ///
    /// # Errors
    /// When the bucket refuses the key.
    pub fn list_bucket(&self, access_key: Sha256Hex) -> Result<u64, String> {
        if self.bucket.refused.contains(&access_key) {
            return Err("the bucket answered 403 AccessDenied".to_owned());
        }
        Ok(self.bucket.objects.len() as u64)
    }

    /// Takes an access key back.
    pub fn refuse_access_key(&mut self, access_key: &str) {
        self.bucket
            .refused
            .insert(Sha256Hex::of(access_key.as_bytes()));
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
