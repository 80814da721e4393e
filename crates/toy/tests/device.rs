//! The toy passes the device conformance suite, and its refusals are reported.
#![allow(clippy::unwrap_used)] // A test may panic.

use millrace_kernels::{Cpu, CpuOptions};
use millrace_npu::conformance::{self, Sample, Subject};
use millrace_npu::{Container, Device};
use millrace_toy::NAME;
use millrace_toy::device::{Toy, ToyDevice};
use millrace_toy::program::{MAX_ROWS, Program};
use std::sync::Arc;

fn device() -> ToyDevice {
    let options = CpuOptions {
        n_threads: Some(1),
        level: None,
    };
    ToyDevice::new(Toy::new(Cpu::new(options).unwrap()))
}

fn sample() -> Sample {
    let container = Program { m: 2, k: 3, n: 2 }.to_container().unwrap();
    let x: Vec<u8> = [1.0_f32, 2.0, 3.0, -1.0, 0.5, 0.0]
        .iter()
        .flat_map(|x| x.to_le_bytes())
        .collect();
    let w = [1.0_f32, 0.0, 2.0, -1.0, 4.0, 0.25].map(half::f16::from_f32);
    let y = [7.0_f32, 7.75, -1.0, 3.0];
    Sample {
        container,
        inputs: vec![
            Some(x),
            Some(w.iter().flat_map(|w| w.to_le_bytes()).collect()),
            None,
        ],
        outputs: vec![
            None,
            None,
            Some(y.iter().flat_map(|y| y.to_le_bytes()).collect()),
        ],
    }
}

#[test]
fn the_toy_keeps_the_contract() {
    let failures = conformance::run_virtual(&|| Subject {
        device: Arc::new(device()),
        samples: vec![sample()],
        faulty: None,
    });
    assert_eq!(failures, []);
}

#[test]
fn programs_come_back_from_their_bytes_or_are_refused() {
    let good = Program { m: 5, k: 7, n: 9 };
    let container = good.to_container().unwrap();
    assert_eq!(Program::from_container(&container), Ok(good));
    let long = Program {
        m: MAX_ROWS + 1,
        ..good
    };
    let long = long.to_container().unwrap();
    let problem = Program::from_container(&long).unwrap_err();
    assert!(problem.contains("the toy takes 1 to 256"), "{problem}");
    assert!(device().load(&long).is_err());
    let other = Program { n: 8, ..good };
    let mixed = Container::new(NAME, "x", other.slots(), container.payload().to_vec());
    assert!(Program::from_container(&mixed.unwrap()).is_err());
}
