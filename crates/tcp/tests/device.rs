//! The virtual chip under the contract of all devices.
#![allow(clippy::unwrap_used)] // A test may panic.

use millrace_npu::conformance::{self, Sample, Subject};
use millrace_npu::{Device, DeviceError, Direction, Inject, Injection};
use millrace_tcp::device::{Chip, VirtualDevice};
use millrace_tcp::program::parse;
use millrace_tcp::{Element, Machine, Profile};
use std::sync::Arc;

fn chip() -> Chip {
    Chip::new(Machine::rngd(), Profile::furiosa_llm(), 2)
}

fn device() -> VirtualDevice {
    VirtualDevice::new(chip())
}

/// `y = w x` for a `w` with one entry a row, so that the result is known to the bit.
fn product() -> Sample {
    let program = parse(include_str!("../testdata/gemv.tcp")).unwrap();
    let (mut w, mut x, mut y) = (vec![0; 512 * 512], vec![0; 512], vec![0; 1024]);
    for k in 0..256 {
        Element::Bf16.encode(k as f32, &mut x, k);
    }
    for n in 0..512 {
        Element::Bf16.encode(0.5, &mut w, n * 256 + (n * 7) % 256);
        Element::Bf16.encode(0.5 * ((n * 7) % 256) as f32, &mut y, n);
    }
    Sample {
        container: program.to_container().unwrap(),
        inputs: vec![Some(w), Some(x), None],
        outputs: vec![None, None, Some(y)],
    }
}

/// Rows of a table.
fn gather(token: i32) -> Sample {
    let text = "tcp 1\nprogram gather {\n axis V = 8\n axis D = 64\n axis T = 64
      hbm table: bf16 static m![V, D]\n hbm token: i32 input m![T]\n hbm y: bf16 output m![T, D]
      dm row: bf16 at 0 cluster m![2] slice m![T] element m![D]
      tdma 0 8 look: table -> row gather V by token\n tdma 0 8 store: row -> y\n}";
    let table: Vec<u8> = (0..1024u32).map(|i| (i * 37 % 251) as u8).collect();
    let rows = table[token.rem_euclid(8) as usize * 128..][..128].repeat(64);
    Sample {
        container: parse(text).unwrap().to_container().unwrap(),
        inputs: vec![Some(table), Some(token.to_le_bytes().repeat(64)), None],
        outputs: vec![None, None, Some(rows)],
    }
}

#[test]
fn it_keeps_the_contract_of_devices() {
    let failures = conformance::run_virtual(&|| Subject {
        // Little memory, so that the suite can fill it.
        device: Arc::new(device().with_memory(4 << 20)),
        samples: vec![product(), gather(3)],
        faulty: Some(gather(8)),
    });
    let failures: Vec<String> = failures.iter().map(ToString::to_string).collect();
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn faults_say_where_and_the_device_goes_on() {
    let (device, sample) = (VirtualDevice::new(chip().with_traces()), product());
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
    device.inject(Injection::StopAfter(3));
    let fence = device
        .submit(&device.bind(&program, &buffers).unwrap())
        .unwrap();
    let fault = device.wait(fence).unwrap_err();
    let expected = "program `gemv`, launch `gemv` failed: stopped after 3 commands";
    assert_eq!(fault.to_string(), expected);
    let fence = device
        .submit(&device.bind(&program, &buffers).unwrap())
        .unwrap();
    let completion = device.wait(fence).unwrap();
    let trace = completion.trace.unwrap();
    assert_eq!(trace.events.len(), 5);
    assert_eq!(trace.end_ns(), completion.duration_ns);
    let shown = completion.provenance.to_string();
    assert_eq!(shown, "modelled(furiosa-llm-2025, error unknown)");
}

#[test]
fn programs_that_break_rules_are_not_loaded() {
    let text = include_str!("../testdata/gemv.tcp").replace("at 1024", "at 524288");
    let container = parse(&text).unwrap().to_container().unwrap();
    let Err(DeviceError::Refused { reason, .. }) = device().load(&container).map(|_| ()) else {
        panic!("loaded")
    };
    assert!(
        reason.starts_with("TC202 tensor `y_dm`: it ends at byte 524304"),
        "{reason}"
    );
}
