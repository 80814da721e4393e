//! A target: the registry has its row, its device keeps the contract, and an unknown setting is refused.

use half::f16;
use millrace_dummy_npu::device::{Toy, ToyDevice};
use millrace_dummy_npu::program::Program;
use millrace_kernels::{Cpu, CpuOptions};
use millrace_npu::conformance::{self, Sample, Subject};
use millrace_plan::Settings;
use std::sync::Arc;

fn subject() -> Subject {
    let options = CpuOptions {
        n_threads: Some(1),
        level: None,
    };
    let cpu = Cpu::new(options).expect("a CPU");
    let container = Program { m: 1, k: 2, n: 2 }.to_container();
    let bytes = |numbers: [f32; 2]| numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
    let weights = [2.0, 0.5, -1.0, 1.0].map(f16::from_f32);
    let weights = weights.iter().flat_map(|w| w.to_le_bytes()).collect();
    Subject {
        device: Arc::new(ToyDevice::new(Toy::new(cpu))),
        samples: vec![Sample {
            container: container.expect("a program"),
            inputs: vec![Some(bytes([3.0, 4.0])), Some(weights), None],
            outputs: vec![None, None, Some(bytes([8.0, 1.0]))],
        }],
        faulty: None,
    }
}

/// The target is found by name; models on it are checked with the family and the op.
pub fn check() {
    let mut found = millrace_targets::ALL.iter();
    let found = found.find(|target| target.name() == "dummy-npu");
    let found = found.expect("a row of the registry");
    let planner = found.planner(&Settings::default()).expect("defaults");
    assert_eq!(planner.target(), "dummy-npu");
    let unknown = Settings {
        mode: Some("none".to_owned()),
        ..Settings::default()
    };
    assert!(found.planner(&unknown).is_err());
    assert_eq!(conformance::run_virtual(&subject), []);
}
