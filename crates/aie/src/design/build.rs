//! From ops to a design.

use super::{Buffer, Core, Design, Entity, Fifo, Global, Lock, ReadOptions};
use super::{
    allocation, arguments, choose, control_packet, dma, fifo, flow, logical, overlay, scope,
    scratchpad, stages, switch,
};
use crate::syntax::{Attribute, MemRefType, Op, Region, SyntaxError, Type};
use millrace_xdna2_words::Tile;
use millrace_xdna2_words::tile::{COLUMNS, TileKind};

/// Default bytes of a core's stack, as in mlir-aie.
const STACK_BYTES: i64 = 1024;

/// Most bytes of a global: it is for memories of tiles.
const MOST_GLOBAL_BYTES: u64 = 1 << 20;
/// Streams of a design, at most: the router tries them again and again.
const MOST_STREAMS: usize = 512;

/// A device of a text.
pub(super) fn design(ops: &[Op], options: &ReadOptions) -> Result<Design, SyntaxError> {
    let chosen = choose::device(ops, options)?;
    let device = chosen.device;
    let mut design = Design {
        queue_waits: options.queue_waits,
        empty_devices: chosen.empty,
        scratchpad: scratchpad::words(&chosen.outside, options)?,
        ..Design::default()
    };
    begin(&mut design, device)?;
    design.notes.extend(chosen.notes);
    for op in chosen.outside {
        file_op(&mut design, op)?;
    }
    let scoped = scope::apart(device.region(0)?);
    let body: Vec<&Op> = scoped.iter().collect();
    let logical = logical::places(&design, &body)?;
    if !logical.is_empty() {
        let places = logical.iter().map(|(name, tile)| format!("%{name} {tile}"));
        let places: Vec<String> = places.collect();
        let note = format!(
            "logical tiles stand where we put them: {}",
            places.join(", ")
        );
        design.notes.push(note);
    }
    let tiles = logical
        .into_iter()
        .map(|(name, tile)| (name, Entity::Tile(tile)));
    design.names.extend(tiles);
    // Ops that others refer to come first, wherever they are.
    for op in &body {
        declare(&mut design, op)?;
    }
    for op in &body {
        wire(&mut design, op)?;
    }
    fifo::lower(&mut design, &body)?;
    if design.flows.len() > MOST_STREAMS {
        let n = design.flows.len();
        return Err(device.error(format!("{n} streams, more than {MOST_STREAMS}")));
    }
    switch::read(&mut design, device, chosen.routed)?;
    let sequence_op = choose::sequence(&body, options)?;
    for op in &body {
        known(op)?;
    }
    if let Some(op) = sequence_op {
        arguments::read(&mut design, op, options)?;
        control_packet::lower(&mut design)?;
        overlay::add(&mut design)?;
        stages::read(&mut design, ops, op, options)?;
    }
    arguments::reach(&mut design);
    Ok(design)
}

fn begin(design: &mut Design, device: &Op) -> Result<(), SyntaxError> {
    let name = device.text("device")?;
    design.device = name.to_owned();
    if device.get("sym_name").is_some() {
        device.text("sym_name")?.clone_into(&mut design.name);
    }
    let kind = name.strip_prefix("npu2").map(|rest| (rest, 8));
    let npu1 = name.strip_prefix("npu1").map(|rest| (rest, 4));
    let older = matches!(name, "NPUDEVICE" | "npu").then_some(("", 4));
    let is_npu1 = npu1.or(older).is_some();
    let part = kind
        .or(npu1)
        .or(older)
        .and_then(|(rest, most)| part(rest, most));
    design.n_columns =
        part.ok_or_else(|| device.error(format!("the device {name} is no NPU1 or NPU2")))?;
    if is_npu1 {
        let note =
            format!("the device {name} is taken for an NPU2, whose tiles have the same registers");
        design.notes.push(note);
    }
    Ok(())
}

/// Columns of the part of an array from the rest of a device's name: `_1col`, or nothing for all.
fn part(rest: &str, most: u8) -> Option<u8> {
    if rest.is_empty() {
        return Some(COLUMNS);
    }
    let n = rest.strip_prefix('_')?.strip_suffix("col")?.parse().ok()?;
    (1..=most).contains(&n).then_some(n)
}

/// Reads an op that is outside the device, or may be anywhere in the file.
fn file_op(design: &mut Design, op: &Op) -> Result<(), SyntaxError> {
    let name = op.text("sym_name")?.to_owned();
    if op.name == "aiex.scratchpad_parameter" {
        return Ok(());
    }
    if op.name == "func.func" {
        design.functions.insert(name, op.clone());
        return Ok(());
    }
    let of = memref(op)?;
    if of.bytes().is_none_or(|bytes| bytes > MOST_GLOBAL_BYTES) {
        return Err(op.error(format!("a global of more than {MOST_GLOBAL_BYTES} bytes")));
    }
    let bytes = initial(op, of)?;
    design.globals.insert(
        name,
        Global {
            of: of.clone(),
            bytes,
        },
    );
    Ok(())
}

