//! A kernel in software: the driver's refusals, over the board.

use super::packet::{self, CommandState};
use super::{AmdxdnaNode, BoKind, DeviceBo, Errno, FirmwareVersion, SyncTo};
use crate::amdxdna::driver::DDR_APERTURE;
use millrace_xdna2_words::board::{Board, BoardError, BoardOptions};
use millrace_xdna2_words::txn::decode;
use std::collections::{BTreeMap, BTreeSet};

/// What goes wrong on request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FakeFaults {
    /// The firmware's version.
    pub firmware: FirmwareVersion,
    /// The call of this number, from 0, fails with that.
    pub at_call: Option<(u64, Errno)>,
}

impl Default for FakeFaults {
    fn default() -> FakeFaults {
        FakeFaults {
            firmware: FirmwareVersion {
                major: 6,
                minor: 18,
            },
            at_call: None,
        }
    }
}

/// A buffer object with two sides.
struct FakeBo {
    kind: BoKind,
    address: u64,
    host: Vec<u8>,
    device: Vec<u8>,
}

/// An open node whose array is a board.
pub struct FakeKernel<'p> {
    board: Board<'p>,
    faults: FakeFaults,
    calls: std::cell::Cell<u64>,
    objects: BTreeMap<u32, FakeBo>,
    contexts: BTreeSet<u32>,
    next: u32,
    /// Bytes of the heap, and how far it is used.
    heap: (u64, u64),
    next_host: u64,
    ended: BTreeMap<(u32, u64), ()>,
    number: u64,
    /// What the board said last.
    last: Option<BoardError>,
}

const UNIT: u64 = 64 << 20;
const MOST: u64 = 512 << 20;
/// Addresses of the device begin here.
const HEAP_AT: u64 = 0x400_0000;
/// Addresses of the host, as a process has them.
const HOST_AT: u64 = 0x7000_0000_0000;
/// What `POISON` says of an error's packet: the rest of it is filled.
const POISON: u8 = 0xFF;

impl<'p> FakeKernel<'p> {
    /// A node on a board, into which core programs may have been installed.
    pub fn new(board: Board<'p>, faults: FakeFaults) -> FakeKernel<'p> {
        FakeKernel {
            board,
            faults,
            calls: std::cell::Cell::new(0),
            objects: BTreeMap::new(),
            contexts: BTreeSet::new(),
            next: 1,
            heap: (0, 0),
            next_host: HOST_AT,
            ended: BTreeMap::new(),
            number: 0,
            last: None,
        }
    }

    /// One on an array without programs.
    pub fn plain(options: BoardOptions, faults: FakeFaults) -> FakeKernel<'p> {
        FakeKernel::new(Board::new(options), faults)
    }

    /// Buffer objects and contexts that are open.
    pub fn n_open(&self) -> usize {
        self.objects.len() + self.contexts.len()
    }

    /// Calls so far.
    pub fn n_calls(&self) -> u64 {
        self.calls.get()
    }

    /// What stopped the last command on the board.
    pub fn last_error(&self) -> Option<&BoardError> {
        self.last.as_ref()
    }

    /// Counts a call, and fails it on request.
    fn call(&self) -> Result<(), Errno> {
        let number = self.calls.get();
        self.calls.set(number + 1);
        match self.faults.at_call {
            Some((at, errno)) if at == number => Err(errno),
            _ => Ok(()),
        }
    }

    fn object(&mut self, handle: u32) -> Result<&mut FakeBo, Errno> {
        self.objects.get_mut(&handle).ok_or(Errno::Inval)
    }

    /// Instructions in memory of the device.
    fn code(&self, (address, bytes): (u64, u32)) -> Result<Vec<u32>, Errno> {
        let bytes = u64::from(bytes);
        let holds = |bo: &&FakeBo| {
            let n = bo.device.len() as u64;
            bo.kind == BoKind::Dev && bo.address <= address && address + bytes <= bo.address + n
        };
        let bo = self.objects.values().find(holds).ok_or(Errno::Inval)?;
        let first = (address - bo.address) as usize;
        let code = &bo.device[first..first + bytes as usize];
        let word = |b: &[u8]| u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
        Ok(code.chunks_exact(4).map(word).collect())
    }

    /// Lets the board execute; how the command ended.
    fn on_board(&mut self, words: &[u32], arguments: &[u32]) -> CommandState {
        let stream = match decode(words) {
            Ok(stream) => stream,
            Err(error) => {
                self.last = Some(error.into());
                return CommandState::Error;
            }
        };
        let shared: Vec<u32> = (arguments.iter().copied())
            .filter(|handle| {
                self.objects
                    .get(handle)
                    .is_some_and(|bo| bo.kind == BoKind::Share)
            })
            .collect();
        let mut addresses = Vec::new();
        let mut contents = Vec::new();
        for handle in &shared {
            if let Some(bo) = self.objects.get_mut(handle) {
                addresses.push(bo.address + DDR_APERTURE);
                contents.push(std::mem::take(&mut bo.device));
            }
        }
        let ran = self.board.run_at(&stream, &addresses, &mut contents);
        for (handle, content) in shared.iter().zip(contents) {
            if let Some(bo) = self.objects.get_mut(handle) {
                bo.device = content;
            }
        }
        self.last = ran.err();
        match &self.last {
            None => CommandState::Completed,
            // The watchdog of the kernel sees no progress.
            Some(BoardError::Standstill { .. } | BoardError::Budget { .. }) => {
                CommandState::Timeout
            }
            Some(_) => CommandState::Error,
        }
    }
}

