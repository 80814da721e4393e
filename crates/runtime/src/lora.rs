//! LoRA adapters of sequences: `y += scale · B · (A · x)` after the products of their rows.
//!
//! Rows of sequences without an adapter are untouched, and keep their bits. Rows with one are computed in f32, row by row, in one
//! order of sums. Their bits thus depend neither on the rows beside them nor on how a prompt was cut.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use millrace_graph::WeightId;
use millrace_kernels::Cpu;
use millrace_model::adapter::{Adapter, LowRank};
use sha2::{Digest, Sha256};

use crate::Error;
use crate::load::LoadedModel;
use crate::sequences::SeqId;

/// An adapter in memory, fitted to a model.
pub struct LoraAdapter {
    adapter: Adapter,
    /// Index among the adapter's products, by weight.
    by_weight: Vec<Option<usize>>,
    /// SHA-256 of its matrices and the weights they apply to: the same in every process.
    digest: [u8; 32],
}

impl LoraAdapter {
    /// Reads a GGUF adapter or a PEFT folder, for a model.
    ///
    /// # Errors
    /// As [`Adapter::open`].
    pub fn open(path: &Path, model: &LoadedModel) -> Result<LoraAdapter, Error> {
        let adapter = Adapter::open(path, model.model(), model.checkpoint())?;
        Ok(LoraAdapter::new(adapter, model))
    }

    /// An adapter that was fitted to this model.
    pub fn new(adapter: Adapter, model: &LoadedModel) -> LoraAdapter {
        let mut by_weight = vec![None; model.model().graph.weights.len()];
        for (index, product) in adapter.products.iter().enumerate() {
            by_weight[product.weight.0] = Some(index);
        }
        LoraAdapter {
            digest: digest(&adapter),
            adapter,
            by_weight,
        }
    }

    /// The path it was opened by.
    pub fn file(&self) -> &str {
        &self.adapter.file
    }

    /// Bytes of its matrices.
    pub fn size_bytes(&self) -> usize {
        self.adapter.size_bytes()
    }

    fn product(&self, weight: WeightId) -> Option<&LowRank> {
        let index = (*self.by_weight.get(weight.0)?)?;
        self.adapter.products.get(index)
    }

    /// Whether it was fitted to a model with these weights.
    fn fits(&self, model: &LoadedModel) -> bool {
        let weights = &model.model().graph.weights;
        let fits = |product: &LowRank| {
            let weight = weights.get(product.weight.0);
            weight.is_some_and(|weight| {
                product.a.len() == product.rank * weight.k
                    && product.b.len() == product.rank * weight.n
            })
        };
        self.by_weight.len() == weights.len() && self.adapter.products.iter().all(fits)
    }
}

/// The adapters of a sequence, each with a factor. They are summed in their order.
#[derive(Clone, Default)]
pub struct AdapterSet(Arc<[(Arc<LoraAdapter>, f32)]>);

impl AdapterSet {
    /// These adapters. Those with a factor of 0 are left out.
    pub fn new(adapters: impl IntoIterator<Item = (Arc<LoraAdapter>, f32)>) -> AdapterSet {
        let adapters = adapters.into_iter().filter(|(_, scale)| *scale != 0.0);
        AdapterSet(adapters.collect())
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// SHA-256 of the adapters, their factors and their order.
    pub(crate) fn digest(&self) -> [u8; 32] {
        let mut hasher = Sha256::new();
        for (adapter, scale) in self.0.iter() {
            hasher.update(adapter.digest);
            hasher.update(scale.to_le_bytes());
        }
        hasher.finalize().into()
    }

    /// The cache's scope for sequences of a scope with these adapters; without any it is the scope itself. Pages on disk outlive
    /// the process, so it follows from the adapters' contents.
    pub(crate) fn cache_scope(&self, scope: u64) -> u64 {
        if self.is_empty() {
            return scope;
        }
        let mut hasher = Sha256::new();
        hasher.update(scope.to_le_bytes());
        hasher.update(self.digest());
        let [a, b, c, d, e, f, g, h, ..] = <[u8; 32]>::from(hasher.finalize());
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }

    /// Refuses all adapters, for an engine that does not support them.
    ///
    /// # Errors
    /// [`Error::BadOption`] if there are any.
    pub fn refuse(&self) -> Result<(), Error> {
        match self.is_empty() {
            true => Ok(()),
            false => Err(Error::BadOption {
                option: "adapters",
                found: format!("{self:?}"),
                expected: "none: LoRA adapters run on the CPU, in one process",
            }),
        }
    }

    /// Refuses adapters that were fitted to another model.
    pub(crate) fn check(&self, model: &LoadedModel) -> Result<(), Error> {
        match self.0.iter().find(|(adapter, _)| !adapter.fits(model)) {
            None => Ok(()),
            Some((adapter, _)) => Err(Error::BadOption {
                option: "adapters",
                found: adapter.file().to_owned(),
                expected: "adapters that were opened for this model",
            }),
        }
    }
}

/// Digest of an adapter's effect, whatever its file's name and form.
fn digest(adapter: &Adapter) -> [u8; 32] {
    let mut hasher = Sha256::new();
    for product in &adapter.products {
        hasher.update(format!(
            "{} {} {:08x}\n",
            product.weight.0,
            product.rank,
            product.scale.to_bits()
        ));
        hasher.update(bytemuck::cast_slice(&product.a));
        hasher.update(bytemuck::cast_slice(&product.b));
    }
    hasher.finalize().into()
}

impl PartialEq for AdapterSet {
    fn eq(&self, other: &AdapterSet) -> bool {
        let key = |(adapter, scale): &(Arc<LoraAdapter>, f32)| (adapter.digest, scale.to_bits());
        self.0.iter().map(key).eq(other.0.iter().map(key))
    }
}

impl fmt::Debug for AdapterSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self
            .0
            .iter()
            .map(|(adapter, scale)| (adapter.file(), scale));
        f.debug_list().entries(names).finish()
    }
}

