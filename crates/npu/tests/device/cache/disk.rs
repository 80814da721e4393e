//! Artifacts on disk: which survive, which are built again, and by which process.

use super::device;
use crate::ram_device::program;
use millrace_npu::{Container, ContentHash, Notice, ProgramCache};
use std::convert::Infallible;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};

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

fn said(notices: Vec<String>, what: &str) {
    let found = notices.iter().any(|notice| notice.contains(what));
    assert!(found, "{what}: {notices:?}");
}

#[test]
fn corrupt_artifacts_are_built_again() {
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
}

#[test]
fn manifests_that_do_not_fit_are_built_again() {
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

/// The body of the other process below, not an independent test.
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
            .args(["--exact", "cache::disk::child"])
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
