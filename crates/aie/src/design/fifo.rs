//! Object FIFOs, replaced by buffers, locks, descriptors and flows.
//!
//! Depths, lock pairs and places of buffers are those of mlir-aie's `aie-objectFifo-stateful-transform`. Two
//! neighbouring cores share one pool. Otherwise each side has its own, and DMA moves objects between them. A core's own
//! pool holds one object more than it acquires at once.

mod op;

pub(super) use op::FifoOp;

use super::ShimAllocation;
use super::descriptor::elements;
use super::fifo_link::{self, Links};
use super::flow::end;
use super::{BdChain, Buffer, Descriptor, Design, Entity, FifoEnd, Flow, Lock, TileMemory};
use crate::syntax::{Location, Op, SyntaxError};
use millrace_xdna2_words::Tile;
use millrace_xdna2_words::router::TilePort;
use millrace_xdna2_words::tile::{Direction, TileKind};
use millrace_xdna2_words::writer::ChannelAt;
use std::collections::BTreeSet;

/// Buffers with a pair of locks for each part.
#[derive(Clone, Debug)]
pub(super) struct FifoPool {
    pub(super) tile: Tile,
    pub(super) buffers: Vec<usize>,
    pub(super) parts: Vec<PoolPart>,
    /// Units of its locks for one object, which is sent as often.
    pub(super) repeat: u64,
}

/// A stretch of each of a pool's buffers.
#[derive(Clone, Copy, Debug)]
pub(super) struct PoolPart {
    pub(super) offset_bytes: u64,
    pub(super) length_bytes: u64,
    /// Counts empty ones.
    pub(super) empty: usize,
    /// Counts full ones.
    pub(super) full: usize,
}

/// Lowers all object FIFOs of a device.
pub(super) fn lower(design: &mut Design, body: &[&Op]) -> Result<(), SyntaxError> {
    let named = |name: &'static str| body.iter().copied().filter(move |op| op.name == name);
    let mut fifos = Vec::new();
    for op in named("aie.objectfifo") {
        fifos.push(op::read(design, op)?);
    }
    for op in named("aie.objectfifo.allocate") {
        let (name, tile) = (op.text("objFifo_name")?, design.tile(op, op.operand(0)?)?);
        let fifo = fifos
            .iter_mut()
            .find(|fifo: &&mut FifoOp<'_>| fifo.name == name);
        let fifo = fifo.ok_or_else(|| op.error(format!("there is no object FIFO @{name}")))?;
        fifo.delegate = Some(tile);
        if fifo.shared() != Some(tile) {
            let problem = format!("the cores of @{name} do not share the memory of {tile}");
            return Err(op.error(problem));
        }
    }
    let mut lowering = FifoLowering {
        design,
        used: BTreeSet::new(),
    };
    lowering.note_used();
    let links = fifo_link::pools(&mut lowering, &fifos, named("aie.objectfifo.link"))?;
    for fifo in &fifos {
        lowering.fifo(fifo, &links)?;
    }
    Ok(())
}

/// A device while its object FIFOs are lowered.
pub(super) struct FifoLowering<'d> {
    pub(super) design: &'d mut Design,
    used: BTreeSet<ChannelAt>,
}

