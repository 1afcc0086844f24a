//! Tools that tests need and a machine may lack. Each is installed by name, in one fixed version, into the project's
//! own folder of tools, and found there the next time; nothing else on the machine is touched.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::project::Project;

/// Checks licences, bans and sources.
const CARGO_DENY: &str = "0.20.2";

/// A Python environment: its folder, and the file with what is in it, in fixed versions.
pub(crate) struct PythonEnvironment {
    home: &'static str,
    packages: &'static str,
}

/// What the Python checkers import: libsodium and a parser of metrics.
pub(crate) const CHECKERS: PythonEnvironment = PythonEnvironment {
    home: "python",
    packages: "e2e/python/requirements.txt",
};

/// What makes hostile requests; much more than the checkers need, so it is apart.
pub(crate) const HOSTILE: PythonEnvironment = PythonEnvironment {
    home: "python-hostile",
    packages: "e2e/python/hostile-requirements.txt",
};

/// The program `cargo-deny`. Its features for fetching advisories are left out (bans, licences and sources need no
/// network) and it is built without optimisation: a minute instead of many, and a check still takes two seconds.
///
/// # Errors
/// When it cannot be installed.
pub(crate) fn cargo_deny(project: &Project) -> Result<PathBuf> {
    let home = project.tools.join(format!("cargo-deny-{CARGO_DENY}"));
    let program = home.join("bin/cargo-deny");
    if program.is_file() {
        return Ok(program);
    }
    eprintln!(
        "xtask: installing cargo-deny {CARGO_DENY} into {}",
        home.display()
    );
    let build = project.tools.join("build");
    let mut install = Command::new("cargo");
    install
        .args([
            "install",
            "cargo-deny",
            "--locked",
            "--debug",
            "--no-default-features",
            "--version",
            CARGO_DENY,
        ])
        .arg("--root")
        .arg(&home)
        .arg("--target-dir")
        .arg(&build)
        .env("CARGO_PROFILE_DEV_DEBUG", "0");
    project
        .run("install cargo-deny", &mut install)?
        .ok("cargo-deny could not be installed")?;
    fs::remove_dir_all(&build).with_context(|| format!("remove {}", build.display()))?;
    Ok(program)
}

/// A Python with its packages, in an environment of its own.
///
/// # Errors
/// When there is no `python3` with `venv`, or a package cannot be installed.
pub(crate) fn python(project: &Project, environment: &PythonEnvironment) -> Result<PathBuf> {
    let home = project.tools.join(environment.home);
    let program = home.join("bin/python");
    let stamp = home.join("packages");
    let list = project.root.join(environment.packages);
    let wanted = fs::read_to_string(&list).with_context(|| format!("read {}", list.display()))?;
    if program.is_file() && fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
        return Ok(program);
    }
    eprintln!("xtask: making a Python environment in {}", home.display());
    let mut venv = Command::new("python3");
    venv.args(["-m", "venv", "--clear"]).arg(&home);
    project
        .run("install python", &mut venv)?
        .ok("python3 -m venv failed (Debian: apt-get install python3-venv)")?;
    let mut pip = Command::new(&program);
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--requirement",
    ])
    .arg(&list);
    project
        .run("install python packages", &mut pip)?
        .ok("pip install failed")?;
    // Written last: an environment that was interrupted half-way is made again.
    fs::write(&stamp, wanted).with_context(|| format!("write {}", stamp.display()))?;
    Ok(program)
}
