//! `--data FILE`: what the portal knows, kept on a disk, so that a portal that was killed goes on where it was.
//!
//! The portal decides and changes its memory; every answer then waits here until the changes that it tells of, and all
//! before them, are on the disk. Changes of concurrent requests are written together, in the order of their numbers: one
//! sync of the disk for all that came while the one before was under way. From time to time the whole memory is written
//! down instead and the changes before it are dropped, so that neither the file nor a start grows with the portal's age.
//!
//! A disk that takes nothing ends the portal: memory is then ahead of the file, and an answer would be a promise that
//! nobody can keep (KEY-4).
//!
//! | Module | What it is |
//! |---|---|
//! | `file` | the database: what is in it, and reading it back |
//! | `writer` | the thread that writes, and what it does in which order |

mod file;
mod writer;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use portal_core::{Changes, Portal, Settings};
use protocol::hash::Sha256Hex;
use tokio::sync::{oneshot, watch};

use file::{About, DataFile};
pub use file::{DataError, SCHEMA};
use writer::{Order, Writer};

/// What is to be kept where.
#[derive(Debug, Clone)]
pub struct Data {
    /// The file; made if it is not there, and owned by one portal at a time.
    pub file: PathBuf,
    /// Whether the release key of the settings must be the file's: somebody named it, and documents that were set under
    /// another would be refused by every agent. Otherwise the file's is taken.
    pub release_key_named: bool,
    /// Bytes of changes after which the whole memory is written down instead.
    pub checkpoint_bytes: u64,
}

impl Data {
    /// A file, whatever its release key.
    pub fn new(file: impl Into<PathBuf>) -> Self {
        Self {
            file: file.into(),
            release_key_named: false,
            checkpoint_bytes: 32 << 20,
        }
    }
}

/// A data file that is open, before its portal is there.
pub struct Opened {
    file: DataFile,
    checkpoint_bytes: u64,
}

/// Where changes are kept.
pub struct Store {
    orders: Mutex<Option<Sender<Order>>>,
    /// Everything up to this number is on the disk.
    kept: Arc<AtomicU64>,
    failure: watch::Receiver<Option<String>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// An answer that must not be given: what it tells of is not on the disk, and will not be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the portal's data file cannot be written, so nothing can be promised; try again later")]
pub struct NotKept;

/// Opens a data file and makes the settings those of the portal that it is of: its release key, and chance that was not
/// used before.
///
/// # Errors
/// See [`DataError`]; the file is left as it was.
pub fn open(data: &Data, settings: &mut Settings) -> Result<Opened, DataError> {
    let mut file = DataFile::open(&data.file)?;
    let about = match file.about()? {
        None => About::new(&settings.release_key),
        Some(about) => {
            let key = about.release_key(file.path())?;
            let (kept, named) = (
                key.public().key_id(),
                settings.release_key.public().key_id(),
            );
            if data.release_key_named && kept != named {
                let path = file.path().to_owned();
                return Err(DataError::OtherReleaseKey { path, kept, named });
            }
            settings.release_key = key;
            about.started_again()
        }
    };
    // With the seed alone a portal that starts again would draw what it drew before, sealed boxes' keys included.
    if about.starts > 1 {
        let parts = [&settings.seed[..], &about.starts.to_le_bytes()].concat();
        settings.seed = *Sha256Hex::of(&parts).as_bytes();
    }
    file.set_about(&about)?;
    Ok(Opened {
        file,
        checkpoint_bytes: data.checkpoint_bytes,
    })
}

impl Opened {
    /// Gives a fresh portal what the file knows, and keeps its changes from now on.
    ///
    /// # Errors
    /// When the file is damaged.
    pub fn start(self, portal: &Arc<Portal>) -> Result<Store, DataError> {
        let sizes = self.file.load(portal)?;
        let kept = Arc::new(AtomicU64::new(portal.sequence()));
        let (orders, received) = channel();
        let (failed, failure) = watch::channel(None);
        let writer = Writer {
            file: self.file,
            portal: Arc::clone(portal),
            kept: Arc::clone(&kept),
            sizes,
            checkpoint_bytes: self.checkpoint_bytes,
        };
        let thread = std::thread::Builder::new()
            .name("data-file".to_owned())
            .spawn(move || {
                if let Err(error) = writer.run(&received) {
                    tracing::error!(%error, "the data file cannot be written");
                    failed.send_replace(Some(error.to_string()));
                }
            })
            .map_err(DataError::Thread)?;
        Ok(Store {
            orders: Mutex::new(Some(orders)),
            kept,
            failure,
            thread: Mutex::new(Some(thread)),
        })
    }
}

impl Store {
    /// Hands over what a request changed; the answer may be given when what is returned says so. To be called for every
    /// answer, and at once: others wait for these changes. An answer that changed nothing waits for those before it,
    /// which it may tell of.
    pub fn keep(
        &self,
        portal: &Portal,
        changes: &Changes,
    ) -> impl Future<Output = Result<(), NotKept>> + Send + use<> {
        let (done, kept) = oneshot::channel();
        let order = if changes.changes.is_empty() {
            Order::Await {
                sequence: portal.sequence(),
                done,
            }
        } else {
            Order::Keep {
                sequence: changes.sequence,
                bytes: file::encoded(changes),
                done,
            }
        };
        let is_kept = matches!(&order, Order::Await { sequence, .. }
            if *sequence <= self.kept.load(Ordering::Acquire));
        let sent = is_kept || self.send(order);
        async move {
            if is_kept {
                return Ok(());
            }
            match (sent, kept.await) {
                (true, Ok(())) => Ok(()),
                _ => Err(NotKept),
            }
        }
    }

    /// Why nothing can be kept any more, if it is so.
    pub fn failure(&self) -> Option<String> {
        self.failure.borrow().clone()
    }

    /// Returns when nothing can be kept any more, and why.
    pub async fn failed(&self) -> String {
        let mut failure = self.failure.clone();
        let why = failure.wait_for(Option::is_some).await;
        match why.as_deref() {
            Ok(Some(why)) => why.clone(),
            // It ended without one: it was closed.
            _ => {
                drop(why);
                std::future::pending().await
            }
        }
    }

    /// Writes what is waiting and closes the file.
    pub async fn close(&self) {
        *self.orders() = None;
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread {
            // Whether it panicked was told where it did.
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }

    fn send(&self, order: Order) -> bool {
        self.orders()
            .as_ref()
            .is_some_and(|orders| orders.send(order).is_ok())
    }

    fn orders(&self) -> std::sync::MutexGuard<'_, Option<Sender<Order>>> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
