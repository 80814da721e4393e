//! Round trips of files, and refusals.

use std::path::Path;

use super::*;

/// Two chunks of two tensors; of three experts the last is never chosen.
fn sample() -> ImportanceMatrix {
    let mut matrix = ImportanceMatrix {
        datasets: vec!["a.txt".to_owned()],
        chunk_count: 2,
        chunk_size: 2,
        ..ImportanceMatrix::default()
    };
    for row in [[1.0, 2.0], [3.0, 0.0], [0.0, 2.0], [0.0, 0.0]] {
        matrix.add_row("blk.0.attn_q.weight", (0, 1), &row);
    }
    matrix.add_row("blk.0.ffn_up_exps.weight", (0, 3), &[1.0, 1.0]);
    matrix.add_row("blk.0.ffn_up_exps.weight", (1, 3), &[2.0, 4.0]);
    matrix.add_row("blk.0.ffn_up_exps.weight", (1, 3), &[0.0, 4.0]);
    matrix
}

fn written(write: impl Fn(&Path)) -> ImportanceMatrix {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m");
    write(&path);
    ImportanceMatrix::read(&path).unwrap()
}

#[test]
fn means_are_of_the_rows_that_a_matrix_read() {
    let matrix = sample();
    let dense = matrix.entry("blk.0.attn_q.weight").unwrap();
    assert_eq!(dense.mean_squares(0, 1).unwrap(), [2.5, 2.0]);
    let experts = matrix.entry("blk.0.ffn_up_exps.weight").unwrap();
    assert_eq!(experts.mean_squares(0, 3).unwrap(), [1.0, 1.0]);
    assert_eq!(experts.mean_squares(1, 3).unwrap(), [2.0, 16.0]);
    assert_eq!(experts.mean_squares(2, 3), None);
}

#[test]
fn gguf_files_keep_everything() {
    let matrix = sample();
    assert_eq!(written(|path| matrix.write_gguf(path).unwrap()), matrix);
}

/// llama.cpp's names, shapes (slowest dimension first) and keys.
#[test]
fn gguf_files_are_llama_cpps() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.gguf");
    sample().write_gguf(&path).unwrap();
    let header = millrace_format::gguf::Header::parse(&std::fs::read(&path).unwrap(), &path);
    let header = header.unwrap();
    let shapes: Vec<(&str, &[usize])> = header
        .tensors
        .iter()
        .map(|info| (info.name.as_str(), &info.shape[..]))
        .collect();
    let expected: [(&str, &[usize]); 4] = [
        ("blk.0.attn_q.weight.in_sum2", &[1, 2]),
        ("blk.0.attn_q.weight.counts", &[1, 1]),
        ("blk.0.ffn_up_exps.weight.in_sum2", &[3, 2]),
        ("blk.0.ffn_up_exps.weight.counts", &[3, 1]),
    ];
    assert_eq!(shapes, expected);
    let metadata = &header.metadata;
    assert_eq!(metadata.get_str("general.type").unwrap(), Some("imatrix"));
    assert_eq!(metadata.get_u32("imatrix.chunk_count").unwrap(), Some(2));
    assert_eq!(metadata.get_u32("imatrix.chunk_size").unwrap(), Some(2));
    let datasets = metadata.get_str_array("imatrix.datasets").unwrap();
    assert_eq!(datasets, Some(&["a.txt".to_owned()][..]));
}

#[test]
fn older_files_keep_the_means() {
    let matrix = sample();
    let read = written(|path| matrix.write_dat(path).unwrap());
    assert_eq!((read.chunk_count, read.chunk_size), (2, 0));
    assert_eq!(read.datasets, matrix.datasets);
    let dense = read.entry("blk.0.attn_q.weight").unwrap();
    assert_eq!(dense.counts(), [2]);
    assert_eq!(dense.mean_squares(0, 1).unwrap(), [2.5, 2.0]);
    let experts = read.check("blk.0.ffn_up_exps.weight", 3, 2).unwrap();
    let mean = |i| experts.unwrap().mean_squares(i, 3).unwrap();
    assert_eq!([mean(1), mean(2)], [[2.0, 16.0], [1.0, 1.0]]);
}

#[test]
fn matrices_add_up() {
    let mut twice = sample();
    twice.add(&sample()).unwrap();
    let name = "blk.0.ffn_up_exps.weight";
    assert_eq!(twice.entry(name).unwrap().counts(), [2, 4, 0]);
    let mean = twice.entry(name).unwrap().mean_squares(1, 3).unwrap();
    assert_eq!((mean, twice.chunk_count), (vec![2.0, 16.0], 4));
    // Of an older file, a chunk counts as many rows as one of ours.
    let mut mixed = sample();
    let older = written(|path| sample().write_dat(path).unwrap());
    mixed.add(&older).unwrap();
    let dense = mixed.entry("blk.0.attn_q.weight").unwrap();
    assert_eq!(
        (dense.counts(), dense.sums()),
        (&[8][..], &[20.0, 16.0][..])
    );
    let mut other = ImportanceMatrix::default();
    other.add_row("blk.0.attn_q.weight", (0, 1), &[1.0, 2.0, 3.0]);
    let error = twice.add(&other).unwrap_err().to_string();
    assert!(
        error.contains("blk.0.attn_q.weight") && error.contains("1 x 2"),
        "{error}"
    );
}

#[test]
fn files_that_are_cut_off_or_something_else_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m");
    for write in [ImportanceMatrix::write_gguf, ImportanceMatrix::write_dat] {
        write(&sample(), &path).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        // A GGUF file may lack bytes at its end that only align.
        for n in [0, 3, 9, bytes.len() / 2, bytes.len() - 32] {
            let error = ImportanceMatrix::parse(&bytes[..n], &path);
            assert!(error.is_err(), "{n} of {} bytes", bytes.len());
        }
    }
    let text = b"Once upon a time there was a fox who lived near the old mill.";
    let error = ImportanceMatrix::parse(text, &path)
        .unwrap_err()
        .to_string();
    assert!(error.contains("not an importance matrix"), "{error}");
}
