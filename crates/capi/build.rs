//! Sets the name by which linked programs look for the library. Without it, a program that was linked by path, as
//! CMake does, would look for that path.

fn main() {
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libmillrace_c.so");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
