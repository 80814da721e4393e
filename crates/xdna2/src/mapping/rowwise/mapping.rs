//! Row-wise kernels as mappings.

use super::{Function, Rowwise, reference};
use crate::mapping::data::Random;
use crate::mapping::parts::{Checks, divisors, slot};
use crate::mapping::{
    BuildError, LeastWork, Mapping, Shape, ShapeError, Tiling, Tolerance, parse_dims,
};
use millrace_npu::{Element, Role};
use millrace_xdna2_machine::{Machine, Numerics, Program};

impl Mapping for Rowwise {
    fn name(&self) -> &'static str {
        self.name
    }

    fn summary(&self) -> &'static str {
        self.summary
    }

    fn parse_shape(&self, text: &str) -> Result<Shape, ShapeError> {
        parse_dims(text, ["rows", self.width_name()])
    }

    /// One row a block, on the most columns.
    fn default_tiling(&self, shape: &Shape, machine: &Machine) -> Tiling {
        (1..=u64::from(machine.cols))
            .rev()
            .map(|cols| Self::tiling(1, cols, 1))
            .find(|tiling| self.legal(shape, tiling, machine))
            .unwrap_or(Self::tiling(1, 1, 1))
    }

    fn tilings(&self, shape: &Shape, machine: &Machine) -> Vec<Tiling> {
        let mut tilings = Vec::new();
        for rows in [1, 2, 4] {
            for cols in (1..=u64::from(machine.cols)).rev() {
                let share = shape["rows"] / (cols * rows);
                for tile_rows in divisors(share).into_iter().filter(|&t| t <= 64) {
                    let tiling = Self::tiling(tile_rows, cols, rows);
                    if self.legal(shape, &tiling, machine) {
                        tilings.push(tiling);
                    }
                }
            }
        }
        tilings.extend(self.through_memory_tiles(shape, machine));
        tilings
    }

    fn build(
        &self,
        shape: &Shape,
        tiling: &Tiling,
        machine: &Machine,
    ) -> Result<Program, BuildError> {
        let p = self.tiled(shape, tiling);
        Checks { mapping: self.name }.bounded(shape, tiling)?;
        self.check(&p, machine)?;
        let matrix = [p.n_rows, p.width];
        let bf16 = Element::Bf16;
        let mut slots = vec![slot("x", bf16, &matrix, Role::Input)];
        if self.function == Function::Rope {
            slots.push(slot("table", bf16, &matrix, Role::Static));
        }
        for name in self.parameters() {
            slots.push(slot(name, bf16, &[p.width], Role::Static));
        }
        slots.push(slot("y", bf16, &matrix, Role::Output));
        Ok(Program {
            name: self.name.to_owned(),
            slots,
            launches: vec![self.launch(&p, machine)],
        })
    }

    fn inputs(&self, shape: &Shape, seed: u64) -> Vec<Vec<u8>> {
        let width = shape[self.width_name()];
        let n = shape["rows"] * width;
        let mut random = Random::new(seed);
        let mut slots = vec![random.bf16_bytes(n, 2.0)];
        match self.function {
            Function::Rope => slots.push(reference::table(shape["rows"], width)),
            _ => slots.extend(
                self.parameters()
                    .iter()
                    .map(|_| random.bf16_bytes(width, 1.5)),
            ),
        }
        slots.push(vec![0; 2 * n as usize]);
        slots
    }

    fn reference_in(
        &self,
        _numerics: Numerics,
        shape: &Shape,
        _tiling: &Tiling,
        slots: &[Vec<u8>],
    ) -> Vec<(usize, Vec<u8>)> {
        let width = shape[self.width_name()] as usize;
        let (inputs, _) = slots.split_at(slots.len() - 1);
        vec![(inputs.len(), reference::run(self.function, width, inputs))]
    }

    fn tolerance(&self) -> Tolerance {
        Tolerance::Exact
    }

    fn work(&self, shape: &Shape) -> LeastWork {
        let width = shape[self.width_name()];
        let n = shape["rows"] * width;
        let (flops, ddr) = match self.function {
            Function::RmsNorm => (4 * n, 2 * n + width),
            Function::LayerNorm => (8 * n, 2 * n + 2 * width),
            Function::Rope => (3 * n, 3 * n),
        };
        LeastWork {
            flops,
            ddr_bytes: 2 * ddr,
        }
    }
}
