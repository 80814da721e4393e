//! Random decoders: all ops that plans know, small sizes.

use millrace_graph::{
    Activation, Add, Attention, CombineExperts, Embed, ExpertLinear, Gating, Glu, Graph, Linear,
    Node, Op, RmsNorm, Rope, RopeId, RopeStyle, RotateHeads, Route, Value, ValueId, Weight,
    WeightId,
};
use millrace_quant::DType;
use proptest::prelude::*;

/// Sizes of a decoder.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) n_layers: usize,
    pub(crate) n_kv_heads: usize,
    /// Query heads that share a key-value head.
    pub(crate) group: usize,
    pub(crate) head_dim: usize,
    pub(crate) d_ff: usize,
    pub(crate) vocab: usize,
    pub(crate) window: Option<usize>,
    pub(crate) has_bias: bool,
    pub(crate) is_interleaved: bool,
    /// Experts, and how many of them a token uses; none of a dense model.
    pub(crate) experts: Option<(usize, usize)>,
}

impl Sizes {
    /// The least decoder with two layers.
    pub(crate) const LEAST: Sizes = Sizes {
        n_layers: 2,
        n_kv_heads: 1,
        group: 2,
        head_dim: 4,
        d_ff: 12,
        vocab: 10,
        window: None,
        has_bias: false,
        is_interleaved: false,
        experts: None,
    };

    pub(crate) fn any() -> impl Strategy<Value = Sizes> {
        let heads = (1..=3_usize, 1..=3_usize, 1..=4_usize);
        let rest = (
            1..=3_usize,
            1..=6_usize,
            prop::option::of(1..=40_usize),
            any::<[bool; 2]>(),
        );
        (heads, rest).prop_map(
            |((n_kv_heads, group, half), (n_layers, d_ff, window, is))| Sizes {
                n_layers,
                n_kv_heads,
                group,
                head_dim: 2 * half,
                d_ff: 4 * d_ff,
                vocab: 10,
                window,
                has_bias: is[0],
                is_interleaved: is[1],
                experts: None,
            },
        )
    }

    pub(crate) fn n_heads(&self) -> usize {
        self.n_kv_heads * self.group
    }

    pub(crate) fn d_model(&self) -> usize {
        self.n_heads() * self.head_dim
    }

    pub(crate) fn kv_width(&self) -> usize {
        self.n_kv_heads * self.head_dim
    }

    /// The decoder.
    pub(crate) fn graph(&self) -> Graph {
        let mut builder = Builder {
            graph: Graph::default(),
            layer: None,
        };
        builder.decoder(self);
        builder.graph
    }
}

struct Builder {
    graph: Graph,
    layer: Option<usize>,
}

impl Builder {
    fn weight(&mut self, n: usize, k: usize) -> WeightId {
        self.matrices(1, n, k)
    }

    fn matrices(&mut self, n_experts: usize, n: usize, k: usize) -> WeightId {
        let name = format!("weight.{}", self.graph.weights.len());
        self.graph.weights.push(Weight {
            name,
            n_experts,
            source: millrace_graph::WeightSource::Whole,
            n,
            k,
            dtype: DType::F32,
        });
        WeightId(self.graph.weights.len() - 1)
    }

    fn node(&mut self, label: &'static str, op: Op, inputs: &[ValueId], width: usize) -> ValueId {
        self.graph.values.push(Value { width });
        let output = ValueId(self.graph.values.len() - 1);
        self.graph.nodes.push(Node {
            op,
            inputs: inputs.to_vec(),
            output,
            layer: self.layer,
            label,
        });
        output
    }

    fn norm(&mut self, label: &'static str, x: ValueId, width: usize) -> ValueId {
        let op = Op::RmsNorm(RmsNorm {
            weight: self.weight(1, width),
            eps: 1e-5,
            offset: 0.0,
            group: width,
        });
        self.node(label, op, &[x], width)
    }

    fn linear(&mut self, label: &'static str, x: ValueId, n: usize, has_bias: bool) -> ValueId {
        let k = self.graph.width(x);
        let weight = self.weight(n, k);
        let bias = has_bias.then(|| self.weight(1, n));
        self.node(label, Op::Linear(Linear { weight, bias }), &[x], n)
    }

