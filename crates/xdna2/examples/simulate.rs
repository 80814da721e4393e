//! Runs a mapping on the functional simulator and says how fast the host was:
//! `simulate NAME SHAPE [--tile name=value,…] [--threads N] [--check] [--repeat N]`.

use millrace_kernels::{Cpu, CpuOptions};
use millrace_xdna2::mapping;
use millrace_xdna2_machine::{Machine, simulate};
use std::error::Error;
use std::time::Instant;

struct Arguments {
    name: String,
    shape: String,
    tile: String,
    n_threads: Option<usize>,
    check: bool,
    repeat: usize,
}

fn arguments() -> Result<Arguments, Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let usage = "usage: simulate NAME SHAPE [--tile LIST] [--threads N] [--check] [--repeat N]";
    let mut found = Arguments {
        name: args.next().ok_or(usage)?,
        shape: args.next().ok_or(usage)?,
        tile: String::new(),
        n_threads: None,
        check: false,
        repeat: 1,
    };
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--tile" => found.tile = args.next().ok_or(usage)?,
            "--threads" => found.n_threads = Some(args.next().ok_or(usage)?.parse()?),
            "--check" => found.check = true,
            "--repeat" => found.repeat = args.next().ok_or(usage)?.parse()?,
            _ => return Err(usage.into()),
        }
    }
    Ok(found)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = arguments()?;
    let mapping = mapping::find(&arguments.name).ok_or("no such mapping")?;
    let machine = Machine::npu2();
    let shape = mapping.parse_shape(&arguments.shape)?;
    let tiling = mapping
        .default_tiling(&shape, &machine)
        .overridden(&arguments.tile)?;
    let program = mapping.build(&shape, &tiling, &machine)?;
    let cpu = Cpu::new(CpuOptions {
        n_threads: arguments.n_threads,
        level: None,
    })?;
    let options = simulate::SimulateOptions::new(&cpu);
    let inputs = mapping.inputs(&shape, 1);
    let mut slots = inputs.clone();
    println!("{} {shape} with {tiling}", mapping.name());
    for _ in 0..arguments.repeat {
        let start = Instant::now();
        let counters = simulate::run(&program, &mut slots, &options)?.total();
        let seconds = start.elapsed().as_secs_f64();
        let flops = mapping.work(&shape).flops as f64;
        println!(
            "{:.1} ms of host time, {:.3} TFLOP/s; {counters:?}",
            seconds * 1e3,
            flops / seconds / 1e12
        );
    }
    if arguments.check {
        for (slot, expected) in mapping.reference(&shape, &tiling, &inputs) {
            let same = slots[slot] == expected;
            println!("slot {slot}: {}", if same { "equal" } else { "differs" });
        }
    }
    Ok(())
}
