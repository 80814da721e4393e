//! A token's attention on the cores of its projections, so that no core is loaded for it.
//!
//! [`fused-dqp`](super::dqp)'s cores take blocks of 5,120 bytes of weights from all shims. Keys and values of a cache
//! are such blocks as well: `r = 2560 / head_dim` rows of one key-value head, as in DDR. The vector that comes before
//! is the query, then the token's own key and value, then its position. So both are one program of the cores
//! ([`Heads::ops`] after the projections' loop), of which each launch runs its half. The loop counts of cores are
//! constants that they read.
//!
//! A key-value head has `spread = cols / n_kv_heads` columns. Runs of `unit · r` keys go to its columns in turn, and
//! the memory tile deals a block of them to each core. A core keeps the scores of its keys, as many as it has room for,
//! then takes the values. For more keys there are more launches. Its state then, O and the scores' maximum and sum,
//! goes out in pieces of 32 elements like a projection's rows, to DDR. A second launch, on a separate core, joins the
//! cores' parts head by head.
//!
//! The cache holds the keys before the token: its own is in the vector, so it need not be in DDR before the call.
//! Keys that the position does not reach count for nothing, so one program serves all positions up to the keys it
//! reads. With a window the cache may have only as many rows, in a ring: key p is in row p modulo their number.

mod cores;
mod reference;

use super::super::cached_attention;
use super::super::data::Random;
use super::super::parts::{
    Checks, at, block, call_with, constant, core, divisors, free, get, herd, i, int, launch, local,
    new, pattern, put, repeat, slot, small, stream,
};
use super::super::{
    BuildError, LeastWork, Mapping, NamedNumbers, Rule, Shape, ShapeError, Tiling, Tolerance,
};
use super::dqp::{self, DqpDims, W_IN, X, Y_OUT};
use super::{BYTES, COLS, GROUP, ROWS};
use millrace_npu::{Element, Role};
use millrace_xdna2_machine::program::{Affine, GridOrder, Launch, Operand, Place, Transfer, Var};
use millrace_xdna2_machine::{Machine, Numerics, Program};

pub(super) use cores::{Attend, Heads};

/// The mapping.
pub(crate) struct TokenAttention;

/// The mapping's name.
pub(crate) const NAME: &str = "token-attention";

/// Cores of a column.
const UNIT: u64 = 2;

/// Columns that the slot for their parts has room for.
const MOST_COLS: u64 = 8;

/// Elements of the slot with the position.
const AT: u64 = cached_attention::AT_DIGITS as u64;

/// Launches whose parts the slot for them has room for: cores have 512 keys at a time, or more.
fn most_chunks(shape: &Shape) -> u64 {
    shape["n_keys"].div_ceil(1024).max(4)
}

/// Shape and tiling as plain numbers.
struct TokenAttentionDims {
    heads: Heads,
    /// The cores, as in a projection.
    cores: DqpDims,
    n_keys: u64,
    max_tokens: u64,
    window: u64,
}

impl TokenAttentionDims {
    fn new(shape: &Shape, tiling: &Tiling) -> TokenAttentionDims {
        let n_kv_heads = shape["n_kv_heads"];
        let heads = Heads {
            head_dim: shape["head_dim"],
            n_heads: shape["n_heads"],
            n_kv_heads,
            spread: tiling["cols"] / n_kv_heads.max(1),
            keys: tiling["keys"],
            total: tiling["total"],
        };
        TokenAttentionDims {
            cores: DqpDims::attending(heads, (tiling["cols"], tiling["piece"]), UNIT),
            heads,
            n_keys: shape["n_keys"],
            max_tokens: shape["max_tokens"],
            window: shape["window"],
        }
    }

    fn cols(&self) -> u64 {
        self.heads.n_kv_heads * self.heads.spread
    }

    /// Keys that come to all cores of a head at once.
    fn run(&self) -> u64 {
        self.heads.spread * UNIT * self.heads.rows()
    }

    /// Blocks of keys of a core.
    fn rounds(&self) -> u64 {
        self.n_keys / self.run().max(1)
    }

    /// Blocks of each launch that attends: the first, and how many.
    fn chunks(&self) -> Vec<(u64, u64)> {
        let room = (self.heads.keys / self.heads.rows()).max(1);
        let firsts = (0..self.rounds()).step_by(usize::try_from(room).unwrap_or(usize::MAX));
        let chunk = |first: u64| (first, room.min(self.rounds() - first));
        firsts.map(chunk).collect()
    }

    /// Elements of query, key or value.
    fn elements(&self) -> [u64; 2] {
        [self.heads.n_heads, self.heads.n_kv_heads].map(|n| n * self.heads.head_dim)
    }

