//! What a profile says about a measurement that missed its bound: where its processor time goes, function by function.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::project::Project;

/// Functions that are named.
const LINES_MAX: usize = 12;

/// The functions that take most of a measurement's processor time, from one more run of it under `perf`; why there is no
/// profile, where there is none.
pub(super) fn of(project: &Project, program: &Path, measurement: &str) -> Vec<String> {
    eprintln!("xtask: profiling {measurement} …");
    match record(project, program, measurement) {
        Ok(lines) => lines,
        Err(why) => vec![format!("there is no profile: {why:#}")],
    }
}

fn record(project: &Project, program: &Path, measurement: &str) -> Result<Vec<String>> {
    let data = project.logs.join(format!("perf-{measurement}.data"));
    let mut perf = Command::new("perf");
    perf.args(["record", "-q", "-e", "cpu-clock", "-F", "499", "-o"])
        .arg(&data)
        .arg("--")
        .arg(program)
        .arg(measurement);
    project
        .run("perf-record", &mut perf)
        .context("perf")?
        .ok("perf record failed")?;
    let mut perf = Command::new("perf");
    perf.args(["report", "--stdio", "-q", "--sort", "comm,symbol", "-i"])
        .arg(&data);
    let report = project
        .run("perf-report", &mut perf)?
        .ok("perf report failed")?;
    Ok(shares(&report.text))
}

/// The lines of a report that begin with a share.
fn shares(report: &str) -> Vec<String> {
    let lines = report.lines().map(str::trim);
    lines
        .filter(|line| {
            line.split_whitespace()
                .next()
                .is_some_and(|word| word.ends_with('%'))
        })
        .take(LINES_MAX)
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_shares_of_a_report_are_taken() {
        let report = "# comment\n\n    12.50%  agents  [.] f::g\n     3.1%  portal  [k] h\n";
        assert_eq!(
            shares(report),
            ["12.50% agents [.] f::g", "3.1% portal [k] h"]
        );
        let long: String = (0..50).map(|n| format!("1.{n}% x\n")).collect();
        assert_eq!(shares(&long).len(), LINES_MAX);
    }
}
