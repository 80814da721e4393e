//! The name by which programs that are linked with the library ask for it. Without one those that were given its path, as CMake gives it, would ask for
//! that path.

fn main() {
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libmillrace_c.so");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
