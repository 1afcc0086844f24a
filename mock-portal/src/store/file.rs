//! The database: one file with the whole memory at some moment, and the changes since.
//!
//! | Table | Key | Value |
//! |---|---|---|
//! | `about` | `about` | whose file this is, in JSON: program, schema number, release key, starts |
//! | `memory` | `sequence`, `shared`, `shard-00` … | a [`Snapshot`], in JSON |
//! | `changes` | the number of the last one in it | [`Changes`], one JSON value after the other |
//!
//! It is read once, at the start. Everything else is the writer's.

use std::fmt;
use std::fs::{self, File, Permissions};
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};

use portal_core::snapshot::{OtherShards, Snapshot};
use portal_core::{Changes, Portal};
use protocol::id::KeyId;
use protocol::sign::SigningKey;
use redb::{
    Database, DatabaseError, ReadOnlyDatabase, ReadableDatabase, ReadableTable as _,
    TableDefinition,
};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::keys;

/// The number of the layout above and of the types in it. A file with a higher one is refused, one with a lower one has to
/// be read by whoever raises it.
pub const SCHEMA: u32 = 1;

const ABOUT: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("about");
const MEMORY: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("memory");
const CHANGES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("changes");

/// Why a data file cannot be used, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// It is not there and cannot be made, or cannot be read.
    #[error("{} cannot be opened: {error}; name a file in a folder that this user may write to", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// Another portal has it.
    #[error("{} is another running portal's; stop that one, or name another file", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// It is of something else.
    #[error("{} is no data file of mock-portal: {why}; it is left alone, name another file", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it is, or is not.
        why: String,
    },
    /// A later version made it.
    #[error(
        "{} was written by a later mock-portal: its schema is {schema}, this program knows up to {SCHEMA}; use that version, or name another file",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its number.
        schema: u32,
    },
    /// It was made with another release key than the one that was named.
    #[error(
        "{} is of a portal with release key {kept}, and {named} was named; agents know the first: leave --release-key out, or name another file",
        path.display()
    )]
    OtherReleaseKey {
        /// The file.
        path: PathBuf,
        /// The key in it.
        kept: KeyId,
        /// The key that was named.
        named: KeyId,
    },
    /// It holds something that was not written there by this program.
    #[error("{} is damaged: {why}; keep it as evidence and begin with another file", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong in it.
        why: String,
    },
    /// It cannot be written.
    #[error("{} cannot be written: {error}; make room, or mend the disk", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the database says.
        error: Box<redb::Error>,
    },
    /// The thread that writes could not be started.
    #[error("no thread for the data file: {0}")]
    Thread(io::Error),
}

/// Whose file it is. Holds the release key, so it is not to be printed.
#[derive(Serialize, Deserialize)]
pub(super) struct About {
    program: String,
    schema: u32,
    release_key: String,
    /// How often a portal was started with it, this time included.
    pub(super) starts: u64,
}

/// What is read of an [`About`] before anything else is believed.
#[derive(Deserialize)]
struct Whose {
    program: String,
    schema: u32,
}

impl About {
    /// Of a fresh file.
    pub(super) fn new(release_key: &SigningKey) -> Self {
        Self {
            program: PROGRAM.to_owned(),
            schema: SCHEMA,
            release_key: keys::write(release_key).to_string(),
            starts: 1,
        }
    }

    pub(super) fn started_again(self) -> Self {
        Self {
            starts: self.starts + 1,
            ..self
        }
    }

    pub(super) fn release_key(&self, path: &Path) -> Result<SigningKey, DataError> {
        keys::read(&self.release_key).map_err(|error| DataError::Damaged {
            path: path.to_owned(),
            why: format!("its release key: {error}"),
        })
    }
}

const PROGRAM: &str = "mock-portal";
/// What every file of the database begins with.
const MAGIC: &[u8] = b"redb\x1a\x0a\xa9\x0d\x0a";

