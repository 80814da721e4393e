//! Products through block floating point equal their reference, and have the expected loss.

use crate::mappings::{build, case};
use millrace_kernels::{Cpu, CpuOptions};
use millrace_xdna2_machine::simulate::{self, SimulateOptions};
use millrace_xdna2_machine::{Machine, Numerics};

/// A program's outputs and those of both references, as numbers.
fn results(name: &str, shape: &str, overrides: &str) -> [Vec<u8>; 3] {
    let (mapping, shape, tiling) = case(name, shape, overrides);
    let machine = Machine::npu2();
    let mut program = build(mapping, &shape, &tiling, &machine);
    Numerics::Bfp16.apply(&mut program);
    millrace_xdna2_machine::verify(&program, &machine).unwrap();
    let mut slots = mapping.inputs(&shape, 7);
    let exact = mapping.reference(&shape, &tiling, &slots);
    let emulated = mapping.reference_in(Numerics::Bfp16, &shape, &tiling, &slots);
    let cpu = Cpu::new(CpuOptions::default()).unwrap();
    simulate::run(&program, &mut slots, &SimulateOptions::new(&cpu)).unwrap();
    let (slot, emulated) = emulated.into_iter().next_back().unwrap();
    let (_, exact) = exact.into_iter().next_back().unwrap();
    [slots.swap_remove(slot), emulated, exact]
}

fn bf16(bytes: &[u8]) -> impl Iterator<Item = f64> {
    let number = |b: &[u8]| f32::from_bits(u32::from_le_bytes([0, 0, b[0], b[1]]));
    bytes.chunks_exact(2).map(move |b| f64::from(number(b)))
}

fn snr_db(exact: &[u8], found: &[u8]) -> f64 {
    let (mut signal, mut noise) = (0.0, 0.0);
    for (exact, found) in bf16(exact).zip(bf16(found)) {
        signal += exact * exact;
        noise += (exact - found) * (exact - found);
    }
    10.0 * f64::log10(signal / noise)
}

#[test]
fn products_are_those_of_the_reference() {
    for (name, shape, tiling) in [
        (
            "gemm-f32",
            "48x56x120",
            "tile_m=16,tile_n=40,tile_k_l2=56,tile_k_l1=8,cols=3,rows=3",
        ),
        ("gemm-fused-cast", "64x64x192", ""),
        ("gemm-drain", "128x96x128", "tile_k_l2=32"),
        ("gemm-drain", "8x8x8", ""),
        ("gemm-drain-bt", "64x96x144", "tile_n=24,tile_k_l2=32"),
        ("gemm-direct", "64x128x32", "tile_k_l2=32"),
        ("gemm-direct-bt", "64x128x32", "tile_k_l2=64"),
        ("gemm-stream", "64x256x512+128", ""),
        ("gemm-stream-bt", "64x256x512+128", ""),
        (
            "gemm-megatile",
            "64x96x48",
            "tile_m=8,tile_n=8,e_x=3,e_y=2,rows=2,tile_k_l2=48,tile_k_l1=16",
        ),
        ("flash-attention", "64 4q/2kv d16 causal", "tile_kv=16"),
        (
            "flash-attention",
            "32 2q/1kv d32 causal",
            "tile_kv=8,tile_q=8,tile_dk=8,tile_dv=16",
        ),
        (
            "flash-attention",
            "112 2q/1kv d16 full",
            "tile_kv=16,tile_q=16,q_tiles=1,stages=4",
        ),
    ] {
        let [found, emulated, exact] = results(name, shape, tiling);
        assert!(found == emulated, "{name} {shape} {tiling}");
        assert!(found != exact, "{name} {shape}: nothing was converted");
    }
}

/// A step is 1/64 of the largest of eight values: half of it, uniform, against values of a variance of
/// the order of their largest gives about 40 dB for one operand, 3 dB less for two.
#[test]
fn the_loss_is_what_seven_bits_lose() {
    for (name, shape) in [
        ("gemm-drain", "256x512x256"),
        ("gemm-stream-bt", "64x1024x512"),
        ("flash-attention", "256 2q/1kv d64 full"),
    ] {
        let [found, _, exact] = results(name, shape, "");
        let snr = snr_db(&exact, &found);
        assert!((32.0..48.0).contains(&snr), "{name} {shape}: {snr} dB");
    }
}

#[test]
fn kernels_without_products_have_one_reference() {
    let (mapping, shape, tiling) = case("add", "64", "");
    let slots = mapping.inputs(&shape, 3);
    let plain = mapping.reference(&shape, &tiling, &slots);
    let other = mapping.reference_in(Numerics::Bfp16, &shape, &tiling, &slots);
    assert_eq!(plain, other);
}
