//! Millrace's own tile kernels, by the symbols of designs that it exports.

use super::memory::Memories;
use super::value::{CoreValue, Number};
use crate::syntax::{Op, SyntaxError, Type};
use millrace_kernels::{Cpu, CpuOptions};
use millrace_npu::Element;
use millrace_xdna2_machine::Profile;
use millrace_xdna2_machine::tile::{CallShape, KernelInstance, TileCall};
use std::sync::OnceLock;

/// A tile kernel as a core calls it.
#[derive(Clone, Debug)]
pub(crate) struct TileFunction {
    instance: KernelInstance,
    n_operands: usize,
    elements: Vec<Element>,
}

/// Kernels run on the calling thread; their level is the processor's best, as bytes are the same on all.
fn cpu() -> Result<&'static Cpu, String> {
    static CPU: OnceLock<Result<Cpu, String>> = OnceLock::new();
    let new = || {
        let options = CpuOptions {
            n_threads: Some(1),
            ..CpuOptions::default()
        };
        Cpu::new(options).map_err(|error| error.to_string())
    };
    CPU.get_or_init(new).as_ref().map_err(Clone::clone)
}

/// The element of a memref's type; a word of the core's C++ for each.
fn element(of: &Type) -> Option<Element> {
    Some(match of {
        Type::Integer {
            bits: 8,
            is_unsigned: true,
        } => Element::U8,
        Type::Integer { bits: 8, .. } => Element::I8,
        Type::Integer { bits: 16, .. } => Element::I16,
        Type::Integer { bits: 32, .. } => Element::I32,
        Type::Bf16 => Element::Bf16,
        Type::F32 => Element::F32,
        _ => return None,
    })
}

/// The tile kernel that a call means by its symbol; `None` for any other name.
pub(crate) fn find(op: &Op, symbol: &str) -> Result<Option<TileFunction>, SyntaxError> {
    let Some(instance) = KernelInstance::of_symbol(symbol) else {
        return Ok(None);
    };
    let mut operands = Vec::new();
    let mut n_scalars = 0;
    for of in &op.types {
        match of {
            Type::MemRef(memref) if n_scalars == 0 => {
                let known = element(&memref.element).zip(memref.elements());
                let unknown = || op.error(format!("{of} is no buffer of a tile kernel"));
                operands.push(known.ok_or_else(unknown)?);
            }
            Type::Integer { bits: 32, .. } => n_scalars += 1,
            _ => return Err(op.error("a tile kernel takes memrefs, then numbers of 32 bits")),
        }
    }
    let shape = CallShape {
        dims: &instance.dims,
        operands: &operands,
        n_scalars,
        constants: &instance.constants,
    };
    let name = instance.kernel.name;
    (instance.kernel.check)(&shape).map_err(|problem| op.error(format!("`{name}`: {problem}")))?;
    if op.operands.len() != operands.len() + n_scalars {
        return Err(op.error("its types are not those of its operands"));
    }
    Ok(Some(TileFunction {
        n_operands: operands.len(),
        elements: operands.iter().map(|row| row.0).collect(),
        instance,
    }))
}

impl TileFunction {
    /// The kernel that it is taken for.
    pub(crate) fn summary(&self) -> String {
        format!("tile kernel `{}`", self.instance.kernel.name)
    }

    /// Cycles of a call, as a profile has the kernel's object code.
    pub(crate) fn cycles(&self, scalars: &[i64], profile: &Profile) -> u64 {
        let kernel = self.instance.kernel;
        let work = (kernel.work)(&self.instance.dims, scalars);
        let cycles = profile.kernel(kernel.name).copied().unwrap_or_default();
        cycles.of(work).max(0.0) as u64
    }

    /// Buffers among its operands.
    pub(crate) fn n_operands(&self) -> usize {
        self.n_operands
    }

    /// Computes on buffers and numbers.
    pub(crate) fn run(
        &self,
        arguments: &[&CoreValue],
        memories: &mut Memories<'_, '_, '_>,
    ) -> Result<(), String> {
        let kernel = self.instance.kernel;
        let (buffers, scalars) = arguments.split_at(self.n_operands.min(arguments.len()));
        let mut words = Vec::with_capacity(buffers.len());
        for buffer in buffers {
            words.push(memories.words(buffer.view()?)?);
        }
        let scalars: Result<Vec<i64>, String> = (scalars.iter())
            .map(|scalar| Ok(Number::Integer(32).wrap(scalar.integer()?)))
            .collect();
        let (inputs, outputs) = words.split_at_mut(kernel.inputs);
        let mut call = TileCall {
            cpu: cpu()?,
            dims: &self.instance.dims,
            inputs: inputs
                .iter()
                .map(|words| bytemuck::cast_slice(words))
                .collect(),
            outputs: (outputs.iter_mut())
                .map(|words| bytemuck::cast_slice_mut(words))
                .collect(),
            scalars: &scalars?,
            constants: &self.instance.constants,
        };
        kernel.call(&self.elements, &mut call)?;
        for (buffer, words) in buffers.iter().zip(&words).skip(kernel.inputs) {
            memories.put_words(buffer.view()?, words)?;
        }
        Ok(())
    }
}
