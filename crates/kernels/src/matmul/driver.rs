//! Splits products over the pool and walks each group of rows through pack and tile.

use super::activations::{Activations, columns_bytes};
use super::job::{JobOperands, MatmulJob, RowGroup};
use super::panel::{
    DirectArgs, GROUP_PANELS, GROUP_ROWS, Input, LINE_BYTES, PANEL_ROWS, PackArgs, PanelSource,
    RowsArgs, RowsFn, TileArgs,
};
use super::scratch::{MatmulScratch, readable_rows, with_scratch};
use super::{Multiplication, WeightMatrix};
use crate::cpu::Cpu;
#[cfg(target_arch = "x86_64")]
use crate::level::Level;
use crate::table::MatmulKernel;
use millrace_quant::DType;
use std::ops::Range;

/// Maximum number of products of one parallel region; longer lists take several.
pub(super) const MAX_PRODUCTS: usize = 8;

/// Tokens whose accumulators a thread keeps at a time (64 KiB); more tokens pack the panels again.
const TOKENS_A_PASS: usize = 512;

/// Chunks for each thread when few tokens make a group of rows quick work. They are enough to even out a busy core, and
/// few enough that handing them out costs nothing.
const CHUNKS_A_THREAD: usize = 8;

/// Number of chunks in a region's last quarter that equal one earlier chunk.
const LAST_PARTS: usize = 3;

/// Tokens from which one group of rows is work enough for a chunk.
const MANY_TOKENS: usize = 16;

/// Tokens whose sums are written as soon as they are finished, while the next are multiplied. It is a multiple of the tiles'
/// tokens, and small enough that the stores fit the buffer in which they wait for their cache lines.
const TOKENS_A_STORE: usize = 24;

/// The same for AMX, whose tiles are 16 tokens.
#[cfg(target_arch = "x86_64")]
const TOKENS_A_STORE_AMX: usize = 32;

/// Maximum number of weight bytes in a chunk when tokens are few. So many make the start of reading cheap, and no thread
/// waits long for another's last chunk.
const FEW_TOKENS_CHUNK_BYTES: usize = 512 * 1024;

/// Multiplies `x` with at most [`MAX_PRODUCTS`] weights, each with the kernel that `choose` names.
pub(super) fn run(
    cpu: &Cpu,
    x: &[f32],
    m: usize,
    scratch: &mut Activations,
    products: &mut [Multiplication<'_>],
    choose: &dyn Fn(DType) -> &'static MatmulKernel,
) {
    if m == 0 {
        return;
    }
    let kernels = prepare(cpu, x, scratch, products, choose);
    let mut n_groups = 0;
    let mut products = products.iter_mut();
    let jobs: [Option<MatmulJob<'_>>; MAX_PRODUCTS] = kernels.map(|kernel| {
        let (kernel, product) = (kernel?, products.next()?);
        let first_group = n_groups;
        n_groups += product.weight.n.div_ceil(GROUP_ROWS);
        let x = scratch.view(x, product.weight.k, kernel.layout.input());
        let operands = JobOperands::of(product, x, m);
        Some(MatmulJob::new(kernel, operands, first_group))
    });
    run_jobs(cpu, &jobs, n_groups, m);
}

