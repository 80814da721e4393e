//! Reads and writes of commands, in their order: nothing unwritten is read, and nothing is overwritten too early.

use super::region::start;
use super::{Findings, Rule, dma_region};
use crate::axes::Shape;
use crate::flow::walk;
use crate::program::{Command, Place, Program, Side, SliceKernel, Stage, VectorOperand, View};
use millrace_npu::Role;

/// A part of a tensor: start and extent of each of its axes.
type TensorPart = Vec<(usize, u64, u64)>;

/// State of a tensor.
#[derive(Clone, Default)]
struct TensorState {
    parts: Vec<TensorPart>,
    lost_to: Option<usize>,
}

/// A read or write of a command.
pub(crate) struct Access {
    /// The tensor.
    pub tensor: usize,
    /// Whether it is written.
    pub is_write: bool,
    /// The part, by the tensor's own axes; `None` for parts that an index chooses.
    pub part: Option<Vec<(usize, u64, u64)>>,
}

pub(super) fn check(program: &Program, found: &mut Findings) {
    let mut known = vec![TensorState::default(); program.tensors.len()];
    for command in &program.commands {
        let place = match command {
            Command::Dma(dma) => format!("move `{}`", dma.name),
            Command::Kernel(kernel) => format!("kernel `{}`", kernel.name),
        };
        let accesses = accesses(program, command);
        for access in accesses.iter().filter(|access| !access.is_write) {
            read(program, &known, access, &place, found);
        }
        for access in accesses.iter().filter(|access| access.is_write) {
            write(program, &mut known, access, &place, found);
        }
    }
    for (tensor, known) in program.tensors.iter().zip(&known) {
        let Place::Hbm {
            role: Role::Output, ..
        } = tensor.place
        else {
            continue;
        };
        let shape = tensor.shape(&program.axes).unwrap_or_default();
        let (all, written) = (
            volume_of(&shape),
            known.parts.iter().map(volume).sum::<u64>(),
        );
        if written < all {
            let place = format!("tensor `{}`", tensor.name);
            let message = format!("{written} of its {all} elements are written");
            found.add(Rule::OutputUnwritten, &place, message);
        }
    }
}

fn volume(part: &TensorPart) -> u64 {
    part.iter().map(|(_, _, extent)| extent).product()
}

fn volume_of(shape: &Shape) -> u64 {
    shape.iter().map(|(_, extent)| extent).product()
}

fn read(
    program: &Program,
    known: &[TensorState],
    access: &Access,
    place: &str,
    found: &mut Findings,
) {
    let (tensor, known) = (&program.tensors[access.tensor], &known[access.tensor]);
    let name = &tensor.name;
    if let Place::Hbm { role, .. } = tensor.place {
        // Among intermediates, the caches stay from program to program.
        let unwritten = role == Role::Output && known.parts.is_empty();
        if unwritten {
            found.add(
                Rule::ReadUnwritten,
                place,
                format!("reads `{name}`, an output not written yet"),
            );
        }
        return;
    }
    if let Some(other) = known.lost_to {
        let other = &program.tensors[other].name;
        let message = format!("reads `{name}`, which `{other}` has overwritten");
        found.add(Rule::Overwritten, place, message);
        return;
    }
    let shape = tensor.shape(&program.axes).unwrap_or_default();
    let is_whole = known.parts.iter().map(volume).sum::<u64>() >= volume_of(&shape);
    let inside = |part: &TensorPart| {
        let holds = |(axis, start, extent): &(usize, u64, u64)| {
            let own = part.iter().find(|(a, _, _)| a == axis);
            own.is_some_and(|&(_, s, e)| s <= *start && start + extent <= s + e)
        };
        access
            .part
            .as_ref()
            .is_some_and(|asked| asked.iter().all(holds))
    };
    if !is_whole && !known.parts.iter().any(inside) {
        let message = match known.parts.is_empty() {
            true => format!("reads `{name}` before anything writes it"),
            false => format!("reads more of `{name}` than was written"),
        };
        found.add(Rule::ReadUnwritten, place, message);
    }
}

fn write(
    program: &Program,
    known: &mut [TensorState],
    access: &Access,
    place: &str,
    found: &mut Findings,
) {
    let tensor = &program.tensors[access.tensor];
    if let Place::Hbm {
        role: Role::Static | Role::Input,
        ..
    } = tensor.place
    {
        let message = format!("writes `{}`, which is the host's to write", tensor.name);
        found.add(Rule::StaticWritten, place, message);
    }
    for other in overlapping(program, access.tensor) {
        known[other] = TensorState {
            parts: Vec::new(),
            lost_to: Some(access.tensor),
        };
    }
    let own = &mut known[access.tensor];
    own.lost_to = None;
    let Some(part) = &access.part else { return };
    if own.parts.contains(part) {
        return;
    }
    let shape = tensor.shape(&program.axes).unwrap_or_default();
    if volume(part) == volume_of(&shape) {
        own.parts = vec![part.clone()];
        return;
    }
    let meets = |other: &&TensorPart| {
        part.iter().all(|(axis, start, extent)| {
            let other = other.iter().find(|(a, _, _)| a == axis);
            other.is_none_or(|&(_, s, e)| s < start + extent && *start < s + e)
        })
    };
    if own.parts.iter().any(|other| meets(&other)) {
        let message = format!(
            "writes a part of `{}` that overlaps another in part",
            tensor.name
        );
        found.add(Rule::WrittenTwice, place, message);
    }
    own.parts.push(part.clone());
}

