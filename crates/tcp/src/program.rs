//! Programs: tensors in memories, and commands on contexts. A command is a DMA move, or a *kernel*: one pass of a
//! stream from data memory through the stages of a slice, with the vendor's names and order.
//!
//! ```text
//!  main  fetch ─ switch ─ collect ─ outer ─ packet ─ time ─ lane ─ vector … ring ─ cast ─ transpose ─ commit
//!  sub   fetch ─ switch ─ collect ─ to trf · to vrf
//!  tdma  copy · gather · scatter between HBM and data memory
//!  pdma  the same to other chips and the host
//! ```
//!
//! Commands of one context run in order; contexts overlap, ordered by their reads and writes. A program is for one
//! chip. Its arguments are its tensors in HBM, in order.

mod codec;
mod parse;
mod print;
mod stage;
mod words;

pub use codec::{CodecError, TARGET};
pub use parse::{TextError, parse};
pub use print::print;
pub use stage::{LaneMode, ReduceOp, Stage, Topology, VectorOp, VectorOperand};

use crate::Element;
use crate::axes::{Axes, AxesError, DigitLayout, Mapping, Shape, cover};
use millrace_npu::{Role, Slot};

/// A program.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// Its name.
    pub name: String,
    /// Its axes.
    pub axes: Axes,
    /// Its tensors.
    pub tensors: Vec<Tensor>,
    /// Its commands; each context runs its own in this order.
    pub commands: Vec<Command>,
}

/// A tensor in a memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Its name.
    pub name: String,
    /// Type of its elements.
    pub element: Element,
    /// Its place.
    pub place: Place,
}

/// A memory with a mapping for each of its dimensions.
#[derive(Clone, Debug, PartialEq)]
pub enum Place {
    /// The chip's memory: an argument.
    Hbm {
        /// Transfers by the host.
        role: Role,
        /// Order of the elements.
        layout: Mapping,
    },
    /// Data memory of the slices.
    Dm {
        /// Content of each cluster and slice.
        spread: TensorSharding,
        /// Order of the elements in a slice.
        layout: Mapping,
        /// First byte in every slice.
        address: u64,
    },
    /// Tensor register files: the stationary operand of a contraction.
    Trf {
        /// Content of each cluster and slice.
        spread: TensorSharding,
        /// Content of each lane.
        lane: Mapping,
        /// Order of the elements in a lane.
        layout: Mapping,
        /// First byte in every lane.
        address: u64,
    },
    /// Vector register files: operands of vector stages.
    Vrf {
        /// Content of each cluster and slice.
        spread: TensorSharding,
        /// Order of the elements in a slice.
        layout: Mapping,
        /// First byte in every slice.
        address: u64,
    },
}

/// Distribution of a tensor over clusters and slices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSharding {
    /// Mapping over clusters.
    pub cluster: Mapping,
    /// Mapping over the slices of a cluster.
    pub slice: Mapping,
}

impl Tensor {
    /// The mapping of its elements within the innermost unit.
    pub fn layout(&self) -> &Mapping {
        match &self.place {
            Place::Hbm { layout, .. }
            | Place::Dm { layout, .. }
            | Place::Trf { layout, .. }
            | Place::Vrf { layout, .. } => layout,
        }
    }

    /// Its spread over the chip; `None` in HBM.
    pub fn spread(&self) -> Option<&TensorSharding> {
        match &self.place {
            Place::Hbm { .. } => None,
            Place::Dm { spread, .. } | Place::Trf { spread, .. } | Place::Vrf { spread, .. } => {
                Some(spread)
            }
        }
    }

    /// Its mappings, the outermost dimension first.
    pub fn mappings(&self) -> Vec<&Mapping> {
        let mut all = Vec::new();
        if let Some(spread) = self.spread() {
            all.extend([&spread.cluster, &spread.slice]);
        }
        if let Place::Trf { lane, .. } = &self.place {
            all.push(lane);
        }
        all.push(self.layout());
        all
    }

    /// Its axes, and their extents.
    ///
    /// # Errors
    /// Where its mappings make no sense, use a factor twice or leave one out.
    pub fn shape(&self, axes: &Axes) -> Result<Shape, AxesError> {
        let layouts = self
            .mappings()
            .into_iter()
            .map(|m| DigitLayout::of(m, axes));
        let layouts: Vec<DigitLayout> = layouts.collect::<Result<_, _>>()?;
        cover(&layouts.iter().collect::<Vec<_>>(), axes)
    }

