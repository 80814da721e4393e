//! Leaves the names of functions out of the released program: 8 of its 55 MB. A panic tells its file and line without them.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    // Cargo forgets `strip` of the profile for a package with settings of its own, and this one has them.
    if is("PROFILE", "release") && is("CARGO_CFG_TARGET_OS", "linux") {
        println!("cargo::rustc-link-arg-bin=millrace=-Wl,-s");
    }
}