/// Runs jobs with `n_groups` groups in all and `m` tokens together, in one parallel region. Jobs are in the order
/// of their groups, followed by `None`.
pub(super) fn run_jobs(cpu: &Cpu, jobs: &[Option<MatmulJob<'_>>], n_groups: usize, m: usize) {
    let n_threads = cpu.pool().n_threads();
    let groups_a_chunk = if m >= MANY_TOKENS {
        1
    } else {
        let group_bytes =
            |job: &MatmulJob<'_>| job.row_bytes * GROUP_ROWS / job.weight.dtype.block_rows();
        let most = jobs.iter().flatten().map(group_bytes).max().unwrap_or(1);
        n_groups
            .div_ceil(n_threads * CHUNKS_A_THREAD)
            .min(FEW_TOKENS_CHUNK_BYTES / most.max(1))
            .max(1)
    };
    let cuts = Cuts::new(n_groups, groups_a_chunk);
    // A thread's next chunk is most likely the one after those the others have taken.
    let skip = (n_threads - 1) * groups_a_chunk;
    cpu.pool().run(cuts.n_chunks(), &|chunk| {
        let mut groups = cuts.groups(chunk);
        while let Some(job) = MatmulJob::of_group(jobs, groups.start).filter(|_| !groups.is_empty())
        {
            let of_job = groups.start..groups.end.min(job.end_group());
            groups.start = of_job.end;
            match job.rows {
                Some(rows) => run_rows(job, rows, of_job),
                None => run_groups(jobs, of_job, skip),
            }
        }
    });
}

/// How the groups of a region are cut into chunks. Chunks of the last quarter are smaller, so that threads end at about the same time
/// even if their speeds differ or another process delays one.
struct Cuts {
    n_groups: usize,
    /// Groups of a chunk, and of one of the last quarter's.
    size: usize,
    last_size: usize,
    /// Chunks before those.
    n_first: usize,
}

impl Cuts {
    fn new(n_groups: usize, size: usize) -> Cuts {
        Cuts {
            n_groups,
            size,
            last_size: size.div_ceil(LAST_PARTS),
            n_first: n_groups * 3 / 4 / size,
        }
    }

    fn n_chunks(&self) -> usize {
        let left = self.n_groups - self.n_first * self.size;
        self.n_first + left.div_ceil(self.last_size)
    }

    fn groups(&self, chunk: usize) -> Range<usize> {
        match chunk.checked_sub(self.n_first) {
            None => chunk * self.size..(chunk + 1) * self.size,
            Some(chunk) => {
                let start = self.n_first * self.size + chunk * self.last_size;
                start..self.n_groups.min(start + self.last_size)
            }
        }
    }
}

/// Computes the rows of some groups of a job for one token.
fn run_rows(job: &MatmulJob<'_>, function: RowsFn, groups: Range<usize>) {
    let WeightMatrix { n, k, .. } = job.weight;
    let start = (groups.start - job.first_group) * GROUP_ROWS;
    let rows = start..n.min((groups.end - job.first_group) * GROUP_ROWS);
    let at = job.out_row(0) * n;
    // SAFETY: groups have disjoint rows and each group runs once.
    let out = unsafe { job.out.slice(at + rows.start..at + rows.end) };
    // SAFETY: a `Cpu` proves its level; `WeightMatrix` checked that each row has its columns; the view has a token.
    unsafe {
        function(&RowsArgs {
            base: job.weight.bytes[start / job.weight.dtype.block_rows() * job.row_bytes..]
                .as_ptr(),
            row_bytes: job.row_bytes,
            n: rows.len(),
            k,
            x: job.x.start,
            out: out.as_mut_ptr(),
        });
    }
    add_bias(job, &rows, out);
}

/// Computes groups of a job for every token, each while the next comes from memory; `skip` more follow the last.
fn run_groups(jobs: &[Option<MatmulJob<'_>>], groups: Range<usize>, skip: usize) {
    with_scratch(|scratch| {
        let after = |group: usize| {
            if group + 1 < groups.end {
                group + 1
            } else {
                group + 1 + skip
            }
        };
        let mut group = RowGroup::find(jobs, groups.start);
        if let Some(first) = &group {
            for piece in 0..first.job.pieces_ahead.min(first.n_pieces()) {
                first.ahead(piece).fetch(first.job.piece_bytes / LINE_BYTES);
            }
        }
        for index in groups.clone() {
            let next = RowGroup::find(jobs, after(index));
            if let Some(group) = &group {
                run_group(group, next.as_ref(), group.job.m, scratch);
            }
            group = next;
        }
    });
}

/// Picks each product's kernel and converts the input to each form they need, once.
fn prepare(
    cpu: &Cpu,
    x: &[f32],
    scratch: &mut Activations,
    products: &[Multiplication<'_>],
    choose: &dyn Fn(DType) -> &'static MatmulKernel,
) -> [Option<&'static MatmulKernel>; MAX_PRODUCTS] {
    let mut kernels = [None; MAX_PRODUCTS];
    for (kernel, product) in kernels.iter_mut().zip(products) {
        *kernel = Some(choose(product.weight.dtype));
    }
    for input in [Input::Bf16, Input::I8x32, Input::I8x256] {
        let needs = |(kernel, _): &(&Option<&MatmulKernel>, &Multiplication<'_>)| {
            kernel.is_some_and(|kernel| kernel.layout.input() == input)
        };
        if let Some((_, product)) = kernels.iter().zip(products).find(needs)
            && product.weight.k > 0
        {
            scratch.prepare(cpu, x, product.weight.k, input);
        }
    }
    kernels
}

/// Computes one group of rows for every token, while `next` comes from memory.
fn run_group(
    group: &RowGroup<'_>,
    next: Option<&RowGroup<'_>>,
    m: usize,
    scratch: &mut MatmulScratch,
) {
    for first in (0..m).step_by(TOKENS_A_PASS) {
        let tokens = first..m.min(first + TOKENS_A_PASS);
        let acc_bytes = tokens.len() * GROUP_ROWS * size_of::<f32>();
        scratch.acc.at_least(acc_bytes)[..acc_bytes].fill(0);
        for index in (0..group.n_pieces()).step_by(group.n_panels) {
            let sources: [PanelSource; GROUP_PANELS] = std::array::from_fn(|p| {
                let index = index + p.min(group.n_panels - 1);
                let ahead = group.ahead_of(index + group.job.pieces_ahead, next);
                PanelSource {
                    ahead,
                    ..group.piece(index)
                }
            });
            run_chunk(group, index, &sources, &tokens, scratch);
        }
        if group.n_pieces() == 0 || group.job.direct.is_some() {
            let acc = scratch.acc.at_least(acc_bytes).as_ptr().cast();
            // SAFETY: zeroed above, one row a token; any bits are numbers.
            let acc = unsafe { std::slice::from_raw_parts(acc, tokens.len() * GROUP_ROWS) };
            store(group, tokens, acc);
        }
    }
}

/// Adds the products of one chunk of columns, from piece `index`, to the accumulators; those of panels are stored after the last.
fn run_chunk(
    group: &RowGroup<'_>,
    index: usize,
    sources: &[PanelSource; GROUP_PANELS],
    tokens: &Range<usize>,
    scratch: &mut MatmulScratch,
) {
    let job = group.job;
    let layout = job.kernel.layout;
    let k0 = index / group.n_panels * job.chunk_k;
    let x_at = tokens.start * job.x.stride + columns_bytes(layout.input(), k0);
    // SAFETY: the view has a row for each token.
    let x = unsafe { job.x.start.add(x_at) };
    let (m, x_stride) = (tokens.len(), job.x.stride);
    let acc: *mut f32 = scratch
        .acc
        .at_least(m * GROUP_ROWS * size_of::<f32>())
        .as_mut_ptr()
        .cast();
    let n_panels = group.n_panels;
    let sources = &sources[..n_panels];
    if let Some(direct) = job.direct {
        for (p, source) in sources.iter().enumerate() {
            let source = readable_rows(&job.weight, source, &mut scratch.rows);
            // SAFETY: as below; the panel's accumulators start at its first row.
            unsafe {
                let acc = acc.add(p * PANEL_ROWS);
                direct(&DirectArgs {
                    source,
                    x,
                    x_stride,
                    m,
                    acc,
                });
            }
        }
        return;
    }
    let panel_stride = layout.panel_bytes(job.chunk_k);
    let panels = pack_panels(job, sources, panel_stride, scratch);
    let k = sources.first().map_or(0, |source| source.k);
    let is_last = index + n_panels >= group.n_pieces();
    let step = match job.kernel.level {
        _ if !is_last => m,
        #[cfg(target_arch = "x86_64")]
        Level::Amx => TOKENS_A_STORE_AMX,
        _ => TOKENS_A_STORE,
    };
    for first in (0..m).step_by(step) {
        let m = step.min(m - first);
        // SAFETY: a `Cpu` proves its level; the panels were just packed; the view has a row for each token; the accumulators
        // have one for each token of the pass, and any bits are valid numbers.
        let acc = unsafe {
            let acc = acc.add(first * GROUP_ROWS);
            (job.kernel.tile)(&TileArgs {
                panels,
                panel_stride,
                n_panels,
                k,
                x: x.add(first * x_stride),
                x_stride,
                m,
                acc,
            });
            std::slice::from_raw_parts(acc, m * GROUP_ROWS)
        };
        if is_last {
            let first = tokens.start + first;
            store(group, first..first + m, acc);
        }
    }
}

/// The sources' rows in the tile kernel's form, a panel each `panel_stride` bytes.
fn pack_panels(
    job: &MatmulJob<'_>,
    sources: &[PanelSource],
    panel_stride: usize,
    scratch: &mut MatmulScratch,
) -> *mut u8 {
    let bytes = GROUP_PANELS * panel_stride;
    let panels = scratch.panels.at_least(bytes).as_mut_ptr();
    for (p, source) in sources.iter().enumerate() {
        let source = readable_rows(&job.weight, source, &mut scratch.rows);
        // SAFETY: a `Cpu` proves its level; sixteen rows exist (or were repeated), and `WeightMatrix` checked that each has
        // its columns; panel `p` has the layout's bytes for a chunk.
        unsafe {
            let panel = panels.add(p * panel_stride);
            (job.kernel.pack)(&PackArgs { source, panel });
        }
    }
    panels
}

/// Writes the finished sums of a group's rows: `acc` has a row for each of the tokens.
fn store(group: &RowGroup<'_>, tokens: Range<usize>, acc: &[f32]) {
    let RowGroup {
        job, rows, starts, ..
    } = group;
    let n = job.weight.n;
    #[cfg(target_arch = "x86_64")]
    let is_block = job.bias.is_none() && job.out_rows.is_none();
    #[cfg(target_arch = "x86_64")]
    if job.kernel.level >= Level::Avx512 && rows.len() == GROUP_ROWS && is_block {
        let last_end = (tokens.end - 1) * n + rows.end;
        let out = job.out.start_of(tokens.start * n + rows.start..last_end);
        // SAFETY: a `Cpu` proves its level; groups have disjoint rows, a whole group all of its rows in order; each group runs once.
        unsafe { crate::x86::avx512::sums::copy(acc, out, n) };
        return;
    }
    for (t, acc) in tokens.zip(acc.chunks_exact(GROUP_ROWS)) {
        let at = job.out_row(t) * n;
        // SAFETY: groups have disjoint rows, tokens separate rows of the result, and each group runs once.
        let out = unsafe { job.out.slice(at + rows.start..at + rows.end) };
        for (p, out) in out.chunks_mut(PANEL_ROWS).enumerate() {
            // A panel that was moved back to fit holds the group's rows at its end.
            let skip = rows.start + p * PANEL_ROWS - starts[p];
            let sums = &acc[p * PANEL_ROWS + skip..][..out.len()];
            // With a known size, a copy is two instructions and no call.
            match (out.as_chunks_mut(), sums.as_chunks()) {
                (([out], []), ([sums], [])) => *out = *sums as [f32; PANEL_ROWS],
                _ => out.copy_from_slice(sums),
            }
        }
        add_bias(job, rows, out);
    }
}

/// Adds the bias of `rows` to a token's finished sums.
fn add_bias(job: &MatmulJob<'_>, rows: &Range<usize>, out: &mut [f32]) {
    if let Some(bias) = job.bias {
        for (out, bias) in out.iter_mut().zip(&bias[rows.clone()]) {
            *out += bias;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_each_group_once_and_end_small() {
        for n_groups in 1..200 {
            for size in 1..20 {
                let cuts = Cuts::new(n_groups, size);
                let chunks: Vec<_> = (0..cuts.n_chunks()).map(|i| cuts.groups(i)).collect();
                let covered: Vec<usize> = chunks.iter().cloned().flatten().collect();
                assert_eq!(covered, (0..n_groups).collect::<Vec<_>>());
                assert!(chunks.iter().all(|chunk| !chunk.is_empty()));
                let last = chunks.last().expect("a chunk").len();
                assert!(last <= size.div_ceil(LAST_PARTS), "{n_groups} by {size}");
            }
        }
    }
}
