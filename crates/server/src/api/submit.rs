//! Jobs on their way to the scheduler, with the grammar of their answers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use tokio::sync::mpsc::UnboundedReceiver;

use super::error::ApiError;
use super::shape::Shape;
use crate::grammar::GrammarError;
use crate::models::Served;
use crate::scheduler::{Event, Job, Refusal};

/// How long it may take to find out which of several schemas is at fault.
const SEARCH_TIME: Duration = Duration::from_secs(2);

/// Gives the scheduler a job. The first grammar of a model takes a tree of its vocabulary, and any may take its time:
/// not on a thread that serves others.
async fn submit(
    served: &Served,
    job: Job,
) -> Result<Result<UnboundedReceiver<Event>, Refusal>, ApiError> {
    if job.grammar.is_none() {
        return Ok(served.scheduler.submit(job));
    }
    let scheduler = served.scheduler.clone();
    apart(move || scheduler.submit(job)).await
}

/// Compiles on a thread that serves nobody else.
async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| {
        let message = format!("compiling the grammar failed: {error}");
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    })
}

/// Gives the scheduler a job of some shape, or, if that has no grammar, of what remains of it.
pub(super) async fn submit_shaped(
    served: &Served,
    job: Job,
    shape: Shape,
) -> Result<(UnboundedReceiver<Event>, Shape), ApiError> {
    let mut job = Job {
        grammar: shape.grammar(),
        ..job
    };
    if job.grammar.is_none() {
        return Ok((submit(served, job).await??, shape));
    }
    let error = match submit(served, job.clone()).await? {
        Ok(events) => return Ok((events, shape)),
        Err(Refusal::Grammar(error)) => error,
        Err(refusal) => return Err(refusal.into()),
    };
    if !matches!(
        error,
        GrammarError::Bad { .. } | GrammarError::TooLong { .. }
    ) {
        return Err(Refusal::Grammar(error).into());
    }
    // Which of the parts it was.
    let mut shape = shape;
    let parts = shape.parts();
    let start = Instant::now();
    let mut failed = Vec::new();
    for (i, grammar) in parts.into_iter().enumerate() {
        if start.elapsed() > SEARCH_TIME {
            break;
        }
        let loaded = Arc::clone(&served.loaded);
        let compiled = apart(move || loaded.grammars.compile(&grammar).map(|_| ())).await?;
        failed.extend(compiled.err().map(|error| (i, error)));
    }
    let shape = shape.without(&error, failed)?;
    job.grammar = shape.grammar();
    Ok((submit(served, job).await??, shape))
}
