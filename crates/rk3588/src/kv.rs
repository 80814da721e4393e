//! Place of the KV cache: cost of a layer's attention on the host, and with its two products on the NPU.
//!
//! - *Host*: scores, softmax and weighted sum on the CPU, which reads the keys and values of the context once
//!   a pass.
//! - *NPU, packed for every pass*: the cache stays in the host's pages. For each key-value head the rows of its
//!   query heads are multiplied with the keys (`b`, packed anew), the host makes probabilities of the scores,
//!   and these are multiplied with the values. Plans work this way ([`crate::target`]).
//! - *NPU, resident*: the same products over a cache that is packed in the NPU's memory. Only new tokens are packed.
//!   A key is a row of `b`: its blocks are written once. A value is a *column* of `b`: each of its elements is in
//!   another block of 32 tokens, which is read and written for it.
//!
//! Prices are modelled; placement uses [`price`]. `docs/rk3588.md` has the table.

use crate::machine::Machine;
use crate::matmul::MatmulKind;
use crate::profile::Profile;
use crate::tiling::{Grid, Matmul, TilingChoice, TilingError, choose_weights};

/// Types of both products: f32 sums of fp16 operands.
pub const KIND: MatmulKind = MatmulKind::Fp16F32;

/// Tokens whose elements share a block of the weighted sum's `b`: adjacent k ([`crate::layout`]).
const BLOCK_TOKENS: u32 = 32;

/// Attention of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LayerAttention {
    /// Tokens of the pass.
    pub n_tokens: u32,
    /// Tokens of the cache, those of the pass included.
    pub context: u32,
    /// Query heads.
    pub n_heads: u32,
    /// Key-value heads.
    pub n_kv_heads: u32,
    /// Elements of a head.
    pub head_dim: u32,
}

/// Cost of attention with its products on the NPU, in nanoseconds, modelled; all key-value heads together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Terms {
    /// Tasks of both products, the slowest worker's (`task_ns`, the array, or the bytes it moves).
    pub device_ns: f64,
    /// Jobs handed to the driver (`submit_ns`).
    pub submit_ns: f64,
    /// Queries and probabilities into the layout of `a` (`host_pack_bytes_per_s`).
    pub pack_rows_ns: f64,
    /// Keys and values into the layout of `b`, those that are not packed yet (`host_pack_bytes_per_s`).
    pub pack_cache_ns: f64,
    /// Scores and sums from the layout of `c` (`host_unpack_elements_per_s`).
    pub unpack_ns: f64,
    /// Softmax of all scores on the host (`host_softmax_elements_per_s`).
    pub softmax_ns: f64,
}

impl Terms {
    /// Sum of all, one after the other.
    pub fn total_ns(&self) -> f64 {
        self.device_ns
            + self.submit_ns
            + self.pack_rows_ns
            + self.pack_cache_ns
            + self.unpack_ns
            + self.softmax_ns
    }
}

/// Cost of one layer's attention in each design, in nanoseconds, modelled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Price {
    /// On the host ([`host_ns`]).
    pub host_ns: f64,
    /// Products on the NPU, keys and values packed for every pass.
    pub packed: Terms,
    /// Products on the NPU over a cache that is packed in its memory.
    pub resident: Terms,
    /// Bytes of the cache on the host, in 16-bit floats.
    pub host_bytes: f64,
    /// Bytes of the cache as the NPU multiplies it, padding included.
    pub npu_bytes: f64,
}

impl LayerAttention {
    /// Query heads that share a key-value head.
    pub fn group(&self) -> u32 {
        self.n_heads.div_ceil(self.n_kv_heads.max(1))
    }

    /// The two products of a key-value head, each over the rows of all its query heads.
    pub fn products(&self) -> [Matmul; 2] {
        let product = |n, k| Matmul {
            kind: KIND,
            m: self.n_tokens.saturating_mul(self.group()),
            n,
            k,
        };
        [
            product(self.context, self.head_dim),
            product(self.head_dim, self.context),
        ]
    }

    /// Pairs of a query and a key that it sees, of one head.
    fn pairs(&self) -> f64 {
        let (n, context) = (f64::from(self.n_tokens), f64::from(self.context));
        (n * context - n * (n - 1.0) / 2.0).max(0.0)
    }

