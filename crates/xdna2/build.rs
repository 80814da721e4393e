//! Names the compiler: a hash of what this crate is built from. Plans and programs in a cache on
//! disk are used by the very compiler that made them only.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// FNV-1a, 64 bits: it tells versions apart and guards against nobody.
fn hash(mut hash: u64, bytes: &[u8]) -> u64 {
    for byte in bytes {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash
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

fn main() -> io::Result<()> {
    let mut found = Vec::new();
    // The form of plans is another crate's, that of programs the machine's; where they lie elsewhere their versions
    // are fixed by this one's.
    let machine = ["../xdna2-machine/src", "../xdna2-machine/data"];
    for folder in ["src", "data", "../plan/src"].into_iter().chain(machine) {
        if Path::new(folder).is_dir() {
            println!("cargo::rerun-if-changed={folder}");
            files(Path::new(folder), &mut found)?;
        }
    }
    found.sort();
    let mut state = 0xcbf2_9ce4_8422_2325;
    for path in found {
        state = hash(state, path.to_string_lossy().as_bytes());
        state = hash(state, &fs::read(&path)?);
    }
    let version = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    println!("cargo::rustc-env=MILLRACE_XDNA2_COMPILER={version} {state:016x}");
    Ok(())
}
