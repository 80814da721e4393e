//! Kernels: a chain of stages from `begin` to `commit` or a register file.

use super::module::{ExportResult, Module};
use super::spelling::{INTERLEAVED, padded_to, scalar, size};
use super::vector::{VectorStream, Way};
use super::views::Extents;
use crate::Element;
use crate::axes::{Axes, DigitLayout, Mapping, cover};
use crate::program::{
    Context, LaneMode, Place, SliceKernel, Stage, TensorSharding, Topology, VectorOperand, View,
};

/// Bits of a flit.
const FLIT_BITS: u64 = 256;

/// A kernel while it is printed.
struct Chain {
    calls: Vec<String>,
    stream: VectorStream,
    element: Element,
    /// The packet that is committed, without the padding to a flit.
    packet: Mapping,
}

impl Module<'_> {
    pub(super) fn kernel(&mut self, kernel: &SliceKernel) -> ExportResult<()> {
        let second = kernel.stages.iter().position(|stage| {
            matches!(
                stage,
                Stage::Vector {
                    operand: VectorOperand::Second,
                    ..
                }
            )
        });
        let stash = kernel
            .stages
            .iter()
            .position(|stage| matches!(stage, Stage::Stash));
        match (second, stash) {
            (Some(second), Some(stash)) if stash < second => self.in_two(kernel, second),
            _ => self.one(kernel, None),
        }
    }

    /// A kernel that stashes before it takes the second of two interleaved tensors. The vendor's groups do not stash,
    /// so the first tensor has a separate pass, rounded to the element of the second.
    fn in_two(&mut self, kernel: &SliceKernel, second: usize) -> ExportResult<()> {
        let Stage::Fetch {
            view,
            with: Some(with),
            cast,
            time,
            packet,
        } = &kernel.stages[0]
        else {
            return Err(format!("`{}` has no second tensor", kernel.name));
        };
        let fetch = |with: Option<View>| Stage::Fetch {
            view: view.clone(),
            with,
            cast: *cast,
            time: time.clone(),
            packet: packet.clone(),
        };
        let element = self.program.tensors[with.tensor].element;
        let to = match kernel.stages.last() {
            Some(Stage::Commit { to }) => to.clone(),
            _ => return Err(format!("`{}` commits nothing", kernel.name)),
        };
        let mut first = kernel.clone();
        first.stages.truncate(second);
        first.stages[0] = fetch(None);
        if element != Element::F32 {
            first.stages.push(Stage::Cast { to: element });
        }
        first.stages.push(Stage::Commit { to });
        let mut last = kernel.clone();
        last.stages = vec![fetch(Some(with.clone())), kernel.stages[1].clone()];
        last.stages.extend_from_slice(&kernel.stages[second..]);
        let part = format!("{}_first", kernel.name);
        self.out.push_str(
            "    // Two passes: the vendor's groups of an interleaved stream do not stash.\n",
        );
        self.one(&first, Some((&part, true)))?;
        self.one(&last, Some((&part, false)))
    }

    /// One pass. With a name, `is_result` says whether the name is that of its result or of the tensor that it fetches.
    fn one(&mut self, kernel: &SliceKernel, part: Option<(&str, bool)>) -> ExportResult<()> {
        let mut chain = self.begin(kernel, part)?;
        for stage in &kernel.stages[1..] {
            self.stage(stage, &mut chain)?;
        }
        let Some(last) = kernel.stages.last() else {
            return Ok(());
        };
        let calls = chain.calls.join("\n        .");
        let text = match (last, part) {
            (Stage::Commit { to }, Some((name, true))) => {
                let layout = self.program.tensors[to.tensor].layout();
                format!(
                    "    let {name} = device\n        .{calls}\n        .commit::<{layout}>();\n"
                )
            }
            (Stage::Commit { to }, _) => self.commit(to, &chain, &calls)?,
            (Stage::ToRegisters { tensor }, _) => {
                format!(
                    "    let {} = device\n        .{calls};\n",
                    self.name(*tensor)
                )
            }
            _ => return Err(format!("`{}` does not end", kernel.name)),
        };
        self.out.push_str(&text);
        Ok(())
    }

    fn commit(&mut self, to: &View, chain: &Chain, calls: &str) -> ExportResult<String> {
        let tensor = &self.program.tensors[to.tensor];
        let Place::Dm { spread, layout, .. } = &tensor.place else {
            return Err(format!("`{}` is not in data memory", tensor.name));
        };
        let (name, ty) = (self.name(to.tensor), self.dm_type(to.tensor));
        if !self.in_parts(to) {
            let is_same = *spread == chain.stream.spread;
            let expression = format!("device\n        .{calls}\n        .commit::<{layout}>()");
            return Ok(match is_same {
                true => format!("    let {name}: {ty} = {expression};\n"),
                false => {
                    let mappings = self.dm_mappings(to.tensor);
                    // SAFETY: in the printed code, copies are renamed and their positions stay.
                    format!(
                        "    let {name} = {expression};\n    // Copies under their names.\n    let {name}: {ty} = \
                         unsafe {{ {name}.reshape::<Chip, {mappings}>() }};\n"
                    )
                }
            });
        }
        self.declare(to.tensor);
        let extents = self.stream_extents(chain)?;
        let named = TensorSharding {
            cluster: chain.stream.spread.cluster.clone(),
            slice: spread.slice.clone(),
        };
        let view = self.view(to, &extents, Some(&named), true)?;
        Ok(format!(
            "    device\n        .{calls}\n        .commit_view({});\n",
            view.text
        ))
    }

    /// Extents of the values in a stream.
    fn stream_extents(&self, chain: &Chain) -> ExportResult<Extents> {
        let VectorStream { spread, time, .. } = &chain.stream;
        let axes = &self.program.axes;
        let all = [&spread.cluster, &spread.slice, time, &chain.packet];
        let layouts = all.map(|mapping| DigitLayout::of(mapping, axes));
        let layouts: Result<Vec<DigitLayout>, _> = layouts.into_iter().collect();
        let layouts = layouts.map_err(|error| error.to_string())?;
        let shape = cover(&layouts.iter().collect::<Vec<_>>(), axes);
        let shape = shape.map_err(|error| error.to_string())?;
        let name = |(axis, n): (usize, u64)| (axes.get(axis).0.to_owned(), n);
        Ok(shape.into_iter().map(name).collect())
    }

    /// `begin` and `fetch`.
    fn begin(&self, kernel: &SliceKernel, part: Option<(&str, bool)>) -> ExportResult<Chain> {
        let Stage::Fetch {
            view,
            with,
            cast,
            time,
            packet,
        } = &kernel.stages[0]
        else {
            return Err(format!("`{}` does not begin with a fetch", kernel.name));
        };
        let named = self.names(kernel)?;
        let own = self.program.tensors[view.tensor].spread().cloned();
        let own = own.ok_or("a fetch from the chip's memory")?;
        let fetched = fetch_sharding(kernel, &own, &named);
        let mut chain = Chain {
            calls: Vec::new(),
            stream: VectorStream {
                spread: own,
                time: time.clone(),
                packet: packet.clone(),
                way: Way::Eight,
                entered: false,
                tagged: false,
                is_pair: with.is_some(),
            },
            element: cast.unwrap_or(self.program.tensors[view.tensor].element),
            packet: packet.clone(),
        };
        let extents = self.stream_extents(&chain)?;
        let first = match part {
            Some((name, false)) => format!("{name}.view()"),
            _ => self.view(view, &extents, Some(&fetched), false)?.text,
        };
        let context = context_name(kernel);
        chain.calls.push(match with {
            None => format!("{context}\n        .begin({first})"),
            Some(with) => {
                let second = self.view(with, &extents, Some(&fetched), false)?.text;
                format!(
                    "{context}\n        .begin_interleaved::<{INTERLEAVED}, _, _, _, _, _>({first}, {second})"
                )
            }
        });
        chain
            .calls
            .push(format!("fetch::<{}, {packet}>()", chain.interleaved(time)));
        if let Some(to) = cast {
            let from = self.program.tensors[view.tensor].element;
            chain.calls.push(fetch_cast(from, *to)?);
        }
        chain.stream.spread = named;
        Ok(chain)
    }

    /// Clusters and slices behind the switch, under the names of the register file that the stream meets.
    fn names(&self, kernel: &SliceKernel) -> ExportResult<TensorSharding> {
        let met = kernel.stages.iter().find_map(|stage| match stage {
            Stage::Outer { trf: tensor, .. } | Stage::ToRegisters { tensor } => {
                self.held.get(tensor)
            }
            _ => None,
        });
        met.cloned().map_or_else(|| self.streamed(kernel), Ok)
    }

    fn stage(&self, stage: &Stage, chain: &mut Chain) -> ExportResult<()> {
        let axes = &self.program.axes;
        match stage {
            Stage::Switch { topology, time, .. } => {
                let slice = &chain.stream.spread.slice;
                let config = switch_config(topology, slice, axes)?;
                chain
                    .calls
                    .push(format!("switch::<{slice}, {time}>({config})"));
                chain.stream.time = time.clone();
            }
            Stage::Collect { time, packet } => {
                let flit = chain.flit(packet, axes)?;
                let order = chain.interleaved(time);
                chain.calls.push(format!("collect::<{order}, {flit}>()"));
                chain.stream.time = time.clone();
                (chain.stream.packet, chain.packet) = (flit, packet.clone());
            }
            Stage::Outer { trf, time, packet } => {
                let held = self.name(*trf);
                chain.calls.push(format!(
                    "contract_outer::<{time}, {packet}, _, _, _>(&{held})"
                ));
            }
            Stage::Packet { packet } => chain.calls.push(format!("contract_packet::<{packet}>()")),
            Stage::Time { time } => chain.calls.push(format!("contract_time::<{time}>()")),
            Stage::Lane { mode, time, packet } => {
                chain.lane(*mode, (time, packet), axes)?;
            }
            Stage::Cast { to } => {
                chain.leave();
                chain.element = *to;
                let flit = chain.flit(&chain.packet.clone(), axes)?;
                chain
                    .calls
                    .push(format!("cast::<{}, {flit}>()", scalar(*to)));
            }
            Stage::Commit { .. } => {
                chain.leave();
                chain
                    .calls
                    .push(format!("commit_trim::<{}>()", chain.packet));
            }
            Stage::ToRegisters { tensor } => self.registers(*tensor, chain)?,
            Stage::Fetch { .. } | Stage::Transpose { .. } => {
                return Err("a transposition is not printed".to_owned());
            }
            _ => {
                self.vector_stage(stage, &mut chain.stream, &mut chain.calls)?;
                chain.packet = chain.stream.packet.clone();
            }
        }
        Ok(())
    }

    fn registers(&self, tensor: usize, chain: &mut Chain) -> ExportResult<()> {
        let call = match &self.program.tensors[tensor].place {
            Place::Trf { lane, layout, .. } => format!("to_trf::<{lane}, {layout}>()"),
            Place::Vrf { layout, .. } => format!("to_vrf::<{layout}>()"),
            _ => return Err("registers that are none".to_owned()),
        };
        chain.calls.push(call);
        Ok(())
    }
}

