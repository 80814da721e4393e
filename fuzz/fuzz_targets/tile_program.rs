//! Any text as a tile program of XDNA2: an error with its place, refusals, or a program that runs to its end in both
//! simulations.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use millrace_kernels::{Cpu, CpuOptions};
use millrace_xdna2_machine::program::text;
use millrace_xdna2_machine::{Machine, Profile, simulate, timing, verify};

/// A program that moves more is valid, but would slow the fuzzer down.
const MAX_SLOT_BYTES: u64 = 4 << 20;

fn cpu() -> &'static Cpu {
    static CPU: OnceLock<Cpu> = OnceLock::new();
    CPU.get_or_init(|| {
        let options = CpuOptions {
            n_threads: Some(1),
            ..CpuOptions::default()
        };
        Cpu::new(options).expect("a CPU")
    })
}

fuzz_target!(|source: &str| {
    let Ok(program) = text::parse(source) else {
        return;
    };
    let again = text::parse(&text::print(&program));
    assert_eq!(again.as_ref().ok(), Some(&program), "print and parse agree");
    let machine = Machine::npu2();
    if let Err(refusals) = verify(&program, &machine) {
        assert!(refusals.iter().all(|refusal| !refusal.place.is_empty()));
        return;
    }
    let sizes: Option<Vec<u64>> = program.slots.iter().map(|slot| slot.size_bytes()).collect();
    let sizes = sizes.expect("an accepted slot has a size");
    if sizes.iter().sum::<u64>() > MAX_SLOT_BYTES {
        return;
    }
    let mut buffers: Vec<Vec<u8>> = sizes.iter().map(|n| vec![0; *n as usize]).collect();
    let options = simulate::SimulateOptions {
        max_units: 1 << 22,
        ..simulate::SimulateOptions::new(cpu())
    };
    match simulate::run(&program, &mut buffers, &options) {
        Ok(_) => {}
        // An index that the data hold, or the bound set above.
        Err(
            fault @ (simulate::SimulationFault::Deadlock { .. }
            | simulate::SimulationFault::Leftover { .. }),
        ) => {
            panic!("accepted, and then: {fault}")
        }
        Err(_) => return,
    }
    let profile = Profile::builtin(Profile::DEFAULT).expect("the default profile");
    let _ = timing::predict(&program, &machine, &profile);
});
