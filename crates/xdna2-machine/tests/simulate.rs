//! Programs so small that their results are known, run through the data movement of the virtual array.
#![allow(clippy::unwrap_used)] // A test may panic.

use half::bf16;
use millrace_kernels::{Cpu, CpuOptions};
use millrace_xdna2_machine::program::{Program, text};
use millrace_xdna2_machine::simulate::{self, RunCounters, SimulateOptions, SimulationFault};

fn cpu(n_threads: usize) -> Cpu {
    Cpu::new(CpuOptions {
        n_threads: Some(n_threads),
        level: None,
    })
    .unwrap()
}

fn parse(body: &str) -> Program {
    text::parse(&format!("xdna2 1\nprogram p {{ {body} }}\n")).unwrap()
}

fn run(program: &Program, slots: &mut [Vec<u8>]) -> Result<RunCounters, SimulationFault> {
    simulate::run(program, slots, &SimulateOptions::new(&cpu(2)))
}

/// Slots of a program, zeroed.
fn zeros(program: &Program) -> Vec<Vec<u8>> {
    let size = |slot: &millrace_npu::Slot| slot.size_bytes().unwrap_or(0).min(1 << 24) as usize;
    program.slots.iter().map(|s| vec![0; size(s)]).collect()
}

fn bf16_bytes(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    let bytes = |v: f32| bf16::from_f32(v).to_le_bytes();
    values.into_iter().flat_map(bytes).collect()
}

fn f32_bytes(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(f32::to_le_bytes).collect()
}

#[test]
fn a_memory_tile_transposes() {
    // 8 × 6 f32 in halves of four rows; each half leaves by columns.
    let program = parse(
        "slot x: f32[8, 6] input slot y: f32[48] output
        launch t(x, y) {
            channel In: f32[4, 6] from shim(0) to memory(0) depth 1
            channel Out: f32[8] from memory(0) to shim(0) depth 1
            stage s at 0: f32[4, 6] copies 2 {
                fill In walk 0 [24:1]
                drain Out walk 0 [6:1, 4:6]
            }
            transfer x -> In walk 0 [48:1]
            transfer y <- Out walk 0 [48:1]
        }",
    );
    let mut slots = vec![f32_bytes((0..48).map(|i| i as f32)), vec![0; 48 * 4]];
    let counters = run(&program, &mut slots).unwrap().total();
    let expected = (0..2).flat_map(|half| {
        (0..6).flat_map(move |col| (0..4).map(move |row| (half * 24 + row * 6 + col) as f32))
    });
    assert_eq!(slots[1], f32_bytes(expected));
    assert_eq!(
        (counters.ddr_read_bytes, counters.ddr_written_bytes),
        (192, 192)
    );
    assert_eq!(
        (counters.l2_filled_bytes, counters.l2_drained_bytes),
        (192, 192)
    );
}

#[test]
fn a_broadcast_reaches_every_core_and_each_keeps_its_own() {
    // Every core adds its column's stream to the broadcast one.
    let program = parse(
        "slot a: bf16[32] input slot b: bf16[4, 32] input slot y: bf16[4, 32] output
        launch t(a, b, y) {
            channel A: bf16[16] from shim(0) to core(0..4, 0) depth 2
            channel B[4]: bf16[16] from shim(i0) to core(i0, 0) depth 1
            channel Y[4]: bf16[16] from core(i0, 0) to shim(i0) depth 1
            transfer a -> A walk 0 [32:1]
            transfer b -> B[i0] over [4] walk 32*i0 [32:1]
            transfer y <- Y[i0] over [4] walk 32*i0 [32:1]
            herd t at (0, 0) size (4, 1) {
                for l0 in 2 {
                    b0 = get A
                    b1 = get B[x]
                    b2 = new Y[x]
                    call add_bf16[16](b0, b1, b2)
                    free b0
                    free b1
                    put b2
                }
            }
        }",
    );
    let a: Vec<f32> = (0..32).map(|i| i as f32).collect();
    let b: Vec<f32> = (0..128).map(|i| (i / 32 * 100) as f32).collect();
    let mut slots = vec![
        bf16_bytes(a.iter().copied()),
        bf16_bytes(b.iter().copied()),
        vec![0; 256],
    ];
    run(&program, &mut slots).unwrap();
    let expected = (0..128).map(|i| a[i % 32] + b[i]);
    assert_eq!(slots[2], bf16_bytes(expected));
}

#[test]
fn a_kernel_may_overwrite_a_broadcast_block_without_harm_to_others() {
    // Core 0 adds in place, core 1 passes on: both had the same block.
    let program = parse(
        "slot a: bf16[16] input slot y: bf16[2, 16] output
        launch t(a, y) {
            channel A: bf16[16] from shim(0) to core(0..2, 0) depth 1
            channel Y[2]: bf16[16] from core(i0, 0) to shim(i0) depth 1
            transfer a -> A walk 0 [16:1]
            transfer y <- Y[i0] over [2] walk 16*i0 [16:1]
            herd t at (0, 0) size (2, 1) {
                b0 = get A
                b1 = new Y[x]
                if x == 0 { call add_bf16[16](b0, b0, b0) }
                call copy_bf16[16](b0, b1)
                free b0
                put b1
            }
        }",
    );
    let mut slots = vec![bf16_bytes((0..16).map(|i| i as f32)), vec![0; 64]];
    run(&program, &mut slots).unwrap();
    let expected = (0..32).map(|i| {
        if i < 16 {
            (2 * i) as f32
        } else {
            (i - 16) as f32
        }
    });
    assert_eq!(slots[1], bf16_bytes(expected));
}