/// Tensors of the same memory that share addresses with one.
fn overlapping(program: &Program, tensor: usize) -> Vec<usize> {
    let Some((kind, first, end)) = range(program, tensor) else {
        return Vec::new();
    };
    let meets = |&other: &usize| {
        other != tensor
            && range(program, other).is_some_and(|(k, f, e)| k == kind && f < end && first < e)
    };
    (0..program.tensors.len()).filter(meets).collect()
}

/// Memory and bytes of a tensor on the chip: 0 data memory, 1 tensor, 2 vector registers.
pub(crate) fn range(program: &Program, tensor: usize) -> Option<(u8, u64, u64)> {
    let tensor = &program.tensors[tensor];
    let (kind, address) = match tensor.place {
        Place::Hbm { .. } => return None,
        Place::Dm { address, .. } => (0, address),
        Place::Trf { address, .. } => (1, address),
        Place::Vrf { address, .. } => (2, address),
    };
    let bytes = tensor.unit_bytes(&program.axes).unwrap_or(0);
    Some((kind, address, address.saturating_add(bytes)))
}

/// The part of a tensor for a view with that region.
fn part_of(program: &Program, view: &View, region: &Shape) -> Option<TensorPart> {
    let shape = program.tensors[view.tensor].shape(&program.axes).ok()?;
    let part = shape.into_iter().map(|(axis, _)| {
        let name = program.axes.get(axis).0;
        let to = view.renames.iter().find(|(from, _)| from == name);
        let known = to.map_or(Some(axis), |(_, to)| program.axes.id(to).ok());
        let known = known.unwrap_or(axis);
        let extent = region.iter().find(|(a, _)| *a == known).map_or(1, |r| r.1);
        (axis, start(program, view, known), extent)
    });
    Some(part.collect())
}

/// Reads and writes of a command.
pub(crate) fn accesses(program: &Program, command: &Command) -> Vec<Access> {
    match command {
        Command::Dma(dma) => {
            let Ok(region) = dma_region(program, dma) else {
                return Vec::new();
            };
            let access = |view: &View, is_write: bool, side: Side| {
                let by_index = dma.indexed.as_ref().is_some_and(|i| i.side == side);
                Access {
                    tensor: view.tensor,
                    is_write,
                    part: match by_index {
                        true => None,
                        false => part_of(program, view, &region.shape),
                    },
                }
            };
            let mut all = vec![access(&dma.from, false, Side::From)];
            all.push(access(&dma.to, true, Side::To));
            if let Some(indexed) = &dma.indexed {
                all.push(Access {
                    tensor: indexed.index,
                    is_write: false,
                    part: None,
                });
            }
            all
        }
        Command::Kernel(kernel) => kernel_accesses(program, kernel),
    }
}

fn kernel_accesses(program: &Program, kernel: &SliceKernel) -> Vec<Access> {
    let Ok(flow) = walk(program, kernel) else {
        return Vec::new();
    };
    let mut all = Vec::new();
    for (stage, stream) in kernel.stages.iter().zip(&flow.streams) {
        let shape = stream.shape(&program.axes).unwrap_or_default();
        let mut add = |view: &View, is_write| {
            all.push(Access {
                tensor: view.tensor,
                is_write,
                part: part_of(program, view, &shape),
            });
        };
        let whole = |tensor: usize| {
            let shape = program.tensors[tensor].shape(&program.axes);
            (View::of(tensor), shape.unwrap_or_default())
        };
        match stage {
            Stage::Fetch { view, with, .. } => {
                add(view, false);
                if let Some(with) = with {
                    add(with, false);
                }
            }
            Stage::Commit { to } => add(to, true),
            Stage::ToRegisters { tensor } => add(&View::of(*tensor), true),
            Stage::Outer { trf: tensor, .. }
            | Stage::Vector {
                operand: VectorOperand::Vrf(tensor),
                ..
            } => {
                let (view, shape) = whole(*tensor);
                all.push(Access {
                    tensor: *tensor,
                    is_write: false,
                    part: part_of(program, &view, &shape),
                });
            }
            _ => {}
        }
    }
    all
}
