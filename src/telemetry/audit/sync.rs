//! Syncing: a thread of its own, so that a slow disk does not hold up the writer.

use std::fs::File;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use super::Shared;

/// Syncs segments as they are named, until nobody is left to name one.
pub(super) fn sync_files(files: &Receiver<Arc<File>>, shared: &Shared) {
    while let Ok(mut file) = files.recv() {
        // Several requests for one file that came up meanwhile are one.
        while let Ok(next) = files.try_recv() {
            if !Arc::ptr_eq(&file, &next) {
                sync(&file, shared);
                file = next;
            }
        }
        sync(&file, shared);
    }
}

/// Syncs a segment; a failure is counted and told.
pub(super) fn sync(file: &File, shared: &Shared) {
    if let Err(error) = file.sync_data() {
        shared.metrics.audit_failed();
        tracing::error!(%error, "the audit log cannot be synced");
    }
}
