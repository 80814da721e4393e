//! Access patterns as buffer descriptors: granularity, dimensions, field widths.
//!
//! Descriptors count in address units (4-byte words). The innermost dimension is D0. Every
//! dimension but the last of a tile's has a size field; the last is bounded by the length alone,
//! and a pattern of fewer dimensions may put its outermost there. A shim task has an iteration on
//! top. A size that is too large for its field is split into two factors if a dimension is left, as a compiler does.

use super::rule::{Rule, RuleFinding, group};
use crate::Machine;
use crate::machine::TileLimits;
use crate::program::PatternWalk;

/// The kind of DMA that walks a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dma {
    Core,
    Memory,
    Shim,
}

impl Dma {
    fn limits(self, machine: &Machine) -> &TileLimits {
        match self {
            Dma::Core => &machine.core,
            Dma::Memory => &machine.memory,
            Dma::Shim => &machine.shim,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Dma::Core => "a core's descriptor",
            Dma::Memory => "a memory tile's descriptor",
            Dma::Shim => "a shim's descriptor",
        }
    }
}

/// Whether that walk, of elements of `size_bytes`, is one buffer descriptor of that DMA. An empty
/// walk is not a task.
pub(super) fn check(
    walk: &PatternWalk,
    size_bytes: u64,
    dma: Dma,
    machine: &Machine,
) -> Option<RuleFinding> {
    if walk.is_empty() {
        return None;
    }
    let canonical = walk.canonical();
    strides(&canonical, dma)
        .or_else(|| granularity(&canonical, size_bytes, machine))
        .or_else(|| fields(&canonical, size_bytes, dma, machine))
}

fn strides(walk: &PatternWalk, dma: Dma) -> Option<RuleFinding> {
    for (d, &(size, stride)) in walk.dims.iter().enumerate() {
        let finding = |message: String, fix: &str| {
            Some(RuleFinding::new(Rule::StrideSign, message).fix(fix.to_string()))
        };
        if stride < 0 {
            let message = format!("dimension {d} has stride {stride}");
            return finding(message, "Walk upwards and reverse in the core");
        }
        if stride == 0 && (d > 0 || dma != Dma::Shim) {
            let message = format!("dimension {d} repeats {size} times with stride 0");
            let fix = match dma {
                Dma::Shim => "Repeat outermost, or in a loop of tasks",
                Dma::Memory => "Use the drain's `repeat`",
                Dma::Core => "Send the block again from the core's loop",
            };
            return finding(message, fix);
        }
    }
    None
}

fn granularity(walk: &PatternWalk, size_bytes: u64, machine: &Machine) -> Option<RuleFinding> {
    let unit = i128::from(machine.granularity_bytes);
    let size = i128::from(size_bytes);
    let (n, stride) = walk.dims.last().copied().unwrap_or((1, 1));
    if size % unit == 0 {
        return None;
    }
    if stride != 1 {
        let message = format!(
            "inner stride {stride} of a {size_bytes}-byte type: DMA moves {unit}-byte words"
        );
        let fix = "Keep the inner dimension contiguous; transpose on the host or in a core";
        let finding = RuleFinding::new(Rule::InnerStride, message);
        return Some(finding.numbers(stride.unsigned_abs(), 1).fix(fix));
    }
    let per_unit = (unit / size).max(1);
    let whole = |elements: i64| i128::from(elements) * size % unit == 0;
    let what = if !whole(n) {
        format!("runs of {n} elements")
    } else if !whole(walk.offset) {
        format!("offset {}", walk.offset)
    } else {
        let outer = &walk.dims[..walk.dims.len().saturating_sub(1)];
        let &(_, stride) = outer.iter().find(|d| !whole(d.1))?;
        format!("stride {stride}")
    };
    let message = format!("{what} of {size_bytes} bytes: not whole {unit}-byte words");
    let fix = format!("Use multiples of {per_unit} elements");
    Some(RuleFinding::new(Rule::Granularity, message).fix(fix))
}

/// Dimensions in address units, outermost first, without a leading repeat.
struct DescriptorWords {
    dims: Vec<(u64, u64)>,
    repeat: u64,
}

