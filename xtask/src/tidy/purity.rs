//! Invariant 1 in the sources: floors 0 to 2, and the world in virtual time above them, have no clock, no chance and no IO
//! of their own.
//!
//! Time, randomness and the world's answers reach the machines as arguments. Test code is exempt from the rules
//! about files, since vectors and recorded traces are read from them, but not from those about clocks and chance: a
//! test that cannot be repeated proves nothing.

use super::{Findings, Tree, crates};

/// Paths that a pure crate may not spell, with what it would bring in.
const IMPURE: &[(&str, &str, Scope)] = &[
    ("tokio", "a runtime", Scope::Everywhere),
    ("hyper", "IO", Scope::Everywhere),
    ("axum", "IO", Scope::Everywhere),
    ("std::fs", "files", Scope::OutsideTests),
    (
        "std::net",
        "sockets (core::net has the address types)",
        Scope::OutsideTests,
    ),
    ("std::process", "processes", Scope::OutsideTests),
    ("std::thread", "threads", Scope::OutsideTests),
    ("std::env", "the environment", Scope::OutsideTests),
    ("std::io::stdin", "input", Scope::OutsideTests),
    ("Instant::now", "a clock", Scope::Everywhere),
    ("SystemTime::now", "a clock", Scope::Everywhere),
    ("Timestamp::now", "a clock", Scope::Everywhere),
    ("Zoned::now", "a clock", Scope::Everywhere),
    ("rand::rng", "chance", Scope::Everywhere),
    ("rand::random", "chance", Scope::Everywhere),
    ("thread_rng", "chance", Scope::Everywhere),
    ("OsRng", "chance", Scope::Everywhere),
    ("SysRng", "chance", Scope::Everywhere),
    ("getrandom", "chance", Scope::Everywhere),
    ("from_os_rng", "chance", Scope::Everywhere),
    (
        "RandomState",
        "chance (a hash map's order)",
        Scope::Everywhere,
    ),
];

/// Time is virtual here: what this crate reads of the real world would be in every run, and none could be repeated.
const VIRTUAL: &str = "fleet-sim";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    Everywhere,
    OutsideTests,
}

pub(super) fn check(tree: &Tree) -> Findings {
    let mut findings = Findings::default();
    for (krate, file, code) in tree.sources() {
        let is_pure = crates::floor(&krate.name).is_some_and(|f| f <= crates::PURE);
        if !is_pure && krate.name != VIRTUAL {
            continue;
        }
        findings.looked_at += 1;
        for path in code.paths() {
            let mut hits = IMPURE.iter().filter(|(part, _, scope)| {
                path.has(part) && !(path.test && *scope == Scope::OutsideTests)
            });
            if let Some((part, what, _)) = hits.next() {
                findings.broken(
                    &file.path,
                    path.line,
                    format!("{} is pure: `{part}` is {what}", krate.name),
                );
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_chance_or_io_in_a_machine_is_found() {
        let rows: &[(&str, bool)] = &[
            ("use std::time::Duration; fn f(now: Duration) {}", true),
            (
                "//! Never calls Instant::now.\nconst T: &str = \"std::fs\";",
                true,
            ),
            (
                "#[cfg(test)] mod tests { fn vectors() { std::fs::read(\"v.json\"); } }",
                true,
            ),
            (
                "use std::time::Instant; fn f() { let t = Instant::now(); }",
                false,
            ),
            (
                "#[cfg(test)] mod tests { fn t() { std::time::Instant::now(); } }",
                false,
            ),
            ("use std::{fs, fmt};", false),
            ("fn f() { std::net::TcpStream::connect(a) }", false),
            ("use rand::rngs::SysRng;", false),
            ("fn f() { let x = rand::random(); }", false),
            ("use tokio::sync::Mutex;", false),
        ];
        for (text, clean) in rows {
            let tree = Tree::of(
                &[("agent/core/src/lib.rs", text)],
                &[("agent-core", "agent/core", &[])],
            );
            assert_eq!(check(&tree).violations.is_empty(), *clean, "{text}");
        }
    }

    #[test]
    fn a_world_in_virtual_time_may_not_either() {
        for (text, clean) in [
            ("fn f() { std::time::Instant::now(); }", false),
            ("use rand_chacha::ChaCha8Rng;", true),
        ] {
            let tree = Tree::of(
                &[("loadgen/sim/src/lib.rs", text)],
                &[("fleet-sim", "loadgen/sim", &[])],
            );
            assert_eq!(check(&tree).violations.is_empty(), clean, "{text}");
        }
    }

    #[test]
    fn other_floors_may() {
        let text = "fn f() { std::time::Instant::now(); }";
        let tree = Tree::of(
            &[("loadgen/fleet/src/lib.rs", text)],
            &[("fleet", "loadgen/fleet", &[])],
        );
        assert!(check(&tree).violations.is_empty());
    }
}