    /// Bytes of keys and values in 16-bit floats.
    fn host_bytes(&self) -> f64 {
        let elements = f64::from(self.context) * f64::from(self.n_kv_heads);
        2.0 * 2.0 * elements * f64::from(self.head_dim)
    }

    /// How both products are cut: the cheapest way for these very rows, since no packed copy outlives the pass.
    ///
    /// # Errors
    /// Where they do not fit.
    pub fn cut(
        &self,
        machine: &Machine,
        profile: &Profile,
    ) -> Result<[TilingChoice; 2], TilingError> {
        let [scores, sums] = self.products();
        let cut = |shape| choose_weights(shape, machine.n_cores, machine, profile);
        Ok([cut(scores)?.1, cut(sums)?.1])
    }
}

/// Cost of a layer's attention in each design.
///
/// # Errors
/// Where the NPU's products do not fit.
pub fn price(
    attention: &LayerAttention,
    machine: &Machine,
    profile: &Profile,
) -> Result<Price, TilingError> {
    let threads = profile.host_threads;
    let n_kv_heads = f64::from(attention.n_kv_heads);
    let pack_ns = |bytes: f64| bytes / (profile.host_pack_bytes_per_s * threads) * 1e9;
    let mut packed = Terms::default();
    let mut npu_bytes = 0.0;
    let shapes = attention.products();
    for (shape, chosen) in shapes.into_iter().zip(attention.cut(machine, profile)?) {
        let grid = Grid::new(shape, chosen.tiling, machine)?;
        let jobs = |worker| (grid.tiles(worker).len()).div_ceil(chosen.tiling.job_tasks as usize);
        let n_jobs: usize = (0..grid.workers.len()).map(jobs).sum();
        let results = grid.c_bytes() as f64 / f64::from(shape.kind.output_bytes());
        let unpack = profile.host_unpack_elements_per_s * threads;
        packed.device_ns += n_kv_heads * chosen.price.device_ns;
        packed.submit_ns += n_kv_heads * profile.submit_ns * n_jobs as f64;
        packed.pack_rows_ns += n_kv_heads * pack_ns(grid.a_bytes() as f64);
        packed.pack_cache_ns += n_kv_heads * pack_ns(grid.b_bytes() as f64);
        packed.unpack_ns += n_kv_heads * results / unpack * 1e9;
        npu_bytes += n_kv_heads * grid.b_bytes() as f64;
    }
    let [scores, _] = shapes;
    let n_scores = n_kv_heads * f64::from(scores.m) * f64::from(scores.n);
    packed.softmax_ns = softmax_ns(n_scores, profile);
    Ok(Price {
        host_ns: host_ns(attention, profile),
        packed,
        resident: Terms {
            pack_cache_ns: pack_ns(n_kv_heads * new_bytes(attention)),
            ..packed
        },
        host_bytes: attention.host_bytes(),
        npu_bytes,
    })
}

/// Cost of a layer's attention on the host, in nanoseconds, modelled: its products, or reading the cache, whichever
/// takes longer, and softmax.
pub fn host_ns(attention: &LayerAttention, profile: &Profile) -> f64 {
    let threads = profile.host_threads;
    let read = (profile.host_read_bytes_per_s * threads).min(profile.ddr_bytes_per_s);
    let pairs = attention.pairs() * f64::from(attention.n_heads);
    // Two products of a multiply-add each.
    let ops = 4.0 * pairs * f64::from(attention.head_dim);
    let ops_s = ops / (profile.host_ops_per_s * threads);
    (attention.host_bytes() / read).max(ops_s) * 1e9 + softmax_ns(pairs, profile)
}

/// Softmax of so many scores on the host.
fn softmax_ns(n_scores: f64, profile: &Profile) -> f64 {
    n_scores / (profile.host_softmax_elements_per_s * profile.host_threads) * 1e9
}

