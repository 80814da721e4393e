//! Compiled programs that are kept between runs.

use crate::exit::{CommandFailure, CommandResult};
use crate::output::Ui;
use millrace_npu::{Device, ProgramCache};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Opens a device's cache in a folder, which is created if it does not exist.
pub(crate) fn open(device: Arc<dyn Device>, dir: &Path, ui: Ui) -> CommandResult<ProgramCache> {
    let cache = ProgramCache::with_directory(device, dir).map_err(|error| {
        CommandFailure::io(format!("cannot keep programs in {}", dir.display()), &error)
    })?;
    // Each program reads the folder, but a fault in it is worth only one line.
    let said = Mutex::new(BTreeSet::new());
    Ok(cache.on_notice(move |notice| {
        let text = notice.to_string();
        let mut said = said.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if said.insert(text.clone()) {
            ui.warn(text);
        }
    }))
}
