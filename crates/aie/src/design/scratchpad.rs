//! Parameters that cores and descriptors take from the host's scratchpad, in terms of firmware's operations.
//!
//! The lowering is that of mlir-aie's `aie-lower-scratchpad-parameters`. A core that reads parameters has a buffer of
//! two words for each, and waits for a lock at its start. A sequence makes the scratchpad, writes zeros to those
//! buffers, adds the words and raises the locks. Firmware clears two bits of each sum, so a host gives words for cores
//! shifted by two.

mod host;

pub(crate) use host::ScratchpadWord;
pub(in crate::design) use host::words;

use super::build::is_sequence;
use crate::syntax::{Attribute, Location, MemRefType, Op, OpBlock, SyntaxError, Type};
use std::collections::BTreeMap;

/// Words of a scratchpad, at most.
const MOST_WORDS: usize = 32;
/// Attribute of a core or a sequence that decides whether waits and operations for parameters are added.
const PREAMBLE: &str = "emit_parameter_sync_preamble";
const PARAMETER: &str = "aiex.scratchpad_parameter";
const READ: &str = "aiex.read_scratchpad_parameter";
const MARKER: &str = "aiex.sync_scratchpad_parameters_from_host";

/// A parameter that a text declares.
struct Parameter {
    entry: u8,
    of: Type,
    /// Whether descriptors are moved by it; else cores read it.
    is_offset: bool,
}

/// The parameters of a text, by name.
struct Parameters(BTreeMap<String, Parameter>);

/// Words and locks that cores of a device wait for.
#[derive(Default)]
struct CoreNeeds {
    /// Words of the scratchpad, each with the buffer that it goes to.
    buffers: Vec<(u8, String)>,
    locks: Vec<String>,
}

/// Replaces parameters by operations of firmware, buffers and locks; a text without any is unchanged.
pub(super) fn lowered(mut ops: Vec<Op>) -> Result<Vec<Op>, SyntaxError> {
    let parameters = Parameters::of(&ops)?;
    for op in &mut ops {
        parameters.rewrite(op)?;
    }
    Ok(ops)
}

impl Parameters {
    /// Reads declarations, and the uses of parameters.
    fn of(ops: &[Op]) -> Result<Parameters, SyntaxError> {
        let (mut declared, mut read, mut moving) = (Vec::new(), Vec::new(), Vec::new());
        for op in ops {
            op.visit(&mut |op| match op.name.as_str() {
                PARAMETER => declared.push(op),
                READ => read.push(op),
                _ if op.get("offset_parameter").is_some() => moving.push(op),
                _ => {}
            });
        }
        if let Some(last) = declared.get(MOST_WORDS) {
            let n = declared.len();
            let problem = format!("{n} parameters; a scratchpad has {MOST_WORDS} words");
            return Err(last.error(problem));
        }
        let mut all = BTreeMap::new();
        for (entry, op) in declared.into_iter().enumerate() {
            let name = op.text("sym_name")?;
            let names = |of: &&&Op, attribute| of.text(attribute).is_ok_and(|of| of == name);
            let is_offset = moving.iter().any(|of| names(&of, "offset_parameter"));
            if is_offset && read.iter().any(|of| names(&of, "parameter")) {
                let problem =
                    format!("cores read @{name}, and descriptors are moved by it: one of them");
                return Err(op.error(problem));
            }
            let parameter = Parameter {
                entry: entry as u8,
                of: kind(op, is_offset)?,
                is_offset,
            };
            if all.insert(name.to_owned(), parameter).is_some() {
                return Err(op.error(format!("a second parameter @{name}")));
            }
        }
        Ok(Parameters(all))
    }

    fn find(&self, op: &Op, attribute: &str) -> Result<(&str, &Parameter), SyntaxError> {
        let name = op.text(attribute)?;
        let found = self.0.get_key_value(name);
        let found = found.map(|(name, parameter)| (name.as_str(), parameter));
        found.ok_or_else(|| op.error(format!("there is no `{PARAMETER}` @{name}")))
    }

    /// Rewrites devices, and adds its word to each declaration.
    fn rewrite(&self, op: &mut Op) -> Result<(), SyntaxError> {
        match op.name.as_str() {
            PARAMETER => {
                let parameter = self.find(op, "sym_name")?.1;
                op.attributes
                    .retain(|row| !matches!(row.0.as_str(), "state_table_idx" | "kind"));
                op.set(
                    "state_table_idx",
                    Attribute::Integer(parameter.entry.into()),
                );
                op.set("is_offset", Attribute::Bool(parameter.is_offset));
                Ok(())
            }
            "aie.device" => self.device(op),
            _ => {
                let mut inner = op.blocks_mut().flat_map(|block| &mut block.ops);
                inner.try_for_each(|op| self.rewrite(op))
            }
        }
    }

