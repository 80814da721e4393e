//! Printing.

use crate::program::{
    Affine, Channel, ChannelLink, Condition, GridOrder, Herd, IndexRange, Launch, Op, Operand,
    Pattern, Place, Program, Stage, StageEnd, Transfer, Var,
};
use std::collections::HashMap;
use std::fmt::Write as _;

/// The text of a program; [`parse`](super::parse) restores an equal program.
pub fn print(program: &Program) -> String {
    let mut printer = Printer {
        out: String::new(),
        depth: 0,
    };
    printer.line(&format!("xdna2 {}", super::VERSION));
    printer.out.push('\n');
    printer.open(&format!("program {}", name(&program.name)));
    for slot in &program.slots {
        let (kind, shape) = (slot.element, list(&slot.shape));
        let role = slot.role.name();
        printer.line(&format!("slot {}: {kind}{shape} {role}", name(&slot.name)));
    }
    let slots = Names::new(program.slots.iter().map(|slot| slot.name.as_str()));
    for launch in &program.launches {
        printer.launch(launch, &slots);
    }
    printer.close();
    printer.out
}

impl std::fmt::Display for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&print(self))
    }
}

/// How things of one kind are referred to: by name, or by number where that would be ambiguous.
struct Names<'p> {
    names: Vec<&'p str>,
    counts: HashMap<&'p str, usize>,
}

impl<'p> Names<'p> {
    fn new(names: impl Iterator<Item = &'p str>) -> Names<'p> {
        let names: Vec<&str> = names.collect();
        let mut counts = HashMap::new();
        for name in &names {
            *counts.entry(*name).or_insert(0) += 1;
        }
        Names { names, counts }
    }

    /// Whether the name is unambiguous.
    fn is_clear(&self, number: usize) -> bool {
        self.names.get(number).is_some_and(|n| self.counts[n] == 1)
    }

    fn reference(&self, number: usize) -> String {
        if self.is_clear(number) {
            name(self.names[number])
        } else {
            format!("#{number}")
        }
    }
}

struct Printer {
    out: String,
    depth: usize,
}

impl Printer {
    fn line(&mut self, text: &str) {
        self.out.extend(std::iter::repeat_n("  ", self.depth));
        self.out.push_str(text);
        self.out.push('\n');
    }

    fn open(&mut self, text: &str) {
        self.line(&format!("{text} {{"));
        self.depth += 1;
    }

    fn close(&mut self) {
        self.depth -= 1;
        self.line("}");
    }

    fn launch(&mut self, launch: &Launch, slots: &Names<'_>) {
        let args: Vec<String> = launch.args.iter().map(|&a| slots.reference(a)).collect();
        self.open(&format!(
            "launch {}({})",
            name(&launch.name),
            args.join(", ")
        ));
        if !launch.grid.is_empty() {
            self.line(&format!("grid {}", list(&launch.grid)));
        }
        if launch.order == GridOrder::Streamed {
            self.line("order streamed");
        }
        if launch.resident {
            self.line("resident");
        }
        for decl in &launch.channels {
            self.line(&channel(decl));
        }
        let channels = Names::new(launch.channels.iter().map(|c| c.name.as_str()));
        for stage in &launch.stages {
            self.stage(stage, &channels);
        }
        let slot_name = |&slot: &usize| slots.names.get(slot).copied().unwrap_or("");
        let args = Names::new(launch.args.iter().map(slot_name));
        for decl in &launch.transfers {
            let reads = launch.channels.get(decl.channel).map(|c| &c.from);
            let reads = matches!(reads, Some(Place::Shim(_)));
            let arg = match launch.args.get(decl.arg) {
                Some(&slot) if slots.is_clear(slot) => args.reference(decl.arg),
                _ => format!("#{}", decl.arg),
            };
            self.line(&transfer(decl, &arg, reads, &channels));
        }
        for herd in &launch.herds {
            self.herd(herd, &channels);
        }
        self.close();
    }

