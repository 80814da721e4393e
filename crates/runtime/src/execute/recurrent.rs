//! The table of recurrent ops that have kernels besides their definitions. A new kernel needs only a row.

use super::ops::Ops;
use crate::kv::{PAGE_TOKENS, PageTables, StateSlab};
use crate::sequences::SeqId;
use millrace_graph::{
    Activation, CausalConv, ChannelScan, DecayForm, DeltaNet, KimiDelta, Op, Rwkv7, SsmScan,
    ValueHeadOrder,
};
use millrace_kernels::{
    self as kernels, ChannelScanInput, ChannelScanShape, ConvInput, DeltaInput, DeltaShape,
    KimiDeltaInput, RuleShape, Rwkv7Input, SsmInput, SsmShape, StateRun,
};
use std::ops::Range;

/// Neighbouring tokens of a sequence, in a kernel's form.
pub(super) fn state_run(
    tables: PageTables<'_>,
    seq: SeqId,
    (rows, first_pos): (Range<usize>, usize),
) -> StateRun<'_> {
    let (slots, first_page) = tables.state_pages(seq);
    StateRun {
        rows,
        first_pos,
        slots,
        first_page,
    }
}

/// Arguments of a kernel.
struct StateCall<'a, 'r> {
    /// All rows of each input.
    inputs: &'a [&'a [f32]],
    /// The states of all sequences.
    states: &'a mut StateSlab,
    /// The tokens of each sequence.
    runs: &'a [StateRun<'r>],
    /// All rows of the result.
    out: &'a mut [f32],
}

/// Makes [`has_state_kernel`] and [`Ops::by_state_kernel`] of the rows: an op's pattern, and its kernel on `$ops` and `$call`.
macro_rules! state_kernels {
    (|$ops:ident, $call:ident| $($op:pat => $kernel:expr,)+) => {
        /// Whether a kernel computes the op over the tokens of many sequences.
        #[allow(unused_variables)] // Rows name what their kernels read.
        pub(super) fn has_state_kernel(op: &Op) -> bool {
            match op {
                $($op => true,)+
                _ => false,
            }
        }

        impl Ops<'_> {
            /// An op that [has a kernel](has_state_kernel), over runs of tokens; `inputs` and `out` have all rows.
            pub(super) fn by_state_kernel(
                &self,
                op: &Op,
                inputs: &[&[f32]],
                states: &mut StateSlab,
                runs: &[StateRun<'_>],
                out: &mut [f32],
            ) {
                let $ops = self;
                let $call = StateCall { inputs, states, runs, out };
                match op {
                    $($op => $kernel,)+
                    op => unreachable!("{} has no row in the table of kernels", op.name()),
                }
            }
        }
    };
}

state_kernels! { |ops, call|
    Op::CausalConv(op @ CausalConv { activation: None | Some(Activation::Silu), .. }) => {
        ops.causal_conv(op, call);
    },
    Op::DeltaNet(op) => ops.delta_net(op, call),
    Op::KimiDelta(op) => ops.kimi_delta(op, call),
    Op::Rwkv7(op) => ops.rwkv7(op, call),
    Op::SsmScan(op) => ops.ssm_scan(op, call),
    Op::ChannelScan(op) => ops.channel_scan(op, call),
}

impl Ops<'_> {
    fn causal_conv(&self, conv: &CausalConv, call: StateCall<'_, '_>) {
        let input = ConvInput {
            x: call.inputs[0],
            weight: &self.vectors[conv.weight.0],
            bias: conv.bias.map(|bias| &self.vectors[bias.0][..]),
            n_channels: conv.n_channels,
            silu: conv.activation.is_some(),
        };
        let slots = call.states.slots(conv.state, PAGE_TOKENS);
        kernels::causal_conv(self.cpu, input, slots, call.runs, call.out);
    }

    fn delta_net(&self, net: &DeltaNet, call: StateCall<'_, '_>) {
        let inputs = call.inputs;
        let shape = DeltaShape {
            n_k_heads: net.n_k_heads,
            n_v_heads: net.n_v_heads,
            k_dim: net.k_dim,
            v_dim: net.v_dim,
            tiled: net.order == ValueHeadOrder::Tiled,
        };
        let input = DeltaInput {
            qkv: inputs[0],
            alpha: inputs[1],
            beta: inputs[2],
            rate: &self.vectors[net.rate.0],
            rate_is_log: net.form == DecayForm::Logarithm,
            dt: &self.vectors[net.dt.0],
            max_strength: net.max_strength,
        };
        let slots = call.states.slots(net.state, PAGE_TOKENS);
        kernels::delta_net(self.cpu, &shape, input, slots, call.runs, call.out);
    }

    fn kimi_delta(&self, net: &KimiDelta, call: StateCall<'_, '_>) {
        let shape = RuleShape {
            n_heads: net.n_heads,
            head_dim: net.head_dim,
        };
        let input = KimiDeltaInput {
            q: call.inputs[0],
            k: call.inputs[1],
            v: call.inputs[2],
            alpha: call.inputs[3],
            beta: call.inputs[4],
            rate: &self.vectors[net.rate.0],
            rate_is_log: net.form == DecayForm::Logarithm,
            dt: &self.vectors[net.dt.0],
        };
        let slots = call.states.slots(net.state, PAGE_TOKENS);
        kernels::kimi_delta(self.cpu, &shape, input, slots, call.runs, call.out);
    }

    fn rwkv7(&self, rwkv: &Rwkv7, call: StateCall<'_, '_>) {
        let shape = RuleShape {
            n_heads: rwkv.n_heads,
            head_dim: rwkv.head_dim,
        };
        let input = Rwkv7Input {
            r: call.inputs[0],
            fade: call.inputs[1],
            k: call.inputs[2],
            v: call.inputs[3],
            rate: call.inputs[4],
            removal: &self.vectors[rwkv.removal.0],
            weakening: &self.vectors[rwkv.weakening.0],
        };
        let slots = call.states.slots(rwkv.state, PAGE_TOKENS);
        kernels::rwkv7(self.cpu, &shape, input, slots, call.runs, call.out);
    }

    fn ssm_scan(&self, scan: &SsmScan, call: StateCall<'_, '_>) {
        let inputs = call.inputs;
        let shape = SsmShape {
            n_heads: scan.n_heads,
            n_groups: scan.n_groups,
            head_dim: scan.head_dim,
            d_state: scan.d_state,
        };
        let input = SsmInput {
            xbc: inputs[0],
            dt: inputs[1],
            rate: &self.vectors[scan.rate.0],
            rate_is_log: scan.form == DecayForm::Logarithm,
            dt_bias: &self.vectors[scan.dt.0],
            dt_limit: scan.dt_limit,
            skip: &self.vectors[scan.skip.0],
        };
        let slots = call.states.slots(scan.state, PAGE_TOKENS);
        kernels::ssm_scan(self.cpu, &shape, input, slots, call.runs, call.out);
    }

    fn channel_scan(&self, scan: &ChannelScan, call: StateCall<'_, '_>) {
        let inputs = call.inputs;
        let shape = ChannelScanShape {
            n_channels: scan.n_channels,
            d_state: scan.d_state,
        };
        let input = ChannelScanInput {
            x: inputs[0],
            dt: inputs[1],
            k: inputs[2],
            q: inputs[3],
            rate: &self.vectors[scan.rate.0],
            rate_is_log: scan.form == DecayForm::Logarithm,
            skip: &self.vectors[scan.skip.0],
        };
        let slots = call.states.slots(scan.state, PAGE_TOKENS);
        kernels::channel_scan(self.cpu, &shape, input, slots, call.runs, call.out);
    }
}