/// How much is in a file.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sizes {
    /// Bytes of the memory.
    pub(super) memory_bytes: u64,
    /// Bytes of the changes since.
    pub(super) changes_bytes: u64,
}

/// A data file, open and locked.
pub(super) struct DataFile {
    path: PathBuf,
    database: Database,
}

impl DataFile {
    /// Opens or makes it; only its owner may read it, for it holds secrets in clear. What is refused is left as it is.
    pub(super) fn open(path: &Path) -> Result<Self, DataError> {
        let io = |error| DataError::Io {
            path: path.to_owned(),
            error,
        };
        match fs::metadata(path) {
            Ok(it) if !it.is_file() => return Err(foreign(path, "it is no regular file")),
            Ok(it) if it.len() == 0 => {}
            Ok(_) => look(path)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => make(path)?,
            Err(error) => return Err(io(error)),
        }
        fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(io)?;
        let opened = undamaged(path, || {
            Database::create(path).map_err(|error| refused(path, error))
        });
        Ok(Self {
            path: path.to_owned(),
            database: opened?,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whose it is; none if it was just made.
    pub(super) fn about(&self) -> Result<Option<About>, DataError> {
        undamaged(&self.path, || about(&self.path, &self.database))
    }

    pub(super) fn set_about(&mut self, about: &About) -> Result<(), DataError> {
        let text = Zeroizing::new(serde_json::to_vec(about).expect("texts and numbers are JSON"));
        self.written(|transaction| {
            let mut table = transaction.open_table(ABOUT)?;
            table.insert("about", text.as_slice())?;
            Ok(())
        })
    }

    /// Gives a fresh portal the memory and the changes since.
    pub(super) fn load(&self, portal: &Portal) -> Result<Sizes, DataError> {
        undamaged(&self.path, || self.read_all(portal))
    }

    fn read_all(&self, portal: &Portal) -> Result<Sizes, DataError> {
        let mut sizes = Sizes::default();
        let transaction = self
            .database
            .begin_read()
            .map_err(|error| self.damaged(error))?;
        match transaction.open_table(MEMORY) {
            Ok(memory) => {
                let snapshot = self.snapshot(&memory, &mut sizes.memory_bytes)?;
                portal
                    .begin_with(snapshot)
                    .map_err(|error: OtherShards| self.damaged(error))?;
            }
            Err(redb::TableError::TableDoesNotExist(_)) => {}
            Err(error) => return Err(self.damaged(error)),
        }
        match transaction.open_table(CHANGES) {
            Ok(changes) => {
                for entry in changes.iter().map_err(|error| self.damaged(error))? {
                    let (_, bytes) = entry.map_err(|error| self.damaged(error))?;
                    sizes.changes_bytes += bytes.value().len() as u64;
                    self.replay(bytes.value(), portal)?;
                }
            }
            Err(redb::TableError::TableDoesNotExist(_)) => {}
            Err(error) => return Err(self.damaged(error)),
        }
        Ok(sizes)
    }

    fn replay(&self, bytes: &[u8], portal: &Portal) -> Result<(), DataError> {
        for changes in serde_json::Deserializer::from_slice(bytes).into_iter::<Changes>() {
            let changes = changes.map_err(|error| self.damaged(error))?;
            let due = portal.sequence() + 1;
            if changes.sequence != due {
                let came = changes.sequence;
                return Err(self.damaged(format!("changes {came} stand where {due} are due")));
            }
            portal.restore(&changes);
        }
        Ok(())
    }

    fn snapshot(
        &self,
        memory: &impl redb::ReadableTable<&'static str, &'static [u8]>,
        bytes: &mut u64,
    ) -> Result<Snapshot, DataError> {
        let mut shards = Vec::new();
        loop {
            let name = shard_name(shards.len());
            match memory
                .get(name.as_str())
                .map_err(|error| self.damaged(error))?
            {
                Some(shard) => {
                    *bytes += shard.value().len() as u64;
                    shards.push(self.read(shard.value())?);
                }
                None => break,
            }
        }
        let one = |name: &str| {
            let found = memory.get(name).map_err(|error| self.damaged(error))?;
            found.ok_or_else(|| self.damaged(format!("its memory has no {name}")))
        };
        Ok(Snapshot {
            sequence: self.read(one("sequence")?.value())?,
            shards,
            shared: self.read(one("shared")?.value())?,
        })
    }

    fn read<T: serde::de::DeserializeOwned>(&self, bytes: &[u8]) -> Result<T, DataError> {
        serde_json::from_slice(bytes).map_err(|error| self.damaged(error))
    }

    /// Adds changes, encoded one after the other; on the disk when this returns.
    pub(super) fn append(&mut self, last_sequence: u64, bytes: &[u8]) -> Result<(), DataError> {
        self.written(|transaction| {
            let mut changes = transaction.open_table(CHANGES)?;
            changes.insert(last_sequence, bytes)?;
            Ok(())
        })
    }

    /// Puts the whole memory into the place of the changes before it; on the disk when this returns. Returns its bytes.
    pub(super) fn checkpoint(&mut self, snapshot: &Snapshot) -> Result<u64, DataError> {
        let mut bytes = 0;
        self.written(|transaction| {
            let mut memory = transaction.open_table(MEMORY)?;
            memory.insert("sequence", text(&snapshot.sequence).as_slice())?;
            memory.insert("shared", text(&snapshot.shared).as_slice())?;
            for (number, shard) in snapshot.shards.iter().enumerate() {
                let text = text(shard);
                bytes += text.len() as u64;
                memory.insert(shard_name(number).as_str(), text.as_slice())?;
            }
            drop(memory);
            transaction.delete_table(CHANGES)?;
            Ok(())
        })?;
        Ok(bytes)
    }

    fn written(
        &self,
        write: impl FnOnce(&redb::WriteTransaction) -> Result<(), redb::Error>,
    ) -> Result<(), DataError> {
        let all = || {
            let transaction = self.database.begin_write()?;
            write(&transaction)?;
            transaction.commit()?;
            Ok(())
        };
        all().map_err(|error: redb::Error| DataError::Write {
            path: self.path.clone(),
            error: Box::new(error),
        })
    }

    fn damaged(&self, why: impl ToString) -> DataError {
        damaged(&self.path, why)
    }
}

/// Makes an empty database and puts it in place as a whole: a program that is killed meanwhile leaves no half of one.
fn make(path: &Path) -> Result<(), DataError> {
    let io = |error| DataError::Io {
        path: path.to_owned(),
        error,
    };
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        Some(_) | None => Path::new("."),
    };
    let new = tempfile::Builder::new()
        .prefix(".mock-portal-")
        .tempfile_in(folder)
        .map_err(io)?;
    drop(Database::create(new.path()).map_err(|error| refused(path, error))?);
    match new.persist_noclobber(path) {
        Ok(_) => File::open(folder)
            .and_then(|folder| folder.sync_all())
            .map_err(io),
        // Another portal was quicker, and has it.
        Err(lost) if lost.error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(lost) => Err(io(lost.error)),
    }
}

/// Looks through a file without writing to it: whose it is, and whether all of it can be read. One that was not closed has
/// to be repaired before that.
fn look(path: &Path) -> Result<(), DataError> {
    let io = |error| DataError::Io {
        path: path.to_owned(),
        error,
    };
    let mut begins = Vec::new();
    let file = File::open(path).map_err(io)?;
    file.take(MAGIC.len() as u64)
        .read_to_end(&mut begins)
        .map_err(io)?;
    if !MAGIC.starts_with(&begins) {
        return Err(foreign(path, "it is no database"));
    }
    if begins.len() < MAGIC.len() {
        return Err(damaged(path, "it is cut off"));
    }
    undamaged(path, || {
        let database = match ReadOnlyDatabase::open(path) {
            Ok(database) => database,
            Err(DatabaseError::RepairAborted) => return Ok(()),
            Err(error) => return Err(refused(path, error)),
        };
        about(path, &database)?;
        let transaction = database
            .begin_read()
            .map_err(|error| damaged(path, error))?;
        if let Ok(memory) = transaction.open_table(MEMORY) {
            for entry in memory.iter().map_err(|error| damaged(path, error))? {
                entry.map_err(|error| damaged(path, error))?;
            }
        }
        if let Ok(changes) = transaction.open_table(CHANGES) {
            for entry in changes.iter().map_err(|error| damaged(path, error))? {
                entry.map_err(|error| damaged(path, error))?;
            }
        }
        Ok(())
    })
}

fn about(path: &Path, database: &impl ReadableDatabase) -> Result<Option<About>, DataError> {
    let damaged = |error: &dyn fmt::Display| damaged(path, error);
    let foreign = |why: &str| foreign(path, why);
    let transaction = database.begin_read().map_err(|error| damaged(&error))?;
    let table = match transaction.open_table(ABOUT) {
        Ok(table) => table,
        Err(redb::TableError::TableDoesNotExist(_)) => {
            let mut tables = transaction.list_tables().map_err(|error| damaged(&error))?;
            return match tables.next() {
                None => Ok(None),
                Some(_) => Err(foreign("it is a database of something else")),
            };
        }
        Err(error) => return Err(foreign(&error.to_string())),
    };
    let Some(about) = table.get("about").map_err(|error| damaged(&error))? else {
        return Err(foreign("it does not say whose it is"));
    };
    let whose: Whose = serde_json::from_slice(about.value())
        .map_err(|_| foreign("it does not say whose it is"))?;
    if whose.program != PROGRAM {
        return Err(foreign(&format!("it is of {:?}", whose.program)));
    }
    if whose.schema > SCHEMA {
        return Err(DataError::Newer {
            path: path.to_owned(),
            schema: whose.schema,
        });
    }
    let about = serde_json::from_slice(about.value()).map_err(|error| damaged(&error))?;
    Ok(Some(about))
}

/// The database believes what it reads: in a file that is damaged it comes to places that it holds for unreachable.
fn undamaged<T>(path: &Path, read: impl FnOnce() -> Result<T, DataError>) -> Result<T, DataError> {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let done = panic::catch_unwind(AssertUnwindSafe(read));
    panic::set_hook(hook);
    done.unwrap_or_else(|panicked| {
        let why = panicked.downcast_ref::<String>().map(String::as_str);
        let why = why.or_else(|| panicked.downcast_ref::<&str>().copied());
        Err(damaged(path, why.unwrap_or("it cannot be read")))
    })
}

/// Why the database does not open a file.
fn refused(path: &Path, error: DatabaseError) -> DataError {
    match error {
        DatabaseError::DatabaseAlreadyOpen | DatabaseError::LockProtocolMismatch => {
            DataError::InUse {
                path: path.to_owned(),
            }
        }
        DatabaseError::Storage(redb::StorageError::Io(error))
            if error.kind() == io::ErrorKind::UnexpectedEof =>
        {
            damaged(path, "it is cut off")
        }
        DatabaseError::Storage(redb::StorageError::Io(error)) => DataError::Io {
            path: path.to_owned(),
            error,
        },
        error => damaged(path, error),
    }
}

fn damaged(path: &Path, why: impl ToString) -> DataError {
    DataError::Damaged {
        path: path.to_owned(),
        why: why.to_string(),
    }
}

fn foreign(path: &Path, why: &str) -> DataError {
    DataError::Foreign {
        path: path.to_owned(),
        why: why.to_owned(),
    }
}

/// Changes as they lie in the file.
pub(super) fn encoded(changes: &Changes) -> Vec<u8> {
    text(changes)
}

fn text(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("what a portal remembers is texts, numbers and maps by text")
}

fn shard_name(number: usize) -> String {
    format!("shard-{number:03}")
}
