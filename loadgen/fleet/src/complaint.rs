//! What agents complained of, in words: operations that ended badly, documents that they refuse. Counts say how many of
//! them there are; why, only an agent says, so the first one of each kind is kept.

use std::collections::BTreeMap;

use protocol::pbx::operation::OperationKind;
use protocol::pbx::sync::{DocumentResult, OperationState};
use serde::{Deserialize, Serialize};

/// Complaints, each kind of them with how many there were and what the first one said.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(from = "Vec<Counted>", into = "Vec<Counted>")]
pub struct Complaints(BTreeMap<Complaint, (u64, Option<String>)>);

/// A kind of complaint, how many there were, and what the first one said.
type Counted = (Complaint, (u64, Option<String>));

/// What is complained of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum Complaint {
    /// Operations of this kind ended so.
    Operation(String, String),
    /// Agents say this of the document that they have got last.
    Document(String),
}

impl From<Vec<Counted>> for Complaints {
    fn from(counted: Vec<Counted>) -> Self {
        Self(counted.into_iter().collect())
    }
}

impl From<Complaints> for Vec<Counted> {
    fn from(complaints: Complaints) -> Self {
        complaints.0.into_iter().collect()
    }
}

impl Complaints {
    /// An operation has ended.
    pub fn operation(&mut self, kind: &OperationKind, state: OperationState, why: Option<&str>) {
        match state {
            OperationState::Running | OperationState::Succeeded => {}
            OperationState::Failed | OperationState::Refused | OperationState::Unsupported => {
                self.count(
                    Complaint::Operation(kind.to_string(), state.to_string()),
                    why,
                );
            }
        }
    }

    /// What an agent's last report says of its document.
    pub fn document(&mut self, result: &DocumentResult, why: Option<&str>) {
        match result {
            DocumentResult::Applied | DocumentResult::Pending => {}
            _ => self.count(Complaint::Document(result.to_string()), why),
        }
    }

    fn count(&mut self, complaint: Complaint, why: Option<&str>) {
        let (count, first) = self.0.entry(complaint).or_default();
        *count += 1;
        if first.is_none() {
            *first = why.map(str::to_owned);
        }
    }

    /// Adds what was complained of elsewhere.
    pub fn add(&mut self, other: Self) {
        for (complaint, (count, first)) in other.0 {
            let mine = self.0.entry(complaint).or_default();
            mine.0 += count;
            mine.1 = mine.1.take().or(first);
        }
    }

    /// A line for each kind.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|(complaint, (count, first))| {
            let what = match complaint {
                Complaint::Operation(kind, state) => {
                    format!("{count} `{kind}` operations ended as `{state}`")
                }
                Complaint::Document(result) => {
                    format!("{count} agents say `{result}` of their last document")
                }
            };
            match first {
                Some(first) => format!("{what}; the first: {first}"),
                None => what,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_are_counted_by_kind_and_the_first_is_quoted() {
        let mut here = Complaints::default();
        let restore = OperationKind::ClusterRestore;
        here.operation(&restore, OperationState::Succeeded, None);
        here.operation(&restore, OperationState::Failed, Some("no snapshot `a`"));
        let mut there = Complaints::default();
        there.operation(&restore, OperationState::Failed, Some("no snapshot `b`"));
        there.operation(&restore, OperationState::Refused, None);
        there.document(&DocumentResult::Applied, None);
        there.document(&DocumentResult::ManifestRejected, Some("no such key"));
        // As another process sends them.
        let there = serde_json::to_string(&there).unwrap();
        here.add(serde_json::from_str(&there).unwrap());
        assert_eq!(
            here.lines().collect::<Vec<_>>(),
            [
                "2 `cluster.restore` operations ended as `failed`; the first: no snapshot `a`",
                "1 `cluster.restore` operations ended as `refused`",
                "1 agents say `manifest_rejected` of their last document; the first: no such key",
            ]
        );
    }
}
