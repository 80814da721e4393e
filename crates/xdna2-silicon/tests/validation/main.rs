//! Translation validation: the board executes a program's words, and leaves the simulator's bytes in DDR, in any order
//! of its actors.
#![allow(clippy::unwrap_used)] // A test may panic.

mod driver;
mod equal;
mod export;
mod models;
mod mutated;
mod programs;
mod speed;

use millrace_kernels::{Cpu, CpuOptions};
use millrace_xdna2::mapping;
use millrace_xdna2_machine::simulate::{self, SimulateOptions};
use millrace_xdna2_machine::{Machine, Program};
use millrace_xdna2_silicon::{lower, run};
use millrace_xdna2_words::board::{BoardCounters, BoardOptions};

fn cpu() -> Cpu {
    Cpu::new(CpuOptions::default()).unwrap()
}

/// A mapping's program at a shape, and its slots filled.
fn case(name: &str, shape: &str, overrides: &str) -> (Program, Vec<Vec<u8>>) {
    built(name, shape, overrides).unwrap_or_else(|problem| panic!("{name} {shape}: {problem}"))
}

/// A built program, or why there is none.
fn built(name: &str, shape: &str, overrides: &str) -> Result<(Program, Vec<Vec<u8>>), String> {
    let mapping = mapping::find(name).ok_or("no such mapping")?;
    let shape = mapping.parse_shape(shape).map_err(|e| e.to_string())?;
    let tiling = mapping.default_tiling(&shape, &Machine::npu2());
    let tiling = tiling.overridden(overrides).map_err(|e| e.to_string())?;
    let program = mapping
        .build(&shape, &tiling, &Machine::npu2())
        .map_err(|e| e.to_string())?;
    Ok((program, mapping.inputs(&shape, 7)))
}

/// The slots after a run on the simulator.
fn simulated(program: &Program, slots: &[Vec<u8>], cpu: &Cpu) -> Vec<Vec<u8>> {
    let mut slots = slots.to_vec();
    simulate::run(program, &mut slots, &SimulateOptions::new(cpu)).unwrap();
    slots
}

/// Lowers and runs with a seed. Returns the counters, or the fault.
fn validate(
    name: &str,
    shape: &str,
    overrides: &str,
    seeds: &[u64],
) -> Result<Vec<BoardCounters>, String> {
    let (program, slots) = built(name, shape, overrides)?;
    let cpu = cpu();
    let lowered = lower(&program, &Machine::npu2()).map_err(|error| error.to_string())?;
    let expected = simulated(&program, &slots, &cpu);
    let mut counters = Vec::new();
    for &seed in seeds {
        let mut found = slots.clone();
        let options = BoardOptions {
            seed,
            max_rounds: 1 << 20,
            ..BoardOptions::default()
        };
        counters = run(&lowered, &mut found, &cpu, options).map_err(|error| error.to_string())?;
        for (slot, (found, expected)) in found.iter().zip(&expected).enumerate() {
            if let Some(at) = found.iter().zip(expected).position(|(a, b)| a != b) {
                let name = &program.slots[slot].name;
                return Err(format!(
                    "seed {seed}: slot {name} differs from byte {at} on"
                ));
            }
        }
    }
    Ok(counters)
}
