//! Names that a linker takes for calls of tile kernels.
//!
//! A call fixes a kernel's dimensions and constants when it is compiled, so each set of them is a separate function:
//! `millrace_matmul_bf16_f32__peano__d64_32_64`, with constants `…__c3f800000`.

use super::{TileKernel, find};

/// Prefix of every name.
const PREFIX: &str = "millrace_";
/// Separator between the parts of a name, none of which contains it.
const BETWEEN: &str = "__";

/// A tile kernel with its dimensions and constants, which are fixed when it is compiled.
#[derive(Clone)]
pub struct KernelInstance {
    /// The row of the table.
    pub kernel: &'static TileKernel,
    /// Dimensions.
    pub dims: Vec<u32>,
    /// Constants, as bits of an `f32`.
    pub constants: Vec<u32>,
}

impl KernelInstance {
    /// The name of its function in C.
    pub fn symbol(&self) -> String {
        let mut parts = vec![self.kernel.name.replace('.', BETWEEN)];
        let dims: Vec<String> = self.dims.iter().map(u32::to_string).collect();
        let constants: Vec<String> = self.constants.iter().map(|c| format!("{c:08x}")).collect();
        for (sign, numbers) in [('d', dims), ('c', constants)] {
            if !numbers.is_empty() {
                parts.push(format!("{sign}{}", numbers.join("_")));
            }
        }
        format!("{PREFIX}{}", parts.join(BETWEEN))
    }

    /// The kernel of a name; `None` for any other name.
    pub fn of_symbol(symbol: &str) -> Option<KernelInstance> {
        let parts: Vec<&str> = symbol.strip_prefix(PREFIX)?.split(BETWEEN).collect();
        // The longest name that the table has: numbers follow it.
        let (kernel, rest) = (1..=parts.len().min(2)).rev().find_map(|n| {
            let (name, rest) = parts.split_at(n);
            Some((find(&name.join("."))?, rest))
        })?;
        let mut instance = KernelInstance {
            kernel,
            dims: Vec::new(),
            constants: Vec::new(),
        };
        for part in rest {
            let (to, radix, numbers) = match (part.strip_prefix('d'), part.strip_prefix('c')) {
                (Some(numbers), _) => (&mut instance.dims, 10, numbers),
                (_, Some(numbers)) => (&mut instance.constants, 16, numbers),
                _ => return None,
            };
            let numbers = numbers.split('_').map(|n| u32::from_str_radix(n, radix));
            *to = numbers.collect::<Result<_, _>>().ok()?;
        }
        // Each kernel has one spelling: a linker compares names as they are.
        (instance.symbol() == symbol).then_some(instance)
    }
}

impl std::fmt::Debug for KernelInstance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.symbol())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // A test may panic.
    use super::super::TABLE;
    use super::*;

    #[test]
    fn every_kernel_is_found_by_its_symbol() {
        for kernel in TABLE {
            for (dims, constants) in [
                (vec![], vec![]),
                (vec![64], vec![0x3f80_0000]),
                (vec![8, 16, 24, 1 << 24], vec![0, 0xff80_0001]),
            ] {
                let instance = KernelInstance {
                    kernel,
                    dims,
                    constants,
                };
                let symbol = instance.symbol();
                let is_c = |c: char| c.is_ascii_alphanumeric() || c == '_';
                assert!(symbol.chars().all(is_c), "{symbol}");
                let found = KernelInstance::of_symbol(&symbol).unwrap();
                assert_eq!(found.kernel.name, kernel.name, "{symbol}");
                assert_eq!(
                    (found.dims, found.constants),
                    (instance.dims, instance.constants)
                );
            }
        }
    }

    #[test]
    fn other_names_are_no_kernels() {
        for name in [
            "",
            "millrace_",
            "add__d64",
            "millrace_none__d64",
            "millrace_zero_f32__64",
            "millrace_zero_f32__d",
            "millrace_zero_f32__d64__",
            "millrace_zero_f32__d064",
            "millrace_zero_f32__c3F800000",
            "millrace_zero_f32__c0__d64",
            "millrace_zero_f32__d4294967296",
        ] {
            assert!(KernelInstance::of_symbol(name).is_none(), "{name}");
        }
    }
}
