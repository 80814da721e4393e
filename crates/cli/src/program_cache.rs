//! Where compiled programs are kept between runs.

use crate::exit::{Failure, Outcome};
use crate::output::Ui;
use millrace_npu::{Device, ProgramCache};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// What the place is called in the environment.
pub(crate) const VARIABLE: &str = "MILLRACE_NPU_CACHE";

/// The folder of compiled programs: [`VARIABLE`], else `millrace/npu` in the user's cache folder.
/// `None` where there is no home, or the variable is empty: nothing is kept then.
pub(crate) fn default_dir() -> Option<PathBuf> {
    if let Some(dir) = std::env::var_os(VARIABLE) {
        return Some(PathBuf::from(dir)).filter(|dir| !dir.as_os_str().is_empty());
    }
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let cache = set("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| std::env::home_dir().map(|home| home.join(".cache")));
    Some(cache?.join("millrace").join("npu"))
}

/// The cache of a device in a folder, which is made if need be.
pub(crate) fn open(device: Arc<dyn Device>, dir: &Path, ui: Ui) -> Outcome<ProgramCache> {
    let cache = ProgramCache::with_directory(device, dir).map_err(|error| {
        Failure::io(format!("cannot keep programs in {}", dir.display()), &error)
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