impl Chain {
    /// A packet padded to a flit of the stream's element.
    fn flit(&self, packet: &Mapping, axes: &Axes) -> ExportResult<Mapping> {
        Ok(padded_to(
            packet,
            size(packet, axes)?,
            FLIT_BITS / self.element.bits(),
        ))
    }

    /// Sums of all lanes, in the order of the mode.
    fn lane(
        &mut self,
        mode: LaneMode,
        (time, packet): (&Mapping, &Mapping),
        axes: &Axes,
    ) -> ExportResult<()> {
        let mode = match mode {
            LaneMode::Interleaved => "Interleaved",
            LaneMode::Sequential => "Sequential",
        };
        self.element = Element::F32;
        let flit = self.flit(packet, axes)?;
        let call = format!("contract_lane::<{time}, {flit}>(LaneMode::{mode})");
        self.calls.push(call);
        self.stream.time = time.clone();
        (self.stream.packet, self.packet) = (flit, packet.clone());
        Ok(())
    }

    /// A time with the axis of an interleaved fetch behind it.
    fn interleaved(&self, time: &Mapping) -> Mapping {
        match self.stream.is_pair {
            true => time.clone().then(Mapping::axis(INTERLEAVED)),
            false => time.clone(),
        }
    }

    /// Out of the vector engine, where the stream is in it.
    fn leave(&mut self) {
        if self.stream.entered {
            self.stream.widen(&mut self.calls);
            self.calls.push("vector_final()".to_owned());
            self.stream.entered = false;
        }
    }
}

