//! The answers of a batch on disk.

use std::collections::HashSet;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::BatchError;

/// A file to which answers are appended.
#[derive(Debug)]
pub struct BatchOutput {
    file: File,
    path: PathBuf,
}

/// The requests for which a file has answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutputLines {
    ids: HashSet<String>,
    /// Number of errors among them.
    pub(crate) n_failed: usize,
}

impl OutputLines {
    /// Whether a request has an answer.
    pub fn has(&self, custom_id: &str) -> bool {
        self.ids.contains(custom_id)
    }

    /// The number of answers.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }
}

impl BatchOutput {
    /// Opens a file, or creates one. An incomplete line at its end, left by a killed process, is cut off.
    ///
    /// # Errors
    /// A file that is not a batch's, that cannot be written, or that another process writes to.
    pub fn open(path: &Path) -> Result<(BatchOutput, OutputLines), BatchError> {
        let failed = |error| BatchError::File {
            file: path.to_owned(),
            error,
        };
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path);
        let mut file = file.map_err(failed)?;
        // A device or a pipe may have no end.
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(BatchError::Foreign {
                file: path.to_owned(),
                line: 1,
                message: "this is not a regular file".to_owned(),
            });
        }
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(BatchError::Locked {
                    file: path.to_owned(),
                });
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(failed)?;
        let n_whole = text
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);
        let held = held(&text[..n_whole]).map_err(|(line, message)| BatchError::Foreign {
            file: path.to_owned(),
            line,
            message,
        })?;
        // A file of another kind may have no line end at all, and must not be emptied.
        if n_whole < text.len() && !begins_an_answer(&text[n_whole..]) {
            return Err(BatchError::Foreign {
                file: path.to_owned(),
                line: held.len() + 1,
                message: "it is not the beginning of one".to_owned(),
            });
        }
        file.set_len(n_whole as u64).map_err(failed)?;
        file.seek(SeekFrom::End(0)).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        sync_folder(path).map_err(failed)?;
        let path = path.to_owned();
        Ok((BatchOutput { file, path }, held))
    }

    /// Appends answers. They are on disk when this returns: one sync for all, since a busy disk is slow.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn add(&mut self, answers: &[Value]) -> Result<(), BatchError> {
        let lines: String = answers.iter().map(|answer| format!("{answer}\n")).collect();
        let written = self
            .file
            .write_all(lines.as_bytes())
            .and_then(|()| self.file.sync_data());
        written.map_err(|error| BatchError::File {
            file: self.path.clone(),
            error,
        })
    }
}

/// Beginning of every answer's line.
const START: &[u8] = b"{\"id\":\"batch_req_";

fn begins_an_answer(text: &[u8]) -> bool {
    let n = text.len().min(START.len());
    text[..n] == START[..n]
}

/// The requests that the lines answer; or the number of an invalid line, and the reason.
fn held(text: &[u8]) -> Result<OutputLines, (usize, String)> {
    let mut held = OutputLines::default();
    let lines = text.split_inclusive(|byte| *byte == b'\n');
    for (i, line) in lines.enumerate() {
        let at = |message: String| (i + 1, message);
        let value: Value = serde_json::from_slice(line).map_err(|error| at(error.to_string()))?;
        let id = value.get("custom_id").and_then(Value::as_str);
        let id = id.ok_or_else(|| at("it has no custom_id".to_owned()))?;
        // A request has a custom_id too, and its file must not be taken for one of answers.
        if value.get("response").is_none() && value.get("error").is_none() {
            return Err(at("it has neither `response` nor `error`".to_owned()));
        }
        if !held.ids.insert(id.to_owned()) {
            return Err(at(format!("custom_id \"{id}\" is there twice")));
        }
        held.n_failed += usize::from(is_failure(&value));
    }
    Ok(held)
}

/// Whether an answer is an error.
pub(crate) fn is_failure(answer: &Value) -> bool {
    answer["response"]["status_code"] != 200
}

/// Syncs the folder: only then is a file's name on disk.
#[cfg(unix)]
fn sync_folder(path: &Path) -> std::io::Result<()> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(not(unix))]
fn sync_folder(_: &Path) -> std::io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A folder in memory if possible: the tests sync some thousand times.
    fn folder() -> tempfile::TempDir {
        let shared = Path::new("/dev/shm");
        let in_memory = tempfile::tempdir_in(shared);
        in_memory.or_else(|_| tempfile::tempdir()).unwrap()
    }

    fn answer(id: &str) -> Value {
        json!({"id": "batch_req_x", "custom_id": id, "response": {"status_code": 200, "body": {"text": "ä\n\"}"}}, "error": null})
    }

    /// If killed at any byte, a batch continues with the complete lines. The result is the same as without the kill.
    #[test]
    fn a_file_cut_anywhere_goes_on() {
        let folder = folder();
        let path = folder.path().join("out.jsonl");
        let ids = ["a", "b", "c"];
        let (mut output, held) = BatchOutput::open(&path).unwrap();
        assert!(held.is_empty());
        ids.iter().for_each(|id| output.add(&[answer(id)]).unwrap());
        drop(output);
        let whole = std::fs::read(&path).unwrap();
        for n in 0..=whole.len() {
            std::fs::write(&path, &whole[..n]).unwrap();
            let (mut output, held) = BatchOutput::open(&path).unwrap();
            let n_lines = whole[..n].iter().filter(|byte| **byte == b'\n').count();
            assert_eq!(held.len(), n_lines, "{n} bytes");
            for id in ids.iter().filter(|id| !held.has(id)) {
                output.add(&[answer(id)]).unwrap();
            }
            drop(output);
            assert!(std::fs::read(&path).unwrap() == whole, "cut at {n}");
        }
    }

    #[test]
    fn files_of_others_are_left_alone() {
        let folder = folder();
        let path = folder.path().join("notes");
        for text in [
            "my notes",
            "my notes\n",
            "{\"a\": 1}\n",
            "{\"custom_id\": \"a\"}\n{\"custom_id\": \"a\"}\n",
            // Requests, the last without a line end.
            "{\"custom_id\": \"a\", \"url\": \"/v1/completions\"}\n",
            "{\"custom_id\": \"a\", \"url\": \"/v1/completions\"}",
            "{\"id\": \"b\", \"text\": \"a line of mine\"}",
        ] {
            std::fs::write(&path, text).unwrap();
            assert!(
                matches!(BatchOutput::open(&path), Err(BatchError::Foreign { .. })),
                "{text}"
            );
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        // Neither has an end.
        for device in ["/dev/full", "/dev/zero"].map(Path::new) {
            if device.exists() {
                let found = BatchOutput::open(device);
                assert!(matches!(found, Err(BatchError::Foreign { .. })));
            }
        }
        let path = folder.path().join("out");
        let first = BatchOutput::open(&path).unwrap();
        assert!(matches!(
            BatchOutput::open(&path),
            Err(BatchError::Locked { .. })
        ));
        drop(first);
        assert!(BatchOutput::open(&path).is_ok());
    }
}
