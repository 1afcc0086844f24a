//! The Lease `pbx-system/pbx-agent-leader`, as an agent asks for it and sees it (SYNC-6). Nothing is decided here.
//!
//! A coordination.k8s.io/v1 Lease has more members than these; the host fills them in.

use std::fmt;
use std::sync::Arc;

use protocol::id::AgentId;
use protocol::time::Timestamp;

/// The Lease, as the API has it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Lease {
    /// Who holds it, as text: somebody else's program may have written it.
    pub holder: Box<str>,
    /// When it was renewed last, by its holder's clock. It tells two renewals apart and measures nothing.
    pub renewed_at: Timestamp,
    /// The version of the object.
    pub version: ResourceVersion,
}

/// A version of an object, to be compared and sent back and not to be understood.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ResourceVersion(pub Box<str>);

/// Who holds a Lease: an agent, in one life of its program, so that no life takes another's for its own.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Holder {
    /// The agent.
    pub agent: AgentId,
    /// The life.
    pub boot: u64,
}

impl Holder {
    /// Whether a Lease is held by some life of the same agent.
    pub fn is_of_same_agent(&self, lease: &Lease) -> bool {
        let life = lease.holder.strip_prefix(self.agent.as_str());
        let life = life.and_then(|rest| rest.strip_prefix('_'));
        life.is_some_and(|life| u64::from_str_radix(life, 16).is_ok())
    }
}

impl fmt::Display for Holder {
    /// `agt_01J9…_00c5f3a1b2d4e697`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { agent, boot } = self;
        write!(formatter, "{agent}_{boot:016x}")
    }
}

/// What an agent asks about the Lease.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum LeaseCall {
    /// To read it, and which servers the cluster has.
    Read,
    /// To write it, if it is still as it was.
    Write {
        /// Its holder from now on.
        holder: Holder,
        /// When that is, by the holder's clock.
        renewed_at: Timestamp,
        /// For how long others are to leave it alone, in milliseconds.
        duration_ms: u64,
        /// The version that it must still have; none if it must not be there yet.
        over: Option<ResourceVersion>,
    },
}

/// What the API says.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum LeaseReply {
    /// As it is; none where there is none.
    Read {
        /// The Lease.
        lease: Option<Arc<Lease>>,
        /// The servers of the cluster.
        servers: Servers,
    },
    /// As it was written.
    Written {
        /// The Lease.
        lease: Arc<Lease>,
        /// The servers of the cluster.
        servers: Servers,
    },
    /// It was written by somebody else meanwhile, or it is gone; nothing was changed.
    Conflict,
}

/// Which Nodes of the cluster are servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Servers {
    /// This one, and no other.
    OnlyThis,
    /// Any others.
    Several,
}
