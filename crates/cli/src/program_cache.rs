//! Compiled programs that are kept between runs.

use crate::exit::{CommandFailure, CommandResult};
use crate::output::Ui;
use millrace_npu::{Device, ProgramCache};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// The cache of a device in a folder, which is made if need be.
pub(crate) fn open(device: Arc<dyn Device>, dir: &Path, ui: Ui) -> CommandResult<ProgramCache> {
    let cache = ProgramCache::with_directory(device, dir).map_err(|error| {
        CommandFailure::io(format!("cannot keep programs in {}", dir.display()), &error)
    })?;
    // Each program looks into the folder: what is wrong with it is worth one line.
    let said = Mutex::new(BTreeSet::new());
    Ok(cache.on_notice(move |notice| {
        let text = notice.to_string();
        let mut said = said.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if said.insert(text.clone()) {
            ui.warn(text);
        }
    }))
}
