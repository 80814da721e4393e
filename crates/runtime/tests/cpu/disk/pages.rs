//! Cached pages in a folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use millrace_runtime::disk::PageFolder;
use millrace_runtime::{CpuEngine, Engine};

use super::*;

/// A folder, and the warnings about it.
fn page_folder(path: &Path, max_bytes: u64) -> (PageFolder, Arc<Mutex<Vec<String>>>) {
    let warned: Arc<Mutex<Vec<String>>> = Arc::default();
    let lines = Arc::clone(&warned);
    let folder = PageFolder {
        path: path.to_owned(),
        max_bytes,
        warn: Arc::new(move |line| lines.lock().unwrap().push(line.to_owned())),
    };
    (folder, warned)
}

fn kept(name: &str, folder: &PageFolder) -> CpuEngine {
    let mut engine = engine(name, options());
    engine.keep_pages_in(folder).unwrap();
    engine
}

/// Reads a prompt as a server does, and releases the sequence. Returns the number of cached tokens, and the logits after the rest.
fn read(engine: &mut CpuEngine, prompt: &[u32]) -> (usize, Vec<f32>) {
    let seq = engine.create().unwrap();
    let n_held = engine.reuse_prefix(seq, prompt).unwrap();
    let logits = append(engine, seq, &prompt[n_held..]);
    engine.release(seq).unwrap();
    (n_held, logits)
}

/// Page files of the only engine of a folder.
fn page_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for of_engine in fs::read_dir(folder).unwrap() {
        let entries = fs::read_dir(of_engine.unwrap().path()).unwrap();
        files.extend(entries.map(|entry| entry.unwrap().path()));
    }
    files.retain(|path| path.extension().is_some_and(|end| end == "page"));
    files.sort();
    files
}

#[test]
fn pages_outlive_the_engine_that_computed_them() {
    for name in MODELS {
        let folder = tempfile::tempdir().unwrap();
        let (folder, warned) = page_folder(folder.path(), u64::MAX);
        let mut first = kept(name, &folder);
        let all = text(&first, 290);
        assert_eq!(read(&mut first, &all[..230]).0, 0);
        drop(first);
        let mut second = kept(name, &folder);
        let (n_held, logits) = read(&mut second, &all[..250]);
        assert_eq!(n_held, 192, "{name}");
        assert!(
            logits == computed(name, options(), &all[..250], 58),
            "{name}"
        );
        // Other scopes find nothing, and other texts only the part they share.
        let seq = second.create().unwrap();
        second.set_scope(seq, 7).unwrap();
        assert_eq!(second.reuse_prefix(seq, &all).unwrap(), 0, "{name}");
        second.release(seq).unwrap();
        drop(second);
        let mut third = kept(name, &folder);
        let other = [&all[..150], &[9; 60]].concat();
        let (n_held, logits) = read(&mut third, &other);
        // The disk has only the states after the last page, and here none before.
        let memory = CpuEngine::memory(third.model(), &options()).unwrap();
        let expected = if memory.n_state_slots > 0 { 0 } else { 128 };
        assert_eq!(n_held, expected, "{name}");
        let n_last = other.len() - n_held;
        assert!(
            logits == computed(name, options(), &other, n_last),
            "{name}"
        );
        // The disk and the index together.
        let (n_held, logits) = read(&mut third, &all);
        assert!(n_held >= 192, "{name}: {n_held}");
        assert!(
            logits == computed(name, options(), &all, 290 - n_held),
            "{name}"
        );
        assert!(warned.lock().unwrap().is_empty());
    }
}

#[test]
fn a_folder_has_one_engine_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let (folder, _) = page_folder(folder.path(), u64::MAX);
    let first = kept("lfm2", &folder);
    let refused = engine("lfm2", options()).keep_pages_in(&folder);
    let is_busy =
        |error: &Error| matches!(error, Error::Disk(e) if matches!(**e, DiskError::Busy { .. }));
    assert!(refused.as_ref().is_err_and(is_busy), "{refused:?}");
    // Another model has a separate folder.
    let _other = kept("qwen35", &folder);
    drop(first);
    kept("lfm2", &folder);
}

