//! The probe for the command line, on Linux or on a virtual board with a fault.

use super::settings::machine;
use super::{NAME, Rk3588Target};
use crate::probe::{self, BoardProbeReport, Status};
use crate::rocket::Host;
use crate::rocket::sys::Linux;
use crate::simulate::{Board, BoardOptions, Faults, TaskAt};
use millrace_plan::{
    Choice, ProbeFigure, ProbeOf, ProbeReport, ProbeStatus, ProbeStep, Prober, SettingError,
    Settings,
};
use rustix::io::Errno;

/// A fault: its name, its effect, and how to set it on the board.
struct BoardFault(
    &'static str,
    &'static str,
    fn(&mut BoardOptions, &mut Faults),
);

/// 1.4 times the kernel's timeout of a job.
const LONG_NS: u64 = 700_000_000;

const FIRST: TaskAt = TaskAt { job: 0, task: 0 };

const FAULTS: &[BoardFault] = &[
    BoardFault("no-node", "there is no node in /dev/accel", |o, _| {
        o.has_node = false;
    }),
    BoardFault(
        "old-kernel",
        "the kernel is older than the driver",
        |o, _| {
            o.has_node = false;
            o.kernel_release = "6.12.30".into();
        },
    ),
    BoardFault("vendor-driver", "the vendor's kernel runs", |o, _| {
        o.has_node = false;
        o.has_vendor_driver = true;
    }),
    BoardFault(
        "other-driver",
        "the node belongs to another driver",
        |o, _| {
            o.driver_name = "amdxdna".into();
        },
    ),
    BoardFault("permission", "the node cannot be opened", |_, f| {
        f.open = Some(Errno::ACCESS);
    }),
    BoardFault("full", "the address space is full", |_, f| {
        f.domain_bytes = Some(2 * 4096);
    }),
    BoardFault("gone", "the device disappears at the first job", |_, f| {
        f.gone_at = Some(0);
    }),
    BoardFault("dropped", "the first task does nothing", |_, f| {
        f.dropped.push(FIRST);
    }),
    BoardFault("hung", "the first job hangs and is reset", |_, f| {
        f.hung.push(0);
    }),
    BoardFault("delayed", "the first job takes too long", |_, f| {
        f.delayed.push((0, LONG_NS));
    }),
    BoardFault(
        "wrong-word",
        "a word of the first result is wrong",
        |_, f| {
            f.wrong.push((FIRST, 70, 1));
        },
    ),
    BoardFault("hung-later", "a larger product hangs", |_, f| {
        f.hung.push(2);
    }),
    BoardFault("gone-later", "the device disappears later", |_, f| {
        f.gone_at = Some(5);
    }),
    BoardFault(
        "interrupted",
        "every wait is interrupted once, which is no failure",
        |_, f| {
            f.interrupts = true;
        },
    ),
];

impl Prober for Rk3588Target {
    fn faults(&self) -> Vec<Choice> {
        let choice = |BoardFault(name, summary, _): &BoardFault| Choice::new(name, summary);
        FAULTS.iter().map(choice).collect()
    }

    fn probe(&self, settings: &Settings, of: &ProbeOf) -> Result<ProbeReport, SettingError> {
        let (machine, profile) = machine(settings)?;
        let host: Box<dyn Host> = match of {
            ProbeOf::Hardware => Box::new(Linux),
            ProbeOf::Virtual(fault) => {
                let mut options = BoardOptions {
                    machine: machine.clone(),
                    profile,
                    ..BoardOptions::default()
                };
                let mut faults = Faults::default();
                if let Some(name) = fault {
                    let known = FAULTS.iter().find(|fault| fault.0 == name);
                    let unknown = || SettingError::unknown(NAME, "fault", name, &self.faults());
                    (known.ok_or_else(unknown)?.2)(&mut options, &mut faults);
                }
                let board = Board::new(options);
                board.set_faults(faults);
                Box::new(board)
            }
        };
        Ok(told(probe::run(&*host, &machine), of))
    }
}

fn told(report: BoardProbeReport, of: &ProbeOf) -> ProbeReport {
    let status = |status| match status {
        Status::Ok => ProbeStatus::Ok,
        Status::Note => ProbeStatus::Note,
        Status::Failed => ProbeStatus::Failed,
        Status::Skipped => ProbeStatus::Skipped,
    };
    let figures = [
        ("clock_hz", report.clock_hz),
        ("weight_bytes_per_s", report.weight_bytes_per_s),
        ("host_bytes_per_s", report.host_bytes_per_s),
        ("second_core_gain", report.second_core_gain),
    ];
    let figure = |(name, value): (_, Option<f64>)| {
        Some(ProbeFigure {
            name,
            value: value?,
        })
    };
    let mut steps: Vec<ProbeStep> = (report.steps.into_iter())
        .map(|step| ProbeStep {
            name: step.name.to_owned(),
            status: status(step.status),
            detail: step.detail,
            advice: step.advice,
        })
        .collect();
    // Without a board, all of it can still be tried on a virtual one.
    if let (ProbeOf::Hardware, Some(open)) = (of, steps.first_mut())
        && report.provenance.is_none()
    {
        let advice = open
            .advice
            .take()
            .map_or_else(String::new, |a| format!("{a}; "));
        open.advice = Some(format!("{advice}`--virtual` probes a virtual board"));
    }
    ProbeReport {
        place: report.host,
        provenance: report.provenance,
        steps,
        figures: figures.into_iter().filter_map(figure).collect(),
        profile: None,
    }
}
