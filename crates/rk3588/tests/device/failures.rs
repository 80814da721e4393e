//! Every kind of failure is named and contained, and the device survives it.

use crate::device::data::{case, tiling};
use crate::device::{Ready, board, device_on};
use millrace_npu::{Device, DeviceError, DeviceUsage};
use millrace_rk3588::Machine;
use millrace_rk3588::matmul::MatmulKind;
use millrace_rk3588::simulate::{Board, BoardMode, BoardOptions, Faults, TaskAt};
use rustix::io::Errno;

/// Two jobs a worker, of two tasks and one; with three workers six jobs.
fn ready(device: &millrace_rk3588::RkDevice) -> Ready {
    let cut = tiling(8, 32, 64, 3);
    Ready::new(device, case(MatmulKind::Int8Int32, 24, 96, 64, cut))
}

const N_JOBS: u64 = 6;

#[test]
fn a_failure_names_its_task_and_the_next_run_is_right() {
    let board = board();
    let device = device_on(&board, 3);
    let ready = ready(&device);
    ready.run(&device).unwrap();
    ready.check();
    assert_eq!(board.n_jobs(), N_JOBS);
    let first_job = || board.n_jobs();
    for job in 0..N_JOBS {
        let n_tasks = if job % 2 == 0 { 2 } else { 1 };
        for task in 0..n_tasks {
            let at = TaskAt {
                job: first_job() + job,
                task,
            };
            board.set_faults(Faults {
                dropped: vec![at],
                ..Faults::default()
            });
            let error = ready.run(&device).unwrap_err();
            let expected = format!("job {job}, task {task} of worker {} of 3", job / 2);
            let DeviceError::Fault { place, .. } = &error else {
                panic!("{error}");
            };
            assert_eq!(place.launch.as_ref(), Some(&expected));
        }
        board.set_faults(Faults {
            hung: vec![first_job() + job],
            ..Faults::default()
        });
        let error = ready.run(&device).unwrap_err();
        let DeviceError::Timeout { place, .. } = &error else {
            panic!("{error}");
        };
        let expected = format!("job {job}, task 0 of worker {} of 3", job / 2);
        assert_eq!(place.launch.as_ref(), Some(&expected));
        assert!(error.to_string().contains("will be reset"), "{error}");
        board.set_faults(Faults::default());
        ready.run(&device).unwrap();
        ready.check();
    }
}

#[test]
fn a_wrong_word_is_in_the_result_and_nowhere_else() {
    let board = board();
    let device = device_on(&board, 3);
    let ready = ready(&device);
    ready.run(&device).unwrap();
    let good = ready.result();
    let at = TaskAt {
        job: board.n_jobs() + 3,
        task: 0,
    };
    board.set_faults(Faults {
        wrong: vec![(at, 5, 0x100)],
        ..Faults::default()
    });
    ready.run(&device).unwrap();
    let bad = ready.result();
    let differing = good.iter().zip(&bad).filter(|(a, b)| a != b).count();
    assert_eq!(differing, 1);
}

#[test]
fn a_delay_is_waited_for_and_counted() {
    let board = board();
    let device = device_on(&board, 3);
    let ready = ready(&device);
    let plain = ready.run(&device).unwrap();
    board.set_faults(Faults {
        delayed: vec![(board.n_jobs() + 2, 300_000_000)],
        interrupts: true,
        ..Faults::default()
    });
    let delayed = ready.run(&device).unwrap();
    ready.check();
    assert!(delayed > plain + 290_000_000, "{plain} {delayed}");
    // A delay beyond the kernel's timeout is a reset.
    board.set_faults(Faults {
        delayed: vec![(board.n_jobs() + 2, 600_000_000)],
        ..Faults::default()
    });
    let error = ready.run(&device).unwrap_err();
    assert!(matches!(error, DeviceError::Timeout { .. }), "{error}");
    board.set_faults(Faults::default());
    ready.run(&device).unwrap();
    ready.check();
}

