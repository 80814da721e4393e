//! The head over vocabularies of every size: parts of equal length, each with something in it.

use crate::lower::{MODES, graph};
use millrace_graph::{Graph, Linear, Op};
use millrace_xdna2::lower::{self, Binding, LowerOptions, Mode, Plan, WeightLayout};
use millrace_xdna2_machine::{Machine, verify};

/// Sizes of published models, and one more than the largest.
const REAL: [usize; 10] = [
    32_000, 32_064, 49_152, 50_257, 128_256, 151_669, 151_936, 256_000, 262_144, 262_145,
];

/// The graph with another vocabulary.
fn with_vocab(graph: &Graph, vocab: usize) -> Graph {
    let mut graph = graph.clone();
    let logits = graph.logits.unwrap();
    graph.values[logits.0].width = vocab;
    let head = graph.nodes.iter().find(|n| n.output == logits).unwrap();
    let Op::Linear(Linear { weight, .. }) = head.op else {
        panic!("{head:?}");
    };
    graph.weights[weight.0].n = vocab;
    graph
}

/// Small sizes, sizes near multiples of powers of two, and real ones.
fn sample() -> Vec<usize> {
    let mut sizes: Vec<usize> = (1..=20).collect();
    for (unit, most) in [(64, 640), (512, 3072), (1024, 9000)] {
        let multiples = (unit..=most).step_by(unit);
        sizes.extend(multiples.flat_map(|n| [n - 1, n, n + 1]));
    }
    sizes.extend([600, 3000, 5000]);
    sizes.extend(REAL);
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// The head's parts are the vocabulary, in order, none empty; its program is one that runs.
fn check_head(graph: &Graph, plan: &Plan, vocab: usize) {
    let head = plan.calls().last().unwrap();
    let mut next = 0;
    let mut padded = None;
    for binding in &head.bindings {
        match *binding {
            Binding::Part { value, start, len } => {
                assert_eq!((Some(value), start), (graph.logits, next), "{vocab}");
                assert!(len > 0, "{vocab}: an empty part at {start}");
                next += len;
            }
            Binding::Weight {
                layout: WeightLayout::Rows { len, padded_to, .. },
                ..
            } => {
                assert_eq!(*padded.get_or_insert(padded_to), padded_to, "{vocab}");
                assert!(len <= padded_to, "{vocab}");
            }
            _ => {}
        }
    }
    assert_eq!(next, vocab);
    let program = lower::program_of(&plan.programs[head.program]).unwrap();
    let refused = verify(program, &Machine::npu2()).err();
    assert!(refused.is_none(), "{vocab}: {refused:?}");
    let mut names: Vec<&str> = program.slots.iter().map(|s| s.name.as_str()).collect();
    let n = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), n, "{vocab}");
}

fn lower(graph: &Graph, mode: Mode, vocab: usize) {
    let graph = with_vocab(graph, vocab);
    let plan = lower::decode(&graph, &Machine::npu2(), &LowerOptions::new(mode, 2048));
    let plan = plan.unwrap_or_else(|e| panic!("{vocab}, {mode:?}: {e}"));
    check_head(&graph, &plan, vocab);
}

/// A sample of vocabularies; where tests run all cases, each up to 9,000 in each mode, for a change of the head's parts.
#[test]
fn every_vocabulary_has_a_head() {
    let graph = graph("llama-tiny", Some(1));
    if millrace_testkit::sample::is_whole() {
        for mode in MODES {
            (1..=9000).for_each(|vocab| lower(&graph, mode, vocab));
        }
        return;
    }
    for (i, vocab) in sample().into_iter().enumerate() {
        lower(&graph, Mode::Fast, vocab);
        if i % 8 == 0 {
            lower(&graph, Mode::MlirAir, vocab);
        }
    }
}
