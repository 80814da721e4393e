//! Walks as the dimensions of descriptors.

use millrace_xdna2_machine::program::PatternWalk;
use millrace_xdna2_words::WordField;
use millrace_xdna2_words::tile::TileKind;

/// A walk as a descriptor's fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WalkFields {
    /// Byte of the first word in its buffer.
    pub(crate) offset_bytes: u64,
    /// Length and dimensions.
    pub(crate) fields: Vec<(WordField, u64)>,
    /// Executions of the descriptor that the walk takes.
    pub(crate) executions: u64,
}

/// Bytes of a word.
const WORD: u64 = 4;

const WRAPS: [WordField; 3] = [WordField::D0Wrap, WordField::D1Wrap, WordField::D2Wrap];
const STEPS: [WordField; 4] = [
    WordField::D0Step,
    WordField::D1Step,
    WordField::D2Step,
    WordField::D3Step,
];

/// Dimensions of a kind's descriptors, and the largest of a wrap field.
fn limits(kind: TileKind) -> (usize, u64) {
    match kind {
        TileKind::Core => (3, 255),
        TileKind::Memory => (4, 1023),
        TileKind::Shim => (3, 1023),
    }
}

/// The fields of a walk over elements of so many bytes.
pub(super) fn fields(
    walk: &PatternWalk,
    size_bytes: u64,
    kind: TileKind,
) -> Result<WalkFields, String> {
    let walk = walk.canonical();
    let whole = |n: u64| n.is_multiple_of(WORD).then_some(n / WORD);
    let bytes = |n: i64| u64::try_from(n).ok().map(|n| n * size_bytes);
    let not_words = || format!("{walk:?} of {size_bytes}-byte elements is no walk of words");
    let offset_bytes = bytes(walk.offset)
        .filter(|n| n % WORD == 0)
        .ok_or_else(not_words)?;
    // (size, step) in words, the outermost first.
    let mut dims: Vec<(u64, u64)> = Vec::new();
    let mut repeat = 1;
    for (d, &(size, stride)) in walk.dims.iter().enumerate() {
        let size = u64::try_from(size).map_err(|_| not_words())?;
        if stride == 0 && d == 0 && kind == TileKind::Shim {
            repeat = size;
        } else if d + 1 == walk.dims.len() && stride == 1 {
            dims.push((whole(size * size_bytes).ok_or_else(not_words)?, 1));
        } else {
            let step = bytes(stride).filter(|&n| n > 0).and_then(whole);
            let step = step.filter(|_| d + 1 < walk.dims.len() || size_bytes == WORD);
            dims.push((size, step.ok_or_else(not_words)?));
        }
    }
    if walk.dims.is_empty() {
        dims.push((whole(size_bytes).ok_or_else(not_words)?, 1));
    }
    dims.retain(|d| d.0 != 1);
    let (room, most) = limits(kind);
    let (iteration, dims) = arrange(dims, room, most, kind).ok_or_else(|| {
        format!("{walk:?} of {size_bytes}-byte elements has more dimensions than a descriptor")
    })?;
    let length: u64 = dims.iter().map(|d| d.0).product();
    let mut fields = vec![(WordField::Length, length)];
    for (d, &(size, step)) in dims.iter().rev().enumerate() {
        if d + 1 < dims.len() {
            fields.push((WRAPS[d], size));
        }
        fields.push((STEPS[d], step - 1));
    }
    let (n_iterations, step) = iteration.unwrap_or((1, 1));
    if n_iterations > 1 {
        fields.push((WordField::IterationWrap, n_iterations - 1));
        fields.push((WordField::IterationStep, step - 1));
    }
    let executions = repeat * n_iterations;
    if executions > 256 {
        return Err(format!("{executions} executions of a task; 256 at most"));
    }
    Ok(WalkFields {
        offset_bytes,
        fields,
        executions,
    })
}

type Dimensions = Vec<(u64, u64)>;

