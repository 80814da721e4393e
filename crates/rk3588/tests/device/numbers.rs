//! Numbers of every kind and cut, exact.

use crate::device::data::{self, case, tiling};
use crate::device::{Ready, board, device_on};
use millrace_npu::Device;
use millrace_npu::{Direction, Provenance};
use millrace_rk3588::matmul::MatmulKind;
use millrace_rk3588::simulate::{Board, BoardOptions};
use millrace_rk3588::tiling::{Matmul, Order, Tiling, choose_weights};
use millrace_rk3588::{Machine, Profile};
use proptest::prelude::*;

#[test]
fn every_kind_computes_its_product() {
    let device = device_on(&board(), 3);
    for kind in MatmulKind::ALL {
        let group = kind.n_group();
        for (m, n, k, cut) in [
            (1, 1, 1, tiling(1, group, 32, 1)),
            (1, 3 * group, 64, tiling(1, group, 64, 3)),
            (4, group, 64, tiling(4, group, 64, 1)),
            (7, group + 5, 96, tiling(4, group, 96, 2)),
            (33, 4 * group, 128, tiling(16, 2 * group, 128, 3)),
        ] {
            let ready = Ready::new(&device, case(kind, m, n, k, cut));
            ready.run(&device).unwrap();
            ready.check();
        }
    }
}

#[test]
fn parts_of_k_add_up() {
    let device = device_on(&board(), 3);
    for kind in [
        MatmulKind::Int8Int32,
        MatmulKind::Int8F32,
        MatmulKind::Fp16F32,
        MatmulKind::Bf16F32,
    ] {
        for order in [Order::Columns, Order::Rows] {
            let cut = Tiling {
                order,
                ..tiling(8, 64, 128, 3)
            };
            let ready = Ready::new(&device, case(kind, 20, 200, 300, cut));
            ready.run(&device).unwrap();
            ready.check();
        }
    }
}

#[test]
fn chosen_tilings_compute_their_products() {
    let device = device_on(&board(), 3);
    let (machine, profile) = (Machine::rk3588(), Profile::rocket_200());
    for (m, n, k) in [
        (1, 512, 2048),
        (160, 96, 2048),
        (5, 64, 14_336),
        (70, 640, 1152),
    ] {
        let shape = Matmul {
            kind: MatmulKind::Int8Int32,
            m,
            n,
            k,
        };
        let (_, chosen) = choose_weights(shape, 3, &machine, &profile).unwrap();
        let ready = Ready::new(&device, data::case_with(shape, chosen.tiling, 3));
        ready.run(&device).unwrap();
        ready.check();
    }
}

#[test]
fn one_packed_copy_of_weights_serves_every_m() {
    let device = device_on(&board(), 3);
    let many = case(MatmulKind::Int8Int32, 40, 200, 300, tiling(20, 64, 128, 3));
    let one = case(MatmulKind::Int8Int32, 1, 200, 300, tiling(1, 96, 128, 3));
    assert_eq!(many.packed_b(), one.packed_b());
    let (mut many, one) = (Ready::new(&device, many), Ready::new(&device, one));
    many.run(&device).unwrap();
    many.buffers[1] = one.buffers[1].clone();
    many.run(&device).unwrap();
    many.check();
    one.run(&device).unwrap();
    one.check();
    // Weights are only in objects of their workers; reading them changes nothing.
    one.buffers[1].sync(Direction::FromDevice).unwrap();
    let expected = one.case.packed_b();
    (one.buffers[1].read_with(|seen| assert_eq!(seen, expected))).unwrap();
    many.run(&device).unwrap();
    many.check();
}

#[test]
fn times_are_modelled_and_do_not_depend_on_data() {
    let times: Vec<u64> = [3, 11]
        .map(|seed| {
            let device = device_on(&board(), 3);
            let shape = Matmul {
                kind: MatmulKind::Int8Int32,
                m: 16,
                n: 192,
                k: 128,
            };
            let ready = Ready::new(
                &device,
                data::case_with(shape, tiling(16, 64, 128, 3), seed),
            );
            let first = ready.run(&device).unwrap();
            assert_eq!(ready.run(&device).unwrap(), first);
            first
        })
        .into();
    assert_eq!(times[0], times[1]);
    // Three submits, then the last task: at least those and a kick.
    assert!(times[0] > 3 * 54_000 + 44_000, "{times:?}");
    let device = device_on(&board(), 1);
    assert!(matches!(
        device.info().provenance,
        Provenance::Modelled { .. }
    ));
    assert!(
        device.info().name.contains("virtual board"),
        "{}",
        device.info().name
    );
}

#[test]
fn more_workers_end_sooner_up_to_the_cores() {
    let time = |workers: u32| {
        let device = device_on(&board(), workers as usize);
        let cut = Tiling {
            job_tasks: 64,
            ..tiling(64, 576, 512, workers)
        };
        let ready = Ready::new(&device, case(MatmulKind::Int8Int32, 64, 3456, 512, cut));
        let ns = ready.run(&device).unwrap();
        ready.check();
        ns as f64
    };
    let [one, two, three, six] = [1, 2, 3, 6].map(time);
    assert!(one / two > 1.5 && one / three > 2.0, "{one} {two} {three}");
    assert!(six > 0.8 * three, "{six} {three}");
}

/// The price that a tiling is chosen by equals the time on the board's clock.
#[test]
fn the_price_of_a_product_is_the_time_it_takes() {
    let machine = Machine::rk3588();
    for profile in ["rocket-200", "rocket-600"].map(|name| Profile::builtin(name).unwrap()) {
        let board = Board::new(BoardOptions {
            profile: profile.clone(),
            ..BoardOptions::default()
        });
        let device = device_on(&board, 3);
        for (m, n, k) in [(1, 6144, 1024), (64, 1536, 1024), (24, 768, 6144)] {
            let shape = Matmul {
                kind: MatmulKind::Int8Int32,
                m,
                n,
                k,
            };
            let (_, chosen) = choose_weights(shape, 3, &machine, &profile).unwrap();
            let ready = Ready::new(&device, data::case_with(shape, chosen.tiling, 3));
            let found = ready.run(&device).unwrap() as f64;
            // The last worker begins after its submit; the host's packing takes no time on the board.
            let expected = chosen.price.device_ns + 3.0 * profile.submit_ns;
            let error = found / expected - 1.0;
            assert!(
                error.abs() < 0.1,
                "{shape} {}: {found} {expected}",
                profile.name
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    /// Any way to cut any product is accepted and gives its numbers, in any order of loops.
    #[test]
    fn every_cut_gives_the_product(
        kind in prop::sample::select(MatmulKind::ALL.to_vec()),
        (m, n, k) in (1u32..60, 1u32..260, 1u32..260),
        (rows, cols, depth) in (0u32..7, 1u32..5, 1u32..9),
        (workers, job_tasks, inner_rows) in (1u32..5, 1u32..6, any::<bool>()),
    ) {
        let shape = Matmul { kind, m, n, k };
        let cut = Tiling {
            rows: if rows == 0 && m == 1 { 1 } else { rows.max(1) * 4 },
            cols: cols * kind.n_group(),
            depth: if kind.adds_parts(depth * 32) { depth * 32 } else { k.next_multiple_of(32) },
            workers,
            order: if inner_rows { Order::Rows } else { Order::Columns },
            job_tasks,
        };
        let device = device_on(&board(), workers as usize);
        let ready = Ready::new(&device, data::case_with(shape, cut, 5));
        ready.run(&device).unwrap();
        ready.check();
    }
}
