//! Files that are whole or not there, whenever the power goes (FILE-12): the one way in which this project replaces a file;
//! and the root that an agent's paths hang off (FILE-14).
//!
//! The steps are those that POSIX needs for it: another file in the same folder with its final mode, the content, `fsync`,
//! `rename`, `fsync` of the folder. Without the first `fsync` the name may come to stand for an empty file, without the
//! second one the old content may come back after it was said to be replaced.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Component, Path, PathBuf};

/// Where the paths of an agent hang: `/` on a node, a folder for one that is simulated or tested (FILE-14).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root(PathBuf);

impl Root {
    /// Everything beneath this folder.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self(folder.into())
    }

    /// A path beneath it, written as it is on a node. Its names alone count, so that none leads out.
    pub fn path(&self, of_node: impl AsRef<Path>) -> PathBuf {
        let names = of_node.as_ref().components();
        let names = names.filter(|it| matches!(it, Component::Normal(_)));
        names.fold(self.0.clone(), |path, name| path.join(name))
    }
}

/// What a replaced file outlives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outlives {
    /// The loss of power, at any point.
    PowerLoss,
    /// The end of the program, at any point; what the power takes with it, the file included, is not waited for.
    ProgramEnd,
}

/// Replaces a file, or makes it, with these permission bits, less the umask's, from its first byte on: afterwards it has
/// this content, and after an end in between the old or the new one.
///
/// # Errors
/// As the file system has it; the file is as it was before.
pub fn replace(file: &Path, mode: u32, content: &[u8], outlives: Outlives) -> io::Result<()> {
    replace_on(&mut System, file, mode, content, outlives)
}

/// Gives a file another name, in the place of what had that one. A file that is not there is no error.
///
/// # Errors
/// As the file system has it; both are as they were before.
pub fn set_aside(file: &Path, aside: &Path) -> io::Result<()> {
    match fs::rename(file, aside) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        renamed => renamed,
    }
}

/// The name that a file has until it is whole.
pub fn unfinished(file: &Path) -> PathBuf {
    let mut name = file.file_name().map(OsString::from).unwrap_or_default();
    name.push(".new");
    file.with_file_name(name)
}

/// The steps of a file system that a replacement is made of.
trait Disk {
    type Open;

    /// A new file, and none that was there before.
    fn create(&mut self, file: &Path, mode: u32) -> io::Result<Self::Open>;
    fn write(&mut self, open: &mut Self::Open, content: &[u8]) -> io::Result<()>;
    fn sync(&mut self, open: &Self::Open) -> io::Result<()>;
    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()>;
    fn sync_folder(&mut self, folder: &Path) -> io::Result<()>;
    fn remove(&mut self, file: &Path);
}

fn replace_on<D: Disk>(
    disk: &mut D,
    file: &Path,
    mode: u32,
    content: &[u8],
    outlives: Outlives,
) -> io::Result<()> {
    let new = unfinished(file);
    let done = (|| {
        let mut open = disk.create(&new, mode)?;
        disk.write(&mut open, content)?;
        if outlives == Outlives::PowerLoss {
            disk.sync(&open)?;
        }
        disk.rename(&new, file)
    })();
    if done.is_err() {
        disk.remove(&new);
    }
    done?;
    match outlives {
        Outlives::PowerLoss => disk.sync_folder(folder_of(file)),
        Outlives::ProgramEnd => Ok(()),
    }
}

fn folder_of(file: &Path) -> &Path {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        Some(_) | None => Path::new("."),
    }
}

/// The system's.
struct System;

impl Disk for System {
    type Open = File;