    fn stage(&mut self, stage: &Stage, channels: &Names<'_>) {
        self.open(&format!(
            "stage {}{} at {}: {}{} copies {}",
            name(&stage.name),
            optional_list(&stage.dims),
            affine(&stage.col),
            stage.element,
            list(&stage.block),
            stage.copies,
        ));
        for (word, ends) in [("fill", &stage.fills), ("drain", &stage.drains)] {
            for end in ends {
                self.line(&stage_end(word, end, channels));
            }
        }
        self.close();
    }

    fn herd(&mut self, herd: &Herd, channels: &Names<'_>) {
        self.open(&format!(
            "herd {} at ({}, {}) size ({}, {})",
            name(&herd.name),
            herd.col,
            herd.row,
            herd.cols,
            herd.rows,
        ));
        for local in &herd.locals {
            let shape = list(&local.shape);
            self.line(&format!(
                "local {}: {}{shape}",
                name(&local.name),
                local.element
            ));
        }
        let locals = Names::new(herd.locals.iter().map(|l| l.name.as_str()));
        self.ops(&herd.body, channels, &locals, 0);
        self.close();
    }

    fn ops(&mut self, ops: &[Op], channels: &Names<'_>, locals: &Names<'_>, depth: usize) {
        for op in ops {
            match op {
                Op::Loop { count, body } => {
                    self.open(&format!("for l{depth} in {}", affine(count)));
                    self.ops(body, channels, locals, depth + 1);
                    self.close();
                }
                Op::If {
                    value,
                    condition,
                    then,
                    otherwise,
                } => {
                    self.open(&format!("if {} {}", affine(value), comparison(*condition)));
                    self.ops(then, channels, locals, depth);
                    if !otherwise.is_empty() {
                        self.depth -= 1;
                        self.open("} else");
                        self.ops(otherwise, channels, locals, depth);
                    }
                    self.close();
                }
                Op::Get {
                    channel,
                    index,
                    block,
                } => {
                    let channel = channels.reference(*channel) + &indices(index);
                    self.line(&format!("b{block} = get {channel}"));
                }
                Op::New {
                    channel,
                    index,
                    block,
                } => {
                    let channel = channels.reference(*channel) + &indices(index);
                    self.line(&format!("b{block} = new {channel}"));
                }
                Op::Free { block } => self.line(&format!("free b{block}")),
                Op::Put { block } => self.line(&format!("put b{block}")),
                Op::Call { .. } => {
                    let text = call(op, locals);
                    self.line(&text);
                }
            }
        }
    }
}

fn call(op: &Op, locals: &Names<'_>) -> String {
    let Op::Call {
        kernel,
        dims,
        operands,
        scalars,
        constants,
    } = op
    else {
        return String::new();
    };
    let operands: Vec<String> = operands
        .iter()
        .map(|operand| match *operand {
            Operand::Block(block) => format!("b{block}"),
            Operand::Local(local) => {
                let reference = locals.reference(local);
                match super::parse_core::block_name(&reference) {
                    Some(_) => format!("#{local}"),
                    None => reference,
                }
            }
        })
        .collect();
    let (kernel, dims) = (name(kernel), list(dims));
    let mut out = format!("call {kernel}{dims}({})", operands.join(", "));
    if !scalars.is_empty() {
        let _ = write!(out, " scalars {}", affines(scalars));
    }
    if !constants.is_empty() {
        let texts: Vec<String> = constants.iter().map(|&bits| constant(bits)).collect();
        let _ = write!(out, " constants [{}]", texts.join(", "));
    }
    out
}

fn channel(decl: &Channel) -> String {
    let mut out = format!(
        "channel {}{}: {}{} from {} to {} depth {}",
        name(&decl.name),
        optional_list(&decl.dims),
        decl.element,
        list(&decl.block),
        place(&decl.from),
        place(&decl.to),
        decl.depth,
    );
    match decl.link {
        ChannelLink::Stream => {}
        ChannelLink::Cascade => out += " link cascade",
        ChannelLink::Neighbour => out += " link neighbour",
    }
    for (word, walk) in [("send", &decl.from_pattern), ("receive", &decl.to_pattern)] {
        if let Some(walk) = walk {
            let _ = write!(out, " {word} {}", pattern(walk));
        }
    }
    out
}

fn stage_end(word: &str, end: &StageEnd, channels: &Names<'_>) -> String {
    let mut out = format!(
        "{word} {}{}",
        channels.reference(end.channel),
        indices(&end.index)
    );
    if end.each != 1 {
        let _ = write!(out, " each {}", end.each);
    }
    let _ = write!(out, " walk {}", pattern(&end.pattern));
    if end.repeat != 1 {
        let _ = write!(out, " repeat {}", end.repeat);
    }
    out
}

fn transfer(decl: &Transfer, arg: &str, reads: bool, channels: &Names<'_>) -> String {
    let arrow = if reads { "->" } else { "<-" };
    let channel = channels.reference(decl.channel) + &indices(&decl.index);
    let mut out = format!("transfer {arg} {arrow} {channel}");
    if !decl.dims.is_empty() {
        let _ = write!(out, " over {}", list(&decl.dims));
    }
    if !decl.loops.is_empty() {
        let _ = write!(out, " loops {}", affines(&decl.loops));
    }
    let _ = write!(out, " walk {}", pattern(&decl.pattern));
    out
}

fn place(place: &Place) -> String {
    match place {
        Place::Shim(col) => format!("shim({})", affine(col)),
        Place::Memory(col) => format!("memory({})", affine(col)),
        Place::Core { col, row } => format!("core({}, {})", span(col), span(row)),
    }
}

fn span(span: &IndexRange) -> String {
    match span {
        IndexRange::At(at) => affine(at),
        IndexRange::Range { start, len } => {
            format!("{start}..{}", u64::from(*start) + u64::from(*len))
        }
    }
}

fn comparison(condition: Condition) -> &'static str {
    match condition {
        Condition::Zero => "== 0",
        Condition::NotZero => "!= 0",
        Condition::Negative => "< 0",
        Condition::NotNegative => ">= 0",
    }
}

