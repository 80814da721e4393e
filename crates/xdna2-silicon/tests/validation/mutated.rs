//! Words changed by chance: the reader, the board or the bytes must notice.

use super::*;
use millrace_testkit::sample::{is_whole, takes, whole_or};
use millrace_xdna2_silicon::lower::LoweredLaunch;
use millrace_xdna2_silicon::run::{RunError, run_words};
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

/// How often each of them noticed.
type Tally = BTreeMap<Notice, usize>;

/// A program whose words are changed.
struct Mutated<'p> {
    launches: Vec<LoweredLaunch<'p>>,
    slots: Vec<Vec<u8>>,
    expected: Vec<Vec<u8>>,
    cpu: Cpu,
}

impl<'p> Mutated<'p> {
    /// Lowers a program; refuses one that is wrong before a word is changed.
    fn new(program: &'p Program, slots: Vec<Vec<u8>>) -> Mutated<'p> {
        let cpu = cpu();
        let launches = lower(program, &Machine::npu2()).unwrap();
        let expected = simulated(program, &slots, &cpu);
        Mutated {
            launches,
            slots,
            expected,
            cpu,
        }
    }

    /// Runs all launches, one of them with words of its own.
    fn run(
        &self,
        changed: usize,
        words: &[u32],
        max_rounds: u64,
    ) -> Result<(Vec<Vec<u8>>, BoardCounters), RunError> {
        let options = BoardOptions {
            seed: 3,
            max_rounds,
            ..BoardOptions::default()
        };
        let (mut found, mut counters) = (self.slots.clone(), BoardCounters::default());
        for (i, launch) in self.launches.iter().enumerate() {
            let own = launch.words.stream.encode();
            let words = if i == changed { words } else { &own };
            counters.add(run_words(launch, words, &mut found, &self.cpu, options)?);
        }
        Ok((found, counters))
    }

    /// Changes words so many times in turn through its launches; a run may move so many words in all.
    fn tally(&self, (most, most_words): (usize, u64), chance: &mut Chance) -> Tally {
        let own: Vec<Vec<u32>> = self
            .launches
            .iter()
            .map(|l| l.words.stream.encode())
            .collect();
        let (found, counters) = self.run(0, &own[0], 1 << 24).unwrap();
        assert!(
            found == self.expected,
            "other bytes before a word is changed"
        );
        let n = (most_words / counters.words.max(1)).clamp(3, most as u64);
        let mut tally = Tally::new();
        for i in 0..n as usize {
            let launch = i % own.len();
            let words = &own[launch];
            let (at, changed) = mutate(words, chance);
            let notice = match decode(&changed) {
                Err(_) => Notice::Reader,
                Ok(_) => match self.run(launch, &changed, 4 * counters.rounds + 1000) {
                    Err(_) => Notice::Board,
                    Ok((found, _)) if found != self.expected => Notice::Bytes,
                    Ok(_) => Notice::Nobody,
                },
            };
            *tally.entry(notice).or_default() += 1;
            if notice == Notice::Nobody {
                let (new, old, name) = (changed[at], words[at], name(words, at));
                println!("not noticed: {new:08X} for {old:08X}, {name}");
            }
        }
        tally
    }
}

/// At least 95 of 100 changed words were noticed.
fn assert_noticed(of: &str, tally: &Tally) {
    let missed = tally.get(&Notice::Nobody).copied().unwrap_or(0);
    let all: usize = tally.values().sum();
    println!("{of}: {tally:?}");
    assert!(
        missed * 20 <= all,
        "{of}: {missed} of {all} changed words were not noticed"
    );
}

fn add(from: Tally, to: &mut Tally) {
    for (notice, n) in from {
        *to.entry(notice).or_default() += n;
    }
}

/// A sample of few hundred, or with `MILLRACE_TEST_ALL=1` of some thousands.
#[test]
fn changed_words_are_noticed() {
    let n = whole_or(2000, 40);
    let mut tally = Tally::new();
    for (name, shape, tiling) in [
        ("add-2d", "16x64", ""),
        ("gemm-stream", "32x32x32", "tile_m=8,tile_n=8,cols=2,rows=2"),
        ("gemv-stream", "64+64x256", ""),
    ] {
        let (program, slots) = case(name, shape, tiling);
        let program = Mutated::new(&program, slots);
        add(program.tally((n, u64::MAX), &mut Chance(7)), &mut tally);
    }
    assert_noticed("three programs", &tally);
    assert!(
        tally.len() >= 3,
        "each of reader, board and bytes finds some: {tally:?}"
    );
}

/// Of each shape of the mappings' own tests a few words are changed, fewer where a run is long: 95 % are noticed, with
/// `MILLRACE_TEST_ALL=1` of every mapping's.
#[test]
fn changed_words_of_every_mapping_are_noticed() {
    let rows = include_str!("shapes.txt").lines();
    let rows = rows.filter(|line| !line.starts_with('#'));
    let mut tallies: BTreeMap<&str, Tally> = BTreeMap::new();
    for (number, row) in rows.enumerate() {
        let [name, shape, tiling] = row.split('|').map(str::trim).collect::<Vec<_>>()[..] else {
            panic!("{row}");
        };
        if !takes(number, 12, 11) {
            continue;
        }
        let (program, slots) = case(name, shape, tiling);
        let program = Mutated::new(&program, slots);
        let found = program.tally(
            whole_or((150, 6 << 20), (25, 1 << 20)),
            &mut Chance(number as u64),
        );
        println!("{row}: {found:?}");
        add(found, tallies.entry(name).or_default());
    }
    let mut all = Tally::new();
    for (name, tally) in tallies {
        if is_whole() {
            assert_noticed(name, &tally);
        }
        add(tally, &mut all);
    }
    assert_noticed("all mappings", &all);
}