fn words(walk: &PatternWalk, size_bytes: u64, unit: u64) -> DescriptorWords {
    let mut dims: Vec<(u64, u64)> = Vec::with_capacity(walk.dims.len() + 1);
    let mut repeat = 1;
    for (d, &(size, stride)) in walk.dims.iter().enumerate() {
        // Signs and divisibility are checked before.
        let (size, stride) = (size.unsigned_abs(), stride.unsigned_abs());
        if stride == 0 {
            repeat = size;
        } else if d + 1 == walk.dims.len() && stride == 1 {
            dims.push((size.saturating_mul(size_bytes) / unit, 1));
        } else {
            dims.push((size, stride.saturating_mul(size_bytes) / unit));
        }
    }
    dims.retain(|d| d.0 != 1);
    DescriptorWords { dims, repeat }
}

fn fields(walk: &PatternWalk, size_bytes: u64, dma: Dma, machine: &Machine) -> Option<RuleFinding> {
    let limits = dma.limits(machine);
    let DescriptorWords { dims, repeat } =
        words(walk, size_bytes, machine.granularity_bytes.into());
    let max_repeat = u64::from(machine.repeat_max);
    if repeat > max_repeat {
        let message = format!(
            "the task repeats {} times, {max_repeat} at most",
            group(repeat)
        );
        let finding = RuleFinding::new(Rule::Repeat, message).numbers(repeat, max_repeat);
        return Some(finding.fix(format!("Loop over tasks of at most {max_repeat} repeats")));
    }
    let length = dims.iter().map(|d| d.0).fold(1, u64::saturating_mul);
    let max_length = (1u64 << limits.length_bits) - 1;
    if let [] | [(_, 1)] = dims[..] {
        return length_finding(length, max_length, dma);
    }
    let mut at_most = DescriptorLayout {
        dims,
        iterations: 1,
    };
    if let Some(finding) = at_most.fit(dma, limits) {
        return Some(finding);
    }
    if let Some(finding) = executions(repeat, at_most.iterations, max_repeat + 1) {
        return Some(finding);
    }
    let max_step = 1u64 << limits.step_bits;
    let steepest = at_most.dims.iter().map(|d| d.1).max().unwrap_or(0);
    if steepest > max_step {
        let unit = u64::from(machine.granularity_bytes);
        let message = format!(
            "a stride of {} B, {} of at most {} words in {}",
            group(steepest.saturating_mul(unit)),
            group(steepest),
            group(max_step),
            dma.name()
        );
        let fix = format!(
            "Take that dimension as a loop of tasks, or keep rows within {} B of each other",
            group(max_step * unit)
        );
        return Some(
            RuleFinding::new(Rule::Instruction, message)
                .numbers(steepest, max_step)
                .fix(fix),
        );
    }
    length_finding(length / at_most.iterations, max_length, dma)
}

/// A repeat of iterations: the queue counts every execution of the descriptor.
fn executions(repeat: u64, iterations: u64, limit: u64) -> Option<RuleFinding> {
    let n = repeat.saturating_mul(iterations);
    (n > limit).then(|| {
        let message = format!(
            "{} repeats of {} iterations are {} executions of a task, {limit} at most",
            group(repeat),
            group(iterations),
            group(n)
        );
        let fix = format!("Loop over tasks of at most {} repeats", limit / iterations);
        RuleFinding::new(Rule::Repeat, message)
            .numbers(n, limit)
            .fix(fix)
    })
}

fn length_finding(length: u64, limit: u64, dma: Dma) -> Option<RuleFinding> {
    (length > limit).then(|| {
        let message = format!(
            "{} words of at most {} in {}",
            group(length),
            group(limit),
            dma.name()
        );
        let fix = "Move less at once: several blocks, or a loop of tasks";
        RuleFinding::new(Rule::Length, message)
            .numbers(length, limit)
            .fix(fix)
    })
}

/// Dimensions as they are put into a descriptor.
struct DescriptorLayout {
    dims: Vec<(u64, u64)>,
    iterations: u64,
}

