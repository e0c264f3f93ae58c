//! SQLite: one connection, owned by one thread.
//!
//! Invariants: nothing in the file is changed before it is known to be ours, not newer, and sealed with this master
//! key; every change is an immediate transaction that is on disk when it returns. Not here: the SQL of single methods.

pub(super) mod bots;
pub(super) mod load;
mod open;
pub(super) mod people;
mod read;
pub(super) mod reseal;
pub(super) mod restore;
pub(super) mod runs;
pub(super) mod sessions;
mod whole;

use std::fmt;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, Transaction, TransactionBehavior};
use tokio::sync::{mpsc, oneshot};

pub(super) use open::DATABASE_FILE;
pub(super) use whole::{copy, opens, past_audit_keys, replace, reseal_all};

use super::StoreError;
use super::seal::Sealer;
use crate::secret::MasterKey;
use crate::tasks::Tasks;

/// Jobs that may wait for the thread.
const QUEUE_JOBS: usize = 64;
/// Longest wait for a place in the queue.
const QUEUE_WAIT: Duration = Duration::from_secs(5);
/// Longest wait for an answer: an import of the largest batch on a slow disk.
const ANSWER_WAIT: Duration = Duration::from_secs(60);

type Work = Box<dyn FnOnce(&mut Database) + Send>;

enum Job {
    Work(Work),
    Close(oneshot::Sender<()>),
}

/// What the thread owns.
struct Database {
    connection: Connection,
    sealer: Sealer,
}

/// A way to the thread.
#[derive(Clone)]
pub(super) struct Handle {
    jobs: mpsc::Sender<Job>,
    queue_wait: Duration,
    answer_wait: Duration,
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sqlite")
    }
}

impl Handle {
    pub(super) fn open(data_dir: &Path, master: &MasterKey) -> Result<Self, StoreError> {
        let sealer = Sealer::new(master);
        let connection = open::open(data_dir, &sealer)?;
        let (jobs, queue) = mpsc::channel(QUEUE_JOBS);
        let database = Database { connection, sealer };
        // Not joined: it ends when the last handle goes, and what it has answered is on disk by then.
        Tasks::thread("store", move || work(database, queue))
            .map_err(|source| StoreError::Io { path: data_dir.to_owned(), source })?;
        Ok(Handle { jobs, queue_wait: QUEUE_WAIT, answer_wait: ANSWER_WAIT })
    }

    /// Runs one transaction that changes something.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>, &Sealer) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.run(TransactionBehavior::Immediate, work).await
    }

    /// Runs one transaction that only reads.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>, &Sealer) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.run(TransactionBehavior::Deferred, work).await
    }

    pub(super) async fn close(&self) -> Result<(), StoreError> {
        let (answer, closed) = oneshot::channel();
        match self.queue(Job::Close(answer)).await {
            Ok(()) | Err(StoreError::Stopped) => {}
            Err(error) => return Err(error),
        }
        // A dropped answer means that the thread has ended already, which is what was asked for.
        tokio::time::timeout(self.answer_wait, closed).await.map(drop).map_err(|_| StoreError::Timeout)
    }

    async fn run<T: Send + 'static>(
        &self,
        behavior: TransactionBehavior,
        work: impl FnOnce(&Transaction<'_>, &Sealer) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (answer, answered) = oneshot::channel();
        let job: Work = Box::new(move |database| {
            // Whoever asked has gone: nobody would learn of the change.
            if !answer.is_closed() {
                let _ = answer.send(database.transact(behavior, work));
            }
        });
        self.queue(Job::Work(job)).await?;
        match tokio::time::timeout(self.answer_wait, answered).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err(StoreError::Stopped),
            Err(_) => Err(StoreError::Timeout),
        }
    }

    async fn queue(&self, job: Job) -> Result<(), StoreError> {
        self.jobs.send_timeout(job, self.queue_wait).await.map_err(|error| match error {
            mpsc::error::SendTimeoutError::Timeout(_) => StoreError::Busy,
            mpsc::error::SendTimeoutError::Closed(_) => StoreError::Stopped,
        })
    }
}

impl Database {
    /// Commits when the work succeeds, else leaves everything as it was.
    fn transact<T>(
        &mut self,
        behavior: TransactionBehavior,
        work: impl FnOnce(&Transaction<'_>, &Sealer) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let transaction = self.connection.transaction_with_behavior(behavior)?;
        let outcome = work(&transaction, &self.sealer)?;
        transaction.commit()?;
        Ok(outcome)
    }
}

/// The thread's life: jobs in order, until it is told to close or nobody is left to ask.
fn work(mut database: Database, mut queue: mpsc::Receiver<Job>) {
    let mut closing = None;
    while let Some(job) = queue.blocking_recv() {
        match job {
            Job::Work(work) => work(&mut database),
            Job::Close(answer) => {
                closing = Some(answer);
                break;
            }
        }
    }
    drop(queue);
    if let Err((_, error)) = database.connection.close() {
        tracing::warn!(%error, "the database did not close cleanly; its write-ahead log keeps what was changed");
    }
    if let Some(answer) = closing {
        let _ = answer.send(());
    }
}

#[cfg(test)]
impl Handle {
    /// The same thread, asked by somebody less patient.
    pub(super) fn impatient(&self) -> Self {
        let wait = Duration::from_millis(50);
        Handle { jobs: self.jobs.clone(), queue_wait: wait, answer_wait: wait }
    }

    /// Keeps the thread busy until the sender is dropped; returns once it is.
    pub(super) async fn occupy(&self) -> std::sync::mpsc::SyncSender<()> {
        let (release, released) = std::sync::mpsc::sync_channel::<()>(1);
        let (begun, has_begun) = oneshot::channel();
        let job: Work = Box::new(move |_| {
            let _ = begun.send(());
            let _ = released.recv();
        });
        assert!(self.queue(Job::Work(job)).await.is_ok());
        has_begun.await.unwrap();
        release
    }

    /// Raw access for tests that damage, fill or freeze the database.
    pub(super) async fn raw<T: Send + 'static>(&self, work: impl FnOnce(&Connection) -> T + Send + 'static) -> T {
        let (answer, answered) = oneshot::channel();
        let job: Work = Box::new(move |database| drop(answer.send(work(&database.connection))));
        assert!(self.queue(Job::Work(job)).await.is_ok());
        answered.await.unwrap()
    }
}
