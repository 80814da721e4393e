//! Names the compiler after what it is built from: its own sources and facts, how they are read, the form of plans, and the machine's programs.

fn main() -> std::io::Result<()> {
    millrace_fingerprint::emit(
        "MILLRACE_XDNA2_COMPILER",
        &[
            "src",
            "data",
            "../facts/src",
            "../plan/src",
            "../xdna2-machine/src",
            "../xdna2-machine/data",
        ],
    )
}
