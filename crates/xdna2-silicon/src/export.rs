//! Launches as designs in MLIR's aie dialect, for a toolchain that compiles the cores' code.
//!
//! The level is the physical one: tiles, buffers with addresses, locks and descriptors with numbers, DMA
//! programs, streams between DMA channels, and a sequence of tasks. [`mod@crate::lower`] made all these decisions, so
//! that a design and the words of its launch move the same bytes. Ways of streams are left to
//! mlir-aie's router. Cores call a function for every tile kernel; [`KernelFunction`] has its C++ shell.
//! Nothing here has run on hardware.

mod cascade;
mod core;
mod descriptor;
mod emit;
mod shell;

pub use shell::KernelFunction;

use crate::lower::cores::{place_of_address, place_of_lock};
use crate::lower::places::{OWN_LOCKS, OWN_WORDS, Places, Ring, TileBuffer};
use crate::lower::shim::{DescriptorNumbers, ShimCommand, ShimTask, commands};
use crate::lower::{NoWords, WordsError, verified};
use core::CoreText;
use descriptor::{DescriptorText, memref};
use millrace_npu::Element;
use millrace_xdna2_machine::Machine;
use millrace_xdna2_machine::program::{Flat, Program};
use millrace_xdna2_words::WordField as F;
use millrace_xdna2_words::tile::{Tile, TileKind};
use millrace_xdna2_words::writer::ChannelAt;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;

/// The file with the kernels' object code, as cores name it.
pub const KERNELS_FILE: &str = "kernels.a";

/// A launch as a design.
#[derive(Clone, Debug)]
pub struct LaunchDesign {
    /// Its name in the program.
    pub launch: String,
    /// The program's slots that are the arguments of its sequence, in their order.
    pub arguments: Vec<usize>,
    /// The design.
    pub text: String,
    /// The functions that its cores call.
    pub kernels: Vec<KernelFunction>,
}

/// Every launch of a program as a design, or why it has none.
///
/// # Errors
/// The verifier's first refusal of the program.
pub fn designs(
    program: &Program,
    machine: &Machine,
) -> Result<Vec<Result<LaunchDesign, WordsError>>, WordsError> {
    let design = |flat: &Flat<'_>| {
        let named = |error: NoWords| error.of_launch(flat.launch.name.clone());
        design(program, flat, machine).map_err(named)
    };
    Ok(verified(program, machine)?.iter().map(design).collect())
}

fn design(program: &Program, flat: &Flat<'_>, machine: &Machine) -> Result<LaunchDesign, NoWords> {
    let places = Places::new(flat, machine)?;
    let commands = commands(program, flat, &places)?;
    let arguments = arguments(&commands);
    let design = DesignText::new(flat, &places);
    let mut device = String::new();
    design.tiles(&commands, &mut device);
    design.memory(&mut device)?;
    design.streams(&mut device)?;
    for tile in Tile::all() {
        design.dma(tile, &mut device)?;
    }
    let mut kernels = BTreeMap::new();
    let mut cores = String::new();
    for number in 0..places.cores.len() {
        let core = CoreText::new(&design, number, &mut kernels);
        cores.push_str(&core.text(machine.stack_bytes)?);
    }
    for kernel in kernels.values() {
        let _ = writeln!(device, "    {}", kernel.declaration()?);
    }
    device.push_str(&cores);
    design.sequence(program, &arguments, &commands, &mut device)?;
    let title = format!(
        "// Launch `{}` of `{}`, printed by Millrace. Never run on hardware.\n",
        flat.launch.name, program.name
    );
    Ok(LaunchDesign {
        launch: flat.launch.name.clone(),
        arguments,
        text: format!("{title}module {{\n  aie.device(npu2) {{\n{device}  }}\n}}\n"),
        kernels: kernels.into_values().collect(),
    })
}

/// Slots that tasks move, in the order of their first task.
fn arguments(commands: &[ShimCommand]) -> Vec<usize> {
    let mut slots = Vec::new();
    for command in commands {
        if let ShimCommand::Push(task) = command
            && !slots.contains(&(task.slot as usize))
        {
            slots.push(task.slot as usize);
        }
    }
    slots
}

/// State shared by the parts of a design: places and names.
struct DesignText<'a> {
    flat: &'a Flat<'a>,
    places: &'a Places,
    /// Buffers by tile and address: name and buffer.
    buffers: BTreeMap<(Tile, u64), (String, &'a TileBuffer)>,
}

/// A tile's name.
fn tile_name(tile: Tile) -> String {
    format!("%t{}_{}", tile.col, tile.row)
}

fn lock_name(tile: Tile, number: u64) -> String {
    format!("{}_l{number}", tile_name(tile))
}

