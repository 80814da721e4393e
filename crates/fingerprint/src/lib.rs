//! For build scripts: a hash of the files that a crate is built from.
//!
//! A target's plans and programs are cached on disk. Only the very compiler that made them may use them. So the compiler needs a
//! name that changes with every source and every table of facts: the crate's version alone stays the same while somebody works
//! on it.
//!
//! ```no_run
//! // build.rs
//! fn main() -> std::io::Result<()> {
//!     millrace_fingerprint::emit("MY_COMPILER", &["src", "data", "../plan/src"])
//! }
//! ```

#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// Sets the environment variable `name` for the crate under construction to `VERSION HASH`, and has cargo run the script again
/// when a file changes. Folders are relative to the crate. A missing folder is left out: in a packaged crate `../plan/src` is
/// another package, whose version this one's fixes.
///
/// # Errors
/// A folder or a file of it cannot be read.
pub fn emit(name: &str, folders: &[&str]) -> io::Result<()> {
    for folder in folders.iter().filter(|folder| Path::new(folder).is_dir()) {
        println!("cargo::rerun-if-changed={folder}");
    }
    let version = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let hash = hash(Path::new(""), folders)?;
    println!("cargo::rustc-env={name}={version} {hash:016x}");
    Ok(())
}

/// The hash of the paths and the contents of all files in `folders` of `root`, in the order of their paths.
///
/// # Errors
/// As [`emit`].
pub fn hash(root: &Path, folders: &[&str]) -> io::Result<u64> {
    let mut found = Vec::new();
    for folder in folders {
        let folder = root.join(folder);
        if folder.is_dir() {
            files(&folder, &mut found)?;
        }
    }
    found.sort();
    let mut state = 0xcbf2_9ce4_8422_2325;
    for path in found {
        let name = path.strip_prefix(root).unwrap_or(&path);
        state = mixed(state, name.to_string_lossy().as_bytes());
        state = mixed(state, &[0]);
        state = mixed(state, &fs::read(&path)?);
    }
    Ok(state)
}

/// FNV-1a, 64 bits: it distinguishes versions and is no protection against attackers.
fn mixed(state: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(state, |state, byte| {
        (state ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        match path.is_dir() {
            true => files(&path, found)?,
            false => found.push(path),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_and_every_name_counts() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        fs::create_dir_all(at("src/deep")).unwrap();
        fs::write(at("src/lib.rs"), "a").unwrap();
        fs::write(at("src/deep/mod.rs"), "b").unwrap();
        let now = || hash(root.path(), &["src", "absent"]).unwrap();
        let first = now();
        assert_eq!(first, now());

        fs::write(at("src/deep/mod.rs"), "c").unwrap();
        let changed = now();
        assert_ne!(first, changed);

        fs::rename(at("src/deep/mod.rs"), at("src/deep/new.rs")).unwrap();
        assert_ne!(changed, now());

        fs::write(at("elsewhere"), "d").unwrap();
        fs::rename(at("src/deep/new.rs"), at("src/deep/mod.rs")).unwrap();
        assert_eq!(changed, now());
    }
}
