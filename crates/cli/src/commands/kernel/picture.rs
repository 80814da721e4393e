//! The array as a small picture: how busy every core is.

use millrace_xdna2::Machine;
use millrace_xdna2::timing::Timing;

/// Share of the whole call that each core computes, in percent, by row and column; `None` for
/// cores that no launch uses.
pub(super) fn busy(timing: &Timing, machine: &Machine) -> Vec<Vec<Option<f64>>> {
    let mut busy = vec![vec![None; machine.cols as usize]; machine.rows as usize];
    for core in timing.launches.iter().flat_map(|launch| &launch.cores) {
        let row = busy.get_mut(core.row as usize);
        if let Some(cell) = row.and_then(|row| row.get_mut(core.col as usize)) {
            *cell = Some(cell.unwrap_or(0.0) + 100.0 * core.busy_ns / timing.total_ns);
        }
    }
    busy
}

/// The picture: rows from the far end of the array down to the memory tiles.
pub(super) fn lines(busy: &[Vec<Option<f64>>]) -> Vec<String> {
    let rows = busy.iter().enumerate().rev();
    rows.map(|(row, cells)| {
        let cells: String = cells.iter().map(|cell| cell_text(*cell)).collect();
        format!("row {row} {cells}")
    })
    .collect()
}

fn cell_text(cell: Option<f64>) -> String {
    match cell {
        Some(percent) => format!("{percent:5.0}"),
        None => "    ·".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_far_row_is_on_top_and_idle_cores_are_dots() {
        let picture = lines(&[vec![Some(99.6), None], vec![None, Some(3.2)]]);
        assert_eq!(picture, ["row 1     ·    3", "row 0   100    ·"]);
    }
}
