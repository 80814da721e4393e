//! Makes `crates/capi/include/millrace.h` of its sources, or with `--check` compares it.
//!
//! ```text
//! cargo run --manifest-path tools/c_header/Cargo.toml            # writes the header
//! cargo run --manifest-path tools/c_header/Cargo.toml -- --check # exit code 1 where it is old
//! ```

use std::error::Error;
use std::path::Path;
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/capi");
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml"))?;
    // It follows the modules from there.
    let builder = cbindgen::Builder::new().with_src(folder.join("src/lib.rs"));
    let mut header = Vec::new();
    builder.with_config(config).generate()?.write(&mut header);
    let path = folder.join("include/millrace.h");
    if env::args().nth(1).as_deref() != Some("--check") {
        return Ok(fs::write(&path, header)?);
    }
    match fs::read(&path)? == header {
        true => Ok(()),
        false => Err(
            "crates/capi/include/millrace.h is not what its sources say; \
             `cargo run --manifest-path tools/c_header/Cargo.toml` writes it"
                .into(),
        ),
    }
}
