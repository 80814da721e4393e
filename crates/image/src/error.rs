//! Reasons why a file gives no image.

/// Faults of an image. Every message names the file as the user did.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The bytes have no supported format.
    #[error(
        "{name} is no image that is read here: it begins with `{found}`; give a PNG, JPEG or WebP file"
    )]
    Unknown {
        /// The file.
        name: String,
        /// Its first bytes, escaped.
        found: String,
    },
    /// The decoder gave up.
    #[error("{name} is a broken {format} file: {reason}")]
    Broken {
        /// The file.
        name: String,
        /// `PNG`, `JPEG` or `WebP`.
        format: &'static str,
        /// The decoder's message.
        reason: String,
    },
    /// Several frames.
    #[error("{name} is an animated {format} file; give one image, such as a frame saved as PNG")]
    Animated {
        /// The file.
        name: String,
        /// `PNG` or `WebP`.
        format: &'static str,
    },
    /// The image has more pixels than the limit.
    #[error(
        "{name} has {width} × {height} pixels, and at most {} million are read; scale it down first",
        limit / 1_000_000
    )]
    TooLarge {
        /// The file.
        name: String,
        /// Pixels a row.
        width: u32,
        /// Rows.
        height: u32,
        /// Most pixels that are read.
        limit: u64,
    },
    /// Decoding it takes more memory than the limit.
    #[error(
        "{name}: decoding {format} of {width} × {height} pixels takes {} MiB, and at most {} are taken; give it in another \
         format, with fewer bits a pixel, with shorter rows or scaled down",
        needed_bytes.div_ceil(1 << 20),
        limit_bytes >> 20
    )]
    TooMuchMemory {
        /// The file.
        name: String,
        /// `PNG`, `JPEG` or `WebP`.
        format: &'static str,
        /// Pixels a row.
        width: u32,
        /// Rows.
        height: u32,
        /// Most bytes that are held at a time.
        needed_bytes: u64,
        /// The limit of bytes.
        limit_bytes: u64,
    },
    /// The file has more bytes than the limit.
    #[error("{name} is {found_bytes} bytes long, and at most {limit_bytes} are read as an image")]
    TooLong {
        /// The file.
        name: String,
        /// Its length.
        found_bytes: u64,
        /// Most bytes that are read.
        limit_bytes: u64,
    },
    /// Too long for a vision encoder that keeps aspect ratios.
    #[error(
        "an image of {width} × {height} pixels is more than {limit} times as long as it is wide, which this model does not take; \
         cut it into parts"
    )]
    Aspect {
        /// Pixels a row.
        width: usize,
        /// Rows.
        height: usize,
        /// Bound of the longer side over the shorter.
        limit: usize,
    },
}