/// Bytes moved for one key-value head to pack a pass's tokens into a packed cache.
fn new_bytes(attention: &LayerAttention) -> f64 {
    let (n_tokens, head_dim) = (attention.n_tokens, attention.head_dim);
    let keys = f64::from(n_tokens) * KIND.row_bytes(head_dim) as f64;
    let blocks = f64::from(head_dim) * f64::from(n_tokens.div_ceil(BLOCK_TOKENS));
    // Read and written.
    keys + 2.0 * blocks * KIND.row_bytes(BLOCK_TOKENS) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Attention of Llama-3.2-1B.
    fn llama(n_tokens: u32, context: u32) -> LayerAttention {
        LayerAttention {
            n_tokens,
            context,
            n_heads: 32,
            n_kv_heads: 8,
            head_dim: 64,
        }
    }

    fn priced(n_tokens: u32, context: u32) -> Price {
        let profile = Profile::rocket_200();
        price(&llama(n_tokens, context), &Machine::rk3588(), &profile).unwrap()
    }

    #[test]
    fn decoding_is_better_off_on_the_host() {
        let machine = Machine::rk3588();
        for name in ["rocket-200", "rocket-600"] {
            let profile = Profile::builtin(name).unwrap();
            for (n_tokens, context) in [
                (1, 512),
                (1, 4096),
                (1, 16_384),
                (128, 128),
                (128, 1024),
                (128, 4096),
                (256, 256),
                (256, 1024),
                (256, 4096),
            ] {
                let price = price(&llama(n_tokens, context), &machine, &profile).unwrap();
                eprintln!(
                    "{name} {n_tokens:4} tokens, context {context:6}: host {:8.2} ms, packed {:8.2} ms, resident {:8.2} ms a layer",
                    price.host_ns / 1e6,
                    price.packed.total_ns() / 1e6,
                    price.resident.total_ns() / 1e6
                );
                eprintln!("    {:.0?}", price.packed);
                let packed = price.packed.total_ns();
                assert!(
                    n_tokens > 1 || packed >= price.host_ns,
                    "{context}: {price:?}"
                );
                let resident = price.resident.total_ns();
                assert!(n_tokens > 1 || resident > price.host_ns, "{price:?}");
            }
        }
    }

    /// By hand: 8 heads of 4 × 128 rows and 4,096 keys.
    #[test]
    fn what_the_host_does_for_the_npu_is_counted() {
        let (found, profile) = (priced(128, 4096), Profile::rocket_200());
        let (rows, keys, dim, heads) = (512.0, 4096.0, 64.0, 8.0);
        let threads = profile.host_threads;
        let near = |what, found: f64, expected: f64| {
            let ratio = found / expected;
            assert!(
                (0.999..1.04).contains(&ratio),
                "{what}: {found} for {expected}"
            );
        };
        let pack = |bytes: f64| heads * bytes / (profile.host_pack_bytes_per_s * threads) * 1e9;
        let Terms {
            pack_rows_ns,
            pack_cache_ns,
            unpack_ns,
            softmax_ns,
            ..
        } = found.packed;
        near("rows", pack_rows_ns, pack(2.0 * rows * (dim + keys)));
        near("cache", pack_cache_ns, pack(2.0 * 2.0 * keys * dim));
        let elements = |n: f64, per_s: f64| heads * n / (per_s * threads) * 1e9;
        // Sums come in parts of k.
        let unpack = elements(rows * (keys + dim), profile.host_unpack_elements_per_s);
        near("results", unpack_ns, unpack);
        let softmax = elements(rows * keys, profile.host_softmax_elements_per_s);
        near("softmax", softmax_ns, softmax);
        // 128 keys of 128 bytes; 64 elements in 4 blocks of 64 bytes each, read and written.
        let new = pack(128.0 * 128.0 + 2.0 * 64.0 * 4.0 * 64.0);
        near("new", found.resident.pack_cache_ns, new);
        // One token's value touches a block for every element.
        let token = pack(128.0 + 2.0 * 64.0 * 64.0);
        near("token", priced(1, 512).resident.pack_cache_ns, token);
    }

    #[test]
    fn a_free_host_path_would_change_the_answer() {
        let profile = Profile {
            submit_ns: 0.0,
            task_ns: 0.0,
            host_unpack_elements_per_s: 1e13,
            host_pack_bytes_per_s: 1e13,
            host_softmax_elements_per_s: 1e13,
            ..Profile::builtin("rocket-600").unwrap()
        };
        let price = price(&llama(128, 4096), &Machine::rk3588(), &profile).unwrap();
        assert!(price.packed.total_ns() < price.host_ns, "{price:?}");
    }
}