impl DescriptorLayout {
    /// Splits sizes beyond their fields and puts a dimension too many into the iteration.
    fn fit(&mut self, dma: Dma, limits: &TileLimits) -> Option<RuleFinding> {
        let room = limits.bd_dims as usize;
        let n = self.dims.len();
        let iteration = dma == Dma::Shim && limits.iteration_bits > 0;
        if n > room + usize::from(iteration) {
            return Some(too_many(n, room, dma, iteration));
        }
        let max_wrap = (1u64 << limits.wrap_bits) - 1;
        if n <= room
            && let Some(split) = split(&self.dims, max_wrap)
            && split.len() <= room
        {
            self.dims = split;
            return None;
        }
        if !iteration {
            return Some(too_wide(&self.dims, max_wrap, room, dma));
        }
        // The outermost becomes the iteration; the next has no size field.
        let max_iterations = 1u64 << limits.iteration_bits;
        let (iterations, inner) = (self.dims[0], &self.dims[1..]);
        match split(inner, max_wrap) {
            Some(split) if split.len() <= room && iterations.0 <= max_iterations => {
                self.iterations = iterations.0;
                self.dims = [vec![iterations], split].concat();
                None
            }
            Some(split) if split.len() <= room => {
                let message = format!(
                    "{} dimensions: the outermost, {}, exceeds the {max_iterations} iterations of a task",
                    n,
                    group(iterations.0)
                );
                let finding = RuleFinding::new(Rule::Repeat, message);
                let fix = format!("Loop over tasks of at most {max_iterations}");
                Some(finding.numbers(iterations.0, max_iterations).fix(fix))
            }
            _ => Some(too_wide(&self.dims, max_wrap, room, dma)),
        }
    }
}

fn too_many(n: usize, room: usize, dma: Dma, iteration: bool) -> RuleFinding {
    let top = if iteration { " and an iteration" } else { "" };
    let message = format!("{n} dimensions, {} has {room}{top}", dma.name());
    let limit = room + usize::from(iteration);
    let fix = "Rearrange in two steps (shim, memory tile, core), or loop over tasks";
    RuleFinding::new(Rule::Dimensions, message)
        .numbers(n as u64, limit as u64)
        .fix(fix)
}

fn too_wide(dims: &[(u64, u64)], max_wrap: u64, room: usize, dma: Dma) -> RuleFinding {
    let widest = dims.iter().skip(1).map(|d| d.0).max().unwrap_or(0);
    let message = format!(
        "a dimension of {} words or rows, {} counts to {max_wrap}, and no dimension of its {room} \
         is left to split it",
        group(widest),
        dma.name()
    );
    let fix = format!(
        "Use sizes of at most {max_wrap}, or ones with a divisor below that and fewer dimensions"
    );
    RuleFinding::new(Rule::Wrap, message)
        .numbers(widest, max_wrap)
        .fix(fix)
}