/// A constant as the shortest decimal that reads as the same `f32`; its bits if there is none.
fn constant(bits: u32) -> String {
    let value = f32::from_bits(bits);
    if value.is_finite() {
        format!("{value:?}")
    } else {
        format!("{bits:#010x}")
    }
}

fn pattern(pattern: &Pattern) -> String {
    let dims: Vec<String> = pattern
        .dims
        .iter()
        .map(|(size, stride)| format!("{}:{stride}", affine(size)))
        .collect();
    format!("{} [{}]", affine(&pattern.offset), dims.join(", "))
}

pub(super) fn affine(affine: &Affine) -> String {
    let mut out = String::new();
    for &(var, factor) in &affine.terms {
        sign(&mut out, factor < 0);
        if factor.unsigned_abs() != 1 {
            let _ = write!(out, "{}*", factor.unsigned_abs());
        }
        out += &variable(var);
    }
    if affine.constant != 0 || affine.terms.is_empty() {
        sign(&mut out, affine.constant < 0);
        let _ = write!(out, "{}", affine.constant.unsigned_abs());
    }
    out
}

fn sign(out: &mut String, negative: bool) {
    *out += match (out.is_empty(), negative) {
        (true, false) => "",
        (true, true) => "-",
        (false, false) => " + ",
        (false, true) => " - ",
    };
}

fn variable(var: Var) -> String {
    match var {
        Var::Grid(d) => format!("g{d}"),
        Var::Index(d) => format!("i{d}"),
        Var::Loop(d) => format!("l{d}"),
        Var::Each => "e".to_owned(),
        Var::X => "x".to_owned(),
        Var::Y => "y".to_owned(),
    }
}

fn affines(list: &[Affine]) -> String {
    let texts: Vec<String> = list.iter().map(affine).collect();
    format!("[{}]", texts.join(", "))
}

/// An index: nothing where the bundle has no dimension.
fn indices(index: &[Affine]) -> String {
    match index {
        [] => String::new(),
        _ => affines(index),
    }
}

fn list<T: std::fmt::Debug>(values: &[T]) -> String {
    format!("{values:?}")
}

fn optional_list(dims: &[u32]) -> String {
    match dims {
        [] => String::new(),
        _ => list(dims),
    }
}

/// A name in the spelling of the text.
fn name(name: &str) -> String {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if begins && name.chars().all(word) {
        name.to_owned()
    } else {
        format!("\"{}\"", name.escape_debug())
    }
}
