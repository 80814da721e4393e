//! Building programs: declarations in a closure, names resolved and everything checked at the end.
//!
//! ```
//! use millrace_npu::Element::Bf16;
//! use millrace_xdna2_machine::program::builder::prelude::*;
//!
//! // y = silu(a) · b on eight cores, 1,024 elements at a time.
//! let n = 65_536;
//! let program = build("silu_mul", |p| {
//!     p.input("a", Bf16, [n]);
//!     p.input("b", Bf16, [n]);
//!     p.output("y", Bf16, [n]);
//!     p.launch("silu_mul", |l| {
//!         for (name, slot) in [("A", "a"), ("B", "b")] {
//!             l.channel(name)
//!                 .dims([8])
//!                 .block(Bf16, [1024])
//!                 .from(shim(i(0)))
//!                 .to(core(i(0), 0));
//!             l.read(slot, name).dims([8]).at([i(0)]).pattern(linear(i(0) * (n / 8), n / 8));
//!         }
//!         l.channel("Y").dims([8]).block(Bf16, [1024]).from(core(i(0), 0)).to(shim(i(0)));
//!         l.write("Y", "y").dims([8]).at([i(0)]).pattern(linear(i(0) * (n / 8), n / 8));
//!         l.herd("silu_mul", 8, 1, |c| {
//!             c.for_(n / 8 / 1024, |c, _| {
//!                 let a = c.get("A", [x()]);
//!                 let b = c.get("B", [x()]);
//!                 let y = c.new_block("Y", [x()]);
//!                 c.call("silu_mul_bf16", [1024], [a, b, y]);
//!                 c.free(a);
//!                 c.free(b);
//!                 c.put(y);
//!             });
//!         });
//!     });
//! })?;
//! assert_eq!(program.launches[0].herds[0].cols, 8);
//! # Ok::<(), millrace_xdna2_machine::program::ProgramErrors>(())
//! ```

mod core;
mod parts;

pub use core::{CoreBuffer, CoreBuilder};
pub use parts::{ChannelBuilder, StageBuilder, TransferBuilder};

use super::{Flat, GridOrder, Launch, Program};
use millrace_npu::{Element, Role, Slot};
use std::collections::{HashMap, HashSet};

/// Everything a builder needs: `use millrace_xdna2_machine::program::builder::prelude::*`.
pub mod prelude {
    pub use super::super::expr::{core, e, g, i, l, linear, memory, shim, walk, x, y};
    pub use super::super::{
        Affine, ChannelLink, Condition, GridOrder, IndexRange, Pattern, Place, Program,
    };
    pub use super::{CoreBuffer, CoreBuilder, LaunchBuilder, ProgramBuilder, ProgramErrors, build};
}

/// Why a program could not be built: every problem found, each naming its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("program `{program}` cannot be built: {}", problems.join("; "))]
pub struct ProgramErrors {
    /// The program's name.
    pub program: String,
    /// Descriptions of the faults, at least one.
    pub problems: Vec<String>,
}

/// Builds a program. The result is well formed: names are unique and resolve, and every launch [flattens](Flat::new).
/// The verifier decides whether the machine can hold it.
pub fn build(
    name: &str,
    declare: impl FnOnce(&mut ProgramBuilder),
) -> Result<Program, ProgramErrors> {
    let mut builder = ProgramBuilder {
        program: Program {
            name: name.to_owned(),
            slots: Vec::new(),
            launches: Vec::new(),
        },
        problems: Vec::new(),
    };
    declare(&mut builder);
    builder.finish()
}

/// Declares slots and launches.
#[derive(Debug)]
pub struct ProgramBuilder {
    program: Program,
    problems: Vec<String>,
}

impl ProgramBuilder {
    /// A slot that the host writes before each call.
    pub fn input(&mut self, name: &str, element: Element, shape: impl IntoIterator<Item = i64>) {
        self.slot(name, element, shape, Role::Input);
    }

    /// A slot for weights or tables, written once.
    pub fn constant(&mut self, name: &str, element: Element, shape: impl IntoIterator<Item = i64>) {
        self.slot(name, element, shape, Role::Static);
    }