/// Which sequences have adapters, and the scopes of their cached pages. Adapters change keys and values, so a prefix is
/// useful only to sequences with the same adapters.
#[derive(Default)]
pub(crate) struct SequenceAdapters {
    /// Adapters of new sequences.
    pub(crate) default: AdapterSet,
    /// For sequences with adapters, or in a scope other than 0.
    of: Vec<(SeqId, u64, AdapterSet)>,
}

impl SequenceAdapters {
    pub(crate) fn with_default(default: AdapterSet) -> SequenceAdapters {
        SequenceAdapters {
            default,
            ..SequenceAdapters::default()
        }
    }

    /// The scope that its maker put a sequence into, and its adapters.
    pub(crate) fn get(&self, seq: SeqId) -> (u64, AdapterSet) {
        let found = self.of.iter().find(|(known, ..)| *known == seq);
        found.map_or_else(Default::default, |(_, scope, set)| (*scope, set.clone()))
    }

    pub(crate) fn set(&mut self, seq: SeqId, scope: u64, set: AdapterSet) {
        self.remove(seq);
        if scope != 0 || !set.is_empty() {
            self.of.push((seq, scope, set));
        }
    }

    pub(crate) fn remove(&mut self, seq: SeqId) {
        self.of.retain(|(known, ..)| *known != seq);
    }
}

/// Rows of a pass that have adapters.
#[derive(Clone, Debug)]
pub(crate) struct AdaptedRows {
    pub(crate) rows: std::ops::Range<usize>,
    pub(crate) set: AdapterSet,
}

/// Adds the contributions of the rows' adapters for one weight. `x` is `[m, k]`, `out` `[m, n]`; `scratch` keeps its memory.
pub(crate) fn add(
    cpu: &Cpu,
    adapted: &[AdaptedRows],
    weight: WeightId,
    (x, out): (&[f32], &mut [f32]),
    m: usize,
    scratch: &mut Vec<f32>,
) {
    let (k, n) = (x.len() / m.max(1), out.len() / m.max(1));
    for AdaptedRows { rows, set } in adapted.iter().filter(|adapted| !adapted.rows.is_empty()) {
        for (adapter, scale) in set.0.iter() {
            if let Some(product) = adapter.product(weight) {
                let x = &x[rows.start * k..rows.end * k];
                let out = &mut out[rows.start * n..rows.end * n];
                add_product(cpu, (product, *scale), (x, out), rows.len(), scratch);
            }
        }
    }
}

/// Elements that a thread processes at a time.
const INNER_PIECE: usize = 8;
const OUTER_PIECE: usize = 256;

fn add_product(
    cpu: &Cpu,
    (product, scale): (&LowRank, f32),
    (x, out): (&[f32], &mut [f32]),
    m: usize,
    inner: &mut Vec<f32>,
) {
    let rank = product.rank;
    let (k, n) = (x.len() / m, out.len() / m);
    inner.clear();
    inner.resize(m * rank, 0.0);
    cpu.pool()
        .run_pieces(inner, INNER_PIECE, &|piece, elements| {
            for (at, element) in elements.iter_mut().enumerate() {
                let at = piece * INNER_PIECE + at;
                let (row, i) = (at / rank, at % rank);
                *element = dot(&product.a[i * k..][..k], &x[row * k..][..k]);
            }
        });
    let (inner, scale) = (&inner[..], product.scale * scale);
    cpu.pool().run_pieces(out, OUTER_PIECE, &|piece, elements| {
        for (at, element) in elements.iter_mut().enumerate() {
            let at = piece * OUTER_PIECE + at;
            let (row, i) = (at / n, at % n);
            *element += scale * dot(&product.b[i * rank..][..rank], &inner[row * rank..][..rank]);
        }
    });
}

/// Dot product in one order for all callers: eight parallel sums, which are then added up.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let (whole_a, rest_a) = a.as_chunks::<8>();
    let (whole_b, rest_b) = b.as_chunks::<8>();
    let mut sums = [0.0_f32; 8];
    for (a, b) in whole_a.iter().zip(whole_b) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += a * b;
        }
    }
    for ((sum, a), b) in sums.iter_mut().zip(rest_a).zip(rest_b) {
        *sum += a * b;
    }
    sums.iter().sum()
}
