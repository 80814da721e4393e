//! Rotary positions of patches: which pairs of a head rotate by rows and which by columns.

use millrace_kernels::{Cpu, RopeTable, rope_from};
use millrace_model::VisionConfig;
use millrace_model::vision::AxialTurns;

use super::order::PatchOrder;

/// Rotation of pairs by one axis.
pub(super) struct AxialTurn {
    by_rows: bool,
    /// The first element of a head that rotates.
    first: usize,
    table: RopeTable,
}

/// The rotations of a vision encoder: none if heads do not rotate.
pub(super) fn turns(config: &VisionConfig) -> Vec<AxialTurn> {
    let Some(grid) = &config.grid else {
        return Vec::new();
    };
    let (n, theta) = (config.head_dim() / 4, grid.rope_theta);
    let frequencies = |offset: f32| -> Vec<f32> {
        let frequency = |i: usize| 1.0 / theta.powf((i as f32 + offset) / n as f32);
        (0..n).map(frequency).collect()
    };
    let (same, between) = (frequencies(0.0), frequencies(0.5));
    let still = vec![0.0; n];
    let half = config.head_dim() / 2;
    // Pairs half a head apart, the first half of which rotates by rows.
    let over_halves = |columns: &[f32]| {
        let table = |parts: [&[f32]; 2]| RopeTable::new(false, parts.concat(), 1.0);
        [
            (true, 0, table([&same, &still])),
            (false, 0, table([&still, columns])),
        ]
    };
    let turns = match grid.turns {
        AxialTurns::RowsThenColumns => over_halves(&same),
        AxialTurns::Alternating { neighbours: false } => over_halves(&between),
        AxialTurns::Alternating { neighbours: true } => [
            (true, 0, RopeTable::new(true, same, 1.0)),
            (false, half, RopeTable::new(true, between, 1.0)),
        ],
        AxialTurns::HalvesByColumnsAndRows => [
            (false, 0, RopeTable::new(false, same.clone(), 1.0)),
            (true, half, RopeTable::new(false, same, 1.0)),
        ],
    };
    let turn = |(by_rows, first, table)| AxialTurn {
        by_rows,
        first,
        table,
    };
    turns.map(turn).into()
}

impl AxialTurn {
    /// Turns heads of `head_dim` elements of the patches from `first_row` on.
    pub(super) fn apply(
        &self,
        cpu: &Cpu,
        order: &PatchOrder,
        first_row: usize,
        (x, row_elems, head_dim): (&mut [f32], usize, usize),
    ) {
        let places = match self.by_rows {
            true => &order.rows,
            false => &order.columns,
        };
        let places = &places[first_row..first_row + x.len() / row_elems];
        rope_from(cpu, x, (head_dim, self.first), places, &self.table);
    }
}
