//! A folder of pages that outlive the process.
//!
//! A page of a group of layers is a file, named by a hash of its tokens and all before them. A separate thread writes files,
//! one at a time and atomically, so a folder is valid whenever the process ends. If files take more room than is allowed, the
//! least recently used ones are removed. Among pages of the same age, the ends of texts go before their beginnings.

use super::file::{FileHeader, FileReader, FileWriter};
use super::page::{PageAt, PageName, PageText};
use super::{CacheIdentity, DiskError, FileLock};
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::fs::{self, DirBuilder, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Bytes that may wait to be written; a caller with more blocks.
const MAX_WAITING_BYTES: u64 = 256 << 20;

/// Receives a message about a fault of the folder: a line for the person who runs the program.
pub type Warn = Arc<dyn Fn(&str) + Send + Sync>;

/// Where pages are kept, and how many.
#[derive(Clone)]
pub struct PageFolder {
    /// The folder; one of each model and setting is made in it.
    pub path: PathBuf,
    /// Maximum bytes of the pages of a model.
    pub max_bytes: u64,
    /// Receives messages about pages that are damaged or cannot be written. Neither changes an answer: the prompt is read again.
    pub warn: Warn,
}

/// Which page goes first: the one used longest ago, at the end of its text.
type Age = (u64, Reverse<u32>, PageName);

#[derive(Clone, Copy, Debug)]
struct StoredPage {
    n_bytes: u64,
    /// Microseconds since 1970 at which it was used last.
    used: u64,
    is_written: bool,
}

#[derive(Default)]
struct StoreState {
    pages: HashMap<PageName, StoredPage>,
    ages: BTreeSet<Age>,
    total_bytes: u64,
    waiting_bytes: u64,
    /// Writing failed: no more is written.
    has_failed: bool,
}

impl StoreState {
    fn insert(&mut self, name: PageName, page: StoredPage) {
        self.remove(name);
        self.total_bytes += page.n_bytes;
        self.ages.insert((page.used, Reverse(name.depth), name));
        self.pages.insert(name, page);
    }

    fn remove(&mut self, name: PageName) {
        if let Some(page) = self.pages.remove(&name) {
            self.total_bytes -= page.n_bytes;
            self.ages.remove(&(page.used, Reverse(name.depth), name));
        }
    }
}

struct StoreShared {
    folder: PathBuf,
    identity: CacheIdentity,
    max_bytes: u64,
    warn: Warn,
    state: Mutex<StoreState>,
    /// Fewer bytes wait.
    has_room: Condvar,
}

/// Tasks of the writing thread.
enum StoreTask {
    Write {
        name: PageName,
        header: Box<FileHeader>,
        tokens: Vec<u32>,
        bytes: Vec<u8>,
    },
    /// Remembers on disk when pages were used.
    Touch(Vec<PageName>, SystemTime),
}

/// The pages of one engine on disk. Dropping it writes the waiting pages.
pub(crate) struct PageStore {
    shared: Arc<StoreShared>,
    tasks: Option<mpsc::Sender<StoreTask>>,
    thread: Option<JoinHandle<()>>,
    _lock: FileLock,
}

impl PageStore {
    /// Opens the folder of an identity, or creates it.
    ///
    /// # Errors
    /// [`DiskError::Busy`] if another process or engine uses it; a folder that cannot be created or read.
    pub(crate) fn open(at: &PageFolder, identity: &CacheIdentity) -> Result<PageStore, DiskError> {
        let folder = at.path.join(identity.folder_name());
        make_private(&folder).map_err(DiskError::io("make", &folder))?;
        let lock = FileLock::of_folder(&folder)?;
        let shared = Arc::new(StoreShared {
            state: Mutex::new(list(&folder).map_err(DiskError::io("read", &folder))?),
            folder,
            identity: identity.clone(),
            max_bytes: at.max_bytes,
            warn: Arc::clone(&at.warn),
            has_room: Condvar::new(),
        });
        shared.make_room();
        let (tasks, inbox) = mpsc::channel();
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("page-store".to_owned());
        let thread = thread.spawn(move || of_thread.work(&inbox));
        Ok(PageStore {
            thread: Some(thread.map_err(DiskError::io("start a thread for", &shared.folder))?),
            shared,
            tasks: Some(tasks),
            _lock: lock,
        })
    }

    /// Whether the page is there, or is about to be.
    pub(crate) fn has(&self, page: PageAt) -> bool {
        self.shared.lock().pages.contains_key(&page.name())
    }

    /// Whether the page can be read.
    pub(crate) fn can_read(&self, page: PageAt) -> bool {
        let state = self.shared.lock();
        let found = state.pages.get(&page.name());
        found.is_some_and(|found| found.is_written)
    }

    /// Queues a page that was last used at that time, and blocks while too much is waiting. Pages of a text have one time, so
    /// that its end goes before its beginning if there is no room for both.
    pub(crate) fn put(&self, page: PageAt, used: SystemTime, text: PageText<'_>, bytes: Vec<u8>) {
        let name = page.name();
        let n_bytes = bytes.len() as u64;
        let header = Box::new(FileHeader {
            identity: self.shared.identity.clone(),
            contents: text.contents(page.group),
            contents_bytes: n_bytes + size_of_val(text.tokens) as u64,
        });
        {
            let mut state = self.shared.lock();
            while state.waiting_bytes > 0 && state.waiting_bytes + n_bytes > MAX_WAITING_BYTES {
                let waited = self.shared.has_room.wait(state);
                state = waited.unwrap_or_else(PoisonError::into_inner);
            }
            if state.has_failed {
                return;
            }
            state.waiting_bytes += n_bytes;
            let page = StoredPage {
                n_bytes,
                used: micros(used),
                is_written: false,
            };
            state.insert(name, page);
        }
        self.send(StoreTask::Write {
            name,
            header,
            tokens: text.tokens.to_vec(),
            bytes,
        });
    }

    /// Pages were used at a time.
    pub(crate) fn touch(&self, pages: &[PageAt], now: SystemTime) {
        let used = micros(now);
        let mut touched = Vec::new();
        {
            let mut state = self.shared.lock();
            for name in pages.iter().map(|page| page.name()) {
                if let Some(page) = state.pages.get(&name).copied() {
                    state.insert(name, StoredPage { used, ..page });
                    touched.push(name);
                }
            }
        }
        self.send(StoreTask::Touch(touched, now));
    }

    /// Reads a page with `read`, which must take all bytes of the page from the reader it gets. False if the page does not
    /// exist or is damaged; a damaged page is removed, and the warning callback is called.
    pub(crate) fn read(
        &self,
        page: PageAt,
        text: PageText<'_>,
        read: &mut dyn FnMut(&mut FileReader) -> Result<(), DiskError>,
    ) -> bool {
        let path = self.shared.folder.join(page.name().file_name());
        match self.try_read(&path, page, text, read) {
            Ok(is_there) => is_there,
            Err(error) => {
                let warn = &self.shared.warn;
                warn(&format!(
                    "a cached page is not used, and its prompt is read again: {error}"
                ));
                let _ = fs::remove_file(&path);
                self.shared.lock().remove(page.name());
                false
            }
        }
    }

    fn try_read(
        &self,
        path: &Path,
        page: PageAt,
        text: PageText<'_>,
        read: &mut dyn FnMut(&mut FileReader) -> Result<(), DiskError>,
    ) -> Result<bool, DiskError> {
        let Some((contents, mut reader)) = FileReader::open(path, &self.shared.identity)? else {
            self.shared.lock().remove(page.name());
            return Ok(false);
        };
        let mut tokens = vec![0; text.tokens.len()];
        reader.read_tokens(&mut tokens)?;
        if contents != text.contents(page.group) || tokens != text.tokens {
            let problem = "it is of other tokens than its name says".to_owned();
            return Err(reader.damaged("header", problem));
        }
        read(&mut reader)?;
        reader.finish()?;
        Ok(true)
    }

    fn send(&self, task: StoreTask) {
        if let Some(tasks) = &self.tasks {
            // The thread ends only when this sender is dropped.
            let _ = tasks.send(task);
        }
    }
}

impl Drop for PageStore {
    fn drop(&mut self) {
        drop(self.tasks.take());
        if let Some(thread) = self.thread.take() {
            // It does not panic; if it did, its message was printed.
            let _ = thread.join();
        }
    }
}

impl StoreShared {
    fn lock(&self) -> MutexGuard<'_, StoreState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self, inbox: &mpsc::Receiver<StoreTask>) {
        for task in inbox {
            match task {
                StoreTask::Touch(names, now) => self.touch(&names, now),
                StoreTask::Write {
                    name,
                    header,
                    tokens,
                    bytes,
                } => {
                    let written_bytes = self.write(name, &header, &tokens, &bytes);
                    let mut state = self.lock();
                    state.waiting_bytes -= bytes.len() as u64;
                    match (state.pages.get(&name).copied(), written_bytes) {
                        (Some(page), Some(n_bytes)) => state.insert(
                            name,
                            StoredPage {
                                n_bytes,
                                is_written: true,
                                ..page
                            },
                        ),
                        _ => state.remove(name),
                    }
                    drop(state);
                    self.has_room.notify_all();
                }
            }
        }
    }

    /// Writes a page if there is room for it; returns the size of its file. `None` if there is no room, or it cannot be written.
    fn write(
        &self,
        name: PageName,
        header: &FileHeader,
        tokens: &[u32],
        bytes: &[u8],
    ) -> Option<u64> {
        if self.lock().has_failed || !self.make_room() {
            return None;
        }
        // It may have had to go itself.
        if !self.lock().pages.contains_key(&name) {
            return None;
        }
        let path = self.folder.join(name.file_name());
        let written = FileWriter::create(&path, header).and_then(|mut writer| {
            for token in tokens {
                writer.write(&token.to_le_bytes())?;
            }
            writer.write(bytes)?;
            writer.commit()
        });
        written
            .inspect_err(|error| {
                self.lock().has_failed = true;
                (self.warn)(&format!("no more pages are kept on disk: {error}"));
            })
            .ok()
    }

    /// Removes pages until all fit, including those that wait to be written. False if a file cannot be removed.
    fn make_room(&self) -> bool {
        loop {
            let name = {
                let mut state = self.lock();
                if state.total_bytes <= self.max_bytes {
                    return true;
                }
                let Some((.., name)) = state.ages.first().copied() else {
                    return true;
                };
                state.remove(name);
                name
            };
            match fs::remove_file(self.folder.join(name.file_name())) {
                Err(error) if error.kind() != ErrorKind::NotFound => return false,
                _ => {}
            }
        }
    }

    fn touch(&self, names: &[PageName], now: SystemTime) {
        for name in names {
            let file = File::options()
                .append(true)
                .open(self.folder.join(name.file_name()));
            // The time only orders pages by age. A page that was removed meanwhile has none.
            let _ = file.and_then(|file| file.set_modified(now));
        }
    }
}

fn micros(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// Creates a folder that only its owner can read: pages reveal conversations.
fn make_private(folder: &Path) -> std::io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// The pages of a folder; removes files that an interrupted process left incomplete.
fn list(folder: &Path) -> std::io::Result<StoreState> {
    let mut state = StoreState::default();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        if name.starts_with('.') && name.ends_with(".partial") {
            fs::remove_file(entry.path())?;
            continue;
        }
        let (Some(name), Ok(found)) = (PageName::parse(name), entry.metadata()) else {
            continue;
        };
        let used = found.modified().map_or(0, micros);
        let page = StoredPage {
            n_bytes: found.len(),
            used,
            is_written: true,
        };
        state.insert(name, page);
    }
    Ok(state)
}
