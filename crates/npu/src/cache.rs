//! The program cache: three layers with three lifetimes, as in MLIR-AIR's Llama-3.2-1B example.
//!
//! | layer | holds | key | lives |
//! |---|---|---|---|
//! | artifacts | compiled programs, on disk | hash of the inputs of compilation | until deleted |
//! | handles | programs loaded on the device | content hash | as long as the cache |
//! | buffer sets | a buffer for each slot | `bo_key`, one a layer of a model | until forgotten |
//!
//! [`ProgramCache::load_and_run`] moves the bytes that the roles of the slots ask for, and no others: `static` slots
//! cross once for each `bo_key`, `input` slots at every call, `output` slots back after it, `intermediate` slots never.
//! [`ProgramCache::run_moving`] moves the bytes that the caller selects for each slot: fewer where values stay in
//! buffers that several programs share.

mod disk;
mod error;
mod loaded;
mod sets;
mod shared;

pub use error::{CacheError, Notice};
pub use sets::{CallResult, Fill, Move};

use crate::{Buffer, Container, ContentHash, Device, DeviceError, LoadedProgram, Traffic};
use disk::{Disk, DiskLookup};
use sets::{BufferSet, CacheSlot};
use shared::{SharedBuffers, SharedNames};
use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Counters of the cache since its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Artifacts compiled.
    pub built: u64,
    /// Artifacts read from disk.
    pub from_disk: u64,
    /// Artifacts found in memory.
    pub from_memory: u64,
    /// Programs loaded on the device.
    pub loaded: u64,
    /// Calls.
    pub calls: u64,
    /// Bytes of all buffers allocated.
    pub allocated_bytes: u64,
    /// Bytes that crossed, over all calls.
    pub traffic: Traffic,
}

/// Bytes of buffers, by kind of content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufferBytes {
    /// `static` slots: weights and tables.
    pub static_bytes: u64,
    /// All others.
    pub other_bytes: u64,
}

type Notify = Box<dyn Fn(&Notice) + Send + Sync>;

/// The cache of one device.
pub struct ProgramCache {
    device: Arc<dyn Device>,
    disk: Option<Disk>,
    notify: Notify,
    artifacts: Mutex<HashMap<ContentHash, Arc<Container>>>,
    loaded: Mutex<HashMap<ContentHash, Arc<dyn LoadedProgram>>>,
    sets: Mutex<HashMap<String, CacheSlot>>,
    shared: SharedBuffers,
    stats: Mutex<CacheStats>,
}

impl std::fmt::Debug for ProgramCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProgramCache")
            .field("device", &self.device.info().name)
            .field("disk", &self.disk)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

impl ProgramCache {
    /// A cache in memory only.
    pub fn new(device: Arc<dyn Device>) -> ProgramCache {
        ProgramCache {
            device,
            disk: None,
            notify: Box::new(|_| {}),
            artifacts: Mutex::default(),
            loaded: Mutex::default(),
            sets: Mutex::default(),
            shared: SharedBuffers::default(),
            stats: Mutex::default(),
        }
    }

    /// A cache whose artifacts are also in a directory, which is made if need be. Several
    /// processes may share it.
    ///
    /// # Errors
    /// Where the directory cannot be made.
    pub fn with_directory(device: Arc<dyn Device>, directory: &Path) -> io::Result<ProgramCache> {
        let mut cache = ProgramCache::new(device);
        cache.disk = Some(Disk::open(directory)?);
        Ok(cache)
    }

    /// Sends notices to `notify`.
    #[must_use]
    pub fn on_notice(mut self, notify: impl Fn(&Notice) + Send + Sync + 'static) -> ProgramCache {
        self.notify = Box::new(notify);
        self
    }

    /// The device.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Counters of the cache since its creation.
    pub fn stats(&self) -> CacheStats {
        *lock(&self.stats)
    }

