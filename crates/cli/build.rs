//! Tells the program how far it is optimised, and strips function names from the released program, which saves 8 of its 55 MB. A panic
//! still reports its file and line.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Only the profiles `quick` and `dev` leave this package unoptimised.
    println!(
        "cargo::rustc-env=MILLRACE_OPT_LEVEL={}",
        env::var("OPT_LEVEL").expect("set by cargo")
    );
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    // Cargo drops `strip` from the profile of a package with settings of its own, and this package has some.
    if is("PROFILE", "release") && is("CARGO_CFG_TARGET_OS", "linux") {
        println!("cargo::rustc-link-arg-bin=millrace=-Wl,-s");
    }
}
