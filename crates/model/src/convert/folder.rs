//! The folder that a Hugging Face model is written to.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::Error;

/// An output folder. One that had to be made is removed again unless [`Folder::keep`] is called.
pub(super) struct Folder {
    path: PathBuf,
    made: bool,
}

impl Folder {
    /// # Errors
    /// [`Error::Output`] if the path is a file or looks like one, [`Error::Io`] if the folder cannot
    /// be made.
    pub(super) fn open_or_make(path: &Path) -> Result<Folder, Error> {
        if path.is_dir() {
            return Ok(Folder { path: path.to_owned(), made: false });
        }
        let looks_like_file = path.extension().is_some_and(|extension| {
            ["safetensors", "q4nx"].iter().any(|name| extension.eq_ignore_ascii_case(name))
        });
        if looks_like_file || path.exists() {
            return Err(Error::Output {
                path: path.to_owned(),
                reason: "a model of this kind is a folder (weights, config.json, tokenizer): \
                         give the folder's path"
                    .to_owned(),
            });
        }
        match std::fs::create_dir(path) {
            Ok(()) => Ok(Folder { path: path.to_owned(), made: true }),
            Err(source) if source.kind() == ErrorKind::AlreadyExists => {
                Ok(Folder { path: path.to_owned(), made: false })
            }
            Err(source) => {
                let path = path.to_owned();
                Err(Error::Io { path, action: "make the folder", source })
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The folder's contents are complete.
    pub(super) fn keep(mut self) {
        self.made = false;
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.made {
            // Only an empty folder goes; anything in it is not ours to remove.
            let _ = std::fs::remove_dir(&self.path);
        }
    }
}