    /// A compiled program: from memory, from disk, or built. `key` is the [hash](ContentHash::of) of everything the
    /// build depends on (graph, machine, options, compiler version); `name` is for notices.
    ///
    /// If several processes or threads ask for the same key at once, one builds and the others wait for it. Trouble
    /// with the disk is a [`Notice`], not an error.
    ///
    /// # Errors
    /// The error of `build`.
    pub fn artifact<E>(
        &self,
        key: ContentHash,
        name: &str,
        build: impl FnOnce() -> Result<Container, E>,
    ) -> Result<Arc<Container>, E> {
        if let Some(found) = lock(&self.artifacts).get(&key) {
            lock(&self.stats).from_memory += 1;
            return Ok(found.clone());
        }
        let container = match &self.disk {
            None => self.built(build)?,
            Some(disk) => self.through_disk(disk, key, name, build)?,
        };
        let container = Arc::new(container);
        lock(&self.artifacts).insert(key, container.clone());
        Ok(container)
    }

    fn built<E>(&self, build: impl FnOnce() -> Result<Container, E>) -> Result<Container, E> {
        let container = build()?;
        lock(&self.stats).built += 1;
        Ok(container)
    }

    fn through_disk<E>(
        &self,
        disk: &Disk,
        key: ContentHash,
        name: &str,
        build: impl FnOnce() -> Result<Container, E>,
    ) -> Result<Container, E> {
        let target = &self.device.info().target;
        let hit = |container| {
            lock(&self.stats).from_disk += 1;
            Ok(container)
        };
        if let DiskLookup::Hit(container) = disk.get(key, target, &|_| {}) {
            return hit(container);
        }
        // Without a lock two processes may build the same program, nothing worse.
        let _guard = disk.lock(&format!("{key}.lock")).map_err(|error| {
            (self.notify)(&Notice::NotSaved {
                name: name.to_owned(),
                reason: format!("no lock: {error}"),
            });
        });
        match disk.get(key, target, &self.notify) {
            DiskLookup::Hit(container) => return hit(container),
            DiskLookup::Miss => {}
            DiskLookup::Bad(reason) => (self.notify)(&Notice::Rebuilt {
                name: name.to_owned(),
                reason,
            }),
        }
        let container = self.built(build)?;
        if let Err(error) = disk.put(key, &container, &self.notify) {
            (self.notify)(&Notice::NotSaved {
                name: name.to_owned(),
                reason: error.to_string(),
            });
        }
        Ok(container)
    }

    /// The program on the device, loaded once.
    ///
    /// # Errors
    /// The error of the device.
    pub fn load(&self, container: &Container) -> Result<Arc<dyn LoadedProgram>, DeviceError> {
        let mut loaded = lock(&self.loaded);
        if let Some(program) = loaded.get(&container.content_hash()) {
            return Ok(program.clone());
        }
        let program = self.device.load(container)?;
        lock(&self.stats).loaded += 1;
        loaded.insert(container.content_hash(), program.clone());
        Ok(program)
    }

    /// Allocates the buffer set of a `bo_key` and writes its static slots, without a run. Callers do this for every
    /// layer before anything is timed. Only static slots need data.
    ///
    /// # Errors
    /// As [`load_and_run`](ProgramCache::load_and_run).
    pub fn preload(
        &self,
        container: &Container,
        bo_key: &str,
        inputs: &[Option<&[u8]>],
    ) -> Result<Traffic, CacheError> {
        self.load(container)?;
        let moves = Move::by_role(container, inputs)?;
        self.with_set(container, bo_key, |set| {
            set.check(container, &moves, false)?;
            let before = set.traffic();
            set.write_static(container, &moves)?;
            Ok(set.traffic() - before)
        })
    }

