//! The model `demo`, as bytes of a GGUF file. It is a package of its own because registries bound what one may weigh.

/// Bytes at an address that suits every tensor alignment GGUF files use.
#[repr(C, align(64))]
struct AlignedBytes<T: ?Sized>(T);

static FILE: &AlignedBytes<[u8]> = &AlignedBytes(*include_bytes!("../demo.gguf"));

/// The file, at an address that is a multiple of 64.
pub static DEMO: &[u8] = &FILE.0;
