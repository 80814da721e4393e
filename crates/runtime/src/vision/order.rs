//! The order of an image's patches in a vision encoder, and which of them see each other.

use std::ops::Range;

use millrace_model::VisionConfig;

/// An image's patches in the vision encoder's order. Squares of patches that become a row are adjacent, and so are windows of squares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PatchOrder {
    /// Patches of a side.
    pub(super) height: usize,
    pub(super) width: usize,
    /// Row and column of each patch.
    pub(super) rows: Vec<u32>,
    pub(super) columns: Vec<u32>,
    /// Patches of each window; a single window if there are none.
    pub(super) windows: Vec<Range<usize>>,
    /// The place of each square of patches among all, from left to right and from top to bottom.
    pub(super) squares: Vec<usize>,
}

impl PatchOrder {
    /// The order for an image of this many pixels a side, after preprocessing.
    pub(super) fn new(config: &VisionConfig, height: usize, width: usize) -> PatchOrder {
        let (height, width) = (height / config.patch_size, width / config.patch_size);
        let merge = config.grid.map_or(1, |grid| grid.merge);
        let (n_rows, n_columns) = (height / merge, width / merge);
        let windows = config.windows.as_ref();
        // Squares of a window's side.
        let side = windows.map(|windows| windows.side / merge / config.patch_size);
        let mut order = PatchOrder {
            height,
            width,
            rows: Vec::with_capacity(height * width),
            columns: Vec::with_capacity(height * width),
            windows: Vec::new(),
            squares: Vec::with_capacity(n_rows * n_columns),
        };
        let (high, wide) = side.map_or((n_rows, n_columns), |side| (side, side));
        for top in (0..n_rows).step_by(high.max(1)) {
            for left in (0..n_columns).step_by(wide.max(1)) {
                let first = order.rows.len();
                for row in top..n_rows.min(top + high) {
                    for column in left..n_columns.min(left + wide) {
                        order.squares.push(row * n_columns + column);
                        order.push_square((row, column), merge);
                    }
                }
                order.windows.push(first..order.rows.len());
            }
        }
        order
    }

    /// The patches of a square.
    fn push_square(&mut self, (row, column): (usize, usize), merge: usize) {
        for y in row * merge..(row + 1) * merge {
            for x in column * merge..(column + 1) * merge {
                self.rows.push(y as u32);
                self.columns.push(x as u32);
            }
        }
    }

    /// How many patches there are.
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Pixels `[3, height, width]` as patches `[n, 3 · patch²]`, each in the order channel, y, x.
    pub(super) fn patch_rows(&self, patch: usize, pixels: &[f32]) -> Vec<f32> {
        let mut out = Vec::with_capacity(pixels.len());
        let (height, width) = (self.height * patch, self.width * patch);
        for (row, column) in self.rows.iter().zip(&self.columns) {
            let (top, left) = (*row as usize * patch, *column as usize * patch);
            for channel in 0..VisionConfig::CHANNELS {
                for y in top..top + patch {
                    let start = (channel * height + y) * width + left;
                    out.extend_from_slice(&pixels[start..start + patch]);
                }
            }
        }
        out
    }

    /// Adds the rows of two tables `[2, n_positions, d_model]` for their columns and rows to patches `[n, d_model]`.
    pub(super) fn add_by_axis(&self, x: &mut [f32], tables: &[f32], d_model: usize) {
        let (by_column, by_row) = tables.split_at(tables.len() / 2);
        let patches = x.chunks_exact_mut(d_model);
        for ((x, row), column) in patches.zip(&self.rows).zip(&self.columns) {
            let column = &by_column[*column as usize * d_model..];
            let row = &by_row[*row as usize * d_model..];
            let positions = column.iter().zip(row);
            x.iter_mut()
                .zip(positions)
                .for_each(|(x, (a, b))| *x += a + b);
        }
    }

    /// A table of positions `[side², d_model]` stretched to the image, corners to corners, in the order of patches.
    pub(super) fn stretched(&self, table: &[f32], side: usize, d_model: usize) -> Vec<f32> {
        let mut out = Vec::with_capacity(self.len() * d_model);
        let at = |place: u32, n: usize| {
            let place = place as f32 * (side - 1) as f32 / (n - 1).max(1) as f32;
            let low = place as usize;
            let share = place - low as f32;
            [(low, 1.0 - share), ((low + 1).min(side - 1), share)]
        };
        for (row, column) in self.rows.iter().zip(&self.columns) {
            let (rows, columns) = (at(*row, self.height), at(*column, self.width));
            let start = out.len();
            out.resize(start + d_model, 0.0);
            for (row, row_share) in rows {
                for (column, column_share) in columns {
                    let position = &table[(row * side + column) * d_model..][..d_model];
                    let share = row_share * column_share;
                    let sums = out[start..].iter_mut().zip(position);
                    sums.for_each(|(sum, x)| *sum += share * x);
                }
            }
        }
        out
    }
}
