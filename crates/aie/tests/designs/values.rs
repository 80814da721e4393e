//! Results of the examples.

use crate::{run_text, text, words};

#[test]
fn a_link_copies() {
    assert_eq!(
        words(&run_text(&text("passthrough"))),
        (1..=1024).collect::<Vec<i32>>()
    );
}

#[test]
fn a_core_adds_two_vectors() {
    let doubled: Vec<i32> = (1..=256).map(|i| 2 * i).collect();
    assert_eq!(words(&run_text(&text("vector_add"))), doubled);
}

#[test]
fn parts_are_distributed_and_joined() {
    let expected: Vec<i32> = (0..128)
        .map(|i| i + 1 + if i % 16 < 8 { 100 } else { 200 })
        .collect();
    assert_eq!(words(&run_text(&text("join"))), expected);
}

#[test]
fn two_cores_multiply_matrices() {
    let element = |row: i32, col: i32| row * 16 + col + 1;
    let sum = |row, col| (0..16).map(|k| element(row, k) * element(k, col)).sum();
    let expected: Vec<i32> = (0..256).map(|i| sum(i / 16, i % 16)).collect();
    assert_eq!(words(&run_text(&text("matmul"))), expected);
}

#[test]
fn a_physical_design_transposes_and_doubles() {
    // Blocks of eight rows of four words leave by columns.
    let at = |i: i32| i / 32 * 32 + i % 8 * 4 + i % 32 / 8;
    let expected: Vec<i32> = (0..256).map(|i| 2 * (at(i) + 1)).collect();
    assert_eq!(words(&run_text(&text("physical"))), expected);
}

#[test]
fn packets_of_two_cores_share_a_channel() {
    let expected: Vec<i32> = [11; 8].into_iter().chain(1..=8).collect();
    assert_eq!(words(&run_text(&text("packets"))), expected);
}

/// The words of a design decode to its stream.
#[test]
fn words_are_read_again() {
    for name in [
        "passthrough",
        "vector_add",
        "join",
        "matmul",
        "physical",
        "packets",
    ] {
        let design = millrace_aie::Design::read(&text(name)).unwrap();
        let stream = millrace_aie::words(&design).unwrap();
        assert_eq!(
            millrace_xdna2_words::txn::decode(&stream.encode()).unwrap(),
            stream,
            "{name}"
        );
    }
}
