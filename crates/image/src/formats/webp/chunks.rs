//! Places of a file's chunks, as the decoder finds them.

/// The first chunk of a kind in a file that is not animated, as far as the file has it.
///
/// A simple file is one chunk; in an extended one others follow the first. The ends are those that the decoder looks up to
/// (`WebPDecoder::read_data` of image-webp 0.2.4).
pub(super) fn find<'a>(file: &'a [u8], kind: &[u8; 4]) -> Option<&'a [u8]> {
    let riff_bytes = u64::from(number(file, 4)?);
    let first = RiffChunk::at(file, 12)?;
    if first.kind != b"VP8X" {
        return (first.kind == kind).then_some(first.data);
    }
    let mut at = first.end;
    let end = at + riff_bytes.saturating_sub(12);
    while at < end {
        let chunk = RiffChunk::at(file, at)?;
        if chunk.kind == kind {
            return Some(chunk.data);
        }
        at = chunk.end;
    }
    None
}

struct RiffChunk<'a> {
    kind: &'a [u8],
    /// Cut off where the file ends.
    data: &'a [u8],
    /// Place of the next one, which may be behind the file's end.
    end: u64,
}

impl RiffChunk<'_> {
    fn at(file: &[u8], at: u64) -> Option<RiffChunk<'_>> {
        let start = usize::try_from(at).ok()?;
        let kind = file.get(start..)?.get(..4)?;
        let n_bytes = number(file, start + 4)?;
        let rest = &file[start + 8..];
        let padded_bytes = n_bytes.saturating_add(n_bytes & 1);
        Some(RiffChunk {
            kind,
            data: &rest[..rest.len().min(n_bytes as usize)],
            end: at + 8 + u64::from(padded_bytes),
        })
    }
}

/// A little-endian number of 32 bits.
fn number(file: &[u8], at: usize) -> Option<u32> {
    let bytes = file.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes))
}
