//! The program cache: transfers around a call, and artifacts that survive on disk.
use crate::ram_device::{Defect, RamDevice, program, sample};
use millrace_npu::conformance::Sample;
use millrace_npu::{CacheError, DeviceError, Move, ProgramCache, Traffic};
use std::sync::Arc;

mod disk;

fn device() -> Arc<RamDevice> {
    Arc::new(RamDevice::new(Defect::None))
}

#[test]
fn static_slots_cross_once_for_each_key() {
    let cache = ProgramCache::new(device());
    let s = sample("p", 100, 3);
    let (x, w) = (s.inputs[0].as_deref(), s.inputs[1].as_deref());
    let first = cache
        .load_and_run(&s.container, "p_L0", &[x, w, None, None])
        .unwrap();
    let traffic = |to_device_bytes| Traffic {
        written_bytes: to_device_bytes,
        to_device_bytes,
        from_device_bytes: 100,
        read_bytes: 100,
    };
    assert_eq!(first.traffic, traffic(200));
    assert_eq!(first.outputs[3], s.outputs[3].clone().unwrap());
    assert!(first.outputs[..3].iter().all(Vec::is_empty));
    // The weights are there: neither needed nor sent again, and their content stays.
    let second = cache
        .load_and_run(&s.container, "p_L0", &[x, None, None, None])
        .unwrap();
    assert_eq!(second.traffic, traffic(100));
    assert_eq!(second.outputs, first.outputs);
    let third = cache
        .load_and_run(&s.container, "p_L0", &[x, x, None, None])
        .unwrap();
    assert_eq!(
        (third.traffic, third.outputs),
        (traffic(100), first.outputs.clone())
    );
    // Another layer has its own weights.
    let other = cache
        .load_and_run(&s.container, "p_L1", &[x, x, None, None])
        .unwrap();
    assert_eq!(other.traffic, traffic(200));
    assert_ne!(other.outputs, first.outputs);
    let stats = cache.stats();
    assert_eq!(
        (stats.loaded, stats.calls, stats.allocated_bytes),
        (1, 4, 800)
    );
    assert_eq!(stats.traffic.to_device_bytes, 600);
    assert!(cache.forget("p_L0") && !cache.forget("p_L0"));
    let again = cache.load_and_run(&s.container, "p_L0", &[x, None, None, None]);
    assert!(matches!(again, Err(CacheError::Missing { slot, .. }) if slot == "w"));
}

#[test]
fn weights_can_be_written_ahead() {
    let cache = ProgramCache::new(device());
    let s = sample("p", 64, 3);
    let w = s.inputs[1].as_deref();
    let traffic = cache
        .preload(&s.container, "k", &[None, w, None, None])
        .unwrap();
    assert_eq!(
        (traffic.to_device_bytes, traffic.from_device_bytes),
        (64, 0)
    );
    let mut seen = Vec::new();
    let x = s.inputs[0].as_deref().unwrap();
    let moves = [Move::Write(x), Move::None, Move::None, Move::Read(0..64)];
    let call = cache
        .run_moving(&s.container, "k", &moves, |slot, bytes| {
            seen.push((slot, bytes.to_vec()));
        })
        .unwrap();
    assert_eq!(call.traffic.to_device_bytes, 64);
    assert_eq!(seen, [(3, s.outputs[3].clone().unwrap())]);
}

/// A value stays in one buffer between two programs: the second finds the result of the first, and the host moves only
/// the bytes that it asked for.
#[test]
fn a_value_passes_between_programs_without_the_host() {
    let cache = ProgramCache::new(device());
    let s = sample("p", 8, 3);
    let (x, w) = (s.inputs[0].as_deref().unwrap(), s.inputs[1].as_deref());
    preload_shared(&cache, &s, "first", &shared(3, "y")).unwrap();
    preload_shared(&cache, &s, "second", &shared(0, "y")).unwrap();
    assert_eq!(cache.stats().allocated_bytes, 8 * (4 + 3));
    assert_eq!(cache.memory().static_bytes, 16);
    assert_eq!(cache.memory().other_bytes, 5 * 8);
    let moved = |written_bytes, read_bytes| Traffic {
        written_bytes,
        to_device_bytes: written_bytes,
        from_device_bytes: read_bytes,
        read_bytes,
    };
    let moves = [Move::Write(x), Move::None, Move::None, Move::None];
    let call = cache.run_moving(&s.container, "first", &moves, |_, _| {
        panic!("nothing is read")
    });
    assert_eq!(call.unwrap().traffic, moved(8, 0));
    let moves = [Move::Keep, Move::None, Move::None, Move::Read(2..5)];
    let mut seen = Vec::new();
    let call = cache.run_moving(&s.container, "second", &moves, |slot, bytes| {
        seen.push((slot, bytes.to_vec()));
    });
    assert_eq!(call.unwrap().traffic, moved(0, 3));
    let twice = |at: usize| {
        let y = x[at].wrapping_mul(3).wrapping_add(w.unwrap()[at]);
        y.wrapping_mul(3).wrapping_add(w.unwrap()[at])
    };
    assert_eq!(seen, [(3, (2..5).map(twice).collect::<Vec<u8>>())]);
    // No buffer stays of sets that are forgotten.
    assert!(cache.forget("first") && cache.forget("second"));
    assert_eq!(cache.device().held().n_buffers, 0);
}

