//! Operands of the matrix units: bf16 values as they are, or as blocks that share an exponent.
//!
//! AIE2P has no unit for bf16 products of the shape that fast kernels use. `aie::mmul` with
//! `AIE_API_EMULATE_BFLOAT16_MMUL_WITH_BFP16` converts both operands to `bfp16ebs8` on the way: eight
//! values along the inner dimension become 8-bit mantissas with one 8-bit exponent (MLIR-AIR's Llama-3.2-1B example
//! compiles so; MLIR-AIR's `GEMM_bf16_in_bf16_out.md` says it of its GEMMs).
//!
//! # The conversion
//! | property | value | known from |
//! |---|---|---|
//! | block | 8 values along the inner dimension of the product, of A and of B | mlir-aie `mm.cc` for aie2p, `mac_8x8_8x8T` |
//! | exponent | the largest of the eight | mlir-aie `programming_examples/ml/block_datatypes/helper.h` |
//! | mantissa | two's complement, 8 bits, in steps of 2^(exponent − 6) | as above |
//! | rounding | to nearest, ties to even | `-DROUND_CONV_EVEN` (the same example); `GEMM_bf16_in_bf16_out.md` |
//! | a mantissa that rounds to +128 | the exponent is raised and the block rounded again | a public project's report of a run on an NPU2; mlir-aie's host helper truncates instead |
//! | product | eight products summed exactly, then one f32 addition to the sum | **assumed**: the accumulator is f32 (`accfloat`), its internal rounding is not public |
//! | subnormal values | zero | assumed, as for bf16 |
//! | infinities | not a number | assumed |
//!
//! One compiler is reported to drop the rounding mode, so that cores round down (floor): not modelled.
//!
//! # Where
//! Numerics belong to the stem of a kernel's name, so the option replaces the kernels of matrix units by others
//! ([`Numerics::apply`]). Products of matrix and vector (decode) and attention over the cache use vector units and stay
//! as they are. Cycles do not change: published rates were measured on kernels built with the emulation, so they are
//! those of `bfp16`; that of `bf16` borrows them and is unmeasured. Its ceiling is lower, 128 multiply-accumulates a
//! cycle instead of 256.

use crate::Program;
use crate::program::Op;
use std::fmt;
use std::str::FromStr;

/// How matrix units multiply bf16 values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Numerics {
    /// Exact products of the values as they are.
    #[default]
    Bf16,
    /// Through block floating point, as published kernels are compiled.
    Bfp16,
}

/// Stems of kernels with a matrix product, and the same with emulated ones.
const EMULATED: &[(&str, &str)] = &[
    ("matmul_bf16_f32", "matmul_bfp16_f32"),
    ("matmul_bt_bf16_f32", "matmul_bt_bfp16_f32"),
    ("matmul_bf16_bf16", "matmul_bfp16_bf16"),
    ("fa_scores_bf16", "fa_scores_bfp16"),
    ("fa_scores_add_bf16", "fa_scores_add_bfp16"),
    ("fa_values_bf16", "fa_values_bfp16"),
];

impl Numerics {
    /// All of them.
    pub const ALL: [Numerics; 2] = [Numerics::Bf16, Numerics::Bfp16];

    /// Its name, as options spell it.
    pub fn name(self) -> &'static str {
        match self {
            Numerics::Bf16 => "bf16",
            Numerics::Bfp16 => "bfp16",
        }
    }

    /// Its meaning, in a line.
    pub fn summary(self) -> &'static str {
        match self {
            Numerics::Bf16 => "products of bf16, as the array's 16-bit mode has them",
            Numerics::Bfp16 => {
                "products through block floating point (bfp16), as published kernels are compiled; \
                 times are those of bfp16 either way"
            }
        }
    }

    /// Puts the kernels of these numerics in the places of plain ones.
    pub fn apply(self, program: &mut Program) {
        if self == Numerics::Bf16 {
            return;
        }
        let herds = program.launches.iter_mut().flat_map(|l| &mut l.herds);
        herds.for_each(|herd| rename(&mut herd.body));
    }
}

fn rename(body: &mut [Op]) {
    for op in body {
        match op {
            Op::Loop { body, .. } => rename(body),
            Op::If {
                then, otherwise, ..
            } => {
                rename(then);
                rename(otherwise);
            }
            Op::Call { kernel, .. } => {
                if let Some(emulated) = twin(kernel, |(plain, emulated)| (plain, emulated)) {
                    *kernel = emulated;
                }
            }
            Op::Get { .. } | Op::New { .. } | Op::Free { .. } | Op::Put { .. } => {}
        }
    }
}

/// The plain kernel that an emulated one computes like, of the same object.
pub(crate) fn plain(name: &str) -> Option<String> {
    twin(name, |(plain, emulated)| (emulated, plain))
}

fn twin<'a>(name: &str, from_to: fn((&'a str, &'a str)) -> (&'a str, &'a str)) -> Option<String> {
    let (stem, object) = name.split_at(name.find('.').unwrap_or(name.len()));
    let mut pairs = EMULATED.iter().copied().map(from_to);
    pairs.find_map(|(from, to)| (from == stem).then(|| format!("{to}{object}")))
}

impl fmt::Display for Numerics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Numerics {
    type Err = String;

    fn from_str(name: &str) -> Result<Numerics, String> {
        let found = Numerics::ALL.into_iter().find(|n| n.name() == name);
        found.ok_or_else(|| format!("no numerics `{name}`; there are bf16, bfp16"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Profile, tile};

    #[test]
    fn every_emulated_kernel_exists_and_costs_what_its_twin_does() {
        let profile = Profile::builtin(Profile::DEFAULT).expect("built in");
        let mut n = 0;
        for kernel in tile::TABLE {
            let emulated = twin(kernel.name, |(plain, emulated)| (plain, emulated));
            let Some(emulated) = emulated else { continue };
            n += 1;
            assert_eq!(plain(&emulated).as_deref(), Some(kernel.name));
            assert!(tile::find(&emulated).is_some(), "{emulated}");
            assert_eq!(profile.kernel(&emulated), profile.kernel(kernel.name));
        }
        assert!(n >= EMULATED.len());
    }
}
