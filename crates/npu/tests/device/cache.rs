//! The program cache: what moves around a call, and what survives on disk.
use crate::ram_device::{Defect, RamDevice, program, sample};
use millrace_npu::{
    CacheError, Container, ContentHash, DeviceError, Move, Notice, ProgramCache, Traffic,
};
use std::convert::Infallible;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};

fn device() -> Arc<RamDevice> {
    Arc::new(RamDevice::new(Defect::None))
}

fn key(name: &str) -> ContentHash {
    ContentHash::of(&[name.as_bytes()])
}

/// A cache on a directory, and the notices it gives.
fn on_disk(directory: &Path) -> (ProgramCache, Arc<Mutex<Vec<Notice>>>) {
    let notices = Arc::new(Mutex::new(Vec::new()));
    let told = notices.clone();
    let cache = ProgramCache::with_directory(device(), directory)
        .unwrap()
        .on_notice(move |notice| told.lock().unwrap().push(notice.clone()));
    (cache, notices)
}

fn build(name: &str) -> Result<Container, Infallible> {
    Ok(program(name, 8, "scale-add 2"))
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

/// A value stays in one buffer between two programs: the second finds what the first wrote, and the
/// host moves the bytes that it asked for.
#[test]
fn a_value_passes_between_programs_without_the_host() {
    let cache = ProgramCache::new(device());
    let s = sample("p", 8, 3);
    let (x, w) = (s.inputs[0].as_deref().unwrap(), s.inputs[1].as_deref());
    let shared = |from: usize, name: &'static str| {
        move |slot: usize| (slot == from).then(|| name.to_owned())
    };
    let preload = |bo_key: &str, name: &dyn Fn(usize) -> Option<String>| {
        let mut fill = |_: usize, bytes: &mut [u8]| -> Result<(), CacheError> {
            bytes.copy_from_slice(w.unwrap());
            Ok(())
        };
        cache.preload_with(&s.container, bo_key, name, &mut fill)
    };
    preload("first", &shared(3, "y")).unwrap();
    preload("second", &shared(0, "y")).unwrap();
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
    // What is not said to be there must be given, and what is read must exist.
    let run = |moves: &[Move<'_>]| cache.run_moving(&s.container, "second", moves, |_, _| {});
    let forgotten = run(&[Move::None, Move::None, Move::None, Move::None]);
    assert!(matches!(forgotten, Err(CacheError::Missing { slot, .. }) if slot == "x"));
    let beyond = run(&[Move::Keep, Move::None, Move::None, Move::Read(2..9)]);
    assert!(matches!(
        beyond,
        Err(CacheError::Device(DeviceError::Range { .. }))
    ));
    // Two slots of a program cannot be one buffer, nor can one of another size.
    let both = preload("both", &|_| Some("z".to_owned()));
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
    // Nothing of what failed stays, and a shared buffer goes with the last set that has it.
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
    // What failed to be filled is neither shared nor counted as written.
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

/// A look shows what the device has, moves no byte of the host's view and counts as nothing.
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

#[test]
fn artifacts_survive_on_disk() {
    let directory = tempfile::tempdir().unwrap();
    let (cache, notices) = on_disk(directory.path());
    let first = cache.artifact(key("a"), "a", || build("a")).unwrap();
    cache.artifact(key("b"), "b", || build("b")).unwrap();
    let again = cache.artifact(key("a"), "a", || panic!("it is in memory"));
    assert_eq!(again.map_err(|never: Infallible| never).unwrap(), first);
    let stats = cache.stats();
    assert_eq!((stats.built, stats.from_memory, stats.from_disk), (2, 1, 0));
    let (cache, later) = on_disk(directory.path());
    for name in ["a", "b"] {
        let found = cache.artifact(key(name), name, || panic!("it is on disk"));
        assert_eq!(
            found.map_err(|never: Infallible| never).unwrap().name(),
            name
        );
    }
    assert_eq!((cache.stats().built, cache.stats().from_disk), (0, 2));
    assert!(notices.lock().unwrap().is_empty() && later.lock().unwrap().is_empty());
    let failed = cache.artifact(key("c"), "c", || Err("no compiler"));
    assert_eq!(failed, Err("no compiler"));
    assert!(cache.artifact(key("c"), "c", || build("c")).is_ok());
}

/// Damages a cache of one program and gives the notices of the next use, which must build again
/// and repair the damage.
fn after(damage: impl FnOnce(&Path, &Path)) -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    let (cache, _) = on_disk(directory.path());
    cache.artifact(key("a"), "a", || build("a")).unwrap();
    let artifact = directory.path().join(format!("{}.npu", key("a")));
    damage(&artifact, &directory.path().join("manifest.json"));
    let (cache, notices) = on_disk(directory.path());
    let found = cache.artifact(key("a"), "a", || build("a")).unwrap();
    assert_eq!(*found, build("a").unwrap());
    assert_eq!(cache.stats().built, 1);
    let (cache, _) = on_disk(directory.path());
    cache.artifact(key("a"), "a", || build("a")).unwrap();
    assert_eq!(cache.stats().from_disk, 1, "the damage was not repaired");
    let notices = notices.lock().unwrap();
    notices.iter().map(ToString::to_string).collect()
}

fn edit(path: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.contains(from), "{text}");
    fs::write(path, text.replace(from, to)).unwrap();
}

