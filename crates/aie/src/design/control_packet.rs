//! Control packets that a sequence gives as ops: `aiex.control_packet`.
//!
//! mlir-aie's `aie-ctrl-packet-to-dma` puts them into a buffer of the host after the sequence's arguments. It sends
//! each run of them to one tile by a transfer that is awaited. Here every packet has a separate transfer. The shim
//! writes its header, with the tile's id and on the channel of its row, as in the control overlay.

use super::overlay::{IDS, channel_of};
use super::{Argument, Design, ShimAllocation};
use crate::syntax::{Attribute, MemRefType, Op, SyntaxError};
use millrace_xdna2_words::Tile;
use millrace_xdna2_words::tile::Direction;
use millrace_xdna2_words::writer::ChannelAt;
use std::collections::BTreeMap;

/// Words that a packet writes or reads, at most: longer ones become several.
const MOST_WORDS: usize = 4;
/// The shim's descriptor that sends them: the last, which tasks take last.
const DESCRIPTOR: i64 = 15;
/// The name of the host's buffer that holds the packets.
const BUFFER: &str = "control packets";

/// Puts transfers in the place of control packets of the sequence.
pub(super) fn lower(design: &mut Design) -> Result<(), SyntaxError> {
    if !design.sequence.iter().any(has_packets) {
        return Ok(());
    }
    let mut packets = ControlPackets {
        controllers: &design.controllers,
        allocations: &mut design.allocations,
        words: Vec::new(),
        n: 0,
    };
    let sequence = packets.ops(&design.sequence)?;
    let (words, n) = (packets.words, packets.n);
    design.sequence = sequence;
    let note = format!(
        "{n} control packets of the sequence are sent one by one from a buffer of the host, and each is awaited"
    );
    design.notes.push(note);
    design.arguments.push(Argument {
        name: BUFFER.to_owned(),
        of: MemRefType::words(words.len() as u64),
        bytes: words.len() as u64 * 4,
        given: Some(words.iter().flat_map(|word| word.to_le_bytes()).collect()),
    });
    Ok(())
}

fn has_packets(op: &Op) -> bool {
    let mut inner = op.regions.iter().flat_map(|region| region.ops());
    op.name == "aiex.control_packet" || inner.any(has_packets)
}

/// Packets while they are read.
struct ControlPackets<'d> {
    controllers: &'d BTreeMap<Tile, u8>,
    allocations: &'d mut BTreeMap<String, ShimAllocation>,
    words: Vec<u32>,
    n: usize,
}

/// Request of an op.
struct ControlPacket {
    tile: Tile,
    /// The first register's address in the tile.
    address: u32,
    operation: u32,
    /// The id of the packet that answers.
    answer: u32,
    /// Words to write, or as many as are read.
    data: Vec<u32>,
}

impl ControlPackets<'_> {
    fn ops(&mut self, ops: &[Op]) -> Result<Vec<Op>, SyntaxError> {
        let mut all = Vec::new();
        for op in ops {
            if op.name == "aiex.control_packet" {
                self.send(op, &mut all)?;
                continue;
            }
            let mut op = op.clone();
            for block in op.regions.iter_mut().flat_map(|region| &mut region.blocks) {
                block.ops = self.ops(&block.ops)?;
            }
            all.push(op);
        }
        Ok(all)
    }

    /// A packet's transfers.
    fn send(&mut self, op: &Op, to: &mut Vec<Op>) -> Result<(), SyntaxError> {
        let packet = read(op)?;
        let (name, id) = self.way(packet.tile);
        for (i, data) in packet.data.chunks(MOST_WORDS).enumerate() {
            let first = self.words.len() as i64;
            let address = packet.address + 4 * (i * MOST_WORDS) as u32;
            let header = address
                | (data.len() as u32 - 1) << 20
                | packet.operation << 22
                | packet.answer << 24;
            let parity = u32::from(header.count_ones().is_multiple_of(2));
            self.words.push(header | parity << 31);
            if packet.operation == 0 {
                self.words.extend(data);
            }
            self.n += 1;
            let length = self.words.len() as i64 - first;
            to.push(transfer(op, (&name, id), first, length));
            let mut wait = Op::new("aiex.npu.dma_wait", op.at);
            wait.set("symbol", Attribute::Symbol(name.clone()));
            to.push(wait);
        }
        Ok(())
    }

    /// The channel that brings packets to a tile, by its name, and the tile's id.
    fn way(&mut self, tile: Tile) -> (String, u8) {
        let own = IDS[usize::from(tile.row)];
        let id = self.controllers.get(&tile).copied().unwrap_or(own);
        let number = channel_of(tile);
        let name = format!("ctrlpkt_col{}_mm2s_chan{number}", tile.col);
        let channel = ChannelAt {
            tile: Tile { row: 0, ..tile },
            direction: Direction::Mm2s,
            number,
        };
        let new = ShimAllocation {
            channel,
            packet: None,
        };
        self.allocations.entry(name.clone()).or_insert(new);
        (name, id)
    }
}

