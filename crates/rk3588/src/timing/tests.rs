use super::*;

fn cost(fixed_ns: f64, mac_ns: f64, dma_bytes: f64) -> TaskCost {
    TaskCost {
        fixed_ns,
        mac_ns,
        dma_bytes,
    }
}

/// A machine with three cores of 16 bytes a ns which share 20.
fn schedule() -> Schedule {
    let profile = Profile {
        clock_hz: 1e9,
        core_bytes_per_cycle: 16.0,
        ddr_bytes_per_s: 20e9,
        ..Profile::rocket_200()
    };
    Schedule::new(&Machine::rk3588(), &profile)
}

fn near(found: f64, expected: f64) {
    assert!((found - expected).abs() < 0.01, "{found}, not {expected}");
}

#[test]
fn a_task_ends_when_both_its_work_and_its_bytes_are_done() {
    let mut s = schedule();
    let one = s.submit(
        1,
        100.0,
        &[cost(10.0, 50.0, 160.0), cost(10.0, 5.0, 320.0)],
        false,
    );
    let ran = s.finish(one).unwrap();
    near(ran.start_ns, 100.0);
    near(ran.end_ns, 100.0 + 60.0 + 30.0);
    assert_eq!(s.finish(one), None);
}

#[test]
fn memory_is_shared_while_it_is_used() {
    let mut s = schedule();
    let two = [1, 2].map(|worker| s.submit(worker, 0.0, &[cost(0.0, 0.0, 1000.0)], false));
    // 10 bytes a ns each, as 20 are shared.
    for job in two {
        near(s.finish(job).unwrap().end_ns, 100.0);
    }
    let long = s.submit(1, 100.0, &[cost(0.0, 0.0, 1000.0)], false);
    let short = s.submit(2, 100.0, &[cost(0.0, 0.0, 500.0)], false);
    // 50 ns at 10, then the long one alone at 16.
    near(s.finish(long).unwrap().end_ns, 100.0 + 50.0 + 500.0 / 16.0);
    near(s.finish(short).unwrap().end_ns, 150.0);
}

#[test]
fn one_descriptor_never_runs_on_two_cores() {
    let mut s = schedule();
    let task = [cost(100.0, 0.0, 0.0)];
    let jobs: Vec<JobId> = (0..3).map(|_| s.submit(7, 0.0, &task, false)).collect();
    let other = s.submit(8, 0.0, &task, false);
    let ran: Vec<_> = jobs.iter().map(|&job| s.finish(job).unwrap()).collect();
    assert!(ran.iter().all(|r| r.core == ran[0].core));
    near(ran[2].end_ns, 300.0);
    let other = s.finish(other).unwrap();
    near(other.end_ns, 100.0);
    assert_ne!(other.core, ran[0].core);
}

#[test]
fn a_job_that_hangs_or_lasts_is_reset_after_half_a_second() {
    let mut s = schedule();
    let hangs = s.submit(1, 5.0, &[cost(1.0, 0.0, 0.0)], true);
    let lasts = s.submit(2, 5.0, &[cost(0.0, 6e8, 0.0)], false);
    let after = s.submit(1, 5.0, &[cost(1.0, 0.0, 0.0)], false);
    for job in [hangs, lasts] {
        let ran = s.finish(job).unwrap();
        assert!(ran.timed_out);
        near(ran.end_ns, 5e8 + 5.0);
    }
    let ran = s.finish(after).unwrap();
    assert!(!ran.timed_out);
    near(ran.start_ns, 5e8 + 5.0);
}

#[test]
fn late_times_lose_nothing() {
    let mut s = schedule();
    s.advance(3e15);
    let jobs: Vec<JobId> = (0..50)
        .map(|i| s.submit(i % 5, 3e15, &[cost(44e3, 1e3 / 3.0, 1e5 / 7.0); 9], false))
        .collect();
    for job in jobs {
        assert!(!s.finish(job).unwrap().timed_out);
    }
}

#[test]
fn one_row_costs_as_much_as_sixteen() {
    let machine = Machine::rk3588();
    let cycles = |m, n, k, kind| mac_cycles(m, n, k, kind, &machine);
    assert_eq!(cycles(1, 512, 512, MatmulKind::Int8Int32), 4096.0);
    assert_eq!(cycles(16, 512, 512, MatmulKind::Int8Int32), 4096.0);
    assert_eq!(cycles(17, 512, 512, MatmulKind::Int8Int32), 8192.0);
    assert_eq!(cycles(1, 512, 512, MatmulKind::Fp16F32), 8192.0);
    // A k below 128 bytes costs as much as 128.
    assert_eq!(cycles(64, 64, 64, MatmulKind::Int8Int32), 512.0);
}

/// (DDR, NPU) of each part.
type Parts = &'static [(f64, f64)];
/// (m, k, n), then the numbers in the converter's build log for layers of our own.
const ESTIMATES: &[(u32, u32, u32, MatmulKind, Parts)] = &[
    (1, 512, 512, MatmulKind::Int8Int32, &[(11_299.0, 4096.0)]),
    (64, 64, 64, MatmulKind::Int8Int32, &[(542.0, 512.0)]),
    (64, 64, 64, MatmulKind::Fp16Fp16, &[(1039.0, 512.0)]),
    (144, 672, 64, MatmulKind::Int8Int32, &[(6321.0, 6048.0)]),
    (
        128,
        1024,
        256,
        MatmulKind::Fp16Fp16,
        &[(36_018.0, 65_536.0)],
    ),
    (
        128,
        2048,
        2048,
        MatmulKind::Int8Int32,
        &[(200_177.0, 524_288.0)],
    ),
    (
        128,
        2048,
        2048,
        MatmulKind::Fp16Fp16,
        &[(210_567.0, 524_288.0), (232_732.0, 524_288.0)],
    ),
    (
        4,
        4096,
        4096,
        MatmulKind::Int8Int32,
        &[(357_063.0, 131_072.0), (357_755.0, 131_072.0)],
    ),
    (
        4,
        4096,
        4096,
        MatmulKind::Fp16Fp16,
        &[
            (533_862.0, 196_608.0),
            (535_248.0, 196_608.0),
            (357_755.0, 131_072.0),
        ],
    ),
];

#[test]
fn the_converters_estimates_come_out_within_two_percent() {
    let machine = Machine::rk3588();
    for &(m, k, n, kind, expected) in ESTIMATES {
        let found = vendor_cycles(m, n, k, kind, &machine);
        assert_eq!(found.len(), expected.len(), "{m}, {k}, {n}");
        for (found, &(ddr, npu)) in found.iter().zip(expected) {
            assert!(
                (found.ddr / ddr - 1.0).abs() < 0.02,
                "{m}, {k}, {n}: {found:?}"
            );
            assert!(
                (found.npu / npu - 1.0).abs() < 0.02,
                "{m}, {k}, {n}: {found:?}"
            );
        }
    }
}
