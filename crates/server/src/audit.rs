//! The audit log: who asked for what, and the outcome, one JSON object on each line.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use crate::api::time::now;

/// A file that lines are appended to.
#[derive(Debug)]
pub(crate) struct AuditLog {
    file: Mutex<File>,
    /// Whether bodies of requests are logged too.
    pub(crate) with_text: bool,
}

impl AuditLog {
    /// Opens a file for appending, and creates it if there is none. On Unix, only its owner may read a new file.
    pub(crate) fn open(path: &Path, with_text: bool) -> std::io::Result<AuditLog> {
        let mut options = OpenOptions::new();
        options.append(true).create(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        Ok(AuditLog {
            file: Mutex::new(options.open(path)?),
            with_text,
        })
    }

    /// Writes a line, with the time. A failure is reported on standard error.
    pub(crate) fn write(&self, line: &Value) {
        let mut with_time = json!({"time": now()});
        if let (Some(with_time), Some(line)) = (with_time.as_object_mut(), line.as_object()) {
            with_time.extend(line.clone());
        }
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        // In one write, so that lines of several processes do not mix.
        if let Err(error) = file.write_all(format!("{with_time}\n").as_bytes()) {
            crate::app::log(
                &json!({"audit": "a line could not be written", "error": error.to_string()}),
            );
        }
    }
}

/// Where the outcome of a request is logged.
#[derive(Clone, Debug)]
pub(crate) struct RequestLog {
    /// The request's id.
    pub(crate) request: Arc<str>,
    pub(crate) to_stderr: bool,
    pub(crate) audit: Option<Arc<AuditLog>>,
}

impl RequestLog {
    pub(crate) fn write(&self, line: &Value) {
        if self.to_stderr {
            crate::app::log(line);
        }
        if let Some(audit) = &self.audit {
            audit.write(line);
        }
    }
}