    fn device(&self, device: &mut Op) -> Result<(), SyntaxError> {
        let (mut needs, mut is_used) = (CoreNeeds::default(), false);
        device.visit(&mut |op| {
            is_used |= op.name == READ
                || op.get("offset_parameter").is_some()
                || op.get("offset_state_table_idx").is_some();
        });
        for block in device.blocks_mut() {
            let mut ops = Vec::new();
            for mut op in std::mem::take(&mut block.ops) {
                if op.name == "aie.core" {
                    self.core(&mut op, &mut ops, &mut needs)?;
                }
                ops.push(op);
            }
            for op in &mut ops {
                self.move_by_entries(op)?;
                if is_sequence(op) {
                    self.sequence(op, &needs, is_used)?;
                }
            }
            block.ops = ops;
        }
        Ok(())
    }

    /// Gives descriptors the word's number in place of the parameter's name.
    fn move_by_entries(&self, op: &mut Op) -> Result<(), SyntaxError> {
        if op.get("offset_parameter").is_some() {
            let entry = self.find(op, "offset_parameter")?.1.entry;
            op.attributes.retain(|row| row.0 != "offset_parameter");
            op.set("offset_state_table_idx", Attribute::Integer(entry.into()));
        }
        let mut inner = op.blocks_mut().flat_map(|block| &mut block.ops);
        inner.try_for_each(|op| self.move_by_entries(op))
    }

    /// Adds buffers and a lock for a core that reads parameters, to be put before it.
    fn core(
        &self,
        core: &mut Op,
        before: &mut Vec<Op>,
        needs: &mut CoreNeeds,
    ) -> Result<(), SyntaxError> {
        let tile = core.operand(0)?.to_owned();
        let mut read = Vec::new();
        core.visit(&mut |op| read.extend((op.name == READ).then_some(op)));
        let mut names: Vec<(u8, String)> = Vec::new();
        for op in read {
            let (name, parameter) = self.find(op, "parameter")?;
            let buffer = buffer_name(name, &tile);
            if !names.iter().any(|row| row.1 == buffer) {
                names.push((parameter.entry, buffer));
            }
        }
        let waits = taken_flag(core, PREAMBLE).unwrap_or(!names.is_empty());
        for block in core.blocks_mut() {
            self.load(block, &tile)?;
        }
        for (_, name) in &names {
            let types = vec![Type::MemRef(Box::new(MemRefType::words(2)))];
            let mut buffer = made("aie.buffer", core.at, (&[&tile], Some(name)), types);
            buffer.set("sym_name", Attribute::Symbol(name.clone()));
            before.push(buffer);
        }
        needs.buffers.extend(names);
        if waits {
            let name = format!("parameters of %{tile}");
            let mut lock = made("aie.lock", core.at, (&[&tile], Some(&name)), Vec::new());
            lock.set("init", Attribute::Integer(0));
            lock.set("sym_name", Attribute::Symbol(name.clone()));
            before.push(lock);
            let mut wait = made("aie.use_lock", core.at, (&[&name], None), Vec::new());
            wait.set("action", Attribute::Word("Acquire".to_owned()));
            wait.set("value", Attribute::Integer(1));
            if let Some(first) = core.blocks_mut().next() {
                first.ops.insert(0, wait);
            }
            needs.locks.push(name);
        }
        Ok(())
    }

    /// Loads of buffers in the place of reads.
    fn load(&self, block: &mut OpBlock, tile: &str) -> Result<(), SyntaxError> {
        let mut ops = Vec::new();
        for mut op in std::mem::take(&mut block.ops) {
            if op.name == READ {
                let (name, parameter) = self.find(&op, "parameter")?;
                if op.types.first() != Some(&parameter.of) {
                    return Err(op.error(format!("@{name} is declared with another type")));
                }
                ops.extend(loaded(&op, &buffer_name(name, tile), &parameter.of)?);
                continue;
            }
            for inner in op.blocks_mut() {
                self.load(inner, tile)?;
            }
            ops.push(op);
        }
        block.ops = ops;
        Ok(())
    }

    /// Operations in the place of markers; where a sequence has none, at its beginning.
    fn sequence(
        &self,
        sequence: &mut Op,
        needs: &CoreNeeds,
        is_used: bool,
    ) -> Result<(), SyntaxError> {
        let mut is_marked = false;
        sequence.visit(&mut |op| is_marked |= op.name == MARKER);
        let asked = taken_flag(sequence, PREAMBLE);
        if asked.unwrap_or(is_used && !is_marked && !self.0.is_empty()) {
            let marker = Op::new(MARKER, sequence.at);
            if let Some(first) = sequence.blocks_mut().next() {
                first.ops.insert(0, marker);
            }
        }
        for block in sequence.blocks_mut() {
            self.synchronize(block, needs);
        }
        Ok(())
    }

