//! A core's program on the board: the steps of its herd's body between locks.

use millrace_kernels::Cpu;
use millrace_npu::Element;
use millrace_xdna2_machine::program::{Affine, Env, Flat, Indices, Operand};
use millrace_xdna2_machine::simulate::code::{CallStep, CoreStep as Step, HerdCode};
use millrace_xdna2_machine::tile::{CallShape, TileCall};
use millrace_xdna2_words::Tile;
use millrace_xdna2_words::board::{CoreProgram, CoreStep, CoreView};
use std::sync::Arc;

/// Where a core finds its buffers and locks. Addresses and lock numbers are those of its code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreImage {
    /// Where it is.
    pub tile: Tile,
    /// Ends of channels.
    pub ends: Vec<BlockEnd>,
    /// Address and words of each local buffer.
    pub locals: Vec<(u32, usize)>,
}

/// The core's end of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockEnd {
    /// The channel's id in the flat launch.
    pub channel: usize,
    /// Whether blocks arrive at it.
    pub is_input: bool,
    /// Type of an element.
    pub element: Element,
    /// Addresses of the blocks, which are used in turn.
    pub addresses: Vec<u32>,
    /// Words of a block.
    pub n_words: usize,
    /// How blocks change hands.
    pub link: EndLink,
}

/// How blocks of a channel change hands at a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndLink {
    /// Two locks, with DMA or a neighbour.
    Locks {
        /// The lock that counts empty blocks.
        empty: u8,
        /// The lock that counts full ones.
        full: u8,
    },
    /// The cascade, 512 bits at a time, between the block and the other core.
    Cascade,
}

/// A block that the core holds: its end, and the index of its address.
type BlockInHand = Option<(usize, usize)>;

/// A core at work.
pub struct CoreRun<'p> {
    flat: &'p Flat<'p>,
    core: usize,
    image: &'p CoreImage,
    cpu: &'p Cpu,
    code: Arc<HerdCode<'p>>,
    points: Indices,
    grid: Option<Vec<u32>>,
    next: usize,
    loops: Vec<i64>,
    counts: Vec<i64>,
    held: Vec<BlockInHand>,
    /// By end, blocks taken so far.
    taken: Vec<usize>,
    /// Words of a block that have gone by the cascade.
    moved: usize,
}

