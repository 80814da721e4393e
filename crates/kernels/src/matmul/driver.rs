//! Splits products over the pool and walks each group of rows through pack and tile.

use super::activations::{Activations, columns_bytes};
use super::cuts::Cuts;
use super::job::{JobOperands, MatmulJob, RowGroup};
use super::panel::{
    DirectArgs, DirectFn, GROUP_PANELS, GROUP_ROWS, Input, LINE_BYTES, PANEL_ROWS, PackArgs,
    PanelSource, RowsArgs, RowsFn, TileArgs,
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

/// Least chunks for each thread when few tokens make a group of rows quick work, or blocks take several groups. They are enough to even
/// out a busy core, and few enough that handing them out costs nothing. Tests, whose matrices are small, cut so that blocks of groups are left.
const CHUNKS_A_THREAD: usize = if cfg!(test) { 1 } else { 8 };

/// Tokens from which one block of groups is work enough for a chunk.
const MANY_TOKENS: usize = 16;

/// Most groups of a block, see [`groups_a_block`].
const GROUPS_A_BLOCK: usize = 4;

/// Activations, in the second cache and beyond, from which blocks of several groups pay.
const BLOCK_ACTIVATIONS_BYTES: usize = if cfg!(test) { 16 } else { 640 } * 1024;

/// Tokens that meet all panels of a block before the next do, a multiple of the tiles' tokens. With the panels of a group they fit a
/// first cache of 48 KiB.
const TOKENS_A_BLOCK: usize = 12;

/// Tokens whose sums are written as soon as they are finished, while the next are multiplied. It is a multiple of the tiles'
/// tokens, and small enough that the stores fit the buffer in which they wait for their cache lines.
const TOKENS_A_STORE: usize = 24;

/// The same for AMX, whose tiles are 16 tokens, and for its blocks.
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
        let most = jobs.iter().flatten().map(groups_a_block).max().unwrap_or(1);
        (n_groups / (n_threads * CHUNKS_A_THREAD)).clamp(1, most)
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

/// Computes groups of a job for every token, a block at a time while the next comes from memory; `skip` more groups follow the last.
fn run_groups(jobs: &[Option<MatmulJob<'_>>], groups: Range<usize>, skip: usize) {
    let Some(job) = MatmulJob::of_group(jobs, groups.start) else {
        return;
    };
    let groups_a_block = groups_a_block(job);
    for group in groups.clone().take(groups_a_block) {
        if let Some(group) = RowGroup::find(jobs, group) {
            for piece in 0..job.pieces_ahead.min(group.n_pieces()) {
                group.ahead(piece).fetch(job.piece_bytes / LINE_BYTES);
            }
        }
    }
    let after = |group: usize, n: usize| {
        let group = group + n;
        group + if group < groups.end { 0 } else { skip }
    };
    with_scratch(|scratch| {
        for start in groups.clone().step_by(groups_a_block) {
            let n = groups_a_block.min(groups.end - start);
            let group = |i: usize| (i < n).then(|| RowGroup::find(jobs, start + i)).flatten();
            let next = |i: usize| RowGroup::find(jobs, after(start + i, n));
            let block = std::array::from_fn(|i| Some((group(i)?, next(i))));
            run_block(job, &block, scratch);
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

/// Groups of rows whose panels wait in the second cache while each few tokens meet all of them.
///
/// The activations of a long prompt wait in the third cache. So they come from there once for all of these rows, and not once for each
/// group. Panels and sums of four groups and the activations of a chunk take three quarters of a second cache of 1 MiB. On a Xeon of
/// the Emerald Rapids generation, 512 tokens of Q6_K gained 10 to 25 % and BF16 18 %. Eight groups gained 3 % more; 16 to 48 tokens
/// would lose 5 to 15 %.
fn groups_a_block(job: &MatmulJob<'_>) -> usize {
    let bytes = job.m.min(TOKENS_A_PASS) * job.x.stride;
    if job.direct.is_none() && bytes >= BLOCK_ACTIVATIONS_BYTES && third_cache_is_far() {
        GROUPS_A_BLOCK
    } else {
        1
    }
}

/// Whether tiles wait for activations in the third cache. They do not on a Zen 4, whose first cache of 32 KiB would hold no more than
/// one group's panels. Processors of AArch64 were not measured.
fn third_cache_is_far() -> bool {
    #[cfg(target_arch = "x86_64")]
    return cfg!(test) || !crate::level::is_zen_4();
    #[cfg(not(target_arch = "x86_64"))]
    return cfg!(test);
}

/// Groups of rows of one job, each with the group after the block whose first pieces are fetched meanwhile.
type GroupBlock<'a> = [Option<(RowGroup<'a>, Option<RowGroup<'a>>)>; GROUPS_A_BLOCK];

/// Computes the groups of a block for every token.
fn run_block(job: &MatmulJob<'_>, block: &GroupBlock<'_>, scratch: &mut MatmulScratch) {
    let n_groups = block.iter().flatten().count();
    for first in (0..job.m).step_by(TOKENS_A_PASS) {
        let tokens = first..job.m.min(first + TOKENS_A_PASS);
        let acc_bytes = tokens.len() * GROUP_ROWS * size_of::<f32>();
        scratch.acc.at_least(n_groups * acc_bytes)[..n_groups * acc_bytes].fill(0);
        for chunk in 0..job.n_chunks() {
            match (job.direct, &block[0]) {
                (Some(direct), Some((group, next))) => {
                    let sources = sources(group, chunk, next.as_ref());
                    run_direct(group, direct, chunk, &sources, &tokens, scratch);
                }
                _ => run_chunk(job, block, chunk, &tokens, scratch),
            }
        }
        if job.n_chunks() == 0 || job.direct.is_some() {
            for (g, (group, _)) in block.iter().flatten().enumerate() {
                let acc = scratch.acc.as_ptr().wrapping_add(g * acc_bytes).cast();
                // SAFETY: zeroed above, one row a token; any bits are numbers.
                let acc = unsafe { std::slice::from_raw_parts(acc, tokens.len() * GROUP_ROWS) };
                store(group, tokens.clone(), acc);
            }
        }
    }
}

/// The panels' rows in a chunk of columns; `next` follows the group.
fn sources(
    group: &RowGroup<'_>,
    chunk: usize,
    next: Option<&RowGroup<'_>>,
) -> [PanelSource; GROUP_PANELS] {
    std::array::from_fn(|p| {
        let index = chunk * group.n_panels + p.min(group.n_panels - 1);
        let ahead = group.ahead_of(index + group.job.pieces_ahead, next);
        PanelSource {
            ahead,
            ..group.piece(index)
        }
    })
}

/// Activations of a token at the first column of a chunk.
fn activations(job: &MatmulJob<'_>, token: usize, chunk: usize) -> *const u8 {
    let columns = columns_bytes(job.kernel.layout.input(), chunk * job.chunk_k);
    job.x.start.wrapping_add(token * job.x.stride + columns)
}

/// Adds a chunk's products to the accumulators, without panels.
fn run_direct(
    group: &RowGroup<'_>,
    direct: DirectFn,
    chunk: usize,
    sources: &[PanelSource; GROUP_PANELS],
    tokens: &Range<usize>,
    scratch: &mut MatmulScratch,
) {
    let job = group.job;
    let acc_bytes = tokens.len() * GROUP_ROWS * size_of::<f32>();
    let acc: *mut f32 = scratch.acc.at_least(acc_bytes).as_mut_ptr().cast();
    for (p, source) in sources[..group.n_panels].iter().enumerate() {
        let source = readable_rows(&job.weight, source, &mut scratch.rows);
        // SAFETY: a `Cpu` proves its level; the view has a row for each token; the panel's accumulators start at its first row.
        unsafe {
            direct(&DirectArgs {
                source,
                x: activations(job, tokens.start, chunk),
                x_stride: job.x.stride,
                m: tokens.len(),
                acc: acc.add(p * PANEL_ROWS),
            });
        }
    }
}

/// Adds the products of one chunk of columns to the accumulators of a block, and stores them after the last chunk.
fn run_chunk(
    job: &MatmulJob<'_>,
    block: &GroupBlock<'_>,
    chunk: usize,
    tokens: &Range<usize>,
    scratch: &mut MatmulScratch,
) {
    let panel_stride = job.kernel.layout.panel_bytes(job.chunk_k);
    pack_panels(job, block, chunk, panel_stride, scratch);
    let is_last = chunk + 1 == job.n_chunks();
    let step = match job.kernel.level {
        _ if groups_a_block(job) == 1 && !is_last => tokens.len(),
        #[cfg(target_arch = "x86_64")]
        Level::Amx => TOKENS_A_STORE_AMX,
        _ if groups_a_block(job) == 1 => TOKENS_A_STORE,
        _ => TOKENS_A_BLOCK,
    };
    let acc: *mut f32 = scratch.acc.at_least(0).as_mut_ptr().cast();
    for first in (0..tokens.len()).step_by(step) {
        let m = step.min(tokens.len() - first);
        for (g, (group, _)) in block.iter().flatten().enumerate() {
            // SAFETY: a `Cpu` proves its level; the panels were just packed; the view has a row for each token; the accumulators
            // have one for each group and token of the pass, and any bits are valid numbers.
            let acc = unsafe {
                let acc = acc.add((g * tokens.len() + first) * GROUP_ROWS);
                (job.kernel.tile)(&TileArgs {
                    panels: scratch.panels.as_ptr().add(g * GROUP_PANELS * panel_stride),
                    panel_stride,
                    n_panels: group.n_panels,
                    k: job.chunk_k.min(job.weight.k - chunk * job.chunk_k),
                    x: activations(job, tokens.start + first, chunk),
                    x_stride: job.x.stride,
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
}

/// Packs a chunk of columns of a block's rows in the tile kernel's form, a panel each `panel_stride` bytes, [`GROUP_PANELS`] for a group.
fn pack_panels(
    job: &MatmulJob<'_>,
    block: &GroupBlock<'_>,
    chunk: usize,
    panel_stride: usize,
    scratch: &mut MatmulScratch,
) {
    let n_groups = block.iter().flatten().count();
    let bytes = n_groups * GROUP_PANELS * panel_stride;
    let panels = scratch.panels.at_least(bytes).as_mut_ptr();
    for (g, (group, next)) in block.iter().flatten().enumerate() {
        let sources = sources(group, chunk, next.as_ref());
        for (p, source) in sources[..group.n_panels].iter().enumerate() {
            let source = readable_rows(&job.weight, source, &mut scratch.rows);
            // SAFETY: a `Cpu` proves its level; sixteen rows exist (or were repeated), and `WeightMatrix` checked that each has
            // its columns; each panel has the layout's bytes for a chunk.
            unsafe {
                let panel = panels.add((g * GROUP_PANELS + p) * panel_stride);
                (job.kernel.pack)(&PackArgs { source, panel });
            }
        }
    }
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
