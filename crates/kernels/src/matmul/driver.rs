//! Splits products over the pool and walks each group of rows through pack and tile.

use super::activations::{Activations, View, columns_bytes};
use super::panel::{
    Ahead, DIRECT_TOKENS, DirectArgs, DirectFn, GROUP_PANELS, GROUP_ROWS, Input, LINE_BYTES,
    PANEL_ROWS, PackArgs, RowsArgs, RowsFn, Source, TileArgs,
};
use super::scratch::{Scratch, readable_rows, with_scratch};
use super::{Matrix, Product};
use crate::cpu::Cpu;
use crate::pool::DisjointMut;
use crate::table::Kernel;
use millrace_quant::DType;
use std::ops::Range;

/// Products of one parallel region; longer lists take several.
pub(super) const MAX_PRODUCTS: usize = 8;

/// Tokens whose accumulators a thread keeps at a time (64 KiB); more tokens pack the panels again.
const TOKENS_A_PASS: usize = 512;

/// Chunks that each thread should find when few tokens make a group of rows quick work: enough to even out a busy core, few
/// enough that handing them out costs nothing.
const CHUNKS_A_THREAD: usize = 8;

/// Tokens from which one group of rows is work enough for a chunk.
const MANY_TOKENS: usize = 16;

/// Columns of a chunk that integer kernels multiply directly: no panel has to fit a cache.
const DIRECT_CHUNK_K: usize = 1024;

/// How far ahead of their use weights are fetched, a little more than memory latency times bandwidth.
const AHEAD_BYTES: usize = 16 * 1024;

/// As [`AHEAD_BYTES`], for superblocks times one token, most of which are read row by row: they go to the nearest cache, which
/// holds a piece or two.
const ROWS_AHEAD_BYTES: usize = 8 * 1024;

/// Most bytes of weights of a chunk when tokens are few: so many that starting to read weighs nothing, so few that no thread waits
/// long for another's last chunk.
const FEW_TOKENS_CHUNK_BYTES: usize = 512 * 1024;

/// A product ready to run.
struct Job<'a> {
    kernel: &'static Kernel,
    weight: Matrix<'a>,
    bias: Option<&'a [f32]>,
    out: DisjointMut<'a, f32>,
    x: View,
    /// Number of its first group among the groups of all jobs.
    first_group: usize,
    /// Set when so few tokens are multiplied directly.
    direct: Option<DirectFn>,
    /// Set when there is one token and a function for it.
    rows: Option<RowsFn>,
    /// Columns of a chunk.
    chunk_k: usize,
    /// Bytes of a row of blocks: a matrix row, or a row of tiles.
    row_bytes: usize,
    /// Bytes of a chunk of such a row.
    chunk_bytes: usize,
    /// Bytes of sixteen rows of a chunk.
    piece_bytes: usize,
    /// Pieces between the one at work and the one being fetched.
    pieces_ahead: usize,
}

impl<'a> Job<'a> {
    fn new(
        kernel: &'static Kernel,
        product: &'a mut Product<'_>,
        x: View,
        m: usize,
        first_group: usize,
    ) -> Job<'a> {
        let (dtype, layout) = (kernel.dtype, kernel.layout);
        let direct = kernel.direct.filter(|_| m <= DIRECT_TOKENS);
        let is_integer = matches!(layout.input(), Input::I8x32 | Input::I8x256);
        let chunk_k = if direct.is_some() && is_integer {
            DIRECT_CHUNK_K
        } else {
            layout.chunk_k()
        };
        let to_bytes = |k: usize| k / dtype.block_elems() * dtype.block_bytes();
        let piece_bytes = to_bytes(chunk_k) * PANEL_ROWS / dtype.block_rows();
        let ahead_bytes = if m == 1 && layout.input() == Input::I8x256 {
            ROWS_AHEAD_BYTES
        } else {
            AHEAD_BYTES
        };
        Job {
            kernel,
            weight: product.weight,
            bias: product.bias,
            out: DisjointMut::new(product.out),
            x,
            first_group,
            direct,
            rows: kernel.rows.filter(|_| m == 1 && product.weight.k > 0),
            chunk_k,
            row_bytes: to_bytes(product.weight.k),
            chunk_bytes: to_bytes(chunk_k),
            piece_bytes,
            pieces_ahead: ahead_bytes.div_ceil(piece_bytes),
        }
    }
}

