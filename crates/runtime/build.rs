//! Names the engine after what it is built from: what it caches on disk is good for the very arithmetic that computed it.

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
