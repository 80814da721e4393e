//! Choosing how to cut: the timing model prices every legal way, and the reason is kept.

use super::{Grid, Matmul, Order, Tiling, TilingError, padded_rows};
use crate::machine::Machine;
use crate::matmul::{self, Banks, MatmulKind, Task, rows_max};
use crate::profile::Profile;
use crate::timing::TaskCost;

/// Parameters that determine the place of packed weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WeightSplit {
    /// k of a part.
    pub depth: u32,
    /// Workers that columns are divided over.
    pub workers: u32,
}

/// A way to cut, with its price or the reason against it.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The sizes.
    pub tiling: Tiling,
    /// Predicted time with host work, in nanoseconds; the error where it is refused.
    pub price: Result<Price, TilingError>,
}

/// Cost of a way to cut, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Price {
    /// The slowest worker's time on its core.
    pub device_ns: f64,
    /// The part of it for the array's work alone.
    pub mac_ns: f64,
    /// Submits, packing A, reading C back.
    pub host_ns: f64,
    /// Tasks of all workers.
    pub n_tasks: u64,
    /// Bytes that all workers move.
    pub dma_bytes: f64,
}

impl Price {
    /// Device and host one after the other.
    pub fn total_ns(&self) -> f64 {
        self.device_ns + self.host_ns
    }
}

/// The choice and its alternatives.
#[derive(Clone, Debug, PartialEq)]
pub struct TilingChoice {
    /// The best way.
    pub tiling: Tiling,
    /// Its price.
    pub price: Price,
    /// All ways that were tried, cheapest first, refused ones last.
    pub candidates: Vec<Candidate>,
}

impl TilingChoice {
    /// Why, in a sentence.
    pub fn reason(&self) -> String {
        let price = &self.price;
        let bound = if price.mac_ns >= 0.7 * price.device_ns {
            "the array"
        } else if price.host_ns > price.device_ns {
            "the host"
        } else {
            "memory and tasks"
        };
        let legal = self.candidates.iter().filter(|c| c.price.is_ok()).count();
        format!(
            "{}: {} tasks, {:.2} ms modelled, bound by {bound}; cheapest of {legal} ways that fit ({} \
             do not)",
            self.tiling,
            price.n_tasks,
            price.total_ns() / 1e6,
            self.candidates.len() - legal
        )
    }
}

/// Depths that are tried. Between 3,072 and 4,096 one board refused tasks for no known reason
/// (happyme531/rknpu2_matmul_open), so there is none.
const DEPTHS: [u32; 8] = [512, 1024, 1536, 2048, 2560, 3072, 4096, 8192];

/// Depths for k: equal parts, multiples of 64, none above the machine's limit.
fn depths(k: u32, kind: MatmulKind, machine: &Machine) -> Vec<u32> {
    let padded = k.next_multiple_of(machine.k_group);
    let mut depths: Vec<u32> = (DEPTHS.iter())
        .map(|&depth| {
            let parts = padded.div_ceil(depth);
            let equal = padded.div_ceil(parts);
            if parts == 1 {
                padded
            } else {
                equal.next_multiple_of(64)
            }
        })
        .filter(|depth| !(3073..4096).contains(depth) && *depth <= machine.k_max)
        .collect();
    if !kind.adds_parts(machine.k_max) && padded <= machine.k_max {
        depths.retain(|&depth| kind.adds_parts(depth));
        depths.push(padded);
    }
    depths.sort_unstable();
    depths.dedup();
    depths
}

/// Row tiles that are tried for m rows.
fn row_tiles(m: u32, depth: u32, kind: MatmulKind, machine: &Machine) -> Vec<u32> {
    let most = rows_max(depth, kind, machine)
        .min(machine.m_max)
        .min(machine.grains_max - 1);
    let padded = padded_rows(m);
    if most == 0 || padded <= most {
        return vec![padded];
    }
    // As few tiles as fit, evenly; and tiles in whole groups of rows.
    let group = machine.row_group.max(4);
    let even = padded_rows(padded.div_ceil(padded.div_ceil(most)));
    let mut tiles = vec![
        even.min(most & !3),
        even.next_multiple_of(group),
        most / group * group,
    ];
    tiles.retain(|&rows| rows >= 4 && rows <= most);
    tiles.sort_unstable();
    tiles.dedup();
    tiles
}

/// Column tiles that are tried: as wide as registers allow, evenly; or as wide as the CBUF holds whole.
fn column_tiles(
    shape: &Matmul,
    rows: u32,
    split: WeightSplit,
    machine: &Machine,
) -> Vec<(u32, Order)> {
    let (kind, group) = (shape.kind, shape.kind.n_group());
    let per_worker = shape.n.div_ceil(group).div_ceil(split.workers) * group;
    let tiles = per_worker.div_ceil(machine.n_max);
    let wide = per_worker.div_ceil(tiles).next_multiple_of(group);
    let mut out = vec![(wide.min(machine.n_max), Order::Columns)];
    let data = matmul::data_banks(rows, split.depth, kind, machine);
    let free = u64::from(machine.cbuf_banks.saturating_sub(data)) * machine.cbuf_bank_bytes;
    let resident = (free / kind.row_bytes(split.depth).max(1)).min(u64::from(machine.n_max)) as u32;
    let resident = resident / group * group;
    if padded_rows(shape.m) > rows && resident > 0 {
        out.push((resident.min(per_worker), Order::Rows));
    }
    out
}

