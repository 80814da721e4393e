//! Tensors with addresses, commands with names.

mod mappings;

pub(super) use mappings::{
    ax, copies, digit, fetch, filled, filler, inner, list, outer, padded, spread, vector,
};

use super::{LowerError, Note, Target};
use crate::Element;
use crate::axes::{Axes, AxesError, Mapping};
use crate::program::{
    Command, Context, Dma, Engine, IndexedAxis, Place, Program, Side, SliceKernel, Stage, Tensor,
    TensorSharding, View,
};
use millrace_npu::Role;
use std::collections::VecDeque;

/// Engines of tensor DMA that load weights: the first six; the other two move activations.
const WEIGHT_ENGINES: (u64, u64) = (0, 6);
const OTHER_ENGINES: (u64, u64) = (6, 2);

/// Groups of moves that wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    Weights,
    Others,
}

pub(super) struct Builder<'t> {
    pub target: Target<'t>,
    pub program: Program,
    pub notes: Vec<Note>,
    /// Pieces of data memory that are taken: first byte and end.
    taken: Vec<(u64, u64)>,
    /// First byte behind the region of weights, and how many halves it has.
    weight_end: u64,
    n_weights: u64,
    n_names: u64,
    trf_half: u64,
    /// Prefix of the names of commands.
    pub prefix: String,
    /// Whether cached keys and values have separate room, beside that of weights.
    pub is_apart: bool,
    /// Tensors whose last reader may still run when the next command starts: their bytes come back late, so that
    /// nothing waits for it.
    retired: VecDeque<usize>,
}

/// Largest number of retired tensors.
const MAX_RETIRED: usize = 6;

