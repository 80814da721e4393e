//! Every level against the references, bit for bit.

use super::*;
use crate::cpu::CpuOptions;
use crate::level::Level;

fn cpus() -> Vec<Cpu> {
    let open = |level| {
        Cpu::new(CpuOptions {
            n_threads: Some(1),
            level: Some(level),
        })
        .expect("a supported level")
    };
    Level::supported().into_iter().map(open).collect()
}

/// Bits from a multiplicative generator.
struct BitGenerator(u64);

impl BitGenerator {
    fn bits(&mut self) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 32) as u32
    }

    /// About −1 to 1, with 8 bits.
    fn small(&mut self) -> bf16 {
        bf16::from_f32((self.bits() >> 8) as f32 / (1 << 23) as f32 - 1.0)
    }

    fn any(&mut self) -> bf16 {
        bf16::from_bits((self.bits() >> 16) as u16)
    }
}

fn check(shape: MatmulShape, a: &[bf16], b: &[bf16], c: &[f32]) {
    let mut expected = c.to_vec();
    matmul_bf16_reference(shape, a, b, &mut expected);
    let bt = transpose(shape, b);
    let mut found = c.to_vec();
    matmul_bt_bf16_reference(shape, a, &bt, &mut found);
    compare(&found, &expected, shape, Level::Scalar);
    for cpu in cpus() {
        let mut found = c.to_vec();
        matmul_bf16(&cpu, shape, a, b, &mut found);
        compare(&found, &expected, shape, cpu.level());
        let mut found = c.to_vec();
        matmul_bt_bf16(&cpu, shape, a, &bt, &mut found);
        compare(&found, &expected, shape, cpu.level());
        // Whichever of the two ways this processor prefers.
        #[cfg(target_arch = "x86_64")]
        if cpu.level() == Level::Avx512Bf16 && x86::dot_pairs_follow_the_rule() {
            let mut found = c.to_vec();
            // SAFETY: a `Cpu` proves its level; the lengths are the shape's.
            unsafe { x86::matmul_pairs::<false>(shape, a, b, &mut found) };
            compare(&found, &expected, shape, cpu.level());
            let mut found = c.to_vec();
            // SAFETY: as above.
            unsafe { x86::matmul_pairs::<true>(shape, a, &bt, &mut found) };
            compare(&found, &expected, shape, cpu.level());
        }
    }
}

/// The transpose of B, in its blocks.
fn transpose(shape: MatmulShape, b: &[bf16]) -> Vec<bf16> {
    let (k_blocks, col_blocks) = (shape.k / BLOCK, shape.n / BLOCK);
    let mut bt = vec![bf16::ZERO; b.len()];
    for (at, &b) in b.iter().enumerate() {
        let (block, row, col) = (at / BLOCK_ELEMENTS, at / BLOCK % BLOCK, at % BLOCK);
        let (col_block, k_block) = (block / k_blocks, block % k_blocks);
        bt[(k_block * col_blocks + col_block) * BLOCK_ELEMENTS + col * BLOCK + row] = b;
    }
    bt
}

fn compare(found: &[f32], expected: &[f32], shape: MatmulShape, level: Level) {
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert_eq!(
            found.to_bits(),
            expected.to_bits(),
            "{shape:?} {level}, element {i}: {found:e} for {expected:e}"
        );
    }
}

#[test]
fn products_are_the_same_bits_at_every_level() {
    let mut random = BitGenerator(1);
    for (m, n, k) in [
        (8, 8, 8),
        (16, 24, 32),
        (64, 128, 32),
        (8, 40, 256),
        (24, 16, 8),
    ] {
        let shape = MatmulShape { m, n, k };
        let a: Vec<bf16> = (0..m * k).map(|_| random.small()).collect();
        let b: Vec<bf16> = (0..k * n).map(|_| random.small()).collect();
        check(shape, &a, &b, &vec![0.0; m * n]);
        let c: Vec<f32> = (0..m * n).map(|_| random.small().to_f32() * 1.1).collect();
        check(shape, &a, &b, &c);
    }
}

#[test]
fn small_sums_among_ordinary_products_are_the_same_bits_at_every_level() {
    let mut random = BitGenerator(4);
    let shape = MatmulShape { m: 16, n: 40, k: 8 };
    let mut small = |n: usize| -> Vec<bf16> { (0..n).map(|_| random.small()).collect() };
    let (mut a, b) = (small(16 * 8), small(8 * 40));
    // Some rows of A are zero, so that a small C stays unchanged or is flushed.
    a.chunks_exact_mut(24)
        .for_each(|a| a[..16].fill(bf16::ZERO));
    let mut c = vec![0.0_f32; 16 * 40];
    for (i, c) in c.iter_mut().enumerate().step_by(3) {
        *c = f32::from_bits((random.bits() >> 9) | (i as u32 % 30) << 23);
    }
    check(shape, &a, &b, &c);
}

