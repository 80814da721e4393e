//! Sequences that load configurations: `aiex.configure @device {…}` and `aiex.run @sequence(…)` within.
//!
//! A configuration of the sequence's own device is loaded already: its ops are executed there. One of another device is
//! a stage: that device, set up anew, with everything that it runs.

use super::{Argument, ArgumentPart, Design, DesignStage, ReadOptions, build, choose};
use crate::syntax::{Attribute, Op, Region, SyntaxError, Type};
use std::collections::BTreeMap;

/// Reads the configurations that a sequence loads and runs.
pub(super) fn read(
    design: &mut Design,
    ops: &[Op],
    sequence: &Op,
    options: &ReadOptions,
) -> Result<(), SyntaxError> {
    if !contains(sequence, &|op| loads(op) || op.name == "aiex.run") {
        return Ok(());
    }
    let own = if design.name.is_empty() {
        "main"
    } else {
        design.name.as_str()
    };
    let is_own = |op: &Op| !loads(op) || op.text("symbol").is_ok_and(|name| name == own);
    let body = body(sequence)?;
    if body.iter().all(is_own) {
        let mut reader = StageReader::new(design, ops, own, options);
        design.sequence = reader.inline(body)?;
        return Ok(());
    }
    let mut reader = StageReader::new(design, ops, own, options);
    let mut stages = Vec::new();
    for op in body {
        match op.name.as_str() {
            "aiex.configure" => stages.push(reader.stage(op)?),
            "arith.constant" | "aie.end" => {}
            _ if reader.view(op)? => {}
            _ => return Err(op.error("beside configurations of other devices nothing is known")),
        }
    }
    design.sequence.clear();
    design.stages = stages;
    Ok(())
}

fn loads(op: &Op) -> bool {
    op.name == "aiex.configure"
}

fn contains(op: &Op, is: &dyn Fn(&Op) -> bool) -> bool {
    let mut inner = op.regions.iter().flat_map(Region::ops);
    inner.any(|op| is(op) || contains(op, is))
}

/// The ops of a sequence, or of a configuration within one.
fn body(op: &Op) -> Result<&[Op], SyntaxError> {
    match &op.region(0)?.blocks[..] {
        [block] => Ok(&block.ops),
        _ => Err(op.error("it has several blocks")),
    }
}

/// Reader of the configurations that a sequence loads.
struct StageReader<'o> {
    ops: &'o [Op],
    own: String,
    /// Parts of the sequence's arguments by name, each with bytes of an element.
    parts: BTreeMap<String, (ArgumentPart, u64)>,
    n_runs: usize,
    /// How the sequence itself is read.
    given: &'o ReadOptions,
}