    /// A slot that one launch writes and another reads.
    pub fn scratch(&mut self, name: &str, element: Element, shape: impl IntoIterator<Item = i64>) {
        self.slot(name, element, shape, Role::Intermediate);
    }

    /// A slot that the host reads after each call.
    pub fn output(&mut self, name: &str, element: Element, shape: impl IntoIterator<Item = i64>) {
        self.slot(name, element, shape, Role::Output);
    }

    /// A slot of any role.
    pub fn slot(
        &mut self,
        name: &str,
        element: Element,
        shape: impl IntoIterator<Item = i64>,
        role: Role,
    ) {
        let shape: Vec<i64> = shape.into_iter().collect();
        if shape.iter().any(|&d| d <= 0) {
            let problem = format!("slot `{name}`: {shape:?} is not a shape");
            self.problems.push(problem);
        }
        self.program.slots.push(Slot {
            name: name.to_owned(),
            element,
            shape: shape.iter().map(|&d| d.max(0) as u64).collect(),
            role,
        });
    }

    /// A launch. Launches run in the order of their declaration.
    pub fn launch(&mut self, name: &str, declare: impl FnOnce(&mut LaunchBuilder)) {
        let mut builder = LaunchBuilder::new(name);
        declare(&mut builder);
        let slots: HashMap<&str, usize> = self
            .program
            .slots
            .iter()
            .enumerate()
            .map(|(number, slot)| (slot.name.as_str(), number))
            .collect();
        let launch = builder.finish(&slots, &mut self.problems);
        self.program.launches.push(launch);
    }

    fn finish(mut self) -> Result<Program, ProgramErrors> {
        let program = self.program;
        let problems = &mut self.problems;
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if program.name.is_empty() || !program.name.chars().all(word) {
            problems.push("its name is not made of letters, digits and `_`".to_owned());
        }
        let mut seen = HashSet::new();
        for slot in &program.slots {
            if !seen.insert(&slot.name) {
                problems.push(format!("slot `{}` is declared twice", slot.name));
            }
            if slot.size_bytes().is_none() {
                problems.push(format!("slot `{}` has more than 2⁶⁴ bytes", slot.name));
            }
        }
        let mut seen = HashSet::new();
        for launch in &program.launches {
            if !seen.insert(&launch.name) {
                problems.push(format!("launch `{}` is declared twice", launch.name));
            }
        }
        if problems.is_empty() {
            let failed = |launch| Flat::new(launch).err().map(|error| error.to_string());
            problems.extend(program.launches.iter().filter_map(failed));
        }
        if problems.is_empty() {
            Ok(program)
        } else {
            Err(ProgramErrors {
                program: program.name,
                problems: self.problems,
            })
        }
    }
}

/// Declares one launch. Names may be used before they are declared.
#[derive(Debug)]
pub struct LaunchBuilder {
    launch: Launch,
    channels: Vec<ChannelBuilder>,
    stages: Vec<StageBuilder>,
    transfers: Vec<TransferBuilder>,
    herds: Vec<core::HerdParts>,
    grid: Vec<i64>,
}

impl LaunchBuilder {
    fn new(name: &str) -> LaunchBuilder {
        LaunchBuilder {
            launch: Launch {
                name: name.to_owned(),
                ..Launch::default()
            },
            channels: Vec::new(),
            stages: Vec::new(),
            transfers: Vec::new(),
            herds: Vec::new(),
            grid: Vec::new(),
        }
    }

    /// Iterations per dimension, the last fastest.
    pub fn grid(&mut self, grid: impl IntoIterator<Item = i64>) {
        self.grid = grid.into_iter().collect();
    }

    /// How grid points follow each other; [`GridOrder::Sequential`] unless set.
    pub fn order(&mut self, order: GridOrder) {
        self.launch.order = order;
    }

    /// Adds a channel or a bundle of channels.
    pub fn channel(&mut self, name: &str) -> &mut ChannelBuilder {
        last(&mut self.channels, ChannelBuilder::new(name))
    }

