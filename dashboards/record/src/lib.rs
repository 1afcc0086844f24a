//! Words about a run: what is counted, how it is kept, what it comes to.
//!
//! Every output (progress lines, verdict, reports) is made from these types, so no two of them can disagree. Nothing
//! here measures, waits or writes: a world fills a [`Recorder`], the parts merge exactly, and [`RunResult`] is the
//! file that is left of a run. It knows `protocol` for the names of endpoints and codes, and nothing else of ours.
//!
//! How a run flows through the modules:
//!
//! | Module | What it holds |
//! |---|---|
//! | [`outcome`] | every way in which a request can end |
//! | [`histogram`] | one distribution of durations |
//! | [`samples`] | durations per endpoint and outcome, in fixed memory |
//! | [`series`] | the run by the second |
//! | [`latencies`] | what calls took, by the second, as exactly as a curve needs it |
//! | [`account`] | nothing is lost: planned, started and ended add up, and agree with the portal's counters |
//! | `second` | the second that runs, where a request is counted first |
//! | [`recorder`] | account, series and samples behind one face, so that they cannot disagree |
//! | [`fleet`] | what the fleet as a whole went through |
//! | [`figures`] | what a person asks about it, computed from merged data |
//! | [`result`] | the result file |
//! | [`consistency`] | whether a result agrees with itself |
//! | [`judgement`] | one expectation, judged |
//! | [`verdict`] | one word and one exit code for it all |
//! | [`timeline`] | what was to happen when, and what came of it |
//! | [`agents`] | single agents, for a live screen that asks |
//! | [`snapshot`] | what a live screen or a progress line shows |
//! | [`replay`] | a finished run as the snapshots of its seconds |
//! | [`catalogue`] | the metrics, each named once |
//! | [`label`] | closed sets of labels, and tables over them |
//! | [`micros`] | the unit of time in all of it |

pub mod account;
pub mod agents;
pub mod catalogue;
pub mod consistency;
pub mod figures;
pub mod fleet;
pub mod histogram;
pub mod judgement;
pub mod label;
pub mod latencies;
pub mod micros;
pub mod outcome;
pub mod recorder;
pub mod replay;
pub mod result;
pub mod samples;
mod second;
pub mod series;
pub mod snapshot;
pub mod timeline;
pub mod verdict;

/// The endpoints, for whoever knows this crate alone.
pub use protocol::endpoint::Endpoint;

pub use account::{Account, AccountError, PortalCounters};
pub use catalogue::Metric;
pub use figures::Figures;
pub use fleet::Fleet;
pub use histogram::Histogram;
pub use judgement::{Judgement, Quantity};
pub use label::{ByLabel, Label};
pub use micros::Micros;
pub use outcome::{Class, Outcome};
pub use recorder::{Recorded, Recorder};
pub use result::{MergeError, RunResult};
pub use samples::{ConnectTimes, Sample, Samples, TlsTimes};
pub use series::Series;
pub use snapshot::{Snapshot, progress_line};
pub use verdict::{Decision, Exit, Findings, Verdict, decide};
