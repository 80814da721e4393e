//! A core's L1 for a prompt's attention: queries of a few tokens, a tile of keys and one of values, a state.

use super::problem::Problem;
use crate::mapping::cached_attention::{AT_DIGITS, lowest_common_rows};
use crate::mapping::parts::{Checks, local};
use crate::mapping::{BuildError, Rule, Shape};
use millrace_npu::Element;
use millrace_xdna2_machine::Machine;
use millrace_xdna2_machine::program::{Local, Operand};

/// A core's queries.
pub(in crate::mapping) const Q: Operand = Operand::Local(0);
/// The position of the pass.
pub(in crate::mapping) const AT: Operand = Operand::Local(1);
/// Probabilities.
pub(in crate::mapping) const P: Operand = Operand::Local(2);
/// Outputs, maxima and sums.
pub(in crate::mapping) const STATE: Operand = Operand::Local(3);

/// Sizes of a core's share.
#[derive(Clone, Copy, Debug)]
pub(in crate::mapping) struct CoreTile {
    /// Tokens of a core.
    pub(in crate::mapping) tile_tokens: u64,
    /// Heads that share keys, which are the queries of a token.
    pub(in crate::mapping) group: u64,
    pub(in crate::mapping) head_dim: u64,
    /// Keys of a tile.
    pub(in crate::mapping) tile_kv: u64,
    /// Rows of a result that leave a core at once.
    pub(in crate::mapping) y_rows: u64,
    /// Tiles of keys and of values: 2 for ping-pong.
    pub(in crate::mapping) l1_depth: u64,
}

impl CoreTile {
    /// Queries of a core: heads of a group by tokens.
    pub(in crate::mapping) fn tile_rows(&self) -> u64 {
        self.tile_tokens * self.group
    }

    /// Parts in which a core's result leaves.
    pub(in crate::mapping) fn y_parts(&self) -> u64 {
        self.tile_rows() / self.y_rows
    }

    /// Elements of the slot with the position: as many as a tile of values.
    pub(in crate::mapping) fn at_elements(&self) -> u64 {
        self.tile_kv * self.head_dim
    }

    /// Elements of the state of a slice of eight queries.
    fn slice_elements(&self) -> u64 {
        8 * (self.head_dim + 2)
    }

    fn l1_bytes(&self) -> u64 {
        let (tq, tk, d) = (self.tile_rows(), self.tile_kv, self.head_dim);
        let bf16 =
            tq * d + tq * tk + self.l1_depth * 2 * tk * d + self.y_rows * d + AT_DIGITS as u64;
        2 * bf16 + 4 * self.slice_elements() * (tq / 8)
    }

    fn fits_l1(&self, machine: &Machine) -> bool {
        self.l1_bytes() <= machine.core.data_bytes - machine.stack_bytes
    }

    /// Refuses sizes that do not divide evenly, and more than L1 holds.
    pub(in crate::mapping) fn check(
        &self,
        checks: Checks,
        machine: &Machine,
    ) -> Result<(), BuildError> {
        checks.ensure((1..=2).contains(&self.l1_depth), Rule::Range, || {
            format!("l1_depth = {}; it is 1, or 2 for ping-pong", self.l1_depth)
        })?;
        let edge = ("the matrix unit's edge", 8);
        let tk = ("tile_kv", self.tile_kv);
        checks.divides(tk, edge)?;
        checks.divides(("head_dim", self.head_dim), edge)?;
        let group = ("heads of a group", self.group);
        let rows = ("tile_tokens * group", self.tile_rows());
        checks.divides(tk, group)?;
        checks.divides(rows, tk)?;
        checks.divides(rows, ("y_rows", self.y_rows))?;
        checks.divides(("y_rows", self.y_rows), group)?;
        checks.l1(self.l1_bytes(), machine)
    }

    /// The buffers of a core's program.
    pub(in crate::mapping) fn locals(&self) -> Vec<Local> {
        let (bf16, f32) = (Element::Bf16, Element::F32);
        let (tq, d) = (self.tile_rows(), self.head_dim);
        vec![
            local("q", bf16, &[tq * d]),
            local("at", bf16, &[AT_DIGITS as u64]),
            local("p", bf16, &[tq * self.tile_kv]),
            local("state", f32, &[tq / 8, self.slice_elements()]),
        ]
    }

    /// The fewest tokens that a core can have, with the tile of keys of all lengths. `None` if none fits.
    pub(in crate::mapping) fn least(shape: &Shape, machine: &Machine) -> Option<CoreTile> {
        let of = Problem::new(shape);
        let group = of.group().max(1);
        let unit = lowest_common_rows(group);
        let tiles = || (1..=(32 / unit).max(1)).rev().map(|n| n * unit);
        let plans = [2, 1].into_iter().flat_map(|l1_depth| {
            tiles()
                .flat_map(move |tile_kv| [tile_kv, unit].map(|y_rows| (l1_depth, tile_kv, y_rows)))
        });
        let mut plans = plans.map(|(l1_depth, tile_kv, y_rows)| CoreTile {
            tile_tokens: tile_kv / group,
            group,
            head_dim: of.head_dim,
            tile_kv,
            y_rows,
            l1_depth,
        });
        plans.find(|tile| tile.fits_l1(machine))
    }

    /// Whole multiples of these tokens that L1 holds, with at most [`MAX_ROWS`] queries. Results leave whole, or a few rows at a time.
    pub(in crate::mapping) fn multiples(self, machine: &Machine) -> Vec<CoreTile> {
        let some = lowest_common_rows(self.group);
        let tiles = 1..=(MAX_ROWS / self.tile_rows()).max(1);
        let of = |tiles: u64| {
            let tile_tokens = tiles * self.tile_tokens;
            let tile = CoreTile {
                tile_tokens,
                ..self
            };
            let parts = [tile.tile_rows(), some].map(|y_rows| CoreTile { y_rows, ..tile });
            let legal = |tile: &CoreTile| {
                tile.tile_rows().is_multiple_of(tile.y_rows) && tile.fits_l1(machine)
            };
            parts.into_iter().find(legal)
        };
        tiles.filter_map(of).collect()
    }
}

/// Most queries of a core.
const MAX_ROWS: u64 = 64;

/// Keys of a tile, which decide a result's bits: the same for any number of tokens and keys of such heads. `None` if no
/// tile fits a core.
pub(crate) fn tile_kv(shape: &Shape, machine: &Machine) -> Option<u64> {
    CoreTile::least(shape, machine).map(|tile| tile.tile_kv)
}
