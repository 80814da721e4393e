//! Batches: requests from a file of lines, with answers into another file, without a waiting client.
//!
//! The lines are OpenAI's: `{"custom_id": …, "method": "POST", "url": "/v1/…", "body": {…}}`. Each answer is `{"id":
//! …, "custom_id": …, "response": {"status_code": …, "request_id": …, "body": …}, "error": null}`. A line of the
//! answers is written and synced before it counts, so a batch can be killed at any point and continues from there.
//! Existing answers are not requested again, and an incomplete line at the end is dropped.

mod input;
mod output;
mod runner;
mod store;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

pub use input::{BatchLine, by_prefix, read_lines};
pub use output::{BatchOutput, OutputLines};
pub(crate) use runner::{BatchOutputs, BatchRun, Tally};
pub(crate) use store::{BatchState, BatchStore, StoredBatch, StoredFile};

use crate::server::{ServeError, Server, ServerOptions};

/// Priority of a batch's requests, after all clients that set a priority themselves. Lower is served earlier.
pub(crate) const PRIORITY: i32 = 1 << 20;

/// Reason why a batch does not run, or ends early.
#[derive(Debug, thiserror::Error)]
pub enum BatchError {
    /// An invalid line of requests. No request was sent then.
    #[error("{file}: line {line}: {message}")]
    Line {
        /// The file.
        file: PathBuf,
        /// Its number, from 1.
        line: usize,
        /// Description of the fault.
        message: String,
    },
    /// A file that cannot be read or written.
    #[error("{file}: {error}")]
    File {
        /// The file.
        file: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
    /// The file of answers has other content.
    #[error(
        "{file}: line {line} is no answer of a batch: {message}; name another file, or move this one away"
    )]
    Foreign {
        /// The file.
        file: PathBuf,
        /// The number of the line, from 1.
        line: usize,
        /// Description of the fault.
        message: String,
    },
    /// Another process writes to the file.
    #[error("{file}: another batch writes to it")]
    Locked {
        /// The file.
        file: PathBuf,
    },
    /// The internal server does not start.
    #[error("{0}")]
    Serve(#[from] ServeError),
    /// A model that cannot be loaded.
    #[error("{model}: {reason}")]
    Model {
        /// Its name.
        model: String,
        /// The reason.
        reason: String,
    },
}

/// Result of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchReport {
    /// Number of requests in the file.
    pub n_requests: usize,
    /// Number of answers that existed before.
    pub n_before: usize,
    /// Number of answers written, errors included.
    pub n_answered: usize,
    /// Number of errors among those.
    pub n_failed: usize,
}

impl BatchReport {
    /// Whether each request has an answer.
    pub fn is_complete(&self) -> bool {
        self.n_before + self.n_answered == self.n_requests
    }
}

/// Sends the requests of one file and writes the answers to another, `n_parallel` at a time, until all are answered
/// or `stop` returns true. `progress` gets the number of answered requests and the total.
///
/// # Errors
/// [`BatchError`]. All but a failure to write a file are found before any request is sent.
pub fn run(
    options: ServerOptions,
    input: &Path,
    output: &Path,
    n_parallel: usize,
    stop: impl Fn() -> bool,
    progress: impl Fn(usize, usize) + Send + Sync + 'static,
) -> Result<BatchReport, BatchError> {
    let lines = read_lines(input)?;
    let (output, held) = BatchOutput::open(output)?;
    let n_requests = lines.len();
    let todo: Vec<BatchLine> = lines
        .into_iter()
        .filter(|line| !held.has(&line.custom_id))
        .collect();
    let n_before = n_requests - todo.len();
    let report = BatchReport {
        n_requests,
        n_before,
        ..BatchReport::default()
    };
    if todo.is_empty() {
        return Ok(report);
    }
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(ServeError::from)?;
    let outputs = BatchOutputs {
        answers: output,
        errors: None,
    };
    let progress = Box::new(move |tally: &Tally| progress(n_before + tally.n_answered, n_requests));
    let answered = answer(options, todo, outputs, n_parallel, stop, progress);
    let tally = runtime.block_on(answered);
    runtime.shutdown_timeout(Duration::from_secs(1));
    let tally = tally?;
    Ok(BatchReport {
        n_answered: tally.n_answered,
        n_failed: tally.n_failed,
        ..report
    })
}

/// Starts a server, sends it the requests, and ends it.
async fn answer(
    options: ServerOptions,
    todo: Vec<BatchLine>,
    outputs: BatchOutputs,
    n_parallel: usize,
    stop: impl Fn() -> bool,
    progress: Box<dyn Fn(&Tally) + Send + Sync>,
) -> Result<Tally, BatchError> {
    // The address is announced to no one, and no one else may connect.
    let server = Server::start(options).await?;
    server
        .wait_until_loaded()
        .await
        .map_err(|(model, reason)| BatchError::Model { model, reason })?;
    let (sender, stopped) = watch::channel(false);
    let run = BatchRun {
        app: server.app(),
        client: Arc::from("batch"),
        n_parallel,
        stopped,
        progress,
    };
    let mut running = tokio::spawn(run.run(by_prefix(todo), outputs));
    let joined = loop {
        tokio::select! {
            joined = &mut running => break joined,
            () = tokio::time::sleep(Duration::from_millis(50)) => {
                if stop() {
                    let _ = sender.send(true);
                }
            }
        }
    };
    server.stop().await;
    joined.map_err(|error| ServeError::Start(std::io::Error::other(error)))?
}
