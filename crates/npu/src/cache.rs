//! The program cache: three layers with three lifetimes (seed 000 B6, B7).
//!
//! | layer | holds | key | lives |
//! |---|---|---|---|
//! | artifacts | compiled programs, on disk | hash of what they were compiled from | until deleted |
//! | handles | programs loaded on the device | content hash | as long as the cache |
//! | buffer sets | a buffer for each slot | `bo_key`, one a layer of a model | until forgotten |
//!
//! [`ProgramCache::load_and_run`] moves what the roles of the slots ask for and nothing else:
//! `static` slots cross once for each `bo_key`, `input` slots at every call, `output` slots back
//! after it, `intermediate` slots never.

mod disk;
mod sets;

pub use sets::{Call, Fill};

use crate::{Buffer, Container, ContentHash, Device, DeviceError, LoadedProgram, Role, Traffic};
use disk::{Disk, Lookup};
use sets::{BufferSet, Set, Share};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Something a person may want to know, though the work goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The manifest cannot be read; its artifacts count as missing.
    Manifest {
        /// Its path.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// An artifact on disk is stale or corrupt and is built again.
    Rebuilt {
        /// The program's name.
        name: String,
        /// Why.
        reason: String,
    },
    /// An artifact could not be saved; it is used from memory.
    NotSaved {
        /// The program's name.
        name: String,
        /// Why.
        reason: String,
    },
}

impl std::fmt::Display for Notice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Notice::Manifest { path, reason } => {
                write!(
                    f,
                    "{}: {reason}; its programs are built again",
                    path.display()
                )
            }
            Notice::Rebuilt { name, reason } => {
                write!(f, "cached program `{name}` is built again: {reason}")
            }
            Notice::NotSaved { name, reason } => {
                write!(f, "program `{name}` is not saved in the cache: {reason}")
            }
        }
    }
}

/// Why a call through the cache failed.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The wrong number of arguments.
    #[error("program `{program}` has {expected} slots, {found} arguments are given")]
    Arguments {
        /// The program.
        program: String,
        /// Its slots.
        expected: usize,
        /// Arguments given.
        found: usize,
    },
    /// No data for a slot that needs some.
    #[error("{role} slot `{slot}` of `{program}` needs data", role = role.name())]
    Missing {
        /// The program.
        program: String,
        /// The slot.
        slot: String,
        /// Its role.
        role: Role,
    },
    /// Data for a slot that the program overwrites.
    #[error("{role} slot `{slot}` of `{program}` is overwritten by the program and takes no data",
        role = role.name())]
    Unwanted {
        /// The program.
        program: String,
        /// The slot.
        slot: String,
        /// Its role.
        role: Role,
    },
    /// Data of the wrong size.
    #[error("slot `{slot}` of `{program}` has {expected_bytes} bytes, its data {found_bytes}")]
    Size {
        /// The program.
        program: String,
        /// The slot.
        slot: String,
        /// The slot's size.
        expected_bytes: u64,
        /// The data's size.
        found_bytes: u64,
    },
    /// A buffer set that belongs to another program.
    #[error("buffer set `{bo_key}` belongs to program `{holder}`, not `{program}`")]
    BoKey {
        /// The key.
        bo_key: String,
        /// The program it belongs to.
        holder: String,
        /// The program that asked.
        program: String,
    },
}

/// What the cache did so far.
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

type Notify = Box<dyn Fn(&Notice) + Send + Sync>;

/// The cache of one device.
pub struct ProgramCache {
    device: Arc<dyn Device>,
    disk: Option<Disk>,
    notify: Notify,
    artifacts: Mutex<HashMap<ContentHash, Arc<Container>>>,
    loaded: Mutex<HashMap<ContentHash, Arc<dyn LoadedProgram>>>,
    sets: Mutex<HashMap<String, Set>>,
    /// Filled static buffers by what they hold.
    shared: Mutex<HashMap<String, Arc<Buffer>>>,
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
            shared: Mutex::default(),
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

    /// Has notices told to `notify`.
    #[must_use]
    pub fn on_notice(mut self, notify: impl Fn(&Notice) + Send + Sync + 'static) -> ProgramCache {
        self.notify = Box::new(notify);
        self
    }

    /// The device.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// What the cache did so far.
    pub fn stats(&self) -> CacheStats {
        *lock(&self.stats)
    }

