//! GEMVs of one vector, of bf16 or of 8-bit integers, whose weights stream from DDR into the cores, the decode projection of
//! mode fast.
//!
//! A core takes a row of W at a time, straight from its column's shim: nothing waits for a panel in
//! L2 to be filled, or for the results of a grid point. A column may have two such streams, as its
//! shim has two channels; a core computes several times faster than both deliver, so it serves
//! both, and half the array's columns use all of the DDR's bandwidth. Fewer cores are loaded sooner.
//!
//! The vector comes down a column's first stream, before the weights. A stream takes a share of the
//! rows of every product, one product after the other, and its core sends the results in blocks of
//! `tile_m` rows.
//!
//! [`Gemv`](super::gemv) is the published kernel.

use super::data::{Random, bf16_bytes};
use super::fused::{self, GEMV_PARTS};
use super::operands::{self, Operands, integer_product};
use super::parts::{
    Checks, at, block, call, call_with, constant, core, deep, divisors, free, get, herd, i, int,
    launch, local, new, pattern, put, repeat, slot, small, stream, x,
};
use super::{
    BuildError, DIM_MAX, LeastWork, Mapping, NamedNumbers, Rule, Shape, ShapeError, Tiling,
    Tolerance, gemv,
};
use millrace_npu::Role;
use millrace_xdna2_machine::program::{
    Affine, Channel, GridOrder, Launch, Op, Operand, Place, Transfer, Var,
};
use millrace_xdna2_machine::{Machine, Numerics, Profile, Program};

/// The GEMV.
pub(super) struct GemvStream {
    name: &'static str,
    summary: &'static str,
    of: &'static Operands,
}

/// GEMVs of bf16.
pub(super) const BF16: GemvStream = GemvStream {
    name: "gemv-stream",
    summary: "y0 = W0 x, y1 = W1 x, ..., bf16, W from DDR to the cores; M0+M1+...xK",
    of: &operands::BF16,
};

/// GEMVs of 8-bit integers.
pub(super) const I8: GemvStream = GemvStream {
    name: super::GEMV_I8,
    summary: "y0 = W0 x, y1 = W1 x, ..., int8 in, exact int32 out; M0+M1+...xK",
    of: &operands::I8,
};

/// Shape and tiling as plain numbers.
struct GemvStreamDims {
    /// Rows of each product.
    rows: Vec<u64>,
    k: u64,
    tile_m: u64,
    cols: u64,
    streams: u64,
    l1_depth: u64,
    of: &'static Operands,
}

// Channels of the launch, in this order.
const W: usize = 0;
const Y: usize = 1;

impl GemvStreamDims {
    fn new(gemv: &GemvStream, shape: &Shape, tiling: &Tiling) -> GemvStreamDims {
        GemvStreamDims {
            rows: fused::sizes(shape, GEMV_PARTS),
            k: shape["k"],
            tile_m: tiling["tile_m"],
            cols: tiling["cols"],
            streams: tiling["streams"],
            l1_depth: tiling["l1_depth"],
            of: gemv.of,
        }
    }

    /// A problem without a tiling yet: every size is 0.
    fn untiled(gemv: &GemvStream, shape: &Shape) -> GemvStreamDims {
        let none =
            NamedNumbers::new(&[("tile_m", 0), ("cols", 0), ("streams", 0), ("l1_depth", 0)]);
        GemvStreamDims::new(gemv, shape, &none)
    }

    fn tiling(&self) -> Tiling {
        NamedNumbers::new(&[
            ("tile_m", self.tile_m),
            ("cols", self.cols),
            ("streams", self.streams),
            ("l1_depth", self.l1_depth),
        ])
    }

    fn check(&self, checks: Checks, machine: &Machine) -> Result<(), BuildError> {
        checks.herd(self.cols, 1, machine)?;
        checks.divides(("k", self.k), ("the vector unit's lanes", gemv::LANES))?;
        let channels = u64::from(machine.shim.mm2s.min(machine.core.s2mm));
        let ok = (1..=channels).contains(&self.streams);
        checks.ensure(ok, Rule::Streams, || {
            format!(
                "streams = {}; a shim reads by {channels} channels",
                self.streams
            )
        })?;
        let step = self.cols * self.streams * self.tile_m;
        for (name, &rows) in GEMV_PARTS.iter().zip(&self.rows) {
            checks.divides((name, rows), ("cols * streams * tile_m", step))?;
        }
        let whole = (self.of.result_size() * self.tile_m).is_multiple_of(4);
        checks.ensure(whole, Rule::Granularity, || {
            format!(
                "tile_m = {}: its {} results end within an address unit of 4 bytes; take an even \
                 tile_m",
                self.tile_m, self.of.result
            )
        })?;
        checks.ensure((1..=2).contains(&self.l1_depth), Rule::Range, || {
            format!("l1_depth = {}; it is 1, or 2 for ping-pong", self.l1_depth)
        })?;
        let rows = self.streams * self.l1_depth + 1;
        checks.l1(
            self.of.size() * rows * self.k + 2 * self.of.result_size() * self.streams * self.tile_m,
            machine,
        )
    }

