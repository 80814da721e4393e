//! The calls of a driver, as the kernel in software takes them.

use super::{FakeBo, FakeHeap, FakeKernel, POISON};
use crate::amdxdna::clock::CommandClock;
use crate::amdxdna::packet::CommandState;
use crate::amdxdna::{
    AmdxdnaNode, ArrayShape, BoInfo, BoKind, Errno, FirmwareVersion, HwContext, NPU2, SyncTo,
};

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
