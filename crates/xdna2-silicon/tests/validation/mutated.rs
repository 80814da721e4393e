//! Words changed by chance: the reader, the board or the bytes must notice.

use super::*;
use millrace_testkit::sample::whole_or;
use millrace_xdna2_silicon::run::run_words;
use millrace_xdna2_words::txn::decode;
use std::collections::BTreeMap;

/// Who noticed a changed word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Notice {
    Reader,
    Board,
    Bytes,
    Nobody,
}

/// The test's own generator, so that the sample is the same everywhere.
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % n
    }
}

/// Changes words: a bit, a count by one, two words of one operation exchanged.
fn mutate(words: &[u32], chance: &mut Chance) -> (usize, Vec<u32>) {
    let mut words = words.to_vec();
    let at = 4 + chance.below(words.len() - 5);
    match chance.below(4) {
        0 => words[at] = words[at].wrapping_add(1),
        1 => words[at] = words[at].wrapping_sub(1),
        2 if words[at] != words[at + 1] => words.swap(at, at + 1),
        _ => words[at] ^= 1 << chance.below(32),
    }
    (at, words)
}

/// Name of an operation at a word, for the list of unnoticed mutations.
fn name(words: &[u32], at: usize) -> String {
    let listing = millrace_xdna2_words::listing::listing(&decode(words).unwrap());
    let line = listing.lines.iter().rev().find(|line| line.word <= at);
    line.map_or_else(String::new, |line| {
        format!(
            "word {} of {} {}: {}",
            at - line.word,
            line.operation,
            line.text,
            line.details.join(", ")
        )
    })
}

fn sample(case_of: (&str, &str, &str), n: usize, tally: &mut BTreeMap<Notice, usize>) {
    let (program, slots) = case(case_of.0, case_of.1, case_of.2);
    let cpu = cpu();
    let lowered = lower(&program, &Machine::npu2()).unwrap();
    let [launch] = &lowered[..] else {
        panic!("one launch");
    };
    let expected = simulated(&program, &slots, &cpu);
    let words = launch.words.stream.encode();
    let options = BoardOptions {
        seed: 3,
        ..BoardOptions::default()
    };
    let mut found = slots.clone();
    let rounds = run_words(launch, &words, &mut found, &cpu, options)
        .unwrap()
        .rounds;
    let mut chance = Chance(7);
    for _ in 0..n {
        let (at, changed) = mutate(&words, &mut chance);
        let options = BoardOptions {
            max_rounds: 4 * rounds + 1000,
            ..options
        };
        let notice = match decode(&changed) {
            Err(_) => Notice::Reader,
            Ok(_) => {
                let mut found = slots.clone();
                match run_words(launch, &changed, &mut found, &cpu, options) {
                    Err(_) => Notice::Board,
                    Ok(_) if found != expected => Notice::Bytes,
                    Ok(_) => Notice::Nobody,
                }
            }
        };
        *tally.entry(notice).or_default() += 1;
        if notice == Notice::Nobody {
            println!(
                "not noticed: {:08X} for {:08X}, {}",
                changed[at],
                words[at],
                name(&words, at)
            );
        }
    }
}

/// A sample of few hundred, or with `MILLRACE_TEST_ALL=1` of some thousands.
#[test]
fn changed_words_are_noticed() {
    let n = whole_or(2000, 40);
    let mut tally = BTreeMap::new();
    sample(("add-2d", "16x64", ""), n, &mut tally);
    sample(
        ("gemm-stream", "32x32x32", "tile_m=8,tile_n=8,cols=2,rows=2"),
        n,
        &mut tally,
    );
    sample(("gemv-stream", "64+64x256", ""), n, &mut tally);
    println!("{tally:?}");
    let missed = tally.get(&Notice::Nobody).copied().unwrap_or(0);
    let all: usize = tally.values().sum();
    assert!(
        missed * 20 <= all,
        "{missed} of {all} changed words were not noticed"
    );
    assert!(
        tally.len() >= 3,
        "each of reader, board and bytes finds some: {tally:?}"
    );
}
