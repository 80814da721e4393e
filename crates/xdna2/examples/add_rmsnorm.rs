//! The worked example of `docs/xdna2.md`: the residual add and the RMSNorm after it as one kernel,
//! built, verified, run, compared with a scalar reference and timed; then broken on purpose.
//! `add_rmsnorm [FILE.tile]` also writes the program in its text form.

use half::bf16;
use millrace_kernels::{Cpu, CpuOptions};
use millrace_npu::Element::Bf16;
use millrace_xdna2::mapping::{self, Tolerance, compare};
use millrace_xdna2_machine::program::builder::prelude::*;
use millrace_xdna2_machine::program::{StitchPart, stitch, text};
use millrace_xdna2_machine::simulate::{self, SimulateOptions};
use millrace_xdna2_machine::timing::{self, Timing};
use millrace_xdna2_machine::{Machine, Profile, verify};
use std::error::Error;

// doc: build
/// s = a + b and y = s / √(mean(s²) + ε) · γ by row of `d` elements, on 8 columns of `m` cores.
/// A column takes `n_rows / 8` consecutive rows, `m` at a time through its memory tile, one a core.
pub fn add_rmsnorm(n_rows: i64, d: i64, m: i64) -> Result<Program, ProgramErrors> {
    let share = n_rows / 8;
    build("add_rmsnorm", |p| {
        p.input("a", Bf16, [n_rows, d]);
        p.input("b", Bf16, [n_rows, d]);
        p.constant("gamma", Bf16, [d]);
        p.output("s", Bf16, [n_rows, d]);
        p.output("y", Bf16, [n_rows, d]);
        p.launch("add_rmsnorm", |l| {
            // γ comes down the channel of a, before it: once for each core of the column.
            let gamma = walk(0, [(m, 0), (d, 1)]);
            l.read("gamma", "A").dims([8]).at([i(0)]).pattern(gamma);
            let rows = || linear(i(0) * (share * d), share * d);
            // Down: m rows to the memory tile, from there a row to each core.
            for (slot, whole, row) in [("a", "A", "a"), ("b", "B", "b")] {
                let (from, to) = (memory(i(0)), core(i(0), i(1)));
                l.channel(whole)
                    .dims([8])
                    .block(Bf16, [m, d])
                    .from(shim(i(0)))
                    .to(memory(i(0)));
                l.channel(row)
                    .dims([8, m])
                    .block(Bf16, [d])
                    .from(from)
                    .to(to);
                l.stage(whole)
                    .dims([8])
                    .col(i(0))
                    .block(Bf16, [m, d])
                    .fill(whole, [i(0)], linear(0, m * d))
                    .drain_each(m, row, [i(0), e()], linear(e() * d, d));
                l.read(slot, whole).dims([8]).at([i(0)]).pattern(rows());
            }
            // Up: the same, the other way round.
            for (slot, whole, row) in [("s", "S", "s"), ("y", "Y", "y")] {
                let (from, to) = (core(i(0), i(1)), memory(i(0)));
                l.channel(row)
                    .dims([8, m])
                    .block(Bf16, [d])
                    .from(from)
                    .to(to);
                l.channel(whole)
                    .dims([8])
                    .block(Bf16, [m, d])
                    .from(memory(i(0)))
                    .to(shim(i(0)));
                l.stage(whole)
                    .dims([8])
                    .col(i(0))
                    .block(Bf16, [m, d])
                    .fill_each(m, row, [i(0), e()], linear(e() * d, d))
                    .drain(whole, [i(0)], linear(0, m * d));
                l.write(whole, slot).dims([8]).at([i(0)]).pattern(rows());
            }
            l.herd("cores", 8, m, |c| {
                // Blocks go back in the order they came, so γ moves out of the way of a's rows.
                let gamma = c.local("gamma", Bf16, [d]);
                let first = c.get("a", [x(), y()]);
                c.call("copy_bf16", [d], [first, gamma]);
                c.free(first);
                c.for_(share / m, |c, _| {
                    let a = c.get("a", [x(), y()]);
                    let b = c.get("b", [x(), y()]);
                    let sum = c.new_block("s", [x(), y()]);
                    c.call("add_bf16", [d], [a, b, sum]);
                    c.free(a);
                    c.free(b);
                    let norm = c.new_block("y", [x(), y()]);
                    c.call_with("rmsnorm_bf16", [1, d], [sum, gamma, norm], [], [1e-5]);
                    c.put(sum);
                    c.put(norm);
                });
            });
        });
    })
}
// doc: end

// doc: reference
/// What the outputs `s` and `y` must hold, in f64 but for the one rounding of each element.
pub fn reference(d: usize, a: &[bf16], b: &[bf16], gamma: &[bf16]) -> [Vec<bf16>; 2] {
    let sum: Vec<bf16> = a.iter().zip(b).map(|(a, b)| a + b).collect();
    let mut norm = Vec::with_capacity(sum.len());
    for row in sum.chunks_exact(d) {
        let mean = row.iter().map(|x| x.to_f64().powi(2)).sum::<f64>() / d as f64;
        let scale = 1.0 / (mean + 1e-5).sqrt();
        let scaled = row
            .iter()
            .zip(gamma)
            .map(|(x, g)| x.to_f64() * scale * g.to_f64());
        norm.extend(scaled.map(bf16::from_f64));
    }
    [sum, norm]
}
// doc: end