    fn check(&self, shape: &Shape, machine: &Machine) -> Result<(), BuildError> {
        let checks = Checks { mapping: NAME };
        checks.ensure(shape["n_queries"] == 1, Rule::Range, || {
            let n = shape["n_queries"];
            format!("{n} queries; it is for one token")
        })?;
        self.cores.check_cores(checks, machine)?;
        checks.divides(("keys", self.n_keys), ("a run of all cores", self.run()))?;
        checks.ensure(
            self.rounds() > 0 && self.heads.keys > 0,
            Rule::Range,
            || "cores have a block of keys at least".to_owned(),
        )?;
        let (n_chunks, most) = (self.chunks().len() as u64, most_chunks(shape));
        checks.ensure(n_chunks <= most, Rule::Range, || {
            format!(
                "keys = {} make {n_chunks} launches; at most {most} are joined",
                self.heads.keys
            )
        })?;
        let n_keys = ("keys", self.n_keys);
        checks.ensure(self.n_keys <= self.max_tokens, Rule::Range, || {
            format!("{} keys of a cache of {}", n_keys.1, self.max_tokens)
        })?;
        for n in self.elements() {
            checks.divides(("query, key or value", n), ("piece", self.cores.piece()))?;
        }
        checks.ensure(self.cols() <= MOST_COLS, Rule::Herd, || {
            format!("cols = {}; at most {MOST_COLS} are joined", self.cols())
        })
    }

    /// Query, new key, new value and position to all cores; then a chunk's keys, then its values; the parts.
    fn transfers(&self, chunk: u64, (first_round, rounds): (u64, u64)) -> Vec<Transfer> {
        let task = |dims: &[u64], arg: usize, channel: usize, index, pattern| Transfer {
            dims: dims.iter().map(|&d| small(d)).collect(),
            loops: Vec::new(),
            arg,
            channel,
            index,
            pattern,
        };
        let [q, kv] = self.elements();
        let piece = self.cores.piece();
        // The position over and over, until the piece is full.
        let vector = [[1, q], [1, kv], [1, kv], [piece / AT, AT]];
        let whole = |(arg, [times, n]): (usize, [u64; 2])| {
            let all = pattern(constant(0), &[(times, 0), (n, 1)]);
            task(&[], arg, X, Vec::new(), all)
        };
        let mut transfers: Vec<Transfer> = vector.into_iter().enumerate().map(whole).collect();
        let h = &self.heads;
        let run = UNIT * BYTES;
        for arg in [4, 5] {
            let first = i(0, self.max_tokens * 2 * h.head_dim).plus(Var::Index(1), int(run));
            let first = first + int(first_round * h.spread * run);
            let walk = pattern(first, &[(rounds, h.spread * run), (run, 1)]);
            let col = vec![i(0, h.spread) + i(1, 1)];
            transfers.push(task(&[h.n_kv_heads, h.spread], arg, W_IN, col, walk));
        }
        let at = i(0, h.part()) + int(chunk * MOST_COLS * h.part());
        let part = pattern(at, &[(h.part(), 1)]);
        transfers.push(task(&[self.cols()], 6, Y_OUT, vec![i(0, 1)], part));
        transfers
    }

    fn attend(&self, number: usize, (first, rounds): (u64, u64)) -> Launch {
        let body = self.cores.body(Attend {
            rounds,
            first,
            window: self.window,
            n_rows: self.max_tokens,
        });
        let cores = herd("cores", self.cols(), UNIT, self.cores.locals(), body);
        let name = match number {
            0 => "attend".to_owned(),
            n => format!("attend_{}", n + 1),
        };
        Launch {
            channels: self.cores.channels(),
            stages: self.cores.stages(),
            transfers: self.transfers(number as u64, (first, rounds)),
            herds: vec![cores],
            // The cores of the one before.
            resident: number > 0,
            ..launch(&name, &[0, 1, 2, 3, 4, 5, 6], &[], GridOrder::Streamed)
        }
    }

