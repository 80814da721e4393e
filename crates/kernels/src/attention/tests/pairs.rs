//! Tiles of bf16 on the emulated unit, where the CPU has the vector instructions that they need too.

use super::accuracy::compare_by;
use super::invariance::unchanged;
use super::*;
use crate::attention::leaves::EMULATED;

/// Level of the emulated kernels here, unless the CPU is too old.
fn level() -> Option<Level> {
    let found = Level::supported().contains(&Level::Avx512);
    if !found {
        println!("skipped: no AVX-512");
    }
    found.then_some(Level::Avx512)
}

#[test]
fn tiles_attend_as_the_oracle_does() {
    let Some(level) = level() else { return };
    let cpu = cpu(level, 2);
    let shapes = [
        shape(4, 4, 64, None),
        shape(8, 1, 64, Some(5)),
        shape(6, 2, 80, Some(64)),
        shape(4, 1, 128, Some(1)),
        shape(40, 1, 32, Some(17)),
        shape(9, 3, 8, None),
        shape(2, 2, 72, Some(40)),
        shape(3, 3, 24, None),
        shape(4, 2, 4, None),
        shape(3, 1, 20, Some(17)),
        AttentionShape {
            softcap: Some(0.75),
            scale: 1.0,
            ..shape(8, 2, 64, Some(270))
        },
    ];
    for shape in shapes {
        let steps = [
            vec![(0, 0..37)],
            vec![(0, 37..38), (1, 0..3)],
            vec![(0, 38..75)],
            vec![(1, 3..4), (0, 75..290)],
        ];
        compare_by(&EMULATED, &cpu, shape, (KvType::BF16, 32), &steps, &[]);
    }
    let whole = [vec![(0, 0..300)]];
    let block = std::slice::from_ref(&(0..300));
    let encoder = shape(1, 1, 72, None);
    compare_by(&EMULATED, &cpu, encoder, (KvType::BF16, 64), &whole, block);
}

#[test]
fn tiles_give_the_same_bits_however_the_work_is_cut() {
    if let Some(level) = level() {
        unchanged(level, &EMULATED, &[KvType::BF16]);
    }
}
