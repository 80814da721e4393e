//! State that all actors of a launch see.

use super::fault::Site;
use super::motion::Motion;
use crate::program::{Env, Flat, Launch, Pattern};
use millrace_kernels::Cpu;
use millrace_npu::Slot;

/// Units an actor may spend in one round before the others get their turn.
pub(super) const QUANTUM: u64 = 1 << 22;

/// State that all actors of a launch see while a round runs.
pub(super) struct LaunchContext<'a> {
    pub(super) flat: &'a Flat<'a>,
    pub(super) slots: &'a [Slot],
    pub(super) ddr: &'a [&'a [u8]],
    pub(super) cpu: &'a Cpu,
    /// Last grid point whose shim tasks may begin.
    pub(super) last_point: u64,
    /// Units that the launch may take.
    pub(super) max_units: u64,
}

/// A problem and where it is; the network adds the launch.
#[derive(Debug)]
pub(super) struct Trouble {
    pub(super) place: String,
    pub(super) site: Site,
    pub(super) point: Option<Vec<u32>>,
    pub(super) problem: String,
}

impl Trouble {
    /// A problem outside cores, slots and grid points.
    pub(super) fn at(place: String, problem: impl Into<String>) -> Trouble {
        Trouble {
            place,
            site: Site::default(),
            point: None,
            problem: problem.into(),
        }
    }
}

/// A core of the launch as a place on the array.
pub(super) fn core_site(flat: &Flat<'_>, core: usize) -> Site {
    let core = &flat.cores[core];
    Site {
        core: Some((core.col, core.row)),
        slot: None,
    }
}

/// Number of grid points; saturates.
pub(super) fn n_points(launch: &Launch) -> u64 {
    launch.n_grid_points().unwrap_or(u64::MAX)
}

/// Coordinates of a grid point.
pub(super) fn coordinates(launch: &Launch, point: u64) -> Vec<u32> {
    let mut rest = point;
    let mut at = vec![0; launch.grid.len()];
    for (at, &size) in at.iter_mut().zip(&launch.grid).rev() {
        *at = (rest % u64::from(size.max(1))) as u32;
        rest /= u64::from(size.max(1));
    }
    at
}

/// A pattern over a buffer, cut into a channel's blocks.
pub(super) fn motion(
    pattern: &Pattern,
    env: &Env<'_>,
    flat: &Flat<'_>,
    channel: usize,
    (element_bytes, buffer_elements): (u64, u64),
) -> Result<Motion, String> {
    let decl = flat.channels[channel].decl;
    let channel_bytes = decl.element.size_bytes();
    if channel_bytes != element_bytes {
        return Err(format!(
            "channel `{}` carries elements of {channel_bytes} bytes, the buffer has elements of {element_bytes}",
            decl.name
        ));
    }
    let block = elements(&decl.block).unwrap_or(u64::MAX);
    Motion::new(&pattern.walk(env), block, element_bytes, buffer_elements)
}

/// Elements of a shape; `None` when it overflows.
pub(super) fn elements(shape: &[u32]) -> Option<u64> {
    shape
        .iter()
        .try_fold(1_u64, |n, &d| n.checked_mul(u64::from(d)))
}

/// Units that moving bytes costs.
pub(super) fn move_units(bytes: usize) -> u64 {
    4 + bytes as u64 / 64
}
