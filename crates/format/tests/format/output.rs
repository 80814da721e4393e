//! Output files appear whole or not at all.

use std::fs;
use std::io::Write;
use std::path::Path;

use millrace_format::output::{self, AtomicFile};
use millrace_format::{TensorSpec, gguf};
use millrace_quant::DType;
use tempfile::TempDir;

use crate::raw::is_error;

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<_> = entries
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn nothing_until_committed() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("out");
    let mut file = AtomicFile::create(&path).unwrap();
    file.write_all(b"new").unwrap();
    assert!(!path.exists());
    assert_eq!(file.target(), path);
    file.commit().unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"new");
    assert_eq!(names(dir.path()), ["out"]);
}

#[test]
fn a_dropped_file_leaves_the_old_one() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("out");
    output::write(&path, b"old").unwrap();
    let mut file = AtomicFile::create(&path).unwrap();
    file.write_all(&vec![1; 1 << 20]).unwrap();
    drop(file);
    assert_eq!(fs::read(&path).unwrap(), b"old");
    assert_eq!(names(dir.path()), ["out"]);
}

#[test]
fn two_writers_of_one_file_do_not_meet() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("out");
    let mut first = AtomicFile::create(&path).unwrap();
    let mut second = AtomicFile::create(&path).unwrap();
    first.write_all(b"first").unwrap();
    second.write_all(b"second").unwrap();
    second.commit().unwrap();
    first.commit().unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"first");
    assert_eq!(names(dir.path()), ["out"]);
}

#[test]
fn targets_that_cannot_be_written() {
    let dir = TempDir::new().unwrap();
    let error = AtomicFile::create(dir.path()).unwrap_err();
    is_error(&error, "NotAFile", &[]);
    let error = AtomicFile::create(&dir.path().join("absent/out")).unwrap_err();
    is_error(
        &error,
        "Io",
        &["absent/out", "cannot create", "No such file"],
    );
    let file = dir.path().join("file");
    output::write(&file, b"x").unwrap();
    let error = AtomicFile::create(&file.join("out")).unwrap_err();
    is_error(&error, "Io", &[]);
    let error = AtomicFile::create(&dir.path().join("..")).unwrap_err();
    is_error(&error, "NotAFile", &[]);
    assert_eq!(names(dir.path()), ["file"]);
}

/// Renaming over a device would replace it by a file.
#[cfg(unix)]
#[test]
fn devices_are_refused_and_links_followed() {
    let error = AtomicFile::create(Path::new("/dev/null")).unwrap_err();
    is_error(&error, "NotAFile", &[]);

    let dir = TempDir::new().unwrap();
    let (real, link) = (dir.path().join("real"), dir.path().join("link"));
    output::write(&real, b"old").unwrap();
    std::os::unix::fs::symlink(&real, &link).unwrap();
    output::write(&link, b"new").unwrap();
    assert_eq!(fs::read(&real).unwrap(), b"new");
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
}

#[test]
fn an_incomplete_model_leaves_nothing() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("m.gguf");
    let specs = [
        TensorSpec::new("a", DType::F32, &[4]),
        TensorSpec::new("b", DType::F32, &[4]),
    ];
    let mut writer = gguf::Writer::create(&path, &gguf::Metadata::new(), &specs).unwrap();
    writer.write("a", &[0; 16]).unwrap();
    let error = writer.commit().unwrap_err();
    is_error(
        &error,
        "WrongLength",
        &["m.gguf", "`b`", "takes 16 bytes", "0 were given"],
    );
    assert_eq!(names(dir.path()), Vec::<String>::new());
}

/// Set to a folder, makes [`full_disk_child`] write there.
const CHILD_DIR: &str = "MILLRACE_TEST_FULL_DISK_DIR";

/// The part of [`a_full_disk_leaves_nothing`] that runs under a limit on file sizes; on its own it
/// does nothing.
#[test]
fn full_disk_child() {
    let Some(dir) = std::env::var_os(CHILD_DIR) else {
        return;
    };
    let path = Path::new(&dir).join("m.gguf");
    let specs = [TensorSpec::new("a", DType::F32, &[1 << 20])];
    let mut writer = gguf::Writer::create(&path, &gguf::Metadata::new(), &specs).unwrap();
    let error = (0..1 << 10)
        .find_map(|_| writer.write("a", &[1; 4096]).err())
        .or_else(|| writer.commit().err())
        .expect("the limit is below the file's size");
    is_error(&error, "Io", &["m.gguf", "cannot write"]);
}

/// A limit on file sizes replaces a full disk: the write fails half-way in the same manner.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_leaves_nothing() {
    let dir = TempDir::new().unwrap();
    let status = std::process::Command::new("sh")
        // Without the trap the limit would kill the process instead of failing the write.
        .args([
            "-c",
            r#"trap "" XFSZ; ulimit -f 512; exec "$0" output::full_disk_child --exact"#,
        ])
        .arg(std::env::current_exe().unwrap())
        .env(CHILD_DIR, dir.path())
        .output()
        .unwrap();
    let log = String::from_utf8_lossy(&status.stdout);
    assert!(status.status.success(), "{log}");
    assert!(log.contains("1 passed"), "{log}");
    assert_eq!(names(dir.path()), Vec::<String>::new());
}
