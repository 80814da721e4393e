//! The text form, written. One statement a line.

use super::{
    Command, Context, Dma, Engine, LaneMode, Place, Program, ReduceOp, Side, SliceKernel, Stage,
    TensorSharding, Topology, VectorOp, VectorOperand, View,
};
use std::fmt::Write;

/// Words for the variants of an enum in the text form.
macro_rules! words {
    ($type:ident { $($variant:ident $word:literal,)* }) => {
        impl $type {
            /// The word in the text form.
            pub const fn word(self) -> &'static str {
                match self { $($type::$variant => $word,)* }
            }

            /// The variant of that word.
            pub(crate) fn from_word(word: &str) -> Option<$type> {
                [$($type::$variant,)*].into_iter().find(|one| one.word() == word)
            }
        }
    };
}

words!(Topology {
    Forwarding "forwarding",
    Broadcast01 "broadcast01",
    Broadcast1 "broadcast1",
    Transpose "transpose",
    InterTranspose "inter_transpose",
    TransposedBroadcast1 "transposed_broadcast1",
    CustomBroadcast "custom_broadcast",
});
words!(LaneMode { Interleaved "interleaved", Sequential "sequential", });
words!(ReduceOp { Add "add", Max "max", Min "min", });
words!(Context { Main "main", Sub "sub", });
words!(VectorOp {
    FixedToFloat "fixed_to_float",
    Add "add",
    Sub "sub",
    Mul0 "mul0",
    Mul1 "mul1",
    Exp "exp",
    Sqrt "sqrt",
    Sigmoid "sigmoid",
    Div "div",
    DivBy "div_by",
    Max "max",
    Min "min",
    FloatToFixed "float_to_fixed",
});

/// The text form of a program.
pub fn print(program: &Program) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write(program, &mut out);
    out
}

fn write(program: &Program, out: &mut String) -> std::fmt::Result {
    writeln!(out, "tcp 1\n\nprogram {} {{", program.name)?;
    for (name, size) in program.axes.iter() {
        writeln!(out, "  axis {name} = {size}")?;
    }
    for tensor in &program.tensors {
        let (name, element) = (&tensor.name, tensor.element);
        let spread = |s: &TensorSharding| format!("cluster {} slice {}", s.cluster, s.slice);
        match &tensor.place {
            Place::Hbm { role, layout } => {
                writeln!(out, "  hbm {name}: {element} {} {layout}", role.name())?;
            }
            Place::Dm {
                spread: s,
                layout,
                address,
            } => writeln!(
                out,
                "  dm {name}: {element} at {address} {} element {layout}",
                spread(s)
            )?,
            Place::Trf {
                spread: s,
                lane,
                layout,
                address,
            } => writeln!(
                out,
                "  trf {name}: {element} at {address} {} lane {lane} element {layout}",
                spread(s)
            )?,
            Place::Vrf {
                spread: s,
                layout,
                address,
            } => writeln!(
                out,
                "  vrf {name}: {element} at {address} {} element {layout}",
                spread(s)
            )?,
        }
    }
    for command in &program.commands {
        match command {
            Command::Dma(dma) => write_dma(program, dma, out)?,
            Command::Kernel(kernel) => write_kernel(program, kernel, out)?,
        }
    }
    writeln!(out, "}}")
}

/// A view: `w[N + 1024, r as f]`.
fn view(program: &Program, view: &View) -> String {
    let mut parts: Vec<String> = Vec::new();
    parts.extend(view.offsets.iter().map(|(axis, n)| format!("{axis} + {n}")));
    parts.extend(
        view.renames
            .iter()
            .map(|(axis, to)| format!("{axis} as {to}")),
    );
    let name = &program.tensors[view.tensor].name;
    match parts.is_empty() {
        true => name.clone(),
        false => format!("{name}[{}]", parts.join(", ")),
    }
}

fn write_dma(program: &Program, dma: &Dma, out: &mut String) -> std::fmt::Result {
    match dma.engine {
        Engine::Tdma { first, count } => write!(out, "  tdma {first} {count} {}", dma.name)?,
        Engine::Pdma => write!(out, "  pdma {}", dma.name)?,
    }
    let (from, to) = (view(program, &dma.from), view(program, &dma.to));
    write!(out, ": {from} -> {to}")?;
    if let Some(indexed) = &dma.indexed {
        let side = match indexed.side {
            Side::From => "gather",
            Side::To => "scatter",
        };
        let index = &program.tensors[indexed.index].name;
        write!(out, " {side} {} by {index}", indexed.axis)?;
    }
    writeln!(out)
}

fn write_kernel(program: &Program, kernel: &SliceKernel, out: &mut String) -> std::fmt::Result {
    writeln!(out, "  {} {} {{", kernel.context.word(), kernel.name)?;
    for stage in &kernel.stages {
        out.push_str("    ");
        write_stage(program, stage, out)?;
        out.push('\n');
    }
    writeln!(out, "  }}")
}

fn write_stage(program: &Program, stage: &Stage, out: &mut String) -> std::fmt::Result {
    let name = |tensor: &usize| &program.tensors[*tensor].name;
    match stage {
        Stage::Fetch {
            view: of,
            with,
            cast,
            time,
            packet,
        } => {
            write!(out, "fetch {}", view(program, of))?;
            if let Some(with) = with {
                write!(out, " with {}", view(program, with))?;
            }
            if let Some(cast) = cast {
                write!(out, " to {cast}")?;
            }
            write!(out, " time {time} packet {packet}")
        }
        Stage::Switch {
            topology,
            slice,
            time,
        } => write!(out, "switch {} slice {slice} time {time}", topology.word()),
        Stage::Collect { time, packet } => write!(out, "collect time {time} packet {packet}"),
        Stage::Outer { trf, time, packet } => {
            write!(out, "outer {} time {time} packet {packet}", name(trf))
        }
        Stage::Packet { packet } => write!(out, "packet {packet}"),
        Stage::Time { time } => write!(out, "time {time}"),
        Stage::Lane { mode, time, packet } => {
            write!(out, "lane {} time {time} packet {packet}", mode.word())
        }
        Stage::Stash => write!(out, "stash"),
        Stage::Vector { op, operand } => {
            write!(out, "vector {}", op.word())?;
            match operand {
                VectorOperand::None => Ok(()),
                VectorOperand::Constant(value) => write!(out, " {value:?}"),
                VectorOperand::Stream => write!(out, " stream"),
                VectorOperand::Stash => write!(out, " stash"),
                VectorOperand::Second => write!(out, " second"),
                VectorOperand::Vrf(tensor) => write!(out, " vrf {}", name(tensor)),
            }
        }
        Stage::Reduce { op, time, packet } => {
            write!(out, "reduce {} time {time} packet {packet}", op.word())
        }
        Stage::Ring { op, slice } => write!(out, "ring {} slice {slice}", op.word()),
        Stage::Cast { to } => write!(out, "cast {to}"),
        Stage::Transpose { time, packet } => write!(out, "transpose time {time} packet {packet}"),
        Stage::Commit { to } => write!(out, "commit {}", view(program, to)),
        Stage::ToRegisters { tensor } => write!(out, "registers {}", name(tensor)),
    }
}