impl<'a> DesignText<'a> {
    fn new(flat: &'a Flat<'a>, places: &'a Places) -> DesignText<'a> {
        let mut buffers: BTreeMap<(Tile, u64), (String, &TileBuffer)> = BTreeMap::new();
        for buffer in &places.buffers {
            let name = format!("{}_b{:x}", tile_name(buffer.tile), buffer.address);
            buffers.insert((buffer.tile, buffer.address), (name, buffer));
        }
        DesignText {
            flat,
            places,
            buffers,
        }
    }

    /// The buffer that contains a byte of a tile, and the byte's offset in it.
    fn buffer(&self, tile: Tile, byte: u64) -> Result<(&str, &TileBuffer, u64), NoWords> {
        let found = self.buffers.range((tile, 0)..=(tile, byte)).next_back();
        let found = found.map(|(_, (name, buffer))| (&**name, *buffer, byte - buffer.address));
        found.ok_or_else(|| NoWords::new(tile.to_string(), format!("no buffer at byte {byte:#x}")))
    }

    /// The buffer at an address of a core's code.
    fn buffer_of_core(&self, core: Tile, address: u32) -> Result<(&str, &TileBuffer), NoWords> {
        let unknown = || NoWords::new(core.to_string(), format!("no memory at {address:#x}"));
        let (tile, byte) = place_of_address(core, address).ok_or_else(unknown)?;
        let (name, buffer, _) = self.buffer(tile, byte)?;
        Ok((name, buffer))
    }

    /// The lock of a number in a core's code.
    fn lock_of_core(core: Tile, lock: u8) -> Result<String, NoWords> {
        let unknown = || NoWords::new(core.to_string(), format!("no lock {lock}"));
        let (tile, number) = place_of_lock(core, lock).ok_or_else(unknown)?;
        Ok(lock_name(tile, number.into()))
    }

    fn tiles(&self, commands: &[ShimCommand], to: &mut String) {
        let mut used: BTreeSet<Tile> = self.places.locks.iter().map(|row| row.0).collect();
        used.extend(self.places.cores.iter().map(|core| core.tile));
        used.extend(self.places.channels().iter().map(|at| at.tile));
        used.extend(commands.iter().filter_map(|command| match command {
            ShimCommand::Push(task) => Some(task.channel.tile),
            ShimCommand::Await(_) => None,
        }));
        for tile in used {
            let (name, col, row) = (tile_name(tile), tile.col, tile.row);
            let _ = writeln!(to, "    {name} = aie.tile({col}, {row})");
        }
    }

    /// Buffers and locks.
    fn memory(&self, to: &mut String) -> Result<(), NoWords> {
        for (name, buffer) in self.buffers.values() {
            let of = memref(buffer.element, buffer.n_elements)?;
            let (tile, symbol) = (tile_name(buffer.tile), &name[1..]);
            let _ = writeln!(
                to,
                "    {name} = aie.buffer({tile}) {{address = {} : i32, sym_name = \"{symbol}\"}} : {of} // {}",
                buffer.address, buffer.owner
            );
        }
        for &(tile, number, initial) in &self.places.locks {
            let (name, tile) = (lock_name(tile, number.into()), tile_name(tile));
            let _ = writeln!(
                to,
                "    {name} = aie.lock({tile}, {number}) {{init = {initial} : i32}}"
            );
        }
        Ok(())
    }

    /// Streams between DMA channels, and cascades between cores.
    fn streams(&self, to: &mut String) -> Result<(), NoWords> {
        for stream in self.places.ends.streams(self.flat)? {
            let end = |at: ChannelAt| format!("{}, DMA : {}", tile_name(at.tile), at.number);
            for &sink in &stream.to {
                let (from, sink, name) = (end(stream.from), end(sink), &stream.name);
                let _ = writeln!(to, "    aie.flow({from}, {sink}) // {name}");
            }
        }
        for (from, sink) in self.places.cascade_links() {
            let (from, sink) = (tile_name(from), tile_name(sink));
            let _ = writeln!(to, "    aie.cascade_flow({from}, {sink})");
        }
        Ok(())
    }

    /// The DMA program of a memory tile or core.
    fn dma(&self, tile: Tile, to: &mut String) -> Result<(), NoWords> {
        let rings: Vec<&Ring> = (self.places.rings.iter())
            .filter(|ring| ring.channel.tile == tile)
            .collect();
        if rings.is_empty() {
            return Ok(());
        }
        let op = match tile.kind() {
            TileKind::Memory => "memtile_dma",
            _ => "mem",
        };
        let name = tile_name(tile);
        let _ = writeln!(to, "    {name}_dma = aie.{op}({name}) {{");
        for (number, ring) in rings.iter().enumerate() {
            if number > 0 {
                let _ = writeln!(to, "    ^start{number}:");
            }
            let first = ring.descriptors.first().map_or(0, |row| row.0);
            let behind = match number + 1 == rings.len() {
                true => "end".to_owned(),
                false => format!("start{}", number + 1),
            };
            let (way, channel) = (ring.channel.direction.name(), ring.channel.number);
            let _ = writeln!(
                to,
                "      %s{number} = aie.dma_start({way}, {channel}, ^bd{first}, ^{behind})"
            );
            for (number, fields) in &ring.descriptors {
                self.ring_descriptor(tile, *number, fields, to)?;
            }
        }
        to.push_str("    ^end:\n      aie.end\n    }\n");
        Ok(())
    }

    fn ring_descriptor(
        &self,
        tile: Tile,
        number: u8,
        fields: &[(F, u64)],
        to: &mut String,
    ) -> Result<(), NoWords> {
        let fail = |problem: String| NoWords::new(format!("{tile}, descriptor {number}"), problem);
        let get = |field: F| {
            fields
                .iter()
                .find(|row| row.0 == field)
                .map_or(0, |row| row.1)
        };
        let (first_word, first_lock) = match tile.kind() {
            TileKind::Memory => (OWN_WORDS, OWN_LOCKS),
            _ => (0, 0),
        };
        let (name, buffer, byte) = self.buffer(tile, (get(F::Base) - first_word) * 4)?;
        let of = memref(buffer.element, buffer.n_elements)?;
        let walk = DescriptorText::new(fields, buffer.element, tile.kind()).map_err(fail)?;
        let lock = |id: F| lock_name(tile, get(id) - first_lock);
        let (acquire, release) = (lock(F::AcquireId), lock(F::ReleaseId));
        let (taken, given) = (128 - get(F::AcquireValue), get(F::ReleaseValue));
        let (offset, next) = (byte / buffer.element.size_bytes(), get(F::Next));
        let _ = writeln!(
            to,
            "    ^bd{number}:\n      aie.use_lock({acquire}, AcquireGreaterEqual, {taken})\n      \
             aie.dma_bd({name} : {of}, {offset}, {walk}) {{bd_id = {number} : i32, next_bd_id = {next} : i32}}\n      \
             aie.use_lock({release}, Release, {given})\n      aie.next_bd ^bd{next}"
        );
        Ok(())
    }

    /// The shims' tasks and the waits for them.
    fn sequence(
        &self,
        program: &Program,
        arguments: &[usize],
        commands: &[ShimCommand],
        to: &mut String,
    ) -> Result<(), NoWords> {
        let type_of = |slot: usize| -> Result<(String, Element), NoWords> {
            let slot = &program.slots[slot];
            let bytes = slot.size_bytes().unwrap_or(0);
            let n_elements = bytes * 8 / slot.element.size_bits();
            Ok((memref(slot.element, n_elements)?, slot.element))
        };
        let mut types = BTreeMap::new();
        let mut list = Vec::new();
        for (number, &slot) in arguments.iter().enumerate() {
            let of = type_of(slot)?;
            list.push(format!("%arg{number}: {}", of.0));
            types.insert(slot, (number, of));
        }
        for (number, &slot) in arguments.iter().enumerate() {
            let _ = writeln!(
                to,
                "    // %arg{number}: slot `{}`",
                program.slots[slot].name
            );
        }
        let _ = writeln!(to, "    aie.runtime_sequence({}) {{", list.join(", "));
        let mut out: BTreeMap<ChannelAt, VecDeque<usize>> = BTreeMap::new();
        let mut numbers = DescriptorNumbers::default();
        let mut n_tasks = 0;
        for command in commands {
            match command {
                ShimCommand::Push(task) => {
                    let of = types.get(&(task.slot as usize)).ok_or_else(|| {
                        NoWords::new("the sequence", "a task of a slot that is no argument")
                    })?;
                    let number = numbers.next(task.channel);
                    shim_task(task, (n_tasks, number), of, to)?;
                    out.entry(task.channel).or_default().push_back(n_tasks);
                    n_tasks += 1;
                }
                ShimCommand::Await(channel) => {
                    let task = out.get_mut(channel).and_then(VecDeque::pop_front);
                    let task = task.ok_or_else(|| {
                        NoWords::new(
                            channel.tile.to_string(),
                            "a wait for a task that was not begun",
                        )
                    })?;
                    let _ = writeln!(to, "      aiex.dma_await_task(%task{task})");
                }
            }
        }
        to.push_str("    }\n");
        Ok(())
    }
}

/// A task of a shim: its declaration and its start. `argument` is its number with type and element.
fn shim_task(
    task: &ShimTask,
    (n, descriptor): (usize, u8),
    (argument, (of, element)): &(usize, (String, Element)),
    to: &mut String,
) -> Result<(), NoWords> {
    let at = task.channel;
    let fail = |problem: String| NoWords::new(format!("a task of {}", at.tile), problem);
    let walk = DescriptorText::new(&task.walk.fields, *element, TileKind::Shim).map_err(fail)?;
    let offset = task.walk.offset_bytes / element.size_bytes();
    let repeats = match task.walk.executions {
        0 | 1 => String::new(),
        n => format!(", repeat_count = {} : i32", n - 1),
    };
    let (tile, way, channel) = (tile_name(at.tile), at.direction.name(), at.number);
    let _ = writeln!(
        to,
        "      %task{n} = aiex.dma_configure_task({tile}, {way}, {channel}) {{\n        \
         aie.dma_bd(%arg{argument} : {of}, {offset}, {walk}) {{bd_id = {descriptor} : i32, burst_length = 512 : i32}}\n        \
         aie.end\n      }} {{issue_token = true{repeats}}}\n      aiex.dma_start_task(%task{n})"
    );
    Ok(())
}
