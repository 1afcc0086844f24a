//! What the pages that chores write have in common: where they come from (the commit, the day, the machine), and how a
//! number is spelled.

use std::fmt;
use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::project::Project;

/// What was measured or proved, and on what.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    pub(crate) commit: String,
    pub(crate) date: String,
    pub(crate) machine: String,
    pub(crate) system: String,
    pub(crate) compiler: String,
}

impl Origin {
    /// Of what is committed under these paths.
    ///
    /// # Errors
    /// When something else than what is committed lies there: nothing can be said about it that somebody could repeat.
    pub(crate) fn of(project: &Project, paths: &[&str]) -> Result<Self> {
        let said = |program: &str, arguments: &[&str]| -> Result<String> {
            let done = Command::new(program)
                .args(arguments)
                .current_dir(&project.root)
                .output()
                .with_context(|| format!("start {program}"))?;
            ensure!(
                done.status.success(),
                "{program} {} failed",
                arguments.join(" ")
            );
            Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned())
        };
        let mut status = vec!["status", "--porcelain", "--"];
        status.extend(paths);
        let changed = said("git", &status)?;
        ensure!(
            changed.is_empty(),
            "commit first: what is there differs from what is committed\n{changed}"
        );
        Ok(Self {
            commit: {
                // Commits of documents alone are about the same code.
                let mut last = vec!["rev-list", "-1", "HEAD", "--"];
                last.extend(paths);
                said("git", &last)?
            },
            date: said("date", &["-u", "+%Y-%m-%d"])?,
            machine: machine(
                &fs::read_to_string("/proc/cpuinfo").context("read /proc/cpuinfo")?,
                &fs::read_to_string("/proc/meminfo").context("read /proc/meminfo")?,
            ),
            system: said("uname", &["-sr"])?,
            compiler: said("rustc", &["--version"])?,
        })
    }
}

impl fmt::Display for Origin {
    /// As a list of Markdown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            commit,
            date,
            machine,
            system,
            compiler,
        } = self;
        write!(
            f,
            "- Commit: `{commit}`\n\
             - Date: {date}\n\
             - Machine: {machine}, {system}, {compiler}, release profile\n"
        )
    }
}

/// `2 × AMD EPYC, 24 GiB`, from what the kernel says.
fn machine(cpuinfo: &str, meminfo: &str) -> String {
    let value = |line: &str| {
        line.split_once(':')
            .map(|(_, value)| value.trim().to_owned())
    };
    let models: Vec<String> = cpuinfo
        .lines()
        .filter(|line| line.starts_with("model name"))
        .filter_map(value)
        .collect();
    let model = models.first().map_or("processors", String::as_str);
    let memory = meminfo.lines().find(|line| line.starts_with("MemTotal:"));
    let kib: Option<f64> = memory.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    let memory = kib.map_or_else(String::new, |kib| {
        format!(", {:.0} GiB", kib / 1024.0 / 1024.0)
    });
    format!("{} × {model}{memory}", models.len())
}

/// `18770` as `18,770`.
pub(crate) fn grouped(digits: &str) -> String {
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_told_from_the_kernels_files() {
        let cpuinfo =
            "processor\t: 0\nmodel name\t: AMD EPYC\nprocessor\t: 1\nmodel name\t: AMD EPYC\n";
        let meminfo = "MemTotal:       24689764 kB\nMemFree: 1 kB\n";
        assert_eq!(machine(cpuinfo, meminfo), "2 × AMD EPYC, 24 GiB");
        assert_eq!(machine("", ""), "0 × processors");
    }
}
