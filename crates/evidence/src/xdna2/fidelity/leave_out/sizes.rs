//! Rows left out by size: constants of a family are fitted on its other sizes, and predict the smaller or the larger
//! ones.
//!
//! A family's own kernel objects are fitted on the remaining sizes, so that they contain nothing of a predicted row.
//! This is also so where a whole family is left out and its objects keep the profile's constants.

use super::{KernelRow, Kernels, LeftOut, Point, compare};
use std::collections::BTreeSet;

/// Target of the fit.
pub(super) const FITTED: &str = "kernels, by size";
/// Rows that a family has at least.
const FEWEST: usize = 6;

/// The smallest and the largest third of every family.
pub(super) fn evaluate(kernels: &Kernels, all: &Point) -> Vec<LeftOut> {
    let groups: BTreeSet<&str> = kernels.rows.iter().map(|row| row.group).collect();
    let mut found = Vec::new();
    for group in groups {
        let mut sizes: Vec<u64> = (kernels.rows.iter())
            .filter(|row| row.group == group)
            .map(size)
            .collect();
        if sizes.len() < FEWEST {
            continue;
        }
        sizes.sort_unstable();
        let third = sizes.len() / 3;
        let (small, large) = (sizes[third - 1], sizes[sizes.len() - third]);
        let mut fold = |name: &str, is_out: &dyn Fn(u64) -> bool| {
            let is_out = |row: &KernelRow| row.group == group && is_out(size(row));
            let point = kernels.fit(all, 2, &|row| !is_out(row));
            let ratios = |point: &Point| kernels.ratios(point, &is_out);
            let name = format!("{group}, {name}");
            found.push(compare(FITTED, &name, &ratios(all), &ratios(&point)));
        };
        fold("smallest", &|size| size <= small);
        fold("largest", &|size| size >= large && size > small);
    }
    found
}

/// Operations, or bytes where a kernel has none to speak of.
fn size(row: &KernelRow) -> u64 {
    let work = row.built.mapping.work(&row.built.shape);
    work.flops.max(work.ddr_bytes)
}
