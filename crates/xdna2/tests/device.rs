//! The virtual device under the contract of all devices.
#![allow(clippy::unwrap_used)] // A test may panic.

use millrace_kernels::{Cpu, CpuOptions};
use millrace_npu::conformance::{self, Sample, Subject};
use millrace_npu::{
    Buffer, Completion, Container, Device, DeviceError, DeviceUsage, Direction, LoadedProgram,
    Role, Usage,
};
use millrace_npu::{Corruption, Inject, Injection};
use millrace_xdna2::mapping;
use millrace_xdna2_machine::device::{VirtualDevice, virtual_device};
use millrace_xdna2_machine::{Machine, Profile};
use millrace_xdna2_silicon::device::{WordsDevice, words_device};
use std::sync::Arc;

fn device() -> VirtualDevice {
    let cpu = Cpu::new(CpuOptions::default()).unwrap();
    let profile = Profile::builtin(Profile::DEFAULT).unwrap();
    virtual_device(Machine::npu2(), profile, cpu)
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

/// The device that executes words.
fn words() -> WordsDevice {
    let cpu = Cpu::new(CpuOptions::default()).unwrap();
    let profile = Profile::builtin(Profile::DEFAULT).unwrap();
    words_device(Machine::npu2(), profile, cpu)
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
    let failures = conformance::run_virtual(&|| {
        // Little enough for the suite to fill it.
        Subject {
            device: Arc::new(device().with_memory(1 << 20)),
            samples: samples.clone(),
            faulty: None,
        }
    });
    let failures: Vec<String> = failures.iter().map(ToString::to_string).collect();
    assert!(failures.is_empty(), "{failures:#?}");
}

/// So does the device whose programs are words on the board behind the driver's kernel.
#[test]
fn the_device_of_words_keeps_it_too() {
    let samples = [sample("add", "1024"), sample("gemm-i8", "64x64x64")];
    let failures = conformance::run_virtual(&|| Subject {
        device: Arc::new(words().with_memory(1 << 20)),
        samples: samples.to_vec(),
        faulty: None,
    });
    let failures: Vec<String> = failures.iter().map(ToString::to_string).collect();
    assert!(failures.is_empty(), "{failures:#?}");
}

/// A program loaded, with its buffers filled.
struct Ready {
    sample: Sample,
    program: Arc<dyn LoadedProgram>,
    buffers: Vec<Arc<Buffer>>,
}

impl Ready {
    fn new(device: &VirtualDevice, sample: &Sample) -> Ready {
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
        Ready {
            sample: sample.clone(),
            program,
            buffers,
        }
    }

    fn run(&self, device: &VirtualDevice) -> Result<Completion, DeviceError> {
        device.wait(device.submit(&device.bind(&self.program, &self.buffers)?)?)
    }

    /// Whether the outputs are as expected.
    fn is_right(&self) -> bool {
        let outputs = self.sample.outputs.iter().zip(&self.buffers);
        outputs.into_iter().all(|(expected, buffer)| {
            let Some(expected) = expected else {
                return true;
            };
            buffer.sync(Direction::FromDevice).unwrap();
            let mut found = vec![0; expected.len()];
            buffer.read(0, &mut found).unwrap();
            found == *expected
        })
    }
}

#[test]
fn injected_failures_say_where_and_the_device_goes_on() {
    let (device, sample) = (device(), sample("gemv", "512x256"));
    let ready = Ready::new(&device, &sample);
    device.inject_after(1, Injection::Timeout);
    device.inject(Injection::StopAfter(300));
    assert!(ready.run(&device).unwrap().duration_ns > 0);
    let timeout = ready.run(&device).unwrap_err();
    let DeviceError::Timeout {
        after_ns, place, ..
    } = &timeout
    else {
        panic!("{timeout}");
    };
    assert_eq!(*after_ns, 2_000_000_000);
    assert_eq!(place.program, "gemv");
    assert_eq!(place.launch.as_deref(), Some("gemv"));
    assert_eq!(place.unit.as_deref(), Some("core (0, 0)"));
    assert!(place.slot.is_some(), "{timeout}");
    let stopped = ready.run(&device).unwrap_err();
    assert!(matches!(stopped, DeviceError::Fault { .. }), "{stopped}");
    let message = stopped.to_string();
    for words in [
        "program `gemv`, launch `gemv`, core (0, 0), slot `",
        "300 units",
    ] {
        assert!(message.contains(words), "{message}");
    }
    ready.run(&device).unwrap();
    assert!(ready.is_right());
    // More units than the program takes.
    device.inject(Injection::StopAfter(u64::MAX));
    ready.run(&device).unwrap();
    // The default profile states no power.
    assert_eq!(ready.run(&device).unwrap().energy, None);
    // One buffer for two slots.
    let twice = vec![ready.buffers[0].clone(); ready.buffers.len()];
    let sizes = device.bind(&ready.program, &twice).unwrap_err();
    assert!(matches!(sizes, DeviceError::BindingSize { .. }), "{sizes}");
}

#[test]
fn energy_is_the_profiles_power_over_the_programs_time() {
    let cpu = Cpu::new(CpuOptions::default()).unwrap();
    let profile = Profile::builtin("paper-kraken").unwrap();
    let device = virtual_device(Machine::npu2(), profile.clone(), cpu);
    let completion = Ready::new(&device, &sample("add", "4096")).run(&device);
    let completion = completion.unwrap();
    let energy = completion.energy.unwrap();
    let expected = profile.power.npu_w * completion.duration_ns as f64 * 1e-9;
    assert_eq!(energy.joules("npu"), Some(expected));
    assert!(energy.to_string().contains("(modelled)"));
}

#[test]
fn one_buffer_is_not_two_slots() {
    let (device, sample) = (device(), sample("add", "4096"));
    let ready = Ready::new(&device, &sample);
    let twice = vec![ready.buffers[0].clone(); ready.buffers.len()];
    let refused = device.bind(&ready.program, &twice).unwrap_err();
    assert!(refused.to_string().contains("one buffer"), "{refused}");
}

#[test]
fn refused_loads_and_allocations_hold_nothing() {
    let (device, sample) = (device(), sample("add", "4096"));
    device.inject_after(1, Injection::NotPinned);
    device.inject(Injection::RefuseLoad);
    let refused = device.load(&sample.container).err().unwrap();
    assert!(
        refused.to_string().contains("no hardware context"),
        "{refused}"
    );
    let first = device.alloc(64, Usage::DeviceOnly).unwrap();
    let refused = device.alloc(128, Usage::DeviceOnly).unwrap_err();
    assert!(matches!(
        refused,
        DeviceError::NotPinned {
            asked_bytes: 128,
            ..
        }
    ));
    let held = device.held();
    assert_eq!(
        (held.n_buffers, held.buffer_bytes, held.n_programs),
        (1, 64, 0)
    );
    drop(first);
    assert_eq!(device.held(), DeviceUsage::default());
    let ready = Ready::new(&device, &sample);
    ready.run(&device).unwrap();
    assert!(ready.is_right());
}

#[test]
fn a_lost_device_says_so_until_all_is_made_anew() {
    let (device, sample) = (device(), sample("add", "4096"));
    let ready = Ready::new(&device, &sample);
    let bound = device.bind(&ready.program, &ready.buffers).unwrap();
    let fetched_too_late = device.submit(&bound).unwrap();
    device.inject(Injection::Lose);
    let lost = ready.run(&device).unwrap_err();
    assert!(lost.is_loss() && lost.place().is_some(), "{lost}");
    assert!(
        lost.to_string()
            .contains("is gone (it was running program `add`"),
        "{lost}"
    );
    let is_lost = |error: DeviceError| matches!(error, DeviceError::Lost { .. });
    assert!(is_lost(device.wait(fetched_too_late).unwrap_err()));
    assert!(is_lost(device.alloc(1, Usage::DeviceOnly).unwrap_err()));
    assert!(is_lost(device.load(&sample.container).err().unwrap()));
    assert!(is_lost(ready.run(&device).unwrap_err()));
    device.revive();
    let stale = ready.run(&device).unwrap_err();
    assert!(
        stale
            .to_string()
            .contains("program `add` from before is lost"),
        "{stale}"
    );
    let anew = Ready::new(&device, &sample);
    let stale = device.bind(&anew.program, &ready.buffers).unwrap_err();
    assert!(
        stale.to_string().contains("a buffer from before is lost"),
        "{stale}"
    );
    anew.run(&device).unwrap();
    assert!(anew.is_right());
    drop((bound, ready, anew));
    assert_eq!(device.held(), DeviceUsage::default());
}

#[test]
fn a_corrupted_slot_is_wrong_until_it_is_cleared() {
    let (device, sample) = (device(), sample("add", "4096"));
    let ready = Ready::new(&device, &sample);
    let output = sample.outputs.iter().position(Option::is_some).unwrap();
    let corrupt = |program: &str| Injection::Corrupt {
        program: program.into(),
        slot: sample.container.slots()[output].name.clone(),
        how: Corruption::Some,
    };
    for (program, is_right) in [("other", true), ("add", false)] {
        device.inject(corrupt(program));
        for _ in 0..2 {
            ready.run(&device).unwrap();
            assert_eq!(ready.is_right(), is_right, "{program}");
        }
    }
    device.clear();
    ready.run(&device).unwrap();
    assert!(ready.is_right());
}

/// For every wrong byte of a container: it is refused, or it is the same program.
#[test]
fn every_flipped_byte_of_a_container_is_found() {
    let device = device();
    let good = sample("add", "4096").container;
    let bytes = good.encode();
    for at in 0..bytes.len() {
        for bits in [0x01, 0x80, 0xff] {
            let mut bad = bytes.clone();
            bad[at] ^= bits;
            let Ok(decoded) = Container::decode(&bad) else {
                continue;
            };
            assert_eq!(decoded, good, "byte {at} ^ {bits}");
        }
        assert!(
            Container::decode(&bytes[..at]).is_err(),
            "{at} bytes of {}",
            bytes.len()
        );
    }
    // If a payload is changed and its hash fits, the device has to judge it.
    let payload = good.payload();
    for at in 0..payload.len() {
        let mut wrong = payload.to_vec();
        wrong[at] ^= 0x20;
        let container = Container::new(good.target(), good.name(), good.slots().to_vec(), wrong);
        match device.load(&container.unwrap()) {
            Ok(loaded) => assert_eq!(loaded.slots(), good.slots()),
            Err(DeviceError::Refused { program, reason }) => {
                assert!(program == "add" && !reason.is_empty());
            }
            Err(other) => panic!("byte {at}: {other}"),
        }
    }
    assert_eq!(device.held(), DeviceUsage::default());
}
