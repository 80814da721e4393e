//! The folder that a Hugging Face model is written to.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use millrace_format::safetensors::{INDEX_FILE, MODEL_FILE};

use super::{Error, OutputContainer};

/// An output folder. One that had to be made is removed again unless [`Folder::keep`] is called.
pub(super) struct Folder {
    path: PathBuf,
    made: bool,
    /// Folders within it that had to be made too.
    within: Vec<PathBuf>,
}

impl Folder {
    /// # Errors
    /// [`Error::Output`] if the path is a file or looks like one, or if the folder holds weights of
    /// another kind, which a reader would take for the model; [`Error::Io`] if it cannot be made.
    pub(super) fn open_or_make(path: &Path, container: OutputContainer) -> Result<Folder, Error> {
        if path.is_dir() {
            refuse_other_weights(path, container)?;
            return Ok(Folder {
                path: path.to_owned(),
                made: false,
                within: Vec::new(),
            });
        }
        let looks_like_file = path.extension().is_some_and(|extension| {
            ["safetensors", "q4nx"]
                .iter()
                .any(|name| extension.eq_ignore_ascii_case(name))
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
            Ok(()) => Ok(Folder {
                path: path.to_owned(),
                made: true,
                within: Vec::new(),
            }),
            Err(source) if source.kind() == ErrorKind::AlreadyExists => Ok(Folder {
                path: path.to_owned(),
                made: false,
                within: Vec::new(),
            }),
            Err(source) => {
                let path = path.to_owned();
                Err(Error::Io {
                    path,
                    action: "make the folder",
                    source,
                })
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the folder within it that a file of this name needs, if it needs one.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn make_within(&mut self, file: &str) -> Result<(), Error> {
        let Some((name, _)) = file.rsplit_once('/') else {
            return Ok(());
        };
        let path = self.path.join(name);
        match std::fs::create_dir(&path) {
            Ok(()) => self.within.push(path),
            Err(source) if source.kind() == ErrorKind::AlreadyExists => {}
            Err(source) => {
                return Err(Error::Io {
                    path,
                    action: "make the folder",
                    source,
                });
            }
        }
        Ok(())
    }

    /// The folder's contents are complete.
    pub(super) fn keep(mut self) {
        self.made = false;
        self.within.clear();
    }
}

fn refuse_other_weights(path: &Path, container: OutputContainer) -> Result<(), Error> {
    let io = |source| Error::Io {
        path: path.to_owned(),
        action: "read the folder",
        source,
    };
    for entry in std::fs::read_dir(path).map_err(io)? {
        let name = entry.map_err(io)?.file_name();
        let Some(name) = name.to_str() else { continue };
        let other = match container {
            // The writer of safetensors looks for other safetensors itself.
            OutputContainer::Safetensors => name.ends_with(".q4nx") || name.ends_with(".gguf"),
            _ => name == INDEX_FILE || name == MODEL_FILE || name.ends_with(".gguf"),
        };
        if other {
            return Err(Error::Output {
                path: path.to_owned(),
                reason: format!("the folder already holds a model ({name}): give another path"),
            });
        }
    }
    Ok(())
}

impl Drop for Folder {
    fn drop(&mut self) {
        for path in &self.within {
            let _ = std::fs::remove_dir(path);
        }
        if self.made {
            // Only an empty folder is removed; other contents are not ours to remove.
            let _ = std::fs::remove_dir(&self.path);
        }
    }
}