/// Clusters and slices that a kernel fetches from: names of slices begin behind the switch.
fn fetch_sharding(
    kernel: &SliceKernel,
    own: &TensorSharding,
    named: &TensorSharding,
) -> TensorSharding {
    let mut stages = kernel.stages.iter();
    let is_switched = stages.any(|stage| matches!(stage, Stage::Switch { .. }));
    TensorSharding {
        cluster: named.cluster.clone(),
        slice: if is_switched { own } else { named }.slice.clone(),
    }
}

/// Register files of contractions are filled by the sub context alone in the vendor's interface.
fn context_name(kernel: &SliceKernel) -> &'static str {
    let fills = matches!(kernel.stages.last(), Some(Stage::ToRegisters { .. }));
    match (kernel.context, fills) {
        (Context::Main, false) => "main",
        _ => "sub",
    }
}

/// The argument of a switch whose result has these slices.
fn switch_config(topology: &Topology, slice: &Mapping, axes: &Axes) -> ExportResult<String> {
    match topology {
        Topology::Forwarding => Ok("SwitchConfig::Forwarding".to_owned()),
        Topology::CustomBroadcast => {
            let ring = size(slice, axes)?;
            Ok(format!(
                "SwitchConfig::CustomBroadcast {{ ring_size: {ring} }}"
            ))
        }
        other => Err(format!("the switch's `{}`", other.word())),
    }
}

/// The fetch adapter's name for a change of elements.
fn fetch_cast(from: Element, to: Element) -> ExportResult<String> {
    match (from, to) {
        (Element::Bf16 | Element::E4m3, Element::F32)
        | (Element::I4 | Element::I8, Element::I32) => {
            Ok(format!("fetch_cast::<{}>()", scalar(to)))
        }
        (Element::E4m3, Element::Bf16) => Ok("fetch_table_lookup::<bf16>()".to_owned()),
        _ => Err(format!("a fetch does not turn {from} into {to} there")),
    }
}
