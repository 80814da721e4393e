//! The vector engine's part of a kernel, with its ways and stages written out.

use super::module::{ExportResult, Module};
use super::spelling::{named, values};
use crate::axes::{Axes, Mapping};
use crate::program::{Place, ReduceOp, Stage, TensorSharding, VectorOp, VectorOperand};

/// How a flit of eight was narrowed to four, which floats are computed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// No narrowing.
    Eight,
    /// Both halves, one after the other.
    Split,
    /// The values are in the first half.
    Trimmed,
}

/// The stream within the vector engine.
pub(super) struct VectorStream {
    pub spread: TensorSharding,
    pub time: Mapping,
    pub packet: Mapping,
    pub way: Way,
    /// Whether the engine was entered, and whether a chain within a slice was.
    pub entered: bool,
    pub tagged: bool,
    /// Whether two tensors are in it, interleaved.
    pub is_pair: bool,
}

/// `m![mapping / n]` of any mapping; padding is cut like values.
fn over(mapping: &Mapping, n: u64) -> Mapping {
    Mapping::Stride(Box::new(mapping.clone()), n)
}

impl VectorStream {
    /// Enters the engine, and a chain within a slice.
    pub(super) fn enter(&mut self, chain: &mut Vec<String>) {
        if !self.entered {
            chain.push("vector_init()".to_owned());
            self.entered = true;
        }
        if self.tagged {
            return;
        }
        self.tagged = true;
        chain.push(match self.is_pair {
            true => format!("vector_intra_slice_unzip::<I, {}>()", self.time),
            false => "vector_intra_slice_tag(TagMode::Zero)".to_owned(),
        });
    }

    /// Narrows to four at a time.
    pub(super) fn narrow(&mut self, chain: &mut Vec<String>, axes: &Axes) -> ExportResult<()> {
        self.enter(chain);
        if self.way != Way::Eight {
            return Ok(());
        }
        let (inner, n) = values(&self.packet, axes)?;
        if n <= 4 && !self.is_pair {
            chain.push(format!("vector_narrow_trim::<{}>()", trimmed(&inner, n)));
            self.way = Way::Trimmed;
            return Ok(());
        }
        let time = self.time.clone().then(over(&self.packet, 4));
        let packet = Mapping::Modulo(Box::new(self.packet.clone()), 4);
        chain.push(format!("vector_narrow_split::<{time}, {packet}>()"));
        self.way = Way::Split;
        Ok(())
    }

    /// Widens back to eight.
    pub(super) fn widen(&mut self, chain: &mut Vec<String>) {
        match self.way {
            Way::Eight => {}
            Way::Split => {
                let (time, packet) = (&self.time, &self.packet);
                chain.push(format!("vector_widen_concat::<{time}, {packet}>()"));
            }
            Way::Trimmed => chain.push(format!("vector_widen_pad::<{}>()", self.packet)),
        }
        self.way = Way::Eight;
    }

    /// Reduces within the slice.
    fn reduce(
        &mut self,
        (op, time, packet): (ReduceOp, &Mapping, &Mapping),
        chain: &mut Vec<String>,
        axes: &Axes,
    ) -> ExportResult<()> {
        self.narrow(chain, axes)?;
        let before = self.time.clone().then(self.packet.clone());
        let after = time.clone().then(packet.clone());
        let left = named(&after);
        let mut gone = named(&before)
            .into_iter()
            .filter(|axis| !left.contains(axis));
        let (Some(axis), None) = (gone.next(), gone.next()) else {
            return Err(format!(
                "a reduction of {before} to {after} is not of one axis"
            ));
        };
        let (inner, n) = values(packet, axes)?;
        let (out_time, out_packet) = match self.way {
            Way::Split if n > 4 => (
                time.clone().then(over(packet, 4)),
                Mapping::Modulo(Box::new(packet.clone()), 4),
            ),
            _ => {
                self.way = Way::Trimmed;
                (time.clone(), trimmed(&inner, n))
            }
        };
        chain.push(format!(
            "vector_intra_slice_reduce::<{axis}, {out_time}, {out_packet}>(IntraSliceReduceOpF32::{})",
            reduce_name(op)
        ));
        (self.time, self.packet) = (time.clone(), packet.clone());
        Ok(())
    }
}

