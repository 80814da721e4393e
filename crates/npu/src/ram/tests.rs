//! Two sides as one copy.

use super::*;

const OWNER: u64 = 7;

fn buffer(len: u64) -> Buffer {
    RamBuffer::alloc(OWNER, len, Usage::HostToDevice, len).unwrap()
}

fn seen(buffer: &Buffer) -> Vec<u8> {
    let mut bytes = Vec::new();
    buffer.read_with(|view| bytes = view.to_vec()).unwrap();
    bytes
}

fn held(buffer: &Buffer) -> Vec<u8> {
    let mut bytes = Vec::new();
    buffer.peek(|view| bytes = view.to_vec()).unwrap();
    bytes
}

fn ram(buffer: &Buffer) -> &RamBuffer {
    RamBuffer::of(buffer, OWNER).unwrap()
}

/// Compares with two plain arrays under the same random operations: the host sees the same as with two copies. Only
/// after a write of the device, and until a sync or a write of the host, may it see undefined bytes.
#[test]
fn one_copy_behaves_as_two() {
    const LEN: usize = 9;
    let mut state = 1_u64;
    let mut random = move |n: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as usize % n
    };
    for _ in 0..200 {
        let buffer = buffer(LEN as u64);
        let (mut host, mut device) = ([0_u8; LEN], [0_u8; LEN]);
        let mut may_be_undefined = [false; LEN];
        for step in 0..40 {
            let byte = 1 + step as u8;
            let (a, b) = (random(LEN + 1), random(LEN + 1));
            let range = match random(2) {
                0 => 0..LEN,
                _ => a.min(b)..a.max(b),
            };
            let bytes = range.start as u64..range.end as u64;
            match random(4) {
                0 => {
                    buffer.write(bytes.start, &vec![byte; range.len()]).unwrap();
                    host[range.clone()].fill(byte);
                    may_be_undefined[range].fill(false);
                }
                1 => {
                    buffer.sync_range(Direction::ToDevice, bytes).unwrap();
                    device[range.clone()].copy_from_slice(&host[range]);
                }
                2 => {
                    buffer.sync_range(Direction::FromDevice, bytes).unwrap();
                    host[range.clone()].copy_from_slice(&device[range.clone()]);
                    may_be_undefined[range].fill(false);
                }
                _ => {
                    ram(&buffer).device_mut()[range.clone()].fill(byte);
                    device[range].fill(byte);
                    may_be_undefined.fill(true);
                }
            }
            assert_eq!(held(&buffer), device);
            for (at, seen) in seen(&buffer).into_iter().enumerate() {
                let undefined = seen == UNDEFINED && may_be_undefined[at];
                assert!(undefined || seen == host[at], "step {step}, byte {at}");
                host[at] = seen;
            }
        }
    }
}

#[test]
fn memory_is_taken_where_sides_differ() {
    let buffer = buffer(1000);
    assert_eq!((seen(&buffer), held(&buffer).len()), (vec![0; 1000], 1000));
    let fresh = super::tests::buffer(1000);
    assert_eq!(ram(&fresh).resident_bytes(), 0);
    fresh.write_with(|view| view.fill(3)).unwrap();
    assert_eq!(ram(&fresh).resident_bytes(), 1000);
    fresh.sync(Direction::ToDevice).unwrap();
    assert_eq!(ram(&fresh).resident_bytes(), 1000);
    assert_eq!(held(&fresh), seen(&fresh));
    // A program that only reads it keeps the one copy that both see.
    drop(ram(&fresh).device_lent());
    assert_eq!(
        (ram(&fresh).resident_bytes(), seen(&fresh)),
        (1000, vec![3; 1000])
    );
    fresh.write_with(|view| view[0] = 4).unwrap();
    assert_eq!(ram(&fresh).resident_bytes(), 2000);
    assert_eq!((seen(&fresh)[0], held(&fresh)[0]), (4, 3));
    fresh.sync(Direction::FromDevice).unwrap();
    assert_eq!((ram(&fresh).resident_bytes(), seen(&fresh)[0]), (1000, 3));
}

/// Rows written into a cache need no second copy of it, synced or not.
#[test]
fn a_few_bytes_are_written_without_a_copy() {
    let buffer = buffer(1000);
    buffer.write_with(|view| view.fill(3)).unwrap();
    buffer.sync(Direction::ToDevice).unwrap();
    for at in 0..4 {
        buffer.write(at, &[4 + at as u8]).unwrap();
        let (seen, held) = (seen(&buffer), held(&buffer));
        assert_eq!((seen[at as usize], held[at as usize]), (4 + at as u8, 3));
        assert_eq!(ram(&buffer).resident_bytes(), 1001);
        buffer.sync_range(Direction::ToDevice, at..at + 1).unwrap();
        assert_eq!(ram(&buffer).resident_bytes(), 1000);
    }
    assert_eq!(seen(&buffer)[..5], [4, 5, 6, 7, 3]);
    assert_eq!(held(&buffer), seen(&buffer));
}

/// The host does not see the device's writes before a sync, not even where they repeat the old bytes.
#[test]
fn a_forgotten_sync_is_never_right_by_luck() {
    let buffer = buffer(4);
    for _ in 0..2 {
        ram(&buffer).device_mut().fill(9);
        assert_ne!(seen(&buffer), [9; 4]);
        buffer.sync(Direction::FromDevice).unwrap();
        assert_eq!(seen(&buffer), [9; 4]);
    }
}