/// The memref that an op's first type is.
fn memref(op: &Op) -> Result<&MemRefType, SyntaxError> {
    let of = op.types.iter().find_map(Type::memref);
    of.filter(|of| of.bytes().is_some())
        .ok_or_else(|| op.error("its type is no memref of a fixed size"))
}

fn initial(op: &Op, of: &MemRefType) -> Result<Option<Vec<u8>>, SyntaxError> {
    match op.get("initial_value") {
        None => Ok(None),
        Some(Attribute::Dense(dense)) => {
            let bytes = dense.bytes(&Type::MemRef(Box::new(of.clone())));
            bytes.map(Some).map_err(|problem| op.error(problem))
        }
        Some(_) => Err(op.error("its first value is not `dense<…>`")),
    }
}

/// Tiles, buffers, locks, names of shims' channels, functions, cores.
fn declare(design: &mut Design, op: &Op) -> Result<(), SyntaxError> {
    match op.name.as_str() {
        "aie.tile" => {
            op.only(&[
                "col",
                "row",
                "controller_id",
                "sym_name",
                "allocation_scheme",
            ])?;
            let place = (op.integer("col")?, op.integer("row")?);
            let new = |(col, row): (i64, i64)| {
                Tile::new(u32::try_from(col).ok()?, u32::try_from(row).ok()?)
            };
            let tile = new(place);
            let tile = tile.ok_or_else(|| op.error(format!("an NPU2 has no tile {place:?}")))?;
            if tile.col >= design.n_columns {
                let (device, n) = (&design.device, design.n_columns);
                let columns = if n == 1 { "column" } else { "columns" };
                let problem = format!("{device} has {n} {columns}, and no tile {place:?}");
                return Err(op.error(problem));
            }
            if let Some(id) = op.get("controller_id").and_then(|of| of.field("pkt_id")) {
                let id = id.integer().and_then(|id| u8::try_from(id).ok());
                let id = id.filter(|&id| id < 32);
                let id = id.ok_or_else(|| op.error("ids of packets are 0 to 31"))?;
                design.controllers.insert(tile, id);
            }
            name(design, op, Entity::Tile(tile))
        }
        "aie.buffer" => buffer(design, op),
        "aie.lock" => lock(design, op),
        "aie.shim_dma_allocation" => allocation::read(design, op),
        // Buffers and locks that only a DMA program uses may be in it.
        "aie.mem" | "aie.memtile_dma" | "aie.shim_dma" => {
            let inner = op.regions.iter().flat_map(Region::ops);
            let mut inner =
                inner.filter(|op| matches!(op.name.as_str(), "aie.buffer" | "aie.lock"));
            inner.try_for_each(|op| declare(design, op))
        }
        "arith.constant" => match op.get("value") {
            Some(Attribute::Integer(value)) => name(design, op, Entity::Constant(*value)),
            _ => Err(op.error("a device's constants are whole numbers")),
        },
        "func.func" if is_sequence(op) => Ok(()),
        "func.func" | "memref.global" => file_op(design, op),
        "aie.bd_chain" => {
            let name = op.text("sym_name")?.to_owned();
            design.named_chains.insert(name, op.clone());
            Ok(())
        }
        "aie.trace" => {
            if !std::mem::replace(&mut design.has_traces, true) {
                let note = "traces are not recorded, and their packets are not sent";
                design.notes.push(note.to_owned());
            }
            Ok(())
        }
        "aie.objectfifo" => {
            let name = op.text("sym_name")?.to_owned();
            let twice = design.fifos.insert(name, Fifo::default());
            twice.map_or(Ok(()), |_| {
                Err(op.error("a second object FIFO of that name"))
            })
        }
        _ => Ok(()),
    }
}

fn name(design: &mut Design, op: &Op, entity: Entity) -> Result<(), SyntaxError> {
    if let Some(result) = op.results.first() {
        design.names.insert(result.clone(), entity);
    }
    if op.get("sym_name").is_some() {
        let symbol = op.text("sym_name")?.to_owned();
        design.symbols.insert(symbol, entity);
    }
    Ok(())
}

/// The name of an object in reports.
fn shown(op: &Op, otherwise: &str, number: usize) -> String {
    match (op.get("sym_name"), op.results.first()) {
        (Some(Attribute::Symbol(name) | Attribute::Text(name)), _) => name.clone(),
        (_, Some(name)) => format!("%{name}"),
        _ => format!("{otherwise} {number}"),
    }
}

