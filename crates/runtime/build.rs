//! Fingerprints the engine's sources: its caches on disk are valid only for the exact arithmetic that computed them.

fn main() -> std::io::Result<()> {
    millrace_fingerprint::emit(
        "MILLRACE_ENGINE",
        &[
            "src",
            "../kernels/src",
            "../graph/src",
            "../model/src",
            "../quant/src",
        ],
    )
}
