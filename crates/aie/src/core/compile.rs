//! From a core's ops to instructions.

mod data;
mod linalg;
mod tensor;

use super::code::{Code, EndAt, Instruction as I, LockAmount, LockAt, Term};
use super::kernel;
use super::tile_kernel;
use super::value::{Base, CoreValue, MemoryView, Number};
use crate::design::{Constants, Core, Design, Entity, LockAction, use_lock};
use crate::lower::Places;
use crate::syntax::{Attribute, Location, MemRefType, Op, Region, SyntaxError, Type};
use millrace_xdna2_words::Tile;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Instructions of a program, at most: calls are written out.
const MOST_INSTRUCTIONS: usize = 1 << 20;

/// A program, and the unknown functions that it calls.
pub(crate) struct CoreCode {
    pub(crate) code: Code,
    pub(crate) unknown: Vec<String>,
    /// Meanings given to known kernels, where there is a choice.
    pub(crate) notes: Vec<String>,
}

/// Compiles a core's program for buffers and locks in their places.
pub(crate) fn compile(
    design: &Design,
    places: &Places,
    core: &Core,
) -> Result<CoreCode, SyntaxError> {
    let mut compiler = CoreCompiler {
        design,
        places,
        tile: core.tile,
        code: Code::default(),
        names: BTreeMap::new(),
        calls: Vec::new(),
        unknown: Vec::new(),
        notes: Vec::new(),
        at: core.op.at,
    };
    compiler.region(core.op.region(0)?, &[])?;
    compiler.push(I::End)?;
    let CoreCompiler {
        code,
        unknown,
        notes,
        ..
    } = compiler;
    Ok(CoreCode {
        code,
        unknown,
        notes,
    })
}

/// A program while it is compiled.
pub(super) struct CoreCompiler<'d> {
    pub(super) design: &'d Design,
    places: &'d Places,
    tile: Tile,
    pub(super) code: Code,
    names: BTreeMap<String, usize>,
    pub(super) calls: Vec<String>,
    unknown: Vec<String>,
    notes: Vec<String>,
    at: Location,
}

