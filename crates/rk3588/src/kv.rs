//! Where the KV cache lives: what attention costs with the cache in the host's memory and with the cache
//! packed as weights of the NPU.
//!
//! - *Host*: scores, softmax and weighted sum on the CPU, which reads the keys and values of the
//!   context once a pass.
//! - *NPU*: for each key-value head, the rows of its query heads times the keys (the cache is `b`), back
//!   to the host for softmax, then times the values. All scores cross twice, and each token's key and
//!   value are packed into their places.
//!
//! Prices are modelled; [`price`] is what placement asks. Under the built-in profiles a token is better
//! off with the cache on the host whatever the context, a long prompt with its products on the NPU;
//! `docs/rk3588.md` has the table.

use crate::machine::Machine;
use crate::matmul::Kind;
use crate::profile::Profile;
use crate::tiling::{Matmul, TilingError, choose_weights};

/// Attention of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attention {
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

/// What one layer's attention costs, in nanoseconds, modelled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Price {
    /// With the cache in the host's memory.
    pub host_ns: f64,
    /// With the cache on the NPU.
    pub npu_ns: f64,
    /// Bytes of the cache on the host, in 16-bit floats.
    pub host_bytes: f64,
    /// Bytes of the cache on the NPU, in 16-bit floats, padded to groups of kernels.
    pub npu_bytes: f64,
}

impl Price {
    /// Whether the cache is better off on the NPU.
    pub fn npu_pays(&self) -> bool {
        self.npu_ns < self.host_ns
    }
}

impl Attention {
    /// Operations of scores and weighted sum, two a multiply-add, without a causal mask's savings.
    fn ops(&self) -> f64 {
        let pairs = f64::from(self.n_tokens) * f64::from(self.context);
        4.0 * pairs * f64::from(self.n_heads) * f64::from(self.head_dim)
    }

    /// Elements of keys and values.
    fn cached(&self) -> f64 {
        2.0 * f64::from(self.context) * f64::from(self.n_kv_heads) * f64::from(self.head_dim)
    }
}

/// What a layer's attention costs either way.
///
/// # Errors
/// Where the NPU's products do not fit.
pub fn price(
    attention: &Attention,
    machine: &Machine,
    profile: &Profile,
) -> Result<Price, TilingError> {
    let threads = profile.host_threads;
    let host_bytes = attention.cached() * 2.0;
    let read = (profile.host_read_bytes_per_s * threads).min(profile.ddr_bytes_per_s);
    let host_ns =
        (host_bytes / read).max(attention.ops() / (profile.host_ops_per_s * threads)) * 1e9;

    // The heads of a group share keys: their rows make one product.
    let group = attention.n_heads.div_ceil(attention.n_kv_heads.max(1));
    let kind = Kind::Fp16F32;
    let m = attention.n_tokens * group;
    let scores = Matmul {
        kind,
        m,
        n: attention.context,
        k: attention.head_dim,
    };
    let weighted = Matmul {
        kind,
        m,
        n: attention.head_dim,
        k: attention.context,
    };
    let mut head_ns = 0.0;
    for shape in [scores, weighted] {
        // A head on one core; the others take other heads at the same time.
        let one = Profile {
            host_threads: 1.0,
            ddr_bytes_per_s: profile.ddr_bytes_per_s / f64::from(machine.n_cores),
            ..profile.clone()
        };
        let (_, chosen) = choose_weights(shape, 1, machine, &one)?;
        head_ns +=
            chosen.price.device_ns / f64::from(machine.n_cores) + chosen.price.host_ns / threads;
    }
    let group = kind.n_group();
    let padded =
        f64::from(attention.context.next_multiple_of(group)) / f64::from(attention.context);
    Ok(Price {
        host_ns,
        npu_ns: head_ns * f64::from(attention.n_kv_heads),
        host_bytes,
        npu_bytes: host_bytes * padded,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Llama-3.2-1B.
    fn llama(n_tokens: u32, context: u32) -> Attention {
        Attention {
            n_tokens,
            context,
            n_heads: 32,
            n_kv_heads: 8,
            head_dim: 64,
        }
    }

    #[test]
    fn decoding_is_better_off_on_the_host() {
        let machine = Machine::rk3588();
        for name in ["rocket-200", "rocket-600"] {
            let profile = Profile::builtin(name).unwrap();
            for (n_tokens, context) in [(1, 512), (1, 4096), (1, 16_384), (128, 128), (128, 4096)] {
                let price = price(&llama(n_tokens, context), &machine, &profile).unwrap();
                eprintln!(
                    "{name} {n_tokens:4} tokens, context {context:6}: host {:8.2} ms, NPU {:8.2} ms a layer",
                    price.host_ns / 1e6,
                    price.npu_ns / 1e6
                );
                assert!(n_tokens > 1 || !price.npu_pays(), "{context}: {price:?}");
            }
        }
    }

    #[test]
    fn a_free_host_path_would_change_the_answer() {
        let profile = Profile {
            submit_ns: 0.0,
            task_ns: 0.0,
            host_unpack_elements_per_s: 1e13,
            host_pack_bytes_per_s: 1e13,
            ..Profile::builtin("rocket-600").unwrap()
        };
        let price = price(&llama(128, 4096), &Machine::rk3588(), &profile).unwrap();
        assert!(price.npu_pays(), "{price:?}");
    }
}
