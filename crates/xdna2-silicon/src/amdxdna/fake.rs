//! A kernel in software: the driver's refusals, over the board.

mod node;

use super::clock::{self, CommandClock};
use super::packet::{self, CommandState};
use super::relocation::DDR_APERTURE;
use super::{ArrayShape, BoKind, Errno, FirmwareVersion, HEAP_BYTES, NPU2, PROTOCOL};
use millrace_xdna2_words::board::{Board, BoardCounters, BoardError, BoardOptions, ClockRates};
use millrace_xdna2_words::txn::decode;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Faults on request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FakeFaults {
    /// The firmware's release.
    pub firmware: FirmwareVersion,
    /// The protocol that firmware and driver speak.
    pub protocol: (u32, u32),
    /// The array.
    pub shape: ArrayShape,
    /// The call of this number, from 0, fails with that.
    pub at_call: Option<(u64, Errno)>,
    /// From the call of this number on the device is gone.
    pub gone_from: Option<u64>,
    /// How each command ends, in place of its normal end.
    pub ending: Option<CommandState>,
    /// Whether commands never end.
    pub is_endless: bool,
}

impl Default for FakeFaults {
    fn default() -> FakeFaults {
        FakeFaults {
            firmware: FirmwareVersion {
                major: 1,
                minor: 1,
                patch: 2,
                build: 64,
            },
            protocol: (6, 18),
            shape: NPU2,
            at_call: None,
            gone_from: None,
            ending: None,
            is_endless: false,
        }
    }
}

/// A buffer object with two sides.
struct FakeBo {
    kind: BoKind,
    address: u64,
    is_mapped: bool,
    host: Vec<u8>,
    device: Vec<u8>,
}

/// The heap: its object, and bytes of it that are used.
struct FakeHeap {
    size_bytes: u64,
    used_bytes: u64,
    is_mapped: bool,
}

/// An open node whose array is a board.
pub struct FakeKernel<'p> {
    board: Board<'p>,
    faults: FakeFaults,
    calls: u64,
    objects: BTreeMap<u32, FakeBo>,
    /// Contexts, with their timelines.
    contexts: BTreeMap<u32, u32>,
    syncobjs: BTreeSet<u32>,
    next: u32,
    heap: FakeHeap,
    next_host: u64,
    ended: BTreeSet<(u32, u64)>,
    number: u64,
    /// Last error of the board.
    last: Option<BoardError>,
    counters: BoardCounters,
    clock: Option<CommandClock>,
    n_open: Arc<AtomicUsize>,
}

/// All heaps together.
const HEAP_MAX_BYTES: u64 = 512 << 20;
/// Addresses of the device begin here.
const HEAP_AT: u64 = 0x400_0000;
/// First address of the host, as in a process.
const HOST_AT: u64 = 0x7000_0000_0000;
/// The unit of memory of the device (`npu4_regs.c`: dev_mem_buf_shift).
const DEV_UNIT: u64 = 1 << 15;
/// Content of the device's side before it is written. The rest of a failed command's packet is filled with it too.
const POISON: u8 = 0xFF;

impl<'p> FakeKernel<'p> {
    /// A node on a board, into which core programs may have been installed.
    pub fn new(board: Board<'p>, faults: FakeFaults) -> FakeKernel<'p> {
        FakeKernel {
            board,
            faults,
            calls: 0,
            objects: BTreeMap::new(),
            contexts: BTreeMap::new(),
            syncobjs: BTreeSet::new(),
            next: 1,
            heap: FakeHeap {
                size_bytes: 0,
                used_bytes: 0,
                is_mapped: false,
            },
            next_host: HOST_AT,
            ended: BTreeSet::new(),
            number: 0,
            last: None,
            counters: BoardCounters::default(),
            clock: None,
            n_open: Arc::default(),
        }
    }

    /// One on an array without programs.
    pub fn plain(options: BoardOptions, faults: FakeFaults) -> FakeKernel<'p> {
        FakeKernel::new(Board::new(options), faults)
    }

