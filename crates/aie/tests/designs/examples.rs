//! Designs of our own in the spelling of mlir-aie's programming examples, as IRON prints them, and changes that make them hang.

use crate::{run_text, text};
use millrace_aie::{Design, RunOptions, RunReport, Verdict, run};

fn bytes_of<T: Copy, const N: usize>(values: &[T], bytes: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    values.iter().flat_map(|&value| bytes(value)).collect()
}

fn run_on(text: &str, arguments: &[Vec<u8>]) -> RunReport {
    let design = Design::read(text).unwrap_or_else(|error| panic!("{error}"));
    run(&design, arguments, RunOptions::default()).unwrap_or_else(|error| panic!("{error}"))
}

/// The bytes of the one argument that a run wrote.
fn output(report: &RunReport) -> &[u8] {
    assert_eq!(report.verdict, Verdict::Pass, "{report:#?}");
    assert!(report.unknown_kernels.is_empty(), "{report:#?}");
    match &report.outputs[..] {
        [output] => &output.bytes,
        more => panic!("{} outputs", more.len()),
    }
}

/// Bytes of no pattern that a block or a line has.
fn noise(n: usize) -> Vec<u8> {
    (0..n).map(|i| (i * i / 7 + i) as u8).collect()
}

#[test]
fn lines_pass_a_kernel() {
    let line = noise(4096);
    let report = run_on(
        &text("passthrough_kernel"),
        &[line.clone(), vec![0; 4096], vec![0; 4096]],
    );
    assert_eq!(output(&report), line);
}

#[test]
fn a_vector_is_scaled() {
    let vector: Vec<i32> = (0..4096).map(|i| i * 37 - 70_000).collect();
    let arguments = [
        bytes_of(&vector, i32::to_le_bytes),
        (-3i32).to_le_bytes().to_vec(),
        vec![0; 16_384],
    ];
    let report = run_on(&text("vector_scalar_mul"), &arguments);
    let expected: Vec<i32> = vector.iter().map(|x| x * -3).collect();
    assert_eq!(output(&report), bytes_of(&expected, i32::to_le_bytes));
}

/// A matrix of 128 × 128, a vector, and their product.
fn product() -> (Vec<Vec<u8>>, Vec<u8>) {
    let element = |i: usize| (i * i % 251) as i16 - 125;
    let matrix: Vec<i16> = (0..128 * 128).map(element).collect();
    let vector: Vec<i16> = (0..128).map(|i| element(i + 77)).collect();
    let row = |row: &[i16]| -> i32 {
        let products = row.iter().zip(&vector);
        products.map(|(&a, &x)| i32::from(a) * i32::from(x)).sum()
    };
    let expected: Vec<i32> = matrix.chunks_exact(128).map(row).collect();
    let arguments = vec![
        bytes_of(&matrix, i16::to_le_bytes),
        bytes_of(&vector, i16::to_le_bytes),
        vec![0; 512],
    ];
    (arguments, bytes_of(&expected, i32::to_le_bytes))
}

/// Transposed in words on the way for the vector kernel, and in row order for the scalar one.
#[test]
fn a_matrix_meets_a_vector() {
    let (arguments, expected) = product();
    let pairs = text("matrix_vector");
    assert_eq!(output(&run_on(&pairs, &arguments)), expected);
    let by_words = " dimensionsToStream [<size = 16, stride = 2>, <size = 32, stride = 32>, <size = 2, stride = 1>]";
    let rows = pairs
        .replace(by_words, "")
        .replace("matvec_vectorized", "matvec_scalar");
    assert_eq!(output(&run_on(&rows, &arguments)), expected);
    // Each kernel in the other's order computes something else.
    let mixed = pairs.replace("matvec_vectorized", "matvec_scalar");
    assert_ne!(output(&run_on(&mixed, &arguments)), expected);
}

/// Newer spellings of the generators of 2026: objects without subviews, several files to link.
#[test]
fn newer_spellings_run() {
    let design = text("passthrough_kernel");
    let mut newer = String::new();
    for line in design.lines() {
        match line
            .trim_start()
            .split_once(" = aie.objectfifo.subview.access ")
        {
            Some(_) => continue,
            None => newer.push_str(line),
        }
        newer.push('\n');
    }
    let newer = newer
        .replace("%0 = aie.objectfifo.acquire", "%1 = aie.objectfifo.acquire")
        .replace("%2 = aie.objectfifo.acquire", "%3 = aie.objectfifo.acquire")
        .replace(
            "1) : !aie.objectfifosubview<memref<1024xui8>>",
            "1) : memref<1024xui8>",
        )
        .replace(
            "{stack_size = 1024 : i32}",
            "{link_files = [\"a.o\", \"b.o\"], stack_size = 1024 : i32}",
        );
    assert_ne!(newer, design);
    let line = noise(4096);
    let arguments = [line.clone(), vec![0; 4096], vec![0; 4096]];
    assert_eq!(output(&run_on(&newer, &arguments)), line);
}

/// A typical user error, in each of the three examples: none of them passes.
#[test]
fn slips_hang() {
    let rows = [
        // A line is not given on.
        (
            "passthrough_kernel",
            "        aie.objectfifo.release @out(Produce, 1)\n",
            "",
        ),
        // A line less than the output waits for.
        (
            "passthrough_kernel",
            "%arg0 : memref<4096xui8>, 0, 4096, [<size = 1, stride = 0>, <size = 1, stride = 0>, <size = 1, stride = 0>, <size = 4096, stride = 1>]",
            "%arg0 : memref<4096xui8>, 0, 3072, [<size = 1, stride = 0>, <size = 1, stride = 0>, <size = 1, stride = 0>, <size = 3072, stride = 1>]",
        ),
        // The factor is never sent.
        ("vector_scalar_mul", "      aiex.dma_start_task(%1)\n", ""),
        // The factor is awaited before it is sent.
        (
            "vector_scalar_mul",
            "      aiex.dma_start_task(%1)\n      aiex.dma_start_task(%2)\n      aiex.dma_await_task(%0)\n",
            "      aiex.dma_start_task(%2)\n      aiex.dma_await_task(%2)\n      aiex.dma_start_task(%1)\n      aiex.dma_await_task(%0)\n",
        ),
        // The vector comes once for two groups of rows.
        (
            "matrix_vector",
            "[<size = 2, stride = 0>, <size = 1, stride = 0>, <size = 1, stride = 0>, <size = 128, stride = 1>]) {burst_length = 0 : i32}\n        aie.end\n      } {repeat_count = 1 : i32}",
            "[<size = 1, stride = 0>, <size = 1, stride = 0>, <size = 1, stride = 0>, <size = 128, stride = 1>]) {burst_length = 0 : i32}\n        aie.end\n      }",
        ),
        // One core of two takes its part of the vector and releases none.
        (
            "matrix_vector",
            "          aie.objectfifo.release @inA1(Consume, 1)\n          aie.objectfifo.release @inB(Consume, 1)\n",
            "          aie.objectfifo.release @inA1(Consume, 1)\n",
        ),
    ];
    for (name, from, to) in rows {
        let good = text(name);
        assert!(good.contains(from), "{name}: {from}");
        let report = run_text(&good.replace(from, to));
        assert_eq!(
            report.verdict,
            Verdict::Hang,
            "{name} without {from}\n{report:#?}"
        );
        assert!(!report.ring.is_empty() && report.outputs.is_empty());
    }
}
