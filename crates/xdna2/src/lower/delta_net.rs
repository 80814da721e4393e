//! A token's gated delta nets: on the array where that is faster than on the host, or where a mode asks for it.

use super::kernel::{Arg, Kernels, LoweredKernel};
use super::{Feature, Phase};
use crate::mapping::delta_net;
use millrace_graph::{DeltaNet, Node, Operation, SequenceMemory};
use millrace_xdna2_machine::program::Program;
use millrace_xdna2_machine::timing::{self, TimingError};
use millrace_xdna2_machine::{Machine, Profile};
use std::fmt;

/// Why it has a separate program: the rule's text.
const ALONE: &str = "a program of its own: its states come from the host's pages and go back to them, and its cores would take those of \
    the projections behind it";

/// Modelled times of a layer's gated delta net for a token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeltaTimes {
    /// A dispatch of the array, with the call, and with the states copied into buffer objects and back.
    pub array_ns: f64,
    /// Part of that: the launch at work.
    pub launch_ns: f64,
    /// Part of that: the copies, which a cache in buffer objects would not need.
    pub copies_ns: f64,
    /// The host alone: operands, and the states once read and once written.
    pub host_ns: f64,
}

impl DeltaTimes {
    /// Times of the op's program.
    ///
    /// # Errors
    /// The profile has no rate for its kernel.
    fn of(
        program: &Program,
        net: &DeltaNet,
        (machine, profile): (&Machine, &Profile),
    ) -> Result<DeltaTimes, TimingError> {
        let moved_ns =
            |bytes: usize| bytes as f64 / profile.host.write_gb_per_s.max(f64::MIN_POSITIVE);
        let states = 8 * net.n_v_heads * net.head_elems();
        let rows = 4 * net.n_v_heads * net.row_elems();
        let operands = 2 * (net.qkv_width() + 2 * net.n_v_heads);
        let result = 2 * net.n_v_heads * net.v_dim;
        let timing = timing::predict(program, machine, profile)?;
        // Rows are written twice: into the host's memory, and from there into the slot.
        let copies_ns = moved_ns(states + operands + 2 * rows + result);
        Ok(DeltaTimes {
            array_ns: timing.total_ns + profile.host.call_ns + copies_ns,
            launch_ns: timing.launches.iter().map(|launch| launch.ns).sum(),
            copies_ns,
            host_ns: moved_ns(states + operands + result),
        })
    }

    /// Whether the array is the faster one.
    pub fn array_wins(&self) -> bool {
        self.array_ns < self.host_ns
    }
}

impl fmt::Display for DeltaTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.0} µs on the array ({:.0} of them at work, {:.0} copies of states and operands), {:.0} µs on the host (modelled)",
            self.array_ns / 1e3,
            self.launch_ns / 1e3,
            self.copies_ns / 1e3,
            self.host_ns / 1e3
        )
    }
}

impl Kernels<'_> {
    /// The op's kernel, if the array takes it and is faster, or has to take it anyway.
    pub(super) fn delta_net(
        &mut self,
        number: usize,
        net: &DeltaNet,
    ) -> Result<LoweredKernel, String> {
        if self.phase == Phase::Prefill {
            return Err(
                "a prompt's gated delta nets are the host's: the array's kernel takes one token"
                    .to_owned(),
            );
        }
        let graph = self.graph;
        let node: &Node = &graph.nodes[number];
        let index = match net.memory() {
            SequenceMemory::State(state) => state.index,
            _ => return Err("a gated delta net without a state".to_owned()),
        };
        let args = vec![
            Arg::DeltaRows(number),
            Arg::StateBefore(index),
            Arg::StateBehind(index),
            Arg::Value(node.output),
        ];
        let [heads, k, v] = [net.n_v_heads, net.k_dim, net.v_dim].map(|n| n as u64);
        let shape = delta_net::shape(heads, k, v);
        let kernel = self.kernel(node, delta_net::NAME, shape, None, args)?;
        if self.options.features.has(Feature::DeltaNets) {
            self.reasons.insert(number, ALONE.to_owned());
            return Ok(kernel);
        }
        let profile = self.profile.as_ref().ok_or("no profile to compare by")?;
        let on = (self.machine, profile);
        let times = match self
            .delta_times
            .iter()
            .find(|(known, _)| *known == kernel.built.key)
        {
            Some((_, times)) => *times,
            None => {
                let times = DeltaTimes::of(&kernel.built.program, net, on);
                let times = times.map_err(|e| e.to_string())?;
                self.delta_times.push((kernel.built.key.clone(), times));
                times
            }
        };
        match times.array_wins() {
            true => {
                self.reasons.insert(number, format!("{ALONE}; {times}"));
                Ok(kernel)
            }
            false => Err(format!("the host is faster: {times}")),
        }
    }
}
