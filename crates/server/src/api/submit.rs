//! Submits jobs to the scheduler, with the grammar of their answers.

use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedReceiver;

use super::error::ApiError;
use super::shape::AnswerShape;
use crate::grammar::Requester;
use crate::models::ServedModel;
use crate::scheduler::{Job, JobEvent, SubmitError};

/// Time limit for finding the schemas that fail.
const SEARCH_TIME: Duration = Duration::from_secs(2);

/// The priority of a job: a request may ask for a later one than its key's, not for an earlier one.
fn least_priority(job: &Job) -> i32 {
    let of_key = job.usage.as_ref().and_then(|usage| usage.priority());
    job.priority.max(of_key.unwrap_or(i32::MIN))
}

/// Submits a job with a shape. If the shape cannot be enforced, submits it with the parts that can.
pub(super) async fn submit_shaped(
    served: &ServedModel,
    job: Job,
    mut shape: AnswerShape,
) -> Result<(UnboundedReceiver<JobEvent>, AnswerShape), ApiError> {
    let mut job = Job {
        grammar: shape.grammar(),
        thinking: shape.thinking.clone(),
        grammar_has_thoughts: shape.is_in_channels(),
        shown: shape.marks.ids().into(),
        adapters: served.adapters.clone(),
        priority: least_priority(&job),
        ..job
    };
    let error = match served.scheduler.submit_in_turn(job.clone()).await {
        Ok(events) => return Ok((events, shape)),
        Err(SubmitError::Grammar(error)) if error.may_be_relaxed() => error,
        Err(refusal) => return Err(refusal.into()),
    };
    // Find the parts that fail.
    let requester = Requester::of(&job);
    let start = Instant::now();
    let mut failed = Vec::new();
    for (i, grammar) in shape.parts().into_iter().enumerate() {
        if start.elapsed() > SEARCH_TIME {
            break;
        }
        match served.loaded.grammars.prepare(&grammar, &requester).await {
            Ok(_) => {}
            Err(SubmitError::Grammar(error)) => failed.push((i, error)),
            Err(refusal) => return Err(refusal.into()),
        }
    }
    let shape = shape.without(&error, failed)?;
    job.grammar = shape.grammar();
    Ok((served.scheduler.submit_in_turn(job).await?, shape))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::keys::{KeyLimits, KeyUsage};

    #[test]
    fn no_request_is_served_earlier_than_its_key() {
        for (of_key, asked, priority) in [
            (None, -100, -100),
            (Some(5), -100, 5),
            (Some(5), 7, 7),
            (Some(-5), -5, -5),
        ] {
            let limits = KeyLimits {
                priority: of_key,
                ..KeyLimits::default()
            };
            let job = Job {
                usage: Some(Arc::new(KeyUsage::new(0, limits))),
                priority: asked,
                ..Job::new(vec![1], Default::default())
            };
            assert_eq!(least_priority(&job), priority, "{of_key:?} {asked}");
        }
    }
}
