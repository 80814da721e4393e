//! Recurrent ops that have kernels.

use super::ops::Ops;
use crate::kv::{PAGE_TOKENS, PageTables, StateSlab};
use crate::sequences::SeqId;
use millrace_graph::{
    Activation, CausalConv, ChannelScan, DecayForm, DeltaNet, Op, SsmScan, ValueHeadOrder,
};
use millrace_kernels::{
    self as kernels, ChannelScanInput, ChannelScanShape, ConvInput, DeltaInput, DeltaShape,
    SsmInput, SsmShape, StateRun,
};
use std::ops::Range;

/// Most inputs of an op that [has a kernel](has_state_kernel): those of a scan of channels.
pub(super) const STATE_KERNEL_INPUTS: usize = 4;

/// Neighbouring tokens of a sequence, as a kernel takes them.
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

/// Whether a kernel computes the op over the tokens of many sequences.
pub(super) fn has_state_kernel(op: &Op) -> bool {
    match op {
        Op::CausalConv(conv) => matches!(conv.activation, None | Some(Activation::Silu)),
        Op::DeltaNet(_) | Op::SsmScan(_) | Op::ChannelScan(_) => true,
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
        match op {
            Op::CausalConv(conv) => self.causal_conv(conv, inputs[0], states, runs, out),
            Op::DeltaNet(net) => self.delta_net(net, inputs, states, runs, out),
            Op::SsmScan(scan) => self.ssm_scan(scan, inputs, states, runs, out),
            Op::ChannelScan(scan) => self.channel_scan(scan, inputs, states, runs, out),
            _ => unreachable!("has_state_kernel() was asked first"),
        }
    }

    fn causal_conv(
        &self,
        conv: &CausalConv,
        x: &[f32],
        states: &mut StateSlab,
        runs: &[StateRun<'_>],
        out: &mut [f32],
    ) {
        let input = ConvInput {
            x,
            weight: &self.vectors[conv.weight.0],
            bias: conv.bias.map(|bias| &self.vectors[bias.0][..]),
            n_channels: conv.n_channels,
            silu: conv.activation.is_some(),
        };
        let slots = states.slots(conv.state, PAGE_TOKENS);
        kernels::causal_conv(self.cpu, input, slots, runs, out);
    }

    fn delta_net(
        &self,
        net: &DeltaNet,
        inputs: &[&[f32]],
        states: &mut StateSlab,
        runs: &[StateRun<'_>],
        out: &mut [f32],
    ) {
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
        };
        let slots = states.slots(net.state, PAGE_TOKENS);
        kernels::delta_net(self.cpu, &shape, input, slots, runs, out);
    }

    fn ssm_scan(
        &self,
        scan: &SsmScan,
        inputs: &[&[f32]],
        states: &mut StateSlab,
        runs: &[StateRun<'_>],
        out: &mut [f32],
    ) {
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
        let slots = states.slots(scan.state, PAGE_TOKENS);
        kernels::ssm_scan(self.cpu, &shape, input, slots, runs, out);
    }

    fn channel_scan(
        &self,
        scan: &ChannelScan,
        inputs: &[&[f32]],
        states: &mut StateSlab,
        runs: &[StateRun<'_>],
        out: &mut [f32],
    ) {
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
        let slots = states.slots(scan.state, PAGE_TOKENS);
        kernels::channel_scan(self.cpu, &shape, input, slots, runs, out);
    }
}
