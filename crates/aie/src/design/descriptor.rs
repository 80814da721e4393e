//! `aie.dma_bd` and the ops around it.

use super::{BdIteration, Descriptor, Design, Entity, TileMemory};
use crate::syntax::{Attribute, MemRefType, Op, OpBlock, SyntaxError};
use millrace_xdna2_words::Tile;
use std::collections::BTreeMap;

/// Values of a region that are whole numbers.
pub(crate) type Constants = BTreeMap<String, i64>;

/// Remembers a constant; `false` if the op is none.
pub(crate) fn constant(op: &Op, constants: &mut Constants) -> Result<bool, SyntaxError> {
    if op.name != "arith.constant" {
        return Ok(false);
    }
    if let Some(value) = op.need("value")?.integer() {
        constants.insert(op.result()?.to_owned(), value);
    }
    Ok(true)
}

/// A literal number or a constant.
pub(crate) fn number(
    design: &Design,
    op: &Op,
    value: &Attribute,
    constants: &Constants,
) -> Result<i64, SyntaxError> {
    if let Some(number) = value.integer() {
        return Ok(number);
    }
    if let Attribute::Value(name) = value {
        if let Some(number) = constants.get(name) {
            return Ok(*number);
        }
        if let Some(Entity::Constant(number)) = design.names.get(name) {
            return Ok(*number);
        }
        return Err(op.error(format!("%{name} is not constant here")));
    }
    Err(op.error("expected a number"))
}

/// A number that is not negative.
pub(crate) fn count(
    design: &Design,
    op: &Op,
    value: &Attribute,
    constants: &Constants,
) -> Result<u64, SyntaxError> {
    let number = number(design, op, value, constants)?;
    u64::try_from(number).map_err(|_| op.error(format!("{number} is negative")))
}

/// Finds the memory that a descriptor moves, by its name, and its type.
pub(crate) type FindMemory<'f> =
    &'f dyn Fn(&Op, &str) -> Result<(TileMemory, MemRefType), SyntaxError>;

/// A block of a DMA program: locks and one descriptor. `of` finds the memory that the descriptor moves; `outer` are
/// numbers that are known around it.
pub(crate) fn block(
    design: &Design,
    block: &OpBlock,
    (tile, outer): (Tile, &Constants),
    of: FindMemory<'_>,
) -> Result<(Descriptor, Option<String>), SyntaxError> {
    let mut constants = outer.clone();
    let mut found: Option<Descriptor> = None;
    let (mut acquire, mut release, mut packet, mut next) = (None, None, None, None);
    let mut is_equal = false;
    for op in &block.ops {
        match op.name.as_str() {
            _ if constant(op, &mut constants)? => {}
            "aie.use_lock" => {
                let (lock, action, amount) = use_lock(design, op, &constants)?;
                is_equal |= action == LockAction::AcquireEqual;
                let side = match action {
                    LockAction::Release => &mut release,
                    LockAction::Acquire | LockAction::AcquireEqual => &mut acquire,
                };
                if side.replace((lock, amount)).is_some() {
                    return Err(op.error("a descriptor acquires one lock and releases one"));
                }
            }
            "aie.dma_bd" => {
                let (memory, of) = of(op, op.operand(0)?)?;
                let new = read(design, op, (tile, memory), &of, &constants)?;
                if found.replace(new).is_some() {
                    return Err(op.error("a second descriptor in the block"));
                }
            }
            "aie.dma_bd_packet" => {
                packet = Some((op.number("packet_type")?, op.number("packet_id")?))
            }
            "aie.next_bd" => next = op.successors.first().map(|s| s.label.clone()),
            "aie.end" | "aie.buffer" | "aie.lock" => {}
            _ => return Err(op.error("it does not stand in a block of DMA")),
        }
    }
    let at = block.ops.first().map(|op| op.at).unwrap_or_default();
    let mut descriptor =
        found.ok_or_else(|| SyntaxError::new(at, "a block of DMA without `aie.dma_bd`"))?;
    descriptor.acquire = acquire;
    descriptor.acquires_equal = is_equal;
    descriptor.release = release;
    descriptor.packet = descriptor.packet.or(packet);
    Ok((descriptor, next))
}

/// Action on a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockAction {
    /// Waits for at least that much.
    Acquire,
    /// Just that much is waited for.
    AcquireEqual,
    Release,
}

/// Lock, action, amount.
pub(crate) fn use_lock(
    design: &Design,
    op: &Op,
    constants: &Constants,
) -> Result<(usize, LockAction, u64), SyntaxError> {
    op.only(&["action", "value", "acq_en", "blocking"])?;
    let lock = design.lock(op, op.operand(0)?)?;
    let amount = match (op.get("value"), op.operands.get(1)) {
        (Some(value), _) => count(design, op, value, constants)?,
        (None, Some(value)) => count(design, op, &Attribute::Value(value.clone()), constants)?,
        (None, None) => 1,
    };
    if amount > 63 {
        return Err(op.error(format!("a lock holds at most 63, not {amount}")));
    }
    match op.text("action")? {
        "AcquireGreaterEqual" => Ok((lock, LockAction::Acquire, amount)),
        "Release" => Ok((lock, LockAction::Release, amount)),
        "Acquire" => Ok((lock, LockAction::AcquireEqual, amount)),
        other => Err(op.error(format!("`{other}` is no action of a lock"))),
    }
}

