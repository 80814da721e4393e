//! The probe on a virtual board, whole and with each fault.
#![allow(clippy::unwrap_used)] // A test may panic.

use millrace_rk3588::probe::{self, BoardProbeReport, STEPS, Status};
use millrace_rk3588::simulate::{Board, BoardOptions, Faults, TaskAt};
use millrace_rk3588::{Machine, Profile};
use rustix::io::Errno;

fn probe(options: BoardOptions, faults: Faults) -> BoardProbeReport {
    let board = Board::new(options);
    board.set_faults(faults);
    let report = probe::run(&board, &Machine::rk3588());
    let names: Vec<&str> = report.steps.iter().map(|step| step.name).collect();
    assert_eq!(names, STEPS);
    assert_eq!(board.n_bos(), 0);
    report
}

fn options(profile: &str) -> BoardOptions {
    BoardOptions {
        profile: Profile::builtin(profile).unwrap(),
        ..BoardOptions::default()
    }
}

#[test]
fn a_whole_board_passes() {
    let report = probe(options("rocket-600"), Faults::default());
    assert!(report.passed(), "{report:#?}");
    assert!(
        report.steps.iter().all(|step| step.status == Status::Ok),
        "{report:#?}"
    );
    let clock = report.clock_hz.unwrap();
    assert!((450e6..=600e6).contains(&clock), "{clock}");
    let gain = report.second_core_gain.unwrap();
    assert!((1.6..=2.0).contains(&gain), "{gain}");
    let rate = report.weight_bytes_per_s.unwrap();
    assert!((4e9..=9.7e9).contains(&rate), "{rate}");
    assert!(report.steps[0].detail.contains("driver rocket 0.0.0"));
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["steps"][4]["status"], "ok");
}

#[test]
fn the_stock_clock_is_noted_with_what_to_do() {
    let report = probe(options("rocket-200"), Faults::default());
    assert!(report.passed());
    let clock = &report.steps[5];
    assert_eq!(clock.status, Status::Note);
    let advice = clock.advice.as_ref().unwrap();
    assert!(
        advice.contains("200 MHz") && advice.contains("600 MHz"),
        "{advice}"
    );
}

#[test]
fn every_fault_fails_its_step_with_advice() {
    let plain = BoardOptions::default;
    let absent = || BoardOptions {
        has_node: false,
        ..plain()
    };
    let at = |job| TaskAt { job, task: 0 };
    let open = |errno| Faults {
        open: Some(errno),
        ..Faults::default()
    };
    let none = Faults::default;
    let cases: Vec<(BoardOptions, Faults, &str, &str)> = vec![
        (absent(), none(), "open", "modprobe rocket"),
        (
            BoardOptions {
                kernel_release: "6.17.4".into(),
                ..absent()
            },
            none(),
            "open",
            "install a newer one",
        ),
        (
            BoardOptions {
                has_vendor_driver: true,
                ..absent()
            },
            none(),
            "open",
            "boot a mainline kernel",
        ),
        (plain(), open(Errno::ACCESS), "open", "usermod"),
        (
            plain(),
            Faults {
                domain_bytes: Some(2 * 4096),
                ..none()
            },
            "allocate",
            "dmesg",
        ),
        (
            plain(),
            Faults {
                gone_at: Some(0),
                ..none()
            },
            "submit",
            "disappeared",
        ),
        (
            plain(),
            Faults {
                dropped: vec![at(0)],
                ..none()
            },
            "wait",
            "update the kernel",
        ),
        (
            plain(),
            Faults {
                hung: vec![0],
                ..none()
            },
            "wait",
            "IOMMU faults",
        ),
        (
            plain(),
            Faults {
                delayed: vec![(0, 700_000_000)],
                ..none()
            },
            "wait",
            "dmesg",
        ),
        (
            plain(),
            Faults {
                wrong: vec![(at(0), 70, 1)],
                ..none()
            },
            "compare",
            "lower its clock",
        ),
        (
            plain(),
            Faults {
                hung: vec![2],
                ..none()
            },
            "clock",
            "IOMMU faults",
        ),
        (
            plain(),
            Faults {
                gone_at: Some(5),
                ..none()
            },
            "bandwidth",
            "disappeared",
        ),
        (
            plain(),
            Faults {
                hung: vec![10],
                ..none()
            },
            "second core",
            "IOMMU faults",
        ),
    ];
    for (options, faults, step, advice) in cases {
        let report = probe(options, faults.clone());
        assert!(!report.passed());
        let failed = report
            .steps
            .iter()
            .find(|s| s.status != Status::Ok && s.status != Status::Note);
        let failed = failed.unwrap();
        assert_eq!(
            (failed.name, failed.status),
            (step, Status::Failed),
            "{faults:?}: {report:#?}"
        );
        let found = failed.advice.as_ref().unwrap();
        assert!(found.contains(advice), "{found}");
    }
}

#[test]
fn interruptions_change_nothing() {
    let faults = Faults {
        interrupts: true,
        ..Faults::default()
    };
    assert!(probe(BoardOptions::default(), faults).passed());
}
