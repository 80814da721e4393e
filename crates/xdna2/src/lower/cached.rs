//! Kernels that attend over a cache, or over a pass's own keys.

use super::attention::shape;
use super::{Feature, Features, KeyRange};
use crate::mapping::prompt_attention::{self, tile_kv};
use crate::mapping::{self, Shape, flow_kv, flow_qkv};
use millrace_graph::Attention;
use millrace_xdna2_machine::Machine;

/// The mapping for a token. It also serves many tokens if the mapping for those does not take such heads.
const CACHED: &str = "cached-attention";

/// A kernel that attends over a cache, and the keys that it reads.
pub(super) struct AttentionKernel {
    pub(super) mapping: &'static str,
    pub(super) shape: Shape,
    /// Keys that are read, of the cache or within the reach of a window.
    pub(super) n_keys: u64,
    /// Rows that the host writes before it.
    pub(super) n_written: u64,
    /// The rows, where they are not the cache's from its first on.
    pub(super) range: Option<KeyRange>,
}

/// The kernel for as many keys as a mapping reads, of `n_rows` that the device has of the layer.
pub(super) fn fitted(
    a: &Attention,
    n_tokens: u64,
    (n_keys, max_tokens): (u64, u64),
    (n_rows, machine, features): (u64, &Machine, Features),
) -> Result<AttentionKernel, String> {
    if a.n_kv_heads == 0 || a.head_dim == 0 {
        return Err("attention without heads".to_owned());
    }
    let n_keys = n_keys.max(n_tokens).max(1);
    let whole = |unit: u64, of: u64| {
        let wanted = n_keys.div_ceil(unit).saturating_mul(unit);
        match wanted > of {
            true => Err(format!(
                "the array would read {wanted} rows of a cache of {of}"
            )),
            false => Ok(wanted),
        }
    };
    let prompt = (n_rows, machine, features);
    if let Some(choice) = for_a_prompt(a, n_tokens, n_keys, prompt) {
        whole(1, max_tokens)?;
        return Ok(choice);
    }
    if let Some(choice) = for_a_token(a, n_tokens, n_keys, prompt) {
        return Ok(choice);
    }
    let wanted = whole(
        mapping::n_keys_unit(&shape(a, n_tokens, (1, 1)), machine),
        n_rows,
    )?;
    Ok(AttentionKernel {
        mapping: CACHED,
        shape: shape(a, n_tokens, (wanted, n_rows)),
        n_keys: wanted,
        n_written: n_tokens,
        range: None,
    })
}

/// The kernel of many tokens, if it takes such heads and that number.
fn for_a_prompt(
    a: &Attention,
    n_tokens: u64,
    n_keys: u64,
    (n_rows, machine, features): (u64, &Machine, Features),
) -> Option<AttentionKernel> {
    if n_tokens == 1 {
        return None;
    }
    let of = |prompt: &Prompt| {
        let unit = prompt.unit(&shape(a, n_tokens, (1, 1)), machine)?;
        let window = a.window.map(|window| window as u64);
        let choice = match window.filter(|&window| window < n_keys) {
            Some(window) => {
                let reached = n_tokens + prompt_attention::before(window, unit);
                AttentionKernel {
                    mapping: prompt.mapping,
                    shape: shape(a, n_tokens, (reached, reached)),
                    n_keys: reached,
                    n_written: reached,
                    range: Some(KeyRange { window, unit }),
                }
            }
            None => {
                let wanted = n_keys.next_multiple_of(unit);
                AttentionKernel {
                    mapping: prompt.mapping,
                    shape: shape(a, n_tokens, (wanted, n_rows)),
                    n_keys: wanted,
                    n_written: n_tokens,
                    range: None,
                }
            }
        };
        (prompt.fits)(&choice.shape, machine).then_some(choice)
    };
    features.prompts().iter().find_map(of)
}

/// The kernel of a token as in the Gemma 3 paper, if it is wanted and takes such heads. It reads at most all rows of a ring.
fn for_a_token(
    a: &Attention,
    n_tokens: u64,
    n_keys: u64,
    (n_rows, machine, features): (u64, &Machine, Features),
) -> Option<AttentionKernel> {
    if !features.always_attends(n_tokens) {
        return None;
    }
    let unit = flow_kv::tile_kv(&shape(a, 1, (1, 1)), machine)?;
    let n_keys = n_keys.next_multiple_of(unit).min(n_rows);
    let choice = AttentionKernel {
        mapping: flow_kv::NAME,
        shape: shape(a, 1, (n_keys, n_rows)),
        n_keys,
        n_written: 1,
        range: None,
    };
    flow_kv::fits(&choice.shape, machine).then_some(choice)
}

/// A mapping of a prompt's attention.
pub(super) struct Prompt {
    pub(super) mapping: &'static str,
    /// Tiles of keys that it reads at once.
    tiles: fn(u64) -> u64,
    pub(super) fits: fn(&Shape, &Machine) -> bool,
}

/// Keys that are broadcast to the cores of a head.
const BROADCAST: Prompt = Prompt {
    mapping: prompt_attention::NAME,
    tiles: |tile_kv| tile_kv,
    fits: prompt_attention::fits,
};

/// Chunks of queries, each with separate keys.
const CHUNKS: Prompt = Prompt {
    mapping: flow_qkv::NAME,
    tiles: flow_qkv::reach_unit,
    fits: flow_qkv::fits,
};

impl Prompt {
    /// The unit that its number of keys is a multiple of. `None` if no tile fits a core.
    pub(super) fn unit(&self, shape: &Shape, machine: &Machine) -> Option<u64> {
        tile_kv(shape, machine).map(self.tiles)
    }
}

impl Features {
    /// Mappings of a prompt's attention, the wanted one first.
    pub(super) fn prompts(self) -> &'static [Prompt] {
        match self.has(Feature::FlowQkv) {
            true => &[CHUNKS, BROADCAST],
            false => &[BROADCAST],
        }
    }
}
