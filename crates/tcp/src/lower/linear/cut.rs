//! How a product is cut into tiles and rings.

use super::{HbmLinear, LinearSplit};
use crate::lower::LowerError;
use crate::lower::builder::Builder;

impl Builder<'_> {
    /// How to cut a product.
    pub(in crate::lower) fn cut(&self, linear: &HbmLinear) -> Result<LinearSplit, LowerError> {
        let (n, k) = (linear.n.size(), linear.k.size());
        let element = linear.weights.factor();
        let machine = self.target.machine;
        let whole = machine.packet_bytes * 8 / element.bits();
        let packet = [whole, whole / 2]
            .into_iter()
            .find(|p| k.is_multiple_of(*p));
        let wrong = |what: &str, found: u64, expected: String| LowerError::Size {
            what: format!("{what} of a weight ({n} × {k})"),
            found,
            expected,
        };
        let packet = packet
            .ok_or_else(|| wrong("the row length", k, format!("a multiple of {}", whole / 2)))?;
        let tokens = self.n_tokens();
        let fits = |r: &u64, n2: u64| {
            let k_s = k / r;
            let even = k.is_multiple_of(*r) && k_s.is_multiple_of(packet);
            let (bytes, room) = match self.is_held() {
                true => (
                    element.bytes(tokens.div_ceil(machine.lanes) * k_s),
                    machine.trf_lane_bytes,
                ),
                false => (element.bytes(n2 * k_s), machine.trf_lane_bytes / 2),
            };
            even && bytes <= room
        };
        let asked = |ring: &u64| linear.ring.is_none_or(|asked| asked == *ring);
        let rings = || (0..7).map(|i| 1u64 << i).filter(asked);
        let ways = [2, 1]
            .into_iter()
            .flat_map(|n2| rings().map(move |r| (n2, r)));
        for (n2, r) in ways.filter(|(n2, r)| fits(r, *n2)) {
            let cut = LinearSplit {
                r,
                k_s: k / r,
                packet,
                count: 0,
                n_tiles: 0,
                n2,
                rows: 0,
            };
            let tiled = match self.is_held() {
                true => self.tiles_held(linear, cut),
                false => self.tiles_streamed(linear, cut),
            };
            if let Some(cut) = tiled {
                return Ok(cut);
            }
        }
        let expected = "a number that tiles of data memory and register files divide".to_owned();
        Err(wrong("the number of rows", n, expected))
    }

    /// Tiles of weights that stream: as large as their region takes.
    fn tiles_held(&self, linear: &HbmLinear, cut: LinearSplit) -> Option<LinearSplit> {
        let outermost = linear.n.axes[0].1;
        let unit = linear.n.size() / outermost;
        let groups = self.target.machine.chip_slices() / cut.r;
        let stored = linear.weights.stored();
        let fits = |n_tiles: &u64| {
            let rows = outermost / n_tiles * unit;
            let bytes = stored.bytes(rows.div_ceil(groups) * cut.k_s);
            outermost.is_multiple_of(*n_tiles) && bytes <= self.weight_bytes()
        };
        let n_tiles = (1..=outermost).find(fits)?;
        let count = outermost / n_tiles;
        Some(LinearSplit {
            count,
            n_tiles,
            rows: count * unit,
            ..cut
        })
    }

    /// Tiles of weights that are held: whole kernels' rows.
    fn tiles_streamed(&self, linear: &HbmLinear, cut: LinearSplit) -> Option<LinearSplit> {
        let machine = self.target.machine;
        let (n, outermost) = (linear.n.size(), linear.n.axes[0].1);
        let unit = n / outermost;
        let rows = machine.chip_slices() / cut.r * machine.lanes * cut.n2;
        if n <= rows {
            // One kernel; a single row a lane where that is enough.
            let n2 = if n <= rows / cut.n2 { 1 } else { cut.n2 };
            return Some(LinearSplit {
                count: outermost,
                n_tiles: 1,
                n2,
                rows: rows / cut.n2 * n2,
                ..cut
            });
        }
        if !n.is_multiple_of(rows) || !rows.is_multiple_of(unit) {
            return None;
        }
        let n_kernels = n / rows;
        let row_bytes = linear
            .weights
            .stored()
            .bytes(machine.lanes * cut.n2 * cut.k_s);
        let fits = |tiles: &u64| {
            n_kernels.is_multiple_of(*tiles) && n_kernels / tiles * row_bytes <= self.weight_bytes()
        };
        let n_tiles = (1..=n_kernels).find(fits)?;
        Some(LinearSplit {
            count: outermost / n_tiles,
            n_tiles,
            rows,
            ..cut
        })
    }
}
