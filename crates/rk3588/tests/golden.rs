//! The streams of two open generators are reproduced word for word from their shapes. The files are beside the
//! workspace; where they are missing, the test says so.
#![allow(clippy::unwrap_used)] // A test may panic.

use millrace_rk3588::Machine;
use millrace_rk3588::command::{self, text};
use millrace_rk3588::matmul::{Banks, Emit, MatmulKind, Precision, Task};
use millrace_rk3588::rocket::{CreatedBo, Host, JobArgs, TaskArgs};
use millrace_rk3588::simulate::{Board, BoardMode, BoardOptions, PATH};
use millrace_rk3588::verify::{self, Rule};
use std::collections::HashMap;
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
    kind: MatmulKind,
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
        kind: MatmulKind::of(
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
            "int8" => MatmulKind::Int8Int32,
            _ => MatmulKind::Fp16F32,
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

/// Streams of the mainline form are accepted where they fit, also with a bank to spare.
#[test]
fn streams_of_the_mainline_form_are_accepted() {
    let machine = Machine::rk3588();
    for golden in streams() {
        let commands = command::decode(&golden.words).unwrap();
        let found = verify::task(&commands, &machine);
        match golden.name.starts_with("rocketus") {
            true => {
                let task = found.unwrap_or_else(|broken| panic!("{}: {broken:?}", golden.name));
                assert_eq!((task.m, task.n, task.k), (golden.m, golden.n, golden.k));
                assert_eq!(task.kind, golden.kind);
            }
            false => {
                let broken = found.unwrap_err();
                assert!(
                    broken.iter().any(|b| b.rule == Rule::EnableMask),
                    "{}",
                    golden.name
                );
            }
        }
    }
}

/// Shapes that one generator accepts and published limits forbid: a kernel group does not fit beside the features (the
/// list is in the streams' README).
#[test]
fn shapes_beyond_the_buffer_are_refused() {
    let machine = Machine::rk3588();
    let shapes = [
        (MatmulKind::Int8Int32, 1, 14_336, 4096),
        (MatmulKind::Int8Int32, 16, 14_336, 256),
        (MatmulKind::Int8Int32, 88, 4096, 32),
        (MatmulKind::Int8Int32, 32, 8192, 256),
        (MatmulKind::Fp16F32, 16, 8192, 512),
    ];
    for (kind, m, k, n) in shapes {
        let banks = Emit::MTX512.banks(m, k, kind, &machine).unwrap();
        assert_eq!(Banks::of(m, k, kind, &machine), None);
        let task = Task {
            kind,
            m,
            n,
            k,
            banks,
            data_reuse: false,
            weight_reuse: false,
            a: 0,
            b: 0,
            c: 0,
        };
        let broken = verify::task(&task.commands(Emit::MILLRACE), &machine).unwrap_err();
        assert!(
            broken.iter().all(|b| b.rule == Rule::CbufKernels) && !broken.is_empty(),
            "{kind} {m}x{k}x{n}: {broken:?}"
        );
    }
}

/// The packed operands and results of the vectors, by section.
fn sections(text: &str) -> HashMap<String, Vec<u8>> {
    let mut sections: HashMap<String, Vec<u8>> = HashMap::new();
    let mut name = String::new();
    for line in text.lines().map(str::trim) {
        if let Some(head) = line.strip_prefix('[') {
            name = head.trim_end_matches(']').to_owned();
        } else if !line.starts_with('#') && !line.is_empty() {
            let bytes = (0..line.len() / 2)
                .map(|at| u8::from_str_radix(&line[2 * at..2 * at + 2], 16).unwrap());
            sections.entry(name.clone()).or_default().extend(bytes);
        }
    }
    sections
}

/// A row of `k` times a matrix of `n` columns on the strict board, packed as the operands are.
fn computed((kind, k, n): (MatmulKind, u32, u32), [a, b]: [&[u8]; 2], c_bytes: usize) -> Vec<u8> {
    let board = Board::new(BoardOptions {
        mode: BoardMode::Strict,
        ..BoardOptions::default()
    });
    let node = board.open(PATH).unwrap();
    let put = |content: &[u8]| -> CreatedBo {
        let bo = node.create_bo(content.len().max(16) as u32).unwrap();
        node.prep_bo(bo.handle, i64::MAX).unwrap();
        node.access(&bo, &mut |bytes| {
            bytes[..content.len()].copy_from_slice(content)
        })
        .unwrap();
        node.fini_bo(bo.handle).unwrap();
        bo
    };
    let (a, b) = (put(a), put(b));
    let c = put(&vec![0xee; c_bytes]);
    let task = Task {
        kind,
        m: 1,
        n,
        k,
        banks: Banks::of(1, k, kind, &Machine::rk3588()).unwrap(),
        data_reuse: false,
        weight_reuse: false,
        a: a.dma_address as u32,
        b: b.dma_address as u32,
        c: c.dma_address as u32,
    };
    let words = command::encode(&task.commands(Emit::MILLRACE));
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    let regcmd = put(&bytes);
    let job = JobArgs {
        tasks: vec![TaskArgs {
            regcmd: regcmd.dma_address as u32,
            regcmd_count: words.len() as u32,
        }],
        in_handles: vec![a.handle, b.handle, regcmd.handle],
        out_handles: vec![c.handle],
    };
    node.submit(&[job]).unwrap();
    node.prep_bo(c.handle, i64::MAX).unwrap();
    let mut found = Vec::new();
    node.access(&c, &mut |bytes| found = bytes[..c_bytes].to_vec())
        .unwrap();
    found
}

/// Vectors of a reference model, through commands on the virtual board.
#[test]
fn the_board_computes_the_vectors() {
    let Some(folder) = folder() else { return };
    let cases = [
        (
            "compute_int8_int32_m1_k32_n32.txt",
            MatmulKind::Int8Int32,
            32,
            32,
        ),
        (
            "compute_fp16_fp32_m1_k32_n16.txt",
            MatmulKind::Fp16F32,
            32,
            16,
        ),
    ];
    for (file, kind, k, n) in cases {
        let vectors = sections(&std::fs::read_to_string(folder.join(file)).unwrap());
        let expected = &vectors["C_packed"];
        let operands = [&vectors["A_packed"][..], &vectors["B_packed"]];
        let found = computed((kind, k, n), operands, expected.len());
        assert_eq!(&found, expected, "{file}");
    }
}