    /// The same with modelled times of commands: the array's time by these rates, plus `call_ns` for the call.
    #[must_use]
    pub fn with_clock(self, rates: ClockRates, call_ns: f64) -> FakeKernel<'p> {
        let mut kernel = self;
        kernel.clock = Some(CommandClock::new(rates, call_ns));
        kernel
    }

    /// Buffer objects, contexts and timelines that are open; none once the node is closed.
    pub fn n_open(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.n_open)
    }

    /// Calls so far.
    pub fn n_calls(&self) -> u64 {
        self.calls
    }

    /// Counters of the last command that succeeded.
    pub fn counters(&self) -> BoardCounters {
        self.counters
    }

    /// Counts a call, and fails it on request.
    fn call(&mut self) -> Result<(), Errno> {
        let number = self.calls;
        self.calls += 1;
        if self.faults.gone_from.is_some_and(|from| number >= from) {
            return Err(Errno::NODEV);
        }
        match self.faults.at_call {
            Some((at, errno)) if at == number => Err(errno),
            _ => Ok(()),
        }
    }

    fn object(&mut self, handle: u32) -> Result<&mut FakeBo, Errno> {
        self.objects.get_mut(&handle).ok_or(Errno::INVAL)
    }

    /// A new handle.
    fn handle(&mut self) -> u32 {
        let handle = self.next;
        self.next += 1;
        self.n_open.fetch_add(1, Relaxed);
        handle
    }

    fn forget(&mut self, was_there: bool) -> Result<(), Errno> {
        if !was_there {
            return Err(Errno::INVAL);
        }
        self.n_open.fetch_sub(1, Relaxed);
        Ok(())
    }

    /// Takes memory of the device from the heap.
    fn take_from_heap(&mut self, size_bytes: u64) -> Result<u64, Errno> {
        let at = self.heap.used_bytes.next_multiple_of(DEV_UNIT);
        if !self.heap.is_mapped || at + size_bytes > self.heap.size_bytes {
            return Err(Errno::AGAIN);
        }
        self.heap.used_bytes = at + size_bytes;
        Ok(HEAP_AT + at)
    }

    fn grow_heap(&mut self, size_bytes: u64) -> Result<u64, Errno> {
        if !size_bytes.is_multiple_of(HEAP_BYTES) {
            return Err(Errno::INVAL);
        }
        let whole = self.heap.size_bytes + size_bytes;
        if whole > HEAP_MAX_BYTES {
            return Err(Errno::NOSPC);
        }
        let at = HEAP_AT + self.heap.size_bytes;
        self.heap.size_bytes = whole;
        Ok(at)
    }

    /// Instructions in memory of the device.
    fn code(&self, (address, bytes): (u64, u32)) -> Result<Vec<u32>, Errno> {
        let bytes = u64::from(bytes);
        let holds = |bo: &&FakeBo| {
            let n = bo.device.len() as u64;
            bo.kind == BoKind::Dev && bo.address <= address && address + bytes <= bo.address + n
        };
        let bo = self.objects.values().find(holds).ok_or(Errno::INVAL)?;
        let first = (address - bo.address) as usize;
        Ok(words(&bo.device[first..first + bytes as usize]))
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
        let objects = &self.objects;
        let is_shared = |handle: &&u32| {
            objects
                .get(handle)
                .is_some_and(|bo| bo.kind == BoKind::Share)
        };
        let shared: Vec<u32> = arguments.iter().filter(is_shared).copied().collect();
        let mut addresses = Vec::new();
        let mut contents = Vec::new();
        for handle in &shared {
            if let Some(bo) = self.objects.get_mut(handle) {
                addresses.push(bo.address + DDR_APERTURE);
                contents.push(std::mem::take(&mut bo.device));
            }
        }
        if self.clock.is_some() {
            self.board.record(clock::MOST_EVENTS);
        }
        let ran = self.board.run_at(&stream, &addresses, &mut contents);
        if let Some(clock) = &mut self.clock {
            let events = self.board.take_events().filter(|_| ran.is_ok());
            clock.read(&stream, events.as_deref());
        }
        for (handle, content) in shared.iter().zip(contents) {
            if let Some(bo) = self.objects.get_mut(handle) {
                bo.device = content;
            }
        }
        self.last = ran.map(|counters| self.counters = counters).err();
        match &self.last {
            None => CommandState::Completed,
            // The watchdog of the kernel sees no progress.
            Some(BoardError::Standstill { .. } | BoardError::Budget { .. }) => {
                CommandState::Timeout
            }
            Some(_) => CommandState::Error,
        }
    }

    /// How a command ends, whose packet the kernel reads through the host's mapping.
    fn outcome(&mut self, command: u32, arguments: &[u32]) -> Result<CommandState, Errno> {
        let bo = self.object(command)?;
        if !matches!(bo.kind, BoKind::Share | BoKind::Command) {
            return Err(Errno::INVAL);
        }
        let packet = words(&bo.host);
        // `aie2_cmdlist_unsupp`: the command never reaches the firmware, and nothing changes its state.
        if packet::opcode(&packet) != packet::OPCODE || self.faults.protocol < PROTOCOL {
            return Ok(CommandState::New);
        }
        let instructions = packet::instructions(&packet).ok_or(Errno::INVAL)?;
        let words = self.code(instructions)?;
        match self.faults.ending {
            Some(state) => Ok(state),
            None => Ok(self.on_board(&words, arguments)),
        }
    }
}

impl Drop for FakeKernel<'_> {
    fn drop(&mut self) {
        self.n_open.store(0, Relaxed);
    }
}

/// Bytes in memory order as words.
fn words(bytes: &[u8]) -> Vec<u32> {
    let word = |b: &[u8]| u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
    bytes.chunks_exact(4).map(word).collect()
}