#[test]
fn a_device_that_is_gone_says_so_and_comes_back() {
    let board = board();
    let device = device_on(&board, 3);
    for job in 0..N_JOBS {
        let old = ready(&device);
        old.run(&device).unwrap();
        board.set_faults(Faults {
            gone_at: Some(board.n_jobs() + job),
            ..Faults::default()
        });
        let error = old.run(&device).unwrap_err();
        assert!(matches!(error, DeviceError::Lost { .. }), "{error}");
        let again = old.run(&device).unwrap_err();
        assert!(matches!(again, DeviceError::Lost { .. }), "{again}");
        board.set_faults(Faults::default());
        // Its programs and buffers are gone. It is opened anew, and new ones work.
        let stale = old.run(&device).unwrap_err();
        assert!(matches!(stale, DeviceError::Stale { .. }), "{stale}");
        let new = ready(&device);
        new.run(&device).unwrap();
        new.check();
    }
}

#[test]
fn a_full_address_space_refuses_and_keeps_the_content() {
    let board = board();
    let device = device_on(&board, 3);
    let ready = ready(&device);
    board.set_faults(Faults {
        domain_bytes: Some(3 * 4096),
        ..Faults::default()
    });
    let error = ready.run(&device).unwrap_err();
    assert!(matches!(error, DeviceError::OutOfMemory { .. }), "{error}");
    board.set_faults(Faults::default());
    ready.run(&device).unwrap();
    ready.check();
}

#[test]
fn a_thousand_failing_runs_leave_nothing() {
    let board = board();
    let device = device_on(&board, 3);
    let bos = board.n_bos();
    for round in 0..1000 {
        let cut = tiling(4, 32, 64, 3);
        let ready = Ready::new(&device, case(MatmulKind::Int8Int32, 4, 96, 64, cut));
        let job = board.n_jobs() + round % 3;
        let mut faults = Faults::default();
        match round % 4 {
            0 => faults.hung.push(job),
            1 => faults.dropped.push(TaskAt { job, task: 0 }),
            2 => faults.gone_at = Some(job),
            _ => faults.domain_bytes = Some(3 * 4096),
        }
        board.set_faults(faults);
        assert!(ready.run(&device).is_err(), "round {round}");
        drop(ready);
        board.set_faults(Faults::default());
        assert_eq!(device.held(), DeviceUsage::default(), "round {round}");
        assert_eq!(board.n_bos(), bos, "round {round}");
    }
    let ready = ready(&device);
    ready.run(&device).unwrap();
    ready.check();
    drop((ready, device));
    assert_eq!(board.n_bos(), 0);
}

#[test]
fn programs_for_more_workers_than_there_are_are_refused() {
    let device = device_on(&board(), 2);
    let case = case(MatmulKind::Int8Int32, 4, 96, 64, tiling(4, 32, 64, 3));
    let container = case.program.to_container(&Machine::rk3588()).unwrap();
    let error = device.load(&container).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("for 3 workers"), "{error}");
}

#[test]
fn a_board_that_cannot_be_opened_says_what_to_do() {
    let open = |options: BoardOptions, faults: Faults| {
        let board = Board::new(options);
        board.set_faults(faults);
        let device = millrace_rk3588::RkDevice::with_host(&board, Machine::rk3588(), 3);
        device.map(|_| ()).unwrap_err().to_string()
    };
    let plain = BoardOptions::default;
    let faults = |errno| Faults {
        open: Some(errno),
        ..Faults::default()
    };
    let absent = || BoardOptions {
        has_node: false,
        ..plain()
    };
    let cases = [
        (open(plain(), faults(Errno::ACCESS)), "usermod -aG render"),
        (open(plain(), faults(Errno::IO)), "cannot be opened"),
        (open(absent(), Faults::default()), "modprobe rocket"),
        (
            open(
                BoardOptions {
                    kernel_release: "6.12.9-rk".into(),
                    ..absent()
                },
                Faults::default(),
            ),
            "older than 6.18",
        ),
        (
            open(
                BoardOptions {
                    has_vendor_driver: true,
                    ..absent()
                },
                Faults::default(),
            ),
            "boot a mainline kernel",
        ),
        (
            open(
                BoardOptions {
                    driver_name: "amdxdna".into(),
                    ..plain()
                },
                Faults::default(),
            ),
            "belongs to driver `amdxdna`",
        ),
    ];
    for (error, words) in cases {
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn strict_and_faithful_boards_run_the_same_programs() {
    let board = Board::new(BoardOptions {
        mode: BoardMode::Strict,
        ..BoardOptions::default()
    });
    let device = device_on(&board, 3);
    let ready = ready(&device);
    ready.run(&device).unwrap();
    ready.check();
}