/// `size` and `stride` lists, whichever way they are written.
fn dimensions(
    design: &Design,
    op: &Op,
    constants: &Constants,
) -> Result<Vec<(u64, u64)>, SyntaxError> {
    if let (Some(Attribute::Array(sizes)), Some(Attribute::Array(strides))) =
        (op.get("sizes"), op.get("strides"))
    {
        if sizes.len() != strides.len() {
            return Err(op.error("sizes and strides differ in number"));
        }
        let pair = |(size, stride)| {
            Ok((
                count(design, op, size, constants)?,
                count(design, op, stride, constants)?,
            ))
        };
        return sizes.iter().zip(strides).map(pair).collect();
    }
    match op.get("dimensions") {
        None => Ok(Vec::new()),
        Some(value) => pairs(op, value, "size", "stride"),
    }
}

/// `[<first = 4, second = 8>, …]`.
pub(crate) fn pairs(
    op: &Op,
    value: &Attribute,
    first: &str,
    second: &str,
) -> Result<Vec<(u64, u64)>, SyntaxError> {
    let Attribute::Array(all) = value else {
        return Err(op.error(format!("expected a list of <{first}, {second}>")));
    };
    let field = |of: &Attribute, name: &str| {
        let number = of.field(name).and_then(Attribute::integer);
        number.and_then(|number| u64::try_from(number).ok())
    };
    let pair = |of| Some((field(of, first)?, field(of, second)?));
    let pairs: Option<Vec<_>> = all.iter().map(pair).collect();
    pairs.ok_or_else(|| {
        op.error(format!(
            "expected <{first} = …, {second} = …>, not negative"
        ))
    })
}

/// Type and id of an attribute `packet`.
pub(crate) fn packet_of(op: &Op) -> Result<Option<(u64, u64)>, SyntaxError> {
    op.get("packet")
        .map(|packet| packet_in(op, packet))
        .transpose()
}

/// Type and id of `<pkt_type = 0, pkt_id = 3>`; the type is 0 if it is absent.
pub(crate) fn packet_in(op: &Op, packet: &Attribute) -> Result<(u64, u64), SyntaxError> {
    let field = |name| packet.field(name).and_then(Attribute::integer);
    let kind = match packet.field("pkt_type") {
        None => Some(0),
        Some(kind) => kind.integer(),
    };
    match (kind, field("pkt_id")) {
        (Some(kind @ 0..=7), Some(id @ 0..=31)) => Ok((kind as u64, id as u64)),
        _ => Err(op.error("expected a packet of a type to 7 and an id to 31")),
    }
}

/// Elements of all dimensions, padding among them.
pub(crate) fn elements(dimensions: &[(u64, u64)], padding: &[(u64, u64)]) -> Option<u64> {
    let sizes = dimensions.iter().enumerate().map(|(i, &(size, _))| {
        let (before, after) = padding.get(i).copied().unwrap_or((0, 0));
        size.checked_add(before)?.checked_add(after)
    });
    sizes
        .into_iter()
        .try_fold(1u64, |product, size| product.checked_mul(size?))
}

/// Attributes that a descriptor's op may have.
const KNOWN: [&str; 15] = [
    "offset",
    "len",
    "dimensions",
    "pad_dimensions",
    "sizes",
    "strides",
    "bd_id",
    "next_bd_id",
    "packet",
    "burst_length",
    "iteration",
    "pad_value",
    "axcache",
    "out_of_order_id",
    "offset_state_table_idx",
];