impl AmdxdnaNode for FakeKernel<'_> {
    fn firmware(&self) -> Result<FirmwareVersion, Errno> {
        self.call()?;
        Ok(self.faults.firmware)
    }

    fn create_bo(&mut self, kind: BoKind, size: u64) -> Result<DeviceBo, Errno> {
        self.call()?;
        if size == 0 {
            return Err(Errno::Inval);
        }
        let address = match kind {
            BoKind::DevHeap => {
                if !size.is_multiple_of(UNIT) {
                    return Err(Errno::Inval);
                }
                if self.heap.0 + size > MOST {
                    return Err(Errno::NoSpc);
                }
                self.heap.0 += size;
                HEAP_AT
            }
            BoKind::Dev => {
                let at = self.heap.1.next_multiple_of(1 << 15);
                if at + size > self.heap.0 {
                    return Err(Errno::Again);
                }
                self.heap.1 = at + size;
                HEAP_AT + at
            }
            BoKind::Share => {
                let at = self.next_host;
                // A page stays free between any two.
                self.next_host += size.next_multiple_of(4096) + 4096;
                at
            }
        };
        let handle = self.next;
        self.next += 1;
        let n = if kind == BoKind::DevHeap {
            0
        } else {
            size as usize
        };
        self.objects.insert(
            handle,
            FakeBo {
                kind,
                address,
                host: vec![0; n],
                device: vec![POISON; n],
            },
        );
        Ok(DeviceBo {
            handle,
            size,
            xdna_addr: address,
        })
    }

    fn close_bo(&mut self, handle: u32) -> Result<(), Errno> {
        let kind = self.object(handle)?.kind;
        let is_used = self.objects.values().any(|bo| bo.kind == BoKind::Dev);
        if kind == BoKind::DevHeap && is_used {
            return Err(Errno::Inval);
        }
        self.objects.remove(&handle);
        if !self.objects.values().any(|bo| bo.kind == BoKind::Dev) {
            self.heap.1 = 0;
        }
        Ok(())
    }

    fn mapping(&mut self, handle: u32) -> Result<&mut [u8], Errno> {
        self.call()?;
        Ok(&mut self.object(handle)?.host)
    }

    fn sync_bo(&mut self, handle: u32, to: SyncTo) -> Result<(), Errno> {
        self.call()?;
        let bo = self.object(handle)?;
        match to {
            SyncTo::Device => bo.device.clone_from(&bo.host),
            SyncTo::Host => bo.host.clone_from(&bo.device),
        }
        Ok(())
    }

    fn create_context(&mut self, columns: u32) -> Result<u32, Errno> {
        self.call()?;
        if !(1..=8).contains(&columns) {
            return Err(Errno::Inval);
        }
        if self.heap.0 == 0 {
            return Err(Errno::Inval);
        }
        let context = self.next;
        self.next += 1;
        self.contexts.insert(context);
        Ok(context)
    }

    fn destroy_context(&mut self, context: u32) -> Result<(), Errno> {
        match self.contexts.remove(&context) {
            true => Ok(()),
            false => Err(Errno::Inval),
        }
    }

    fn execute(&mut self, context: u32, command: u32, arguments: &[u32]) -> Result<u64, Errno> {
        self.call()?;
        if !self.contexts.contains(&context) {
            return Err(Errno::NoEnt);
        }
        if arguments
            .iter()
            .any(|handle| !self.objects.contains_key(handle))
            || arguments.len() > 4095
        {
            return Err(Errno::Inval);
        }
        // The kernel reads the packet through the host's mapping.
        let bo = self.object(command)?;
        if bo.kind != BoKind::Share {
            return Err(Errno::Inval);
        }
        let word = |b: &[u8]| u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
        let packet: Vec<u32> = bo.host.chunks_exact(4).map(word).collect();
        if packet::opcode(&packet) != packet::OPCODE {
            return Err(Errno::OpNotSupp);
        }
        if self.faults.firmware < super::driver::FIRMWARE {
            return Err(Errno::OpNotSupp);
        }
        let instructions = packet::instructions(&packet).ok_or(Errno::Inval)?;
        let words = self.code(instructions)?;
        let state = self.on_board(&words, arguments);
        let bo = self.object(command)?;
        if state != CommandState::Completed {
            // On an error the rest of the packet is filled.
            bo.device.iter_mut().skip(4).for_each(|byte| *byte = POISON);
        }
        if let Some(first) = bo.device.first_mut() {
            *first = *first & 0xF0 | state as u8;
        }
        self.number += 1;
        self.ended.insert((context, self.number), ());
        Ok(self.number)
    }

    fn wait(&mut self, context: u32, number: u64, _timeout_ms: u32) -> Result<(), Errno> {
        self.call()?;
        match self.ended.remove(&(context, number)) {
            Some(()) => Ok(()),
            None if self.contexts.contains(&context) => Err(Errno::Time),
            None => Err(Errno::NoEnt),
        }
    }
}
