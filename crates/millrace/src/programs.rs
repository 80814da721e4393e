//! Where compiled programs of NPUs are kept between runs.

use std::path::PathBuf;

/// The environment variable for the place.
pub const PROGRAMS_VARIABLE: &str = "MILLRACE_NPU_CACHE";

/// The folder of compiled programs: [`PROGRAMS_VARIABLE`], else `millrace/npu` in the user's cache folder. `None`
/// where there is no home, or the variable is empty: then nothing is kept.
pub fn programs_folder() -> Option<PathBuf> {
    if let Some(dir) = std::env::var_os(PROGRAMS_VARIABLE) {
        return Some(PathBuf::from(dir)).filter(|dir| !dir.as_os_str().is_empty());
    }
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let cache = set("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| std::env::home_dir().map(|home| home.join(".cache")));
    Some(cache?.join("millrace").join("npu"))
}
