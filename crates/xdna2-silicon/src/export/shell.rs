//! A tile kernel's function: its declaration, and the C++ around its computation.

use super::descriptor::{element_types, memref};
use crate::lower::NoWords;
use millrace_npu::Element;
use millrace_xdna2_machine::tile::KernelInstance;
use std::fmt::Write;

/// A function that cores call.
#[derive(Clone, Debug)]
pub struct KernelFunction {
    /// Kernel, dimensions, constants.
    pub instance: KernelInstance,
    /// Type and number of elements of each buffer, inputs first.
    pub operands: Vec<(Element, u64)>,
    /// 32-bit numbers after the buffers.
    pub n_scalars: usize,
}

impl KernelFunction {
    /// Its types in MLIR, with commas.
    pub(super) fn types(&self) -> Result<String, NoWords> {
        let mut types = Vec::new();
        for &(element, n_elements) in &self.operands {
            types.push(memref(element, n_elements)?);
        }
        types.extend(std::iter::repeat_n("i32".to_owned(), self.n_scalars));
        Ok(types.join(", "))
    }

    /// The op that declares it.
    pub(super) fn declaration(&self) -> Result<String, NoWords> {
        let (symbol, types) = (self.instance.symbol(), self.types()?);
        Ok(format!("func.func private @{symbol}({types})"))
    }

    /// A C++ file of the function. Kernels that set or copy elements are complete. The others describe the computation,
    /// and do not compile until it is written.
    ///
    /// # Errors
    /// A type that the cores' C++ does not have.
    pub fn shell(&self) -> Result<String, NoShell> {
        let cpp = |element: Element| element_types(element).map(|row| row.1);
        let problem = |error: NoWords| NoShell(error.problem);
        let kernel = self.instance.kernel;
        let mut parameters = Vec::new();
        let mut table = String::new();
        for (number, &(element, n)) in self.operands.iter().enumerate() {
            let is_input = number < kernel.inputs;
            let (constant, name) = match is_input {
                true => ("const ", format!("in{number}")),
                false => ("", format!("out{}", number - kernel.inputs)),
            };
            let of = cpp(element).map_err(problem)?;
            parameters.push(format!("{constant}{of} *__restrict {name}"));
            let bytes = n * element.size_bits() / 8;
            let _ = writeln!(table, "//   {name}: {n} of {of}, {bytes} bytes");
        }
        for number in 0..self.n_scalars {
            parameters.push(format!("int32_t s{number}"));
            let _ = writeln!(table, "//   s{number}: a number that the core computes");
        }
        let (symbol, summary) = (self.instance.symbol(), kernel.summary);
        let constants: Vec<String> = (self.instance.constants.iter())
            .map(|&bits| format!("{:?}f", f32::from_bits(bits)))
            .collect();
        let fixed = |numbers: &[String]| match numbers {
            [] => "none".to_owned(),
            numbers => numbers.join(", "),
        };
        let dims: Vec<String> = self.instance.dims.iter().map(u32::to_string).collect();
        let body = self.body().unwrap_or_else(|| unwritten(summary));
        Ok(format!(
            "// Tile kernel `{}` of Millrace. Never run on hardware.\n//\n// {summary}\n//\n\
             // Dimensions: {}. Constants: {}.\n{table}\
             // Outputs hold what they held before the call. Layouts stand in README.md.\n\n\
             #include <aie_api/aie.hpp>\n#include <stdint.h>\n\n\
             extern \"C\" void {symbol}({}) {{\n  event0();\n{body}  event1();\n}}\n",
            kernel.name,
            fixed(&dims),
            fixed(&constants),
            parameters.join(", "),
        ))
    }

    /// The body of a kernel that sets or copies elements in whole vectors.
    fn body(&self) -> Option<String> {
        /// Bytes of a vector register.
        const VECTOR_BYTES: u64 = 64;
        let (stem, is_copy) = match (self.instance.kernel.name, &self.operands[..]) {
            ("zero_f32" | "zero_bf16" | "zero_i32", [only]) => (only, false),
            ("copy_bf16" | "copy_i8", [from, to]) if from == to => (to, true),
            _ => return None,
        };
        let (element, n) = *stem;
        let lanes = VECTOR_BYTES / element.size_bytes();
        let of = element_types(element).ok()?.1;
        if !n.is_multiple_of(lanes) {
            return None;
        }
        let value = match is_copy {
            true => format!("aie::load_v<{lanes}>(in0 + i)"),
            false => format!("aie::zeros<{of}, {lanes}>()"),
        };
        Some(format!(
            "  for (int i = 0; i < {n}; i += {lanes})\n    aie::store_v(out0 + i, {value});\n"
        ))
    }
}

fn unwritten(summary: &str) -> String {
    let what = summary.replace('"', "'");
    format!("#error \"write this kernel: {what}\"\n")
}

/// Why a function has no shell.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoShell(String);