impl<'a> Job<'a> {
    /// The job that group `index` of all jobs' groups belongs to.
    fn of_group<'b>(jobs: &'b [Option<Job<'a>>], index: usize) -> Option<&'b Job<'a>> {
        jobs.iter().flatten().rfind(|job| job.first_group <= index)
    }

    /// Number after that of its last group.
    fn end_group(&self) -> usize {
        self.first_group + self.weight.n.div_ceil(GROUP_ROWS)
    }
}

// SAFETY: the view's pointer is only read, and what it points to is borrowed for as long as the job.
unsafe impl Sync for Job<'_> {}

/// Multiplies `x` with at most [`MAX_PRODUCTS`] weights, each with the kernel that `choose` names.
pub(super) fn run(
    cpu: &Cpu,
    x: &[f32],
    m: usize,
    scratch: &mut Activations,
    products: &mut [Product<'_>],
    choose: &dyn Fn(DType) -> &'static Kernel,
) {
    if m == 0 {
        return;
    }
    let kernels = prepare(cpu, x, scratch, products, choose);
    let mut n_groups = 0;
    let mut products = products.iter_mut();
    let jobs: [Option<Job<'_>>; MAX_PRODUCTS] = kernels.map(|kernel| {
        let (kernel, product) = (kernel?, products.next()?);
        let first_group = n_groups;
        n_groups += product.weight.n.div_ceil(GROUP_ROWS);
        let x = scratch.view(x, product.weight.k, kernel.layout.input());
        Some(Job::new(kernel, product, x, m, first_group))
    });
    let n_threads = cpu.pool().n_threads();
    let groups_a_chunk = if m >= MANY_TOKENS {
        1
    } else {
        let group_bytes =
            |job: &Job<'_>| job.row_bytes * GROUP_ROWS / job.weight.dtype.block_rows();
        let most = jobs.iter().flatten().map(group_bytes).max().unwrap_or(1);
        n_groups
            .div_ceil(n_threads * CHUNKS_A_THREAD)
            .min(FEW_TOKENS_CHUNK_BYTES / most.max(1))
            .max(1)
    };
    // A thread's next chunk is most likely the one after those the others have taken.
    let skip = (n_threads - 1) * groups_a_chunk;
    cpu.pool().run(n_groups.div_ceil(groups_a_chunk), &|chunk| {
        let mut groups = chunk * groups_a_chunk..n_groups.min((chunk + 1) * groups_a_chunk);
        while let Some(job) = Job::of_group(&jobs, groups.start).filter(|_| !groups.is_empty()) {
            let of_job = groups.start..groups.end.min(job.end_group());
            groups.start = of_job.end;
            match job.rows {
                Some(rows) => run_rows(job, rows, of_job),
                None => run_groups(&jobs, of_job, skip, m),
            }
        }
    });
}

