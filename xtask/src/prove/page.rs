//! The page: what was gone through, and where it comes from, as text. Pure: counts in, Markdown out.

use std::fmt::Write as _;

use super::Counts;
use super::proofs::Proof;
use crate::page::{Origin, grouped};

/// The whole page.
pub(super) fn write(origin: &Origin, proved: &[(&Proof, Counts)]) -> String {
    let mut page = format!(
        "# Proofs\n\n\
         Run and written by `cargo xtask prove`, never by hand: tests of the workspace that were sent through more than they go\n\
         through by themselves. All of it held.\n\n\
         {origin}"
    );
    for (proof, counts) in proved {
        let _ = write!(page, "\n## {}\n\nShown: {}.\n\n", proof.name, proof.shows);
        page.push_str("| How many | What |\n|---|---|\n");
        for (name, count) in counts {
            let _ = writeln!(page, "| {} | {name} |", grouped(&count.to_string()));
        }
    }
    page
}

/// Counts in one line.
pub(super) fn listed(counts: &Counts) -> String {
    let each = counts
        .iter()
        .map(|(name, count)| format!("{} {name}", grouped(&count.to_string())));
    each.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::proofs::PROOFS;
    use super::*;

    #[test]
    fn the_page_says_what_was_counted_and_where() {
        let origin = Origin {
            commit: "78842aa".to_owned(),
            date: "2026-11-30".to_owned(),
            machine: "2 × AMD EPYC".to_owned(),
            system: "Linux 6.18".to_owned(),
            compiler: "rustc 1.95.0".to_owned(),
        };
        let counts = Counts::from([("seeds".to_owned(), 10_000), ("cells".to_owned(), 7)]);
        let page = write(&origin, &[(&PROOFS[0], counts)]);
        for part in [
            "- Commit: `78842aa`\n",
            &format!("## {}\n", PROOFS[0].name),
            "| 10,000 | seeds |\n",
            "| 7 | cells |\n",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
    }
}
