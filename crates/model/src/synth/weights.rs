//! Draws weights: pools of encoded blocks, and threads that fill tensors from them in order.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use millrace_quant::{DType, encode_matrix};

use super::{ByteSink, PlannedName, SynthTensor, draft};
use crate::Error;
use crate::arch::{self, WeightConvention};
use crate::config::ModelConfig;
use crate::names::{ParameterKind, WeightRole};

/// Blocks a pool holds at most: enough that rows differ, few enough to encode in an instant.
const POOL_BLOCKS: usize = 2048;
/// Bytes that a thread draws before it hands them on.
const CHUNK_BYTES: usize = 4 << 20;
/// Chunks a thread may be ahead of the writer.
const CHUNKS_AHEAD: usize = 2;
/// Deviation of norms from 1 and of biases from 0.
pub(super) const VECTOR_STD: f32 = 0.1;

/// How to fill tensors.
pub(super) struct Fill<'a> {
    pub(super) config: &'a ModelConfig,
    pub(super) layout: WeightConvention,
    pub(super) seed: u64,
    pub(super) n_threads: usize,
    /// The noise of a draft layer that copies the model's output, if there is one.
    pub(super) draft_noise: Option<f32>,
}

/// Encoded blocks of one format and deviation.
struct Pool {
    /// Bytes of one block.
    block_bytes: usize,
    bytes: Vec<u8>,
}

/// A piece of a tensor.
enum WeightChunk<'a> {
    /// Bytes that are ready.
    Ready { name: &'a str, bytes: Vec<u8> },
    /// `len_bytes` to be picked from a pool.
    Picked {
        name: &'a str,
        pool: &'a Pool,
        len_bytes: usize,
        seed: u64,
    },
}

/// Format, inputs and size of the numbers.
type PoolKey = (DType, usize, NumberSize);

/// The size of a matrix's random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum NumberSize {
    /// Products of unit inputs have unit size.
    Unit,
    /// The rows of rare tokens in models with a draft layer.
    Rare,
    /// No product adds anything.
    Zero,
}

impl NumberSize {
    fn scale(self) -> f32 {
        match self {
            NumberSize::Unit => 1.0,
            NumberSize::Rare => draft::RARE_SCALE,
            NumberSize::Zero => 0.0,
        }
    }
}