    fn synchronize(&self, block: &mut OpBlock, needs: &CoreNeeds) {
        let mut ops = Vec::new();
        for mut op in std::mem::take(&mut block.ops) {
            if op.name == MARKER {
                ops.extend(self.synchronization(op.at, needs));
                continue;
            }
            for inner in op.blocks_mut() {
                self.synchronize(inner, needs);
            }
            ops.push(op);
        }
        block.ops = ops;
    }

    /// Operations of firmware at a marker.
    fn synchronization(&self, at: Location, needs: &CoreNeeds) -> Vec<Op> {
        let mut create = Op::new("aiex.npu.create_scratchpad", at);
        create.set("size", Attribute::Integer(4 * self.0.len() as i64));
        let mut ops = vec![create];
        for (entry, buffer) in &needs.buffers {
            let mut clear = Op::new("aiex.npu.write32", at);
            clear.set("value", Attribute::Integer(0));
            let mut update = Op::new("aiex.npu.update_from_scratchpad", at);
            update.set("state_table_idx", Attribute::Integer((*entry).into()));
            for mut op in [clear, update] {
                op.set("address", Attribute::Integer(0));
                op.set("buffer", Attribute::Symbol(buffer.clone()));
                ops.push(op);
            }
        }
        for lock in &needs.locks {
            let mut set = made("aiex.set_lock", at, (&[lock], None), Vec::new());
            set.set("value", Attribute::Integer(1));
            ops.push(set);
        }
        ops
    }
}

/// No name of a text has blanks.
fn buffer_name(parameter: &str, tile: &str) -> String {
    format!("parameter {parameter} of %{tile}")
}

/// The type of a parameter, if firmware can pass it.
fn kind(op: &Op, is_offset: bool) -> Result<Type, SyntaxError> {
    let of = op.types.first().cloned();
    let of = of.ok_or_else(|| op.error("it has no type"))?;
    let is_known = match of {
        Type::Bf16 => !is_offset,
        Type::Integer { bits, .. } => bits == 32 || (1..32).contains(&bits) && !is_offset,
        _ => false,
    };
    match (is_known, is_offset) {
        (true, _) => Ok(of),
        (false, true) => Err(op.error(format!(
            "a parameter that moves descriptors is i32, not {of}"
        ))),
        (false, false) => {
            Err(op.error(format!("a core's parameter is bf16 or up to i32, not {of}")))
        }
    }
}

/// Takes an attribute off the op, and returns its value.
fn taken_flag(op: &mut Op, name: &str) -> Option<bool> {
    let value = op.get(name).map(|value| value.integer() != Some(0));
    op.attributes.retain(|row| row.0 != name);
    value
}

fn made(
    name: &str,
    at: Location,
    (operands, result): (&[&str], Option<&str>),
    types: Vec<Type>,
) -> Op {
    let mut op = Op::new(name, at);
    op.operands = operands.iter().map(|name| (*name).to_owned()).collect();
    op.results.extend(result.map(str::to_owned));
    op.types = types;
    op
}

/// Ops with the result of a read: the first word of its buffer, shifted back, as its type.
fn loaded(read: &Op, buffer: &str, of: &Type) -> Result<Vec<Op>, SyntaxError> {
    let integer = |bits| Type::Integer {
        bits,
        is_unsigned: false,
    };
    let (result, at) = (read.result()?, read.at);
    let named = |what: &str| format!("{what} of %{result}");
    let [zero, word, two, bits, cut] = ["place", "word", "shift", "bits", "cut"].map(named);
    let constant = |name: &str, value, of| {
        let mut op = made("arith.constant", at, (&[], Some(name)), vec![of]);
        op.set("value", Attribute::Integer(value));
        op
    };
    let memref = Type::MemRef(Box::new(MemRefType::words(2)));
    let mut load = made("memref.load", at, (&[buffer], Some(&word)), vec![memref]);
    load.set(
        "indices",
        Attribute::Array(vec![Attribute::Value(zero.clone())]),
    );
    let shifted = |name: &str| {
        made(
            "arith.shrui",
            at,
            (&[&word, &two], Some(name)),
            vec![integer(32)],
        )
    };
    let mut ops = vec![
        constant(&zero, 0, Type::Index),
        load,
        constant(&two, 2, integer(32)),
    ];
    let narrowed = |name: &str, to: Type| {
        let types = vec![integer(32), to];
        made("arith.trunci", at, (&[&bits], Some(name)), types)
    };
    match of {
        Type::Bf16 => {
            let types = vec![integer(16), Type::Bf16];
            ops.extend([shifted(&bits), narrowed(&cut, integer(16))]);
            ops.push(made("arith.bitcast", at, (&[&cut], Some(result)), types));
        }
        Type::Integer { bits: 32, .. } => ops.push(shifted(result)),
        other => ops.extend([shifted(&bits), narrowed(result, other.clone())]),
    }
    Ok(ops)
}
