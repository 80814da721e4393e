//! Any text is read or refused, and a run ends.

use crate::text;
use millrace_aie::{Design, RunOptions, UnsetMemory, run};
use proptest::prelude::*;

const NAMES: [&str; 7] = [
    "passthrough",
    "vector_add",
    "join",
    "matmul",
    "physical",
    "packets",
    "deadlock",
];

/// Reads, checks and runs a text within small bounds; it only has to return.
fn survive(text: &str) {
    let Ok(design) = Design::read(text) else {
        return;
    };
    if design.check().is_err() {
        return;
    }
    let sizes: Vec<u64> = design.arguments().map(|argument| argument.2).collect();
    if sizes.iter().any(|&size| size > 1 << 16) {
        return;
    }
    let arguments: Vec<Vec<u8>> = (0..sizes.len()).map(|i| design.counting(i)).collect();
    let options = RunOptions {
        orders: 1,
        slow_orders: 0,
        max_instructions: 20_000,
        max_rounds: 2_000,
        any_order: false,
        unset: UnsetMemory::Noise,
    };
    let _ = run(&design, &arguments, options);
}

/// A typo is answered with the op that it may have meant.
#[test]
fn a_typo_names_the_op_that_is_near() {
    let error = |from: &str, to: &str| {
        let read = Design::read(&text("vector_add").replace(from, to));
        read.map(|_| ()).expect_err("refused").to_string()
    };
    let typo = error("aiex.dma_await_task", "aiex.dma_awat_task");
    assert!(
        typo.contains(
            "`aiex.dma_awat_task`: this op is not known here; did you mean `aiex.dma_await_task`?"
        ),
        "{typo}"
    );
    let other = error("aiex.dma_await_task", "aiex.something_else");
    assert!(other.ends_with("this op is not known here"), "{other}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Words of designs are dropped, doubled, exchanged, or replaced.
    #[test]
    fn changed_designs(which in 0..NAMES.len(), changes in proptest::collection::vec((any::<u32>(), 0..6u8, any::<u32>()), 1..4)) {
        let original = text(NAMES[which]);
        let mut words: Vec<String> = original.split_inclusive([' ', '\n', '(', ',', ')', '[', ']', '<', '>']).map(str::to_owned).collect();
        const OTHERS: [&str; 12] = ["-1 ", "4294967296 ", "%c0 ", "} ", "{ ", "0xFFFFFFFFFFFFFFFF ", "memref<?xi1> ", "\"", "[[[[", "é", "i64 ", "^bb1 "];
        for (place, kind, other) in changes {
            let at = place as usize % words.len();
            let from = other as usize % words.len();
            match kind {
                0 => drop(words.remove(at)),
                1 => { let word = words[at].clone(); words.insert(at, word); }
                2 => words.swap(at, from),
                3 => words[at] = words[from].clone(),
                4 => words[at] = OTHERS[from % OTHERS.len()].to_owned(),
                _ => words.truncate(at.max(1)),
            }
        }
        survive(&words.concat());
    }

    /// Bytes that are not a design.
    #[test]
    fn any_text(text in "[ -~\n]{0,200}") {
        survive(&text);
        survive(&format!("aie.device(npu2) {{\n%t = aie.tile(0, 2)\n{text}\n}}"));
    }
}

#[test]
fn depth_is_bounded() {
    for (open, close) in [
        ("module {\n", "}\n"),
        ("aie.device(npu2) {\n%x = aie.buffer(%t) {a = ", "}"),
    ] {
        survive(&format!(
            "{}{}",
            open.repeat(100_000),
            close.repeat(100_000)
        ));
    }
    survive(&format!("#a = {}", "[".repeat(1_000_000)));
    survive(&format!("#a = {}", "affine_map<".repeat(100_000)));
    survive(&format!(
        "#a = {}",
        "memref<1x".repeat(100_000) + &">".repeat(100_000)
    ));
    let error = Design::read(&"module {\n".repeat(1000))
        .unwrap_err()
        .to_string();
    assert!(error.contains("levels within one another"), "{error}");
}
