//! Dense arrays over named axes, and walks over them.

use crate::axes::{Axes, DigitLayout, Shape};

/// A shape with the axis that steps least in a layout innermost, so that walks along it are runs.
pub(super) fn ordered(mut shape: Shape, layout: &DigitLayout) -> Shape {
    let last = |axis: usize| layout.digits.iter().rposition(|d| d.axis() == Some(axis));
    shape.sort_by_key(|&(axis, _)| last(axis));
    shape
}

/// Whether two shapes are equal up to the order of axes.
pub(super) fn alike(a: &Shape, b: &Shape) -> bool {
    a.len() == b.len() && a.iter().all(|axis| b.contains(axis))
}

/// Values by index: row-major over its axes.
#[derive(Clone, Debug)]
pub(super) struct Array {
    pub shape: Shape,
    pub data: Vec<f32>,
}

impl Array {
    /// An array of not-a-number, for values that nobody wrote.
    pub(super) fn new(shape: Shape) -> Array {
        let n: u64 = shape.iter().map(|(_, extent)| extent).product();
        Array {
            shape,
            data: vec![f32::NAN; n as usize],
        }
    }

    /// The same, of which `n` values are written next. Where that is all, none is read before.
    pub(super) fn to_write(shape: Shape, n: usize, spare: &mut Vec<Vec<f32>>) -> Array {
        let size = shape.iter().map(|(_, extent)| *extent as usize).product();
        let fits = |data: &Vec<f32>| (size..=2 * size).contains(&data.len());
        let mut data = match spare.iter().position(fits) {
            Some(at) => spare.swap_remove(at),
            None => vec![0.0; size],
        };
        data.truncate(size);
        if n != size {
            data.fill(f32::NAN);
        }
        Array { shape, data }
    }

    /// Distance of neighbours along an axis; 0 for an axis that it lacks.
    pub(super) fn step(&self, axis: usize) -> usize {
        let mut step = 1;
        for &(own, extent) in self.shape.iter().rev() {
            if own == axis {
                return step;
            }
            step *= extent as usize;
        }
        0
    }

    /// Offsets of the indices of an axis from `start` on.
    pub(super) fn table(&self, axis: usize, start: u64, extent: u64) -> Vec<usize> {
        let step = self.step(axis);
        (start..start + extent).map(|i| i as usize * step).collect()
    }
}

/// Offsets, in elements, of the indices of an axis in a layout, from `start` on. Positions are sums over
/// axes, since each digit counts one axis.
pub(super) fn layout_table(
    layout: &DigitLayout,
    axis: usize,
    start: u64,
    extent: u64,
) -> Vec<usize> {
    let digits = layout.digits.iter().enumerate();
    let own: Vec<(u64, u64, u64)> = digits
        .filter(|(_, digit)| digit.axis() == Some(axis))
        .map(|(i, digit)| (digit.stride, digit.size, layout.step(i)))
        .collect();
    let position = |i: u64| {
        let parts = own
            .iter()
            .map(|&(stride, size, step)| i / stride % size * step);
        parts.sum::<u64>() as usize
    };
    (start..start + extent).map(position).collect()
}

/// A loop: the offsets on both sides.
pub(super) type Loop = (Vec<usize>, Vec<usize>);

/// A loop nest over axes with offsets on two sides.
pub(super) struct Nest {
    /// For each axis, the outermost first, the offsets on both sides.
    pub loops: Vec<Loop>,
}

impl Nest {
    /// Puts the loop whose right side steps least innermost, and so on.
    pub(super) fn sort(&mut self) {
        let step = |offsets: &Vec<usize>| match offsets[..] {
            [a, b, ..] => b.wrapping_sub(a),
            _ => usize::MAX,
        };
        self.loops
            .retain(|(left, _)| left.len() > 1 || left.first() != Some(&0));
        self.loops
            .sort_by_key(|(_, right)| std::cmp::Reverse(step(right)));
    }

    /// Calls for every run: offsets on both sides and how many elements follow, next to each other on
    /// both.
    pub(super) fn runs(&self, mut call: impl FnMut(usize, usize, usize)) {
        let Some((last, outer)) = self.loops.split_last() else {
            return call(0, 0, 1);
        };
        let follows = |offsets: &[usize]| offsets.windows(2).all(|w| w[1] == w[0] + 1);
        let is_run = follows(&last.0) && follows(&last.1);
        let mut at = vec![0usize; outer.len()];
        loop {
            let sum = |side: fn(&Loop) -> &Vec<usize>| {
                let offsets = outer.iter().zip(&at).map(|(nest, &i)| side(nest)[i]);
                offsets.sum::<usize>()
            };
            let (left, right) = (sum(|nest| &nest.0), sum(|nest| &nest.1));
            if is_run {
                call(left + last.0[0], right + last.1[0], last.0.len());
            } else {
                for (l, r) in last.0.iter().zip(&last.1) {
                    call(left + l, right + r, 1);
                }
            }
            let mut level = outer.len();
            loop {
                if level == 0 {
                    return;
                }
                level -= 1;
                at[level] += 1;
                if at[level] < outer[level].0.len() {
                    break;
                }
                at[level] = 0;
            }
        }
    }
}

/// The tensor's axis for an axis of a command.
pub(super) fn own_axis(axis: usize, renames: &[(String, String)], axes: &Axes) -> usize {
    let name = axes.get(axis).0;
    let own = renames.iter().find(|(_, to)| to == name);
    own.and_then(|(from, _)| axes.id(from).ok()).unwrap_or(axis)
}
