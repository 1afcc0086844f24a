//! Invariant 6 in the sources: what touches the machine happens in one room each.
//!
//! Only `fleet` starts processes (shard children), only `agent-drive` opens connections to the portal and replaces files, and
//! what belongs to a node's file system is nobody's until a crate for real nodes exists. Tests across processes and the
//! project's chores are outside the product and exempt.

use super::code::Kind;
use super::{Findings, Tree};

struct Room {
    /// Paths that open it.
    doors: &'static [&'static str],
    /// Crates that live in it.
    dwellers: &'static [&'static str],
    what: &'static str,
}

const ROOMS: &[Room] = &[
    Room {
        doors: &["process::Command", "tokio::process"],
        dwellers: &["fleet"],
        what: "starts processes",
    },
    Room {
        doors: &[
            "TcpStream::connect",
            "TcpStream::connect_timeout",
            "TcpSocket",
            "TlsConnector",
            "hyper::client",
            "client::conn",
            "hyper_util::client",
        ],
        dwellers: &["agent-drive"],
        what: "opens connections as a client of the portal",
    },
    Room {
        doors: &["fs::rename"],
        dwellers: &["agent-drive"],
        what: "replaces files",
    },
];

/// Crates that are not part of the product.
const OUTSIDE: &[&str] = &["xtask", "e2e"];

/// Absolute paths that belong to a node, as they begin.
const NODE_PATHS: &[&str] = &["/etc/", "/var/lib/", "/usr/", "/boot/", "/run/"];
/// Crates that run on a node, or would if they had their way.
const NODE_CRATES: &[&str] = &["agent-core", "agent-drive", "protocol"];

pub(super) fn check(tree: &Tree) -> Findings {
    let mut findings = Findings::default();
    for (krate, file, code) in tree.sources() {
        if OUTSIDE.contains(&krate.name.as_str()) {
            continue;
        }
        findings.looked_at += 1;
        for path in code.paths().iter().filter(|p| !p.test) {
            for room in ROOMS
                .iter()
                .filter(|r| !r.dwellers.contains(&krate.name.as_str()))
            {
                if room.doors.iter().any(|door| path.has(door)) {
                    let spelled = path.segments.join("::");
                    let who = room.dwellers.join(", ");
                    findings.broken(
                        &file.path,
                        path.line,
                        format!("`{spelled}`: only {who} {}", room.what),
                    );
                }
            }
        }
        if NODE_CRATES.contains(&krate.name.as_str()) {
            for token in code
                .tokens()
                .iter()
                .filter(|t| t.kind == Kind::Literal && !t.test)
            {
                let content = token
                    .text
                    .trim_start_matches(['r', 'b', 'c', '#'])
                    .trim_start_matches('"');
                if NODE_PATHS.iter().any(|p| content.starts_with(p)) {
                    findings.broken(
                        &file.path,
                        token.line,
                        format!("{} is a node's path", token.text),
                    );
                }
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_door_opened_from_another_room_is_found() {
        let rows: &[(&str, &str, &str, bool)] = &[
            ("fleet", "loadgen/fleet", "use std::process::Command;", true),
            (
                "agent-drive",
                "agent/drive",
                "use hyper::client::conn::http1;",
                true,
            ),
            ("xtask", "xtask", "use std::process::Command;", true),
            (
                "mock-portal",
                "mock-portal",
                "use std::process::ExitCode;",
                true,
            ),
            (
                "loadgen",
                "loadgen",
                "use std::process::{Command, ExitCode};",
                false,
            ),
            (
                "mock-portal",
                "mock-portal",
                "async fn f() { tokio::net::TcpStream::connect(a).await }",
                false,
            ),
            (
                "fleet",
                "loadgen/fleet",
                "use hyper::client::conn::http1;",
                false,
            ),
            (
                "loadgen",
                "loadgen",
                "fn f() { std::fs::rename(a, b); }",
                false,
            ),
            (
                "agent-drive",
                "agent/drive",
                "const S: &str = \"/var/lib/pbx-agent\";",
                false,
            ),
            (
                "agent-drive",
                "agent/drive",
                "/// Like /var/lib/pbx-agent.\nconst S: &str = \"state.json\";",
                true,
            ),
        ];
        for (name, folder, text, clean) in rows {
            let path = format!("{folder}/src/lib.rs");
            let tree = Tree::of(&[(&path, text)], &[(name, folder, &[])]);
            assert_eq!(check(&tree).violations.is_empty(), *clean, "{name}: {text}");
        }
    }
}