#[test]
fn a_cascade_sums_down_a_column() {
    let program = parse(
        "slot x: bf16[4, 16] input slot y: bf16[16] output
        launch t(x, y) {
            channel X[4]: bf16[16] from shim(i0) to core(0, i0) depth 1
            channel L[3]: bf16[16] from core(0, i0 + 1) to core(0, i0) depth 1 link cascade
            channel Y: bf16[16] from core(0, 0) to shim(0) depth 1
            transfer x -> X[i0] over [4] walk 16*i0 [16:1]
            transfer y <- Y walk 0 [16:1]
            herd top at (0, 3) size (1, 1) {
                b0 = get X[3]
                b1 = new L[2]
                call copy_bf16[16](b0, b1)
                free b0
                put b1
            }
            herd middle at (0, 1) size (1, 2) {
                b0 = get X[y + 1]
                b1 = get L[y + 1]
                b2 = new L[y]
                call add_bf16[16](b0, b1, b2)
                free b0
                free b1
                put b2
            }
            herd bottom at (0, 0) size (1, 1) {
                b0 = get X[0]
                b1 = get L[0]
                b2 = new Y
                call add_bf16[16](b0, b1, b2)
                free b0
                free b1
                put b2
            }
        }",
    );
    let x = (0..64).map(|i| (i % 16 + i / 16) as f32);
    let mut slots = vec![bf16_bytes(x), vec![0; 32]];
    run(&program, &mut slots).unwrap();
    assert_eq!(slots[1], bf16_bytes((0..16).map(|i| (4 * i + 6) as f32)));
}

const ONE_CORE: &str = "launch t(x, y) {
        channel X: bf16[16] from shim(0) to core(0, 0) depth 1
        channel Y: bf16[16] from core(0, 0) to shim(0) depth 1";

#[test]
fn patterns_at_a_core_reorder_its_blocks() {
    let program = parse(
        "slot x: bf16[16] input slot y: bf16[16] output
        launch t(x, y) {
            channel X: bf16[16] from shim(0) to core(0, 0) depth 1 receive 0 [4:1, 4:4]
            channel Y: bf16[16] from core(0, 0) to shim(0) depth 1 send 15 [16:-1]
            transfer x -> X walk 0 [16:1]
            transfer y <- Y walk 0 [16:1]
            herd t at (0, 0) size (1, 1) {
                b0 = get X
                b1 = new Y
                call copy_bf16[16](b0, b1)
                free b0
                put b1
            }
        }",
    );
    let mut slots = vec![bf16_bytes((0..16).map(|i| i as f32)), vec![0; 32]];
    run(&program, &mut slots).unwrap();
    // Stream element i is at 4·(i mod 4) + i/4 in L1, and L1 leaves from the back.
    let l1 = |at: usize| (at % 4 * 4 + at / 4) as f32;
    assert_eq!(slots[1], bf16_bytes((0..16).map(|i| l1(15 - i))));
}

#[test]
fn sequential_points_see_what_the_points_before_wrote() {
    // Each point adds the slot to itself: after four points it is 16 times its old value.
    let body = "slot x: bf16[16] output
        launch t(x) {
            grid [4]
            channel A: bf16[16] from shim(0) to core(0, 0) depth 1
            channel Y: bf16[16] from core(0, 0) to shim(0) depth 1
            transfer x -> A walk 0 [16:1]
            transfer x <- Y walk 0 [16:1]
            herd t at (0, 0) size (1, 1) {
                b0 = get A
                b1 = new Y
                call add_bf16[16](b0, b0, b1)
                free b0
                put b1
            }
        }";
    let program = parse(body);
    let mut slots = vec![bf16_bytes((0..16).map(|i| i as f32))];
    run(&program, &mut slots).unwrap();
    assert_eq!(slots[0], bf16_bytes((0..16).map(|i| (16 * i) as f32)));
}

#[test]
fn unwritten_memory_is_poison() {
    let program = parse(&format!(
        "slot x: bf16[16] input slot y: bf16[16] output {ONE_CORE}
            transfer x -> X walk 0 [16:1]
            transfer y <- Y walk 0 [16:1]
            herd t at (0, 0) size (1, 1) {{
                b0 = get X
                b1 = new Y
                free b0
                put b1
            }}
        }}"
    ));
    let mut slots = zeros(&program);
    run(&program, &mut slots).unwrap();
    let values = slots[1].chunks_exact(2);
    assert!(
        values
            .into_iter()
            .all(|v| bf16::from_le_bytes([v[0], v[1]]).is_nan())
    );
}