    fn create(&mut self, file: &Path, mode: u32) -> io::Result<File> {
        // What a run before has left there may be a link, or readable by others.
        if let Err(error) = fs::remove_file(file)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(error);
        }
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(file)
    }

    fn write(&mut self, open: &mut File, content: &[u8]) -> io::Result<()> {
        open.write_all(content)
    }

    fn sync(&mut self, open: &File) -> io::Result<()> {
        open.sync_all()
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn sync_folder(&mut self, folder: &Path) -> io::Result<()> {
        File::open(folder)?.sync_all()
    }

    fn remove(&mut self, file: &Path) {
        // It is only in the way of nobody: the next replacement removes it first.
        let _ = fs::remove_file(file);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const OLD: &[u8] = b"the old content";
    const NEW: &[u8] = b"the new content";

    /// A disk that does so many steps, and keeps of what was not synced whatever it likes.
    struct Losing {
        steps: usize,
        /// Each file's content, and how much of it is synced.
        files: Vec<(Vec<u8>, usize)>,
        names: BTreeMap<PathBuf, usize>,
        /// The names as they were when their folder was synced last.
        synced_names: BTreeMap<PathBuf, usize>,
    }

    impl Losing {
        fn with(file: &Path, content: &[u8], steps: usize) -> Self {
            let names = BTreeMap::from([(file.to_owned(), 0)]);
            Self {
                steps,
                files: vec![(content.to_owned(), content.len())],
                synced_names: names.clone(),
                names,
            }
        }

        fn step(&mut self) -> io::Result<()> {
            self.steps = self
                .steps
                .checked_sub(1)
                .ok_or_else(|| io::Error::other("the power is gone"))?;
            Ok(())
        }

        /// Everything that the file may hold once the power is back: under its old name or its new one, and of what was
        /// not synced all, nothing or some.
        fn survivors(&self, file: &Path) -> Vec<Option<Vec<u8>>> {
            let mut all = Vec::new();
            for names in [&self.names, &self.synced_names] {
                let Some(at) = names.get(file) else {
                    all.push(None);
                    continue;
                };
                let (content, synced) = &self.files[*at];
                let lengths = [*synced, (synced + content.len()).div_ceil(2), content.len()];
                all.extend(lengths.map(|length| Some(content[..length].to_owned())));
            }
            all
        }
    }

    impl Disk for Losing {
        type Open = usize;

        fn create(&mut self, file: &Path, _: u32) -> io::Result<usize> {
            self.step()?;
            self.files.push((Vec::new(), 0));
            let at = self.files.len() - 1;
            self.names.insert(file.to_owned(), at);
            Ok(at)
        }

        fn write(&mut self, open: &mut usize, content: &[u8]) -> io::Result<()> {
            self.step()?;
            self.files[*open].0.extend_from_slice(content);
            Ok(())
        }

        fn sync(&mut self, open: &usize) -> io::Result<()> {
            self.step()?;
            let (content, synced) = &mut self.files[*open];
            *synced = content.len();
            Ok(())
        }

        fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
            self.step()?;
            let at = self.names.remove(from).expect("a file to rename");
            self.names.insert(to.to_owned(), at);
            Ok(())
        }

        fn sync_folder(&mut self, _: &Path) -> io::Result<()> {
            self.step()?;
            self.synced_names = self.names.clone();
            Ok(())
        }

        fn remove(&mut self, file: &Path) {
            if self.steps > 0 {
                self.names.remove(file);
            }
        }
    }

    // rule FILE-12: wherever the power goes, the old or the new content is there, and after the last step the new one.
    #[test]
    fn file_12_the_loss_of_power_leaves_the_old_or_the_new_content() {
        let file = Path::new("folder/state.json");
        let mut was_cut = true;
        for steps in 0.. {
            let mut disk = Losing::with(file, OLD, steps);
            let done = replace_on(&mut disk, file, 0o600, NEW, Outlives::PowerLoss);
            was_cut = done.is_err();
            for survivor in disk.survivors(file) {
                let content = survivor.as_deref();
                let is_whole = content == Some(NEW) || was_cut && content == Some(OLD);
                assert!(is_whole, "after {steps} steps: {content:?}");
            }
            if !was_cut {
                assert_eq!(steps, 5, "five steps, each of which may be the last");
                break;
            }
        }
        assert!(!was_cut);
    }

    // rule FILE-14: whatever a path is written like, it lies beneath the root.
    #[test]
    fn file_14_every_path_hangs_off_one_root() {
        let rows = [
            (
                "/",
                "/var/lib/pbx-agent/state.json",
                "/var/lib/pbx-agent/state.json",
            ),
            (
                "/tmp/node-1",
                "/var/lib/pbx-agent/state.json",
                "/tmp/node-1/var/lib/pbx-agent/state.json",
            ),
            ("/tmp/node-1", "state.json", "/tmp/node-1/state.json"),
            (
                "/tmp/node-1",
                "/../../etc/./passwd",
                "/tmp/node-1/etc/passwd",
            ),
            ("node-1", "/", "node-1"),
        ];
        for (root, of_node, path) in rows {
            assert_eq!(Root::new(root).path(of_node), Path::new(path));
        }
    }

    // rule FILE-12: it has its own mode, whatever lay there before.
    #[test]
    fn file_12_a_file_has_its_mode_and_replaces_what_was_left_half_done() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("state.json");
        let elsewhere = folder.path().join("elsewhere");
        fs::write(&elsewhere, "somebody else's").unwrap();
        std::os::unix::fs::symlink(&elsewhere, unfinished(&file)).unwrap();
        for (mode, content) in [(0o600, OLD), (0o400, NEW)] {
            replace(&file, mode, content, Outlives::PowerLoss).unwrap();
            assert_eq!(fs::read(&file).unwrap(), content);
            let found = fs::metadata(&file).unwrap().permissions().mode();
            assert_eq!(found & 0o777, mode);
        }
        assert_eq!(fs::read(&elsewhere).unwrap(), b"somebody else's");
        assert!(!unfinished(&file).exists());
    }

    #[test]
    fn a_replacement_that_fails_leaves_the_file_and_nothing_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("state.json");
        // A folder cannot be replaced by a file.
        fs::create_dir(&file).unwrap();
        replace(&file, 0o600, NEW, Outlives::PowerLoss).unwrap_err();
        assert!(file.is_dir());
        assert!(!unfinished(&file).exists());
    }
}