impl CoreCompiler<'_> {
    pub(super) fn push(&mut self, instruction: I) -> Result<(), SyntaxError> {
        if self.code.instructions.len() >= MOST_INSTRUCTIONS {
            return Err(SyntaxError::new(self.at, "the core's program is too large"));
        }
        self.code.instructions.push(instruction);
        self.code.places.push(self.at);
        Ok(())
    }

    pub(super) fn here(&self) -> usize {
        self.code.instructions.len()
    }

    pub(super) fn slot(&mut self) -> usize {
        self.code.n_slots += 1;
        self.code.n_slots - 1
    }

    pub(super) fn bind(&mut self, name: &str) -> usize {
        let slot = self.slot();
        self.names.insert(name.to_owned(), slot);
        slot
    }

    /// The slot of an op's result. An unused result may have no name.
    pub(super) fn target(&mut self, op: &Op) -> usize {
        match op.results.first() {
            Some(name) => self.bind(name),
            None => self.slot(),
        }
    }

    pub(super) fn tile(&self) -> Tile {
        self.tile
    }

    pub(super) fn names(&mut self) -> &mut BTreeMap<String, usize> {
        &mut self.names
    }

    pub(super) fn function(&self, name: &str) -> Option<&Op> {
        self.design.functions.get(name)
    }

    /// The slot of a name: a value of the program, or an object of the device.
    pub(super) fn use_name(&mut self, op: &Op, name: &str) -> Result<usize, SyntaxError> {
        if let Some(&slot) = self.names.get(name) {
            return Ok(slot);
        }
        let value = match self.design.names.get(name) {
            Some(Entity::Buffer(buffer)) => CoreValue::View(self.buffer(op, *buffer)?),
            Some(Entity::Constant(value)) => CoreValue::Integer(*value),
            _ => return Err(op.error(format!("%{name} has no value here"))),
        };
        let slot = self.slot();
        self.push(I::Constant(slot, value))?;
        Ok(slot)
    }

    pub(super) fn operand(&mut self, op: &Op, number: usize) -> Result<usize, SyntaxError> {
        let name = op.operand(number)?.to_owned();
        self.use_name(op, &name)
    }

    pub(super) fn operands(&mut self, op: &Op) -> Result<Vec<usize>, SyntaxError> {
        let names = op.operands.iter();
        names.map(|name| self.use_name(op, name)).collect()
    }

    /// Number of a tile's memory among the four of a core: south, west, north, own.
    fn side(&self, op: &Op, tile: Tile) -> Result<u32, SyntaxError> {
        let steps = [(0, -1), (-1, 0), (0, 1), (0, 0)];
        let side = steps
            .iter()
            .position(|&(east, north)| self.tile.neighbour(east, north) == Some(tile));
        let side = side.filter(|_| tile.row > 1);
        side.map(|side| side as u32)
            .ok_or_else(|| op.error(format!("{} does not reach the memory of {tile}", self.tile)))
    }

    fn buffer(&self, op: &Op, buffer: usize) -> Result<MemoryView, SyntaxError> {
        let of = &self.design.buffers[buffer];
        let window = (4 + self.side(op, of.tile)?) << 16;
        let base = Base::Core(window + self.places.addresses[buffer]);
        whole(op, &of.of, base)
    }

    fn lock_at(&self, op: &Op, lock: usize) -> Result<LockAt, SyntaxError> {
        let side = self.side(op, self.design.locks[lock].tile)? as u8;
        Ok(LockAt {
            number: side * 16 + self.places.locks[lock],
            lock,
        })
    }

    /// Numbers and values in brackets.
    fn terms(&mut self, op: &Op, name: &str) -> Result<Vec<Term>, SyntaxError> {
        let Some(value) = op.get(name) else {
            // The generic form has indices among its operands.
            return Ok(Vec::new());
        };
        let Attribute::Array(all) = value else {
            return Err(op.error(format!("`{name}` is no list")));
        };
        let term = |term: &Attribute| match term {
            Attribute::Value(name) => Ok(Term::Slot(self.use_name(op, name)?)),
            Attribute::Affine(of) => Ok(Term::Slot(self.affine(op, of)?)),
            other => other
                .integer()
                .map(Term::Fixed)
                .ok_or_else(|| op.error("an index is no number")),
        };
        all.iter().map(term).collect()
    }

    /// Indices: those in brackets, or operands from a number on.
    fn indices(&mut self, op: &Op, first: usize) -> Result<Vec<Term>, SyntaxError> {
        if op.get("indices").is_some() {
            return self.terms(op, "indices");
        }
        let names = op.operands.iter().skip(first);
        names
            .map(|name| self.use_name(op, name).map(Term::Slot))
            .collect()
    }

    /// A region; the results of its last op go to slots.
    pub(super) fn region(&mut self, region: &Region, to: &[usize]) -> Result<(), SyntaxError> {
        if let [block] = &region.blocks[..] {
            for op in &block.ops {
                self.op(op, to)?;
            }
            return Ok(());
        }
        self.blocks(region, to)
    }

    /// An op.
    pub(super) fn op(&mut self, op: &Op, to: &[usize]) -> Result<(), SyntaxError> {
        self.at = op.at;
        if self.control(op, to)? {
            return Ok(());
        }
        match op.name.as_str() {
            "arith.constant" => self.constant(op),
            "affine.apply" | "affine.min" | "affine.max" => self.affine_value(op),
            "affine.load" | "affine.store" => self.memory(op),
            "aie.put_cascade" | "aie.get_cascade" => self.cascade(op),
            // A mark for traces.
            "aie.event" => Ok(()),
            "aie.use_lock" => {
                let constants = self.constants(op);
                let (lock, action, amount) = use_lock(self.design, op, &constants)?;
                let lock = self.lock_at(op, lock)?;
                let amount = amount as u8;
                self.push(match action {
                    LockAction::Acquire => I::Acquire(lock, LockAmount::AtLeast(amount)),
                    LockAction::AcquireEqual => I::Acquire(lock, LockAmount::Equal(amount)),
                    LockAction::Release => I::Release(lock, amount),
                })
            }
            "aie.objectfifo.acquire" => {
                let n = op.number::<u64>("size")?;
                let end = self.end(op)?;
                if n > self.code.ends[end].objects.len() as u64 {
                    let depth = self.code.ends[end].objects.len();
                    return Err(op.error(format!("it acquires {n} objects of {depth}")));
                }
                let to = self.target(op);
                self.push(I::AcquireObjects(to, end, n))
            }
            "aie.objectfifo.release" => {
                let n = op.number::<u64>("size")?;
                let end = self.end(op)?;
                self.push(I::ReleaseObjects(end, n))
            }
            "aie.objectfifo.subview.access" => {
                let from = self.operand(op, 0)?;
                let index = op.number::<usize>("index")?;
                let to = self.target(op);
                self.push(I::Object(to, from, index))
            }
            name if name.starts_with("linalg.") && name != "linalg.yield" => self.linalg(op),
            name if name.starts_with("memref.") => self.memory(op),
            name if name.starts_with("tensor.") || name.starts_with("bufferization.") => {
                self.tensor(op)
            }
            name if name.starts_with("vector.") && name != "vector.fma" => self.vector(op),
            name if name.starts_with("arith.")
                || name.starts_with("math.")
                || name == "vector.fma" =>
            {
                self.compute(op)
            }
            _ => Err(op.error("it does not stand in a core's program")),
        }
    }

    fn affine_value(&mut self, op: &Op) -> Result<(), SyntaxError> {
        let Attribute::Affine(of) = op.need("value")? else {
            return Err(op.error("its value is no expression"));
        };
        let from = self.affine(op, of)?;
        let to = self.target(op);
        self.push(I::Copy(vec![(from, to)]))
    }

    /// Operands of an op that are known while the program is compiled.
    fn constants(&self, op: &Op) -> Constants {
        let value = |name: &String| {
            let slot = *self.names.get(name)?;
            let mut all = self.code.instructions.iter().rev();
            let value = all.find_map(|instruction| match instruction {
                I::Constant(to, CoreValue::Integer(value)) if *to == slot => Some(*value),
                _ => None,
            });
            Some((name.clone(), value?))
        };
        let in_place = op.get("value").and_then(|value| match value {
            Attribute::Value(name) => Some(name),
            _ => None,
        });
        op.operands
            .iter()
            .chain(in_place)
            .filter_map(value)
            .collect()
    }

    fn constant(&mut self, op: &Op) -> Result<(), SyntaxError> {
        let of = op.types.last().ok_or_else(|| op.error("it has no type"))?;
        let number = Number::of(of).ok_or_else(|| op.error(format!("a constant of type {of}")))?;
        let one = |value: &Attribute| match value {
            Attribute::Float(value) => Ok(CoreValue::Float(number.round(*value))),
            other if of_floats(of) => other
                .integer()
                .map(|v| CoreValue::Float(v as f64))
                .ok_or(()),
            other => other
                .integer()
                .map(|v| CoreValue::Integer(number.wrap(v)))
                .ok_or(()),
        };
        let value = match (op.need("value")?, of) {
            (Attribute::Dense(dense), Type::Vector(shape, _)) => {
                let n = shape.iter().product::<u64>().min(4096) as usize;
                let all: Result<Vec<CoreValue>, ()> = dense.numbers.iter().map(one).collect();
                all.map(|all| CoreValue::Vector(all.iter().cycle().take(n).cloned().collect()))
            }
            (value, _) => one(value),
        };
        let value = value.map_err(|()| op.error("a constant that is no number"))?;
        let to = self.target(op);
        self.push(I::Constant(to, value))
    }

    fn compute(&mut self, op: &Op) -> Result<(), SyntaxError> {
        let number = |of: Option<&Type>| {
            of.and_then(Number::of)
                .ok_or_else(|| op.error("it has no type that is known"))
        };
        let types = (number(op.types.first())?, number(op.types.last())?);
        let predicate = match op.get("predicate") {
            Some(_) => op.text("predicate")?.to_owned(),
            None => String::new(),
        };
        let from = self.operands(op)?;
        let to = self.target(op);
        self.push(I::Compute {
            name: op.name.clone(),
            predicate,
            types,
            to,
            from,
        })
    }

    /// Computes an op without a predicate on values of one type, and puts the result into a slot.
    pub(super) fn compute_into(
        &mut self,
        to: usize,
        name: &str,
        number: Number,
        from: Vec<usize>,
    ) -> Result<(), SyntaxError> {
        self.push(I::Compute {
            name: name.to_owned(),
            predicate: String::new(),
            types: (number, number),
            to,
            from,
        })
    }

    /// The end of a FIFO that this core has.
    fn end(&mut self, op: &Op) -> Result<usize, SyntaxError> {
        let name = op.text("objFifo_name")?;
        let is_producer = op.text("port")? == "Produce";
        let shown = format!("@{name} ({})", op.text("port")?);
        if let Some(known) = self.code.ends.iter().position(|end| end.name == shown) {
            return Ok(known);
        }
        let fifo = self.design.fifos.get(name);
        let fifo = fifo.ok_or_else(|| op.error(format!("there is no object FIFO @{name}")))?;
        let end = fifo
            .ends
            .iter()
            .find(|end| end.tile == self.tile && end.is_producer == is_producer);
        let end =
            end.ok_or_else(|| op.error(format!("{} has no such end of @{name}", self.tile)))?;
        let objects = end.buffers.iter().map(|&buffer| self.buffer(op, buffer));
        let new = EndAt {
            name: shown,
            objects: objects.collect::<Result<_, _>>()?,
            acquire: self.lock_at(op, end.acquire)?,
            release: self.lock_at(op, end.release)?,
            amount: end.amount,
        };
        self.code.ends.push(new);
        Ok(self.code.ends.len() - 1)
    }

    /// A call of a function without a body: a kernel that is known by its name, or a no-op.
    pub(super) fn kernel(&mut self, op: &Op, name: &str) -> Result<(), SyntaxError> {
        let from = self.operands(op)?;
        if let Some(result) = op.results.first() {
            return Err(op.error(format!(
                "%{result} is what a kernel of another file gives; it is not known here"
            )));
        }
        if let Some(function) = tile_kernel::find(op, name)? {
            self.note(format!("@{name} is taken for: {}", function.summary()));
            return self.push(I::CallTile(Rc::new(function), from));
        }
        let memrefs = op.types.iter().filter_map(Type::memref);
        let given: Vec<Option<MemoryView>> =
            memrefs.map(|of| whole(op, of, Base::Own(0)).ok()).collect();
        let known = kernel::find(name, &given, self.design.is_npu1());
        let Some(kernel) = known else {
            if !self.unknown.iter().any(|known| known == name) {
                self.unknown.push(name.to_owned());
            }
            // Its data moves; nothing is computed.
            return Ok(());
        };
        self.note(format!("@{name} is taken for: {}", kernel.summary));
        self.push(I::Call(kernel, from))
    }

    fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }
}

fn of_floats(of: &Type) -> bool {
    match of {
        Type::Vector(_, element) => element.is_float(),
        other => other.is_float(),
    }
}

fn whole(op: &Op, of: &MemRefType, base: Base) -> Result<MemoryView, SyntaxError> {
    let shape: Option<Vec<u64>> = of.shape.iter().copied().collect();
    match (shape, Number::in_memory(&of.element)) {
        (Some(shape), Some(number)) => Ok(MemoryView::whole(base, &shape, number)),
        _ => Err(op.error("a memref of a size that is not fixed")),
    }
}
