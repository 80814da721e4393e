//! One program as one module with one device function.

use super::spelling::{INTERLEAVED, identifier, scalar};
use crate::Program;
use crate::flow::walk;
use crate::program::{Command, Place, SliceKernel, Stage, TensorSharding, View};
use millrace_npu::Role;
use std::collections::HashMap;

pub(super) type ExportResult<T> = Result<T, String>;

pub(super) struct Module<'p> {
    pub program: &'p Program,
    /// How often each tensor is written.
    n_writes: Vec<usize>,
    /// Names of register files of contractions over clusters and slices. They are those of the stream that meets them,
    /// since the vendor's types have to be equal.
    pub held: HashMap<usize, TensorSharding>,
    declared: Vec<bool>,
    pub out: String,
}

impl<'p> Module<'p> {
    pub(super) fn new(program: &'p Program) -> ExportResult<Module<'p>> {
        let mut module = Module {
            program,
            n_writes: vec![0; program.tensors.len()],
            held: HashMap::new(),
            declared: vec![false; program.tensors.len()],
            out: String::new(),
        };
        for command in &program.commands {
            let written = match command {
                Command::Dma(dma) => Some(dma.to.tensor),
                Command::Kernel(kernel) => written_by(kernel),
            };
            if let Some(tensor) = written {
                module.n_writes[tensor] += 1;
            }
            if let Command::Kernel(kernel) = command {
                module.meet(kernel)?;
            }
        }
        Ok(module)
    }

    /// Names of the register file that a kernel multiplies with.
    fn meet(&mut self, kernel: &SliceKernel) -> ExportResult<()> {
        let held = kernel.stages.iter().find_map(|stage| match stage {
            Stage::Outer { trf, .. } => Some(*trf),
            _ => None,
        });
        let Some(held) = held else { return Ok(()) };
        let own = self.program.tensors[held].spread().cloned();
        let own = own.ok_or("a contraction with no register file")?;
        let named = self.meeting(&self.streamed(kernel)?, &own)?;
        match self.held.insert(held, named.clone()) {
            Some(before) if before != named => Err(format!(
                "`{}` meets streams of two mappings",
                self.program.tensors[held].name
            )),
            _ => Ok(()),
        }
    }

    /// Clusters and slices of a kernel's stream once it has passed the switch.
    pub(super) fn streamed(&self, kernel: &SliceKernel) -> ExportResult<TensorSharding> {
        let Some(Stage::Fetch { view, .. }) = kernel.stages.first() else {
            return Err(format!("`{}` does not begin with a fetch", kernel.name));
        };
        let spread = self.program.tensors[view.tensor].spread().cloned();
        let mut spread = spread.ok_or("a fetch from the chip's memory")?;
        for stage in &kernel.stages {
            if let Stage::Switch { slice, .. } = stage {
                spread.slice = slice.clone();
            }
        }
        Ok(spread)
    }

    /// Whether a tensor in data memory is written in parts, and so has to be there before.
    pub(super) fn in_parts(&self, view: &View) -> bool {
        self.n_writes[view.tensor] > 1 || !view.offsets.is_empty()
    }

    /// Declares a tensor that is written in parts, before the first.
    pub(super) fn declare(&mut self, tensor: usize) {
        if self.declared[tensor] {
            return;
        }
        self.declared[tensor] = true;
        let text = format!(
            "    let mut {}: {} = DmTensor::new();\n",
            self.name(tensor),
            self.dm_type(tensor)
        );
        self.out.push_str(&text);
    }

    pub(super) fn name(&self, tensor: usize) -> String {
        identifier(&self.program.tensors[tensor].name)
    }

    /// The type of a tensor in data memory.
    pub(super) fn dm_type(&self, tensor: usize) -> String {
        format!(
            "DmTensor<{}, Chip, {}>",
            scalar(self.program.tensors[tensor].element),
            self.dm_mappings(tensor)
        )
    }

    /// Cluster, slice and element of a tensor in data memory.
    pub(super) fn dm_mappings(&self, tensor: usize) -> String {
        let mappings = self.program.tensors[tensor].mappings();
        let all: Vec<String> = mappings.iter().map(ToString::to_string).collect();
        all.join(", ")
    }

    /// The module's text.
    pub(super) fn print(mut self, notes: &[String]) -> ExportResult<String> {
        let program = self.program;
        for command in &program.commands {
            match command {
                Command::Dma(dma) => self.dma(dma)?,
                Command::Kernel(kernel) => {
                    walk(program, kernel).map_err(|broken| broken.message)?;
                    self.kernel(kernel)?;
                }
            }
        }
        let mut text = String::new();
        for note in notes {
            text.push_str(&format!("//! {note}\n"));
        }
        let mut axes: Vec<String> = (program.axes.iter())
            .map(|(name, size)| format!("{name} = {size}"))
            .collect();
        if self.out.contains("begin_interleaved") {
            axes.push(format!("{INTERLEAVED} = 2"));
        }
        text.push_str(&format!(
            "\nuse furiosa_opt_std::prelude::*;\n\naxes![{}];\n\n/// One chip.\ntype Chip = m![1];\n\n",
            axes.join(", ")
        ));
        text.push_str("/// Every command of the program, in its order.\n#[device(chip = 1)]\n");
        text.push_str(&format!(
            "pub fn {}(\n    device: &mut Device,\n",
            identifier(&program.name)
        ));
        for tensor in &program.tensors {
            if let Place::Hbm { role, layout } = &tensor.place {
                let is_written = matches!(role, Role::Output | Role::Intermediate);
                let mutable = if is_written { "mut " } else { "" };
                let (name, element) = (identifier(&tensor.name), scalar(tensor.element));
                text.push_str(&format!(
                    "    {name}: &{mutable}HbmTensor<{element}, Chip, {layout}>,\n"
                ));
            }
        }
        text.push_str(") {\n");
        text.push_str(&self.out);
        text.push_str("}\n");
        Ok(text)
    }
}

/// The tensor in data memory that a kernel commits to.
fn written_by(kernel: &SliceKernel) -> Option<usize> {
    kernel.stages.iter().find_map(|stage| match stage {
        Stage::Commit { to } => Some(to.tensor),
        _ => None,
    })
}