#[test]
fn stale_and_corrupt_entries_are_built_again() {
    let said = |notices: Vec<String>, what: &str| {
        assert!(
            notices.iter().any(|n| n.contains(what)),
            "{what}: {notices:?}"
        );
    };
    said(
        after(|artifact, _| {
            let mut bytes = fs::read(artifact).unwrap();
            *bytes.last_mut().unwrap() ^= 1;
            fs::write(artifact, bytes).unwrap();
        }),
        "cached program `a` is built again: the content hash is",
    );
    said(
        after(|artifact, _| fs::write(artifact, b"short").unwrap()),
        "5 bytes, the manifest says",
    );
    said(
        after(|artifact, _| fs::remove_file(artifact).unwrap()),
        "built again",
    );
    said(
        after(|artifact, _| {
            // Another whole program in its place.
            let bytes = program("a", 8, "scale-add 3").encode();
            fs::write(artifact, bytes).unwrap();
        }),
        "its content hash is not the manifest's",
    );
    said(
        after(|_, manifest| {
            edit(
                manifest,
                "\"container_version\": 1",
                "\"container_version\": 0",
            )
        }),
        "it is stale: container version 0, not 1",
    );
    said(
        after(|_, manifest| edit(manifest, "\"ram\"", "\"other\"")),
        "it is for `other`, not `ram`",
    );
    for damage in ["{", "", "[]", "{\"version\":\"x\"}"] {
        said(
            after(|_, manifest| fs::write(manifest, damage).unwrap()),
            "manifest.json: ",
        );
    }
    said(
        after(|_, manifest| edit(manifest, "\"version\": 1", "\"version\": 7")),
        "version 7, not 1",
    );
    said(
        after(|_, manifest| fs::write(manifest, vec![b' '; (16 << 20) + 1]).unwrap()),
        "a manifest has at most",
    );
    // Nothing but the manifest says that a program is whole.
    assert!(after(|_, manifest| fs::remove_file(manifest).unwrap()).is_empty());
}

#[test]
fn what_a_crash_left_is_swept() {
    let directory = tempfile::tempdir().unwrap();
    let left = directory.path().join("tmp-1-1");
    fs::write(&left, b"half a program").unwrap();
    let (cache, _) = on_disk(directory.path());
    cache.artifact(key("a"), "a", || build("a")).unwrap();
    assert!(!left.exists());
    let temporary = |name: &str| name.starts_with("tmp-");
    let files = fs::read_dir(directory.path()).unwrap();
    let names = files.map(|f| f.unwrap().file_name().into_string().unwrap());
    assert_eq!(names.filter(|name| temporary(name)).count(), 0);
}

#[test]
fn a_broken_disk_does_not_stop_the_work() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("cache");
    let (cache, notices) = on_disk(&directory);
    fs::remove_dir_all(&directory).unwrap();
    let found = cache.artifact(key("a"), "a", || build("a")).unwrap();
    assert_eq!(*found, build("a").unwrap());
    let notices = notices.lock().unwrap();
    assert!(
        notices
            .iter()
            .any(|n| matches!(n, Notice::NotSaved { name, .. } if name == "a"))
    );
    fs::write(&directory, b"a file").unwrap();
    assert!(ProgramCache::with_directory(device(), &directory).is_err());
}

const CHILD: &str = "MILLRACE_TEST_CACHE_DIRECTORY";
const N_PROGRAMS: usize = 12;

/// Asks for every program and logs each build.
fn use_all(directory: &Path) {
    let (cache, notices) = on_disk(directory);
    for number in 0..N_PROGRAMS {
        let name = format!("p{number}");
        let found = cache.artifact(key(&name), &name, || {
            let log = directory.join("built.log");
            let mut log = fs::OpenOptions::new()
                .create(true)
                .append(true)
                .open(log)
                .unwrap();
            writeln!(log, "{name}").unwrap();
            build(&name)
        });
        assert_eq!(found.unwrap().name(), name);
    }
    assert!(notices.lock().unwrap().is_empty());
}

/// Not a test of its own: the body of the other process below.
#[test]
fn child() {
    if let Some(directory) = std::env::var_os(CHILD) {
        use_all(Path::new(&directory));
    }
}

#[test]
fn processes_and_threads_build_each_program_once() {
    let directory = tempfile::tempdir().unwrap();
    let spawn = || {
        std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "cache::child"])
            .env(CHILD, directory.path())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap()
    };
    let mut children = [spawn(), spawn(), spawn()];
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| use_all(directory.path()));
        }
    });
    for child in &mut children {
        assert!(child.wait().unwrap().success());
    }
    let log = fs::read_to_string(directory.path().join("built.log")).unwrap();
    let mut built: Vec<&str> = log.lines().collect();
    built.sort_unstable();
    let mut all: Vec<String> = (0..N_PROGRAMS).map(|n| format!("p{n}")).collect();
    all.sort_unstable();
    assert_eq!(built, all);
    let (cache, _) = on_disk(directory.path());
    for name in &all {
        cache.artifact(key(name), name, || build(name)).unwrap();
    }
    assert_eq!(cache.stats().from_disk, N_PROGRAMS as u64);
}