    /// A compiled program: from memory, from disk, or built. `key` is the
    /// [hash](ContentHash::of) of everything the build depends on (graph, machine, options,
    /// compiler version); `name` is for notices.
    ///
    /// Of several processes or threads that ask for the same key at once, one builds and the
    /// others wait for it. Trouble with the disk is a [`Notice`], not an error.
    ///
    /// # Errors
    /// What `build` returns.
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
        if let Lookup::Hit(container) = disk.get(key, target, &|_| {}) {
            return hit(container);
        }
        // Without a lock the worst is that two processes build the same program.
        let _guard = disk.lock(&format!("{key}.lock")).map_err(|error| {
            (self.notify)(&Notice::NotSaved {
                name: name.to_owned(),
                reason: format!("no lock: {error}"),
            });
        });
        match disk.get(key, target, &self.notify) {
            Lookup::Hit(container) => return hit(container),
            Lookup::Miss => {}
            Lookup::Bad(reason) => (self.notify)(&Notice::Rebuilt {
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
    /// What the device says.
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

    /// Allocates the buffer set of a `bo_key` and writes its static slots, without a run: what
    /// one does for every layer before anything is timed. Only static slots need data.
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
        self.with_set(container, bo_key, |set| {
            set.check(container, inputs, false)?;
            let before = set.traffic();
            set.write_static(container, inputs)?;
            Ok(set.traffic() - before)
        })
    }

    /// As [`preload`](ProgramCache::preload), but static slots are filled where they lie, so that
    /// weights need no copy besides the buffer: `fill` gets a slot's number and its bytes.
    ///
    /// `content` names what a static slot holds, or nothing. Slots of any sets with the same name
    /// and size share one buffer, filled once: programs of several prompt lengths have one copy of
    /// the weights. Shared buffers live as long as the cache.
    ///
    /// # Errors
    /// What `fill` returns and what the device says. The slot then counts as empty.
    pub fn preload_with<E: From<CacheError>>(
        &self,
        container: &Container,
        bo_key: &str,
        content: &dyn Fn(usize) -> Option<String>,
        fill: &mut Fill<'_, E>,
    ) -> Result<Traffic, E> {
        self.load(container).map_err(CacheError::from)?;
        let share = |slot| lock(&self.shared).get(&content(slot)?).cloned();
        self.with_set_sharing(container, bo_key, &share, |set| {
            let before = set.traffic();
            set.fill_static(container, fill, |slot, buffer| {
                if let Some(name) = content(slot) {
                    lock(&self.shared).entry(name).or_insert(buffer.clone());
                }
            })?;
            Ok(set.traffic() - before)
        })
    }

    /// Runs a program on the buffers of a `bo_key`. `inputs` has an entry a slot: data for
    /// `input` slots; data for `static` slots, which is used only until it was written once; none
    /// for the others.
    ///
    /// # Errors
    /// Missing, superfluous or ill-sized data (nothing is written then), a `bo_key` of another
    /// program, and what the device says.
    pub fn load_and_run(
        &self,
        container: &Container,
        bo_key: &str,
        inputs: &[Option<&[u8]>],
    ) -> Result<Call, CacheError> {
        let mut outputs = vec![Vec::new(); container.slots().len()];
        let mut call = self.load_and_run_with(container, bo_key, inputs, |slot, bytes| {
            outputs[slot] = bytes.to_vec();
        })?;
        call.outputs = outputs;
        Ok(call)
    }

    /// As [`load_and_run`](ProgramCache::load_and_run), but shows each output, by slot, where it
    /// lies instead of copying it.
    ///
    /// # Errors
    /// As [`load_and_run`](ProgramCache::load_and_run).
    pub fn load_and_run_with(
        &self,
        container: &Container,
        bo_key: &str,
        inputs: &[Option<&[u8]>],
        output: impl FnMut(usize, &[u8]),
    ) -> Result<Call, CacheError> {
        let program = self.load(container)?;
        let call = self.with_set(container, bo_key, |set| {
            set.check(container, inputs, true)?;
            set.run(&*self.device, &program, container, inputs, output)
        })?;
        lock(&self.stats).calls += 1;
        Ok(call)
    }

    /// Frees the buffers of a `bo_key`; the next call allocates and writes everything anew.
    /// Whether there were any.
    pub fn forget(&self, bo_key: &str) -> bool {
        lock(&self.sets).remove(bo_key).is_some()
    }

    /// Works on the set of a `bo_key`, made if need be; calls with the same key follow each other.
    fn with_set<T>(
        &self,
        container: &Container,
        bo_key: &str,
        work: impl FnOnce(&mut BufferSet) -> Result<T, CacheError>,
    ) -> Result<T, CacheError> {
        self.with_set_sharing(container, bo_key, &|_| None, work)
    }

    /// As [`with_set`](ProgramCache::with_set); a set made here takes the shared buffers it finds.
    fn with_set_sharing<T, E: From<CacheError>>(
        &self,
        container: &Container,
        bo_key: &str,
        share: Share<'_>,
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
                let made = BufferSet::alloc(&*self.device, container, share);
                let made = made.map_err(CacheError::from)?;
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
