//! Fewer, larger blocks for launches that only stream: thousands of equal iterations of one loop give no better
//! prediction than hundreds of larger ones.

use crate::program::{Affine, Flat, Indices, Op, Var};

/// Iterations of a streaming loop that are simulated at least.
const ITERATIONS: u64 = 256;

/// How many blocks and iterations are taken as one.
pub(super) struct BlockMerge {
    /// By channel.
    pub(super) channels: Vec<u64>,
    /// By herd.
    pub(super) loops: Vec<u64>,
}

/// The factors for a launch; all 1 unless every herd is one flat loop over channels that lead
/// straight to the shims.
pub(super) fn find(flat: &Flat<'_>) -> BlockMerge {
    let launch = flat.launch;
    let none = || BlockMerge {
        channels: vec![1; flat.channels.len()],
        loops: vec![1; launch.herds.len()],
    };
    let [herd] = &launch.herds[..] else {
        return none();
    };
    let Some((count, inside)) = streaming_loop(&herd.body) else {
        return none();
    };
    if !launch.stages.is_empty() || count < 2 * ITERATIONS {
        return none();
    }
    let most = count / ITERATIONS;
    let factor = (1..=most).rev().find(|f| count.is_multiple_of(*f));
    let factor = factor.filter(|&f| divides_tasks(flat, &inside, f));
    let Some(factor) = factor else {
        return none();
    };
    let channels = (flat.channels.iter())
        .map(|c| {
            if inside.contains(&c.bundle) {
                factor
            } else {
                1
            }
        })
        .collect();
    BlockMerge {
        channels,
        loops: vec![factor],
    }
}

/// The one loop of a body, its count and the channel bundles it uses, if nothing outside uses them.
fn streaming_loop(body: &[Op]) -> Option<(u64, Vec<usize>)> {
    let mut found = None;
    let mut outside = Vec::new();
    for op in body {
        match op {
            Op::Loop { count, body } => {
                let count = u64::try_from(count.as_constant()?).ok()?;
                if found.replace((count, bundles(body)?)).is_some() {
                    return None;
                }
            }
            Op::Get { channel, .. } | Op::New { channel, .. } => outside.push(*channel),
            Op::If { .. } => return None,
            Op::Free { .. } | Op::Put { .. } | Op::Call { .. } => {}
        }
    }
    found.filter(|(_, inside)| outside.iter().all(|bundle| !inside.contains(bundle)))
}

/// Bundles used by a loop body without loops, branches or expressions in the loop variable. Each
/// must be used once: a block an iteration.
fn bundles(body: &[Op]) -> Option<Vec<usize>> {
    let mut used = Vec::new();
    let fixed = |a: &Affine| !a.terms.iter().any(|(var, _)| matches!(var, Var::Loop(_)));
    for op in body {
        match op {
            Op::Get { channel, index, .. } | Op::New { channel, index, .. } => {
                if used.contains(channel) || !index.iter().all(fixed) {
                    return None;
                }
                used.push(*channel);
            }
            Op::Call { scalars, .. } if !scalars.iter().all(fixed) => return None,
            Op::Loop { .. } | Op::If { .. } => return None,
            Op::Call { .. } | Op::Free { .. } | Op::Put { .. } => {}
        }
    }
    Some(used)
}

/// Whether every task on those channels is a whole number of that many blocks, at every grid point.
fn divides_tasks(flat: &Flat<'_>, bundles: &[usize], factor: u64) -> bool {
    let mine = |id: usize| bundles.contains(&flat.channels[id].bundle);
    flat.transfers.iter().filter(|t| mine(t.channel)).all(|t| {
        let constant = |a: &Affine| a.as_constant();
        let loops: Option<Vec<i64>> = t.decl.loops.iter().map(constant).collect();
        let sizes: Option<Vec<i64>> = (t.decl.pattern.dims.iter())
            .map(|(size, _)| size.as_constant())
            .collect();
        let (Some(loops), Some(sizes)) = (loops, sizes) else {
            return false;
        };
        let n = sizes.iter().map(|&s| s.max(0) as u64).product::<u64>();
        let block = flat.channels[t.channel].decl.block_elements() * factor;
        let any = Indices::new(&loops.iter().map(|&n| n.max(0) as u32).collect::<Vec<_>>());
        any.take(1).count() == 0 || (block > 0 && n.is_multiple_of(block))
    })
}
