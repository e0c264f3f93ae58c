//! Rows of open runs: noted off the request path, in order, through a bounded queue.

use tokio::sync::mpsc;

use crate::gateway::runs::{OpenRun, RunLog};
use crate::names::Identifier;
use crate::store::{RunRow, Store};

/// Notes that may wait for the store.
const QUEUE: usize = 4096;

enum Note {
    Opened(RunRow),
    Ended(Identifier),
}

/// The data path's end of the queue.
pub(super) struct StoredRuns(mpsc::Sender<Note>);

/// The store's end of the queue.
pub(super) struct RunWriter {
    store: Store,
    notes: mpsc::Receiver<Note>,
}

/// A run log and what writes it.
pub(super) fn run_log(store: Store) -> (StoredRuns, RunWriter) {
    let (sender, notes) = mpsc::channel(QUEUE);
    (StoredRuns(sender), RunWriter { store, notes })
}

impl StoredRuns {
    fn note(&self, note: Note) {
        if self.0.try_send(note).is_err() {
            tracing::error!(
                "a run's row could not be noted: the store is behind; it will not be taken up after a restart"
            );
        }
    }
}

impl RunLog for StoredRuns {
    fn opened(&self, run: &OpenRun) {
        self.note(Note::Opened(RunRow {
            run_id: run.run.clone(),
            uid: run.owner.clone(),
            session_id: run.session.clone(),
            profile: run.profile.clone(),
            gateway: run.gateway.clone(),
            started_at: run.started_at,
        }));
    }

    fn ended(&self, run: &Identifier) {
        self.note(Note::Ended(run.clone()));
    }
}

impl RunWriter {
    /// Writes until every sender is gone.
    pub(super) async fn run(mut self) {
        while let Some(note) = self.notes.recv().await {
            let written = match note {
                Note::Opened(row) => self.store.put_run(row).await.map(|()| true),
                Note::Ended(run) => self.store.remove_run(run).await,
            };
            if let Err(error) = written {
                tracing::error!(%error, "a run's row could not be written");
            }
        }
    }
}
