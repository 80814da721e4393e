//! Megatiles: which are legal, and which to use.

use crate::mapping::parts::{Checks, largest_divisor};
use crate::mapping::{BuildError, Named, Rule, Shape, Tiling};
use millrace_xdna2_machine::Machine;

/// Shape and tiling as plain numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tiled {
    pub(super) m: u64,
    pub(super) k: u64,
    pub(super) n: u64,
    pub(super) tm: u64,
    pub(super) tn: u64,
    pub(super) e_y: u64,
    pub(super) e_x: u64,
    pub(super) kl2: u64,
    pub(super) tk: u64,
    pub(super) cols: u64,
    pub(super) rows: u64,
    pub(super) l1_depth: u64,
    pub(super) l2_copies: u64,
}

impl Tiled {
    pub(super) fn new(shape: &Shape, tiling: &Tiling) -> Tiled {
        Tiled {
            m: shape["m"],
            k: shape["k"],
            n: shape["n"],
            tm: tiling["tile_m"],
            tn: tiling["tile_n"],
            e_y: tiling["e_y"],
            e_x: tiling["e_x"],
            kl2: tiling["tile_k_l2"],
            tk: tiling["tile_k_l1"],
            cols: tiling["cols"],
            rows: tiling["rows"],
            l1_depth: tiling["l1_depth"],
            l2_copies: tiling["l2_copies"],
        }
    }

    fn tiling(&self) -> Tiling {
        Named::new(&[
            ("tile_m", self.tm),
            ("tile_n", self.tn),
            ("e_y", self.e_y),
            ("e_x", self.e_x),
            ("tile_k_l2", self.kl2),
            ("tile_k_l1", self.tk),
            ("cols", self.cols),
            ("rows", self.rows),
            ("l1_depth", self.l1_depth),
            ("l2_copies", self.l2_copies),
        ])
    }

    /// Rows of a megatile.
    pub(super) fn mega_m(&self) -> u64 {
        self.cols * self.e_y * self.tm
    }

    /// Columns of a megatile.
    pub(super) fn mega_n(&self) -> u64 {
        self.rows * self.e_x * self.tn
    }

    fn l1_bytes(&self) -> u64 {
        let tile = self.tm * self.tn;
        let inputs = self.l1_depth * 2 * self.tk * (self.tm + self.tn);
        inputs + 4 * self.e_x * self.e_y * tile + 2 * tile
    }

    fn l2_bytes(&self) -> u64 {
        let a = self.e_y * self.tm * self.kl2;
        let b = self.kl2 * self.tn;
        let c = self.e_y * self.tm * self.mega_n();
        2 * self.l2_copies * (a + b + c)
    }

    pub(super) fn check(&self, machine: &Machine) -> Result<(), BuildError> {
        let checks = Checks {
            mapping: "gemm-megatile",
        };
        checks.herd(self.cols, self.rows, machine)?;
        checks.ensure(self.rows <= u64::from(machine.cols), Rule::Herd, || {
            let (rows, cols) = (self.rows, machine.cols);
            format!("{rows} rows need as many memory tiles for B; the array has {cols}")
        })?;
        for (name, size) in [
            ("tile_m", self.tm),
            ("tile_n", self.tn),
            ("tile_k_l1", self.tk),
        ] {
            checks.divides((name, size), ("the matrix unit's edge", 8))?;
        }
        checks.divides(("m", self.m), ("e_y * tile_m", self.e_y * self.tm))?;
        checks.divides(("n", self.n), ("rows * e_x * tile_n", self.mega_n()))?;
        checks.divides(("k", self.k), ("tile_k_l2", self.kl2))?;
        checks.divides(("tile_k_l2", self.kl2), ("tile_k_l1", self.tk))?;
        for (name, value) in [("l1_depth", self.l1_depth), ("l2_copies", self.l2_copies)] {
            checks.ensure((1..=2).contains(&value), Rule::Range, || {
                format!("{name} = {value}; it is 1, or 2 for ping-pong")
            })?;
        }
        let repeats = u64::from(machine.repeat_max);
        checks.ensure(self.e_x.max(self.e_y) <= repeats, Rule::Repeat, || {
            format!("e_x and e_y of at most {repeats} are streamed")
        })?;
        checks.stride("a row of B", 2 * self.n, machine)?;
        checks.stride("a row of A", 2 * self.k, machine)?;
        checks.l1(self.l1_bytes(), machine)?;
        checks.l2(self.l2_bytes(), machine)
    }
}

/// The largest megatile that fits: 512 × 512 where M is long; where it is short, tiles so low that
/// all columns have rows, and padding in steps of 8.
fn start(shape: &Shape, machine: &Machine) -> Tiled {
    let (m, k, n) = (shape["m"], shape["k"], shape["n"]);
    let (cols, rows) = (u64::from(machine.cols), u64::from(machine.rows));
    let rows = (1..=rows)
        .rev()
        .find(|r| (n / 8).is_multiple_of(*r))
        .unwrap_or(1);
    let tm = largest_divisor(m, 64.min((m / cols).max(8)), 8).max(8);
    let tn = largest_divisor(n / rows, 64, 8).max(8);
    let tk = largest_divisor(k, 32, 8).max(8);
    let e_x = if (n / (rows * tn)).is_multiple_of(2) {
        2
    } else {
        1
    };
    Tiled {
        m,
        k,
        n,
        tm,
        tn,
        e_y: 1,
        e_x,
        kl2: largest_divisor(k, 512, tk).max(tk),
        tk,
        cols: (m / tm).clamp(1, cols),
        rows,
        l1_depth: 2,
        l2_copies: 2,
    }
}

pub(super) fn default(shape: &Shape, machine: &Machine) -> Tiling {
    start(shape, machine).tiling()
}

/// Legal megatiles of the start's herd.
pub(super) fn all(shape: &Shape, machine: &Machine) -> Vec<Tiling> {
    let base = start(shape, machine);
    let mut plans = vec![base];
    for tm in [8, 16, 32, 48, 64] {
        for tn in [32, 64, 80, 128] {
            for (e_y, e_x) in [(1, 1), (1, 2), (2, 1), (2, 2), (1, 4), (4, 1)] {
                for kl2 in [128, 256, 512] {
                    for tk in [32, 64] {
                        let e_cols = (base.m / (e_y * tm)).clamp(1, u64::from(machine.cols));
                        plans.push(Tiled {
                            tm,
                            tn,
                            e_y,
                            e_x,
                            kl2,
                            tk,
                            cols: e_cols,
                            ..base
                        });
                    }
                }
            }
        }
    }
    plans.retain(|p| p.check(machine).is_ok());
    let mut tilings: Vec<Tiling> = plans.iter().map(Tiled::tiling).collect();
    tilings[..].sort_by_key(|t| t.iter().map(|(_, v)| v).collect::<Vec<_>>());
    tilings.dedup();
    tilings
}
