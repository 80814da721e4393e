//! A descriptor's fields.

use super::Places;
use crate::design::{BdIteration, Descriptor, Design, TileMemory};
use crate::syntax::SyntaxError;
use millrace_xdna2_words::descriptor::stored_step;
use millrace_xdna2_words::field::WordField as F;
use millrace_xdna2_words::tile::{Direction, Tile, TileKind};
use millrace_xdna2_words::writer::ChannelAt;

/// A dimension in words: size, step, padding before and after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Dimension {
    size: u64,
    step: u64,
    before: u64,
    after: u64,
}

/// The fields of a descriptor that a channel executes; `next` is the number of the next one.
pub(super) fn fields(
    design: &Design,
    places: &Places,
    of: &Descriptor,
    (channel, next): (ChannelAt, Option<u8>),
) -> Result<Vec<(F, u64)>, SyntaxError> {
    let fail = |problem: String| SyntaxError::new(of.at, problem).in_op("aie.dma_bd");
    let kind = channel.tile.kind();
    let n_bytes = of.length_bytes;
    if n_bytes == 0 || !n_bytes.is_multiple_of(4) {
        return Err(fail(format!("{n_bytes} bytes are no whole words")));
    }
    let mut fields = vec![(F::Valid, 1), (F::Length, n_bytes / 4)];
    match of.memory {
        TileMemory::Buffer(buffer) => {
            let buffer_of = &design.buffers[buffer];
            let address = u64::from(places.addresses[buffer]);
            let byte = address.saturating_add(of.offset_bytes);
            if !byte.is_multiple_of(4) {
                return Err(fail(format!("byte {byte:#x} begins no word")));
            }
            let window = u64::from(side(channel.tile, buffer_of.tile).map_err(&fail)?);
            let base = match kind {
                TileKind::Memory => window * 0x80000,
                _ => 0,
            };
            fields.push((F::Base, base.saturating_add(byte) / 4));
        }
        // A patch brings the address.
        TileMemory::Argument(_) if of.offset_bytes.is_multiple_of(4) => {}
        TileMemory::Argument(_) => {
            return Err(fail(format!("byte {} begins no word", of.offset_bytes)));
        }
    }
    let (dimensions, iteration) = dimensions(of, kind).map_err(fail)?;
    write_dimensions(&dimensions, kind, &mut fields).map_err(fail)?;
    if let Some(of) = iteration {
        fields.extend([
            (F::IterationWrap, of.size - 1),
            (F::IterationStep, stored_step(of.stride)),
            (F::IterationCurrent, of.current),
        ]);
    }
    locks(design, places, of, channel.tile, &mut fields).map_err(fail)?;
    packet(of, channel.direction, &mut fields).map_err(fail)?;
    if let Some(next) = next.filter(|_| !of.by_header) {
        fields.extend([(F::UseNext, 1), (F::Next, next.into())]);
    }
    if kind == TileKind::Shim {
        let burst = burst(of.burst_bytes).map_err(fail)?;
        fields.extend([(F::Burst, burst), (F::AxCache, 2)]);
    }
    Ok(fields)
}

/// Sets the fields by which a descriptor sends packets, or takes those whose headers name it.
fn packet(of: &Descriptor, direction: Direction, fields: &mut Vec<(F, u64)>) -> Result<(), String> {
    let packet = of
        .packet
        .filter(|_| direction == Direction::Mm2s || of.by_header);
    if packet.is_some() || of.by_header {
        let (packet_type, id) = packet.unwrap_or_default();
        fields.extend([
            (F::PacketEnable, 1),
            (F::PacketType, packet_type),
            (F::PacketId, id),
        ]);
    }
    match (of.out_of_order_id, direction, packet) {
        (None, ..) => {}
        (Some(id), Direction::Mm2s, Some(_)) => fields.push((F::OutOfOrderId, id)),
        _ => return Err("`out_of_order_id` is for what sends packets".to_owned()),
    }
    Ok(())
}

/// The code of a burst's bytes; the default is the largest.
pub(super) fn burst(bytes: u64) -> Result<u64, String> {
    match bytes {
        0 | 512 => Ok(3),
        64 => Ok(0),
        128 => Ok(1),
        256 => Ok(2),
        other => Err(format!(
            "bursts of {other} bytes; 64, 128, 256 and 512 are known"
        )),
    }
}

fn locks(
    design: &Design,
    places: &Places,
    of: &Descriptor,
    tile: Tile,
    fields: &mut Vec<(F, u64)>,
) -> Result<(), String> {
    if let Some((lock, amount)) = of.acquire.filter(|row| row.1 > 0 || of.acquires_equal) {
        let id = lock_id(design, places, tile, lock)?;
        // A negative value asks for at least that much.
        let value = match of.acquires_equal {
            true => amount,
            false => (128 - amount) & 127,
        };
        fields.extend([
            (F::AcquireEnable, 1),
            (F::AcquireId, id),
            (F::AcquireValue, value),
        ]);
    }
    if let Some((lock, amount)) = of.release.filter(|row| row.1 > 0) {
        let id = lock_id(design, places, tile, lock)?;
        fields.extend([(F::ReleaseId, id), (F::ReleaseValue, amount)]);
    }
    Ok(())
}

/// 0 west, 1 own, 2 east: whose memory a DMA reaches.
fn side(own: Tile, of: Tile) -> Result<u8, String> {
    let is_memory = own.kind() == TileKind::Memory && of.kind() == TileKind::Memory;
    match i32::from(of.col) - i32::from(own.col) {
        0 if own == of => Ok(1),
        -1 if is_memory => Ok(0),
        1 if is_memory => Ok(2),
        _ => Err(format!("the DMA of {own} does not reach {of}")),
    }
}

