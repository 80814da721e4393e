//! Element-wise kernels: every core streams its share of the elements in blocks, DDR to L1 and back.
//!
//! Each input and the output of a core is a separate shim stream. A shim has two DMA channels a
//! direction, so `cores · inputs` is at most twice the columns: 8 cores with two inputs, 16 with
//! one. With `l2_copies` above 0 the memory tiles deal blocks to the cores of their column and join the results. Then
//! all 32 cores work, and DDR limits most of these kernels.

mod reference;

use super::data::Random;
use super::parts::{Checks, largest_divisor, slot};
use super::streaming::{self, Port, Streaming};
use super::{
    BuildError, LeastWork, Mapping, NamedNumbers, Rule, Shape, ShapeError, Tiling, Tolerance,
    parse_dims,
};
use millrace_npu::{Element, Role};
use millrace_xdna2_machine::{Machine, Numerics, Profile, Program};

/// Function of an element-wise mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    SiluMul,
    GeluMul,
    Gelu,
    Add,
}

/// Layout of the elements in the slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ElementLayout {
    /// One dimension; a core takes consecutive elements.
    Flat,
    /// Rows and columns; a core takes every `cores`-th row.
    Rows,
    /// Rows and columns in, one dimension out; a core takes consecutive rows.
    RowsToFlat,
}

/// A kernel that treats elements alone.
pub(super) struct Elementwise {
    name: &'static str,
    summary: &'static str,
    function: Function,
    layout: ElementLayout,
    /// Largest block that the registry of MLIR-AIR uses.
    tile_max: u64,
}

/// SwiGLU's activation.
pub(super) const SILU_MUL: Elementwise = Elementwise {
    name: "silu-mul",
    summary: "y = silu(gate) * up, bf16; N",
    function: Function::SiluMul,
    layout: ElementLayout::Flat,
    tile_max: 4096,
};

/// GeGLU's activation.
pub(super) const GELU_MUL: Elementwise = Elementwise {
    name: "gelu-mul",
    summary: "y = gelu_tanh(gate) * up, bf16; N",
    function: Function::GeluMul,
    layout: ElementLayout::Flat,
    tile_max: 4096,
};

/// GELU in its tanh form.
pub(super) const GELU: Elementwise = Elementwise {
    name: "gelu",
    summary: "y = gelu_tanh(x), bf16; N",
    function: Function::Gelu,
    layout: ElementLayout::Flat,
    tile_max: 4096,
};

/// The residual add on flat slots.
pub(super) const ADD: Elementwise = Elementwise {
    name: "add",
    summary: "c = a + b, bf16; N",
    function: Function::Add,
    layout: ElementLayout::Flat,
    tile_max: 2048,
};

/// The residual add row by row.
pub(super) const ADD_2D: Elementwise = Elementwise {
    name: "add-2d",
    summary: "c = a + b by rows, bf16; ROWSxCOLS",
    function: Function::Add,
    layout: ElementLayout::Rows,
    tile_max: 2048,
};

/// The residual add whose sum the next launch takes as one dimension.
pub(super) const ADD_FLAT: Elementwise = Elementwise {
    name: "add-flat",
    summary: "c = a + b, bf16, a and b by rows, c flat; ROWSxCOLS",
    function: Function::Add,
    layout: ElementLayout::RowsToFlat,
    tile_max: 2048,
};

/// Shape and tiling as plain numbers.
#[derive(Clone, Copy)]
struct ElementwiseDims {
    /// Elements.
    n: u64,
    /// Elements of a row; all of them on flat slots.
    row: u64,
    tile: u64,
    cols: u64,
    rows: u64,
    depth: u64,
    /// Blocks of a memory tile between shim and cores; 0 for straight streams.
    l2_copies: u64,
}

impl Elementwise {
    fn tiled(&self, shape: &Shape, tiling: &Tiling) -> ElementwiseDims {
        let (n, row) = match self.layout {
            ElementLayout::Flat => (shape["n"], shape["n"]),
            _ => (shape["rows"] * shape["cols"], shape["cols"]),
        };
        ElementwiseDims {
            n,
            row,
            tile: tiling["tile"],
            cols: tiling["cols"],
            rows: tiling["rows"],
            depth: tiling["l1_depth"],
            l2_copies: tiling["l2_copies"],
        }
    }

    fn n_inputs(&self) -> u64 {
        if self.function == Function::Gelu {
            1
        } else {
            2
        }
    }

