//! The database: one file with the whole memory at some moment, and the changes since.
//!
//! | Table | Key | Value |
//! |---|---|---|
//! | `about` | `about` | whose file this is, in JSON: program, schema number, release key, starts |
//! | `memory` | `sequence`, `shared`, `shard-00` … | a [`Snapshot`], in JSON |
//! | `changes` | the number of the last one in it | [`Changes`], one JSON value after the other |
//!
//! It is read once, at the start. Everything else is the writer's.

use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use portal_core::snapshot::{OtherShards, Snapshot};
use portal_core::{Changes, Portal};
use protocol::id::KeyId;
use protocol::sign::SigningKey;
use redb::{Database, DatabaseError, ReadableDatabase as _, ReadableTable as _, TableDefinition};
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
    #[error("{} cannot be opened: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
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
    #[error("{} cannot be written: {source}; make room, or mend the disk", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the database says.
        source: Box<redb::Error>,
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
const MAGIC: &[u8] = b"redb";

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
    /// Opens or makes it; only its owner may read it, for it holds secrets in clear.
    pub(super) fn open(path: &Path) -> Result<Self, DataError> {
        let io = |source| DataError::Io {
            path: path.to_owned(),
            source,
        };
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(io)?;
        let mut begins = Vec::new();
        file.take(MAGIC.len() as u64)
            .read_to_end(&mut begins)
            .map_err(io)?;
        if !begins.is_empty() && begins != MAGIC {
            return Err(DataError::Foreign {
                path: path.to_owned(),
                why: "it is no database".to_owned(),
            });
        }
        let database = Database::create(path).map_err(|error| match error {
            DatabaseError::DatabaseAlreadyOpen | DatabaseError::LockProtocolMismatch => {
                DataError::InUse {
                    path: path.to_owned(),
                }
            }
            DatabaseError::Storage(redb::StorageError::Io(source)) => io(source),
            error => DataError::Damaged {
                path: path.to_owned(),
                why: error.to_string(),
            },
        })?;
        Ok(Self {
            path: path.to_owned(),
            database,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whose it is; none if it was just made.
    pub(super) fn about(&self) -> Result<Option<About>, DataError> {
        let transaction = self
            .database
            .begin_read()
            .map_err(|error| self.damaged(error))?;
        let table = match transaction.open_table(ABOUT) {
            Ok(table) => table,
            Err(redb::TableError::TableDoesNotExist(_)) => {
                let mut tables = transaction
                    .list_tables()
                    .map_err(|error| self.damaged(error))?;
                return match tables.next() {
                    None => Ok(None),
                    Some(_) => Err(self.foreign("it is a database of something else")),
                };
            }
            Err(error) => return Err(self.foreign(&error.to_string())),
        };
        let Some(about) = table.get("about").map_err(|error| self.damaged(error))? else {
            return Err(self.foreign("it does not say whose it is"));
        };
        let whose: Whose = serde_json::from_slice(about.value())
            .map_err(|_| self.foreign("it does not say whose it is"))?;
        if whose.program != PROGRAM {
            return Err(self.foreign(&format!("it is of {:?}", whose.program)));
        }
        if whose.schema > SCHEMA {
            return Err(DataError::Newer {
                path: self.path.clone(),
                schema: whose.schema,
            });
        }
        let about = serde_json::from_slice(about.value()).map_err(|error| self.damaged(error))?;
        Ok(Some(about))
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
            source: Box::new(error),
        })
    }

    fn damaged(&self, why: impl ToString) -> DataError {
        DataError::Damaged {
            path: self.path.clone(),
            why: why.to_string(),
        }
    }

    fn foreign(&self, why: &str) -> DataError {
        DataError::Foreign {
            path: self.path.clone(),
            why: why.to_owned(),
        }
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