/// A slot's name in the cache, by its number.
type SharedName<'a> = &'a dyn Fn(usize) -> Option<String>;

/// Places a program's weights, and shares the buffers that have names.
fn preload_shared(
    cache: &ProgramCache,
    s: &Sample,
    bo_key: &str,
    name: SharedName<'_>,
) -> Result<Traffic, CacheError> {
    let mut fill = |_: usize, bytes: &mut [u8]| -> Result<(), CacheError> {
        bytes.copy_from_slice(s.inputs[1].as_deref().unwrap());
        Ok(())
    };
    cache.preload_with(&s.container, bo_key, name, &mut fill)
}

fn shared(from: usize, name: &'static str) -> impl Fn(usize) -> Option<String> {
    move |slot: usize| (slot == from).then(|| name.to_owned())
}

#[test]
fn what_cannot_be_shared_is_refused_and_leaves_nothing() {
    let cache = ProgramCache::new(device());
    let s = sample("p", 8, 3);
    preload_shared(&cache, &s, "first", &shared(3, "y")).unwrap();
    preload_shared(&cache, &s, "second", &shared(0, "y")).unwrap();
    // Slots that are not declared present need data, and ranges to read must exist.
    let run = |moves: &[Move<'_>]| cache.run_moving(&s.container, "second", moves, |_, _| {});
    let forgotten = run(&[Move::None, Move::None, Move::None, Move::None]);
    assert!(matches!(forgotten, Err(CacheError::Missing { slot, .. }) if slot == "x"));
    let beyond = run(&[Move::Keep, Move::None, Move::None, Move::Read(2..9)]);
    assert!(matches!(
        beyond,
        Err(CacheError::Device(DeviceError::Range { .. }))
    ));
    // Two slots of a program cannot be one buffer, nor can one of another size.
    let both = preload_shared(&cache, &s, "both", &|_| Some("z".to_owned()));
    assert!(matches!(both, Err(CacheError::Shared { .. })), "{both:?}");
    let large = sample("large", 9, 3);
    let other = cache.preload_with(&large.container, "large", &shared(0, "y"), &mut |_, _| {
        Ok::<(), CacheError>(())
    });
    assert!(matches!(
        other,
        Err(CacheError::Shared {
            expected_bytes: 9,
            found_bytes: 8,
            ..
        })
    ));
    // A failed set leaves nothing behind, and a shared buffer goes with the last set that has it.
    assert!(cache.forget("first") && cache.forget("second"));
    assert!(!cache.forget("both") && !cache.forget("large"));
    assert_eq!(cache.device().held().n_buffers, 0);
}

/// Static slots get new content in place, for all sets that share it.
#[test]
fn tables_are_filled_anew() {
    let cache = ProgramCache::new(device());
    let s = sample("p", 4, 1);
    let name = |slot: usize| (slot == 1).then(|| "table".to_owned());
    let fill = |byte: u8| {
        move |_: usize, bytes: &mut [u8]| -> Result<(), CacheError> {
            bytes.fill(byte);
            Ok(())
        }
    };
    for bo_key in ["a", "b"] {
        cache
            .preload_with(&s.container, bo_key, &name, &mut fill(1))
            .unwrap();
    }
    let y = || {
        let inputs: [Option<&[u8]>; 4] = [Some(&[0; 4]), None, None, None];
        cache
            .load_and_run(&s.container, "b", &inputs)
            .unwrap()
            .outputs[3]
            .clone()
    };
    assert_eq!(y(), [1; 4]);
    let traffic = cache.refill(&s.container, "a", &[1], &mut fill(7)).unwrap();
    assert_eq!((traffic.written_bytes, traffic.to_device_bytes), (4, 4));
    assert_eq!(y(), [7; 4]);
    let failed = cache.refill(&s.container, "b", &[1], &mut |_, _| {
        Err(CacheError::Device(DeviceError::EmptyBuffer))
    });
    assert!(failed.is_err());
    let inputs: [Option<&[u8]>; 4] = [Some(&[0; 4]), None, None, None];
    let empty = cache.load_and_run(&s.container, "b", &inputs);
    assert!(matches!(empty, Err(CacheError::Missing { slot, .. }) if slot == "w"));
}

/// Programs of several prompt lengths hold one copy of the weights they share.
#[test]
fn filled_slots_of_the_same_content_share_a_buffer() {
    let cache = ProgramCache::new(device());
    let s = sample("p", 100, 3);
    let (x, w) = (s.inputs[0].as_deref(), s.inputs[1].as_deref().unwrap());
    let content = |slot: usize| (slot == 1).then(|| "w".to_owned());
    let n_filled = std::cell::Cell::new(0);
    let preload = |bo_key: &str, content: &dyn Fn(usize) -> Option<String>, fails: bool| {
        let mut fill = |slot: usize, bytes: &mut [u8]| {
            n_filled.set(n_filled.get() + 1);
            assert_eq!(slot, 1);
            bytes.copy_from_slice(w);
            match fails {
                true => Err(CacheError::Device(DeviceError::EmptyBuffer)),
                false => Ok(()),
            }
        };
        cache.preload_with(&s.container, bo_key, content, &mut fill)
    };
    // A slot whose fill failed is neither shared nor counted as written.
    assert!(preload("p_L0", &content, true).is_err());
    assert_eq!(
        preload("p_L0", &content, false).unwrap().to_device_bytes,
        100
    );
    assert_eq!(
        preload("p_L1", &content, false).unwrap(),
        Traffic::default()
    );
    assert_eq!(
        preload("p_L2", &|_| None, false).unwrap().written_bytes,
        100
    );
    assert_eq!(n_filled.get(), 3);
    assert_eq!(cache.stats().allocated_bytes, 400 + 300 + 400);
    for bo_key in ["p_L0", "p_L1", "p_L2"] {
        let call = cache.load_and_run(&s.container, bo_key, &[x, None, None, None]);
        assert_eq!(call.unwrap().outputs[3], s.outputs[3].clone().unwrap());
    }
    // The buffer outlives the set that it was made for.
    assert!(cache.forget("p_L0"));
    assert_eq!(
        preload("p_L0", &content, false).unwrap(),
        Traffic::default()
    );
}

/// A peek shows the device's bytes, changes nothing in the host's view and is not counted.
#[test]
fn a_peek_leaves_no_trace() {
    let cache = ProgramCache::new(device());
    let s = sample("p", 100, 3);
    let inputs: Vec<Option<&[u8]>> = s.inputs.iter().map(Option::as_deref).collect();
    assert!(matches!(
        cache.peek("k", 0),
        Err(CacheError::NoSlot { n_slots: 0, .. })
    ));
    cache.load_and_run(&s.container, "k", &inputs).unwrap();
    let before = cache.stats();
    for slot in [0, 1, 3] {
        let expected = s.inputs[slot].as_ref().or(s.outputs[slot].as_ref());
        assert_eq!(Some(&cache.peek("k", slot).unwrap()), expected);
    }
    assert_eq!(cache.peek("k", 2).unwrap().len(), 100);
    assert_eq!(cache.stats(), before);
    assert!(matches!(
        cache.peek("k", 4),
        Err(CacheError::NoSlot { n_slots: 4, .. })
    ));
}

#[test]
fn wrong_arguments_write_nothing() {
    let cache = ProgramCache::new(device());
    let s = sample("p", 4, 3);
    let (x, w) = (s.inputs[0].as_deref(), s.inputs[1].as_deref());
    let error = |inputs: &[Option<&[u8]>]| {
        cache
            .load_and_run(&s.container, "k", inputs)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        error(&[x, w]),
        "program `p` has 4 slots, 2 arguments are given"
    );
    assert_eq!(
        error(&[None, w, None, None]),
        "input slot `x` of `p` needs data"
    );
    assert_eq!(
        error(&[x, None, None, None]),
        "static slot `w` of `p` needs data"
    );
    assert_eq!(
        error(&[x, w, None, x]),
        "output slot `y` of `p` is overwritten by the program and takes no data"
    );
    assert_eq!(
        error(&[x, Some(&[1, 2]), None, None]),
        "slot `w` of `p` has 4 bytes, its data 2"
    );
    assert_eq!(cache.stats().traffic, Traffic::default());
    cache
        .load_and_run(&s.container, "k", &[x, w, None, None])
        .unwrap();
    let other = sample("q", 4, 5);
    let error = cache.load_and_run(&other.container, "k", &[x, w, None, None]);
    assert_eq!(
        error.unwrap_err().to_string(),
        "buffer set `k` belongs to program `p`, not `q`"
    );
}

#[test]
fn a_failed_run_leaves_the_set_usable() {
    let cache = ProgramCache::new(device());
    let faulty = program("faulty", 4, "fault!");
    let data: Option<&[u8]> = Some(&[1, 2, 3, 4]);
    for _ in 0..2 {
        let error = cache
            .load_and_run(&faulty, "f", &[data, data, None, None])
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "program `faulty` failed: it was asked to"
        );
    }
    // The weights crossed once, the input twice.
    assert_eq!(cache.stats().traffic.to_device_bytes, 12);
    assert_eq!(cache.stats().calls, 0);
}