    /// One core that joins the parts of a head, then of the next.
    fn join(&self) -> Launch {
        let h = &self.heads;
        let (group, d) = (h.group(), h.head_dim);
        let here = || core(at(constant(0)), at(constant(0)));
        let shim = || Place::Shim(constant(0));
        let bf16 = Element::Bf16;
        let dims = [d, group, UNIT];
        let (state, none) = (Operand::Local(0), Vec::new);
        let n_chunks = self.chunks().len() as u64;
        let part = Affine::of(Var::Loop(1), int(h.spread)).plus(Var::Loop(2), 1);
        let joined = call_with(
            "ta_join_bf16",
            &dims,
            &[block(0), state],
            vec![part],
            vec![h.scale()],
        );
        let finished = call_with(
            "ta_finish_bf16",
            &dims,
            &[state, block(1)],
            none(),
            Vec::new(),
        );
        let head = vec![
            repeat(
                n_chunks,
                vec![repeat(h.spread, vec![get(0, none(), 0), joined, free(0)])],
            ),
            new(1, none(), 1),
            finished,
            put(1),
        ];
        let task = |arg: usize, walk: &[(u64, u64)]| Transfer {
            dims: Vec::new(),
            loops: Vec::new(),
            arg,
            channel: arg,
            index: Vec::new(),
            pattern: pattern(constant(0), walk),
        };
        // Head by head, of each the chunks, of each the columns.
        let of_head = h.spread * h.part();
        let parts = [
            (h.n_kv_heads, of_head),
            (n_chunks, MOST_COLS * h.part()),
            (of_head, 1),
        ];
        let locals = vec![local("state", Element::F32, &[group * (d + 2)])];
        let body = vec![repeat(h.n_kv_heads, head)];
        Launch {
            channels: vec![
                stream("parts", &[], bf16, &[h.part()], shim(), here()),
                stream("y", &[], bf16, &[group * d], here(), shim()),
            ],
            transfers: vec![task(0, &parts), task(1, &[(h.n_heads * d, 1)])],
            herds: vec![herd("join", 1, 1, locals, body)],
            ..launch("join", &[6, 7], &[], GridOrder::Sequential)
        }
    }
}

/// The tiling that shares cores with projections of vectors of so many elements, in pieces of so many.
pub(crate) fn tiling(cols: u64, total: u64, piece: u64, keys: u64) -> Tiling {
    let cores = [("cols", cols), ("total", total), ("piece", piece)];
    NamedNumbers::new(&[&cores[..], &[("keys", keys)]].concat())
}

/// The same for a projection on the cores that attend so to heads of the shape.
pub(crate) fn shared(cols: u64, total: u64, piece: u64, (shape, keys): (&Shape, u64)) -> Tiling {
    let sizes = ["head_dim", "n_heads", "n_kv_heads"].map(|name| (name, shape[name]));
    let cores = [("cols", cols), ("total", total), ("piece", piece)];
    // Tasks are written while attention works, which is short.
    let own = [("keys", keys), ("stretches", 1)];
    NamedNumbers::new(&[&cores[..], &sizes, &own].concat())
}

/// Elements of the vector: query, key, value and position, in pieces of so many.
pub(crate) fn vector(shape: &Shape, piece: u64) -> u64 {
    (shape["n_heads"] + 2 * shape["n_kv_heads"]) * shape["head_dim"] + piece
}

/// Keys that a core takes at once, of the shape's, on so many columns. It is all of them, or an even part if there is
/// no room for all next to a vector of so many elements. `None` if they do not divide evenly or there is no room.
pub(crate) fn keys_of_core(
    shape: &Shape,
    (cols, total, piece): (u64, u64, u64),
    machine: &Machine,
) -> Option<u64> {
    let spread = cols.checked_div(shape["n_kv_heads"]).filter(|&n| n > 0)?;
    let rows = (BYTES / 2).checked_div(shape["head_dim"])?;
    let run = spread * UNIT * rows;
    let rounds = shape["n_keys"].checked_div(run)?;
    let heads = Heads {
        head_dim: shape["head_dim"],
        n_heads: shape["n_heads"],
        n_kv_heads: shape["n_kv_heads"],
        spread,
        keys: 0,
        total,
    };
    let cores = DqpDims::attending(heads, (cols, piece), UNIT);
    let left = machine.core.data_bytes.checked_sub(cores.l1_bytes())?;
    let room = left / (4 * heads.group().max(1)) / rows;
    let n_chunks = rounds.div_ceil(room.max(1)).max(1);
    (room > 0 && rounds * run == shape["n_keys"]).then(|| rounds.div_ceil(n_chunks) * rows)
}

/// Unit of the number of keys on so many columns; `None` for heads that it does not take.
pub(crate) fn n_keys_unit(shape: &Shape, cols: u64) -> Option<u64> {
    let (d, n_kv_heads) = (shape["head_dim"], shape["n_kv_heads"]);
    let takes = d > 0 && (BYTES / 2).is_multiple_of(d) && d.is_multiple_of(ROWS);
    let fits = n_kv_heads > 0 && cols.is_multiple_of(n_kv_heads);
    (takes && fits).then(|| cols / n_kv_heads * UNIT * (BYTES / 2 / d))
}

/// The tiling of a single launch.
fn own_tiling(shape: &Shape, cols: u64, machine: &Machine) -> Tiling {
    let d = shape["head_dim"];
    let piece = dqp::piece(&[shape["n_heads"] * d, shape["n_kv_heads"] * d]);
    let total = vector(shape, piece).next_multiple_of(COLS);
    let piece = piece.max(GROUP);
    let keys = keys_of_core(shape, (cols, total, piece), machine).unwrap_or(0);
    tiling(cols, total, piece, keys)
}

