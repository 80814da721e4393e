//! Files and batches that the server keeps, in a folder.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::sync::{Semaphore, watch};

use super::input::parse_lines;
use super::{BatchError, BatchOutput, BatchOutputs, BatchRun, Tally, by_prefix};
use crate::api::time::unix_s;
use crate::api::unique;
use crate::app::App;

/// Simultaneous requests of a batch: fewer than the queue accepts, so that it never refuses others.
const N_PARALLEL: usize = 16;

/// A file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredFile {
    pub(crate) id: String,
    pub(crate) filename: String,
    pub(crate) purpose: String,
    pub(crate) created_at: u64,
    /// The owner, who may see it.
    pub(crate) owner: String,
}

/// State of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BatchState {
    InProgress,
    Completed,
    Failed,
    Cancelling,
    Cancelled,
}

/// A batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredBatch {
    pub(crate) id: String,
    pub(crate) endpoint: String,
    pub(crate) input_file_id: String,
    pub(crate) output_file_id: String,
    pub(crate) error_file_id: String,
    pub(crate) completion_window: String,
    pub(crate) metadata: Option<Map<String, Value>>,
    pub(crate) state: BatchState,
    pub(crate) created_at: u64,
    pub(crate) ended_at: Option<u64>,
    /// The reason of a failure, with the number of the invalid line, if there is one.
    pub(crate) failure: Option<(Option<usize>, String)>,
    pub(crate) n_requests: usize,
    pub(crate) n_answered: usize,
    pub(crate) n_failed: usize,
    pub(crate) owner: String,
}

impl StoredBatch {
    fn is_open(&self) -> bool {
        matches!(self.state, BatchState::InProgress | BatchState::Cancelling)
    }
}

/// Contents of the folder.
#[derive(Default)]
struct StoreIndex {
    files: BTreeMap<String, StoredFile>,
    batches: BTreeMap<String, StoredBatch>,
    /// Senders that tell a batch's worker to end.
    cancels: BTreeMap<String, watch::Sender<bool>>,
}

/// Files and batches.
pub(crate) struct BatchStore {
    folder: PathBuf,
    known: Mutex<StoreIndex>,
    /// Serialises batches: one runs after the other.
    turn: Semaphore,
}

impl BatchStore {
    /// Opens a folder, or creates one.
    ///
    /// # Errors
    /// It cannot be read or written, or contains an invalid description.
    pub(crate) fn open(folder: &Path) -> Result<BatchStore, BatchError> {
        std::fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
        let mut known = StoreIndex::default();
        for (id, file) in descriptions::<StoredFile>(folder, "file-")? {
            known.files.insert(id, file);
        }
        for (id, batch) in descriptions::<StoredBatch>(folder, "batch_")? {
            known.batches.insert(id, batch);
        }
        Ok(BatchStore {
            folder: folder.to_owned(),
            known: Mutex::new(known),
            turn: Semaphore::new(1),
        })
    }