impl<'o> StageReader<'o> {
    fn new(design: &Design, ops: &'o [Op], own: &str, given: &'o ReadOptions) -> StageReader<'o> {
        let whole = |(i, argument): (usize, &Argument)| {
            let part = ArgumentPart {
                argument: i,
                offset_bytes: 0,
                bytes: argument.bytes,
            };
            (argument.name.clone(), (part, argument.of.element_bytes()))
        };
        StageReader {
            ops,
            own: own.to_owned(),
            parts: design.arguments.iter().enumerate().map(whole).collect(),
            n_runs: 0,
            given,
        }
    }

    /// Ops with those of the device's own configurations and runs in their place.
    fn inline(&mut self, ops: &[Op]) -> Result<Vec<Op>, SyntaxError> {
        let mut all = Vec::new();
        for op in ops {
            match op.name.as_str() {
                "aiex.configure" => all.extend(self.inline(body(op)?)?),
                "aiex.run" => {
                    let own = self.own.clone();
                    let (called, _) = self.called(op, &own)?;
                    all.extend(called);
                }
                _ => all.push(op.clone()),
            }
        }
        Ok(all)
    }

    /// The ops of the sequence that an op runs on a device, and the sequence's name. Names are made unique, except
    /// arguments, which get the names of the given values.
    fn called(&mut self, op: &Op, device: &str) -> Result<(Vec<Op>, String), SyntaxError> {
        let name = op.text("callee")?.to_owned();
        let options = ReadOptions {
            device: Some(device.to_owned()),
            sequence: Some(name.clone()),
            ..ReadOptions::default()
        };
        let chosen = choose::device(self.ops, &options)?;
        let inner: Vec<&Op> = chosen.device.region(0)?.ops().collect();
        let sequence = choose::sequence(&inner, &options)?;
        let sequence = sequence.ok_or_else(|| op.error(format!("there is no @{name}")))?;
        if contains(sequence, &|op| loads(op) || op.name == "aiex.run") {
            let problem = format!("@{name} loads or runs more: one level is known");
            return Err(op.error(problem));
        }
        let block = sequence.region(0)?.blocks.first();
        let arguments = block.map_or(&[][..], |block| &block.arguments);
        if arguments.len() != op.operands.len() {
            let (n, given) = (arguments.len(), op.operands.len());
            return Err(op.error(format!("@{name} has {n} arguments, {given} are given")));
        }
        self.n_runs += 1;
        let prefix = format!("run{}.", self.n_runs);
        let mut called = body(sequence)?.to_vec();
        called.retain(|op| op.name != "aie.end");
        let given: BTreeMap<&str, &str> = (arguments.iter().map(|row| row.0.as_str()))
            .zip(op.operands.iter().map(String::as_str))
            .collect();
        let outside: Vec<&str> = inner
            .iter()
            .flat_map(|op| &op.results)
            .map(String::as_str)
            .collect();
        let names = |name: &str| match given.get(name) {
            Some(outer) => (*outer).to_owned(),
            None if outside.contains(&name) => name.to_owned(),
            None => format!("{prefix}{name}"),
        };
        called.iter_mut().for_each(|op| op.rename(&names));
        Ok((called, name))
    }

    /// Another device, and the sequence that is run there.
    fn stage(&mut self, op: &Op) -> Result<DesignStage, SyntaxError> {
        op.only(&["symbol"])?;
        let device = op.text("symbol")?.to_owned();
        let mut sequence = Vec::new();
        let mut first = None;
        let mut given: Vec<String> = Vec::new();
        for op in body(op)? {
            match op.name.as_str() {
                "aiex.run" => {
                    let (called, name) = self.called(op, &device)?;
                    sequence.extend(called);
                    first.get_or_insert(name);
                    given.extend(op.operands.iter().cloned());
                }
                "arith.constant" | "aie.end" => {}
                _ if self.view(op)? => {}
                _ => return Err(op.error("in a configuration sequences are run, and nothing else")),
            }
        }
        let options = ReadOptions {
            device: Some(device),
            sequence: Some(first.ok_or_else(|| op.error("it runs nothing"))?),
            ..self.given.clone()
        };
        let mut design = build::design(self.ops, &options)?;
        let types = run_types(op)?;
        let (mut arguments, mut parts): (Vec<Argument>, Vec<ArgumentPart>) = Default::default();
        for (name, of) in given.iter().zip(types) {
            let (part, _) = self.part(op, name)?;
            if arguments.iter().any(|argument| argument.name == *name) {
                continue;
            }
            let overlaps = |other: &ArgumentPart| {
                let end = |of: &ArgumentPart| of.offset_bytes + of.bytes;
                other.argument == part.argument
                    && other.offset_bytes < end(&part)
                    && part.offset_bytes < end(other)
            };
            if parts.iter().any(overlaps) {
                return Err(op.error(format!(
                    "%{name} overlaps with another part that it is given"
                )));
            }
            let of = of.memref().filter(|of| of.bytes() == Some(part.bytes));
            let of =
                of.ok_or_else(|| op.error(format!("%{name} is no memref of its part's size")))?;
            arguments.push(Argument {
                name: name.clone(),
                of: of.clone(),
                bytes: part.bytes,
                given: None,
            });
            parts.push(part);
        }
        design.arguments = arguments;
        design.sequence = sequence;
        no_control_packets(&design.sequence)?;
        Ok(DesignStage { design, parts })
    }

    fn part(&self, op: &Op, name: &str) -> Result<(ArgumentPart, u64), SyntaxError> {
        let found = self.parts.get(name).copied();
        found.ok_or_else(|| {
            op.error(format!(
                "%{name} is no argument of the sequence, or part of one"
            ))
        })
    }

    /// Records a part of an argument; `false` if the op defines none.
    fn view(&mut self, op: &Op) -> Result<bool, SyntaxError> {
        let is_view = matches!(
            op.name.as_str(),
            "memref.subview"
                | "memref.reinterpret_cast"
                | "memref.cast"
                | "memref.collapse_shape"
                | "memref.expand_shape"
                | "memref.assume_alignment"
        );
        let Some(result) = op.results.first().filter(|_| is_view) else {
            return Ok(is_view);
        };
        let (of, element_bytes) = self.part(op, op.operand(0)?)?;
        let mut part = of;
        if matches!(
            op.name.as_str(),
            "memref.subview" | "memref.reinterpret_cast"
        ) {
            let list = |name| op.get(name).and_then(Attribute::integers);
            let (Some(offsets), Some(sizes), Some(strides)) =
                (list("offsets"), list("sizes"), list("strides"))
            else {
                return Err(op.error("offsets, sizes and strides that are numbers are known"));
            };
            let ([offset], [size], [1]) = (&offsets[..], &sizes[..], &strides[..]) else {
                return Err(op.error("a part of one dimension, its elements in a row, is known"));
            };
            let bytes = |n: i64| {
                let n = u64::try_from(n).ok()?;
                n.checked_mul(element_bytes)
            };
            let (Some(offset), Some(bytes)) = (bytes(*offset), bytes(*size)) else {
                return Err(op.error("a part out of range"));
            };
            if offset.checked_add(bytes).is_none_or(|end| end > of.bytes) {
                let problem = format!("bytes {offset} and {bytes} more of {}", of.bytes);
                return Err(op.error(problem));
            }
            part.offset_bytes += offset;
            part.bytes = bytes;
        }
        self.parts.insert(result.clone(), (part, element_bytes));
        Ok(true)
    }
}

/// Types of all that the runs of a configuration are given.
fn run_types(op: &Op) -> Result<Vec<&Type>, SyntaxError> {
    let runs = body(op)?.iter().filter(|op| op.name == "aiex.run");
    Ok(runs.flat_map(|run| &run.types).collect())
}

/// Refuses control packets of a configuration that is loaded in mid-sequence.
fn no_control_packets(sequence: &[Op]) -> Result<(), SyntaxError> {
    let packet = sequence.iter().find(|op| op.name == "aiex.control_packet");
    packet.map_or(Ok(()), |packet| {
        Err(packet.error(
            "control packets of a configuration that a sequence loads; run its device by itself",
        ))
    })
}
