//! A linear layer, from f32 weights and activations to f32 results, on the virtual board.
#![allow(clippy::unwrap_used)] // A test may panic.

use millrace_kernels::{Cpu, CpuOptions};
use millrace_npu::{Buffer, Container, Device, Direction};
use millrace_rk3588::linear::LayerLinear;
use millrace_rk3588::matmul::MatmulKind;
use millrace_rk3588::quantise::{Rotation, snr_db};
use millrace_rk3588::simulate::{Board, BoardOptions};
use millrace_rk3588::{Machine, Profile, RkDevice};
use std::sync::Arc;

fn normal(seed: u64, n: usize) -> Vec<f32> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut uniform = move || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 40) as f32 / (1u64 << 24) as f32
    };
    (0..n)
        .map(|_| (0..12).map(|_| uniform()).sum::<f32>() - 6.0)
        .collect()
}

fn two_threads() -> Cpu {
    let options = CpuOptions {
        n_threads: Some(2),
        level: None,
    };
    Cpu::new(options).unwrap()
}

/// Rows in which one channel is thirty times the others.
fn activations(m: u32, k: u32) -> Vec<f32> {
    let mut rows = normal(7 + u64::from(m), (m * k) as usize);
    let rows_mut = rows.chunks_exact_mut(k as usize);
    rows_mut.for_each(|row| row[3] *= 30.0);
    rows
}

/// `rows · weightsᵀ` in f64.
fn products(rows: &[f32], weights: &[f32], k: usize) -> Vec<f32> {
    let mut exact = Vec::new();
    for x in rows.chunks_exact(k) {
        for w in weights.chunks_exact(k) {
            let products = x.iter().zip(w).map(|(x, w)| f64::from(*x) * f64::from(*w));
            exact.push(products.sum::<f64>() as f32);
        }
    }
    exact
}

fn run(device: &RkDevice, container: &Container, buffers: &[Arc<Buffer>]) {
    let loaded = device.load(container).unwrap();
    let bound = device.bind(&loaded, buffers).unwrap();
    device.wait(device.submit(&bound).unwrap()).unwrap();
}

/// SNR of a layer of n × k over passes of each m, which share packed weights.
fn snr(kind: MatmulKind, n: u32, k: u32, rotation: Rotation) -> f64 {
    let (machine, profile) = (Machine::rk3588(), Profile::rocket_200());
    let board = Board::new(BoardOptions::default());
    let device = RkDevice::with_host(&board, machine.clone(), 3).unwrap();
    let linear = LayerLinear::new(kind, [64, n, k], 3, rotation, &machine, &profile).unwrap();
    let weights = normal(1, (n * k) as usize);
    let weight_bytes = linear.weight_bytes(&machine, &profile).unwrap();
    let cpu = two_threads();
    let mut shared = None;
    let mut worst = f64::INFINITY;
    for m in [1, 5, 64] {
        let name = format!("layer {m}");
        let program = linear.program(&name, m, &machine, &profile).unwrap();
        let grid = program.grid(&machine).unwrap();
        let container = program.to_container(&machine).unwrap();
        let alloc = |slot: usize| {
            let slot = &container.slots()[slot];
            let bytes = slot.size_bytes().unwrap();
            device.alloc(bytes, slot.role.into()).unwrap()
        };
        let (b, weight_scales) = shared.get_or_insert_with(|| {
            let b = alloc(1);
            assert_eq!(b.size_bytes(), weight_bytes);
            let mut scales = None;
            b.write_with(|bytes| {
                let fill = |n: u32, row: &mut [f32]| {
                    let at = (n * k) as usize;
                    row.copy_from_slice(&weights[at..at + k as usize]);
                };
                scales = Some(linear.pack_weights(&grid, fill, bytes).unwrap());
            })
            .unwrap();
            b.sync(Direction::ToDevice).unwrap();
            (b, scales.unwrap())
        });
        let (a, c) = (alloc(0), alloc(2));
        let rows = activations(m, k);
        let mut row_scales = None;
        a.write_with(|bytes| {
            row_scales = Some(linear.pack_rows(cpu.pool(), &grid, &rows, bytes).unwrap())
        })
        .unwrap();
        a.sync(Direction::ToDevice).unwrap();
        run(&device, &container, &[a, b.clone(), c.clone()]);
        c.sync(Direction::FromDevice).unwrap();
        let mut found = vec![0.0; (m * n) as usize];
        c.read_with(|bytes| {
            let scales = row_scales.as_ref().unwrap();
            linear
                .unpack(&grid, bytes, &scales.0, &weight_scales.0, &mut found)
                .unwrap();
        })
        .unwrap();
        let exact = products(&rows, &weights, k as usize);
        worst = worst.min(snr_db(&exact, &found));
    }
    worst
}

#[test]
fn layers_keep_the_quality_of_their_types() {
    let (n, k) = (200, 1152);
    let rotated = Rotation::of(k);
    let cases = [
        (MatmulKind::Int8Int32, Rotation::NONE, 15.0..32.0),
        (MatmulKind::Int8Int32, rotated, 36.0..45.0),
        (MatmulKind::Int8F32, rotated, 36.0..45.0),
        (MatmulKind::Fp16F32, Rotation::NONE, 60.0..90.0),
        (MatmulKind::Bf16F32, Rotation::NONE, 45.0..60.0),
        (MatmulKind::Int4Int16, rotated, 10.0..20.0),
    ];
    for (kind, rotation, range) in cases {
        let found = snr(kind, n, k, rotation);
        eprintln!(
            "{kind} rotated in blocks of {}: {found:.1} dB",
            rotation.block()
        );
        assert!(range.contains(&found), "{kind}: {found}");
    }
}

#[test]
fn parts_of_k_lose_nothing() {
    // 14,336 of k are cut into several parts; the SNR is that of one part.
    let found = snr(MatmulKind::Int8Int32, 33, 14_336, Rotation::of(14_336));
    assert!((36.0..45.0).contains(&found), "{found}");
}