    fn kernel(&self) -> &'static str {
        match self.function {
            Function::SiluMul => "silu_mul_bf16",
            Function::GeluMul => "gelu_mul_bf16",
            Function::Gelu => "gelu_bf16",
            Function::Add => "add_bf16",
        }
    }

    fn check(&self, p: &ElementwiseDims, machine: &Machine) -> Result<(), BuildError> {
        let checks = Checks { mapping: self.name };
        let n_cores = p.cols * p.rows;
        checks.herd(p.cols, p.rows, machine)?;
        let (asked, ports) = (n_cores * self.n_inputs(), 2 * u64::from(machine.cols));
        let through = p.l2_copies > 0;
        checks.ensure(through || asked <= ports, Rule::Streams, || {
            format!(
                "{n_cores} cores with {} inputs each need {asked} shim streams, there are {ports}; \
                 take a smaller herd or l2_copies=2",
                self.n_inputs()
            )
        })?;
        for (what, size) in [("a row", p.row), ("a block", p.tile)] {
            checks.ensure(size.is_multiple_of(2), Rule::Granularity, || {
                format!(
                    "{what} of {size} bf16 values ends within an address unit of 4 bytes; make it \
                     even"
                )
            })?;
        }
        match self.layout {
            _ if through => checks.divides(("n", p.n), ("cols * rows * tile", n_cores * p.tile))?,
            ElementLayout::Flat => {
                checks.divides(("n", p.n), ("cols * rows * tile", n_cores * p.tile))?
            }
            _ => {
                checks.divides(("rows of the shape", p.n / p.row), ("cols * rows", n_cores))?;
                checks.divides(("cols of the shape", p.row), ("tile", p.tile))?;
                checks.stride("cols * rows rows", 2 * n_cores * p.row, machine)?;
            }
        }
        checks.ensure((1..=2).contains(&p.depth), Rule::Range, || {
            format!("l1_depth = {}; it is 1, or 2 for ping-pong", p.depth)
        })?;
        checks.ensure(p.l2_copies <= 2, Rule::Range, || {
            format!(
                "l2_copies = {}; it is 0 for streams straight from the shims, 1, or 2 for ping-pong",
                p.l2_copies
            )
        })?;
        checks.l2(4 * p.l2_copies * p.rows * p.tile, machine)?;
        checks.l1(2 * p.depth * p.tile * (self.n_inputs() + 1), machine)
    }

    fn streaming(&self, p: &ElementwiseDims) -> Streaming<'_> {
        let share = p.n / (p.cols * p.rows);
        let names: &[&'static str] = match self.function {
            Function::SiluMul | Function::GeluMul => &["gate", "up"],
            Function::Gelu => &["x"],
            Function::Add => &["a", "b"],
        };
        let port = |(arg, &name): (usize, &&'static str)| Port {
            name,
            element: Element::Bf16,
            arg,
        };
        let (core_step, dims) = match self.layout {
            ElementLayout::Rows => (
                p.row,
                vec![(share / p.row, p.cols * p.rows * p.row), (p.row, 1)],
            ),
            ElementLayout::Flat | ElementLayout::RowsToFlat => (share, vec![(share, 1)]),
        };
        Streaming {
            name: "elementwise",
            kernel: self.kernel(),
            args: if names.len() == 1 {
                &[0, 1]
            } else {
                &[0, 1, 2]
            },
            inputs: names.iter().enumerate().map(port).collect(),
            output: Port {
                name: "y",
                element: Element::Bf16,
                arg: names.len(),
            },
            cols: p.cols,
            rows: p.rows,
            tile: p.tile,
            share,
            core_step,
            dims,
            depth: p.depth,
        }
    }

    /// The largest even block for a herd, if there is one.
    fn tile_for(&self, shape: &Shape, n_cores: u64) -> u64 {
        let whole = match self.layout {
            ElementLayout::Flat => shape["n"] / n_cores,
            _ => shape["cols"],
        };
        largest_divisor(whole, self.tile_max, 2)
    }

    fn tiling(tile: u64, cols: u64, rows: u64) -> Tiling {
        NamedNumbers::new(&[
            ("tile", tile),
            ("cols", cols),
            ("rows", rows),
            ("l1_depth", 2),
            ("l2_copies", 0),
        ])
    }

    /// Legal tilings through memory tiles, with the largest blocks.
    fn through_memory_tiles(&self, shape: &Shape, machine: &Machine) -> Vec<Tiling> {
        let n: u64 = shape.iter().map(|(_, v)| v).product();
        let cols = u64::from(machine.cols);
        let of_rows = (2..=u64::from(machine.rows)).rev().map(|rows| {
            let tile = largest_divisor(n / (cols * rows), self.tile_max, 2);
            Self::tiling(tile, cols, rows).with("l2_copies", 2)
        });
        of_rows
            .filter(|t| self.check(&self.tiled(shape, t), machine).is_ok())
            .collect()
    }
}

