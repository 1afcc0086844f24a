//! The simulated Hetzner API, which an enrollment asks about its server (ENR-4).
//!
//! It is a part of the world around the portal and not of its memory: a portal that loses its data asks the same API
//! afterwards. What it says of a server is what somebody has put; of one that nobody has put it says whatever is right.

use std::collections::BTreeMap;
use std::fmt;

use protocol::id::{ClusterId, NodeName, ServerId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::state::Change;

/// What the API says of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HetznerServer {
    /// The label that names its cluster; without, the right one.
    #[serde(default)]
    #[schemars(length(max = 255))]
    pub label: Option<String>,
    /// Its name; without, the node's.
    #[serde(default)]
    #[schemars(length(max = 255))]
    pub name: Option<String>,
    /// Whether the API answers about it; without, it does.
    #[serde(default = "yes")]
    pub reachable: bool,
}

fn yes() -> bool {
    true
}

/// The servers that somebody has put.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Hetzner(BTreeMap<ServerId, HetznerServer>);

/// Whether a server may be enrolled as a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Asked<'a> {
    /// It carries the cluster's label and the node's name.
    Fits,
    /// It carries others.
    Differs(Carried<'a>),
    /// The API gave no answer.
    Unreachable,
}

/// What a server carries, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Carried<'a> {
    label: &'a str,
    name: &'a str,
}

impl Hetzner {
    /// Asks about the server of a node.
    pub(crate) fn ask<'a>(
        &'a self,
        server: ServerId,
        cluster: &'a ClusterId,
        node: &'a NodeName,
    ) -> Asked<'a> {
        let Some(put) = self.0.get(&server) else {
            return Asked::Fits;
        };
        if !put.reachable {
            return Asked::Unreachable;
        }
        let carried = Carried {
            label: put.label.as_deref().unwrap_or(cluster.as_str()),
            name: put.name.as_deref().unwrap_or(node.as_str()),
        };
        if (carried.label, carried.name) == (cluster.as_str(), node.as_str()) {
            Asked::Fits
        } else {
            Asked::Differs(carried)
        }
    }

    /// Makes a change, as far as it is about servers.
    pub(crate) fn apply(&mut self, change: &Change) {
        match change {
            Change::HetznerServerPut { server_id, server } => {
                self.0.insert(*server_id, server.clone());
            }
            Change::HetznerForgotten => self.0.clear(),
            _ => {}
        }
    }
}

impl fmt::Display for Carried<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "label {:?} and name {:?}", self.label, self.name)
    }
}
