//! A group as one program: names, slots by liveness, stitching.

use super::group::NodeGroup;
use super::kernel::{Arg, Kernels, LoweredKernel};
use super::{Binding, LowerError, Phase, PlannedLaunch, name};
use crate::mapping::Shape;
use crate::mapping::fused::{GEMM_PARTS, GEMV_PARTS};
use millrace_graph::{Op, ValueId};
use millrace_npu::Role;
use millrace_xdna2_machine::program::{Program, StitchPart, stitch};

/// A slot of the program to be.
#[derive(Clone, Debug)]
struct Wire {
    arg: Arg,
    name: String,
    role: Role,
}

/// A group's slots, in their order, and its program's identity.
pub(super) struct GroupSlots<'g> {
    kernels: Vec<&'g LoweredKernel>,
    wires: Vec<Wire>,
    /// Names of each kernel's slots in its mapping's order.
    arg_maps: Vec<Vec<String>>,
    /// The program's name, before names are made unique.
    pub(super) base: String,
    /// Equal for groups that are one program.
    pub(super) signature: String,
}

impl<'g> GroupSlots<'g> {
    pub(super) fn new(group: &'g NodeGroup, kernels: &Kernels<'_>) -> GroupSlots<'g> {
        let mut wired = GroupSlots {
            kernels: group.members.iter().flat_map(|(_, k)| k).collect(),
            wires: Vec::new(),
            arg_maps: Vec::new(),
            base: name::program(group, kernels),
            signature: String::new(),
        };
        wired.list(group, kernels);
        let position = |arg: &Arg| wired.wires.iter().find(|w| w.arg == *arg);
        for kernel in &wired.kernels {
            let names = kernel.args.iter().filter_map(position);
            let names: Vec<String> = names.map(|w| w.name.clone()).collect();
            wired.signature += &format!("{} {} {names:?};", kernel.name, kernel.built.key);
            wired.arg_maps.push(names);
        }
        for wire in &wired.wires {
            wired.signature += &format!("{} {};", wire.name, wire.role.name());
        }
        wired
    }

    /// Slots in the order of their first use. A launch has first its activations, then its parameters, then its result.
    /// RoPE tables are listed together at the first that is used (in MLIR-AIR's Llama-3.2-1B example slots 9 and 10 of
    /// the first program).
    fn list(&mut self, group: &NodeGroup, kernels: &Kernels<'_>) {
        for (member, kernel) in group
            .members
            .iter()
            .flat_map(|(m, ks)| ks.iter().map(move |k| (*m, k)))
        {
            // The kernel's results are those of its node, or of a later node that it computes too.
            let later = &kernels.graph.nodes[member..];
            let is_output = |arg: &Arg| match arg {
                Arg::Value(value) => later.iter().any(|node| node.output == *value),
                Arg::Part { .. } => true,
                Arg::Weight(..)
                | Arg::Expanded(..)
                | Arg::Shares(..)
                | Arg::Table(..)
                | Arg::Cache(..)
                | Arg::Position
                | Arg::CacheRange(..)
                | Arg::RangePosition(..)
                | Arg::DeltaRows(..)
                | Arg::StateBefore(..)
                | Arg::StateBehind(..) => false,
            };
            let is_value = |arg: &Arg| matches!(arg, Arg::Value(_) | Arg::Part { .. });
            let inputs = kernel.args.iter().filter(|a| is_value(a) && !is_output(a));
            let parameters = kernel.args.iter().filter(|a| !is_value(a));
            let results = kernel.args.iter().filter(|a| is_output(a));
            for arg in inputs.chain(parameters).chain(results) {
                if let Arg::Table(..) = arg {
                    self.list_tables(group, kernels);
                } else {
                    self.add(arg, name::slot(arg, kernel, group, kernels), group, kernels);
                }
            }
        }
    }

    fn list_tables(&mut self, group: &NodeGroup, kernels: &Kernels<'_>) {
        for kernel in group.members.iter().flat_map(|(_, k)| k) {
            for arg in &kernel.args {
                if let Arg::Table(..) = arg {
                    self.add(arg, name::slot(arg, kernel, group, kernels), group, kernels);
                }
            }
        }
    }

    fn add(&mut self, arg: &Arg, name: String, group: &NodeGroup, kernels: &Kernels<'_>) {
        if self.wires.iter().any(|w| w.arg == *arg) {
            return;
        }
        let taken = |name: &str| self.wires.iter().any(|w| w.name == name);
        let unique = std::iter::successors(Some(2_usize), |n| Some(n + 1))
            .map(|n| format!("{name}_{n}"))
            .find(|name| !taken(name));
        let name = if taken(&name) {
            unique.unwrap_or(name)
        } else {
            name
        };
        let role = match arg {
            Arg::Weight(..) | Arg::Cache(..) => Role::Static,
            Arg::Position | Arg::CacheRange(..) | Arg::RangePosition(..) => Role::Input,
            Arg::DeltaRows(..) | Arg::StateBefore(..) => Role::Input,
            Arg::StateBehind(..) => Role::Output,
            Arg::Table(..) if kernels.phase == Phase::Prefill => Role::Static,
            Arg::Table(..) => Role::Input,
            Arg::Part { .. } => Role::Output,
            Arg::Expanded(..) | Arg::Shares(..) => Role::Intermediate,
            Arg::Value(v) if group.producer(kernels, *v).is_none() => Role::Input,
            Arg::Value(v) if group.gives_out(kernels, *v) => Role::Output,
            Arg::Value(_) => Role::Intermediate,
        };
        self.wires.push(Wire {
            arg: arg.clone(),
            name,
            role,
        });
    }

    /// Contents of the program's slots in this group's call.
    pub(super) fn bindings(&self) -> Vec<Binding> {
        let binding = |wire: &Wire| match wire.arg.clone() {
            Arg::Value(_) if wire.role == Role::Intermediate => Binding::Scratch,
            Arg::Expanded(..) | Arg::Shares(..) => Binding::Scratch,
            Arg::Value(value) => Binding::Value(value),
            Arg::Part { value, start, len } => Binding::Part { value, start, len },
            Arg::Weight(weight, layout) => Binding::Weight { weight, layout },
            Arg::Table(rope, rows) => Binding::RopeTable { rope, rows },
            Arg::Cache(layer, of) => Binding::Cache { layer, of },
            Arg::Position => Binding::Position,
            Arg::CacheRange(layer, of, range) => Binding::CacheRange { layer, of, range },
            Arg::RangePosition(range) => Binding::RangePosition { range },
            Arg::DeltaRows(node) => Binding::DeltaRows { node },
            Arg::StateBefore(index) => Binding::StateBefore { index },
            Arg::StateBehind(index) => Binding::StateBehind { index },
        };
        self.wires.iter().map(binding).collect()
    }

    /// The stitched program.
    pub(super) fn stitch(
        &self,
        name: &str,
        kernels: &Kernels<'_>,
    ) -> Result<(Program, Vec<PlannedLaunch>), LowerError> {
        let parts: Vec<Program> = self
            .kernels
            .iter()
            .map(|k| self.reshaped(k, kernels))
            .collect();
        let maps: Vec<Vec<&str>> = self
            .arg_maps
            .iter()
            .map(|names| names.iter().map(String::as_str).collect())
            .collect();
        let prefixes = self.prefixes();
        let parts: Vec<StitchPart<'_>> = (parts.iter().zip(&maps).zip(&prefixes))
            .map(|((program, arg_map), prefix)| StitchPart {
                program,
                prefix,
                arg_map,
            })
            .collect();
        let stitched = stitch(name, &parts, &[]).map_err(|error| LowerError::Program {
            program: name.to_owned(),
            problem: error.to_string(),
        })?;
        Ok((self.in_order(stitched), self.logical()))
    }

    /// Names of the launches: those of their kernels, numbered where several of one
    /// name are together.
    fn prefixes(&self) -> Vec<String> {
        let same = |name: &str| self.kernels.iter().filter(|k| k.name == name).count();
        let mut seen: Vec<&str> = Vec::with_capacity(self.kernels.len());
        let mut prefixes = Vec::with_capacity(self.kernels.len());
        for kernel in &self.kernels {
            let before = seen.iter().filter(|name| **name == kernel.name).count();
            prefixes.push(match same(&kernel.name) {
                1 => kernel.name.clone(),
                _ => format!("{}_{}", kernel.name, before + 1),
            });
            seen.push(&kernel.name);
        }
        prefixes
    }

    /// A kernel's program with values in the shape of the graph, so that launches agree on it: a
    /// head is a piece of a token's row. A kernel alone keeps its own shapes.
    fn reshaped(&self, kernel: &LoweredKernel, kernels: &Kernels<'_>) -> Program {
        let mut program = kernel.built.program.clone();
        if self.kernels.len() > 1 {
            for (slot, arg) in program.slots.iter_mut().zip(&kernel.args) {
                if let (Arg::Value(value), true) = (arg, slot.shape.len() > 1) {
                    slot.shape = shape(*value, kernels);
                }
            }
        }
        program
    }

    /// Slots as [`list`](GroupSlots::list) orders them, with their roles.
    fn in_order(&self, mut program: Program) -> Program {
        let position = |name: &str| self.wires.iter().position(|w| w.name == name);
        let places: Vec<Option<usize>> = program.slots.iter().map(|s| position(&s.name)).collect();
        for launch in &mut program.launches {
            for arg in &mut launch.args {
                *arg = places.get(*arg).copied().flatten().unwrap_or(*arg);
            }
        }
        let mut slots: Vec<_> = places.into_iter().zip(program.slots).collect();
        slots.sort_by_key(|(place, _)| *place);
        program.slots = slots.into_iter().map(|(_, slot)| slot).collect();
        for (slot, wire) in program.slots.iter_mut().zip(&self.wires) {
            slot.role = wire.role;
        }
        program
    }

    fn logical(&self) -> Vec<PlannedLaunch> {
        let mut first = 0;
        let mut launches = Vec::with_capacity(self.kernels.len());
        for (kernel, names) in self.kernels.iter().zip(&self.arg_maps) {
            let position = |name: &String| self.wires.iter().position(|w| w.name == *name);
            let built = &kernel.built;
            let last = first + built.program.launches.len();
            launches.push(PlannedLaunch {
                name: kernel.name.clone(),
                kernel: built.mapping.to_owned(),
                shape: built.shape.clone(),
                tiling: built.tiling.clone(),
                slots: names.iter().filter_map(position).collect(),
                n_results: n_results(&built.shape),
                physical: first..last,
            });
            first = last;
        }
        launches
    }
}

/// Slots that a mapping of the shape writes: one a product.
fn n_results(shape: &Shape) -> usize {
    let part = |name: &str| GEMM_PARTS.contains(&name) || GEMV_PARTS.contains(&name);
    let n_parts = shape.iter().filter(|(name, _)| part(name)).count();
    n_parts.max(1)
}

fn shape(value: ValueId, kernels: &Kernels<'_>) -> Vec<u64> {
    let width = kernels.width(value) as u64;
    match kernels.phase {
        Phase::Prefill => vec![kernels.n_tokens(), width],
        Phase::Decode => vec![width],
    }
}

/// Whether a node's op is a norm.
pub(super) fn is_norm(op: &Op) -> bool {
    matches!(op, Op::RmsNorm(_))
}