    /// Rows of a product that a stream takes.
    fn share(&self, rows: u64) -> u64 {
        rows / (self.cols * self.streams)
    }

    fn channels(&self) -> Vec<Channel> {
        let (element, result) = (self.of.element, self.of.result);
        let dims = [self.cols, self.streams];
        let here = || core(at(i(0, 1)), at(constant(0)));
        let shim = || Place::Shim(i(0, 1));
        let w = stream("w", &dims, element, &[1, self.k], shim(), here());
        vec![
            deep(w, self.l1_depth),
            stream("y", &dims, result, &[self.tile_m], here(), shim()),
        ]
    }

    fn transfers(&self) -> Vec<Transfer> {
        let task =
            |dims: &[u64], arg: usize, channel: usize, index: Vec<Affine>, pattern| Transfer {
                dims: dims.iter().map(|&d| small(d)).collect(),
                loops: Vec::new(),
                arg,
                channel,
                index,
                pattern,
            };
        let n = self.rows.len();
        let vector = pattern(constant(0), &[(self.k, 1)]);
        let mut transfers = vec![task(&[self.cols], 0, W, vec![i(0, 1), constant(0)], vector)];
        let dims = [self.cols, self.streams];
        let shares = |channel: usize, first_arg: usize, unit: u64| {
            self.rows.iter().enumerate().map(move |(part, &rows)| {
                let share = self.share(rows) * unit;
                let at = i(0, self.streams * share).plus(Var::Index(1), int(share));
                let index = vec![i(0, 1), i(1, 1)];
                let walk = pattern(at, &[(share, 1)]);
                task(&dims, first_arg + part, channel, index, walk)
            })
        };
        transfers.extend(shares(W, 1, self.k));
        transfers.extend(shares(Y, 1 + n, 1));
        transfers
    }

    fn body(&self) -> Vec<Op> {
        let vector = Operand::Local(0);
        // Block names: 0 a row of W, then a block of results for each stream.
        let result = |stream: u64| 1 + stream as u8;
        let streams = 0..self.streams;
        let of = |channel_stream: u64| vec![x(), constant(channel_stream)];
        let row = |stream: u64| {
            let operands = [block(0), vector, block(result(stream))];
            let dims = [1, self.k, self.tile_m];
            let first = vec![Affine::of(Var::Loop(1), 1)];
            let matvec = self.of.matvec_part;
            [
                get(W, of(stream), 0),
                call_with(matvec, &dims, &operands, first, Vec::new()),
                free(0),
            ]
        };
        let rows = repeat(self.tile_m, streams.clone().flat_map(row).collect());
        let tile = (streams.clone().map(|s| new(Y, of(s), result(s))))
            .chain([rows])
            .chain(streams.map(|s| put(result(s))));
        let n_tiles = self.rows.iter().map(|&m| self.share(m) / self.tile_m).sum();
        vec![
            get(W, of(0), 0),
            call(self.of.copy, &[self.k], &[block(0), vector]),
            free(0),
            repeat(n_tiles, tile.collect()),
        ]
    }
}

