//! Importance matrices: how much each column of a matrix counts, which is the mean square of the inputs that it multiplies.
//!
//! A file has sums of squares and the number of rows that went into them, one set for each matrix of a tensor. So files of
//! several texts add up. Names are GGUF's, for models in files of any layout. [`read`](ImportanceMatrix::read) takes
//! llama.cpp's GGUF form and the older `.dat`; both can be written.

mod file;

use std::collections::BTreeMap;
use std::path::PathBuf;

use millrace_format::Checkpoint;
use millrace_graph::{Graph, WeightSource};

use crate::arch::WeightConvention;
use crate::builder;
use crate::catalog::Catalog;
use millrace_graph::Derivation;

/// Why an importance matrix cannot be read, joined or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportanceError {
    /// The file is not an importance matrix, or damaged.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The expected and the found contents.
        reason: String,
    },
    /// A tensor has another size in the matrix than in the model or another matrix.
    #[error(
        "the importance matrix has {found} numbers for tensor `{tensor}`, which needs {n_matrices} x {k}; \
         it belongs to another model"
    )]
    Shape {
        /// The tensor's name.
        tensor: String,
        /// Matrices that the tensor has.
        n_matrices: usize,
        /// Columns of each.
        k: usize,
        /// Numbers that the importance matrix has.
        found: usize,
    },
    /// GGUF's head or tensors are damaged, or the file cannot be written.
    #[error(transparent)]
    Format(#[from] millrace_format::Error),
}

/// Statistics of the inputs that one tensor was multiplied by.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImportanceEntry {
    /// Sums of squares, `[n_matrices, k]`.
    sums: Vec<f64>,
    /// Rows in the sums, one number for each matrix; one for all where the file does not distinguish them.
    counts: Vec<u64>,
}

impl ImportanceEntry {
    /// Matrices whose rows are counted.
    pub fn n_matrices(&self) -> usize {
        self.counts.len()
    }

    /// Rows of each matrix.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// Sums of squares, `[n_matrices, k]`.
    pub fn sums(&self) -> &[f64] {
        &self.sums
    }

    /// The mean squares of matrix `matrix` of `n_matrices`; `None` where no row went through it.
    pub fn mean_squares(&self, matrix: usize, n_matrices: usize) -> Option<Vec<f32>> {
        let k = self.sums.len() / n_matrices.max(1);
        let count = *self.counts.get(matrix).or(self.counts.first())?;
        let sums = self.sums.get(matrix * k..(matrix + 1) * k)?;
        (count > 0).then(|| sums.iter().map(|x| (x / count as f64) as f32).collect())
    }

    fn add(&mut self, tensor: &str, other: &ImportanceEntry) -> Result<(), ImportanceError> {
        let n_matrices = self.counts.len().max(other.counts.len());
        let fits = |counts: &[u64]| counts.len() == n_matrices || counts.len() == 1;
        if self.sums.len() != other.sums.len() || !fits(&self.counts) || !fits(&other.counts) {
            return Err(ImportanceError::Shape {
                tensor: tensor.to_owned(),
                n_matrices: self.counts.len(),
                k: self.sums.len() / self.counts.len().max(1),
                found: other.sums.len(),
            });
        }
        let expanded = |counts: &[u64], i: usize| counts.get(i).or(counts.first()).copied();
        let total = |i| {
            let (own, others) = (expanded(&self.counts, i), expanded(&other.counts, i));
            own.unwrap_or(0).saturating_add(others.unwrap_or(0))
        };
        self.counts = (0..n_matrices).map(total).collect();
        let sums = self.sums.iter_mut().zip(&other.sums);
        sums.for_each(|(sum, x)| *sum += x);
        Ok(())
    }
}

/// The importance of columns, by GGUF's names of tensors.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImportanceMatrix {
    /// Texts that it comes from.
    pub datasets: Vec<String>,
    /// Chunks of text.
    pub chunk_count: u32,
    /// Tokens of a chunk; 0 where the file does not say.
    pub chunk_size: u32,
    entries: BTreeMap<String, ImportanceEntry>,
}

impl ImportanceMatrix {
    /// The entry of a tensor, by its GGUF name.
    pub fn entry(&self, tensor: &str) -> Option<&ImportanceEntry> {
        self.entries.get(tensor)
    }