/// Four or fewer values in a half flit.
fn trimmed(inner: &Mapping, n: u64) -> Mapping {
    match n {
        4 => inner.clone(),
        _ => inner.clone().pad(4),
    }
}

fn reduce_name(op: ReduceOp) -> &'static str {
    match op {
        ReduceOp::Add => "Add",
        ReduceOp::Max => "Max",
        ReduceOp::Min => "Min",
    }
}

impl Module<'_> {
    /// One stage of the vector engine.
    pub(super) fn vector_stage(
        &self,
        stage: &Stage,
        stream: &mut VectorStream,
        chain: &mut Vec<String>,
    ) -> ExportResult<()> {
        let axes = &self.program.axes;
        match stage {
            Stage::Stash => {
                stream.narrow(chain, axes)?;
                chain.push("vector_stash()".to_owned());
                Ok(())
            }
            Stage::Reduce { op, time, packet } => stream.reduce((*op, time, packet), chain, axes),
            Stage::Ring { op, slice } => {
                if stream.tagged {
                    stream.widen(chain);
                } else {
                    chain.push("vector_init()".to_owned());
                }
                // A chain within the slice may follow, and is then entered anew.
                (stream.entered, stream.tagged) = (true, false);
                stream.spread.slice = slice.clone();
                chain.push(format!(
                    "vector_inter_slice_reduce::<{slice}, {}>(InterSliceReduceOpF32::{})",
                    stream.time,
                    reduce_name(*op)
                ));
                Ok(())
            }
            Stage::Vector { op, operand } => self.operation((*op, operand), stream, chain),
            _ => Err("a stage out of its place".to_owned()),
        }
    }

    fn operation(
        &self,
        (op, operand): (VectorOp, &VectorOperand),
        stream: &mut VectorStream,
        chain: &mut Vec<String>,
    ) -> ExportResult<()> {
        let unary = |name: &str| format!("vector_fp_unary(FpUnaryOp::{name})");
        let binary = match op {
            VectorOp::Add => "FpBinaryOp::AddF",
            VectorOp::Sub => "FpBinaryOp::SubF",
            VectorOp::Mul0 => "FpBinaryOp::MulF(FpMulAlu::Mul0)",
            VectorOp::Mul1 => "FpBinaryOp::MulF(FpMulAlu::Mul1)",
            _ => "",
        };
        let with = self.operand(operand, stream);
        let call = match (op, operand) {
            (VectorOp::Exp, _) => unary("Exp"),
            (VectorOp::Sqrt, _) => unary("Sqrt"),
            (VectorOp::Sigmoid, _) => unary("Sigmoid"),
            (VectorOp::Div, _) => format!("vector_fp_div({})", with?),
            (VectorOp::DivBy, _) => {
                format!("vector_fp_div_with_mode(BinaryArgMode::Mode10, {})", with?)
            }
            (_, VectorOperand::Second) if !binary.is_empty() => format!("vector_fp_zip({binary})"),
            (_, VectorOperand::Stream) if !binary.is_empty() => {
                format!("vector_fp_binary_with_mode({binary}, BinaryArgMode::Mode00, 0.0)")
            }
            _ if !binary.is_empty() => format!("vector_fp_binary({binary}, {})", with?),
            _ => return Err(format!("`{}` has no printed form", op.word())),
        };
        stream.narrow(chain, &self.program.axes)?;
        chain.push(call);
        Ok(())
    }

    fn operand(&self, operand: &VectorOperand, stream: &VectorStream) -> ExportResult<String> {
        match operand {
            VectorOperand::Constant(value) => Ok(format!("{value:?}")),
            VectorOperand::Stash => Ok("Stash".to_owned()),
            VectorOperand::Vrf(tensor) => {
                let of = &self.program.tensors[*tensor];
                let Place::Vrf { spread, layout, .. } = &of.place else {
                    return Err(format!("`{}` is not in vector registers", of.name));
                };
                let name = self.name(*tensor);
                if *spread == stream.spread {
                    return Ok(format!("&{name}"));
                }
                // Copies over clusters and slices, under the names of the stream.
                let TensorSharding { cluster, slice } = &stream.spread;
                // SAFETY: in the printed code, axes are renamed and their positions stay.
                Ok(format!(
                    "&unsafe {{ {name}.clone().reshape::<Chip, {cluster}, {slice}, {layout}>() }}"
                ))
            }
            _ => Err("an operation with nothing to work on".to_owned()),
        }
    }
}
