//! Cost of configuring the array, added to a dispatch.

use super::{configuration_bytes, n_objects};
use crate::program::{Flat, FlatError, GridOrder, Launch, Transfer, resident};
use crate::{Machine, Profile};

/// Time before each launch of a dispatch: configuring the array, or, if it is configured already, writing the constants
/// that differ and pushing the tasks.
///
/// One configuration stays loaded from one dispatch to the next, either a launch with a single herd or a group of
/// [resident](crate::program::resident) launches.
///
/// # Errors
/// A launch that does not expand.
pub fn loads_ns(
    launches: &[Launch],
    (machine, profile): (&Machine, &Profile),
) -> Result<Vec<f64>, FlatError> {
    let dispatch = &profile.dispatch;
    let groups = resident::groups(launches);
    let n_herds = |group: &[Launch]| match group {
        [alone] => alone.herds.len(),
        _ => 1,
    };
    let n_herds: usize = groups.iter().map(|g| n_herds(&launches[g.clone()])).sum();
    let n_cores = |launch: &Launch| -> usize {
        let herds = launch.herds.iter();
        herds.map(|herd| (herd.cols * herd.rows) as usize).sum()
    };
    let mut loads = Vec::with_capacity(launches.len());
    for group in groups {
        let group = &launches[group];
        let all = match group {
            [alone] => alone.clone(),
            _ => resident::union(group),
        };
        loads.push(load_ns(&all, n_herds, (machine, profile))?);
        let n_new = n_written(group);
        for (at, launch) in group.iter().enumerate().skip(1) {
            let tasks = |t: &Transfer| -> u64 { t.dims.iter().map(|&d| u64::from(d)).product() };
            let n_tasks: u64 = match launch.order {
                // Counted with the launch's points.
                GridOrder::Sequential => 0,
                GridOrder::Streamed => launch.transfers.iter().map(tasks).sum(),
            };
            let words = (n_new[at] * n_cores(launch)) as f64;
            loads.push(words * dispatch.parameter_ns + n_tasks as f64 * dispatch.issue_ns);
        }
    }
    Ok(loads)
}

/// Time to configure the array for a launch, in a dispatch of so many herds.
fn load_ns(
    launch: &Launch,
    n_herds: usize,
    (machine, profile): (&Machine, &Profile),
) -> Result<f64, FlatError> {
    let dispatch = &profile.dispatch;
    if n_herds < 2 {
        // Its configuration stays loaded.
        return Ok(0.0);
    }
    let bytes = configuration_bytes(&Flat::new(launch)?, machine);
    Ok(dispatch.load_ns(bytes, n_objects(launch), n_herds))
}

/// Constants that each launch of a group has to write to a core. They are those that it reads and that no earlier
/// launch of this or the previous dispatch has left there.
fn n_written(group: &[Launch]) -> Vec<usize> {
    let same = resident::representatives(group);
    let mut there: Vec<Vec<Option<i64>>> = vec![Vec::new(); group.len()];
    let mut n_written = vec![0; group.len()];
    // The second round starts from the constants that an earlier dispatch has left.
    for at in (0..group.len()).chain(0..group.len()) {
        let read = resident::read_parameters(&group[at]);
        let there = &mut there[same[at]];
        there.resize(read.len(), None);
        let mut n_new = 0;
        for (new, old) in read.iter().zip(there.iter_mut()) {
            n_new += usize::from(new.is_some() && new != old);
            *old = new.or(*old);
        }
        n_written[at] = n_new;
    }
    n_written
}

/// Extra cost of a dispatch of [resident](crate::program::resident) launches after one of another program: its
/// configuration of the array is loaded. For other programs [`loads_ns`] includes everything.
///
/// # Errors
/// A launch that does not expand.
pub fn switch_ns(launches: &[Launch], on: (&Machine, &Profile)) -> Result<f64, FlatError> {
    match &resident::groups(launches)[..] {
        [group] if group.len() > 1 => {
            let all = resident::union(launches);
            load_ns(&all, all.herds.len(), on)
        }
        _ => Ok(0.0),
    }
}
