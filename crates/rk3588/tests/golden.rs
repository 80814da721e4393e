//! The streams of two open generators come out word for word from their shapes. The files lie beside
//! the workspace; where they do not, the test says so.
#![allow(clippy::unwrap_used)] // A test may panic.

use millrace_rk3588::Machine;
use millrace_rk3588::command::{self, text};
use millrace_rk3588::matmul::{Emit, Kind, Precision, Task};
use std::path::PathBuf;

fn folder() -> Option<PathBuf> {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../shared/research/rk3588_golden"
    );
    let path = PathBuf::from(path);
    if !path.is_dir() {
        eprintln!("skipped: the golden streams are not beside the workspace");
        return None;
    }
    Some(path)
}

struct Golden {
    name: String,
    m: u32,
    n: u32,
    k: u32,
    kind: Kind,
    words: Vec<u64>,
}

fn precision(name: &str) -> Precision {
    match name {
        "int8" => Precision::Int8,
        "int16" => Precision::Int16,
        "int4" => Precision::Int4,
        "fp16" => Precision::Fp16,
        "bf16" => Precision::Bf16,
        "int32" => Precision::Int32,
        "fp32" | "f32" => Precision::Fp32,
        other => panic!("`{other}`"),
    }
}

fn read(path: &std::path::Path) -> Golden {
    let file = std::fs::read_to_string(path).unwrap();
    let head = file.lines().find(|l| l.starts_with("# M=")).unwrap();
    let value = |key: &str| {
        let word = head.split_whitespace().find_map(|w| w.strip_prefix(key));
        word.unwrap().to_owned()
    };
    let words = file
        .lines()
        .filter(|l| !l.starts_with('#') && !l.is_empty());
    Golden {
        name: path.file_stem().unwrap().to_string_lossy().into_owned(),
        m: value("M=").parse().unwrap(),
        n: value("N=").parse().unwrap(),
        k: value("K=").parse().unwrap(),
        kind: Kind::of(
            precision(&value("dtype_in=")),
            precision(&value("dtype_out=")),
        )
        .unwrap(),
        words: words.map(|w| u64::from_str_radix(w, 16).unwrap()).collect(),
    }
}

fn streams() -> Vec<Golden> {
    let Some(folder) = folder() else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            name.starts_with("mtx512") || name.starts_with("rocketus")
        })
        .collect();
    paths.sort();
    paths.iter().map(|path| read(path)).collect()
}

#[test]
fn every_stream_comes_out_word_for_word() {
    let machine = Machine::rk3588();
    let streams = streams();
    for golden in &streams {
        let emit = match golden.name.starts_with("mtx512") {
            true => Emit::MTX512,
            false => Emit::ROCKET_USERSPACE,
        };
        let task = Task {
            kind: golden.kind,
            m: golden.m,
            n: golden.n,
            k: golden.k,
            banks: emit
                .banks(golden.m, golden.k, golden.kind, &machine)
                .unwrap(),
            data_reuse: false,
            weight_reuse: false,
            a: 0x0010_0000,
            b: 0x1000_0000,
            c: 0x4000_0000,
        };
        let found = command::encode(&task.commands(emit));
        assert_eq!(found.len(), golden.words.len(), "{}", golden.name);
        for (at, (found, expected)) in found.iter().zip(&golden.words).enumerate() {
            assert_eq!(
                found, expected,
                "{} word {at}: {found:016x}, not {expected:016x}",
                golden.name
            );
        }
    }
    eprintln!("{} streams", streams.len());
}

#[test]
fn every_stream_decodes_and_has_a_text() {
    for golden in streams() {
        let commands = command::decode(&golden.words).unwrap();
        let printed = text::print(&commands);
        let parsed = text::parse(&printed).unwrap();
        assert_eq!(command::encode(&parsed), golden.words, "{}", golden.name);
    }
}

#[test]
fn shapes_that_mtx512_refuses_are_refused() {
    let Some(folder) = folder() else { return };
    let text = std::fs::read_to_string(folder.join("refused_shapes.txt")).unwrap();
    let machine = Machine::rk3588();
    let mut n = 0;
    for line in text.lines().filter(|l| !l.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| words[at][2..].parse::<u32>().unwrap();
        let kind = match words[0] {
            "int8" => Kind::Int8Int32,
            _ => Kind::Fp16F32,
        };
        assert_eq!(
            Emit::MTX512.banks(number(1), number(2), kind, &machine),
            None,
            "{line}"
        );
        n += 1;
    }
    assert!(n > 0);
}
