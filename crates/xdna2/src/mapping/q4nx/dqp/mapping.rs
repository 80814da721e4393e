//! FusedDQP as a mapping.

use super::{DqpDims, FusedDqp, NAME, own_tiling};
use crate::mapping::data::{Random, bf16_bytes, floats};
use crate::mapping::fused::{self, GEMV_PARTS};
use crate::mapping::parts::{Checks, herd, launch, slot};
use crate::mapping::q4nx::token::Attend;
use crate::mapping::q4nx::{BYTES, Matrix, ROWS, across, random_blocks, unit, weight_slot};
use crate::mapping::{
    BuildError, DIM_MAX, LeastWork, Mapping, NamedNumbers, Shape, ShapeError, Tiling, Tolerance,
};
use millrace_npu::{Element, Role};
use millrace_xdna2_machine::program::{GridOrder, Launch};
use millrace_xdna2_machine::{Machine, Numerics, Program};

impl Mapping for FusedDqp {
    fn name(&self) -> &'static str {
        NAME
    }

    fn summary(&self) -> &'static str {
        "y0 = W0 x, y1 = W1 x, ..., bf16, W in Q4NX blocks to the cores; M0+M1+...xK"
    }

    fn parse_shape(&self, text: &str) -> Result<Shape, ShapeError> {
        let form = "M0+M1+...xK";
        let parts: Vec<&str> = text.trim().split(['x', 'X', '×']).collect();
        let (rows, k) = match parts[..] {
            [rows, k] => (rows, k.trim().parse().unwrap_or(0)),
            _ => (text, 0),
        };
        let mut pairs = fused::parse(text, rows, GEMV_PARTS, form)?;
        if !(1..=DIM_MAX).contains(&k) {
            return Err(ShapeError::new(text, &format!("the shape is {form}")));
        }
        pairs.push(("k", k));
        Ok(NamedNumbers::new(&pairs))
    }

    fn default_tiling(&self, shape: &Shape, machine: &Machine) -> Tiling {
        let all = self.tilings(shape, machine);
        all.into_iter()
            .next()
            .unwrap_or_else(|| own_tiling(shape, 1))
    }

    fn tilings(&self, shape: &Shape, machine: &Machine) -> Vec<Tiling> {
        let cols = (1..=u64::from(machine.cols)).rev();
        let all = cols.map(|cols| own_tiling(shape, cols));
        all.filter(|tiling| DqpDims::new(shape, tiling).check(machine).is_ok())
            .collect()
    }

    fn build(
        &self,
        shape: &Shape,
        tiling: &Tiling,
        machine: &Machine,
    ) -> Result<Program, BuildError> {
        Checks { mapping: NAME }.bounded(shape, tiling)?;
        let p = DqpDims::new(shape, tiling);
        p.check(machine)?;
        let args: Vec<usize> = (0..1 + 2 * p.rows.len()).collect();
        let project = Launch {
            channels: p.channels(),
            stages: p.stages(),
            transfers: p.transfers(),
            herds: vec![herd(
                "cores",
                p.cols,
                p.unit,
                p.locals(),
                p.body(Attend::default()),
            )],
            ..launch("dqp", &args, &[], GridOrder::Streamed)
        };
        let rows = || p.rows.iter().enumerate();
        let mut slots = vec![slot("x", Element::Bf16, &[p.k], Role::Input)];
        slots.extend(rows().map(|(i, &m)| weight_slot(&format!("w{i}"), [m, p.k], p.unit)));
        slots.extend(
            rows().map(|(i, &m)| slot(&format!("y{i}"), Element::Bf16, &[m], Role::Output)),
        );
        Ok(Program {
            name: "fused_dqp".to_owned(),
            slots,
            launches: vec![project],
        })
    }

    fn inputs(&self, shape: &Shape, seed: u64) -> Vec<Vec<u8>> {
        let (rows, k) = (fused::sizes(shape, GEMV_PARTS), shape["k"]);
        let mut random = Random::new(seed);
        let mut slots = vec![random.bf16_bytes(k, 1.0)];
        slots.extend(rows.iter().map(|&m| random_blocks(&mut random, [m, k])));
        slots.extend(rows.iter().map(|&m| vec![0; 2 * m as usize]));
        slots
    }

    fn reference_in(
        &self,
        _numerics: Numerics,
        shape: &Shape,
        _tiling: &Tiling,
        slots: &[Vec<u8>],
    ) -> Vec<(usize, Vec<u8>)> {
        let (rows, k) = (fused::sizes(shape, GEMV_PARTS), shape["k"]);
        let unit = unit(&rows);
        let x = floats(&slots[0]);
        let product = |(part, &m): (usize, &u64)| {
            let w = Matrix::new(&slots[1 + part], k, unit);
            (
                1 + rows.len() + part,
                bf16_bytes(&w.product(m as usize, &x)),
            )
        };
        rows.iter().enumerate().map(product).collect()
    }

    fn tolerance(&self) -> Tolerance {
        Tolerance::Exact
    }

    fn work(&self, shape: &Shape) -> LeastWork {
        let m: u64 = fused::sizes(shape, GEMV_PARTS).iter().sum();
        let k = shape["k"];
        LeastWork {
            flops: 2 * m * k,
            ddr_bytes: m / ROWS * across(k) * BYTES + 2 * (k + m),
        }
    }
}