impl FifoLowering<'_> {
    /// Channels that the design itself uses.
    fn note_used(&mut self) {
        let chains = self.design.chains.iter().map(|chain| chain.channel);
        let named = self.design.allocations.values().map(|of| of.channel);
        self.used = chains.chain(named).collect();
        let channels = Tile::all().flat_map(|tile| {
            let directions = [Direction::S2mm, Direction::Mm2s];
            directions.into_iter().flat_map(move |direction| {
                (0..tile.kind().channels()).map(move |number| ChannelAt {
                    tile,
                    direction,
                    number,
                })
            })
        });
        for channel in channels {
            let port = millrace_xdna2_words::port::of_dma(
                channel.tile.kind(),
                channel.direction,
                channel.number,
            );
            let is_end = |of: &TilePort| of.tile == channel.tile && Some(of.port) == port;
            let by_flow = self
                .design
                .flows
                .iter()
                .any(|flow| match channel.direction {
                    Direction::Mm2s => is_end(&flow.from),
                    Direction::S2mm => flow.to.iter().any(is_end),
                });
            if by_flow {
                self.used.insert(channel);
            }
        }
    }

    fn channel(
        &mut self,
        op: &Op,
        tile: Tile,
        direction: Direction,
    ) -> Result<ChannelAt, SyntaxError> {
        let all = (0..tile.kind().channels()).map(|number| ChannelAt {
            tile,
            direction,
            number,
        });
        let free = all.into_iter().find(|channel| !self.used.contains(channel));
        let free = free.ok_or_else(|| {
            op.error(format!(
                "all {} channels of {tile} are taken",
                direction.name()
            ))
        })?;
        self.used.insert(free);
        Ok(free)
    }

    fn lock(&mut self, name: String, tile: Tile, initial: u64, at: Location) -> usize {
        let number = self.design.locks.len();
        self.design.locks.push(Lock {
            name,
            tile,
            number: None,
            initial: initial as u8,
            at,
        });
        number
    }

    /// Tile and depth of a side: 0 is the producer's.
    pub(super) fn side(&self, fifo: &FifoOp<'_>, side: usize) -> (Tile, u64) {
        let tile = if side == 0 {
            fifo.producer
        } else {
            fifo.consumers[side - 1]
        };
        (tile, fifo.depth(self.design, side))
    }

    fn buffers(
        &mut self,
        fifo: &FifoOp<'_>,
        prefix: &str,
        (tile, depth): (Tile, u64),
        initial: &[Vec<u8>],
    ) -> Vec<usize> {
        let mut buffers = Vec::new();
        for i in 0..depth as usize {
            let (name, number) = (format!("{prefix}_buff_{i}"), self.design.buffers.len());
            self.design
                .symbols
                .insert(name.clone(), Entity::Buffer(number));
            self.design.buffers.push(Buffer {
                name,
                tile,
                of: fifo.of.clone(),
                bytes: fifo.bytes() as u32,
                address: None,
                initial: initial.get(i).cloned(),
                at: fifo.op.at,
            });
            buffers.push(number);
        }
        buffers
    }

    /// Buffers and locks of one side. `parts` are (offset, length) in bytes.
    pub(super) fn pool(
        &mut self,
        fifo: &FifoOp<'_>,
        side: usize,
        (tile, depth): (Tile, u64),
        (parts, repeat): (&[(u64, u64)], u64),
    ) -> Result<FifoPool, SyntaxError> {
        const MOST_COUNTED: u64 = 63;
        if depth.saturating_mul(repeat) > MOST_COUNTED {
            let problem = format!(
                "{depth} objects, each sent {repeat} times: a lock counts to {MOST_COUNTED}"
            );
            return Err(fifo.op.error(problem));
        }
        let middle = match side {
            0 => String::new(),
            1 if fifo.consumers.len() == 1 => "_cons".to_owned(),
            side => format!("_{}_cons", side - 1),
        };
        let prefix = format!("{}{middle}", fifo.name);
        // First values belong to the producer.
        let initial: &[Vec<u8>] = if side == 0 { &fifo.initial } else { &[] };
        let n_full = initial.len() as u64;
        if n_full > depth {
            return Err(fifo
                .op
                .error(format!("{n_full} first values for {depth} objects")));
        }
        let buffers = self.buffers(fifo, &prefix, (tile, depth), initial);
        let mut all = Vec::new();
        for (i, &(offset_bytes, length_bytes)) in parts.iter().enumerate() {
            let of_part = match parts.len() {
                1 => String::new(),
                _ => format!("_{i}"),
            };
            let at = fifo.op.at;
            all.push(PoolPart {
                offset_bytes,
                length_bytes,
                empty: self.lock(
                    format!("{prefix}_prod_lock{of_part}"),
                    tile,
                    (depth - n_full) * repeat,
                    at,
                ),
                full: self.lock(
                    format!("{prefix}_cons_lock{of_part}"),
                    tile,
                    n_full * repeat,
                    at,
                ),
            });
        }
        Ok(FifoPool {
            tile,
            buffers,
            parts: all,
            repeat,
        })
    }

    /// A ring of descriptors over a pool's buffers, and for each over some of its parts.
    fn ring(
        &mut self,
        fifo: &FifoOp<'_>,
        channel: ChannelAt,
        pool: &FifoPool,
        parts: &[usize],
        dimensions: &[(u64, u64)],
    ) -> Result<(), SyntaxError> {
        let first = self.design.descriptors.len();
        let sends = channel.direction == Direction::Mm2s;
        let padding: &[(u64, u64)] = if sends { &fifo.padding } else { &[] };
        let element_bytes = fifo.of.element_bytes();
        // An object is received once, and counts as many times as it is sent.
        let (times, amount) = if sends {
            (pool.repeat, 1)
        } else {
            (1, pool.repeat)
        };
        for &buffer in &pool.buffers {
            let each = parts.iter().map(|&part| pool.parts[part]);
            for part in each.flat_map(|part| (0..times).map(move |_| part)) {
                let padded = match dimensions.is_empty() {
                    true => Some(part.length_bytes),
                    false => {
                        elements(dimensions, padding).and_then(|n| n.checked_mul(element_bytes))
                    }
                };
                let length_bytes = padded.ok_or_else(|| fifo.op.error("too many elements"))?;
                let (acquire, release) = if sends {
                    (part.full, part.empty)
                } else {
                    (part.empty, part.full)
                };
                self.design.descriptors.push(Descriptor {
                    tile: channel.tile,
                    memory: TileMemory::Buffer(buffer),
                    offset_bytes: part.offset_bytes,
                    length_bytes,
                    element_bytes,
                    dimensions: dimensions.to_vec(),
                    padding: padding.to_vec(),
                    iteration: None,
                    acquire: Some((acquire, amount)),
                    acquires_equal: false,
                    release: Some((release, amount)),
                    packet: None,
                    offset_entry: None,
                    out_of_order_id: None,
                    by_header: false,
                    burst_bytes: 0,
                    next: Some(self.design.descriptors.len() + 1),
                    number: None,
                    at: fifo.op.at,
                });
            }
        }
        let is_memory = channel.tile.kind() == TileKind::Memory;
        let iterations = fifo.iterations.filter(|_| is_memory);
        if let Some(last) = self.design.descriptors.last_mut() {
            last.next = iterations.is_none().then_some(first);
        }
        self.design.chains.push(BdChain {
            channel,
            first,
            executions: iterations.unwrap_or(1),
            pad_value: fifo.pad_value.filter(|_| sends && is_memory),
            at: fifo.op.at,
        });
        Ok(())
    }

    fn end(&mut self, fifo: &FifoOp<'_>, tile: Tile, is_producer: bool, pool: &FifoPool) {
        let part = pool.parts[0];
        let (acquire, release) = if is_producer {
            (part.empty, part.full)
        } else {
            (part.full, part.empty)
        };
        let buffers = pool.buffers.clone();
        let end = FifoEnd {
            tile,
            is_producer,
            buffers,
            acquire,
            release,
            amount: if fifo.is_synchronized { pool.repeat } else { 0 },
        };
        self.design
            .fifos
            .entry(fifo.name.to_owned())
            .or_default()
            .ends
            .push(end);
    }

    /// Records a shim's channel by the FIFO's name for the sequence.
    fn name(&mut self, fifo: &FifoOp<'_>, channel: ChannelAt) {
        let new = ShimAllocation {
            channel,
            packet: None,
        };
        self.design.allocations.insert(fifo.name.to_owned(), new);
    }

    fn fifo(&mut self, fifo: &FifoOp<'_>, links: &Links) -> Result<(), SyntaxError> {
        let whole = [(0, fifo.bytes())];
        if let Some(tile) = fifo.shared().filter(|_| !links.touches(fifo.name)) {
            // Nothing is fetched ahead, so the depth is the text's.
            let own = self.pool(fifo, 0, (tile, fifo.depths[0]), (&whole, 1))?;
            self.end(fifo, fifo.producer, true, &own);
            self.end(fifo, fifo.consumers[0], false, &own);
            return Ok(());
        }
        if !fifo.is_synchronized {
            let problem = "`disable_synchronization` is known between cores that share a memory";
            return Err(fifo.op.error(problem));
        }
        let source = self.channel(fifo.op, fifo.producer, Direction::Mm2s)?;
        if fifo.producer.kind() == TileKind::Shim {
            self.name(fifo, source);
        } else {
            let (pool, parts) = match links.output(fifo.name) {
                Some((pool, parts)) => (pool.clone(), parts.to_vec()),
                None => {
                    let size = (&whole[..], fifo.repeat);
                    (self.pool(fifo, 0, self.side(fifo, 0), size)?, vec![0])
                }
            };
            if !links.touches_output(fifo.name) {
                self.end(fifo, fifo.producer, true, &pool);
            }
            self.ring(fifo, source, &pool, &parts, &fifo.to_stream)?;
        }
        let mut sinks = Vec::new();
        for (i, &consumer) in fifo.consumers.iter().enumerate() {
            let sink = self.channel(fifo.op, consumer, Direction::S2mm)?;
            sinks.push(sink);
            if consumer.kind() == TileKind::Shim {
                self.name(fifo, sink);
                continue;
            }
            match links.input(fifo.name, consumer) {
                Some((pool, parts)) => self.ring(fifo, sink, pool, parts, &fifo.from_stream[i])?,
                None => {
                    let size = (&whole[..], 1);
                    let pool = self.pool(fifo, i + 1, self.side(fifo, i + 1), size)?;
                    self.end(fifo, consumer, false, &pool);
                    self.ring(fifo, sink, &pool, &[0], &fifo.from_stream[i])?;
                }
            }
        }
        self.stream(fifo, source, &sinks)
    }

    fn stream(
        &mut self,
        fifo: &FifoOp<'_>,
        source: ChannelAt,
        sinks: &[ChannelAt],
    ) -> Result<(), SyntaxError> {
        let port = |channel: &ChannelAt| {
            end(
                fifo.op,
                channel.tile,
                ("DMA", channel.number.into()),
                channel.direction,
            )
        };
        let to = sinks.iter().map(port).collect::<Result<Vec<_>, _>>()?;
        self.design.flows.push(Flow {
            name: format!("@{}", fifo.name),
            from: port(&source)?,
            to,
            packet: None,
            keeps_header: false,
            at: fifo.op.at,
        });
        Ok(())
    }
}