// doc: run
/// Runs the program on the virtual device and says how its outputs differ from the reference.
pub fn differences(
    program: &Program,
    n_rows: usize,
    d: usize,
) -> Result<Vec<String>, Box<dyn Error>> {
    let random = |n: usize, seed: u64| -> Vec<bf16> {
        let hash = |i: u64| (seed + i).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        (0..n as u64)
            .map(|i| bf16::from_f32(hash(i) as f32 / (1 << 23) as f32 - 1.0))
            .collect()
    };
    let bytes = |values: &[bf16]| {
        values
            .iter()
            .flat_map(|v| v.to_le_bytes())
            .collect::<Vec<u8>>()
    };
    let (a, b) = (random(n_rows * d, 1), random(n_rows * d, 1 << 32));
    let gamma = random(d, 1 << 33);
    let empty = vec![0; 2 * n_rows * d];
    let mut slots = vec![bytes(&a), bytes(&b), bytes(&gamma), empty.clone(), empty];

    let cpu = Cpu::new(CpuOptions::default())?;
    simulate::run(program, &mut slots, &SimulateOptions::new(&cpu))?;

    let one_ulp = Tolerance::Close {
        ulps: 1,
        absolute: 0.0,
    };
    let mut found = Vec::new();
    let [sum, norm] = reference(d, &a, &b, &gamma);
    for (slot, expected, tolerance) in [(3, sum, Tolerance::Exact), (4, norm, one_ulp)] {
        let comparison = compare(Bf16, &slots[slot], &bytes(&expected), tolerance);
        if let Some(outside) = comparison.outside {
            found.push(format!("{}: {outside}", program.slots[slot].name));
        }
    }
    Ok(found)
}
// doc: end

// doc: time
/// The kernel's predicted time, and that of the add and the norm as two launches of one dispatch.
pub fn times(program: &Program, shape: &str) -> Result<[Timing; 2], Box<dyn Error>> {
    let (machine, profile) = (
        Machine::npu2(),
        Profile::builtin(Profile::DEFAULT).ok_or("profile")?,
    );
    let library = |name: &str| -> Result<Program, Box<dyn Error>> {
        let mapping = mapping::find(name).ok_or("no such mapping")?;
        let shape = mapping.parse_shape(shape)?;
        let tiling = mapping.default_tiling(&shape, &machine);
        Ok(mapping.build(&shape, &tiling, &machine)?)
    };
    let (add, norm) = (library("add-2d")?, library("rmsnorm")?);
    let parts = [
        StitchPart {
            program: &add,
            prefix: "add",
            arg_map: &["a", "b", "s"],
        },
        StitchPart {
            program: &norm,
            prefix: "norm",
            arg_map: &["s", "gamma", "y"],
        },
    ];
    let two = stitch("add_then_rmsnorm", &parts, &["s", "y"])?;
    let predict = |program: &Program| timing::predict(program, &machine, &profile);
    Ok([predict(program)?, predict(&two)?])
}
// doc: end

// doc: break
/// Programs that are wrong on purpose, and what is said of each.
pub fn broken() -> Result<Vec<(&'static str, String)>, Box<dyn Error>> {
    let text = text::print(&add_rmsnorm(2048, 2048, 2)?);
    let edited = |from: &str, to: &str| text::parse(&text.replace(from, to));
    let programs = [
        ("four cores a column", add_rmsnorm(2048, 2048, 4)?),
        ("rows of 8192", add_rmsnorm(2048, 8192, 2)?),
        ("24 rows", add_rmsnorm(24, 2048, 2)?),
        ("a row too few", edited("for l0 in 128", "for l0 in 127")?),
        (
            "the rows of a swapped",
            edited(
                "drain a[i0, e] each 2 walk 2048*e",
                "drain a[i0, e] each 2 walk 2048 - 2048*e",
            )?,
        ),
    ];
    let mut said = Vec::new();
    for (what, program) in programs {
        let first = match verify(&program, &Machine::npu2()) {
            Err(refusals) => refusals.first().map(ToString::to_string),
            Ok(_) => differences(&program, 2048, 2048)?.into_iter().next(),
        };
        said.push((what, first.unwrap_or_default()));
    }
    Ok(said)
}
// doc: end

fn main() -> Result<(), Box<dyn Error>> {
    let program = add_rmsnorm(2048, 2048, 2)?;
    match verify(&program, &Machine::npu2()) {
        Ok(used) => println!(
            "verified   L1 {} bytes, L2 {} bytes",
            used.l1_bytes, used.l2_bytes
        ),
        Err(refusals) => return Err(refusals[0].clone().into()),
    }
    if let Some(path) = std::env::args().nth(1) {
        std::fs::write(path, text::print(&program))?;
    }
    match &differences(&program, 2048, 2048)?[..] {
        [] => println!("computed   as the reference: s exactly, y within a unit in the last place"),
        wrong => println!("computed   WRONG: {}", wrong.join("; ")),
    }
    for timing in times(&program, "2048x2048")? {
        let bytes = |l: &timing::LaunchTiming| l.ddr_read_bytes + l.ddr_write_bytes;
        let mib = timing.launches.iter().map(bytes).sum::<f64>() / f64::from(1 << 20);
        let (total_us, dispatch_us) = (timing.total_ns / 1e3, timing.dispatch_ns / 1e3);
        println!(
            "predicted  {}: {total_us:.0} us, {dispatch_us:.0} of it dispatch, {mib:.1} MiB moved; {}",
            timing.program, timing.label
        );
        for launch in &timing.launches {
            println!(
                "           {}: {:.0} us, {}",
                launch.name,
                launch.ns / 1e3,
                launch.bottleneck
            );
        }
    }
    for (what, said) in broken()? {
        println!("{what}:\n  {said}");
    }
    Ok(())
}