fn read(
    design: &Design,
    op: &Op,
    (tile, memory): (Tile, TileMemory),
    of: &MemRefType,
    constants: &Constants,
) -> Result<Descriptor, SyntaxError> {
    op.only(&KNOWN)?;
    if op.integer_or("pad_value", 0)? != 0 {
        return Err(op.error("padding with other values than 0"));
    }
    if !matches!(op.integer_or("axcache", 2)?, 0 | 2) {
        return Err(op.error("what `axcache` other than 0 and 2 does is not documented"));
    }
    let dimensions = dimensions(design, op, constants)?;
    let padding = match op.get("pad_dimensions") {
        Some(value) => pairs(op, value, "const_pad_before", "const_pad_after")?,
        None => Vec::new(),
    };
    let one = |name: &str| {
        op.get(name)
            .map(|value| count(design, op, value, constants))
            .transpose()
    };
    let element_bytes = of.element_bytes();
    let whole = elements(&dimensions, &padding).filter(|_| !dimensions.is_empty());
    let (offset, length) = extent(op, (one("offset")?, one("len")?), whole, (memory, of))?;
    let bytes = |elements: u64| {
        elements
            .checked_mul(element_bytes)
            .ok_or_else(|| op.error("too many elements"))
    };
    let number = one("bd_id")?.map(|number| {
        let number = u8::try_from(number).ok();
        number.ok_or_else(|| op.error("`bd_id` is out of range"))
    });
    let number = number.transpose()?;
    Ok(Descriptor {
        tile,
        memory,
        offset_bytes: bytes(offset)?,
        length_bytes: bytes(length)?,
        element_bytes,
        dimensions,
        padding,
        iteration: iteration(op)?,
        acquire: None,
        acquires_equal: false,
        release: None,
        packet: packet_of(op)?,
        offset_entry: offset_entry(op, memory)?,
        out_of_order_id: one("out_of_order_id")?,
        by_header: false,
        burst_bytes: one("burst_length")?.unwrap_or(0),
        next: None,
        number,
        at: op.at,
    })
}

/// The word of the scratchpad that moves a descriptor's block: of memory of the host, whose address firmware can add to.
pub(crate) fn offset_entry(op: &Op, memory: TileMemory) -> Result<Option<u8>, SyntaxError> {
    match (op.get("offset_state_table_idx"), memory) {
        (None, _) => Ok(None),
        (Some(_), TileMemory::Argument(_)) => op.number("offset_state_table_idx").map(Some),
        (Some(_), TileMemory::Buffer(_)) => {
            Err(op.error("`offset_parameter` of a block that does not lie in memory of the host"))
        }
    }
}

/// Offset and length in elements. The length is the given one, else the one that the dimensions cover, else everything
/// after the offset.
fn extent(
    op: &Op,
    (offset, length): (Option<u64>, Option<u64>),
    whole: Option<u64>,
    (memory, of): (TileMemory, &MemRefType),
) -> Result<(u64, u64), SyntaxError> {
    let (offset, all) = (offset.unwrap_or(0), of.elements().unwrap_or(0));
    let length = length.or(whole);
    let length = length.unwrap_or_else(|| all.saturating_sub(offset));
    // The host's memory may be longer than an argument's type, and dimensions say which elements are read.
    let is_free = whole.is_some() || matches!(memory, TileMemory::Argument(_));
    let end = offset.checked_add(length);
    if !is_free && end.is_none_or(|end| end > all) {
        let end = offset.saturating_add(length);
        return Err(op.error(format!("elements {offset} to {end} of {all}")));
    }
    Ok((offset, length))
}

fn iteration(op: &Op) -> Result<Option<BdIteration>, SyntaxError> {
    let Some(value) = op.get("iteration") else {
        return Ok(None);
    };
    let field = |name| value.field(name).and_then(Attribute::integer);
    let current = field("current").unwrap_or(0);
    match (field("size"), field("stride")) {
        (Some(size @ 1..=64), Some(stride @ 1..)) if (0..size).contains(&current) => {
            Ok(Some(BdIteration {
                size: size as u64,
                stride: stride as u64,
                current: current as u64,
            }))
        }
        _ => Err(op.error(
            "expected an iteration of 1 to 64, a stride from 1 on, and a current one below the size",
        )),
    }
}

/// Makes descriptors that headers of packets name, and returns how many packets a task of them counts: those of
/// `rounds`, each as many as the descriptors' iterations.
pub(crate) fn by_headers<'d>(
    op: &Op,
    descriptors: impl Iterator<Item = &'d mut Descriptor>,
    rounds: u64,
) -> Result<u64, SyntaxError> {
    let mut n_packets = 0u64;
    for descriptor in descriptors {
        if descriptor.number.is_none() {
            let problem = "a descriptor that headers name needs a `bd_id`";
            return Err(SyntaxError::new(descriptor.at, problem).in_op("aie.dma_bd"));
        }
        descriptor.by_header = true;
        n_packets = n_packets.saturating_add(descriptor.iteration.map_or(1, |of| of.size));
    }
    let all = n_packets.saturating_mul(rounds);
    match all {
        1..=256 => Ok(all),
        _ => Err(op.error(format!("{all} packets; a task counts 1 to 256"))),
    }
}

impl Descriptor {
    /// The byte after the last that it moves, over all its executions.
    pub(crate) fn end_bytes(&self) -> u64 {
        let iteration = self.iteration.map(|of| (of.size, of.stride));
        let last = (self.dimensions.iter().copied().chain(iteration))
            .map(|(size, stride)| size.saturating_sub(1).saturating_mul(stride))
            .fold(0, u64::saturating_add);
        let moved = match self.dimensions.is_empty() {
            true => last
                .saturating_mul(self.element_bytes)
                .saturating_add(self.length_bytes),
            false => last.saturating_add(1).saturating_mul(self.element_bytes),
        };
        self.offset_bytes.saturating_add(moved)
    }
}
