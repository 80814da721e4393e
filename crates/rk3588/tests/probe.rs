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
    let absent = |change: fn(&mut BoardOptions)| {
        let mut options = plain();
        options.has_node = false;
        change(&mut options);
        options
    };
    let fault = |change: fn(&mut Faults)| {
        let mut faults = Faults::default();
        change(&mut faults);
        faults
    };
    let none = Faults::default;
    let first = TaskAt { job: 0, task: 0 };
    let old = absent(|options| options.kernel_release = "6.17.4".into());
    let vendors = absent(|options| options.has_vendor_driver = true);
    let locked = fault(|f| f.open = Some(Errno::ACCESS));
    let small = fault(|f| f.domain_bytes = Some(2 * 4096));
    let gone = |at| Faults {
        gone_at: Some(at),
        ..none()
    };
    let hung = |job| Faults {
        hung: vec![job],
        ..none()
    };
    let dropped = Faults {
        dropped: vec![first],
        ..none()
    };
    let delayed = fault(|f| f.delayed = vec![(0, 700_000_000)]);
    let wrong = Faults {
        wrong: vec![(first, 70, 1)],
        ..none()
    };
    let cases = [
        (absent(|_| {}), none(), "open", "modprobe rocket"),
        (old, none(), "open", "install a newer one"),
        (vendors, none(), "open", "boot a mainline kernel"),
        (plain(), locked, "open", "usermod"),
        (plain(), small, "allocate", "dmesg"),
        (plain(), gone(0), "submit", "disappeared"),
        (plain(), dropped, "wait", "update the kernel"),
        (plain(), hung(0), "wait", "IOMMU faults"),
        (plain(), delayed, "wait", "dmesg"),
        (plain(), wrong, "compare", "lower its clock"),
        (plain(), hung(2), "clock", "IOMMU faults"),
        (plain(), gone(5), "bandwidth", "disappeared"),
        (plain(), hung(10), "second core", "IOMMU faults"),
    ];
    for (options, faults, step, advice) in cases {
        let report = probe(options, faults.clone());
        assert_fails(&report, step, advice, &faults);
    }
}

fn assert_fails(report: &BoardProbeReport, step: &str, advice: &str, faults: &Faults) {
    assert!(!report.passed());
    let mut steps = report.steps.iter();
    let failed = steps.find(|s| s.status != Status::Ok && s.status != Status::Note);
    let failed = failed.unwrap();
    assert_eq!(
        (failed.name, failed.status),
        (step, Status::Failed),
        "{faults:?}: {report:#?}"
    );
    let found = failed.advice.as_ref().unwrap();
    assert!(found.contains(advice), "{found}");
}

#[test]
fn interruptions_change_nothing() {
    let faults = Faults {
        interrupts: true,
        ..Faults::default()
    };
    assert!(probe(BoardOptions::default(), faults).passed());
}
