//! Nothing in the project names the machine it was made on or the host of a package registry: it must build and
//! read the same anywhere.

use super::{Findings, Tree};

/// Fragments that name a place. They are put together here so that this file does not name one either.
const PLACES: &[(&str, &str)] = &[
    (concat!("/wo", "rk/"), "a machine's path"),
    (concat!("/ro", "ot/"), "a machine's path"),
    (concat!("/ho", "me/"), "a machine's path"),
    (concat!("/Use", "rs/"), "a machine's path"),
    (concat!("/tmp/", "tgt"), "a machine's path"),
    (concat!("../", "shared"), "a folder outside the project"),
    (concat!("index.", "crates.io"), "a registry's host"),
    (concat!("static.", "crates.io"), "a registry's host"),
    (concat!("py", "pi.org"), "a registry's host"),
    (concat!("python", "hosted.org"), "a registry's host"),
    (concat!("registry.", "npmjs.org"), "a registry's host"),
    (concat!("proxy.", "golang.org"), "a registry's host"),
    (concat!("deb.", "debian.org"), "a registry's host"),
    (concat!("arti", "factory"), "a registry's host"),
];

pub(super) fn check(tree: &Tree) -> Findings {
    let mut findings = Findings::default();
    for file in &tree.files {
        findings.looked_at += 1;
        for (line, text) in file.lines() {
            for (place, what) in PLACES {
                let at_a_word = |at: usize| {
                    text[..at]
                        .chars()
                        .next_back()
                        .is_none_or(|c| !c.is_alphanumeric() && c != '.')
                };
                if text.match_indices(place).any(|(at, _)| at_a_word(at)) {
                    findings.broken(&file.path, line, format!("names {what}: `{place}`"));
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
    fn a_place_is_found_in_any_file() {
        for (place, _) in PLACES {
            let text = format!("see {place}x for more\n");
            let tree = Tree::of(&[("docs/a.md", &text)], &[]);
            assert_eq!(check(&tree).violations.len(), 1, "{place}");
        }
    }

    #[test]
    fn a_path_inside_another_is_no_place() {
        let text = format!("src{}config and net{}x\n", PLACES[1].0, PLACES[2].0);
        assert!(
            check(&Tree::of(&[("docs/a.md", &text)], &[]))
                .violations
                .is_empty()
        );
    }
}
