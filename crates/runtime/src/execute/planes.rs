//! Rotation of rows that have positions on three axes: time, row and column of an image.
//!
//! Each pair of a head rotates by the position on its own axis. A table of one axis leaves the pairs of the others unchanged, to the
//! bit. Such a pair is multiplied by one and has zero added. Three rotations in turn therefore make one.

use millrace_graph::{Rope, RopeStyle, RotateHeads};
use millrace_kernels::{Cpu, RopeTable, rope_from};

use crate::image::planes::PlaneRows;

/// The tables of one rotation.
pub(crate) struct PlaneTables {
    axes: [RopeTable; 3],
    /// Factor on all pairs, if there is one.
    factor: Option<RopeTable>,
}

impl PlaneTables {
    /// Tables of a rotation whose pair `i` rotates by axis `axes[i]`.
    pub(crate) fn new(rope: &Rope, axes: &[usize]) -> PlaneTables {
        let interleaved = rope.style == RopeStyle::Interleaved;
        let table = |inv_freq, factor| RopeTable::new(interleaved, inv_freq, factor);
        let of_axis = |axis: usize| {
            let pairs = rope.inv_freq.iter().zip(axes);
            let turned = pairs.map(|(freq, own)| if *own == axis { *freq } else { 0.0 });
            table(turned.collect(), 1.0)
        };
        let factor = rope.attention_factor;
        PlaneTables {
            axes: [0, 1, 2].map(of_axis),
            factor: (factor != 1.0).then(|| table(vec![0.0; rope.inv_freq.len()], factor)),
        }
    }
}

/// Rows with positions on three axes, and their rotations.
#[derive(Clone, Copy, Default)]
pub(crate) struct Planes<'a> {
    /// One for each of the graph's tables; none in a model without such positions.
    pub(crate) tables: &'a [PlaneTables],
    /// Ascending.
    pub(crate) rows: &'a [PlaneRows],
}

impl Planes<'_> {
    /// Rotates all rows: rows of text by their positions, the others by their positions on three axes.
    pub(super) fn rotate(
        &self,
        cpu: &Cpu,
        op: &RotateHeads,
        (table, positions): (&RopeTable, &[u32]),
        out: &mut [f32],
    ) {
        let heads = (op.head_dim, op.first);
        let Some(tables) = self.tables.get(op.rope.0) else {
            return rope_from(cpu, out, heads, positions, table);
        };
        let width = out.len() / positions.len().max(1);
        let mut done = 0;
        let mut text = |out: &mut [f32], end: usize, next: usize| {
            let rows = &mut out[done * width..end * width];
            rope_from(cpu, rows, heads, &positions[done..end], table);
            done = next;
        };
        for plane in self.rows {
            text(out, plane.rows.start, plane.rows.end);
            let rows = &mut out[plane.rows.start * width..plane.rows.end * width];
            for (table, positions) in tables.axes.iter().zip(&plane.axes) {
                rope_from(cpu, rows, heads, positions, table);
            }
            if let Some(factor) = &tables.factor {
                rope_from(cpu, rows, heads, &plane.axes[0], factor);
            }
        }
        text(out, positions.len(), positions.len());
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A test may panic.
mod tests {
    use super::*;
    use millrace_graph::RopeId;
    use millrace_kernels::CpuOptions;

    /// A row with equal positions on all axes rotates like a row of text, to the bit; one with different positions does not.
    #[test]
    fn equal_positions_turn_as_text() {
        let cpu = Cpu::new(CpuOptions::default()).unwrap();
        let rope = Rope {
            style: RopeStyle::HalfSplit,
            n_rot: 12,
            inv_freq: (0..6).map(|i| 0.7_f32.powi(i)).collect(),
            attention_factor: 1.0,
        };
        let op = RotateHeads {
            rope: RopeId(0),
            head_dim: 16,
            first: 0,
        };
        let table = RopeTable::new(false, rope.inv_freq.clone(), 1.0);
        let tables = [PlaneTables::new(&rope, &[0, 1, 2, 0, 1, 0])];
        let x: Vec<f32> = (0..4 * 32).map(|i| (i as f32 * 0.37).sin()).collect();
        let positions = [3, 9, 9, 4];
        let turned = |axes: Option<[Vec<u32>; 3]>| {
            let rows: Vec<PlaneRows> = axes
                .map(|axes| PlaneRows { rows: 1..3, axes })
                .into_iter()
                .collect();
            let planes = Planes {
                tables: &tables,
                rows: &rows,
            };
            let mut out = x.clone();
            planes.rotate(&cpu, &op, (&table, &positions), &mut out);
            out
        };
        let text = turned(None);
        assert_eq!(turned(Some([vec![9, 9], vec![9, 9], vec![9, 9]])), text);
        let planar = turned(Some([vec![9, 9], vec![9, 10], vec![9, 9]]));
        let differs: Vec<usize> = (0..x.len()).filter(|i| planar[*i] != text[*i]).collect();
        // Pairs 1 and 4 of the second row of the image, in both heads.
        let expected = [1, 4, 7, 10].map(|i| 64 + i);
        let expected = expected.into_iter().chain(expected.map(|i| i + 16));
        assert_eq!(differs, expected.collect::<Vec<_>>());
    }
}
