//! Seeded data and conversions for references.

use half::bf16;
use millrace_npu::Element;

/// A stream of random numbers (splitmix64).
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in −1 … 1, on a grid of 2⁻²³.
    pub(super) fn uniform(&mut self) -> f32 {
        let bits = (self.next() >> 40) as f32;
        bits * (1.0 / (1 << 23) as f32) - 1.0
    }

    /// `n` values in −scale … scale, rounded to bf16, as little-endian bytes.
    pub(super) fn bf16_bytes(&mut self, n: u64, scale: f32) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(2 * n as usize);
        for _ in 0..n {
            bytes.extend_from_slice(&bf16::from_f32(scale * self.uniform()).to_le_bytes());
        }
        bytes
    }
}

impl Random {
    /// `n` operands: bytes over their whole range, or bf16 in −1 … 1.
    pub(super) fn bytes(&mut self, element: Element, n: u64) -> Vec<u8> {
        match element {
            Element::I8 => (0..n).map(|_| (self.next() >> 40) as u8).collect(),
            _ => self.bf16_bytes(n, 1.0),
        }
    }
}

/// bf16 bytes as f32 values.
pub(super) fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes
        .chunks_exact(2)
        .map(|b| bf16::from_le_bytes([b[0], b[1]]).to_f32())
        .collect()
}

/// f32 values rounded to bf16 (nearest, ties to even), as bytes.
pub(super) fn bf16_bytes(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|&v| bf16::from_f32(v).to_le_bytes())
        .collect()
}

/// f32 values as bytes.
pub(super) fn f32_bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// A value rounded to bf16.
pub(super) fn round(value: f32) -> f32 {
    bf16::from_f32(value).to_f32()
}

/// A value cut off to bf16 (towards zero).
pub(super) fn truncate(value: f32) -> f32 {
    f32::from_bits(value.to_bits() & 0xffff_0000)
}

/// `f` of 0 .. n, in order, computed on all cores of the host: references of large shapes take
/// seconds.
pub(super) fn in_parallel<T: Send>(n: usize, f: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let n_threads = std::thread::available_parallelism().map_or(1, usize::from);
    let share = n.div_ceil(n_threads.clamp(1, n.max(1))).max(1);
    std::thread::scope(|scope| {
        let starts = (0..n).step_by(share);
        let f = &f;
        let threads: Vec<_> = starts
            .map(|start| {
                let share = start..n.min(start + share);
                scope.spawn(move || share.map(f).collect::<Vec<T>>())
            })
            .collect();
        let joined = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
        joined
            .flat_map(|part| match part {
                Ok(part) => part,
                Err(panic) => std::panic::resume_unwind(panic),
            })
            .collect()
    })
}