/// Every dimension except the outermost split into factors of at most `max`; `None` if a size has no such factors.
fn split(dims: &[(u64, u64)], max: u64) -> Option<Vec<(u64, u64)>> {
    let mut out = Vec::with_capacity(dims.len() + 2);
    for (d, &(size, stride)) in dims.iter().enumerate() {
        if d == 0 {
            out.push((size, stride));
            continue;
        }
        let mut factors = Vec::new();
        let (mut rest, mut step) = (size, stride);
        while rest > max {
            // Beyond 2^16 a field is as good as unlimited, and the search stays short.
            let factor = (2..=max.min(1 << 16))
                .rev()
                .find(|f| rest.is_multiple_of(*f))?;
            factors.push((factor, step));
            step = step.saturating_mul(factor);
            rest /= factor;
        }
        factors.push((rest, step));
        out.extend(factors.into_iter().rev());
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(dims: &[(i64, i64)], bytes: u64, dma: Dma) -> Option<Rule> {
        let walk = PatternWalk {
            offset: 0,
            dims: dims.to_vec(),
        };
        check(&walk, bytes, dma, &Machine::npu2()).map(|f| f.rule)
    }

    #[test]
    fn the_patterns_of_a_gemm_fit() {
        // A of 64 × 256 from [2048, 8192]: 32 panels of k.
        assert_eq!(rule(&[(32, 256), (64, 8192), (256, 1)], 2, Dma::Shim), None);
        // Its 8 × 8 blocks from the memory tile.
        assert_eq!(rule(&[(32, 8), (64, 256), (8, 1)], 2, Dma::Memory), None);
        assert_eq!(
            rule(&[(4, 32 * 128), (16, 8), (32, 128), (8, 1)], 2, Dma::Memory),
            None
        );
    }

    #[test]
    fn strides_of_the_published_ceiling() {
        // mlir-air GEMM: a stride of tile_k_l2 × N = 1 310 720 elements builds, 256 × 10 240 does
        // not. (Panels that join to one dimension need no such stride, so these leave rows out.)
        let b = |n: i64, k: i64| rule(&[(8, k * n), (k / 2, n), (128, 1)], 2, Dma::Shim);
        assert_eq!(b(10_240, 128), None);
        assert_eq!(b(10_240, 256), Some(Rule::Instruction));
    }

    #[test]
    fn sizes_split_where_a_dimension_is_left() {
        // 4096 words a row: 4 × 1024 is too large, 8 × 512 fits, a prime does not split.
        assert_eq!(rule(&[(64, 16_384), (8192, 1)], 2, Dma::Shim), None);
        let prime = |n| rule(&[(n, 40_000), (2, 16_384), (2 * 2003, 1)], 2, Dma::Shim);
        assert_eq!(prime(4), Some(Rule::Wrap));
        // Two such rows alone fit the iteration: each is linear.
        assert_eq!(prime(1), None);
        // Contiguous rows are one dimension of any length.
        assert_eq!(rule(&[(64, 8192), (8192, 1)], 2, Dma::Shim), None);
        assert_eq!(
            rule(&[(3, 70), (5, 10), (300, 300), (2, 2)], 4, Dma::Core),
            Some(Rule::Dimensions)
        );
    }

    #[test]
    fn iterations_and_repeats() {
        let four = |n| [(n, 100_000), (7, 5000), (9, 600), (8, 1)];
        assert_eq!(rule(&four(64), 4, Dma::Shim), None);
        assert_eq!(rule(&four(65), 4, Dma::Shim), Some(Rule::Repeat));
        assert_eq!(rule(&four(2), 4, Dma::Memory), None);
        assert_eq!(rule(&four(2), 4, Dma::Core), Some(Rule::Dimensions));
        assert_eq!(rule(&[(255, 0), (64, 1)], 2, Dma::Shim), None);
        assert_eq!(rule(&[(256, 0), (64, 1)], 2, Dma::Shim), Some(Rule::Repeat));
        let repeated = |n| [&[(n, 0)], &four(64)[..]].concat();
        assert_eq!(rule(&repeated(4), 4, Dma::Shim), None);
        assert_eq!(rule(&repeated(5), 4, Dma::Shim), Some(Rule::Repeat));
        assert_eq!(
            rule(&[(4, 0), (64, 1)], 2, Dma::Memory),
            Some(Rule::StrideSign)
        );
        assert_eq!(
            rule(&[(4, 64), (4, 0), (64, 1)], 2, Dma::Shim),
            Some(Rule::StrideSign)
        );
        assert_eq!(
            rule(&[(4, -64), (64, 1)], 2, Dma::Shim),
            Some(Rule::StrideSign)
        );
    }

    #[test]
    fn words_of_four_bytes() {
        assert_eq!(
            rule(&[(64, 1), (64, 64)], 2, Dma::Shim),
            Some(Rule::InnerStride)
        );
        assert_eq!(rule(&[(64, 1), (64, 64)], 4, Dma::Shim), None);
        assert_eq!(rule(&[(7, 1)], 2, Dma::Shim), Some(Rule::Granularity));
        assert_eq!(rule(&[(1, 1)], 2, Dma::Shim), Some(Rule::Granularity));
        assert_eq!(
            rule(&[(4, 9), (8, 1)], 2, Dma::Memory),
            Some(Rule::Granularity)
        );
        assert_eq!(rule(&[(6, 1)], 1, Dma::Memory), Some(Rule::Granularity));
        assert_eq!(rule(&[(0, 1)], 2, Dma::Shim), None);
    }

    #[test]
    fn lengths() {
        assert_eq!(rule(&[(32_766, 1)], 2, Dma::Core), None);
        assert_eq!(rule(&[(32_768, 1)], 2, Dma::Core), Some(Rule::Length));
        assert_eq!(rule(&[(1 << 17, 1)], 4, Dma::Memory), Some(Rule::Length));
        assert_eq!(rule(&[(1 << 30, 1)], 4, Dma::Shim), None);
    }
}
