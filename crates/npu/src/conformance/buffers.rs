//! Checks of buffers.

use super::{Factory, ensure, text};
use crate::{DeviceError, DeviceUsage, Direction, Traffic, Usage};

pub(super) fn alloc(factory: Factory<'_>) -> Result<(), String> {
    let subject = factory();
    let device = &subject.device;
    let max = device.info().max_buffer_bytes;
    for size in [1, 3, 4096.min(max), 65_537.min(max)] {
        for usage in [Usage::HostToDevice, Usage::DeviceToHost, Usage::DeviceOnly] {
            let buffer = text(device.alloc(size, usage))?;
            let found = buffer.size_bytes();
            ensure(found == size, || {
                format!("asked for {size} bytes, got {found}")
            })?;
            ensure(buffer.usage() == usage, || {
                format!("the usage is not {usage:?}")
            })?;
            text(buffer.sync(Direction::FromDevice))?;
            let mut zero = true;
            text(buffer.read_with(|view| {
                zero &= view.len() as u64 == size && view.iter().all(|&byte| byte == 0);
            }))?;
            ensure(zero, || {
                format!("a buffer of {size} bytes is not zero at first")
            })?;
        }
    }
    ensure(device.alloc(0, Usage::DeviceOnly).is_err(), || {
        "it gives a buffer of no bytes".to_owned()
    })?;
    for size in [u64::MAX, max.saturating_add(1)] {
        match device.alloc(size, Usage::DeviceOnly) {
            Err(DeviceError::OutOfMemory { .. } | DeviceError::BufferTooLarge { .. }) => {}
            Err(other) => return Err(format!("{size} bytes: {other}")),
            Ok(_) => return Err(format!("it gives a buffer of {size} bytes")),
        }
    }
    Ok(())
}

pub(super) fn map_and_sync(factory: Factory<'_>) -> Result<(), String> {
    let device = factory().device;
    let buffer = text(device.alloc(64, Usage::HostToDevice))?;
    let content: Vec<u8> = (1..=64).collect();
    text(buffer.write(0, &content))?;
    text(buffer.sync(Direction::ToDevice))?;
    // The device has the bytes that the host sent: they come back over a scribbled host side.
    text(buffer.write_with(|view| view.fill(0xee)))?;
    text(buffer.sync_range(Direction::FromDevice, 0..32))?;
    let mut found = vec![0; 64];
    text(buffer.read(0, &mut found))?;
    if device.info().coherent {
        return Ok(());
    }
    ensure(found[..32] == content[..32], || {
        "bytes sent to the device do not come back".to_owned()
    })?;
    ensure(found[32..].iter().all(|&byte| byte == 0xee), || {
        "a sync went beyond its range".to_owned()
    })?;
    text(buffer.sync_range(Direction::ToDevice, 40..48))?;
    text(buffer.sync(Direction::FromDevice))?;
    text(buffer.read(0, &mut found))?;
    let expected = |at: usize| match at {
        40..48 => 0xee,
        _ => content[at],
    };
    ensure((0..64).all(|at| found[at] == expected(at)), || {
        "a sync of a range to the device moved other bytes".to_owned()
    })
}

pub(super) fn accounting(factory: Factory<'_>) -> Result<(), String> {
    let device = factory().device;
    let buffer = text(device.alloc(100, Usage::HostToDevice))?;
    text(buffer.write(10, &[1; 20]))?;
    text(buffer.sync(Direction::ToDevice))?;
    text(buffer.sync_range(Direction::FromDevice, 5..8))?;
    text(buffer.read(0, &mut [0; 7]))?;
    let expected = Traffic {
        written_bytes: 20,
        to_device_bytes: 100,
        from_device_bytes: 3,
        read_bytes: 7,
    };
    let found = buffer.traffic();
    ensure(found == expected, || format!("{found:?}, not {expected:?}"))?;
    let refused = [
        buffer.write(81, &[0; 20]),
        buffer.write(u64::MAX, &[0; 2]),
        buffer.read(100, &mut [0]),
        buffer.sync_range(Direction::ToDevice, 99..101),
    ];
    for result in refused {
        ensure(matches!(result, Err(DeviceError::Range { .. })), || {
            format!("an access outside the buffer gave {result:?}")
        })?;
    }
    let found = buffer.traffic();
    ensure(found == expected, || {
        "a refused access was counted".to_owned()
    })
}

/// Devices with more memory are not filled.
const FILL_AT_MOST_BYTES: u64 = 64 << 20;

/// All buffers together stay within the memory, and the memory of dropped ones is available again.
pub(super) fn memory(factory: Factory<'_>) -> Result<(), String> {
    let device = factory().device;
    let info = device.info();
    let total = info.memory_bytes;
    let mut buffers = vec![text(device.alloc(10, Usage::DeviceOnly))?];
    let refused = if total > FILL_AT_MOST_BYTES {
        device.alloc(total, Usage::DeviceOnly)
    } else {
        let size = total.div_ceil(4).min(info.max_buffer_bytes);
        let most = total.div_ceil(size);
        let mut next = device.alloc(size, Usage::DeviceOnly);
        while let Ok(buffer) = next {
            buffers.push(buffer);
            ensure(buffers.len() as u64 <= most, || {
                format!("it gives {most} buffers of {size} bytes beside another")
            })?;
            next = device.alloc(size, Usage::DeviceOnly);
        }
        next
    };
    let held_bytes = buffers.iter().map(|buffer| buffer.size_bytes()).sum();
    let expected = DeviceUsage {
        n_programs: 0,
        n_buffers: buffers.len() as u64,
        buffer_bytes: held_bytes,
    };
    let found = device.held();
    ensure(found == expected, || {
        format!("it says it holds {found:?}, not {expected:?}")
    })?;
    match refused {
        Err(DeviceError::BufferTooLarge { .. }) if total > info.max_buffer_bytes => {}
        Err(DeviceError::OutOfMemory {
            available_bytes, ..
        }) => ensure(available_bytes == total - held_bytes, || {
            format!("it says {available_bytes} bytes are left of {total}, {held_bytes} held")
        })?,
        Err(other) => return Err(format!("a buffer that does not fit: {other}")),
        Ok(_) => return Err("it gives a buffer that does not fit".to_owned()),
    }
    drop(buffers);
    let found = device.held();
    ensure(found == DeviceUsage::default(), || {
        format!("it still holds {found:?}")
    })?;
    text(device.alloc(10, Usage::DeviceOnly)).map(|_| ())
}
