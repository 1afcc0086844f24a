//! Counts, read from what the tools print. Pure: text in, numbers out.

use serde_json::Value;

/// How many tests a tier ran, as its output says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) passed: usize,
    pub(super) failed: usize,
    /// What was counted, for people.
    pub(super) what: String,
}

/// Sums `test result:` lines of `cargo test`, told apart by the kind of target that each belongs to.
///
/// # Errors
/// When a test was ignored: every test belongs to a tier that runs it.
pub(super) fn cargo_test(text: &str) -> Result<Count, String> {
    let (mut unit, mut behaviour, mut doc, mut failed, mut ignored) = (0, 0, 0, 0, 0);
    let mut kind = &mut unit;
    for line in text.lines().map(str::trim) {
        if line.starts_with("Running unittests ") {
            kind = &mut unit;
        } else if line.starts_with("Running ") {
            kind = &mut behaviour;
        } else if line.starts_with("Doc-tests ") {
            kind = &mut doc;
        } else if let Some(result) = line.strip_prefix("test result: ") {
            *kind += number_before(result, "passed");
            failed += number_before(result, "failed");
            ignored += number_before(result, "ignored");
        }
    }
    if ignored > 0 {
        return Err(format!("{ignored} tests were ignored"));
    }
    let what = format!("{unit} unit, {behaviour} behaviour, {doc} documentation");
    Ok(Count {
        passed: unit + behaviour + doc,
        failed,
        what,
    })
}

/// Reads the closing line `N passed, N failed` of a checker.
pub(super) fn closing_line(text: &str) -> Option<Count> {
    let line = text
        .lines()
        .rev()
        .find(|l| l.contains(" passed, ") && l.contains(" failed"))?;
    let line = line.trim();
    Some(Count {
        passed: number_before(line, "passed"),
        failed: number_before(line, "failed"),
        what: line.to_owned(),
    })
}

/// Counts artifacts of our own crates in cargo's JSON messages that made a file ending in `ending`. `root` is the
/// checkout.
pub(super) fn own_artifacts(json: &str, root: &str, ending: &str) -> usize {
    let made = |m: &Value| {
        let files = m["filenames"].as_array().map_or(&[][..], Vec::as_slice);
        files
            .iter()
            .any(|f| f.as_str().is_some_and(|f| f.ends_with(ending)))
    };
    messages(json)
        .filter(|m| m["reason"] == "compiler-artifact")
        .filter(|m| {
            m["manifest_path"]
                .as_str()
                .is_some_and(|p| p.starts_with(root))
        })
        .filter(|m| m["target"]["kind"][0] != "custom-build" && made(m))
        .count()
}

/// What the compiler had to say in cargo's JSON messages, as it would have printed it.
pub(crate) fn rendered(json: &str) -> String {
    messages(json)
        .filter_map(|m| m["message"]["rendered"].as_str().map(str::to_owned))
        .collect()
}

/// Programs built, as (name, path), from cargo's JSON messages.
pub(crate) fn executables(json: &str) -> Vec<(String, String)> {
    messages(json)
        .filter_map(|m| {
            Some((
                m["target"]["name"].as_str()?.to_owned(),
                m["executable"].as_str()?.to_owned(),
            ))
        })
        .collect()
}

fn messages(json: &str) -> impl Iterator<Item = Value> {
    json.lines()
        .filter(|l| l.starts_with('{'))
        .filter_map(|l| serde_json::from_str(l).ok())
}

/// The number right before a word: 12 in `ok. 12 passed;`.
fn number_before(text: &str, word: &str) -> usize {
    let words: Vec<&str> = text
        .split([' ', ';', ',', '.'])
        .filter(|w| !w.is_empty())
        .collect();
    let found = words
        .windows(2)
        .find(|w| w[1] == word)
        .and_then(|w| w[0].parse().ok());
    found.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_tests_are_counted_by_kind() {
        let text = "     Running unittests src/lib.rs (target/debug/deps/a-1)\n\
                    test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 3 filtered out; finished in 0.1s\n\
                    \x20    Running tests/order.rs (target/debug/deps/order-2)\n\
                    test result: FAILED. 5 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s\n\
                    \x20  Doc-tests protocol\n\
                    test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s\n";
        let count = cargo_test(text).unwrap();
        assert_eq!((count.passed, count.failed), (20, 2));
        assert_eq!(count.what, "12 unit, 5 behaviour, 3 documentation");
    }

    #[test]
    fn an_ignored_test_is_an_error() {
        let text = "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out\n";
        assert_eq!(cargo_test(text), Err("1 tests were ignored".to_owned()));
    }

    #[test]
    fn nothing_printed_is_nothing_counted() {
        assert_eq!(cargo_test("error: could not compile\n").unwrap().passed, 0);
        assert_eq!(closing_line("Traceback\n"), None);
    }

    #[test]
    fn a_checker_closes_with_its_sums() {
        let count = closing_line("sign ok\nvectors: 61 passed, 1 failed\n").unwrap();
        assert_eq!((count.passed, count.failed), (61, 1));
    }

    #[test]
    fn our_artifacts_are_told_from_others() {
        let json = r#"{"reason":"compiler-artifact","manifest_path":"/p/a/Cargo.toml","target":{"kind":["lib"],"name":"a"},"filenames":["/t/doc/a/index.html"]}
{"reason":"compiler-artifact","manifest_path":"/p/b/Cargo.toml","target":{"kind":["bin"],"name":"b"},"executable":"/t/b","filenames":["/t/b.rmeta"]}
{"reason":"compiler-artifact","manifest_path":"/q/c/Cargo.toml","target":{"kind":["lib"],"name":"c"},"filenames":["/t/c.rmeta"]}
{"reason":"compiler-message","message":{"rendered":"warning: x\n"}}
not json"#;
        assert_eq!(own_artifacts(json, "/p", ""), 2);
        assert_eq!(own_artifacts(json, "/p", ".html"), 1);
        assert_eq!(rendered(json), "warning: x\n");
        assert_eq!(executables(json), [("b".to_owned(), "/t/b".to_owned())]);
    }
}
