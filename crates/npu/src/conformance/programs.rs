//! Checks of programs: loading, submitting, waiting.

use super::{Factory, Ready, Sample, Subject, ensure, text};
use crate::{Container, DeviceError, DeviceUsage, Direction, Role, Usage};

fn each(
    factory: Factory<'_>,
    check: impl Fn(&Subject, &Sample) -> Result<(), String>,
) -> Result<(), String> {
    let subject = factory();
    let mut samples = subject.samples.iter();
    samples.try_for_each(|sample| check(&subject, sample))
}

fn first(subject: &Subject) -> Result<&Sample, String> {
    subject
        .samples
        .first()
        .ok_or_else(|| "no sample".to_owned())
}

/// Results are right, and right again on the same buffers.
pub(super) fn run(factory: Factory<'_>) -> Result<(), String> {
    each(factory, |subject, sample| {
        let device = &*subject.device;
        let ready = Ready::new(device, sample)?;
        let completion = ready.run(device)?;
        ready.check_outputs()?;
        ensure(completion.provenance == device.info().provenance, || {
            "a completion's time has another provenance than the device says".to_owned()
        })?;
        for (slot, buffer) in sample.container.slots().iter().zip(&ready.buffers) {
            if slot.role == Role::Output {
                text(buffer.write_with(|view| view.fill(0xa5)))?;
                text(buffer.sync(Direction::ToDevice))?;
            }
        }
        ready.run(device)?;
        ready.check_outputs()
    })
}

/// Without coherent caches a device must not see bytes that were not sent.
pub(super) fn needs_sync(factory: Factory<'_>) -> Result<(), String> {
    each(factory, |subject, sample| {
        let device = &*subject.device;
        if device.info().coherent {
            return Ok(());
        }
        let ready = Ready::new(device, sample)?;
        for (data, buffer) in sample.inputs.iter().zip(&ready.buffers) {
            if data.is_some() {
                text(buffer.write_with(|view| view.iter_mut().for_each(|byte| *byte ^= 0x5a)))?;
            }
        }
        ready.run(device)?;
        ready.check_outputs()
    })
}

pub(super) fn leaves_inputs_alone(factory: Factory<'_>) -> Result<(), String> {
    each(factory, |subject, sample| {
        let device = &*subject.device;
        let ready = Ready::new(device, sample)?;
        ready.run(device)?;
        for ((slot, data), buffer) in sample
            .container
            .slots()
            .iter()
            .zip(&sample.inputs)
            .zip(&ready.buffers)
        {
            let Some(data) = data else {
                continue;
            };
            text(buffer.sync(Direction::FromDevice))?;
            let mut same = false;
            text(buffer.read_with(|view| same = view == data.as_slice()))?;
            ensure(same, || {
                format!("the program changed {} `{}`", slot.role.name(), slot.name)
            })?;
        }
        Ok(())
    })
}

pub(super) fn target(factory: Factory<'_>) -> Result<(), String> {
    let subject = factory();
    let good = &first(&subject)?.container;
    let other = format!("not-{}", good.target());
    let other = Container::new(
        &other,
        good.name(),
        good.slots().to_vec(),
        good.payload().to_vec(),
    );
    let other = other.map_err(|error| error.to_string())?;
    match subject.device.load(&other) {
        Err(DeviceError::Target { .. }) => Ok(()),
        Err(error) => Err(format!("a program for another target: {error}")),
        Ok(_) => Err("it loads a program for another target".to_owned()),
    }
}

/// A payload that is not the program it claims to be is refused, whatever its bytes.
pub(super) fn payload(factory: Factory<'_>) -> Result<(), String> {
    each(factory, |subject, sample| {
        let good = &sample.container;
        let cut = good.payload()[..good.payload().len() / 2].to_vec();
        let wrong: [Vec<u8>; 4] = [Vec::new(), vec![0xff; 64], b"{[(\"\0".to_vec(), cut];
        for payload in wrong {
            let name = good.name();
            let bad = Container::new(good.target(), name, good.slots().to_vec(), payload);
            let bad = bad.map_err(|error| error.to_string())?;
            match subject.device.load(&bad) {
                Err(DeviceError::Refused { .. }) => {}
                Err(error) => return Err(format!("a wrong payload: {error}")),
                Ok(_) => return Err(format!("it loads {} wrong bytes", bad.payload().len())),
            }
        }
        Ok(())
    })
}

pub(super) fn bindings(factory: Factory<'_>) -> Result<(), String> {
    each(factory, |subject, sample| {
        let device = &*subject.device;
        let mut ready = Ready::new(device, sample)?;
        let spare = ready.buffers.pop().ok_or("a sample without slots")?;
        match device.bind(&ready.program, &ready.buffers) {
            Err(DeviceError::Bindings { .. }) => {}
            other => return Err(format!("one buffer too few gave {other:?}")),
        }
        let size = spare.size_bytes() + 1;
        ready
            .buffers
            .push(text(device.alloc(size, Usage::DeviceToHost))?);
        match device.bind(&ready.program, &ready.buffers) {
            Err(DeviceError::BindingSize { .. }) => {}
            other => return Err(format!("a buffer of the wrong size gave {other:?}")),
        }
        ready.buffers.pop();
        ready.buffers.push(spare);
        ready.run(device)?;
        ready.check_outputs()
    })
}

