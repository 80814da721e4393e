//! Names the compiler after its inputs: its own sources and facts, how they are read, and the form of plans.

fn main() -> std::io::Result<()> {
    millrace_fingerprint::emit(
        "MILLRACE_RK3588_COMPILER",
        &["src", "data", "../facts/src", "../plan/src"],
    )
}
