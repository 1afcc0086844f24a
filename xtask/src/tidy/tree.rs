//! The project as the checks see it: its files, its crates, the licences of what it uses.
//!
//! Read once, from `git ls-files` (with what is new and not ignored) and `cargo metadata`; a test builds one from a
//! few lines instead.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, PackageId};

use super::code::Code;

/// Everything that is checked.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    pub(crate) files: Vec<File>,
    pub(crate) crates: Vec<Crate>,
    /// Licences of every package in the graph, by name (several versions may differ).
    pub(crate) licences: BTreeMap<String, BTreeSet<String>>,
}

/// A text file of the project.
#[derive(Debug)]
pub(crate) struct File {
    /// From the project's root, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
    /// Set for `.rs`.
    pub(crate) code: Option<Result<Code, String>>,
}

/// One of our own crates.
#[derive(Debug, Clone, Default)]
pub(crate) struct Crate {
    pub(crate) name: String,
    /// Its folder, from the root.
    pub(crate) folder: String,
    /// What its manifest asks for, tests' needs included.
    pub(crate) uses: Vec<String>,
    /// Every package its normal dependencies reach.
    pub(crate) reaches: BTreeSet<String>,
}

impl Tree {
    /// Reads the project at `root`.
    ///
    /// # Errors
    /// When git or cargo cannot be asked, or a file cannot be read.
    pub(crate) fn load(root: &Path) -> Result<Self> {
        let metadata = MetadataCommand::new()
            .manifest_path(root.join("Cargo.toml"))
            .other_options(vec!["--locked".to_owned()])
            .exec()
            .context("cargo metadata --locked")?;
        let mut tree = Self {
            files: files(root)?,
            ..Self::default()
        };
        for package in &metadata.packages {
            let licence = package.license.clone().unwrap_or_else(|| "none".to_owned());
            tree.licences
                .entry(package.name.to_string())
                .or_default()
                .insert(licence);
        }
        for package in metadata.workspace_packages() {
            let folder = package
                .manifest_path
                .parent()
                .context("a manifest has a folder")?;
            tree.crates.push(Crate {
                name: package.name.to_string(),
                folder: folder
                    .strip_prefix(metadata.workspace_root.as_path())?
                    .to_string(),
                uses: package
                    .dependencies
                    .iter()
                    .map(|d| d.name.clone())
                    .collect(),
                reaches: reached(&metadata, &package.id)?,
            });
        }
        Ok(tree)
    }

    /// The crate that a file belongs to: the one with the deepest folder around it.
    pub(crate) fn crate_of(&self, path: &str) -> Option<&Crate> {
        let inside = |c: &&Crate| {
            path.strip_prefix(c.folder.as_str())
                .is_some_and(|rest| rest.starts_with('/'))
        };
        self.crates
            .iter()
            .filter(inside)
            .max_by_key(|c| c.folder.len())
    }

    /// Files of Rust with their crate and their tokens. What cannot be read is the compiler's to report.
    pub(crate) fn sources(&self) -> impl Iterator<Item = (&Crate, &File, &Code)> {
        self.files.iter().filter_map(|file| {
            let code = file.code.as_ref()?.as_ref().ok()?;
            Some((self.crate_of(&file.path)?, file, code))
        })
    }

    pub(crate) fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|f| f.path == path)
    }

    /// A tree of a few lines: `(path, text)`, and `(crate, folder, dependencies)`.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)], crates: &[(&str, &str, &[&str])]) -> Self {
        Self {
            files: files
                .iter()
                .map(|(path, text)| File::new(path, (*text).to_owned()))
                .collect(),
            crates: crates
                .iter()
                .map(|(name, folder, uses)| Crate {
                    name: (*name).to_owned(),
                    folder: (*folder).to_owned(),
                    uses: uses.iter().map(|u| (*u).to_owned()).collect(),
                    reaches: BTreeSet::new(),
                })
                .collect(),
            licences: BTreeMap::new(),
        }
    }
}

impl File {
    pub(crate) fn new(path: &str, text: String) -> Self {
        let code = path
            .ends_with(".rs")
            .then(|| Code::read(&text, is_test_path(path)));
        Self {
            path: path.to_owned(),
            text,
            code,
        }
    }

    /// Its lines, counted from 1.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(i, line)| (i + 1, line))
    }

    /// Whether a line is part of a test: of a Rust test, or of a checker in another language.
    pub(crate) fn is_test_line(&self, line: usize) -> bool {
        match &self.code {
            Some(Ok(code)) => code.is_test_line(line),
            Some(Err(_)) => false,
            None => self.path.ends_with(".py"),
        }
    }
}

/// Integration tests, benches, and modules that a parent declares under `#[cfg(test)]`, by their names.
fn is_test_path(path: &str) -> bool {
    let folders: Vec<&str> = path.split('/').collect();
    let name = folders.last().copied().unwrap_or_default();
    folders
        .iter()
        .any(|f| matches!(*f, "tests" | "benches" | "e2e"))
        || matches!(name, "tests.rs" | "testing.rs")
        || name.ends_with("_tests.rs")
}

fn files(root: &Path) -> Result<Vec<File>> {
    let listed = Command::new("git")
        .current_dir(root)
        .args([
            "ls-files",
            "--cached",
            "--others",
            "--exclude-standard",
            "-z",
        ])
        .output()
        .context("git ls-files")?;
    if !listed.status.success() {
        bail!(
            "git ls-files failed in {}: {}",
            root.display(),
            String::from_utf8_lossy(&listed.stderr).trim()
        );
    }
    let mut files = Vec::new();
    for path in String::from_utf8_lossy(&listed.stdout).split_terminator('\0') {
        let full = root.join(path);
        if !full.is_file() {
            continue; // deleted and not yet committed
        }
        let bytes = std::fs::read(&full).with_context(|| format!("read {path}"))?;
        if let Ok(text) = String::from_utf8(bytes) {
            files.push(File::new(path, text));
        }
    }
    Ok(files)
}

/// Follows normal dependencies from one package through the resolved graph.
fn reached(metadata: &Metadata, from: &PackageId) -> Result<BTreeSet<String>> {
    let resolve = metadata
        .resolve
        .as_ref()
        .context("cargo metadata resolved nothing")?;
    let nodes: BTreeMap<&PackageId, _> = resolve.nodes.iter().map(|n| (&n.id, n)).collect();
    let mut seen = BTreeSet::new();
    let mut names = BTreeSet::new();
    let mut todo = vec![from];
    while let Some(id) = todo.pop() {
        let node = nodes
            .get(id)
            .with_context(|| format!("{id} is not in the resolved graph"))?;
        for dep in &node.deps {
            let normal = dep
                .dep_kinds
                .iter()
                .any(|k| k.kind == DependencyKind::Normal);
            if normal && seen.insert(&dep.pkg) {
                names.insert(metadata[&dep.pkg].name.to_string());
                todo.push(&dep.pkg);
            }
        }
    }
    Ok(names)
}
