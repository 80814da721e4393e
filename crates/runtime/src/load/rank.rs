//! The part of a model that one rank of several runs.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use millrace_graph::{RankGraph, RankPlace, Weight, WeightId, WeightPart, WeightSource, shard};
use millrace_model::Model;

use super::LoadedModel;
use crate::Error;
use crate::execute::PlanError;

impl LoadedModel {
    /// The model of one rank: its graph, over the same files. It has copies of its parts of derived weights.
    pub(crate) fn for_rank(model: &LoadedModel, place: RankPlace) -> Result<LoadedModel, Error> {
        let RankGraph { graph, parts } = shard(&model.model.graph, place);
        let used = graph.nodes.iter().flat_map(|node| node.op.weights());
        let used: BTreeSet<usize> = used.map(|used| used.id.0).collect();
        let mut derived = Vec::with_capacity(parts.len());
        for (id, part) in parts.iter().enumerate() {
            let own = match part {
                _ if !used.contains(&id) => None,
                None => model.derived[id].clone(),
                Some(part) => copied(model, &graph.weights[id], part)?,
            };
            derived.push(own);
        }
        let tokenizer = model.tokenizer.lock();
        let tokenizer = tokenizer.unwrap_or_else(PoisonError::into_inner);
        Ok(LoadedModel {
            checkpoint: Arc::clone(&model.checkpoint),
            reads_ahead: model.reads_ahead,
            model: Model {
                graph,
                config: model.model.config.clone(),
            },
            derived,
            parts,
            tokenizer: Mutex::new(tokenizer.clone()),
        })
    }

    /// Where a weight begins in the weight that it is a part of; `None` for a whole one.
    pub(super) fn part(&self, id: WeightId) -> Option<&WeightPart> {
        self.parts.get(id.0)?.as_ref()
    }
}

/// Bytes from the beginning of a matrix to that of the part of it.
pub(super) fn offset(own: &Weight, whole: &Weight, part: &WeightPart) -> Option<usize> {
    let columns = match part.column {
        0 => 0,
        column => own.dtype.size_bytes(1, column)?,
    };
    own.dtype
        .size_bytes(part.row, whole.k)?
        .checked_add(columns)
}

/// The bytes of a part that cannot be read in place: of a derived weight, or of columns of several rows. `None` if it
/// can.
fn copied(
    model: &LoadedModel,
    own: &Weight,
    part: &WeightPart,
) -> Result<Option<Arc<[u8]>>, Error> {
    let whole = &model.model.graph.weights[part.of.0];
    let is_columns = own.k < whole.k && own.n > 1;
    if !is_columns && !matches!(whole.source, WeightSource::Derived(_)) {
        return Ok(None);
    }
    let bytes = bytes_of(model, own, part);
    let bytes = bytes.ok_or_else(|| {
        let name = &own.name;
        PlanError::Weight(format!("{name}: its blocks do not divide among ranks so"))
    })?;
    Ok(Some(bytes.into()))
}

fn bytes_of(model: &LoadedModel, own: &Weight, part: &WeightPart) -> Option<Vec<u8>> {
    let whole = &model.model.graph.weights[part.of.0];
    // Neighbouring rows are copied together.
    let (n_runs, rows) = match own.k == whole.k {
        true => (1, own.n),
        false => (own.n, 1),
    };
    let run_bytes = own.dtype.size_bytes(rows, own.k)?;
    let mut bytes = Vec::new();
    for matrix in 0..own.n_experts {
        let matrix = model.find(part.of, part.matrix + matrix)?;
        for run in 0..n_runs {
            let row = part.row + run * rows;
            let at = offset(own, whole, &WeightPart { row, ..*part })?;
            bytes.extend_from_slice(matrix.get(at..at.checked_add(run_bytes)?)?);
        }
    }
    Some(bytes)
}