impl<'p> CoreRun<'p> {
    /// The program of a core of a launch.
    pub fn new(
        flat: &'p Flat<'p>,
        core: usize,
        image: &'p CoreImage,
        code: Arc<HerdCode<'p>>,
        cpu: &'p Cpu,
    ) -> CoreRun<'p> {
        let mut points = flat.launch.grid_points();
        let grid = points.next();
        CoreRun {
            flat,
            core,
            image,
            cpu,
            held: vec![None; code.n_names],
            code,
            points,
            grid,
            next: 0,
            loops: Vec::new(),
            counts: Vec::new(),
            taken: vec![0; image.ends.len()],
            moved: 0,
        }
    }

    fn eval(&self, affine: &Affine) -> i64 {
        let core = &self.flat.cores[self.core];
        affine.at(&Env {
            grid: self.grid.as_deref().unwrap_or_default(),
            x: core.x,
            y: core.y,
            loops: &self.loops,
            ..Env::default()
        })
    }

    fn end(&self, channel: usize, index: &[Affine], is_input: bool) -> Result<usize, String> {
        let values: Vec<i64> = index.iter().map(|index| self.eval(index)).collect();
        let id = self.flat.channel_id(channel, &values);
        let found = self
            .image
            .ends
            .iter()
            .position(|end| Some(end.channel) == id && end.is_input == is_input);
        found.ok_or_else(|| format!("channel {channel} {values:?} has no end here"))
    }

    /// Takes the next block of an end, if there is one.
    fn take(
        &mut self,
        end: usize,
        block: u8,
        core: &mut CoreView<'_, '_>,
    ) -> Result<CoreStep, String> {
        let of = &self.image.ends[end];
        let number = self.taken[end] % of.addresses.len();
        let name = || self.flat.channel_name(of.channel);
        match of.link {
            EndLink::Locks { empty, full } => {
                let lock = if of.is_input { full } else { empty };
                if !core.acquire(lock, 1)? {
                    let what = if of.is_input { "a full" } else { "an empty" };
                    let name = name();
                    return Ok(CoreStep::Waits(format!(
                        "waits for {what} block of {name} (lock {lock})"
                    )));
                }
            }
            EndLink::Cascade if of.is_input && self.moved < of.n_words => {
                let Some(value) = core.cascade_receive() else {
                    return Ok(CoreStep::Waits(format!("waits for the cascade {}", name())));
                };
                let n = value.len().min(of.n_words - self.moved);
                core.write(of.addresses[number] + 4 * self.moved as u32, &value[..n])?;
                self.moved += n;
                return Ok(CoreStep::Ran);
            }
            EndLink::Cascade => self.moved = 0,
        }
        self.held[usize::from(block)] = Some((end, number));
        self.taken[end] += 1;
        self.next += 1;
        Ok(CoreStep::Ran)
    }

    /// Gives a block back or on.
    fn give(&mut self, block: u8, core: &mut CoreView<'_, '_>) -> Result<CoreStep, String> {
        let held = self.held[usize::from(block)];
        let (end, number) = held.ok_or_else(|| format!("b{block} names no block"))?;
        let of = &self.image.ends[end];
        match of.link {
            EndLink::Locks { empty, full } => {
                core.release(if of.is_input { empty } else { full }, 1)?;
            }
            EndLink::Cascade if !of.is_input && self.moved < of.n_words => {
                let mut value = [0; 16];
                let n = value.len().min(of.n_words - self.moved);
                core.read(
                    of.addresses[number] + 4 * self.moved as u32,
                    &mut value[..n],
                )?;
                if !core.cascade_send(&value)? {
                    let name = self.flat.channel_name(of.channel);
                    return Ok(CoreStep::Waits(format!(
                        "waits for room in the cascade {name}"
                    )));
                }
                self.moved += n;
                return Ok(CoreStep::Ran);
            }
            EndLink::Cascade => self.moved = 0,
        }
        self.held[usize::from(block)] = None;
        self.next += 1;
        Ok(CoreStep::Ran)
    }

    /// Address, words, element type of an operand.
    fn operand(&self, operand: Operand) -> Result<(u32, usize, Element), String> {
        match operand {
            Operand::Local(local) => {
                let (address, n_words) = self.image.locals[local];
                let decl = &self.flat.cores[self.core].decl.locals[local];
                Ok((address, n_words, decl.element))
            }
            Operand::Block(block) => {
                let held = self.held[usize::from(block)];
                let (end, number) = held.ok_or_else(|| format!("b{block} names no block"))?;
                let end = &self.image.ends[end];
                Ok((end.addresses[number], end.n_words, end.element))
            }
        }
    }

    fn call(&self, call: &CallStep<'_>, core: &mut CoreView<'_, '_>) -> Result<(), String> {
        let kernel = call.kernel;
        let mut places = Vec::with_capacity(call.operands.len());
        let mut words: Vec<Vec<u32>> = Vec::with_capacity(call.operands.len());
        for &operand in call.operands {
            let place = self.operand(operand)?;
            let mut content = vec![0; place.1];
            core.read(place.0, &mut content)?;
            places.push(place);
            words.push(content);
        }
        let elements = |&(_, n_words, element): &(u32, usize, Element)| {
            (element, n_words as u64 * 4 / element.size_bytes())
        };
        let operands: Vec<(Element, u64)> = places.iter().map(elements).collect();
        let scalars: Vec<i64> = call
            .scalars
            .iter()
            .map(|scalar| self.eval(scalar))
            .collect();
        (kernel.check)(&CallShape {
            dims: call.dims,
            operands: &operands,
            n_scalars: scalars.len(),
            constants: call.constants,
        })
        .map_err(|problem| format!("`{}`: {problem}", kernel.name))?;
        let (inputs, outputs) = words.split_at_mut(kernel.inputs);
        (kernel.run)(&mut TileCall {
            cpu: self.cpu,
            dims: call.dims,
            inputs: inputs
                .iter()
                .map(|words| bytemuck::cast_slice(words))
                .collect(),
            outputs: outputs
                .iter_mut()
                .map(|words| bytemuck::cast_slice_mut(words))
                .collect(),
            scalars: &scalars,
            constants: call.constants,
        });
        for ((address, _, _), words) in places.iter().zip(&words).skip(kernel.inputs) {
            core.write(*address, words)?;
        }
        Ok(())
    }

    /// Executes steps that do not wait in one go, up to a call or a lock.
    fn advance(&mut self, core: &mut CoreView<'_, '_>) -> Result<CoreStep, String> {
        let code = Arc::clone(&self.code);
        loop {
            if self.grid.is_none() {
                return Ok(CoreStep::Done);
            }
            let Some(step) = code.steps.get(self.next) else {
                self.next = 0;
                self.grid = self.points.next();
                continue;
            };
            match step {
                Step::Get {
                    channel,
                    index,
                    block,
                } => {
                    let end = self.end(*channel, index, true)?;
                    return self.take(end, *block, core);
                }
                Step::New {
                    channel,
                    index,
                    block,
                } => {
                    let end = self.end(*channel, index, false)?;
                    return self.take(end, *block, core);
                }
                Step::Free(block) | Step::Put(block) => return self.give(*block, core),
                Step::Call(call) => {
                    self.call(call, core)?;
                    self.next += 1;
                    return Ok(CoreStep::Ran);
                }
                Step::Fault(problem) => return Err(problem.clone()),
                Step::Begin { .. } | Step::End { .. } | Step::Unless { .. } | Step::Jump(_) => {
                    self.next = self.following(step);
                }
            }
        }
    }

    /// The step after one that decides where the program goes on.
    fn following(&mut self, step: &Step<'_>) -> usize {
        match step {
            Step::Begin { count, end } => {
                let count = self.eval(count);
                if count <= 0 {
                    return *end;
                }
                self.loops.push(0);
                self.counts.push(count);
            }
            Step::End { begin } => {
                if let (Some(value), Some(&count)) = (self.loops.last_mut(), self.counts.last()) {
                    *value += 1;
                    if *value < count {
                        return begin + 1;
                    }
                }
                self.loops.pop();
                self.counts.pop();
            }
            Step::Unless {
                value,
                condition,
                otherwise,
            } if !condition.holds(self.eval(value)) => return *otherwise,
            Step::Jump(to) => return *to,
            _ => {}
        }
        self.next + 1
    }
}

impl CoreProgram for CoreRun<'_> {
    fn step(&mut self, core: &mut CoreView<'_, '_>) -> Result<CoreStep, String> {
        self.advance(core)
    }

    fn restart(&mut self) {
        self.points = self.flat.launch.grid_points();
        self.grid = self.points.next();
        self.next = 0;
        self.loops.clear();
        self.counts.clear();
        self.held.fill(None);
        self.taken.fill(0);
        self.moved = 0;
    }
}
