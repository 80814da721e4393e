//! A program while it is written.

use super::{ProbeDesign, tile};
use crate::field::WordField as F;
use crate::port::{Bundle, SwitchPort, port};
use crate::writer::{ChannelAt, StreamWriter, TaskPush, WriterError};

/// DescriptorFields of a descriptor.
pub(super) type DescriptorFields = Vec<(F, u64)>;

pub(super) fn south(index: u8) -> SwitchPort {
    port(Bundle::South, index)
}

pub(super) fn north(index: u8) -> SwitchPort {
    port(Bundle::North, index)
}

/// A design while it is written.
pub(super) struct ProbeDraft {
    pub(super) writer: StreamWriter,
    pub(super) awaited: Vec<ChannelAt>,
}

impl ProbeDraft {
    pub(super) fn new(columns: u8) -> ProbeDraft {
        ProbeDraft {
            writer: StreamWriter::new(columns),
            awaited: Vec::new(),
        }
    }

    /// A shim's channel to a memory tile's.
    pub(super) fn down(&mut self, col: u8, from: u8, to: u8) -> Result<(), WriterError> {
        self.writer.circuit(
            tile(col, 0),
            south([3, 7][usize::from(from & 1)]),
            north(from),
        )?;
        self.writer
            .circuit(tile(col, 1), south(from), port(Bundle::Dma, to))
    }

    /// A memory tile's channel to a shim's.
    pub(super) fn up(&mut self, col: u8, from: u8, to: u8) -> Result<(), WriterError> {
        self.writer
            .circuit(tile(col, 1), port(Bundle::Dma, from), south(to))?;
        self.writer.circuit(tile(col, 0), north(to), south(2 + to))
    }

    /// Switches and tokens of a column are complete.
    pub(super) fn configure(
        &mut self,
        columns: u8,
        channels: &[ChannelAt],
    ) -> Result<(), WriterError> {
        for col in 0..columns {
            self.writer.token_route(col)?;
        }
        self.writer.switches()?;
        channels
            .iter()
            .try_for_each(|&channel| self.writer.open(channel))
    }

    /// Descriptors that a channel executes for ever.
    pub(super) fn ring(
        &mut self,
        channel: ChannelAt,
        first: u8,
        all: Vec<DescriptorFields>,
    ) -> Result<(), WriterError> {
        let n = all.len() as u8;
        for (i, mut fields) in (0..n).zip(all) {
            fields.extend([(F::UseNext, 1), (F::Next, u64::from(first + (i + 1) % n))]);
            self.writer.descriptor(channel.tile, first + i, &fields)?;
        }
        let task = TaskPush {
            descriptor: first,
            executions: 1,
            token: false,
        };
        self.writer.push(channel, task)
    }

    /// A task of a shim over so many words of an argument.
    pub(super) fn task(
        &mut self,
        channel: ChannelAt,
        number: u8,
        (argument, at_byte): (u32, u64),
        words: u64,
    ) -> Result<(), WriterError> {
        let fields = [
            (F::Length, words),
            (F::Valid, 1),
            (F::Burst, 3),
            (F::AxCache, 2),
        ];
        self.writer.descriptor(channel.tile, number, &fields)?;
        self.writer.patch(channel.tile, number, argument, at_byte)?;
        self.awaited.push(channel);
        let task = TaskPush {
            descriptor: number,
            executions: 1,
            token: true,
        };
        self.writer.push(channel, task)
    }

    pub(super) fn finish(
        mut self,
        name: &'static str,
        summary: &'static str,
        input: Vec<u8>,
        expected: Vec<u8>,
    ) -> Result<ProbeDesign, WriterError> {
        for channel in std::mem::take(&mut self.awaited) {
            self.writer.await_token(channel);
        }
        self.writer.quieten()?;
        Ok(ProbeDesign {
            name,
            summary,
            stream: self.writer.finish(),
            input,
            expected,
        })
    }
}
