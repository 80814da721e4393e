//! Runs the requests of a batch, in this process.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{Method, StatusCode, header};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tower_service::Service;

use super::input::BatchLine;
use super::output::{BatchOutput, is_failure};
use super::{BatchError, PRIORITY};
use crate::api::unique;
use crate::app::{App, Asker};
use crate::http::routes;

/// Pause before retrying a request that the queue had no room for.
const PAUSE: Duration = Duration::from_millis(200);

/// Maximum size of an answer, in bytes.
const MAX_ANSWER_BYTES: usize = 256 << 20;

/// Answers so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) n_answered: usize,
    /// Number of errors among them.
    pub(crate) n_failed: usize,
}

/// Destinations of answers.
pub(crate) struct BatchOutputs {
    pub(crate) answers: BatchOutput,
    /// File for errors; without one they go among the answers.
    pub(crate) errors: Option<BatchOutput>,
}

impl BatchOutputs {
    fn add(&mut self, answers: Vec<Value>) -> Result<(), BatchError> {
        let (errors, answers): (Vec<Value>, Vec<Value>) = match self.errors {
            Some(_) => answers.into_iter().partition(is_failure),
            None => (Vec::new(), answers),
        };
        if let Some(file) = self.errors.as_mut().filter(|_| !errors.is_empty()) {
            file.add(&errors)?;
        }
        match answers.is_empty() {
            true => Ok(()),
            false => self.answers.add(&answers),
        }
    }
}

/// How a batch is run.
pub(crate) struct BatchRun {
    pub(crate) app: Arc<App>,
    /// The client of the requests.
    pub(crate) client: Arc<str>,
    /// Number of simultaneous requests.
    pub(crate) n_parallel: usize,
    /// Ends the batch where it is.
    pub(crate) stopped: watch::Receiver<bool>,
    pub(crate) progress: Box<dyn Fn(&Tally) + Send + Sync>,
}

impl BatchRun {
    /// The client for a request without an id. Its tokens are counted for its key, but requests of batches have no
    /// quota: they wait for all others.
    fn asker(&self) -> Asker {
        Asker {
            client: Arc::clone(&self.client),
            request: Arc::from(""),
            priority: PRIORITY,
            usage: self.app.usage_of(&self.client),
        }
    }

    /// Sends all requests, in this order, as far as there is room. Requests under way when it is stopped get no
    /// answer.
    ///
    /// # Errors
    /// The answers cannot be written.
    pub(crate) async fn run(
        mut self,
        lines: Vec<BatchLine>,
        mut outputs: BatchOutputs,
    ) -> Result<Tally, BatchError> {
        let routes = routes::work(&self.app);
        let mut tally = Tally::default();
        let mut lines = lines.into_iter();
        let mut running: JoinSet<Value> = JoinSet::new();
        loop {
            while running.len() < self.n_parallel.max(1)
                && !*self.stopped.borrow()
                && let Some(line) = lines.next()
            {
                running.spawn(ask(routes.clone(), self.asker(), line));
            }
            let joined = tokio::select! {
                joined = running.join_next() => joined,
                // Dropping the running requests cancels them.
                _ = self.stopped.wait_for(|stop| *stop) => return Ok(tally),
            };
            let Some(joined) = joined else {
                return Ok(tally);
            };
            // A panic in a handler is a bug of this program: that request gets no answer, and is sent again next
            // time.
            let more = std::iter::from_fn(|| running.try_join_next());
            let answers: Vec<Value> = std::iter::once(joined).chain(more).flatten().collect();
            tally.n_answered += answers.len();
            tally.n_failed += answers.iter().filter(|answer| is_failure(answer)).count();
            // Not on the I/O threads: a sync takes as long as the disk does.
            tokio::task::block_in_place(|| outputs.add(answers))?;
            (self.progress)(&tally);
        }
    }
}

/// The answer to a request, as a line of the answers. Each attempt has a separate id.
async fn ask(mut routes: Router, asker: Asker, line: BatchLine) -> Value {
    let body = line.body.to_string();
    loop {
        let id = unique("req_");
        let mut request = Request::new(Body::from(body.clone()));
        *request.method_mut() = Method::POST;
        if let Ok(uri) = line.url.parse() {
            *request.uri_mut() = uri;
        }
        let json = header::HeaderValue::from_static("application/json");
        request.headers_mut().insert(header::CONTENT_TYPE, json);
        request.extensions_mut().insert(Asker {
            request: Arc::from(id.as_str()),
            ..asker.clone()
        });
        let response = match Service::call(&mut routes, request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        let status = response.status();
        if [
            StatusCode::TOO_MANY_REQUESTS,
            StatusCode::SERVICE_UNAVAILABLE,
        ]
        .contains(&status)
        {
            tokio::time::sleep(PAUSE).await;
            continue;
        }
        let bytes = axum::body::to_bytes(response.into_body(), MAX_ANSWER_BYTES).await;
        let body: Option<Value> = bytes
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok());
        return json!({
            "id": unique("batch_req_"), "custom_id": line.custom_id,
            "response": {"status_code": status.as_u16(), "request_id": id, "body": body},
            "error": null,
        });
    }
}