impl Fill<'_> {
    /// Fills all tensors of the plan, in its order, through `sink`.
    pub(super) fn run(&self, plan: &[SynthTensor], sink: &mut ByteSink<'_>) -> Result<(), Error> {
        let pools = self.pools(plan)?;
        let mut chunks = Vec::new();
        for (i, tensor) in plan.iter().enumerate() {
            self.push_chunks(i, tensor, &pools, &mut chunks)?;
        }
        let n_threads = self.n_threads.min(chunks.len()).max(1);
        std::thread::scope(|scope| {
            // Thread t draws chunks t, t + n, t + 2n… Taking one from each in turn keeps the order,
            // and bounds the number of waiting chunks.
            let receivers: Vec<Receiver<Vec<u8>>> = (0..n_threads)
                .map(|t| {
                    let (sender, receiver) = sync_channel(CHUNKS_AHEAD);
                    let chunks = &chunks;
                    scope.spawn(move || draw(chunks.iter().skip(t).step_by(n_threads), &sender));
                    receiver
                })
                .collect();
            for (i, chunk) in chunks.iter().enumerate() {
                let bytes = receivers[i % n_threads]
                    .recv()
                    .expect("a thread ends only after it has sent all its chunks");
                sink(chunk.name(), &bytes)?;
            }
            Ok(())
        })
    }

    fn push_chunks<'p>(
        &self,
        index: usize,
        tensor: &'p SynthTensor,
        pools: &'p HashMap<PoolKey, Pool>,
        chunks: &mut Vec<WeightChunk<'p>>,
    ) -> Result<(), Error> {
        let name = tensor.spec.name.as_str();
        let seed = |chunk: usize| mix(self.seed, ((index as u64) << 32) | chunk as u64);
        let Some([n, k]) = matrix(tensor) else {
            let values = self.vector(tensor, seed(0));
            chunks.push(WeightChunk::Ready {
                name,
                bytes: encode(tensor, 1, &values)?,
            });
            return Ok(());
        };
        if let (Some(noise), PlannedName::Text(name)) = (self.draft_noise, tensor.name)
            && name.role == WeightRole::DraftProj
        {
            let values = draft::projection([n, k], noise, seed(0));
            let bytes = encode(tensor, n, &values)?;
            let name = tensor.spec.name.as_str();
            chunks.push(WeightChunk::Ready { name, bytes });
            return Ok(());
        }
        let mut chunk = 0;
        for (n_rows, size) in self.parts(tensor, n) {
            let pool = &pools[&(tensor.dtype, k, size)];
            let n_bytes = tensor.dtype.size_bytes(n_rows, k);
            let mut rest = n_bytes.ok_or_else(|| unwritable(tensor, "shape"))?;
            let whole = CHUNK_BYTES / pool.block_bytes * pool.block_bytes;
            while rest > 0 {
                let len_bytes = rest.min(whole.max(pool.block_bytes));
                chunks.push(WeightChunk::Picked {
                    name,
                    pool,
                    len_bytes,
                    seed: seed(chunk),
                });
                rest -= len_bytes;
                chunk += 1;
            }
        }
        Ok(())
    }

    /// Norms near 1 (less the number that the layout adds), small biases, RoPE divisors.
    fn vector(&self, tensor: &SynthTensor, seed: u64) -> Vec<f32> {
        let mut rng = SynthRng::new(seed);
        let n = tensor.spec.shape.iter().product();
        let mut around = |mean: f32| (0..n).map(|_| mean + VECTOR_STD * rng.normal()).collect();
        let name = match tensor.name {
            PlannedName::Text(name) => name,
            PlannedName::Vision(name) => {
                return around(name.usual(self.layout == WeightConvention::Gguf));
            }
        };
        let config = self.config;
        if name.role.is_rope_table() {
            let mut tables = config.rope_tables().into_iter();
            let table = tables.find(|(role, _)| *role == name.role);
            return table
                .expect("the plan lists the tensor only where there are factors")
                .1;
        }
        let family = arch::by_name(config.family);
        let offset = family.norm_offset(config, (name, self.layout));
        if let Some(values) = (family.values)(config, (name, self.layout)) {
            return values;
        }
        if let (true, Some(values)) = (self.draft_noise.is_some(), draft::vector(name, n, offset)) {
            return values;
        }
        let mean = match (name.role, name.part) {
            (WeightRole::SsmNorm | WeightRole::SsmPreNorm | WeightRole::SsmSkip, _) => 1.0,
            // A state then forgets half of itself in some ten tokens.
            (WeightRole::SsmRate, _) if self.layout == WeightConvention::Gguf => {
                return around(0.0).into_iter().map(|x| -0.1 * x.exp()).collect();
            }
            (WeightRole::SsmRate, _) => -2.3,
            (role, ParameterKind::Weight) if role.is_norm() => 1.0 - offset,
            _ => 0.0,
        };
        around(mean)
    }

    /// One pool for each format and number of inputs.
    fn pools(&self, plan: &[SynthTensor]) -> Result<HashMap<PoolKey, Pool>, Error> {
        let mut needed: HashMap<PoolKey, (&SynthTensor, usize)> = HashMap::new();
        for tensor in plan {
            let Some([n, k]) = matrix(tensor) else {
                continue;
            };
            for (n_rows, size) in self.parts(tensor, n) {
                let key = (tensor.dtype, k, size);
                let entry = needed.entry(key).or_insert((tensor, 0));
                entry.1 += n_rows * k;
            }
        }
        let pool = |(key, (tensor, n_elems)): (PoolKey, (&SynthTensor, usize))| {
            Ok((key, self.pool(key, tensor, n_elems)?))
        };
        needed.into_iter().map(pool).collect()
    }

    /// Rows of a matrix, by the size of their numbers.
    fn parts(&self, tensor: &SynthTensor, n: usize) -> Vec<(usize, NumberSize)> {
        let unit = vec![(n, NumberSize::Unit)];
        let name = match tensor.name {
            PlannedName::Text(name) if self.draft_noise.is_some() => name,
            _ => return unit,
        };
        match n.checked_sub(draft::N_FREQUENT) {
            _ if draft::is_zero(name) => vec![(n, NumberSize::Zero)],
            Some(n_rare) if n_rare > 0 && draft::has_row_per_token(name) => {
                vec![
                    (draft::N_FREQUENT, NumberSize::Unit),
                    (n_rare, NumberSize::Rare),
                ]
            }
            _ => unit,
        }
    }

    fn pool(
        &self,
        (dtype, k, size): PoolKey,
        first: &SynthTensor,
        n_elems: usize,
    ) -> Result<Pool, Error> {
        // Plain numbers are picked in runs, because single picks would be slow.
        let width = if dtype.is_float() {
            run_of(k)
        } else {
            dtype.block_elems()
        };
        let block_elems = width * dtype.block_rows();
        let n_blocks = n_elems.div_ceil(block_elems).min(POOL_BLOCKS);
        let scale = size.scale() / (k as f32).sqrt();
        let mut rng = SynthRng::new(mix(self.seed, mix(dtype as u64, k as u64)));
        let values: Vec<f32> = (0..n_blocks * block_elems)
            .map(|_| scale * rng.normal())
            .collect();
        let bytes = encode_rows(first, dtype, &values, n_blocks * dtype.block_rows(), width)?;
        Ok(Pool {
            block_bytes: bytes.len() / n_blocks,
            bytes,
        })
    }
}

