//! Checks of failures that a device has on request, and of its state after them.

use super::{Factory, Ready, Subject, ensure, text};
use crate::{Corruption, Device, DeviceError, Inject, Injection, Role, Usage};

/// The subject's first sample, and its injector; `None` where the device has none.
fn with_injector(
    factory: Factory<'_>,
    check: impl Fn(&dyn Device, &dyn Inject, &Subject) -> Result<(), String>,
) -> Result<(), String> {
    let subject = factory();
    let device = &*subject.device;
    match device.injector() {
        Some(injector) => check(device, injector, &subject),
        None => Ok(()),
    }
}

fn ready(device: &dyn Device, subject: &Subject) -> Result<Ready, String> {
    let sample = subject.samples.first().ok_or("no sample")?;
    Ready::new(device, sample)
}

/// An independent run, which earlier failures must not affect.
fn runs_right(device: &dyn Device, subject: &Subject) -> Result<(), String> {
    let ready = ready(device, subject)?;
    ready.run(device)?;
    ready.check_outputs()
}

/// A submission that hangs or stops names the program; others are unaffected, and the same buffers can be used again.
pub(super) fn stops(factory: Factory<'_>) -> Result<(), String> {
    with_injector(factory, |device, injector, subject| {
        let ready = ready(device, subject)?;
        for injection in [Injection::Timeout, Injection::StopAfter(0)] {
            injector.inject_after(1, injection.clone());
            ready.run(device)?;
            ready.check_outputs()?;
            let result = (ready.submit(device)).and_then(|fence| device.wait(fence));
            let is_right = match injection {
                Injection::Timeout => matches!(result, Err(DeviceError::Timeout { .. })),
                _ => matches!(result, Err(DeviceError::Fault { .. })),
            };
            ensure(is_right, || format!("{injection:?} gave {result:?}"))?;
            let place = result.as_ref().err().and_then(DeviceError::place);
            let name = ready.program.name();
            ensure(place.is_some_and(|place| place.program == name), || {
                format!("{injection:?}: the error does not name program `{name}`")
            })?;
            ready.run(device)?;
            ready.check_outputs()?;
        }
        Ok(())
    })
}

/// A lost device stays away until it is revived. Its programs and buffers are then gone, and new ones work.
pub(super) fn lost(factory: Factory<'_>) -> Result<(), String> {
    with_injector(factory, |device, injector, subject| {
        let ready = ready(device, subject)?;
        let bound = text(device.bind(&ready.program, &ready.buffers))?;
        injector.inject(Injection::Lose);
        let result = device.submit(&bound).and_then(|fence| device.wait(fence));
        ensure(matches!(result, Err(DeviceError::Lost { .. })), || {
            format!("a submission on which the device disappears gave {result:?}")
        })?;
        let calls = [
            device.alloc(1, Usage::DeviceOnly).err(),
            device.load(&ready.sample.container).err(),
            device.submit(&bound).and_then(|f| device.wait(f)).err(),
        ];
        for error in calls {
            ensure(matches!(error, Some(DeviceError::Lost { .. })), || {
                format!("a call while it is away gave {error:?}")
            })?;
        }
        injector.revive();
        let result = device.submit(&bound).and_then(|fence| device.wait(fence));
        ensure(result.as_ref().is_err_and(|error| error.is_loss()), || {
            format!("a binding from before the loss gave {result:?}")
        })?;
        runs_right(device, subject)
    })
}

/// An allocation and a load are refused, once each.
pub(super) fn refuses(factory: Factory<'_>) -> Result<(), String> {
    with_injector(factory, |device, injector, subject| {
        injector.inject(Injection::NotPinned);
        let result = device.alloc(8, Usage::DeviceOnly).map(|_| ());
        ensure(matches!(result, Err(DeviceError::NotPinned { .. })), || {
            format!("a buffer that cannot be pinned gave {result:?}")
        })?;
        let container = &subject.samples.first().ok_or("no sample")?.container;
        injector.inject(Injection::RefuseLoad);
        let result = device.load(container).map(|_| ());
        ensure(matches!(result, Err(DeviceError::Refused { .. })), || {
            format!("a load that is to be refused gave {result:?}")
        })?;
        injector.inject(Injection::NotPinned);
        injector.inject(Injection::RefuseLoad);
        injector.clear();
        runs_right(device, subject)
    })
}

/// A corrupted output is wrong and counted, and right again once the corruption is cleared.
pub(super) fn corrupts(factory: Factory<'_>) -> Result<(), String> {
    with_injector(factory, |device, injector, subject| {
        let ready = ready(device, subject)?;
        let slots = ready.program.slots();
        let output = slots.iter().find(|slot| slot.role == Role::Output);
        let output = output.ok_or("the first sample has no output")?;
        injector.inject(Injection::Corrupt {
            program: ready.program.name().to_owned(),
            slot: output.name.clone(),
            how: Corruption::Double,
        });
        for round in 1..=2 {
            ready.run(device)?;
            ensure(ready.check_outputs().is_err(), || {
                "an output that is to be wrong is right".to_owned()
            })?;
            let found = injector.corrupted();
            ensure(found.n_applied >= round && found.n_changed >= round, || {
                format!("it counts {found:?} after {round} runs")
            })?;
        }
        injector.clear();
        ensure(injector.corrupted() == Default::default(), || {
            "a cleared count is still there".to_owned()
        })?;
        ready.run(device)?;
        ready.check_outputs()
    })
}
