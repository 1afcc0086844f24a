//! Tables in Markdown, read as rows of cells.

/// The cells of a table's row, trimmed; `None` for other lines and for the line under the header.
pub(crate) fn row(line: &str) -> Option<Vec<&str>> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    let cells: Vec<&str> = inner.split('|').map(str::trim).collect();
    let rule = cells
        .iter()
        .all(|c| !c.is_empty() && c.chars().all(|c| matches!(c, '-' | ':')));
    (!rule).then_some(cells)
}

/// What stands between backticks in a text.
pub(crate) fn ticked(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_its_cells() {
        assert_eq!(row("| `a` | b, c |"), Some(vec!["`a`", "b, c"]));
        assert_eq!(row("|---|:--|"), None);
        assert_eq!(row("text | more"), None);
        assert_eq!(
            ticked("`a`, then `b::c`").collect::<Vec<_>>(),
            ["a", "b::c"]
        );
    }
}
