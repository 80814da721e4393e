//! An object FIFO as in its op.

use crate::design::Design;
use crate::design::descriptor::{elements, pairs};
use crate::syntax::{Attribute, MemRefType, Op, Region, SyntaxError, Type};
use millrace_xdna2_words::Tile;
use millrace_xdna2_words::tile::TileKind;

/// Bytes of an object, at most: those of a memory tile.
const MOST_OBJECT_BYTES: u64 = 512 << 10;

/// An object FIFO as in the text.
pub(in crate::design) struct FifoOp<'o> {
    pub(in crate::design) op: &'o Op,
    pub(in crate::design) name: &'o str,
    pub(in crate::design) producer: Tile,
    pub(in crate::design) consumers: Vec<Tile>,
    /// The producer's depth, then those of consumers.
    pub(super) depths: Vec<u64>,
    pub(in crate::design) of: MemRefType,
    pub(super) to_stream: Vec<(u64, u64)>,
    pub(super) from_stream: Vec<Vec<(u64, u64)>>,
    pub(super) padding: Vec<(u64, u64)>,
    /// The word that padding sends, where the text names one.
    pub(super) pad_value: Option<u32>,
    pub(super) initial: Vec<Vec<u8>>,
    /// How often each object is sent.
    pub(in crate::design) repeat: u64,
    /// The tile whose memory holds a shared pool, if the design says.
    pub(super) delegate: Option<Tile>,
    /// Whether its ends wait for one another.
    pub(super) is_synchronized: bool,
    /// Executions of the chain at memory tiles; without it chains go on for ever.
    pub(super) iterations: Option<u64>,
}

/// Attributes that its op may have.
const KNOWN: [&str; 14] = [
    "sym_name",
    "dimensionsToStream",
    "dimensionsFromStream",
    "elemNumber",
    "elemType",
    "initValues",
    "via_DMA",
    "plio",
    "padDimensions",
    "padValue",
    "repeat_count",
    "iter_count",
    "disable_synchronization",
    "via_shared_mem",
];

/// The type of an object. Attributes that change the behaviour of a FIFO are refused.
fn object(op: &Op) -> Result<&MemRefType, SyntaxError> {
    op.only(&KNOWN)?;
    if op.flag("plio") {
        return Err(op.error("an NPU has no PLIO"));
    }
    let of = op
        .types
        .iter()
        .find_map(Type::memref)
        .or(match op.get("elemType") {
            Some(Attribute::Type(of)) => of.memref(),
            _ => None,
        });
    let of = of.filter(|of| {
        of.bytes()
            .is_some_and(|bytes| (1..=MOST_OBJECT_BYTES).contains(&bytes))
    });
    of.ok_or_else(|| op.error("its objects are no memrefs of a fixed size that a tile holds"))
}

pub(super) fn read<'o>(design: &Design, op: &'o Op) -> Result<FifoOp<'o>, SyntaxError> {
    let of = object(op)?.clone();
    let tiles = op.operands.iter().map(|name| design.tile(op, name));
    let tiles: Vec<Tile> = tiles.collect::<Result<_, _>>()?;
    let [producer, consumers @ ..] = &tiles[..] else {
        return Err(op.error("it has no tiles"));
    };
    if consumers.is_empty() {
        return Err(op.error("it has no consumer"));
    }
    let mut from_stream = match op.get("dimensionsFromStream") {
        Some(Attribute::Array(all)) => {
            let each = all.iter().map(|value| pairs(op, value, "size", "stride"));
            each.collect::<Result<_, _>>()?
        }
        Some(_) => return Err(op.error("`dimensionsFromStream` is no list")),
        None => Vec::new(),
    };
    from_stream.resize(consumers.len(), Vec::new());
    let list = |name, first, second| match op.get(name) {
        Some(value) => pairs(op, value, first, second),
        None => Ok(Vec::new()),
    };
    Ok(FifoOp {
        op,
        name: op.text("sym_name")?,
        producer: *producer,
        consumers: consumers.to_vec(),
        depths: depths(op, tiles.len())?,
        initial: initial(op, &of)?,
        to_stream: list("dimensionsToStream", "size", "stride")?,
        padding: list("padDimensions", "const_pad_before", "const_pad_after")?,
        pad_value: match op.get("padValue") {
            Some(_) => Some(op.integer("padValue")? as u32),
            None => None,
        },
        from_stream,
        of,
        repeat: times(op, "repeat_count")?.unwrap_or(1),
        iterations: times(op, "iter_count")?,
        delegate: None,
        is_synchronized: !op.flag("disable_synchronization"),
    })
}

