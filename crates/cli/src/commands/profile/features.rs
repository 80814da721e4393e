//! What each improvement buys.

use super::predict;
use super::subject::Subject;
use crate::exit::Outcome;
use millrace_runtime::npu::{Feature, Features};
use millrace_xdna2::predict::{HostKind, Prediction, Timer, Work};
use serde::Serialize;

/// Totals of a set of features.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    /// `as asked for`, `without alias`, `the published stack`.
    pub(super) name: String,
    pub(super) ttft_ns: f64,
    pub(super) token_ns: f64,
    /// Of the prompt.
    pub(super) moved_bytes: u64,
    pub(super) prompt_dispatches: u64,
    pub(super) token_dispatches: u64,
    pub(super) memory_bytes: u64,
}

impl Row {
    fn of(name: String, p: &Prediction) -> Row {
        let crossing = |pass: &millrace_xdna2::predict::PassCost| {
            pass.totals.crossing.written_bytes + pass.totals.crossing.read_bytes
        };
        Row {
            name,
            ttft_ns: p.ttft_ns,
            token_ns: p.token.totals.total_ns,
            moved_bytes: p.prefill.iter().map(crossing).sum(),
            prompt_dispatches: p.prefill.iter().map(|pass| pass.totals.n_calls).sum(),
            token_dispatches: p.token.totals.n_calls,
            memory_bytes: p.memory.total_bytes,
        }
    }
}

/// The features in force, each left out in turn; the published stack's on our host, that stack, and
/// what it was before its head took a single row.
pub(super) fn rows(
    subject: &Subject,
    timer: &mut Timer<'_>,
    work: &Work,
    all: &Prediction,
) -> Outcome<Vec<Row>> {
    let mut rows = vec![Row::of("as asked for".to_owned(), all)];
    let mut add = |name: String, features: Features, host: HostKind| -> Outcome {
        let work = Work {
            features,
            host,
            ..*work
        };
        rows.push(Row::of(name, &predict(subject, timer, &work)?));
        Ok(())
    };
    for feature in work.features.iter() {
        let features = work.features.without(feature);
        add(format!("without {feature}"), features, HostKind::Own)?;
    }
    let published = Features::PUBLISHED;
    add("published, our host".to_owned(), published, HostKind::Own)?;
    add(
        "the published stack".to_owned(),
        published,
        HostKind::Published,
    )?;
    add(
        "the same, all rows through the head".to_owned(),
        Features::NONE,
        HostKind::Published,
    )?;
    Ok(rows)
}

/// Every feature has a line here of what it does.
pub(super) fn summary(feature: Feature) -> &'static str {
    match feature {
        Feature::FloatSums => "GEMMs keep f32 sums to the end",
        Feature::FastTilings => "tilings that the timing model finds fastest",
        Feature::Buckets => "prompts are padded to a bucket, not to 2,048",
        Feature::MergedBlocks => "a block's end and the next one's start share a dispatch",
        Feature::OneCopy => "prefill and decode read one copy of a weight",
        Feature::Alias => "values stay on the device between programs",
        Feature::AllCores => "element-wise and row-wise launches on all cores where that is faster",
        Feature::BalancedAttention => {
            "attention's causal work shared evenly, no pause between steps"
        }
        Feature::CachedAttention => "attention over cached keys on the array where it is faster",
        Feature::SingleRowHead => "only the last row of a prompt goes through the head",
    }
}
