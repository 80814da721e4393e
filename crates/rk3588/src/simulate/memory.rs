//! Buffer objects of one open file and the NPU's address map of it.

use crate::timing::JobId;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock};

/// A buffer object.
pub(super) struct Bo {
    /// Its address.
    pub(super) iova: u64,
    /// Its memory, whole pages.
    pub(super) memory: RwLock<Vec<u8>>,
    pub(super) size: u64,
    /// Between PREP_BO and FINI_BO.
    host_holds: AtomicBool,
    /// The last job that writes it.
    fence: Mutex<Option<Arc<Fence>>>,
}

impl Bo {
    pub(super) fn host_holds(&self) -> bool {
        self.host_holds.load(SeqCst)
    }

    pub(super) fn hold(&self, held: bool) {
        self.host_holds.store(held, SeqCst);
    }

    pub(super) fn fence(&self) -> Option<Arc<Fence>> {
        let fence = self.fence.lock().unwrap_or_else(PoisonError::into_inner);
        fence.clone()
    }

    pub(super) fn set_fence(&self, new: Arc<Fence>) {
        let mut fence = self.fence.lock().unwrap_or_else(PoisonError::into_inner);
        *fence = Some(new);
    }

    /// Copies bytes at NPU addresses within the object.
    pub(super) fn read(&self, range: Range<u64>) -> Vec<u8> {
        let memory = self.memory.read().unwrap_or_else(PoisonError::into_inner);
        memory[self.within(range)].to_vec()
    }

    /// Converts a range of NPU addresses within the object to its own range.
    pub(super) fn within(&self, range: Range<u64>) -> Range<usize> {
        (range.start - self.iova) as usize..(range.end - self.iova) as usize
    }
}

/// The end of a job.
pub(super) struct Fence {
    pub(super) job: JobId,
    computed: Mutex<bool>,
    signal: Condvar,
    /// Its end on the board's clock, once that was asked for.
    pub(super) end_ns: Mutex<Option<f64>>,
}

impl Fence {
    pub(super) fn new(job: JobId) -> Arc<Fence> {
        Arc::new(Fence {
            job,
            computed: Mutex::new(false),
            signal: Condvar::new(),
            end_ns: Mutex::new(None),
        })
    }

    pub(super) fn set_computed(&self) {
        *self.computed.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.signal.notify_all();
    }

    /// Waits until the numbers are computed; this takes no time on the board's clock.
    pub(super) fn wait_computed(&self) {
        let mut computed = self.computed.lock().unwrap_or_else(PoisonError::into_inner);
        while !*computed {
            let woken = self.signal.wait(computed);
            computed = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// The address space of an open file.
#[derive(Default)]
pub(super) struct Space {
    last_handle: u32,
    by_handle: BTreeMap<u32, Arc<Bo>>,
    by_address: BTreeMap<u64, Arc<Bo>>,
}

impl Space {
    /// Makes an object at the lowest address that is free.
    pub(super) fn create(&mut self, size: u64, domain_bytes: u64) -> Result<(u32, u64), Errno> {
        let mut iova = 0;
        for bo in self.by_address.values() {
            if bo.iova - iova >= size {
                break;
            }
            iova = bo.iova + bo.size;
        }
        if iova + size > domain_bytes {
            return Err(Errno::NOSPC);
        }
        let len = usize::try_from(size).map_err(|_| Errno::NOMEM)?;
        if Vec::<u8>::new().try_reserve_exact(len).is_err() {
            return Err(Errno::NOMEM);
        }
        let bo = Arc::new(Bo {
            iova,
            memory: RwLock::new(vec![0; len]),
            size,
            host_holds: AtomicBool::new(false),
            fence: Mutex::new(None),
        });
        // Linux gives the lowest free handle. Here none is given twice, which exposes mistakes.
        self.last_handle = self.last_handle.checked_add(1).ok_or(Errno::NOSPC)?;
        self.by_handle.insert(self.last_handle, bo.clone());
        self.by_address.insert(iova, bo);
        Ok((self.last_handle, iova))
    }

    pub(super) fn get(&self, handle: u32) -> Option<&Arc<Bo>> {
        self.by_handle.get(&handle)
    }

    pub(super) fn close(&mut self, handle: u32) -> Result<(), Errno> {
        let bo = self.by_handle.remove(&handle).ok_or(Errno::INVAL)?;
        self.by_address.remove(&bo.iova);
        Ok(())
    }

    pub(super) fn len(&self) -> usize {
        self.by_handle.len()
    }

    /// The object that holds all of a range of addresses.
    pub(super) fn find(&self, range: &Range<u64>) -> Option<&Arc<Bo>> {
        let (_, bo) = self.by_address.range(..=range.start).next_back()?;
        (range.end <= bo.iova + bo.size).then_some(bo)
    }
}