    /// As [`preload`](ProgramCache::preload), but static slots are filled in place, so that weights need no copy
    /// besides the buffer: `fill` gets a slot's number and its bytes.
    ///
    /// `name` gives the shared name of a slot, or nothing. Slots of any sets with the same name are one buffer. A
    /// static one is filled once; its name identifies its content, so programs of several prompt lengths have one copy
    /// of the weights. Others pass values between programs without the host, or let programs that do not run at the
    /// same time use the same memory. A shared buffer lives as long as a set has it.
    ///
    /// # Errors
    /// The error of `fill` or of the device: the slot then counts as empty. [`CacheError::Shared`] where a slot that is
    /// not static cannot have the buffer of its name.
    pub fn preload_with<E: From<CacheError>>(
        &self,
        container: &Container,
        bo_key: &str,
        name: &dyn Fn(usize) -> Option<String>,
        fill: &mut Fill<'_, E>,
    ) -> Result<Traffic, E> {
        self.load(container).map_err(CacheError::from)?;
        self.with_set_named(container, bo_key, name, |set| {
            let before = set.traffic();
            set.fill_static(container, fill, |slot, buffer| {
                if let Some(name) = name(slot) {
                    self.shared.insert(name, buffer);
                }
            })?;
            Ok(set.traffic() - before)
        })
    }

    /// Fills some static slots of a `bo_key` anew: a table whose positions have moved. Sets that share their buffers
    /// see the new content.
    ///
    /// # Errors
    /// The error of `fill` or of the device: the slot then counts as empty.
    pub fn refill<E: From<CacheError>>(
        &self,
        container: &Container,
        bo_key: &str,
        slots: &[usize],
        fill: &mut Fill<'_, E>,
    ) -> Result<Traffic, E> {
        self.with_set_named(container, bo_key, &|_| None, |set| {
            let before = set.traffic();
            set.empty(slots);
            set.fill_static(container, fill, |_, _| {})?;
            Ok(set.traffic() - before)
        })
    }

    /// Writes pieces of a slot, each at its offset in bytes, and syncs only these: the new rows of a KV cache. Sets
    /// that share the buffer see them.
    ///
    /// # Errors
    /// [`CacheError::NoSlot`], pieces beyond the buffer, and errors of the device.
    pub fn write_parts(
        &self,
        container: &Container,
        bo_key: &str,
        slot: usize,
        parts: &[(u64, &[u8])],
    ) -> Result<Traffic, CacheError> {
        self.with_set(container, bo_key, |set| {
            let before = set.traffic();
            set.write_parts(bo_key, slot, parts)?;
            Ok(set.traffic() - before)
        })
    }

    /// Runs a program on the buffers of a `bo_key`. `inputs` has an entry a slot: data for
    /// `input` slots; data for `static` slots, which is used only the first time; none for the others.
    ///
    /// # Errors
    /// Missing, superfluous or ill-sized data (nothing is written then), a `bo_key` of another
    /// program, and errors of the device.
    pub fn load_and_run(
        &self,
        container: &Container,
        bo_key: &str,
        inputs: &[Option<&[u8]>],
    ) -> Result<CallResult, CacheError> {
        let moves = Move::by_role(container, inputs)?;
        let mut outputs = vec![Vec::new(); container.slots().len()];
        let mut call = self.run_moving(container, bo_key, &moves, |slot, bytes| {
            outputs[slot] = bytes.to_vec();
        })?;
        call.outputs = outputs;
        Ok(call)
    }