/// Splits sizes beyond their fields, and turns the outermost dimension into an iteration if there is one too many.
fn arrange(
    dims: Dimensions,
    room: usize,
    most: u64,
    kind: TileKind,
) -> Option<(Option<(u64, u64)>, Dimensions)> {
    if let Some(split) = split(&dims, most).filter(|split| split.len() <= room) {
        return Some((None, split));
    }
    let (outer, inner) = dims.split_first()?;
    let split = split(inner, most).filter(|split| split.len() <= room);
    let is_allowed = kind == TileKind::Shim && outer.0 <= 64;
    split
        .filter(|_| is_allowed)
        .map(|split| (Some(*outer), split))
}

/// Every dimension but the outermost in factors of at most `most`.
fn split(dims: &[(u64, u64)], most: u64) -> Option<Dimensions> {
    // A walk in order has no wrap at all.
    let mut out = Vec::with_capacity(dims.len() + 2);
    for (d, &(size, step)) in dims.iter().enumerate() {
        if d == 0 {
            out.push((size, step));
            continue;
        }
        let (mut rest, mut step, mut factors) = (size, step, Vec::new());
        while rest > most {
            let factor = (2..=most)
                .rev()
                .find(|&factor| rest.is_multiple_of(factor))?;
            factors.push((factor, step));
            step *= factor;
            rest /= factor;
        }
        factors.push((rest, step));
        out.extend(factors.into_iter().rev());
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // A test may panic.
    use super::*;

    fn of(
        offset: i64,
        dims: &[(i64, i64)],
        size: u64,
        kind: TileKind,
    ) -> Result<WalkFields, String> {
        let dims = dims.to_vec();
        fields(&PatternWalk { offset, dims }, size, kind)
    }

    #[test]
    fn walks_of_a_gemm() {
        use WordField::*;
        // 8 × 8 blocks of bf16 from [64, 256] in a memory tile.
        let blocks = of(64, &[(32, 8), (64, 256), (8, 1)], 2, TileKind::Memory).unwrap();
        assert_eq!(blocks.offset_bytes, 128);
        let expected = [
            (Length, 32 * 64 * 4),
            (D0Wrap, 4),
            (D0Step, 0),
            (D1Wrap, 64),
            (D1Step, 127),
            (D2Step, 3),
        ];
        assert_eq!(blocks.fields, expected);
        // A run longer than a wrap is split; four dimensions of a shim have an iteration.
        let rows = of(0, &[(65, 20000), (2, 9000), (4096, 1)], 4, TileKind::Shim);
        assert!(rows.is_err(), "{rows:?}");
        let rows = of(0, &[(3, 8192), (2048, 1)], 4, TileKind::Shim).unwrap();
        let expected = [
            (Length, 6144),
            (D0Wrap, 512),
            (D0Step, 0),
            (D1Wrap, 4),
            (D1Step, 511),
            (D2Step, 8191),
        ];
        assert_eq!(rows.fields, expected);
        let panels = of(
            0,
            &[(5, 4096), (2, 1024), (3, 128), (16, 1)],
            4,
            TileKind::Shim,
        )
        .unwrap();
        assert_eq!(panels.executions, 5);
        assert!(
            panels
                .fields
                .ends_with(&[(IterationWrap, 4), (IterationStep, 4095)])
        );
        let repeated = of(0, &[(7, 0), (16, 1)], 4, TileKind::Shim).unwrap();
        assert_eq!(
            (repeated.executions, &repeated.fields[..1]),
            (7, &[(Length, 16)][..])
        );
    }

    #[test]
    fn what_is_no_walk_of_words_is_refused() {
        for (offset, dims, size) in [
            (1, &[(8, 1)][..], 2),
            (0, &[(7, 1)], 2),
            (0, &[(8, 2)], 2),
            (0, &[(4, 3), (2, 1)], 2),
            (0, &[(4, -4), (2, 1)], 4),
            (0, &[(3, 8), (3, 0), (2, 1)], 4),
            (0, &[(300, 0), (2, 1)], 4),
        ] {
            assert!(of(offset, dims, size, TileKind::Shim).is_err(), "{dims:?}");
        }
    }
}
