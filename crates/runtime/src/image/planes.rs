//! Places of images in texts whose positions have three axes: time, row and column.
//!
//! A token of text has the same position on all three. On the first axis, a row of an image on a grid has the position at which the
//! image begins. On the others it is as far from that position as its row and column are from the corner. The text after an image
//! goes on beyond all rows and columns. So the positions of a sequence follow from its tokens. The ids of images identify their
//! grids, which live as long as the process, as ids do.

use std::ops::Range;
use std::sync::{PoisonError, RwLock};

use super::{FIRST_GRID_ID, PLACEHOLDER, is_on_grid};

/// An image's grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Grid {
    /// The id of its first row.
    first: u32,
    height: u32,
    width: u32,
}

impl Grid {
    fn n_rows(self) -> u32 {
        self.height * self.width
    }
}

/// All grids of the process, by ascending ids.
static GRIDS: RwLock<Vec<Grid>> = RwLock::new(Vec::new());

/// Assigns ids to an image of this many rows and columns, and returns the first; `None` if no ids are left.
pub(super) fn add(height: usize, width: usize) -> Option<u32> {
    let (height, width) = (u32::try_from(height).ok()?, u32::try_from(width).ok()?);
    let n = height.checked_mul(width)?;
    let mut grids = GRIDS.write().unwrap_or_else(PoisonError::into_inner);
    let end = |grid: &Grid| grid.first + grid.n_rows();
    // One id stays unused: neighbouring ids are of one image.
    let first = grids.last().map_or(FIRST_GRID_ID, |last| end(last) + 1);
    // The last id represents rows not yet made.
    if first.checked_add(n)? == PLACEHOLDER {
        return None;
    }
    grids.push(Grid {
        first,
        height,
        width,
    });
    Some(first)
}

/// Whether any image was on a grid. Until then positions are those of text.
pub(crate) fn are_known() -> bool {
    let grids = GRIDS.read().unwrap_or_else(PoisonError::into_inner);
    !grids.is_empty()
}

/// The grid of the image that a token is a row of.
fn grid_of(token: u32) -> Option<Grid> {
    let grids = GRIDS.read().unwrap_or_else(PoisonError::into_inner);
    let after = grids.partition_point(|grid| grid.first <= token);
    let grid = *grids.get(after.checked_sub(1)?)?;
    (token - grid.first < grid.n_rows()).then_some(grid)
}

/// Whether `last` is a row of an image on a grid that `tokens` do not go on with, and not its last.
pub(super) fn is_cut(last: Option<u32>, tokens: &[u32]) -> bool {
    let Some(last) = last.filter(|token| is_on_grid(*token)) else {
        return false;
    };
    let is_last = grid_of(last).is_none_or(|grid| last + 1 == grid.first + grid.n_rows());
    !is_last && tokens.first() != Some(&(last + 1))
}

/// Rows of a pass that are an image's, with their positions by time, row and column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlaneRows {
    pub(crate) rows: Range<usize>,
    pub(crate) axes: [Vec<u32>; 3],
}

/// Walks a sequence and tells its positions.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Positions {
    /// Position of the next token of text.
    next: u32,
    /// The image under way, and the position at which it began.
    image: Option<(Grid, u32)>,
}

impl Positions {
    /// Behind these tokens, the first of a sequence.
    pub(crate) fn behind(tokens: &[u32]) -> Positions {
        let mut positions = Positions::default();
        for token in tokens {
            positions.take(*token);
        }
        positions
    }

    /// The position of the next token, which is this one, by time, row and column.
    pub(crate) fn take(&mut self, token: u32) -> [u32; 3] {
        if !is_on_grid(token) {
            self.image = None;
            let position = self.next;
            self.next += 1;
            return [position; 3];
        }
        // The same image may appear there twice.
        let goes_on = |grid: &Grid| token > grid.first && token - grid.first < grid.n_rows();
        let known = self.image.filter(|(grid, _)| goes_on(grid));
        let (grid, begin) = match known.or_else(|| Some((grid_of(token)?, self.next))) {
            Some(found) => found,
            // No image has such an id.
            None => return [self.next; 3],
        };
        self.image = Some((grid, begin));
        self.next = begin + grid.height.max(grid.width);
        let at = token - grid.first;
        [begin, begin + at / grid.width, begin + at % grid.width]
    }

    /// Appends the time positions of the tokens from row `row` of a pass on, and records the image rows among them.
    pub(crate) fn place(
        &mut self,
        tokens: &[u32],
        row: usize,
        times: &mut Vec<u32>,
        planes: &mut Vec<PlaneRows>,
    ) {
        let mut is_open = false;
        for (row, token) in (row..).zip(tokens) {
            let place = self.take(*token);
            times.push(place[0]);
            if !is_on_grid(*token) {
                is_open = false;
                continue;
            }
            if !is_open {
                planes.push(PlaneRows {
                    rows: row..row,
                    axes: [const { Vec::new() }; 3],
                });
                is_open = true;
            }
            let plane = planes.last_mut().expect("one was just begun");
            plane.rows.end = row + 1;
            for (axis, position) in plane.axes.iter_mut().zip(place) {
                axis.push(position);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Image;
    use super::*;

    /// As in `get_rope_index` of transformers' `modeling_qwen2_vl.py`, for two tokens, an image of 2 by 3, a token, and twice one of 3 by
    /// 1.
    #[test]
    fn images_are_planes_and_text_goes_on_behind_them() {
        let image = |height: usize, width: usize| {
            let rows = vec![0.0; height * width];
            Image::on_grid(1, rows, (height, width), Vec::new()).unwrap()
        };
        let (wide, tall) = (image(2, 3), image(3, 1));
        let mut tokens = vec![5, 6];
        tokens.extend(wide.ids());
        tokens.push(7);
        tokens.extend(tall.ids());
        tokens.extend(tall.ids());
        tokens.extend([8, 9]);
        let expected = [
            [0, 1, 2, 2, 2, 2, 2, 2, 5, 6, 6, 6, 9, 9, 9, 12, 13],
            [0, 1, 2, 2, 2, 3, 3, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13],
            [0, 1, 2, 3, 4, 2, 3, 4, 5, 6, 6, 6, 9, 9, 9, 12, 13],
        ];
        for cut in 0..tokens.len() {
            let (mut times, mut planes) = (Vec::new(), Vec::new());
            let mut positions = Positions::behind(&tokens[..cut]);
            positions.place(&tokens[cut..], 3, &mut times, &mut planes);
            assert_eq!(times, expected[0][cut..], "{cut}");
            for plane in &planes {
                for (axis, found) in plane.axes.iter().enumerate() {
                    let rows = plane.rows.start - 3 + cut..plane.rows.end - 3 + cut;
                    assert_eq!(found, &expected[axis][rows], "{cut}");
                }
            }
            let n: usize = planes.iter().map(|plane| plane.rows.len()).sum();
            let left = tokens[cut..].iter().filter(|token| is_on_grid(**token));
            assert_eq!(n, left.count());
        }
    }
}
