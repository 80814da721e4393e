//! The four matrices of attention.

use crate::axes::Mapping;
use crate::lower::LowerError;
use crate::lower::builder::{Builder, ax, list};
use crate::lower::linear::HbmLinear;
use crate::lower::rows::Width;
use millrace_graph::RopeStyle;

/// The four matrices of attention in HBM.
pub(super) struct Projections {
    pub(super) q: HbmLinear,
    pub(super) k: HbmLinear,
    pub(super) v: HbmLinear,
    pub(super) o: HbmLinear,
}

impl Projections {
    /// Rows of `q` and `k` are in the order in which the model's rotation pairs them.
    pub(super) fn declare(
        b: &mut Builder<'_>,
        q_heads: &Width,
        k_heads: &Width,
    ) -> Result<Projections, LowerError> {
        let (dims, options) = (b.target.dims, b.target.options);
        let (hkv, groups, pairs) = (dims.n_kv_heads, dims.n_groups, dims.head_dim / 2);
        let rotated = |heads: &Width| -> (Width, Mapping) {
            let mut axes: Vec<(&str, u64)> = heads.axes.iter().map(|(n, s)| (&**n, *s)).collect();
            axes.extend([("d_k_prime", pairs), ("f", 2)]);
            let halves = match options.rope {
                RopeStyle::Interleaved => list([ax("d_k_prime"), ax("f")]),
                RopeStyle::HalfSplit => list([ax("f"), ax("d_k_prime")]),
            };
            (Width::new(&axes), list([heads.mapping.clone(), halves]))
        };
        let width = b.width();
        let (q_width, q_rows) = rotated(q_heads);
        let (k_width, k_rows) = rotated(k_heads);
        let v_width = Width::new(&[("h_kv", hkv), ("d_k", dims.head_dim)]);
        let v_rows = v_width.mapping.clone();
        let o_width = Width::new(&[("h_kv", hkv), ("G", groups), ("d_k", dims.head_dim)]);
        let weights = options.weights;
        Ok(Projections {
            q: b.linear("w_q", weights, (q_width, &width), q_rows)?,
            k: b.linear("w_k", weights, (k_width, &width), k_rows)?,
            v: b.linear("w_v", weights, (v_width, &width), v_rows)?,
            o: b.linear("w_o", weights, (width.clone(), &o_width), ax("D"))?,
        })
    }
}