    /// Runs a program on the buffers of a `bo_key`, moving the bytes that `moves` selects for each slot and no others.
    /// Bytes that are read are shown in place, by slot.
    ///
    /// # Errors
    /// As [`load_and_run`](ProgramCache::load_and_run).
    pub fn run_moving(
        &self,
        container: &Container,
        bo_key: &str,
        moves: &[Move<'_>],
        output: impl FnMut(usize, &[u8]),
    ) -> Result<CallResult, CacheError> {
        let program = self.load(container)?;
        let call = self.with_set(container, bo_key, |set| {
            set.check(container, moves, true)?;
            set.run(&*self.device, &program, container, moves, output)
        })?;
        lock(&self.stats).calls += 1;
        Ok(call)
    }

    /// The device's content of a slot of a `bo_key`, intermediate ones too: for finding defects. It is not counted, and
    /// on a virtual device has no effect on the host's view.
    ///
    /// # Errors
    /// [`CacheError::NoSlot`], and errors of the device.
    pub fn peek(&self, bo_key: &str, slot: usize) -> Result<Vec<u8>, CacheError> {
        let set = lock(&self.sets).get(bo_key).cloned();
        let set = set.as_ref().map(|set| lock(set));
        let buffers = set.iter().filter_map(|set| set.as_ref());
        let buffers = buffers.map(BufferSet::buffers).next().unwrap_or_default();
        let buffer = buffers.get(slot).ok_or_else(|| CacheError::NoSlot {
            bo_key: bo_key.to_owned(),
            slot,
            n_slots: buffers.len(),
        })?;
        let mut bytes = Vec::new();
        buffer.peek(|view| bytes = view.to_vec())?;
        Ok(bytes)
    }

    /// Memory of all sets, a shared buffer counted once.
    pub fn memory(&self) -> BufferBytes {
        let sets: Vec<CacheSlot> = lock(&self.sets).values().cloned().collect();
        // Buffers, with whether they are static to every program that has them.
        let mut known: HashMap<*const Buffer, (u64, bool)> = HashMap::new();
        for set in &sets {
            let set = lock(set);
            let Some(set) = &*set else { continue };
            for (buffer, is_static) in set.buffers().iter().zip(set.statics()) {
                let own = (buffer.size_bytes(), is_static);
                let known = known.entry(Arc::as_ptr(buffer)).or_insert(own);
                known.1 &= is_static;
            }
        }
        let mut memory = BufferBytes::default();
        for (bytes, is_static) in known.into_values() {
            match is_static {
                true => memory.static_bytes += bytes,
                false => memory.other_bytes += bytes,
            }
        }
        memory
    }

    /// Frees the buffers of a `bo_key` that no other shares; the next call allocates and writes everything anew.
    /// Returns whether there were any.
    pub fn forget(&self, bo_key: &str) -> bool {
        let set = lock(&self.sets).remove(bo_key);
        set.is_some_and(|set| lock(&set).is_some())
    }

    /// Lets go of every program and buffer, after a device was lost: the next calls load,
    /// allocate and write everything anew. Compiled programs stay.
    pub fn reset(&self) {
        lock(&self.sets).clear();
        lock(&self.loaded).clear();
    }

    /// Works on the set of a `bo_key`, made if need be; calls with the same key follow each other.
    fn with_set<T>(
        &self,
        container: &Container,
        bo_key: &str,
        work: impl FnOnce(&mut BufferSet) -> Result<T, CacheError>,
    ) -> Result<T, CacheError> {
        self.with_set_named(container, bo_key, &|_| None, work)
    }

    /// As [`with_set`](ProgramCache::with_set); slots of a set made here have their names' buffers.
    fn with_set_named<T, E: From<CacheError>>(
        &self,
        container: &Container,
        bo_key: &str,
        name: SharedNames<'_>,
        work: impl FnOnce(&mut BufferSet) -> Result<T, E>,
    ) -> Result<T, E> {
        let set = lock(&self.sets)
            .entry(bo_key.to_owned())
            .or_default()
            .clone();
        let mut set = lock(&set);
        let set = match &mut *set {
            Some(set) => set,
            none => {
                let made = BufferSet::alloc(&*self.device, container, name, &self.shared)?;
                lock(&self.stats).allocated_bytes += made.allocated_bytes();
                none.insert(made)
            }
        };
        set.belongs_to(container, bo_key)?;
        let before = set.traffic();
        let result = work(set);
        lock(&self.stats).traffic += set.traffic() - before;
        result
    }
}

/// Locks; data behind a lock that a panic left is still whole here.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
