//! Tools that tests need and a machine may lack. Each is installed by name, in one fixed version, into the project's
//! own folder of tools, and found there the next time; nothing else on the machine is touched.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::project::Project;

/// A program that cargo installs.
struct CargoProgram {
    name: &'static str,
    version: &'static str,
    arguments: &'static [&'static str],
}

/// Checks licences, bans and sources. Its features for fetching advisories are left out (the checks need no network) and
/// it is built without optimisation: a minute instead of many, and a check still takes two seconds.
const CARGO_DENY: CargoProgram = CargoProgram {
    name: "cargo-deny",
    version: "0.20.2",
    arguments: &["--debug", "--no-default-features"],
};

const OHA: CargoProgram = CargoProgram {
    name: "oha",
    version: "1.16.0",
    arguments: &["--no-default-features", "--features", "rustls"],
};

/// A package of Debian and what it needs beside the base system, each in a fixed version. It is unpacked, not installed.
type DebianPackages = &'static [(&'static str, &'static str)];

const WRK: DebianPackages = &[
    ("wrk", "4.1.0-3+b2"),
    (
        "libluajit-5.1-2",
        "2.1.0~beta3+git20220320+dfsg-4.1+deb12u1",
    ),
];

const HEY: DebianPackages = &[("hey", "0.1.4-2+b4")];

/// The package that is built for goose, which is a library.
const GOOSE: &str = "loadgen/fleet/benches/peers/goose";

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

/// What k6 and Locust are.
const PEERS: PythonEnvironment = PythonEnvironment {
    home: "python-peers",
    packages: "loadgen/fleet/benches/peers/requirements.txt",
};

/// A load generator that others make, which ours is measured beside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    Wrk,
    Oha,
    Hey,
    K6,
    Locust,
    Goose,
}

impl Peer {
    /// Its name and version.
    pub(crate) const fn called(self) -> &'static str {
        match self {
            Peer::Wrk => "wrk 4.1.0",
            Peer::Oha => "oha 1.16.0",
            Peer::Hey => "hey 0.1.4",
            Peer::K6 => "k6 1.1.0",
            Peer::Locust => "Locust 2.47.0",
            Peer::Goose => "goose 0.19.0",
        }
    }

    /// Its program, and the folder of the libraries that it needs beside the system's, if any.
    ///
    /// # Errors
    /// When it cannot be installed.
    pub(crate) fn installed(self, project: &Project) -> Result<(PathBuf, Option<PathBuf>)> {
        let alone = |program: Result<PathBuf>| Ok((program?, None));
        let of_python = |name: &str| Ok(python(project, &PEERS)?.with_file_name(name));
        match self {
            Peer::Wrk => debian(project, WRK),
            Peer::Hey => debian(project, HEY),
            Peer::Oha => alone(cargo(project, &OHA)),
            Peer::K6 => alone(of_python("k6")),
            Peer::Locust => alone(of_python("locust")),
            Peer::Goose => alone(goose(project)),
        }
    }
}

/// The program `cargo-deny`.
///
/// # Errors
/// When it cannot be installed.
pub(crate) fn cargo_deny(project: &Project) -> Result<PathBuf> {
    cargo(project, &CARGO_DENY)
}

fn cargo(project: &Project, wanted: &CargoProgram) -> Result<PathBuf> {
    let CargoProgram {
        name,
        version,
        arguments,
    } = wanted;
    let home = project.tools.join(format!("{name}-{version}"));
    let program = home.join("bin").join(name);
    if program.is_file() {
        return Ok(program);
    }
    eprintln!("xtask: installing {name} {version} into {}", home.display());
    let build = project.tools.join("build");
    let mut install = Command::new("cargo");
    install
        .args(["install", name, "--locked", "--version", version])
        .args(*arguments)
        .arg("--root")
        .arg(&home)
        .arg("--target-dir")
        .arg(&build)
        .env("CARGO_PROFILE_DEV_DEBUG", "0");
    project
        .run(&format!("install {name}"), &mut install)?
        .ok(&format!("{name} could not be installed"))?;
    fs::remove_dir_all(&build).with_context(|| format!("remove {}", build.display()))?;
    Ok(program)
}

/// A program of Debian's, unpacked into a folder of its own, and the folder of the libraries beside it.
fn debian(project: &Project, packages: DebianPackages) -> Result<(PathBuf, Option<PathBuf>)> {
    let [(name, version), ..] = packages else {
        bail!("no package is named");
    };
    let home = project.tools.join(format!("{name}-{version}"));
    let program = home.join("usr/bin").join(name);
    let libraries = home.join(format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH));
    let installed = Ok((program, Some(libraries)));
    if home.is_dir() {
        return installed;
    }
    eprintln!("xtask: unpacking {name} {version} into {}", home.display());
    let half = project.tools.join(format!("{name}-half"));
    if half.is_dir() {
        fs::remove_dir_all(&half).with_context(|| format!("remove {}", half.display()))?;
    }
    fs::create_dir_all(&half).with_context(|| format!("create {}", half.display()))?;
    let mut download = Command::new("env");
    download
        .arg(format!("--chdir={}", half.display()))
        .args(["apt-get", "download", "--quiet"])
        .args(
            packages
                .iter()
                .map(|(name, version)| format!("{name}={version}")),
        );
    project
        .run(&format!("download {name}"), &mut download)?
        .ok(&format!("apt-get could not download {name} {version}"))?;
    for file in fs::read_dir(&half)?.flatten() {
        let mut unpack = Command::new("dpkg-deb");
        unpack.arg("--extract").arg(file.path()).arg(&half);
        project
            .run(&format!("unpack {name}"), &mut unpack)?
            .ok(&format!("dpkg-deb could not unpack {name}"))?;
    }
    // Last: what was interrupted half-way is unpacked again.
    fs::rename(&half, &home).with_context(|| format!("rename {}", half.display()))?;
    installed
}

/// The program that is made of goose; cargo sees whether it is there.
fn goose(project: &Project) -> Result<PathBuf> {
    eprintln!("xtask: building the peer of goose …");
    let build = project.tools.join("goose");
    let mut cargo = Command::new("cargo");
    cargo
        .args(["build", "--release", "--locked", "--manifest-path"])
        .arg(project.root.join(GOOSE).join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&build);
    project
        .run("build goose", &mut cargo)?
        .ok("the peer of goose does not build")?;
    Ok(build.join("release/peer-goose"))
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
