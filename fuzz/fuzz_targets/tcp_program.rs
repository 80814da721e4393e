//! Any text as a program of the tensor contraction processor: an error with its place, refusals, or a program that ends.
#![no_main]

use libfuzzer_sys::fuzz_target;
use millrace_tcp::{Machine, program, simulate, verify};

/// A program that moves more is valid, but would slow the fuzzer down.
const MAX_SLOT_BYTES: u64 = 4 << 20;

fuzz_target!(|source: &str| {
    let Ok(program) = program::parse(source) else {
        return;
    };
    let again = program::parse(&program::print(&program));
    assert_eq!(again.as_ref().ok(), Some(&program), "print and parse agree");
    if verify(&program, &Machine::rngd()).is_err() {
        return;
    }
    let slots = program.slots().expect("an accepted program has slots");
    let sizes: Vec<u64> = slots.iter().filter_map(|slot| slot.size_bytes()).collect();
    if sizes.iter().sum::<u64>() > MAX_SLOT_BYTES {
        return;
    }
    let mut buffers: Vec<Vec<u8>> = sizes.iter().map(|n| vec![0; *n as usize]).collect();
    let options = simulate::SimulationOptions {
        n_threads: 1,
        stop_after: Some(1000),
        ..simulate::SimulationOptions::default()
    };
    let _ = simulate::run(&program, &mut buffers, &options);
});