fn lock_id(design: &Design, places: &Places, own: Tile, lock: usize) -> Result<u64, String> {
    let side = side(own, design.locks[lock].tile)?;
    let number = u64::from(places.locks[lock]);
    match own.kind() {
        TileKind::Memory => Ok(u64::from(side) * 64 + number),
        _ => Ok(number),
    }
}

type Iteration = Option<BdIteration>;

/// So many elements in words.
fn in_words(of: &Descriptor, elements: u64, what: &str) -> Result<u64, String> {
    let bytes = elements.saturating_mul(of.element_bytes);
    match bytes % 4 {
        0 => Ok(bytes / 4),
        _ => Err(format!("{what} of {bytes} bytes is no whole words")),
    }
}

/// Dimensions in words, the innermost first, and the iteration in words.
fn dimensions(of: &Descriptor, kind: TileKind) -> Result<(Vec<Dimension>, Iteration), String> {
    let mut given = of.dimensions.as_slice();
    let mut iteration = of.iteration;
    // A shim's fourth dimension is an iteration: its length is that of the three inner ones.
    if let (TileKind::Shim, [outer, inner @ ..]) = (kind, given)
        && inner.len() == 3
    {
        let mut sizes = inner.iter();
        let product = sizes.try_fold(of.element_bytes, |n, row| n.checked_mul(row.0));
        if product == Some(of.length_bytes) {
            if outer.0 > 1 && outer.1 > 0 {
                iteration = Some(BdIteration {
                    size: outer.0,
                    stride: outer.1,
                    current: 0,
                });
            }
            given = inner;
        }
    }
    let iteration = match iteration {
        Some(row) if row.size <= 1 => None,
        Some(row) if row.size <= 64 => Some(BdIteration {
            stride: in_words(of, row.stride, "an iteration's step")?,
            ..row
        }),
        Some(row) => return Err(format!("{} iterations; at most 64 are there", row.size)),
        None => None,
    };
    let padding = of.padding.iter().copied().chain(std::iter::repeat((0, 0)));
    let mut rows: Vec<Dimension> = given
        .iter()
        .zip(padding)
        .map(|(&(size, step), (before, after))| Dimension {
            size,
            step,
            before,
            after,
        })
        .collect();
    rows.retain(|row| row.size != 1 || row.before.saturating_add(row.after) > 0);
    let mut all = Vec::new();
    for (i, row) in rows.into_iter().rev().enumerate() {
        dimension(of, row, i == 0, &mut all)?;
    }
    Ok((all, iteration))
}

/// A dimension in words of one in elements.
fn dimension(
    of: &Descriptor,
    row: Dimension,
    is_innermost: bool,
    to: &mut Vec<Dimension>,
) -> Result<(), String> {
    if row.size == 0 {
        return Err("a dimension of size 0".to_owned());
    }
    if row.step == 0 && row.size > 1 {
        return Err("a step of 0 has no words: a step is stored minus one".to_owned());
    }
    if !is_innermost {
        let step = in_words(of, row.step, "a step")?.max(1);
        to.push(Dimension { step, ..row });
        return Ok(());
    }
    let before = in_words(of, row.before, "padding")?;
    let after = in_words(of, row.after, "padding")?;
    let padded = Dimension {
        before,
        after,
        ..row
    };
    if row.step == 1 || row.size == 1 {
        let size = in_words(of, row.size, "a row")?;
        to.push(Dimension {
            size,
            step: 1,
            ..padded
        });
    } else if of.element_bytes == 8 {
        to.push(Dimension {
            size: 2,
            step: 1,
            before: 0,
            after: 0,
        });
        let step = row.step.saturating_mul(2);
        to.push(Dimension { step, ..padded });
    } else {
        let step = in_words(of, row.step, "a step")?;
        to.push(Dimension { step, ..padded });
    }
    Ok(())
}

fn write_dimensions(
    dimensions: &[Dimension],
    kind: TileKind,
    fields: &mut Vec<(F, u64)>,
) -> Result<(), String> {
    let is_padded = dimensions
        .iter()
        .any(|d| d.before.saturating_add(d.after) > 0);
    let mut run = 1;
    let is_linear = !is_padded
        && dimensions.iter().all(|d| {
            let follows = d.step == run;
            run = run.saturating_mul(d.size);
            follows
        });
    if is_linear {
        return Ok(());
    }
    let most = if kind == TileKind::Memory { 4 } else { 3 };
    if dimensions.len() > most {
        return Err(format!(
            "{} dimensions; a descriptor of this tile has {most}",
            dimensions.len()
        ));
    }
    if is_padded && kind != TileKind::Memory {
        return Err("only memory tiles pad".to_owned());
    }
    const STEPS: [F; 4] = [F::D0Step, F::D1Step, F::D2Step, F::D3Step];
    const WRAPS: [F; 3] = [F::D0Wrap, F::D1Wrap, F::D2Wrap];
    const PADS: [[F; 2]; 3] = [
        [F::D0PadBefore, F::D0PadAfter],
        [F::D1PadBefore, F::D1PadAfter],
        [F::D2PadBefore, F::D2PadAfter],
    ];
    for (i, d) in dimensions.iter().enumerate() {
        fields.push((STEPS[i], stored_step(d.step)));
        // The last dimension needs no wrap: the length ends it.
        let is_last = i + 1 == dimensions.len();
        if i + 1 < most && (!is_last || is_padded) {
            fields.push((WRAPS[i], d.size));
        }
        if d.before.saturating_add(d.after) > 0 {
            let [before, after] = *PADS.get(i).ok_or("padding of a fourth dimension")?;
            fields.extend([(before, d.before), (after, d.after)]);
        }
    }
    Ok(())
}