impl Mapping for TokenAttention {
    fn name(&self) -> &'static str {
        NAME
    }

    fn summary(&self) -> &'static str {
        "O = softmax(q K^T / sqrt(d)) V of a token over a cache and itself, on fused-dqp's cores; `1xKEYS HEADSq/KVHEADSkv dD [of MAX] [window W]`"
    }

    fn parse_shape(&self, text: &str) -> Result<Shape, ShapeError> {
        cached_attention::parse(text)
    }

    fn default_tiling(&self, shape: &Shape, machine: &Machine) -> Tiling {
        let all = self.tilings(shape, machine);
        let first = all.into_iter().next();
        first.unwrap_or_else(|| own_tiling(shape, u64::from(machine.cols), machine))
    }

    fn tilings(&self, shape: &Shape, machine: &Machine) -> Vec<Tiling> {
        let cols = divisors(u64::from(machine.cols)).into_iter().rev();
        let all = cols.map(|cols| own_tiling(shape, cols, machine));
        all.filter(|tiling| {
            TokenAttentionDims::new(shape, tiling)
                .check(shape, machine)
                .is_ok()
        })
        .collect()
    }

    fn build(
        &self,
        shape: &Shape,
        tiling: &Tiling,
        machine: &Machine,
    ) -> Result<Program, BuildError> {
        Checks { mapping: NAME }.bounded(shape, tiling)?;
        let p = TokenAttentionDims::new(shape, tiling);
        p.check(shape, machine)?;
        let h = &p.heads;
        let (u8, bf16) = (Element::U8, Element::Bf16);
        let cache = [h.n_kv_heads, p.max_tokens, 2 * h.head_dim];
        let q = [h.n_heads, h.head_dim];
        let kv = [h.n_kv_heads, h.head_dim];
        let chunks = p.chunks();
        let parts = [most_chunks(shape), MOST_COLS, h.part()];
        let numbered = chunks.into_iter().enumerate();
        let mut launches: Vec<Launch> = numbered.map(|(n, chunk)| p.attend(n, chunk)).collect();
        launches.push(p.join());
        Ok(Program {
            name: "token_attention".to_owned(),
            slots: vec![
                slot("q", bf16, &q, Role::Input),
                slot("k", bf16, &kv, Role::Input),
                slot("v", bf16, &kv, Role::Input),
                slot("at", bf16, &[AT], Role::Input),
                slot("keys", u8, &cache, Role::Input),
                slot("values", u8, &cache, Role::Input),
                slot("parts", bf16, &parts, Role::Intermediate),
                slot("y", bf16, &q, Role::Output),
            ],
            launches,
        })
    }

    /// Inputs with a position from the seed, in the later half of the keys that are read.
    fn inputs(&self, shape: &Shape, seed: u64) -> Vec<Vec<u8>> {
        let tiling = self.default_tiling(shape, &Machine::npu2());
        let p = TokenAttentionDims::new(shape, &tiling);
        let mut random = Random::new(seed);
        let [q, kv] = p.elements();
        let cached = p.max_tokens * kv;
        let [query, k, v, keys, values] =
            [q, kv, kv, cached, cached].map(|n| random.bf16_bytes(n, 2.0));
        let position = (p.n_keys as f32 * (3.0 + random.uniform()) / 4.0) as u32;
        let at = cached_attention::at_bytes(AT, position, 0, 0..0);
        let parts = vec![0; (2 * most_chunks(shape) * MOST_COLS * p.heads.part()) as usize];
        vec![
            query,
            k,
            v,
            at,
            keys,
            values,
            parts,
            vec![0; 2 * q as usize],
        ]
    }

    fn reference_in(
        &self,
        _numerics: Numerics,
        shape: &Shape,
        tiling: &Tiling,
        slots: &[Vec<u8>],
    ) -> Vec<(usize, Vec<u8>)> {
        vec![(7, TokenAttentionDims::new(shape, tiling).reference(slots))]
    }

    fn keys_and_values(&self) -> &'static [usize] {
        &[4, 5]
    }

    fn tolerance(&self) -> Tolerance {
        Tolerance::Exact
    }

    fn work(&self, shape: &Shape) -> LeastWork {
        let d = shape["head_dim"];
        let (heads, kv_heads, keys) = (shape["n_heads"], shape["n_kv_heads"], shape["n_keys"]);
        LeastWork {
            flops: 4 * heads * (keys + 1) * d,
            ddr_bytes: 4 * d * (heads + kv_heads * (keys + 1)),
        }
    }
}
