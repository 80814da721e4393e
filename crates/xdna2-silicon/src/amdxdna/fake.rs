//! A kernel in software: the driver's refusals, over the board.

use super::clock::{self, CommandClock};
use super::packet::{self, CommandState};
use super::relocation::DDR_APERTURE;
use super::{
    AmdxdnaNode, ArrayShape, BoInfo, BoKind, Errno, FirmwareVersion, HEAP_BYTES, HwContext, NPU2,
    PROTOCOL, SyncTo,
};
use millrace_xdna2_words::board::{Board, BoardCounters, BoardError, BoardOptions, ClockRates};
use millrace_xdna2_words::txn::decode;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// What goes wrong on request.
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
    /// How each command ends, instead of as it should.
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
    /// What the board said last.
    last: Option<BoardError>,
    counters: BoardCounters,
    clock: Option<CommandClock>,
    n_open: Arc<AtomicUsize>,
}

/// All heaps together.
const HEAP_MAX_BYTES: u64 = 512 << 20;
/// Addresses of the device begin here.
const HEAP_AT: u64 = 0x400_0000;
/// Addresses of the host, as a process has them.
const HOST_AT: u64 = 0x7000_0000_0000;
/// The unit of memory of the device (`npu4_regs.c`: dev_mem_buf_shift).
const DEV_UNIT: u64 = 1 << 15;
/// What the device's side holds before it is written; what the rest of a failed command's packet is filled with.
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

    /// The same with modelled times of commands: what the array does by these rates, and so much for the call.
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

    /// What the last command took that went well.
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
        // `aie2_cmdlist_unsupp`: the command never reaches the firmware, and nobody changes its state.
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

/// Words as they lie in memory.
fn words(bytes: &[u8]) -> Vec<u32> {
    let word = |b: &[u8]| u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
    bytes.chunks_exact(4).map(word).collect()
}

impl AmdxdnaNode for FakeKernel<'_> {
    fn firmware(&mut self) -> Result<FirmwareVersion, Errno> {
        self.call()?;
        Ok(self.faults.firmware)
    }

    fn array_version(&mut self) -> Result<(u32, u32), Errno> {
        self.call()?;
        Ok((2, 1))
    }

    fn array_shape(&mut self) -> Result<ArrayShape, Errno> {
        self.call()?;
        Ok(self.faults.shape)
    }

    fn create_bo(&mut self, kind: BoKind, size_bytes: u64) -> Result<u32, Errno> {
        self.call()?;
        if size_bytes == 0 {
            return Err(Errno::INVAL);
        }
        let address = match kind {
            BoKind::DevHeap => self.grow_heap(size_bytes)?,
            BoKind::Dev => self.take_from_heap(size_bytes)?,
            BoKind::Share | BoKind::Command => {
                let at = self.next_host;
                // A page stays free between any two.
                self.next_host += size_bytes.next_multiple_of(4096) + 4096;
                at
            }
        };
        let n_bytes = match kind {
            BoKind::DevHeap => 0,
            _ => usize::try_from(size_bytes).map_err(|_| Errno::NOMEM)?,
        };
        let handle = self.handle();
        let bo = FakeBo {
            kind,
            address,
            is_mapped: kind == BoKind::Dev,
            host: vec![0; n_bytes],
            device: vec![POISON; n_bytes],
        };
        self.objects.insert(handle, bo);
        Ok(handle)
    }

    fn bo_info(&mut self, handle: u32) -> Result<BoInfo, Errno> {
        self.call()?;
        let bo = self.object(handle)?;
        let is_known = bo.is_mapped || bo.kind == BoKind::DevHeap;
        Ok(BoInfo {
            map_offset: u64::from(handle) << 32,
            xdna_addr: if is_known { bo.address } else { u64::MAX },
        })
    }

    fn map(&mut self, handle: u32, info: BoInfo) -> Result<(), Errno> {
        self.call()?;
        let bo = self.object(handle)?;
        if info.map_offset != u64::from(handle) << 32 {
            return Err(Errno::INVAL);
        }
        bo.is_mapped = true;
        if bo.kind == BoKind::DevHeap {
            self.heap.is_mapped = true;
        }
        Ok(())
    }

    fn mapping(&mut self, handle: u32) -> Result<&mut [u8], Errno> {
        let bo = self.object(handle)?;
        match bo.is_mapped {
            true => Ok(&mut bo.host),
            false => Err(Errno::INVAL),
        }
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

    fn close_bo(&mut self, handle: u32) -> Result<(), Errno> {
        self.call()?;
        let kind = self.object(handle)?.kind;
        let n_dev = self.objects.values().filter(|bo| bo.kind == BoKind::Dev);
        match (kind, n_dev.count()) {
            (BoKind::DevHeap, 1..) => return Err(Errno::INVAL),
            (BoKind::Dev, 1) => self.heap.used_bytes = 0,
            _ => {}
        }
        let was_there = self.objects.remove(&handle).is_some();
        self.forget(was_there)
    }

    fn create_context(&mut self, n_cores: u32) -> Result<HwContext, Errno> {
        self.call()?;
        let columns = n_cores / u32::from(NPU2.core_rows);
        if !(1..=u32::from(NPU2.cols)).contains(&columns) {
            return Err(Errno::INVAL);
        }
        match self.heap {
            FakeHeap { size_bytes: 0, .. } => return Err(Errno::NOENT),
            FakeHeap {
                is_mapped: false, ..
            } => return Err(Errno::AGAIN),
            _ => {}
        }
        let (handle, syncobj) = (self.handle(), self.handle());
        self.contexts.insert(handle, syncobj);
        self.syncobjs.insert(syncobj);
        Ok(HwContext { handle, syncobj })
    }

    fn destroy_context(&mut self, context: u32) -> Result<(), Errno> {
        self.call()?;
        let was_there = self.contexts.remove(&context).is_some();
        self.forget(was_there)
    }

    fn destroy_syncobj(&mut self, syncobj: u32) -> Result<(), Errno> {
        self.call()?;
        let was_there = self.syncobjs.remove(&syncobj);
        self.forget(was_there)
    }

    fn execute(&mut self, context: u32, command: u32, arguments: &[u32]) -> Result<u64, Errno> {
        self.call()?;
        let syncobj = *self.contexts.get(&context).ok_or(Errno::NOENT)?;
        let is_known = |handle: &u32| self.objects.contains_key(handle);
        if !arguments.iter().all(is_known) || arguments.len() > 4095 {
            return Err(Errno::INVAL);
        }
        let state = self.outcome(command, arguments)?;
        let bo = self.object(command)?;
        if !matches!(state, CommandState::Completed | CommandState::New) {
            bo.device.iter_mut().skip(4).for_each(|byte| *byte = POISON);
        }
        if let Some(first) = bo.device.first_mut() {
            *first = *first & 0xF0 | state as u8;
        }
        self.number += 1;
        if !self.faults.is_endless {
            self.ended.insert((syncobj, self.number));
        }
        Ok(self.number)
    }

    fn wait(&mut self, syncobj: u32, number: u64, _deadline_ns: i64) -> Result<(), Errno> {
        self.call()?;
        match self.ended.contains(&(syncobj, number)) {
            true => Ok(()),
            false if self.syncobjs.contains(&syncobj) => Err(Errno::TIME),
            false => Err(Errno::NOENT),
        }
    }

    fn now_ns(&self) -> i64 {
        0
    }

    fn explanation(&self) -> Option<String> {
        self.last.as_ref().map(ToString::to_string)
    }

    fn modelled_ns(&self) -> Option<f64> {
        self.clock.as_ref().and_then(CommandClock::last_ns)
    }
}