    fn decoder(&mut self, sizes: &Sizes) {
        let d = sizes.d_model();
        self.graph.ropes.push(Rope {
            style: match sizes.is_interleaved {
                true => RopeStyle::Interleaved,
                false => RopeStyle::HalfSplit,
            },
            n_rot: sizes.head_dim,
            inv_freq: (0..sizes.head_dim / 2)
                .map(|i| 0.5_f32.powi(i as i32))
                .collect(),
            attention_factor: 1.0,
        });
        let table = self.weight(sizes.vocab, d);
        let embed = Op::Embed(Embed { table, scale: 1.0 });
        let mut x = self.node("embed", embed, &[], d);
        self.graph.hidden.push(x);
        for layer in 0..sizes.n_layers {
            self.layer = Some(layer);
            x = self.block(sizes, layer, x);
            self.graph.hidden.push(x);
        }
        self.layer = None;
        let last = self.norm("final_norm", x, d);
        self.graph.head_input = Some(last);
        let logits = self.linear("lm_head", last, sizes.vocab, false);
        self.graph.logits = Some(logits);
    }

    fn block(&mut self, sizes: &Sizes, layer: usize, x: ValueId) -> ValueId {
        let (d, kv, bias) = (sizes.d_model(), sizes.kv_width(), sizes.has_bias);
        let head_dim = sizes.head_dim;
        let rope = Op::Rope(RotateHeads {
            rope: RopeId(0),
            head_dim,
            first: 0,
        });
        let normed = self.norm("attn_norm", x, d);
        let q = self.linear("attn_q", normed, d, bias);
        let k = self.linear("attn_k", normed, kv, bias);
        let v = self.linear("attn_v", normed, kv, bias);
        let q = self.node("attn_q_rope", rope.clone(), &[q], d);
        let k = self.node("attn_k_rope", rope, &[k], kv);
        let attention = Op::Attention(Attention {
            layer,
            n_heads: sizes.n_heads(),
            n_kv_heads: sizes.n_kv_heads,
            head_dim,
            scale: 0.5,
            window: sizes.window,
            chunked: false,
            softcap: None,
            sinks: None,
            slopes: None,
        });
        let sums = self.node("attn", attention, &[q, k, v], d);
        let out = self.linear("attn_out", sums, d, false);
        let x = self.node("attn_add", Op::Add(Add), &[x, out], d);
        let normed = self.norm("ffn_norm", x, d);
        if let Some(experts) = sizes.experts {
            let sum = self.mixture(sizes, experts, normed);
            return self.node("ffn_add", Op::Add(Add), &[x, sum], d);
        }
        let gate = self.linear("ffn_gate", normed, sizes.d_ff, false);
        let up = self.linear("ffn_up", normed, sizes.d_ff, false);
        let glu = Op::Glu(Glu {
            activation: Activation::Silu,
            clamp: None,
        });
        let both = self.node("ffn_act", glu, &[gate, up], sizes.d_ff);
        let down = self.linear("ffn_down", both, d, false);
        self.node("ffn_add", Op::Add(Add), &[x, down], d)
    }

    fn mixture(
        &mut self,
        sizes: &Sizes,
        (n_experts, n_used): (usize, usize),
        x: ValueId,
    ) -> ValueId {
        let (d, d_ff) = (sizes.d_model(), sizes.d_ff);
        let scores = self.linear("ffn_gate_inp", x, n_experts, false);
        let route = Op::Route(Route {
            n_experts,
            n_used,
            gating: Gating::Softmax,
            bias: None,
            groups: None,
            normalized: None,
            scale: 1.0,
        });
        let choice = self.node("ffn_route", route, &[scores], 3 * n_used);
        let both = self.experts("ffn_up_exps", [x, choice], (n_experts, n_used), d_ff, false);
        let down = self.experts(
            "ffn_down_exps",
            [both, choice],
            (n_experts, n_used),
            d,
            true,
        );
        let sum = Op::CombineExperts(CombineExperts {
            n_used,
            weighted: true,
        });
        self.node("ffn_sum", sum, &[down, choice], d)
    }

    fn experts(
        &mut self,
        label: &'static str,
        inputs: [ValueId; 2],
        (n_experts, n_used): (usize, usize),
        n: usize,
        own_rows: bool,
    ) -> ValueId {
        let rows = if own_rows { n_used } else { 1 };
        let k = self.graph.width(inputs[0]) / rows;
        let op = Op::ExpertLinear(ExpertLinear {
            weight: self.matrices(n_experts, n, k),
            bias: None,
            scale: None,
            n_used,
            own_rows,
        });
        self.node(label, op, &inputs, n_used * n)
    }
}