/// Prices every way to cut a product whose weights are packed in a given way.
///
/// # Errors
/// Where no way fits; the refusal of the last that was tried.
pub fn choose(
    shape: Matmul,
    split: WeightSplit,
    machine: &Machine,
    profile: &Profile,
) -> Result<TilingChoice, TilingError> {
    let mut candidates = Vec::new();
    for rows in row_tiles(shape.m, split.depth, shape.kind, machine) {
        for (cols, order) in column_tiles(&shape, rows, split, machine) {
            let tiling = Tiling {
                rows,
                cols,
                depth: split.depth,
                workers: split.workers,
                order,
                job_tasks: 1,
            };
            candidates.push(candidate(shape, tiling, machine, profile));
        }
    }
    pick(candidates, shape)
}

/// Chooses how weights of [n, k] are packed, for products of at most `m` rows: in the cheapest depth for that m.
///
/// # Errors
/// Where no way fits.
pub fn choose_weights(
    shape: Matmul,
    workers: u32,
    machine: &Machine,
    profile: &Profile,
) -> Result<(WeightSplit, TilingChoice), TilingError> {
    let mut candidates = Vec::new();
    let mut last = None;
    for depth in depths(shape.k, shape.kind, machine) {
        match choose(shape, WeightSplit { depth, workers }, machine, profile) {
            Ok(chosen) => candidates.extend(chosen.candidates),
            Err(error) => last = Some(error),
        }
    }
    match (candidates.is_empty(), last) {
        (true, Some(error)) => Err(error),
        _ => {
            let chosen = pick(candidates, shape)?;
            let (depth, workers) = (chosen.tiling.depth, chosen.tiling.workers);
            Ok((WeightSplit { depth, workers }, chosen))
        }
    }
}

fn pick(mut candidates: Vec<Candidate>, shape: Matmul) -> Result<TilingChoice, TilingError> {
    let total = |c: &Candidate| (c.price.as_ref()).map_or(f64::INFINITY, Price::total_ns);
    candidates.sort_by(|a, b| total(a).total_cmp(&total(b)));
    candidates.dedup_by(|a, b| a.tiling == b.tiling);
    let first = candidates.first().ok_or(TilingError::Shape {
        shape,
        max: super::DIM_MAX,
    })?;
    let (tiling, price) = (first.tiling, first.price.clone()?);
    Ok(TilingChoice {
        tiling,
        price,
        candidates,
    })
}

/// A tiling with its price and the number of tasks that a job may have.
fn candidate(shape: Matmul, tiling: Tiling, machine: &Machine, profile: &Profile) -> Candidate {
    let price = Grid::new(shape, tiling, machine).map(|grid| {
        // At the slowest clock a job ends within half of the kernel's timeout.
        let slow = Profile::rocket_200();
        let longest = longest_task_ns(&grid, machine, &slow);
        let job_tasks = (machine.job_timeout_ns as f64 / 2.0 / longest).max(1.0) as u32;
        (job_tasks, price(&grid, job_tasks, machine, profile))
    });
    match price {
        Ok((job_tasks, price)) => Candidate {
            tiling: Tiling {
                job_tasks,
                ..tiling
            },
            price: Ok(price),
        },
        Err(error) => Candidate {
            tiling,
            price: Err(error),
        },
    }
}

fn longest_task_ns(grid: &Grid, machine: &Machine, profile: &Profile) -> f64 {
    let rate = (profile.core_bytes_per_ns())
        .min(profile.ddr_bytes_per_s / 1e9 / f64::from(machine.n_cores));
    let task = Task {
        kind: grid.shape.kind,
        m: grid.rows.first().map_or(1, |span| span.padded),
        n: grid.tiling.cols,
        k: grid.tiling.depth,
        banks: Banks { data: 1, weight: 1 },
        data_reuse: false,
        weight_reuse: false,
        a: 0,
        b: 0,
        c: 0,
    };
    TaskCost::of(&task, machine, profile).ns(rate).max(1.0)
}

/// The price of a grid's tasks, memory shared evenly by the workers that run at once.
pub fn price(grid: &Grid, job_tasks: u32, machine: &Machine, profile: &Profile) -> Price {
    let busy = (grid.workers.iter())
        .filter(|cols| !cols.is_empty())
        .count();
    let at_once = busy.min(machine.n_cores as usize).max(1);
    let rate = (profile.core_bytes_per_ns()).min(profile.ddr_bytes_per_s / 1e9 / at_once as f64);
    let mut price = Price::default();
    let mut n_jobs = 0;
    for worker in 0..grid.workers.len() {
        let (mut device_ns, mut mac_ns) = (0.0, 0.0);
        let tasks = crate::program::tasks(grid, worker, job_tasks, machine);
        n_jobs += tasks.len().div_ceil(job_tasks as usize);
        for task in &tasks {
            let cost = TaskCost::of(task, machine, profile);
            device_ns += cost.ns(rate);
            mac_ns += cost.mac_ns;
            price.dma_bytes += cost.dma_bytes;
        }
        price.n_tasks += tasks.len() as u64;
        // More workers than cores take turns.
        let turns = (busy as f64 / at_once as f64).max(1.0);
        price.device_ns = price.device_ns.max(device_ns * turns);
        price.mac_ns = price.mac_ns.max(mac_ns * turns);
    }
    let packed = grid.a_bytes() as f64 / (profile.host_pack_bytes_per_s * profile.host_threads);
    let elements = grid.c_bytes() as f64 / f64::from(grid.shape.kind.output_bytes());
    let read = elements / (profile.host_unpack_elements_per_s * profile.host_threads);
    price.host_ns = (packed + read) * 1e9 + profile.submit_ns * n_jobs as f64;
    price
}