#[test]
fn a_damaged_page_is_read_again_and_told() {
    let folder = tempfile::tempdir().unwrap();
    let (folder, warned) = page_folder(folder.path(), u64::MAX);
    for name in ["llama-llama3", "qwen35"] {
        let mut first = kept(name, &folder);
        let all = text(&first, 230);
        read(&mut first, &all);
        drop(first);
    }
    let files = page_files(&folder.path);
    for (i, path) in files.iter().enumerate() {
        let whole = fs::read(path).unwrap();
        let mut bytes = whole.clone();
        match i % 3 {
            0 => bytes.truncate(whole.len() / 2),
            1 => bytes[whole.len() / 2] ^= 4,
            // The page of another text, under this one's name.
            _ => bytes = fs::read(&files[(i + 1) % files.len()]).unwrap(),
        }
        fs::write(path, &bytes).unwrap();
        for name in ["llama-llama3", "qwen35"] {
            let mut engine = kept(name, &folder);
            let all = text(&engine, 230);
            let (n_held, logits) = read(&mut engine, &all);
            assert!(
                logits == computed(name, options(), &all, 230 - n_held),
                "{name} {path:?}"
            );
        }
        // The engine that owned the page has warned of it, and written it again.
        let lines = std::mem::take(&mut *warned.lock().unwrap());
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains(path.to_str().unwrap()), "{lines:?}");
        assert_eq!(fs::read(path).unwrap(), whole);
    }
}

#[test]
fn pages_keep_to_their_bytes_and_the_newest_stay() {
    let folder = tempfile::tempdir().unwrap();
    let (unbounded, _) = page_folder(&folder.path().join("all"), u64::MAX);
    let (a, b) = {
        let mut engine = kept("llama-llama3", &unbounded);
        let a = text(&engine, 230);
        let b: Vec<u32> = a.iter().map(|token| token / 2 + 1).collect();
        read(&mut engine, &a);
        (a, b)
    };
    let n_bytes = |path: &Path| -> u64 {
        let files = page_files(path);
        files
            .iter()
            .map(|file| fs::metadata(file).unwrap().len())
            .sum()
    };
    // Room for one text and a page more.
    let max_bytes = n_bytes(&unbounded.path) * 4 / 3 + 1;
    let (bounded, warned) = page_folder(&folder.path().join("some"), max_bytes);
    let mut engine = kept("llama-llama3", &bounded);
    read(&mut engine, &a);
    read(&mut engine, &b);
    drop(engine);
    assert!(n_bytes(&bounded.path) <= max_bytes);
    let mut engine = kept("llama-llama3", &bounded);
    assert_eq!(read(&mut engine, &b).0, 192);
    drop(engine);
    let mut engine = kept("llama-llama3", &bounded);
    // The beginning of the older text was kept.
    assert_eq!(read(&mut engine, &a).0, 64);
    assert!(warned.lock().unwrap().is_empty());
    // Files left incomplete by a killed process are removed; other files stay.
    drop(engine);
    // If a text is too long for the folder, its beginning is kept.
    let (narrow, warned) =
        page_folder(&folder.path().join("few"), n_bytes(&unbounded.path) * 3 / 4);
    let mut engine = kept("llama-llama3", &narrow);
    read(&mut engine, &a);
    drop(engine);
    assert_eq!(page_files(&narrow.path).len(), 2);
    let mut engine = kept("llama-llama3", &narrow);
    assert_eq!(read(&mut engine, &a).0, 128);
    drop(engine);
    assert!(warned.lock().unwrap().is_empty());
    let of_engine = page_files(&bounded.path)[0].parent().unwrap().to_owned();
    fs::write(of_engine.join(".x.page.1-0.partial"), "half").unwrap();
    fs::write(of_engine.join("notes.txt"), "mine").unwrap();
    kept("llama-llama3", &bounded);
    assert!(!of_engine.join(".x.page.1-0.partial").exists());
    assert!(of_engine.join("notes.txt").exists());
}
