//! Closed forms of the steady state, with the constants of the simulation. They give the bound of a kernel in a line,
//! and the event simulation is tested against them.
//!
//! `eff(s) = s / (s + burst overhead)`; `f` is the clock, `R` the DDR's read rate.

use crate::{Machine, Profile};

/// A GEMM of the kind that `mapping::gemm` builds: `cols · rows` cores, tiles `m × n`, panels of
/// `k_l2`, both panels twice on the memory tiles.
#[derive(Clone, Copy, Debug)]
pub struct GemmTile {
    /// Columns of the herd.
    pub cols: u64,
    /// Rows of the herd.
    pub rows: u64,
    /// Rows of C of a core.
    pub m: u64,
    /// Columns of C of a core.
    pub n: u64,
    /// Depth of a panel.
    pub k_l2: u64,
}

/// Time of one panel of a GEMM in steady state, in nanoseconds: the slower of computing it,
/// `m n k_l2 / (r f)`, and reading the next, `(A / eff(2 k_l2) + B / eff(2 n)) / R` with
/// `A = 2 cols m k_l2` and `B = 2 rows n k_l2` bytes.
///
/// Holds while the bursts use all memory channels and no shim channel or stream is slower.
pub fn gemm_panel_ns(
    tile: &GemmTile,
    macs_per_cycle: f64,
    machine: &Machine,
    profile: &Profile,
) -> f64 {
    let (m, n, k) = (tile.m as f64, tile.n as f64, tile.k_l2 as f64);
    let compute_ns = m * n * k / macs_per_cycle / machine.clock_hz * 1e9;
    let a_bytes = 2.0 * tile.cols as f64 * m * k / profile.burst_efficiency(2.0 * k);
    let b_bytes = 2.0 * tile.rows as f64 * n * k / profile.burst_efficiency(2.0 * n);
    let read_ns = (a_bytes + b_bytes) / profile.ddr.read_gb_per_s;
    compute_ns.max(read_ns)
}

/// Time of a grid point of a GEMV whose L2 panel has one copy, in nanoseconds: the task's start,
/// filling the panel, `2 cols rows k / R`, draining it at the stream's rate, the last block's
/// products, then the point's own cost. `rows` are those of a column, `block_rows` those of a block.
pub fn gemv_point_ns(
    (cols, rows, k): (u64, u64, u64),
    block_rows: u64,
    macs_per_cycle: f64,
    machine: &Machine,
    profile: &Profile,
) -> f64 {
    let panel_bytes = (2 * rows * k) as f64;
    let stream = machine.stream_bytes_per_s() / 1e9;
    let port = profile.shim.port_gb_per_s.min(stream);
    let read = (profile.ddr.read_gb_per_s / cols as f64).min(port);
    let last_ns = (block_rows * k) as f64 / macs_per_cycle / machine.clock_hz * 1e9;
    profile.shim.task_ns
        + panel_bytes / read
        + panel_bytes / stream
        + last_ns
        + profile.dispatch.point_ns
}

/// Time of `n` elements on `cores` cores that stream them, in nanoseconds: the slower of computing,
/// `n c / (cores f)`, and moving, reads and writes sharing the DDR.
pub fn elementwise_ns(
    n: u64,
    cores: u64,
    cycles_per_element: f64,
    (read_bytes, write_bytes): (u64, u64),
    machine: &Machine,
    profile: &Profile,
) -> f64 {
    let n = n as f64;
    let compute_ns = n * cycles_per_element / cores as f64 / machine.clock_hz * 1e9;
    let reads_ns = n * read_bytes as f64 / profile.ddr.read_gb_per_s;
    let moves_ns = n * (read_bytes + write_bytes) as f64 / profile.ddr.total_gb_per_s;
    compute_ns.max(reads_ns).max(moves_ns)
}

/// Megatile GEMM (the Gemma 3 paper, equation 5), in nanoseconds. A megatile is `8 e_y m` rows by `4 e_x n`
/// columns; A is read once a column of megatiles, B once a row of them:
/// `max(A / (8 s), B / (4 s), (A + B + C) / B_ddr, 2 M K N / (64 r f))`,
/// `s` being the rate that a shim channel attains.
pub fn megatile_ns(
    (m, k, n): (u64, u64, u64),
    (mega_m, mega_n): (u64, u64),
    macs_per_cycle: f64,
    machine: &Machine,
    profile: &Profile,
) -> f64 {
    let [m, k, n, mega_m, mega_n] = [m, k, n, mega_m, mega_n].map(|v| v as f64);
    let a_bytes = 2.0 * m * k * (n / mega_n).ceil();
    let b_bytes = 2.0 * k * n * (m / mega_m).ceil();
    let c_bytes = 2.0 * m * n;
    let s = profile.shim.port_gb_per_s;
    let cores = f64::from(machine.n_cores());
    let compute_ns = m * k * n / (cores * macs_per_cycle) / machine.clock_hz * 1e9;
    (a_bytes / (f64::from(machine.cols) * s))
        .max(b_bytes / (f64::from(machine.rows) * s))
        .max((a_bytes + b_bytes + c_bytes) / profile.ddr.total_gb_per_s)
        .max(compute_ns)
}

/// Read-bandwidth utilisation of chunked attention over a prompt of `l` tokens (the Gemma 3 paper, equation 13),
/// in bytes per second: `2 B (1 + L / L_c) L CT H / T_d`.
///
/// `bytes` is B, the bytes one compute tile reads per position and head; `chunk` is L_c, the
/// length of a chunk; `tiles` the number of compute tiles; `heads` is H; `seconds` is T_d, the
/// run time over the whole prompt. The factor `(1 + L / L_c) L` counts positions read: `L / L_c`
/// chunks of queries, each against all chunks up to its own.
pub fn read_bandwidth_of_attention(
    bytes: f64,
    l: f64,
    chunk: f64,
    tiles: f64,
    heads: f64,
    seconds: f64,
) -> f64 {
    2.0 * bytes * (1.0 + l / chunk) * l * tiles * heads / seconds
}