impl Mapping for GemvStream {
    fn name(&self) -> &'static str {
        self.name
    }

    fn summary(&self) -> &'static str {
        self.summary
    }

    fn parse_shape(&self, text: &str) -> Result<Shape, ShapeError> {
        let form = "M0+M1+...xK";
        let parts: Vec<&str> = text.trim().split(['x', 'X', '×']).collect();
        let (rows, k) = match parts[..] {
            [rows, k] => (rows, k.trim().parse().unwrap_or(0)),
            _ => (text, 0),
        };
        let mut pairs = fused::parse(text, rows, GEMV_PARTS, form)?;
        if !(1..=DIM_MAX).contains(&k) {
            return Err(ShapeError::new(text, &format!("the shape is {form}")));
        }
        pairs.push(("k", k));
        Ok(NamedNumbers::new(&pairs))
    }

    fn default_tiling(&self, shape: &Shape, machine: &Machine) -> Tiling {
        let least = || {
            let tiled = GemvStreamDims {
                tile_m: 2,
                cols: 1,
                streams: 1,
                l1_depth: 1,
                ..GemvStreamDims::untiled(self, shape)
            };
            tiled.tiling()
        };
        let tilings = self.tilings(shape, machine);
        tilings.into_iter().next().unwrap_or_else(least)
    }

    /// Half the columns with two streams first, then all with one, then fewer; results in blocks of
    /// about 64 rows.
    fn tilings(&self, shape: &Shape, machine: &Machine) -> Vec<Tiling> {
        let cols = u64::from(machine.cols);
        let herds = [(cols / 2, 2), (cols, 1), (cols, 2)];
        let fewer = (1..cols).rev().flat_map(|c| [(c, 2), (c, 1)]);
        let mut tilings = Vec::new();
        let checks = Checks { mapping: self.name };
        let rows = fused::sizes(shape, GEMV_PARTS);
        for (cols, streams) in herds.into_iter().chain(fewer).filter(|h| h.0 > 0) {
            let shares = rows.iter().map(|m| m / (cols * streams));
            let common = shares.fold(0, gcd);
            for l1_depth in [2, 1] {
                let tiles = divisors(common).into_iter().rev().filter(|&t| t <= 64);
                for tile_m in tiles.take(3) {
                    let tiled = GemvStreamDims {
                        tile_m,
                        cols,
                        streams,
                        l1_depth,
                        ..GemvStreamDims::untiled(self, shape)
                    };
                    let tiling = tiled.tiling();
                    if tiled.check(checks, machine).is_ok() && !tilings.contains(&tiling) {
                        tilings.push(tiling);
                    }
                }
            }
        }
        tilings
    }

    fn build(
        &self,
        shape: &Shape,
        tiling: &Tiling,
        machine: &Machine,
    ) -> Result<Program, BuildError> {
        let p = GemvStreamDims::new(self, shape, tiling);
        let checks = Checks { mapping: self.name };
        checks.bounded(shape, tiling)?;
        p.check(checks, machine)?;
        let n = p.rows.len();
        let args: Vec<usize> = (0..1 + 2 * n).collect();
        let vector = local("x", self.of.element, &[p.k]);
        let gemv = Launch {
            channels: p.channels(),
            transfers: p.transfers(),
            herds: vec![herd("cores", p.cols, 1, vec![vector], p.body())],
            ..launch("gemv", &args, &[], GridOrder::Streamed)
        };
        let (element, result) = (self.of.element, self.of.result);
        let rows = || p.rows.iter().enumerate();
        let w = |(i, &m)| slot(&format!("w{i}"), element, &[m, p.k], Role::Static);
        let y = |(i, &m)| slot(&format!("y{i}"), result, &[m], Role::Output);
        let mut slots = vec![slot("x", element, &[p.k], Role::Input)];
        slots.extend(rows().map(w));
        slots.extend(rows().map(y));
        Ok(Program {
            name: self.name.replace('-', "_"),
            slots,
            launches: vec![gemv],
        })
    }

    fn inputs(&self, shape: &Shape, seed: u64) -> Vec<Vec<u8>> {
        let (rows, k) = (fused::sizes(shape, GEMV_PARTS), shape["k"]);
        let mut random = Random::new(seed);
        let mut slots = vec![random.bytes(self.of.element, k)];
        slots.extend(rows.iter().map(|m| random.bytes(self.of.element, m * k)));
        let result = self.of.result_size();
        slots.extend(rows.iter().map(|&m| vec![0; (result * m) as usize]));
        slots
    }

    fn reference_in(
        &self,
        _numerics: Numerics,
        shape: &Shape,
        _tiling: &Tiling,
        slots: &[Vec<u8>],
    ) -> Vec<(usize, Vec<u8>)> {
        let n = fused::sizes(shape, GEMV_PARTS).len();
        let product = |part: usize| {
            let (w, k) = (&slots[1 + part], shape["k"] as usize);
            let y = match self.of.element.precision() {
                Some(_) => bf16_bytes(&gemv::product(w, &slots[0], k)),
                None => integer_product(&slots[0], w, k),
            };
            (1 + n + part, y)
        };
        (0..n).map(product).collect()
    }

    fn tolerance(&self) -> Tolerance {
        Tolerance::Exact
    }

    fn work(&self, shape: &Shape) -> LeastWork {
        let (m, k) = (
            fused::sizes(shape, GEMV_PARTS).iter().sum::<u64>(),
            shape["k"],
        );
        LeastWork {
            flops: 2 * m * k,
            ddr_bytes: self.of.size() * (m * k + k) + self.of.result_size() * m,
        }
    }
}

/// Legal tilings by their estimated time, least first, the loading of cores included. In steady
/// state DDR, shims or cores bound it.
pub(super) fn ranked(
    gemv: &GemvStream,
    shape: &Shape,
    machine: &Machine,
    profile: &Profile,
) -> Vec<Tiling> {
    let f = |value: u64| value as f64;
    let macs_per_cycle = profile
        .kernel(gemv.of.matvec_part)
        .map_or(1.0, |c| c.macs_per_cycle.max(1.0));
    let estimate_ns = |tiling: &Tiling| {
        let p = GemvStreamDims::new(gemv, shape, tiling);
        let macs = f(p.k * p.rows.iter().sum::<u64>());
        let (cols, shim) = (f(p.cols), &profile.shim);
        let column = (f(p.streams) * shim.port_gb_per_s).min(shim.column_read_gb_per_s);
        let rate = profile.ddr.read_gb_per_s.min(cols * column);
        let core_ns = macs / cols / macs_per_cycle / machine.clock_hz * 1e9;
        // One herd of several in its program.
        core_ns.max(f(gemv.of.size()) * macs / rate)
            + profile.dispatch.estimated_load_ns(p.cols, p.cols)
    };
    let tilings = gemv.tilings(shape, machine);
    let mut timed: Vec<(f64, Tiling)> = tilings.into_iter().map(|t| (estimate_ns(&t), t)).collect();
    timed.sort_by(|a, b| a.0.total_cmp(&b.0));
    timed.into_iter().map(|(_, tiling)| tiling).collect()
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