/// Tilings of the mapping of that name through memory tiles that are estimated to beat `default`, the
/// fastest first; of other mappings none.
pub(super) fn ranked(
    name: &str,
    shape: &Shape,
    default: &Tiling,
    (machine, profile): (&Machine, &Profile),
) -> Vec<Tiling> {
    let all = [SILU_MUL, GELU_MUL, GELU, ADD, ADD_2D, ADD_FLAT];
    let Some(mapping) = all.into_iter().find(|m| m.name == name) else {
        return Vec::new();
    };
    let n = shape.iter().map(|(_, v)| v).product();
    let tilings = mapping.through_memory_tiles(shape, machine);
    streaming::faster(tilings, default, |tiling| {
        let n_cores = tiling["cols"] * tiling["rows"];
        let bytes = (2 * mapping.n_inputs(), 2);
        streaming::estimate_ns(n, n_cores, mapping.kernel(), bytes, (machine, profile))
    })
}

impl Mapping for Elementwise {
    fn name(&self) -> &'static str {
        self.name
    }

    fn summary(&self) -> &'static str {
        self.summary
    }

    fn parse_shape(&self, text: &str) -> Result<Shape, ShapeError> {
        match self.layout {
            ElementLayout::Flat => parse_dims(text, ["n"]),
            _ => parse_dims(text, ["rows", "cols"]),
        }
    }

    fn default_tiling(&self, shape: &Shape, machine: &Machine) -> Tiling {
        // Most cores first, then wide herds: each column adds a shim.
        let mut best = Self::tiling(2, 1, 1);
        let mut most = 0;
        for rows in 1..=u64::from(machine.rows) {
            for cols in 1..=u64::from(machine.cols) {
                let tiling = Self::tiling(self.tile_for(shape, cols * rows), cols, rows);
                let legal = self.check(&self.tiled(shape, &tiling), machine).is_ok();
                if legal && cols * rows > most {
                    (best, most) = (tiling, cols * rows);
                }
            }
        }
        best
    }

    fn tilings(&self, shape: &Shape, machine: &Machine) -> Vec<Tiling> {
        let mut tilings = Vec::new();
        for rows in [1, 2, 4] {
            for cols in 1..=u64::from(machine.cols) {
                let largest = self.tile_for(shape, cols * rows);
                for tile in [largest, 256, 512, 1024, 2048, 4096] {
                    let tiling = Self::tiling(tile, cols, rows);
                    let legal = self.check(&self.tiled(shape, &tiling), machine).is_ok();
                    if legal && !tilings.contains(&tiling) {
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
        let streaming = self.streaming(&p);
        let two_d = [p.n / p.row, p.row];
        let flat = [p.n];
        let (in_shape, out_shape): (&[u64], &[u64]) = match self.layout {
            ElementLayout::Flat => (&flat, &flat),
            ElementLayout::Rows => (&two_d, &two_d),
            ElementLayout::RowsToFlat => (&two_d, &flat),
        };
        let mut slots: Vec<_> = streaming
            .inputs
            .iter()
            .map(|p| slot(p.name, Element::Bf16, in_shape, Role::Input))
            .collect();
        slots.push(slot("y", Element::Bf16, out_shape, Role::Output));
        Ok(Program {
            name: self.name.replace('-', "_"),
            slots,
            launches: vec![match p.l2_copies {
                0 => streaming.launch(machine),
                copies => streaming.launch_through_memory_tiles(copies),
            }],
        })
    }

    fn inputs(&self, shape: &Shape, seed: u64) -> Vec<Vec<u8>> {
        let n: u64 = shape.iter().map(|(_, v)| v).product();
        let mut random = Random::new(seed);
        let mut slots: Vec<_> = (0..self.n_inputs())
            .map(|_| random.bf16_bytes(n, 4.0))
            .collect();
        slots.push(vec![0; 2 * n as usize]);
        slots
    }

    fn reference_in(
        &self,
        _numerics: Numerics,
        _shape: &Shape,
        _tiling: &Tiling,
        slots: &[Vec<u8>],
    ) -> Vec<(usize, Vec<u8>)> {
        let (inputs, _) = slots.split_at(self.n_inputs() as usize);
        vec![(inputs.len(), reference::run(self.function, inputs))]
    }

    fn tolerance(&self) -> Tolerance {
        Tolerance::Exact
    }

    fn work(&self, shape: &Shape) -> LeastWork {
        let n: u64 = shape.iter().map(|(_, v)| v).product();
        let flops = match self.function {
            Function::Add => 1,
            Function::SiluMul => 5,
            Function::Gelu => 8,
            Function::GeluMul => 9,
        };
        LeastWork {
            flops: flops * n,
            ddr_bytes: 2 * n * (self.n_inputs() + 1),
        }
    }
}