impl<'t> Builder<'t> {
    pub(super) fn new(target: Target<'t>, name: &str) -> Result<Builder<'t>, LowerError> {
        let mut builder = Builder::bare(target, name)?;
        builder.axis("s_q", target.call.n_tokens)?;
        builder.axis("D", target.dims.d_model)?;
        Ok(builder)
    }

    /// A builder without the axes of a stream of activations.
    pub(super) fn bare(target: Target<'t>, name: &str) -> Result<Builder<'t>, LowerError> {
        // A quarter of data memory holds weights.
        let weight_end = target.machine.dm_bytes / 4;
        let mut builder = Builder {
            target,
            program: Program {
                name: name.to_owned(),
                axes: Axes::new(),
                tensors: Vec::new(),
                commands: Vec::new(),
            },
            notes: Vec::new(),
            taken: vec![(0, weight_end)],
            weight_end,
            n_weights: 0,
            n_names: 0,
            trf_half: 0,
            prefix: String::new(),
            is_apart: false,
            retired: VecDeque::new(),
        };
        builder.axis("B", target.call.batch)?;
        Ok(builder)
    }

    pub(super) fn axis(&mut self, name: &str, size: u64) -> Result<(), LowerError> {
        let added = self.program.axes.add(name, size);
        added.map_err(|error| self.broken(name, error))
    }

    fn broken(&self, what: &str, error: AxesError) -> LowerError {
        LowerError::Axes {
            what: format!("`{what}` of `{}`", self.program.name),
            error,
        }
    }

    /// A name that is not in use.
    pub(super) fn fresh(&mut self, stem: &str) -> String {
        self.n_names += 1;
        format!("{stem}_{}", self.n_names)
    }

    /// The same for a command.
    fn command(&mut self, stem: &str) -> String {
        let name = self.fresh(stem);
        format!("{}{name}", self.prefix)
    }

    /// Tokens of all sequences as one factor.
    pub(super) fn tokens(&self) -> Mapping {
        let call = self.target.call;
        match (call.batch, call.n_tokens) {
            (1, 1) => Mapping::one(),
            (1, _) => ax("s_q"),
            (_, 1) => ax("B"),
            _ => list([ax("B"), ax("s_q")]),
        }
    }

    pub(super) fn n_tokens(&self) -> u64 {
        self.target.call.n_rows()
    }

    pub(super) fn is_held(&self) -> bool {
        self.n_tokens() <= self.target.options.max_held
    }

    fn add(&mut self, name: &str, element: Element, place: Place) -> Result<usize, LowerError> {
        let tensor = Tensor {
            name: name.to_owned(),
            element,
            place,
        };
        let shape = tensor.shape(&self.program.axes);
        shape.map_err(|error| self.broken(name, error))?;
        self.program.tensors.push(tensor);
        Ok(self.program.tensors.len() - 1)
    }

    pub(super) fn hbm(
        &mut self,
        name: &str,
        element: Element,
        role: Role,
        layout: Mapping,
    ) -> Result<usize, LowerError> {
        self.add(name, element, Place::Hbm { role, layout })
    }

    fn slice_bytes(
        &self,
        name: &str,
        element: Element,
        layout: &Mapping,
    ) -> Result<u64, LowerError> {
        let size = layout.size(&self.program.axes);
        Ok(element.bytes(size.map_err(|error| self.broken(name, error))?))
    }

    /// A tensor in data memory, at the first place that has room for it.
    pub(super) fn dm(
        &mut self,
        stem: &str,
        element: Element,
        spread: &TensorSharding,
        layout: Mapping,
    ) -> Result<usize, LowerError> {
        let name = self.fresh(stem);
        let bytes = self.slice_bytes(&name, element, &layout)?;
        let align = self.target.machine.dm_align_bytes;
        let asked = bytes.next_multiple_of(align);
        self.taken.sort_unstable();
        let (mut first, mut largest) = (0, 0);
        let end = (self.target.machine.dm_bytes, u64::MAX);
        let mut place = None;
        for &(start, stop) in self.taken.iter().chain([&end]) {
            let room = start.saturating_sub(first);
            largest = room.max(largest);
            if room >= asked && place.is_none() {
                place = Some(first);
            }
            first = first.max(stop);
        }
        let Some(address) = place else {
            if let Some(oldest) = self.retired.pop_front() {
                self.free(oldest);
                return self.dm(stem, element, spread, layout);
            }
            return Err(LowerError::DataMemory {
                tensor: name,
                asked_bytes: bytes,
                free_bytes: largest,
            });
        };
        self.taken.push((address, address + asked));
        let spread = spread.clone();
        self.add(
            &name,
            element,
            Place::Dm {
                spread,
                layout,
                address,
            },
        )
    }

    /// Gives a tensor's bytes back: later ones may use them.
    pub(super) fn free(&mut self, tensor: usize) {
        if let Place::Dm { address, .. } = self.program.tensors[tensor].place {
            self.taken
                .retain(|(first, _)| *first != address || *first < self.weight_end);
        }
    }

    /// Gives a tensor's bytes back after a while.
    pub(super) fn retire(&mut self, tensor: usize) {
        self.retired.push_back(tensor);
        while self.retired.len() > MAX_RETIRED {
            if let Some(oldest) = self.retired.pop_front() {
                self.free(oldest);
            }
        }
    }

    /// Bytes of a slice that a tile of weights may take.
    pub(super) fn weight_bytes(&self) -> u64 {
        match self.target.options.buffering {
            super::Buffering::Single => self.weight_end,
            super::Buffering::Double => self.weight_end / 2,
        }
    }

    /// A tile of weights in its region.
    pub(super) fn weights(
        &mut self,
        element: Element,
        spread: &TensorSharding,
        layout: Mapping,
    ) -> Result<usize, LowerError> {
        let name = self.fresh("w");
        let bytes = self.slice_bytes(&name, element, &layout)?;
        if bytes > self.weight_bytes() {
            return Err(LowerError::DataMemory {
                tensor: name,
                asked_bytes: bytes,
                free_bytes: self.weight_bytes(),
            });
        }
        let address = match self.target.options.buffering {
            super::Buffering::Single => 0,
            super::Buffering::Double => self.n_weights % 2 * (self.weight_end / 2),
        };
        self.n_weights += 1;
        let spread = spread.clone();
        self.add(
            &name,
            element,
            Place::Dm {
                spread,
                layout,
                address,
            },
        )
    }

    pub(super) fn trf(
        &mut self,
        stem: &str,
        element: Element,
        spread: &TensorSharding,
        lane: Mapping,
        layout: Mapping,
    ) -> Result<usize, LowerError> {
        self.trf_at(stem, element, spread, (lane, layout), 0)
    }

    /// A tensor in the tensor registers, alternately in either half of them.
    pub(super) fn trf_alternating(
        &mut self,
        stem: &str,
        element: Element,
        spread: &TensorSharding,
        (lane, layout): (Mapping, Mapping),
    ) -> Result<usize, LowerError> {
        let address = self.trf_half * (self.target.machine.trf_lane_bytes / 2);
        self.trf_half = 1 - self.trf_half;
        self.trf_at(stem, element, spread, (lane, layout), address)
    }

    pub(super) fn trf_at(
        &mut self,
        stem: &str,
        element: Element,
        spread: &TensorSharding,
        (lane, layout): (Mapping, Mapping),
        address: u64,
    ) -> Result<usize, LowerError> {
        let name = self.fresh(stem);
        let spread = spread.clone();
        self.add(
            &name,
            element,
            Place::Trf {
                spread,
                lane,
                layout,
                address,
            },
        )
    }

    /// Operands of vector stages, f32, from a byte of the register file on.
    pub(super) fn vrf(
        &mut self,
        stem: &str,
        spread: &TensorSharding,
        layout: Mapping,
        address: u64,
    ) -> Result<usize, LowerError> {
        let name = self.fresh(stem);
        let spread = spread.clone();
        self.add(
            &name,
            Element::F32,
            Place::Vrf {
                spread,
                layout,
                address,
            },
        )
    }

    pub(super) fn copy(&mut self, stem: &str, lane: Lane, from: View, to: View) {
        self.dma(stem, lane, from, to, None);
    }

    /// A move over the link between chips.
    pub(super) fn send(&mut self, from: usize, to: usize) {
        let name = self.command("shuffle");
        self.program.commands.push(Command::Dma(Dma {
            name,
            engine: Engine::Pdma,
            from: View::of(from),
            to: View::of(to),
            indexed: None,
        }));
    }

    pub(super) fn indexed(
        &mut self,
        stem: &str,
        (from, to): (View, View),
        (side, axis, index): (Side, &str, usize),
    ) {
        let indexed = IndexedAxis {
            side,
            axis: axis.to_owned(),
            index,
        };
        self.dma(stem, Lane::Others, from, to, Some(indexed));
    }

    fn dma(&mut self, stem: &str, lane: Lane, from: View, to: View, indexed: Option<IndexedAxis>) {
        let name = self.command(stem);
        let (first, count) = match lane {
            Lane::Weights => WEIGHT_ENGINES,
            Lane::Others => OTHER_ENGINES,
        };
        self.program.commands.push(Command::Dma(Dma {
            name,
            engine: Engine::Tdma { first, count },
            from,
            to,
            indexed,
        }));
    }

    pub(super) fn main(&mut self, stem: &str, stages: Vec<Stage>) {
        self.kernel(stem, Context::Main, stages);
    }

    pub(super) fn sub(&mut self, stem: &str, stages: Vec<Stage>) {
        self.kernel(stem, Context::Sub, stages);
    }

    fn kernel(&mut self, stem: &str, context: Context, stages: Vec<Stage>) {
        let name = self.command(stem);
        self.program.commands.push(Command::Kernel(SliceKernel {
            name,
            context,
            stages,
        }));
    }

    pub(super) fn note(&mut self, op: &str, expression: &str, engine: &'static str, levels: &str) {
        self.notes.push(Note {
            op: op.to_owned(),
            expression: expression.to_owned(),
            engine,
            levels: levels.to_owned(),
        });
    }
}
