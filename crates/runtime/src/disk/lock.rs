//! A lock between processes.

use super::DiskError;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};

/// A file that one process has locked. The system releases the lock when the process ends, in whatever way.
#[derive(Debug)]
pub struct FileLock {
    /// Holds the lock while it is open.
    _file: File,
    path: PathBuf,
    /// Whether the file is removed with the lock.
    is_temporary: bool,
}

impl FileLock {
    /// Locks a file that is replaced as a whole, by a hidden file beside it that is removed with the lock.
    ///
    /// # Errors
    /// [`DiskError::Busy`]; [`DiskError::Io`] if no file can be created.
    pub fn beside(path: &Path) -> Result<FileLock, DiskError> {
        let mut name = OsString::from(".");
        name.push(path.file_name().unwrap_or_default());
        name.push(".lock");
        FileLock::take(&path.with_file_name(name), path, cfg!(unix))
    }

    /// Locks a folder, by a file in it that stays.
    pub(crate) fn of_folder(folder: &Path) -> Result<FileLock, DiskError> {
        FileLock::take(&folder.join("LOCK"), folder, false)
    }

    fn take(path: &Path, subject: &Path, is_temporary: bool) -> Result<FileLock, DiskError> {
        loop {
            let options = OpenOptions::new()
                .create(true)
                .truncate(false)
                .write(true)
                .open(path);
            let file = options.map_err(DiskError::io("lock", subject))?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    return Err(DiskError::Busy {
                        path: subject.to_owned(),
                    });
                }
                Err(TryLockError::Error(error)) => {
                    return Err(DiskError::io("lock", subject)(error));
                }
            }
            // The previous holder may have removed the file meanwhile: then the lock is on a file without a name.
            if is_same(&file, path) {
                return Ok(FileLock {
                    _file: file,
                    path: path.to_owned(),
                    is_temporary,
                });
            }
        }
    }
}

#[cfg(unix)]
fn is_same(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let at = |found: fs::Metadata| (found.dev(), found.ino());
    let both = file
        .metadata()
        .map(at)
        .ok()
        .zip(fs::metadata(path).map(at).ok());
    both.is_some_and(|(held, named)| held == named)
}

#[cfg(not(unix))]
fn is_same(_: &File, _: &Path) -> bool {
    true
}

impl Drop for FileLock {
    fn drop(&mut self) {
        if self.is_temporary {
            // While the lock is held: a file that another process makes afterwards belongs to that process.
            let _ = fs::remove_file(&self.path);
        }
    }
}