/// Computes the rows of some groups of a job for one token.
fn run_rows(job: &Job<'_>, function: RowsFn, groups: Range<usize>) {
    let Matrix { n, k, .. } = job.weight;
    let start = (groups.start - job.first_group) * GROUP_ROWS;
    let rows = start..n.min((groups.end - job.first_group) * GROUP_ROWS);
    // SAFETY: groups have disjoint rows and each group runs once.
    let out = unsafe { job.out.slice(rows.clone()) };
    // SAFETY: a `Cpu` proves its level; `Matrix` checked that each row has its columns; the view has a token.
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
fn run_groups(jobs: &[Option<Job<'_>>], groups: Range<usize>, skip: usize, m: usize) {
    with_scratch(|scratch| {
        let after = |group: usize| {
            if group + 1 < groups.end {
                group + 1
            } else {
                group + 1 + skip
            }
        };
        let mut group = Group::find(jobs, groups.start);
        if let Some(first) = &group {
            for piece in 0..first.job.pieces_ahead.min(first.n_pieces()) {
                first.ahead(piece).fetch(first.job.piece_bytes / LINE_BYTES);
            }
        }
        for index in groups.clone() {
            let next = Group::find(jobs, after(index));
            if let Some(group) = &group {
                run_group(group, next.as_ref(), m, scratch);
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
    products: &[Product<'_>],
    choose: &dyn Fn(DType) -> &'static Kernel,
) -> [Option<&'static Kernel>; MAX_PRODUCTS] {
    let mut kernels = [None; MAX_PRODUCTS];
    for (kernel, product) in kernels.iter_mut().zip(products) {
        *kernel = Some(choose(product.weight.dtype));
    }
    for input in [Input::Bf16, Input::I8x32, Input::I8x256] {
        let needs = |(kernel, _): &(&Option<&Kernel>, &Product<'_>)| {
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

/// A group of rows of one job.
struct Group<'a> {
    job: &'a Job<'a>,
    rows: Range<usize>,
    /// Where the panels start: the group's own rows, or the last sixteen of the matrix where fewer are
    /// left.
    starts: [usize; GROUP_PANELS],
    n_panels: usize,
}

impl<'a> Group<'a> {
    /// Group `index` of all jobs' groups, if there are so many.
    fn find(jobs: &'a [Option<Job<'a>>], index: usize) -> Option<Group<'a>> {
        let job = Job::of_group(jobs, index)?;
        let n = job.weight.n;
        let first = (index - job.first_group) * GROUP_ROWS;
        if first >= n {
            return None;
        }
        let rows = first..n.min(first + GROUP_ROWS);
        let last = n.saturating_sub(PANEL_ROWS);
        let starts = [first.min(last), (first + PANEL_ROWS).min(last)];
        let n_panels = rows.len().div_ceil(PANEL_ROWS);
        Some(Group {
            job,
            rows,
            starts,
            n_panels,
        })
    }

    /// Pieces of the group: a panel of each chunk of columns, the chunk's panels one after the other.
    fn n_pieces(&self) -> usize {
        self.job.weight.k.div_ceil(self.job.chunk_k) * self.n_panels
    }

    /// Where piece `index` lies.
    fn piece(&self, index: usize) -> Source {
        let job = self.job;
        let dtype = job.weight.dtype;
        // At most two panels: no division.
        let (chunk, panel) = if self.n_panels == 1 {
            (index, 0)
        } else {
            (index / 2, index % 2)
        };
        let start = self.starts[panel];
        let (row, tile_row, stride) = match dtype.block_rows() {
            1 => (start, 0, job.row_bytes),
            rows => (start / rows, start % rows, dtype.block_bytes()),
        };
        Source {
            dtype,
            base: job.weight.bytes[row * job.row_bytes + chunk * job.chunk_bytes..].as_ptr(),
            stride,
            tile_row,
            k: job.chunk_k.min(job.weight.k - chunk * job.chunk_k),
            ahead: Ahead::NONE,
        }
    }

    /// The bytes of piece `index`, counted on into the group that follows, to be fetched.
    fn ahead_of(&self, index: usize, next: Option<&Group<'_>>) -> Ahead {
        if index < self.n_pieces() {
            return self.ahead(index);
        }
        let index = index - self.n_pieces();
        next.filter(|next| index < next.n_pieces())
            .map_or(Ahead::NONE, |next| next.ahead(index))
    }

    /// The bytes of piece `index`, to be fetched.
    fn ahead(&self, index: usize) -> Ahead {
        let piece = self.piece(index);
        let dtype = self.job.weight.dtype;
        if dtype.block_rows() == 1 {
            // A shorter last chunk fetches a little of the next rows too.
            return Ahead::new(piece.base, piece.stride, self.job.chunk_bytes);
        }
        // The panels of a tile share its bytes: each fetches its part.
        let part = dtype.block_bytes() * PANEL_ROWS / dtype.block_rows();
        let first = piece.base.wrapping_add(piece.tile_row / PANEL_ROWS * part);
        Ahead::new(first, piece.stride, part)
    }
}

/// Computes one group of rows for every token, while `next` comes from memory.
fn run_group(group: &Group<'_>, next: Option<&Group<'_>>, m: usize, scratch: &mut Scratch) {
    for first in (0..m).step_by(TOKENS_A_PASS) {
        let tokens = first..m.min(first + TOKENS_A_PASS);
        let acc_bytes = tokens.len() * GROUP_ROWS * size_of::<f32>();
        scratch.acc.at_least(acc_bytes)[..acc_bytes].fill(0);
        for index in (0..group.n_pieces()).step_by(group.n_panels) {
            let sources: [Source; GROUP_PANELS] = std::array::from_fn(|p| {
                let index = index + p.min(group.n_panels - 1);
                let ahead = group.ahead_of(index + group.job.pieces_ahead, next);
                Source {
                    ahead,
                    ..group.piece(index)
                }
            });
            run_chunk(group, index, &sources, &tokens, scratch);
        }
        let acc = scratch.acc.at_least(acc_bytes).as_ptr().cast();
        // SAFETY: zeroed above, one row a token; any bits are numbers.
        let acc = unsafe { std::slice::from_raw_parts(acc, tokens.len() * GROUP_ROWS) };
        store(group, tokens, acc);
    }
}

/// Adds the products of one chunk of columns, from piece `index`, to the accumulators.
fn run_chunk(
    group: &Group<'_>,
    index: usize,
    sources: &[Source; GROUP_PANELS],
    tokens: &Range<usize>,
    scratch: &mut Scratch,
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
    let sources = sources.iter().take(group.n_panels);
    if let Some(direct) = job.direct {
        for (p, source) in sources.enumerate() {
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
    let panels = scratch
        .panels
        .at_least(GROUP_PANELS * panel_stride)
        .as_mut_ptr();
    let k = sources.clone().next().map_or(0, |source| source.k);
    for (p, source) in sources.enumerate() {
        let source = readable_rows(&job.weight, source, &mut scratch.rows);
        // SAFETY: a `Cpu` proves its level; sixteen rows exist (or were repeated), and `Matrix` checked that each has
        // its columns; panel `p` has the layout's bytes for a chunk.
        unsafe {
            let panel = panels.add(p * panel_stride);
            (job.kernel.pack)(&PackArgs { source, panel });
        }
    }
    let n_panels = group.n_panels;
    // SAFETY: a `Cpu` proves its level; the panels were packed just now; the view has a row for each token; the accumulators
    // have one for each token of the pass.
    unsafe {
        (job.kernel.tile)(&TileArgs {
            panels,
            panel_stride,
            n_panels,
            k,
            x,
            x_stride,
            m,
            acc,
        });
    }
}

/// Writes the finished sums of a group's rows.
fn store(group: &Group<'_>, tokens: Range<usize>, acc: &[f32]) {
    let Group {
        job, rows, starts, ..
    } = group;
    let n = job.weight.n;
    for (t, acc) in tokens.zip(acc.chunks_exact(GROUP_ROWS)) {
        // SAFETY: groups have disjoint rows and each group runs once.
        let out = unsafe { job.out.slice(t * n + rows.start..t * n + rows.end) };
        for (p, out) in out.chunks_mut(PANEL_ROWS).enumerate() {
            // A panel that was moved back to fit holds the group's rows at its end.
            let skip = rows.start + p * PANEL_ROWS - starts[p];
            let sums = &acc[p * PANEL_ROWS + skip..][..out.len()];
            out.copy_from_slice(sums);
        }
        add_bias(job, rows, out);
    }
}

/// Adds the bias of `rows` to a token's finished sums.
fn add_bias(job: &Job<'_>, rows: &Range<usize>, out: &mut [f32]) {
    if let Some(bias) = job.bias {
        for (out, bias) in out.iter_mut().zip(&bias[rows.clone()]) {
            *out += bias;
        }
    }
}