/// How often something happens: 1 to 256.
fn times(op: &Op, name: &str) -> Result<Option<u64>, SyntaxError> {
    let Some(_) = op.get(name) else {
        return Ok(None);
    };
    let n: u64 = op.number(name)?;
    match n {
        1..=256 => Ok(Some(n)),
        _ => Err(op.error(format!("`{name}` is 1 to 256"))),
    }
}

/// One depth for all, or one each; a single one is repeated.
fn depths(op: &Op, n_tiles: usize) -> Result<Vec<u64>, SyntaxError> {
    let value = op.need("elemNumber")?;
    let depths = match value.integers() {
        Some(all) if all.len() == n_tiles => all,
        Some(_) => return Err(op.error("as many depths as tiles are needed")),
        None => vec![op.integer("elemNumber")?],
    };
    let depth = |n: &i64| u64::try_from(*n).ok().filter(|n| (1..=63).contains(n));
    let depths: Option<Vec<u64>> = depths.iter().map(depth).collect();
    depths.ok_or_else(|| op.error("a depth is 1 to 63"))
}

fn initial(op: &Op, of: &MemRefType) -> Result<Vec<Vec<u8>>, SyntaxError> {
    let Some(Attribute::Array(all)) = op.get("initValues") else {
        return Ok(Vec::new());
    };
    let of = Type::MemRef(Box::new(of.clone()));
    let bytes = |value: &Attribute| match value {
        Attribute::Dense(dense) => dense.bytes(&of).map_err(|problem| op.error(problem)),
        _ => Err(op.error("a first value is not `dense<…>`")),
    };
    all.iter().map(bytes).collect()
}

impl FifoOp<'_> {
    pub(in crate::design) fn bytes(&self) -> u64 {
        self.of.bytes().unwrap_or(0)
    }

    /// Bytes of an object in its producer's memory, without padding that is added on the way.
    pub(in crate::design) fn bytes_in_memory(&self) -> u64 {
        let unpadded = elements(&self.to_stream, &[]).filter(|_| !self.padding.is_empty());
        let bytes = unpadded.and_then(|n| n.checked_mul(self.of.element_bytes()));
        bytes.unwrap_or_else(|| self.bytes())
    }

    /// The depth on a side: 0 is the producer's.
    pub(in crate::design) fn depth(&self, design: &Design, side: usize) -> u64 {
        let asked = match self.depths[..] {
            [one] => one,
            _ => return self.depths[side],
        };
        let tile = if side == 0 {
            self.producer
        } else {
            self.consumers[side - 1]
        };
        let core = design.cores.iter().find(|core| core.tile == tile);
        let most = core.map_or(0, |core| most_acquired(&core.op.regions, self.name));
        match most {
            0 => asked,
            1 if asked == 1 => 1,
            most => most + 1,
        }
    }

    /// The tile of a shared pool, where both ends are cores that reach one memory.
    pub(super) fn shared(&self) -> Option<Tile> {
        let [consumer] = self.consumers[..] else {
            return None;
        };
        let both = self.producer.kind() == TileKind::Core && consumer.kind() == TileKind::Core;
        let is_plain = self.to_stream.is_empty() && self.from_stream.iter().all(Vec::is_empty);
        // Only DMA sends an object again.
        if !both || !is_plain || self.op.flag("via_DMA") || self.repeat > 1 {
            return None;
        }
        let reaches = |core: Tile, memory: Tile| {
            let steps = [(0, 0), (0, -1), (-1, 0), (0, 1)];
            steps
                .iter()
                .any(|&(east, north)| core.neighbour(east, north) == Some(memory))
        };
        if let Some(tile) = self.delegate {
            return (reaches(self.producer, tile) && reaches(consumer, tile)).then_some(tile);
        }
        if reaches(consumer, self.producer) {
            return Some(self.producer);
        }
        reaches(self.producer, consumer).then_some(consumer)
    }
}

/// Objects that a core acquires at once, at most.
fn most_acquired(regions: &[Region], fifo: &str) -> u64 {
    let ops = regions.iter().flat_map(Region::ops);
    let each = ops.map(|op| {
        let here = match op.name.as_str() {
            "aie.objectfifo.acquire" if op.text("objFifo_name").is_ok_and(|name| name == fifo) => {
                op.integer("size")
                    .ok()
                    .and_then(|n| u64::try_from(n).ok())
                    .unwrap_or(0)
            }
            _ => 0,
        };
        here.max(most_acquired(&op.regions, fifo))
    });
    each.max().unwrap_or(0)
}
