//! How long the virtual board takes, on this machine, for the products of a pass of Llama-3.2-1B's
//! geometry: `cargo run --release -p millrace-rk3588 --example board_speed [n_tokens]`. Weights are
//! arbitrary; one set of buffers serves all layers.
#![allow(clippy::unwrap_used)] // An example may panic.

use millrace_kernels::{Cpu, CpuOptions};
use millrace_npu::{Device, Direction};
use millrace_rk3588::linear::LayerLinear;
use millrace_rk3588::matmul::MatmulKind;
use millrace_rk3588::quantise::Rotation;
use millrace_rk3588::simulate::{Board, BoardOptions};
use millrace_rk3588::tiling::{Matmul, choose, choose_weights};
use millrace_rk3588::{Machine, Profile, Program, RkDevice};
use std::time::Instant;

fn main() {
    let n_tokens: u32 = std::env::args().nth(1).map_or(128, |n| n.parse().unwrap());
    let (machine, profile) = (Machine::rk3588(), Profile::rocket_200());
    let board = Board::new(BoardOptions::default());
    let device = RkDevice::with_host(&board, machine.clone(), 3).unwrap();
    let products = [
        ("q, o", n_tokens, 2048, 2048, 32),
        ("k, v", n_tokens, 512, 2048, 32),
        ("gate, up", n_tokens, 8192, 2048, 32),
        ("down", n_tokens, 2048, 8192, 16),
        ("head", 1, 128_256, 2048, 1),
    ];
    let (mut host, mut modelled) = (0.0, 0.0);
    println!("product        host ms   GOP/s  modelled ms  times");
    for (name, m, n, k, times) in products {
        let kind = MatmulKind::Int8Int32;
        let shape = |m| Matmul { kind, m, n, k };
        let (split, _) = choose_weights(shape(128), 3, &machine, &profile).unwrap();
        let chosen = choose(shape(m), split, &machine, &profile).unwrap();
        let program = Program::build(name, shape(m), chosen.tiling, &machine).unwrap();
        let best = best_of_three(&device, &program, &machine);
        let ops = 2.0 * f64::from(m) * f64::from(n) * f64::from(k);
        println!(
            "{name:12}{:2}{:9.2} {:7.1} {:12.2} {times:6}",
            "",
            best.0,
            ops / best.0 / 1e6,
            best.1
        );
        host += best.0 * f64::from(times);
        modelled += best.1 * f64::from(times);
    }
    host_side(&machine, &profile);
    println!(
        "all products of {n_tokens} tokens: {host:.0} ms of host time (measured), {modelled:.0} ms on the board (modelled, {})",
        profile.name
    );
}

/// Least milliseconds of the host, and the modelled milliseconds of the board, for a product on arbitrary bytes.
fn best_of_three(device: &RkDevice, program: &Program, machine: &Machine) -> (f64, f64) {
    let container = program.to_container(machine).unwrap();
    let loaded = device.load(&container).unwrap();
    let buffers: Vec<_> = (container.slots().iter())
        .map(|slot| {
            let bytes = slot.size_bytes().unwrap();
            let buffer = device.alloc(bytes, slot.role.into()).unwrap();
            buffer
                .write_with(|view| {
                    for (at, byte) in view.iter_mut().enumerate() {
                        *byte = (at * 31 % 251) as u8;
                    }
                })
                .unwrap();
            buffer.sync(Direction::ToDevice).unwrap();
            buffer
        })
        .collect();
    let bound = device.bind(&loaded, &buffers).unwrap();
    let run = || {
        let start = Instant::now();
        let fence = device.submit(&bound).unwrap();
        let done = device.wait(fence).unwrap();
        (
            start.elapsed().as_secs_f64() * 1e3,
            done.duration_ns as f64 / 1e6,
        )
    };
    run();
    let mut best = run();
    for _ in 0..2 {
        let again = run();
        best = (best.0.min(again.0), again.1);
    }
    best
}

/// The host's work around a product of 128 rows of 8,192 x 2,048.
fn host_side(machine: &Machine, profile: &Profile) {
    let (m, n, k) = (128, 8192, 2048);
    let shape = [m, n, k];
    let rotation = Rotation::of(k);
    let linear =
        LayerLinear::new(MatmulKind::Int8Int32, shape, 3, rotation, machine, profile).unwrap();
    let program = linear.program("host", m, machine, profile).unwrap();
    let grid = program.grid(machine).unwrap();
    let mut b = vec![0; grid.b_bytes() as usize];
    let mut a = vec![0; grid.a_bytes() as usize];
    let c = vec![0; grid.c_bytes() as usize];
    let rows: Vec<f32> = (0..m * k).map(|i| (i * 7 % 1001) as f32 - 500.0).collect();
    let mut out = vec![0.0; (m * n) as usize];
    let ms = |start: Instant| start.elapsed().as_secs_f64() * 1e3;
    let start = Instant::now();
    let fill = |n: u32, row: &mut [f32]| {
        let values = row.iter_mut().zip(n..);
        values.for_each(|(x, i)| *x = (i * 31 % 997) as f32 - 498.0);
    };
    let weights = linear.pack_weights(&grid, fill, &mut b).unwrap();
    let packing = ms(start);
    println!(
        "packing weights: {:.0} million a second",
        f64::from(n) * f64::from(k) / packing / 1e3
    );
    let cpu = Cpu::new(CpuOptions::default()).unwrap();
    let start = Instant::now();
    let scales = linear.pack_rows(cpu.pool(), &grid, &rows, &mut a).unwrap();
    let packed = ms(start);
    let start = Instant::now();
    linear
        .unpack(&grid, &c, &scales.0, &weights.0, &mut out)
        .unwrap();
    println!(
        "packing A of gate, up: {packed:.2} ms, reading C back: {:.2} ms",
        ms(start)
    );
}