/// Programs, buffers and fences of one device are refused by another.
pub(super) fn foreign(factory: Factory<'_>) -> Result<(), String> {
    let (here, there) = (factory(), factory());
    let mine = Ready::new(&*here.device, first(&here)?)?;
    let other = Ready::new(&*there.device, first(&there)?)?;
    match here.device.bind(&mine.program, &other.buffers) {
        Err(DeviceError::ForeignBuffer) => {}
        result => return Err(format!("another device's buffers gave {result:?}")),
    }
    match here.device.bind(&other.program, &mine.buffers) {
        Err(DeviceError::ForeignProgram(_)) => {}
        result => return Err(format!("another device's program gave {result:?}")),
    }
    let bound = text(there.device.bind(&other.program, &other.buffers))?;
    match here.device.submit(&bound) {
        Err(DeviceError::ForeignProgram(_) | DeviceError::ForeignBuffer) => {}
        result => return Err(format!("a binding of another device gave {result:?}")),
    }
    let fence = text(there.device.submit(&bound))?;
    match here.device.wait(fence) {
        Err(DeviceError::UnknownFence) => Ok(()),
        result => Err(format!("another device's fence gave {result:?}")),
    }
}

/// Each fence answers for its own work, in any order. A fence may also stay unanswered.
pub(super) fn fences(factory: Factory<'_>) -> Result<(), String> {
    let subject = factory();
    let device = &*subject.device;
    let ready = Ready::new(device, first(&subject)?)?;
    let again = Ready::new(device, first(&subject)?)?;
    let one = text(ready.submit(device))?;
    let two = text(again.submit(device))?;
    ensure(one != two, || "two submissions have one fence".to_owned())?;
    text(device.wait(two))?;
    again.check_outputs()?;
    text(device.wait(one))?;
    ready.check_outputs()?;
    // Abandoned work is finished or dropped, and the device goes on.
    let _abandoned = text(again.submit(device))?;
    let last = Ready::new(device, first(&subject)?)?;
    last.run(device)?;
    last.check_outputs()
}

/// Work submitted one after the other on the same buffers happens in that order.
pub(super) fn in_flight(factory: Factory<'_>) -> Result<(), String> {
    let subject = factory();
    let device = &*subject.device;
    let ready = Ready::new(device, first(&subject)?)?;
    let bound = text(device.bind(&ready.program, &ready.buffers))?;
    let mut pending = Vec::new();
    for _ in 0..8 {
        pending.push(text(device.submit(&bound))?);
    }
    for fence in pending {
        text(device.wait(fence))?;
    }
    ready.check_outputs()
}

/// The device holds on to program and buffers while it needs them.
pub(super) fn keeps_alive(factory: Factory<'_>) -> Result<(), String> {
    each(factory, |subject, sample| {
        let device = &*subject.device;
        let mut ready = Ready::new(device, sample)?;
        let fence = text(ready.submit(device))?;
        ready.program = text(device.load(&sample.container))?;
        for (slot, buffer) in sample.container.slots().iter().zip(&mut ready.buffers) {
            if slot.role != Role::Output {
                *buffer = text(device.alloc(1, Usage::DeviceOnly))?;
            }
        }
        text(device.wait(fence))?;
        ready.check_outputs()
    })
}

pub(super) fn threads(factory: Factory<'_>) -> Result<(), String> {
    let subject = factory();
    let (device, samples) = (&subject.device, &subject.samples);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(move || {
                    samples.iter().try_for_each(|sample| {
                        let ready = Ready::new(&**device, sample)?;
                        for _ in 0..3 {
                            ready.run(&**device)?;
                            ready.check_outputs()?;
                        }
                        Ok(())
                    })
                })
            })
            .collect();
        workers
            .into_iter()
            .try_for_each(|worker| match worker.join() {
                Ok(result) => result,
                Err(_) => Err("a call panicked".to_owned()),
            })
    })
}

/// A program that fails says so, and the device goes on.
pub(super) fn fault(factory: Factory<'_>) -> Result<(), String> {
    let subject = factory();
    let device = &*subject.device;
    let Some(faulty) = &subject.faulty else {
        return Ok(());
    };
    let ready = Ready::new(device, faulty)?;
    let result = ready.submit(device).and_then(|fence| device.wait(fence));
    match result {
        Err(DeviceError::Fault { .. }) => {}
        other => return Err(format!("a failing program gave {other:?}")),
    }
    let ready = Ready::new(device, first(&subject)?)?;
    ready.run(device)?;
    ready.check_outputs()
}

/// Everything that is dropped is given back, after runs that end well or badly, and after refusals.
pub(super) fn held(factory: Factory<'_>) -> Result<(), String> {
    let subject = factory();
    let device = &*subject.device;
    ensure(device.held() == DeviceUsage::default(), || {
        "a fresh device holds something".to_owned()
    })?;
    for sample in subject.samples.iter().chain(&subject.faulty) {
        let ready = Ready::new(device, sample)?;
        let expected = DeviceUsage {
            n_programs: 1,
            n_buffers: ready.buffers.len() as u64,
            buffer_bytes: ready.buffers.iter().map(|b| b.size_bytes()).sum(),
        };
        let found = device.held();
        ensure(found == expected, || {
            format!("it says it holds {found:?}, not {expected:?}")
        })?;
        let good = &sample.container;
        let bad = Container::new(
            good.target(),
            good.name(),
            good.slots().to_vec(),
            vec![0xff; 9],
        );
        let bad = bad.map_err(|error| error.to_string())?;
        for _ in 0..3 {
            // A faulty sample may fail.
            let _ = ready.run(device);
            let refused = device.load(&bad).is_err() && device.alloc(0, Usage::DeviceOnly).is_err();
            ensure(refused, || {
                "it takes a wrong payload or an empty buffer".to_owned()
            })?;
        }
        ensure(device.held() == expected, || {
            "runs and refusals changed its content".to_owned()
        })?;
        drop(ready);
        let found = device.held();
        ensure(found == DeviceUsage::default(), || {
            format!("it still holds {found:?}")
        })?;
    }
    Ok(())
}