/// Rows and columns of tensors that are filled from a pool: matrices, all experts' as one, but not their biases.
fn matrix(tensor: &SynthTensor) -> Option<[usize; 2]> {
    let is_weight = match tensor.name {
        // Numbers of heads may be stored as a column or by group.
        PlannedName::Text(name) => {
            use WeightRole::{SsmNorm, SsmPreNorm, SsmRate, SsmSkip};
            let by_head = matches!(name.role, SsmRate | SsmSkip | SsmNorm | SsmPreNorm);
            name.part == ParameterKind::Weight && !by_head
        }
        PlannedName::Vision(_) => tensor.spec.shape.len() == 2,
    };
    match tensor.spec.shape[..] {
        [n, k] if is_weight => Some([n, k]),
        [n_experts, n, k] if is_weight => Some([n_experts * n, k]),
        _ => None,
    }
}

/// The longest power of two that divides `k`, up to 64.
fn run_of(k: usize) -> usize {
    1 << k.trailing_zeros().min(6)
}

fn encode(tensor: &SynthTensor, n_rows: usize, values: &[f32]) -> Result<Vec<u8>, Error> {
    encode_rows(tensor, tensor.dtype, values, n_rows, values.len() / n_rows)
}

fn encode_rows(
    tensor: &SynthTensor,
    dtype: DType,
    values: &[f32],
    n_rows: usize,
    k: usize,
) -> Result<Vec<u8>, Error> {
    let size_bytes = dtype
        .size_bytes(n_rows, k)
        .ok_or_else(|| unwritable(tensor, "its shape"))?;
    let mut bytes = vec![0; size_bytes];
    encode_matrix(dtype, values, n_rows, k, &mut bytes)
        .map_err(|error| unwritable(tensor, &error.to_string()))?;
    Ok(bytes)
}

fn unwritable(tensor: &SynthTensor, reason: &str) -> Error {
    Error::Unwritable {
        tensor: tensor.spec.name.clone(),
        shape: tensor.spec.shape.clone(),
        dtype: tensor.dtype.name().into(),
        reason: reason.into(),
    }
}

impl<'a> WeightChunk<'a> {
    fn name(&self) -> &'a str {
        match self {
            WeightChunk::Ready { name, .. } | WeightChunk::Picked { name, .. } => name,
        }
    }

    fn bytes(&self) -> Vec<u8> {
        match self {
            WeightChunk::Ready { bytes, .. } => bytes.clone(),
            WeightChunk::Picked {
                pool,
                len_bytes,
                seed,
                ..
            } => pool.pick(*len_bytes, *seed),
        }
    }
}

impl Pool {
    fn pick(&self, len_bytes: usize, seed: u64) -> Vec<u8> {
        let n_blocks = (self.bytes.len() / self.block_bytes) as u64;
        let mut rng = SynthRng::new(seed);
        let mut out = Vec::with_capacity(len_bytes);
        while out.len() < len_bytes {
            let block = ((u128::from(rng.bits()) * u128::from(n_blocks)) >> 64) as usize;
            let block = &self.bytes[block * self.block_bytes..][..self.block_bytes];
            out.extend_from_slice(&block[..block.len().min(len_bytes - out.len())]);
        }
        out
    }
}

fn draw<'c>(chunks: impl Iterator<Item = &'c WeightChunk<'c>>, sender: &SyncSender<Vec<u8>>) {
    for chunk in chunks {
        // The writer gave up: it has an error to report.
        if sender.send(chunk.bytes()).is_err() {
            return;
        }
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): small, fast, the same everywhere.
pub(super) struct SynthRng(u64);

impl SynthRng {
    pub(super) fn new(seed: u64) -> SynthRng {
        SynthRng(seed)
    }

    pub(super) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        finish(self.0)
    }

    /// Standard normal, as the sum of twelve uniform numbers less six. Unlike the logarithm and cosine
    /// of the usual transform it has no rounding that differs between machines.
    pub(super) fn normal(&mut self) -> f32 {
        let mut sum = 0u32;
        for _ in 0..3 {
            let bits = self.bits();
            // No iterator: builds with checks of overflow draw billions of these.
            let word = |i: u32| (bits >> (16 * i)) as u32 & 0xffff;
            sum += word(0) + word(1) + word(2) + word(3);
        }
        sum as f32 / 65536.0 - 6.0 + 6.0 / 65536.0
    }
}

fn finish(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A seed from two numbers.
fn mix(a: u64, b: u64) -> u64 {
    finish(a.wrapping_add(finish(b.wrapping_add(0x9e37_79b9_7f4a_7c15))))
}