fn buffer(design: &mut Design, op: &Op) -> Result<(), SyntaxError> {
    op.only(&["address", "mem_bank", "sym_name", "initial_value"])?;
    let tile = design.tile(op, op.operand(0)?)?;
    let of = memref(op)?.clone();
    let bytes = of.bytes().unwrap_or(0);
    if bytes > u64::from(tile.kind().data_bytes()) {
        let most = tile.kind().data_bytes();
        return Err(op.error(format!("{bytes} bytes; {tile} has {most}")));
    }
    let address = match op.get("address") {
        Some(_) => Some(op.number::<u32>("address")?),
        None => None,
    };
    let number = design.buffers.len();
    let initial = initial(op, &of)?;
    design.buffers.push(Buffer {
        name: shown(op, "buffer", number),
        tile,
        of,
        bytes: bytes as u32,
        address,
        initial,
        at: op.at,
    });
    name(design, op, Entity::Buffer(number))
}

fn lock(design: &mut Design, op: &Op) -> Result<(), SyntaxError> {
    op.only(&["lockID", "init", "sym_name"])?;
    let tile = design.tile(op, op.operand(0)?)?;
    let number = match op.get("lockID") {
        Some(_) => Some(op.number::<u8>("lockID")?),
        None => None,
    };
    if number.is_some_and(|number| number >= tile.kind().locks()) {
        return Err(op.error(format!("{tile} has {} locks", tile.kind().locks())));
    }
    let initial = op.integer_or("init", 0)?;
    let initial = u8::try_from(initial).ok().filter(|&value| value < 64);
    let initial = initial.ok_or_else(|| op.error("a lock holds 0 to 63"))?;
    let lock = design.locks.len();
    design.locks.push(Lock {
        name: shown(op, "lock", lock),
        tile,
        number,
        initial,
        at: op.at,
    });
    name(design, op, Entity::Lock(lock))
}

/// DMA programs, flows and cores.
fn wire(design: &mut Design, op: &Op) -> Result<(), SyntaxError> {
    match op.name.as_str() {
        "aie.mem" | "aie.memtile_dma" | "aie.shim_dma" => dma::program(design, op),
        "aie.flow" => flow::circuit(design, op),
        "aie.packet_flow" => flow::packets(design, op),
        "aie.cascade_flow" => flow::cascade(design, op),
        "aie.core" => {
            op.only(&[
                "stack_size",
                "data_size",
                "link_with",
                "link_files",
                "elf_file",
                "dynamic_objfifo_lowering",
            ])?;
            let tile = design.tile(op, op.operand(0)?)?;
            if tile.kind() != TileKind::Core {
                return Err(op.error(format!("{tile} has no core")));
            }
            if design.cores.iter().any(|core| core.tile == tile) {
                return Err(op.error(format!("a second program of {tile}")));
            }
            let has_program = op.region(0)?.ops().any(|op| op.name != "aie.end");
            if let (Some(Attribute::Text(file)), false) = (op.get("elf_file"), has_program) {
                return Err(op.error(format!("its program is in {file}, which is not read here")));
            }
            let stack = op.integer_or("stack_size", STACK_BYTES)?;
            let stack = u32::try_from(stack).ok().filter(|&bytes| bytes <= 0x10000);
            let stack_bytes = stack.ok_or_else(|| op.error("a stack larger than the memory"))?;
            design.cores.push(Core {
                tile,
                op: op.clone(),
                stack_bytes,
            });
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Whether a function is a sequence in the spelling of 2024.
pub(super) fn is_sequence(op: &Op) -> bool {
    match op.name.as_str() {
        "aie.runtime_sequence" | "aiex.runtime_sequence" => true,
        "func.func" => {
            let mut ops = op.regions.iter().flat_map(Region::ops);
            ops.any(|op| op.name.starts_with("aiex."))
        }
        _ => false,
    }
}

/// Refuses ops that are not known here.
fn known(op: &Op) -> Result<(), SyntaxError> {
    const KNOWN: [&str; 25] = [
        "aie.tile",
        "aie.buffer",
        "aie.lock",
        "aie.shim_dma_allocation",
        "arith.constant",
        "func.func",
        "memref.global",
        "aie.objectfifo",
        "aie.objectfifo.link",
        "aie.objectfifo.allocate",
        "aie.mem",
        "aie.memtile_dma",
        "aie.shim_dma",
        "aie.flow",
        "aie.packet_flow",
        "aie.cascade_flow",
        "aie.core",
        "aie.switchbox",
        "aie.shim_mux",
        // It describes wires that every array has.
        "aie.wire",
        "aie.logical_tile",
        "aie.trace",
        "aie.bd_chain",
        "aie.end",
        "aie.runtime_sequence",
    ];
    match KNOWN.contains(&op.name.as_str()) || is_sequence(op) {
        true => Ok(()),
        false => Err(op.error("it does not stand in a device by itself")),
    }
}