    /// Bytes within the innermost unit: of all of it in HBM, of a slice, of a lane.
    ///
    /// # Errors
    /// Where its mapping makes no sense.
    pub fn unit_bytes(&self, axes: &Axes) -> Result<u64, AxesError> {
        Ok(self.element.bytes(self.layout().size(axes)?))
    }
}

/// A tensor, or a part of it, under other names of axes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// The tensor's number.
    pub tensor: usize,
    /// Axes (of the tensor) that begin elsewhere than at 0.
    pub offsets: Vec<(String, u64)>,
    /// Axes of the tensor, with their names in the command.
    pub renames: Vec<(String, String)>,
}

impl View {
    /// All of a tensor.
    pub fn of(tensor: usize) -> View {
        View {
            tensor,
            offsets: Vec::new(),
            renames: Vec::new(),
        }
    }

    /// The same from another index of an axis on.
    #[must_use]
    pub fn from(mut self, axis: &str, start: u64) -> View {
        if start > 0 {
            self.offsets.push((axis.to_owned(), start));
        }
        self
    }

    /// The same with an axis under another name.
    #[must_use]
    pub fn named(mut self, axis: &str, name: &str) -> View {
        self.renames.push((axis.to_owned(), name.to_owned()));
        self
    }
}

/// A command.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// A DMA move.
    Dma(Dma),
    /// A pass through the slices.
    Kernel(SliceKernel),
}

impl Command {
    /// Its name.
    pub fn name(&self) -> &str {
        match self {
            Command::Dma(dma) => &dma.name,
            Command::Kernel(kernel) => &kernel.name,
        }
    }
}

/// A move by DMA. The side without offsets is moved; where neither has any, the smaller.
#[derive(Clone, Debug, PartialEq)]
pub struct Dma {
    /// Its name.
    pub name: String,
    /// Engines that move it.
    pub engine: Engine,
    /// Source.
    pub from: View,
    /// Destination.
    pub to: View,
    /// Rows chosen by an index tensor.
    pub indexed: Option<IndexedAxis>,
}

/// Engines that move data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Engine {
    /// Engines `first .. first + count` of tensor DMA.
    Tdma {
        /// The first.
        first: u64,
        /// How many share the move.
        count: u64,
    },
    /// The link to other chips and the host.
    Pdma,
}

/// An axis whose index is read from a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexedAxis {
    /// Whether the source is indexed (gather) or the destination (scatter).
    pub side: Side,
    /// The axis of that side.
    pub axis: String,
    /// The tensor of indices.
    pub index: usize,
}

/// A side of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The source: a gather.
    From,
    /// The destination: a scatter.
    To,
}

/// Contexts that run kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Context {
    /// All engines.
    Main,
    /// Fills register files beside it.
    Sub,
}

/// A pass through the slices.
#[derive(Clone, Debug, PartialEq)]
pub struct SliceKernel {
    /// Its name.
    pub name: String,
    /// Where it runs.
    pub context: Context,
    /// Its stages in order: the first fetches, the last commits.
    pub stages: Vec<Stage>,
}

impl Program {
    /// The argument list: tensors in HBM. Their shape is a single dimension of bytes or elements, as the mapping orders
    /// them.
    ///
    /// # Errors
    /// Where a mapping makes no sense.
    pub fn slots(&self) -> Result<Vec<Slot>, AxesError> {
        let mut slots = Vec::new();
        for tensor in &self.tensors {
            let Place::Hbm { role, layout } = &tensor.place else {
                continue;
            };
            let n = layout.size(&self.axes)?;
            let bytes = tensor.element.bytes(n);
            let element = tensor.element.slot();
            slots.push(Slot {
                name: tensor.name.clone(),
                element,
                shape: vec![bytes / element.size_bytes()],
                role: *role,
            });
        }
        Ok(slots)
    }

    /// The tensor of that name.
    pub fn tensor(&self, name: &str) -> Option<usize> {
        self.tensors.iter().position(|t| t.name == name)
    }
}

#[cfg(test)]
mod tests;