    fn known(&self) -> MutexGuard<'_, StoreIndex> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn content_path(&self, id: &str) -> PathBuf {
        self.folder.join(format!("{id}.jsonl"))
    }

    fn write<T: Serialize>(&self, id: &str, value: &T) -> Result<(), BatchError> {
        let path = self.folder.join(format!("{id}.json"));
        let text = serde_json::to_vec(value).map_err(|error| failed(&path, error.into()))?;
        write_whole(&path, &text).map_err(|error| failed(&path, error))
    }

    /// Stores a file.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn add_file(
        &self,
        filename: &str,
        purpose: &str,
        owner: &str,
        content: &[u8],
    ) -> Result<StoredFile, BatchError> {
        let file = StoredFile {
            id: unique("file-"),
            filename: filename.to_owned(),
            purpose: purpose.to_owned(),
            created_at: unix_s(),
            owner: owner.to_owned(),
        };
        let path = self.content_path(&file.id);
        write_whole(&path, content).map_err(|error| failed(&path, error))?;
        self.write(&file.id, &file)?;
        self.known().files.insert(file.id.clone(), file.clone());
        Ok(file)
    }

    /// The files that this owner may see, the oldest first.
    pub(crate) fn files(&self, owner: &str) -> Vec<StoredFile> {
        let known = self.known();
        let mut own: Vec<StoredFile> = known
            .files
            .values()
            .filter(|file| file.owner == owner)
            .cloned()
            .collect();
        own.sort_by_key(|file| file.created_at);
        own
    }

    /// A file, if this owner may see it.
    pub(crate) fn file(&self, id: &str, owner: &str) -> Option<StoredFile> {
        self.known()
            .files
            .get(id)
            .filter(|file| file.owner == owner)
            .cloned()
    }

    /// Size of a file in bytes.
    pub(crate) fn n_bytes(&self, id: &str) -> u64 {
        std::fs::metadata(self.content_path(id)).map_or(0, |data| data.len())
    }

    /// Content of a file.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn content(&self, id: &str) -> Result<Vec<u8>, BatchError> {
        let path = self.content_path(id);
        std::fs::read(&path).map_err(|error| failed(&path, error))
    }

    /// Removes a file. False if an open batch reads or writes it.
    ///
    /// # Errors
    /// It cannot be removed.
    pub(crate) fn remove_file(&self, id: &str) -> Result<bool, BatchError> {
        let mut known = self.known();
        let uses = |batch: &StoredBatch| {
            let used = [
                &batch.input_file_id,
                &batch.output_file_id,
                &batch.error_file_id,
            ];
            batch.is_open() && used.contains(&&id.to_owned())
        };
        if known.batches.values().any(uses) {
            return Ok(false);
        }
        for path in [
            self.folder.join(format!("{id}.json")),
            self.content_path(id),
        ] {
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(failed(&path, error));
                }
                _ => {}
            }
        }
        known.files.remove(id);
        Ok(true)
    }

    /// The batches that this owner may see, the newest first.
    pub(crate) fn batches(&self, owner: &str) -> Vec<StoredBatch> {
        let known = self.known();
        let mut own: Vec<StoredBatch> = known
            .batches
            .values()
            .filter(|batch| batch.owner == owner)
            .cloned()
            .collect();
        own.sort_by_key(|batch| std::cmp::Reverse(batch.created_at));
        own
    }

    /// A batch, if this owner may see it.
    pub(crate) fn batch(&self, id: &str, owner: &str) -> Option<StoredBatch> {
        self.known()
            .batches
            .get(id)
            .filter(|batch| batch.owner == owner)
            .cloned()
    }

    /// Starts a batch from a file.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn begin(
        self: &Arc<Self>,
        app: &Arc<App>,
        mut batch: StoredBatch,
    ) -> Result<StoredBatch, BatchError> {
        let name = |what: &str| format!("{}_{what}.jsonl", batch.id);
        let output = self.add_file(&name("output"), "batch_output", &batch.owner, b"")?;
        let errors = self.add_file(&name("error"), "batch_output", &batch.owner, b"")?;
        (batch.output_file_id, batch.error_file_id) = (output.id, errors.id);
        self.put(&batch)?;
        self.spawn(app, &batch.id);
        Ok(batch)
    }

    fn put(&self, batch: &StoredBatch) -> Result<(), BatchError> {
        self.write(&batch.id, batch)?;
        self.known().batches.insert(batch.id.clone(), batch.clone());
        Ok(())
    }

    /// Ends a batch where it is. `None` if no such batch is running.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn cancel(&self, id: &str) -> Result<Option<StoredBatch>, BatchError> {
        let found = self
            .known()
            .batches
            .get(id)
            .filter(|batch| batch.is_open())
            .cloned();
        let Some(mut batch) = found else {
            return Ok(None);
        };
        batch.state = BatchState::Cancelling;
        self.put(&batch)?;
        if let Some(cancel) = self.known().cancels.get(id) {
            let _ = cancel.send(true);
        }
        Ok(Some(batch))
    }

    /// Continues the batches that were open when the server ended, until `stopped`.
    pub(crate) fn resume(self: &Arc<Self>, app: &Arc<App>, stopped: &watch::Receiver<bool>) {
        let open = self
            .known()
            .batches
            .values()
            .filter(|batch| batch.is_open())
            .cloned()
            .collect::<Vec<_>>();
        for batch in open {
            self.spawn(app, &batch.id);
        }
        let (store, mut stopped) = (Arc::clone(self), stopped.clone());
        tokio::spawn(async move {
            let _ = stopped.wait_for(|stop| *stop).await;
            for cancel in store.known().cancels.values() {
                let _ = cancel.send(true);
            }
        });
    }

    fn spawn(self: &Arc<Self>, app: &Arc<App>, id: &str) {
        let (sender, stopped) = watch::channel(false);
        self.known().cancels.insert(id.to_owned(), sender);
        let (store, app, id) = (Arc::clone(self), Arc::clone(app), id.to_owned());
        tokio::spawn(async move {
            let _turn = store.turn.acquire().await;
            store.work(&app, &id, stopped).await;
            store.known().cancels.remove(&id);
        });
    }

    async fn work(self: &Arc<Self>, app: &Arc<App>, id: &str, stopped: watch::Receiver<bool>) {
        let Some(batch) = self.known().batches.get(id).cloned() else {
            return;
        };
        let result = match batch.state {
            BatchState::Cancelling => Ok(()),
            _ => self.ask(app, &batch, stopped).await,
        };
        let Some(mut batch) = self.known().batches.get(id).cloned() else {
            return;
        };
        batch.state = match (&result, batch.state) {
            (Err(failure), _) => {
                batch.failure = Some(failure.clone());
                BatchState::Failed
            }
            (Ok(()), BatchState::Cancelling) => BatchState::Cancelled,
            (Ok(()), _) if batch.n_answered == batch.n_requests => BatchState::Completed,
            // The server ends; the next one continues the batch.
            (Ok(()), state) => state,
        };
        if !batch.is_open() {
            batch.ended_at = Some(unix_s());
        }
        if let Err(error) = self.put(&batch) {
            crate::app::log(&serde_json::json!({"warning": format!("batch {id}: {error}")}));
        }
    }

    async fn ask(
        self: &Arc<Self>,
        app: &Arc<App>,
        batch: &StoredBatch,
        stopped: watch::Receiver<bool>,
    ) -> Result<(), (Option<usize>, String)> {
        let told = |error: BatchError| (None, error.to_string());
        let content = self.content(&batch.input_file_id).map_err(told)?;
        let lines = parse_lines(&content).map_err(|(line, message)| (Some(line), message))?;
        if let Some(at) = lines.iter().position(|line| line.url != batch.endpoint) {
            let message = format!("url: expected the batch's endpoint, {}", batch.endpoint);
            return Err((Some(at + 1), message));
        }
        let (answers, held) =
            BatchOutput::open(&self.content_path(&batch.output_file_id)).map_err(told)?;
        let (errors, held_errors) =
            BatchOutput::open(&self.content_path(&batch.error_file_id)).map_err(told)?;
        let n_before = Tally {
            n_answered: held.len() + held_errors.len(),
            n_failed: held_errors.len(),
        };
        let n_requests = lines.len();
        let is_open = |id: &str| !held.has(id) && !held_errors.has(id);
        let todo: Vec<_> = lines
            .into_iter()
            .filter(|line| is_open(&line.custom_id))
            .collect();
        let (store, id) = (Arc::clone(self), batch.id.clone());
        let progress = move |tally: &Tally| {
            if let Some(batch) = store.known().batches.get_mut(&id) {
                batch.n_requests = n_requests;
                batch.n_answered = n_before.n_answered + tally.n_answered;
                batch.n_failed = n_before.n_failed + tally.n_failed;
            }
        };
        progress(&Tally::default());
        let run = BatchRun {
            app: Arc::clone(app),
            client: app.client_of(&batch.owner),
            n_parallel: N_PARALLEL,
            stopped,
            progress: Box::new(progress),
        };
        let outputs = BatchOutputs {
            answers,
            errors: Some(errors),
        };
        run.run(by_prefix(todo), outputs).await.map_err(told)?;
        Ok(())
    }
}

fn failed(file: &Path, error: std::io::Error) -> BatchError {
    let file = file.to_owned();
    BatchError::File { file, error }
}

/// The descriptions in a folder whose file names begin with the prefix.
fn descriptions<T: DeserializeOwned>(
    folder: &Path,
    prefix: &str,
) -> Result<Vec<(String, T)>, BatchError> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(|error| failed(folder, error))? {
        let path = entry.map_err(|error| failed(folder, error))?.path();
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        let Some(id) = name
            .strip_suffix(".json")
            .filter(|id| id.starts_with(prefix))
        else {
            continue;
        };
        let text = std::fs::read(&path).map_err(|error| failed(&path, error))?;
        let value = serde_json::from_slice(&text).map_err(|error| failed(&path, error.into()))?;
        found.push((id.to_owned(), value));
    }
    Ok(found)
}

/// Writes a file whole or not at all.
fn write_whole(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let beside = path.with_extension("part");
    let mut file = std::fs::File::create(&beside)?;
    file.write_all(content)?;
    file.sync_all()?;
    std::fs::rename(&beside, path)
}