#[test]
fn wild_numbers_are_the_same_bits_at_every_level() {
    let mut random = BitGenerator(2);
    for round in 0..40 {
        let shape = MatmulShape {
            m: 16,
            n: 8 + round % 5 * 8,
            k: 16,
        };
        let mut any = |n: usize| -> Vec<bf16> { (0..n).map(|_| random.any()).collect() };
        let (a, b) = (any(shape.m * shape.k), any(shape.k * shape.n));
        let c = any(shape.m * shape.n);
        let c: Vec<f32> = c.iter().map(|c| c.to_f32()).collect();
        check(shape, &a, &b, &c);
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn numbers_near_the_smallest_are_the_same_bits_at_every_level() {
    for round in 0..64 {
        let (shape, a, b, c) = x86::probe(round);
        check(shape, &a, &b, &c);
    }
}

#[test]
fn the_rule_flushes_as_documented() {
    let least = f32::MIN_POSITIVE;
    // Halfway below the least normal number: tiny as rounded with unbounded exponent.
    let below = fused(least, -(2.0_f32.powi(-100)), 2.0_f32.powi(-50));
    assert_eq!(below.to_bits(), 0.0_f32.to_bits());
    // A quarter of a unit below rounds up to the least normal number either way.
    let near = fused(least, -(2.0_f32.powi(-102)), 2.0_f32.powi(-50));
    assert_eq!(near, least);
    // Subnormal inputs are zero.
    assert_eq!(fused(0.0, least / 2.0, f32::MAX), 0.0);
    assert_eq!(fused(-least / 2.0, 0.0, 1.0).to_bits(), 0);
}

#[test]
fn matrix_times_vector_is_the_same_bits_at_every_level() {
    let mut random = BitGenerator(3);
    for (m, k) in [
        (1, 1),
        (3, 63),
        (4, 64),
        (5, 65),
        (8, 200),
        (2, 2048),
        (3, 0),
    ] {
        let w: Vec<bf16> = (0..m * k).map(|_| random.small()).collect();
        let x: Vec<bf16> = (0..k).map(|_| random.small()).collect();
        let mut expected = vec![0.0; m];
        matvec_bf16_reference(&w, &x, &mut expected);
        for cpu in cpus() {
            let mut found = vec![f32::NAN; m];
            matvec_bf16(&cpu, &w, &x, &mut found);
            let bits = |y: &[f32]| y.iter().map(|y| y.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&found), bits(&expected), "{m} × {k}, {}", cpu.level());
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn this_processor_multiplies_pairs_by_the_rule_where_it_can() {
    let cpu = cpus().pop().expect("a level");
    if cpu.level() == Level::Avx512Bf16 {
        // Not a failure of the code if not, but then the fast path is lost: worth knowing.
        assert!(x86::dot_pairs_follow_the_rule());
    }
}

/// Blocks of scales, offsets and levels of all kinds; some not numbers.
fn q4nx_blocks(random: &mut BitGenerator, wild: bool) -> Q4nxBlock {
    let mut block = [0; Q4NX_BYTES];
    for pair in block[..1024].chunks_exact_mut(2) {
        let value = if wild { random.any() } else { random.small() };
        pair.copy_from_slice(&value.to_le_bytes());
    }
    block[1024..].fill_with(|| random.bits() as u8);
    block
}

/// The definition, from the format's own decoder: `w = scale·q + offset` is known by scale and offset.
fn q4nx_product(block: &Q4nxBlock, x: &[bf16], y: &mut [f32]) {
    let number = |at: usize| bf16::from_le_bytes([block[at], block[at + 1]]).to_f32();
    for (row, y) in y.iter_mut().enumerate() {
        for group in 0..8 {
            let (mut levels, mut sum) = (0.0_f32, 0.0_f32);
            for (i, x) in x[group * 32..][..32].iter().enumerate() {
                let byte = block[1024 + row / 16 * 2048 + (group * 32 + i) * 8 + row % 16 / 2];
                levels += f32::from(byte >> (row % 2 * 4) & 15) * x.to_f32();
                sum += x.to_f32();
            }
            let at = (group * 32 + row) * 2;
            *y += number(at) * bf16::from_f32(levels).to_f32();
            *y += number(512 + at) * bf16::from_f32(sum).to_f32();
        }
        if y.is_nan() {
            *y = f32::NAN;
        }
    }
}

#[test]
fn q4nx_blocks_are_multiplied_alike_at_every_level() {
    let mut random = BitGenerator(17);
    for case in 0..8 {
        let block = q4nx_blocks(&mut random, case % 4 == 3);
        let x: Vec<bf16> = (0..256).map(|_| random.small()).collect();
        let mut sums = vec![bf16::ZERO; 8];
        q4nx_sums(&x, &mut sums);
        let start: Vec<f32> = (0..32).map(|_| random.small().to_f32()).collect();
        let mut expected = start.clone();
        q4nx_product(&block, &x, &mut expected);
        for cpu in cpus() {
            let mut found = start.clone();
            q4nx_matvec(&cpu, &block, &x, &sums, &mut found);
            let bits = |y: &[f32]| y.iter().map(|y| y.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&found), bits(&expected), "{:?}", cpu.level());
        }
    }
}

#[test]
fn q4nx_blocks_expand_to_what_the_format_says() {
    let mut random = BitGenerator(3);
    let block = q4nx_blocks(&mut random, false);
    let mut w = vec![0.0; 32 * 256];
    let rows = 0..32;
    millrace_quant::decode_rows(millrace_quant::DType::Q4nx, &block, 32, 256, rows, &mut w)
        .expect("a block");
    for cpu in cpus() {
        for columns in [0..256, 64..128, 8..16] {
            let mut b = vec![bf16::NAN; columns.len() * 32];
            q4nx_expand(&cpu, &block, columns.clone(), &mut b);
            for (at, found) in b.iter().enumerate() {
                let (panel, column, row) = (at / 8 / columns.len(), at / 8 % columns.len(), at % 8);
                let expected = w[(8 * panel + row) * 256 + columns.start + column];
                assert_eq!(*found, bf16::from_f32(expected), "{:?} {at}", cpu.level());
            }
        }
    }
}