    /// Adds a stage or a bundle of stages.
    pub fn stage(&mut self, name: &str) -> &mut StageBuilder {
        last(&mut self.stages, StageBuilder::new(name))
    }

    /// Shim tasks that read a slot into a channel.
    pub fn read(&mut self, slot: &str, channel: &str) -> &mut TransferBuilder {
        last(
            &mut self.transfers,
            TransferBuilder::new(slot, channel, true),
        )
    }

    /// Shim tasks that write a channel's blocks to a slot.
    pub fn write(&mut self, channel: &str, slot: &str) -> &mut TransferBuilder {
        last(
            &mut self.transfers,
            TransferBuilder::new(slot, channel, false),
        )
    }

    /// A herd of `cols` × `rows` cores from column 0, row 0.
    pub fn herd(
        &mut self,
        name: &str,
        cols: i64,
        rows: i64,
        program: impl FnOnce(&mut CoreBuilder),
    ) {
        self.herd_at(name, (0, 0), (cols, rows), program);
    }

    /// A herd of `size` (columns, rows) whose first core is at `at` (column, row).
    pub fn herd_at(
        &mut self,
        name: &str,
        at: (i64, i64),
        size: (i64, i64),
        program: impl FnOnce(&mut CoreBuilder),
    ) {
        let mut builder = CoreBuilder::new(name);
        program(&mut builder);
        self.herds.push(builder.finish(at, size));
    }

    fn finish(mut self, slots: &HashMap<&str, usize>, problems: &mut Vec<String>) -> Launch {
        let mut resolver = Resolver {
            launch: self.launch.name.clone(),
            channels: HashMap::new(),
            problems,
        };
        for (number, channel) in self.channels.iter().enumerate() {
            resolver.channels.insert(channel.name().to_owned(), number);
        }
        let mut launch = self.launch;
        launch.grid = resolver.sizes("grid", &self.grid);
        launch.channels = self
            .channels
            .drain(..)
            .map(|c| c.finish(&mut resolver))
            .collect();
        launch.stages = self
            .stages
            .drain(..)
            .map(|s| s.finish(&mut resolver))
            .collect();
        let mut args: Vec<usize> = Vec::new();
        for transfer in self.transfers {
            let slot = slots.get(transfer.slot()).copied();
            if slot.is_none() {
                let problem = format!("there is no slot `{}`", transfer.slot());
                resolver.problem("transfer", &problem);
            }
            let slot = slot.unwrap_or(0);
            let arg = args.iter().position(|&a| a == slot).unwrap_or_else(|| {
                args.push(slot);
                args.len() - 1
            });
            let transfer = transfer.finish(arg, &launch.channels, &mut resolver);
            launch.transfers.push(transfer);
        }
        launch.args = args;
        launch.herds = self
            .herds
            .into_iter()
            .map(|herd| herd.resolve(&mut resolver))
            .collect();
        launch
    }
}

fn last<T>(list: &mut Vec<T>, item: T) -> &mut T {
    let at = list.len();
    list.push(item);
    &mut list[at]
}

/// Turns names into indices and numbers into `u32`, collecting problems.
struct Resolver<'a> {
    launch: String,
    channels: HashMap<String, usize>,
    problems: &'a mut Vec<String>,
}

impl Resolver<'_> {
    fn problem(&mut self, place: &str, problem: &str) {
        self.problems
            .push(format!("launch `{}`, {place}: {problem}", self.launch));
    }

    fn channel(&mut self, place: &str, name: &str) -> usize {
        if let Some(&channel) = self.channels.get(name) {
            return channel;
        }
        self.problem(place, &format!("there is no channel `{name}`"));
        0
    }

    fn size(&mut self, place: &str, value: i64) -> u32 {
        u32::try_from(value).unwrap_or_else(|_| {
            self.problem(place, &format!("{value} is not a size"));
            0
        })
    }

    fn sizes(&mut self, place: &str, values: &[i64]) -> Vec<u32> {
        values.iter().map(|&v| self.size(place, v)).collect()
    }
}

#[cfg(test)]
mod tests;
