//! The check-in protocol's place in the [endpoint table](crate::endpoint): one call, `POST /api/v1/agents`.
//!
//! Its messages (check-in, snapshot, tags, volumes) are not here yet; the table is closed over both protocols so that
//! labels, routes and results need no second change when they come.

/// The path of a check-in. It hangs off the Manager's root, not off the portal's base path (CHK-2).
pub const PATH: &str = "/api/v1/agents";