fn read(op: &Op) -> Result<ControlPacket, SyntaxError> {
    op.only(&["address", "data", "length", "opcode", "stream_id"])?;
    let address: u32 = op.number("address")?;
    let found = Tile::of_address(address);
    let (tile, offset) = found.ok_or_else(|| op.error("an NPU2 has no such address"))?;
    if !offset.is_multiple_of(4) {
        return Err(op.error(format!("address {offset:#x} of {tile} begins no word")));
    }
    let operation: u32 = op.number("opcode")?;
    let data = match (operation, op.get("data")) {
        (0, Some(data)) => {
            let words = data.integers().filter(|words| !words.is_empty());
            let words = words.ok_or_else(|| op.error("`data` is no list of words"))?;
            words.into_iter().map(|word| word as u32).collect()
        }
        (0, None) => return Err(op.error("it writes, and has no `data`")),
        (1, _) => {
            let n: usize = op.number("length")?;
            if !(1..=MOST_WORDS).contains(&n) {
                let problem = format!("a packet reads 1 to {MOST_WORDS} words, not {n}");
                return Err(op.error(problem));
            }
            vec![0; n]
        }
        (other, _) => {
            let problem = format!(
                "opcode {other}: 0, which writes, and 1, which reads, are known; no source says what the others do"
            );
            return Err(op.error(problem));
        }
    };
    let end = offset.saturating_add(4 * data.len() as u32);
    if end > 1 << 20 {
        return Err(op.error(format!("{} words reach beyond {tile}", data.len())));
    }
    let answer: u32 = op.number_or("stream_id", 0)?;
    if answer > 31 {
        return Err(op.error("ids of packets are 0 to 31"));
    }
    Ok(ControlPacket {
        tile,
        address: offset,
        operation,
        answer,
        data,
    })
}

/// The transfer of words of the buffer as a packet of an id.
fn transfer(of: &Op, (name, id): (&str, u8), first: i64, length: i64) -> Op {
    let four = |last: i64, others: i64| {
        let all = [others, others, others, last];
        Attribute::Array(all.into_iter().map(Attribute::Integer).collect())
    };
    let packet = [("pkt_type", 0), ("pkt_id", id.into())];
    let packet = packet.map(|(name, value)| (name.to_owned(), Attribute::Integer(value)));
    let mut op = Op::new("aiex.npu.dma_memcpy_nd", of.at);
    op.operands.push(BUFFER.to_owned());
    op.set("offsets", four(first, 0));
    op.set("sizes", four(length, 1));
    op.set("strides", four(1, 0));
    op.set("id", Attribute::Integer(DESCRIPTOR));
    op.set("metadata", Attribute::Symbol(name.to_owned()));
    op.set("issue_token", Attribute::Bool(true));
    op.set("packet", Attribute::Fields(packet.into_iter().collect()));
    op
}