    /// All tensors, by name.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &ImportanceEntry)> {
        self.entries.iter().map(|(name, entry)| (&name[..], entry))
    }

    /// Adds a row that matrix `matrix` of `n_matrices` is multiplied by.
    pub fn add_row(&mut self, tensor: &str, (matrix, n_matrices): (usize, usize), row: &[f32]) {
        if !self.entries.contains_key(tensor) {
            let entry = ImportanceEntry {
                sums: vec![0.0; n_matrices * row.len()],
                counts: vec![0; n_matrices],
            };
            self.entries.insert(tensor.to_owned(), entry);
        }
        let k = row.len();
        let Some(entry) = self.entries.get_mut(tensor) else {
            return;
        };
        let sums = entry.sums.get_mut(matrix * k..(matrix + 1) * k);
        if let (Some(sums), Some(count)) = (sums, entry.counts.get_mut(matrix)) {
            let squares = row.iter().map(|x| f64::from(*x) * f64::from(*x));
            sums.iter_mut().zip(squares).for_each(|(sum, x)| *sum += x);
            *count += 1;
        }
    }

    /// Adds another matrix of the same model. One of unknown chunk size counts as of this one's.
    ///
    /// # Errors
    /// [`ImportanceError::Shape`] where a tensor has another size there.
    pub fn add(&mut self, other: &ImportanceMatrix) -> Result<(), ImportanceError> {
        let rows = match other.chunk_size {
            0 => u64::from(self.chunk_size.max(1)),
            _ => 1,
        };
        for (name, entry) in &other.entries {
            let scaled = ImportanceEntry {
                sums: entry.sums.iter().map(|x| x * rows as f64).collect(),
                counts: entry
                    .counts
                    .iter()
                    .map(|n| n.saturating_mul(rows))
                    .collect(),
            };
            match self.entries.get_mut(name) {
                Some(own) => own.add(name, &scaled)?,
                None => drop(self.entries.insert(name.clone(), scaled)),
            }
        }
        self.chunk_count = self.chunk_count.saturating_add(other.chunk_count);
        self.datasets.extend(other.datasets.iter().cloned());
        Ok(())
    }

    /// Whether an entry fits a tensor of `n_matrices` of `k` columns; `Ok(None)` where there is none.
    ///
    /// # Errors
    /// [`ImportanceError::Shape`] where its size differs.
    pub fn check(
        &self,
        tensor: &str,
        n_matrices: usize,
        k: usize,
    ) -> Result<Option<&ImportanceEntry>, ImportanceError> {
        let Some(entry) = self.entries.get(tensor) else {
            return Ok(None);
        };
        let counts_fit = entry.counts.len() == n_matrices || entry.counts.len() == 1;
        if entry.sums.len() == n_matrices * k && counts_fit {
            return Ok(Some(entry));
        }
        Err(ImportanceError::Shape {
            tensor: tensor.to_owned(),
            n_matrices,
            k,
            found: entry.sums.len(),
        })
    }
}

/// By weight of the graph, the GGUF name of the tensor with the same columns. `None` where there is no such tensor, as for
/// matrices that are stored transposed.
///
/// # Errors
/// As [`Model::from_checkpoint`](crate::Model::from_checkpoint).
pub fn gguf_names(
    checkpoint: &Checkpoint,
    graph: &Graph,
) -> Result<Vec<Option<String>>, crate::Error> {
    let keeps_columns = |source: &WeightSource| {
        use Derivation::{EveryRow, Mxfp4Parts, OfHeads};
        match source {
            WeightSource::Derived(by) => {
                matches!(by, EveryRow { .. } | OfHeads(_) | Mxfp4Parts { .. })
            }
            WeightSource::Whole | WeightSource::Rows { .. } | WeightSource::Experts(_) => true,
        }
    };
    let catalog = Catalog::of(checkpoint);
    let config = crate::read_config(checkpoint, &catalog)?;
    let sources = builder::weights_of(&config, &catalog)?;
    let layouts = builder::layout(&config, WeightConvention::Gguf, 0..config.n_layers);
    let is_gguf = catalog.layout() == WeightConvention::Gguf;
    let name_of = |weight: &millrace_graph::Weight| {
        let is_experts = matches!(weight.source, WeightSource::Experts(_));
        if is_gguf && !is_experts {
            return keeps_columns(&weight.source).then(|| weight.name.clone());
        }
        let (name, _) = sources.iter().find(|(_, source)| *source == weight)?;
        layouts.iter().find_map(|layout| {
            let uses = layout.uses.iter();
            let mut own = uses.filter(|used| used.weight == *name);
            own.any(|used| keeps_columns(&used.source))
                .then(|| layout.name.gguf())
        })
    };
    Ok(graph.weights.iter().map(name_of).collect())
}

#[cfg(test)]
mod tests;
