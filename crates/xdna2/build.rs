//! Names the compiler by a hash of its inputs: its own sources and facts, the code that reads them, the form of plans,
//! and the machine's programs.

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
