//! The virtual device under the contract of all devices.
#![allow(clippy::unwrap_used)] // A test may panic.

use millrace_kernels::{Cpu, CpuOptions};
use millrace_npu::conformance::{self, Sample, Subject};
use millrace_npu::{Device, DeviceError, Direction, Role};
use millrace_xdna2::device::{Injection, VirtualDevice};
use millrace_xdna2::{Machine, Profile, mapping};
use std::sync::Arc;

fn device() -> VirtualDevice {
    let cpu = Cpu::new(CpuOptions::default()).unwrap();
    let profile = Profile::builtin(Profile::DEFAULT).unwrap();
    VirtualDevice::new(Machine::npu2(), profile, cpu)
}

/// A mapping's program with its data and reference.
fn sample(name: &str, shape: &str) -> Sample {
    let (mapping, machine) = (mapping::find(name).unwrap(), Machine::npu2());
    let shape = mapping.parse_shape(shape).unwrap();
    let tiling = mapping.default_tiling(&shape, &machine);
    let program = mapping.build(&shape, &tiling, &machine).unwrap();
    let data = mapping.inputs(&shape, 5);
    let mut outputs = vec![None; data.len()];
    for (slot, expected) in mapping.reference(&shape, &tiling, &data) {
        if program.slots[slot].role == Role::Output {
            outputs[slot] = Some(expected);
        }
    }
    let roles = program.slots.iter().map(|slot| slot.role);
    let inputs = data
        .into_iter()
        .zip(roles)
        .map(|(data, role)| matches!(role, Role::Input | Role::Static).then_some(data));
    Sample {
        container: program.to_container().unwrap(),
        inputs: inputs.collect(),
        outputs,
    }
}

fn samples() -> Vec<Sample> {
    vec![
        sample("rmsnorm", "16x256"),
        sample("add", "4096"),
        sample("gemv", "128x256"),
    ]
}

#[test]
fn it_keeps_the_contract_of_devices() {
    let samples = samples();
    let failures = conformance::run(&|| {
        let device = device();
        Subject {
            device: Arc::new(device),
            samples: samples.clone(),
            faulty: None,
        }
    });
    let failures: Vec<String> = failures.iter().map(ToString::to_string).collect();
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn injected_failures_are_reported_once_and_the_device_goes_on() {
    let (device, sample) = (device(), sample("add", "4096"));
    let program = device.load(&sample.container).unwrap();
    let mut buffers = Vec::new();
    for (slot, data) in sample.container.slots().iter().zip(&sample.inputs) {
        let buffer = device
            .alloc(slot.size_bytes().unwrap(), slot.role.into())
            .unwrap();
        if let Some(data) = data {
            buffer.write(0, data).unwrap();
            buffer.sync(Direction::ToDevice).unwrap();
        }
        buffers.push(buffer);
    }
    let run = || device.wait(device.submit(&program, &buffers).unwrap());
    device.inject(Injection::Timeout);
    device.inject(Injection::StopAfter(1));
    for words in ["timed out", "did not end within 1 units"] {
        let Err(DeviceError::Fault { reason, .. }) = run() else {
            panic!("no fault");
        };
        assert!(reason.contains(words), "{reason}");
    }
    let completion = run().unwrap();
    assert!(completion.duration_ns > 0);
    let output = sample.outputs.iter().position(Option::is_some).unwrap();
    buffers[output].sync(Direction::FromDevice).unwrap();
    let mut found = vec![0; sample.outputs[output].as_ref().unwrap().len()];
    buffers[output].read(0, &mut found).unwrap();
    assert_eq!(Some(found), sample.outputs[output]);
    // One buffer for two slots.
    let twice = vec![buffers[0].clone(); buffers.len()];
    let refused = device.submit(&program, &twice).unwrap_err();
    assert!(refused.to_string().contains("one buffer"), "{refused}");
}
