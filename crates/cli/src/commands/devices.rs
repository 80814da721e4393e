//! `millrace devices`: the compute devices of this machine.

use crate::exit::CommandResult;
use crate::machine::{self, Accelerator, Processor};
use crate::output::{Align, Out, Paint, TextTable, Ui, bytes};
use crate::progress::ProgressDisplay;
use crate::target_args::targets;
use millrace_kernels::Level;
use millrace_plan::{Choice, Hardware, Settings, Target};
use millrace_runtime::HostMemory;
use serde_json::{Value, json};
use std::hint::black_box;
use std::time::Instant;

const EXAMPLES: &str = "\
Examples:
  millrace devices             the processor, its instruction sets, memory, accelerators
  millrace devices -v          also the settings of each kind of NPU
  millrace devices --measure   also the memory read rate, which bounds tokens per second
  millrace devices --json";

/// Show the compute devices of this machine
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DevicesArgs {
    /// Measure how fast memory can be read (a second or two)
    #[arg(long)]
    measure: bool,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &DevicesArgs, ui: Ui) -> CommandResult {
    let processor = machine::processor();
    let memory = HostMemory::read();
    let accelerators = machine::accelerators();
    let read_bytes_per_s = args.measure.then(|| measure_read(processor.threads, ui));
    let mut out = Out::new();
    if args.json {
        out.json(&json!({
            "cpu": processor,
            "level": Level::preferred().name(),
            "levels": Level::supported().iter().map(|level| level.name()).collect::<Vec<_>>(),
            "refused_levels": refused_levels(),
            "memory": memory,
            "read_bytes_per_s": read_bytes_per_s,
            "accelerators": accelerators,
            "targets": targets().iter().map(|target| target_json(*target)).collect::<Vec<_>>(),
        }))?;
    } else {
        print_processor(&processor, &mut out)?;
        print_memory(&memory, read_bytes_per_s, &mut out)?;
        print_targets(ui, &mut out)?;
        print_accelerators(&accelerators, &mut out)?;
    }
    out.flush()
}

/// A level that the processor appears to support, and the reason it cannot be used.
#[derive(serde::Serialize)]
struct LevelRefusal {
    level: &'static str,
    reason: String,
}

fn refused_levels() -> Vec<LevelRefusal> {
    let refused = |level: Level| {
        Some(LevelRefusal {
            level: level.name(),
            reason: level.refusal()?,
        })
    };
    Level::ALL.into_iter().filter_map(refused).collect()
}

fn print_processor(processor: &Processor, out: &mut Out) -> CommandResult {
    out.line(format!(
        "{}  {}",
        Paint::Bold.stdout("CPU"),
        processor
            .name
            .as_deref()
            .unwrap_or("(the system does not say)")
    ))?;
    let cores = processor
        .cores
        .map_or("?".to_owned(), |cores| cores.to_string());
    out.line(format!(
        "  cores       {cores}, {} hardware threads",
        processor.threads
    ))?;
    let supported = Level::supported();
    let names: Vec<&str> = supported.iter().map(|level| level.name()).collect();
    out.line(format!(
        "  level       {} (it has {})",
        Level::preferred(),
        names.join(", ")
    ))?;
    for refused in refused_levels() {
        out.line(format!("  not {:<7} {}", refused.level, refused.reason))?;
    }
    if !processor.features.is_empty() {
        out.line(format!("  features    {}", processor.features.join(" ")))?;
    }
    for cache in &processor.caches {
        let shared = if cache.shared_by > 1 {
            format!(", shared by {} threads", cache.shared_by)
        } else {
            String::new()
        };
        out.line(format!(
            "  {:<11} {}{shared}",
            cache.name,
            bytes(cache.size_bytes)
        ))?;
    }
    Ok(())
}

fn print_memory(
    memory: &HostMemory,
    read_bytes_per_s: Option<f64>,
    out: &mut Out,
) -> CommandResult {
    out.line(format!("\n{}", Paint::Bold.stdout("Memory")))?;
    let text = |n: Option<u64>| n.map_or("?".to_owned(), bytes);
    out.line(format!("  total       {}", text(memory.total_bytes)))?;
    out.line(format!("  available   {}", text(memory.available_bytes)))?;
    if let Some(limit) = memory.limit_bytes {
        out.line(format!(
            "  limit       {} (set for this container)",
            bytes(limit)
        ))?;
    }
    if let Some(rate) = read_bytes_per_s {
        out.line(format!("  read        {:.1} GB/s (measured)", rate / 1e9))?;
    }
    Ok(())
}

/// Prints every kind of NPU, with its settings if details are asked for.
fn print_targets(ui: Ui, out: &mut Out) -> CommandResult {
    out.line(format!("\n{}", Paint::Bold.stdout("NPU")))?;
    for target in targets() {
        let machine = match target.planner(&Settings::default()) {
            Ok(planner) => {
                let machine = planner.machine();
                format!(
                    "{}, {} × {} cores at {:.2} GHz",
                    machine.name,
                    machine.cols,
                    machine.rows,
                    machine.clock_hz / 1e9
                )
            }
            Err(error) => error.to_string(),
        };
        out.line(format!(
            "  {:<11} {}: {machine} (`--device {}`)",
            target.name(),
            target.title(),
            target.name()
        ))?;
        for hardware in target.hardware() {
            let state = match &hardware.state {
                Ok(()) => "ready",
                Err(problem) => problem,
            };
            out.line(format!("    {} {}: {state}", hardware.place, hardware.name))?;
        }
        if ui.verbose {
            print_options(*target, out)?;
        }
    }
    Ok(())
}

fn print_options(target: &dyn Target, out: &mut Out) -> CommandResult {
    let options = target.options();
    for (option, choices) in [
        ("--machine", &options.machines),
        ("--profile", &options.profiles),
        ("--mode", &options.modes),
        ("--without", &options.features),
        ("--numerics", &options.numerics),
        ("--simulator", &options.simulators),
    ] {
        let mut option = option;
        for choice in choices {
            let line = format!("    {option:<11} {:<20} {}", choice.name, choice.summary);
            out.line(line.trim_end())?;
            option = "";
        }
    }
    Ok(())
}

fn target_json(target: &dyn Target) -> Value {
    let choices = |choices: &[Choice]| -> Vec<Value> {
        let one = |c: &Choice| json!({ "name": c.name, "summary": c.summary });
        choices.iter().map(one).collect()
    };
    let hardware = |h: &Hardware| json!({ "place": h.place, "name": h.name, "problem": h.state.as_ref().err() });
    let options = target.options();
    json!({
        "name": target.name(),
        "title": target.title(),
        "hardware": target.hardware().iter().map(hardware).collect::<Vec<_>>(),
        "machines": choices(&options.machines),
        "profiles": choices(&options.profiles),
        "modes": choices(&options.modes),
        "features": choices(&options.features),
        "numerics": choices(&options.numerics),
        "simulators": choices(&options.simulators),
    })
}

fn print_accelerators(accelerators: &[Accelerator], out: &mut Out) -> CommandResult {
    if accelerators.is_empty() {
        return out.line("  no hardware found (no device in /dev/accel)");
    }
    let mut table = TextTable::new(&[
        ("device", Align::Left),
        ("driver", Align::Left),
        ("access", Align::Left),
    ]);
    for accelerator in accelerators {
        table.row(vec![
            accelerator.node.display().to_string(),
            accelerator.driver.clone().unwrap_or_else(|| "?".to_owned()),
            if accelerator.accessible {
                "ok"
            } else {
                "no permission"
            }
            .to_owned(),
        ]);
    }
    table.print(out)?;
    out.line("  Hardware that no line above calls ready is not driven by this version; virtual NPUs need none.")
}

/// Bytes per second that all threads together read from memory; best of a few passes.
fn measure_read(n_threads: usize, ui: Ui) -> f64 {
    /// Far larger than any cache.
    const THREAD_BYTES: usize = 256 << 20;
    const PASSES: usize = 4;
    let _progress = ProgressDisplay::spinner(ui, "measuring memory");
    let buffers: Vec<Vec<u64>> = (0..n_threads)
        .map(|i| vec![i as u64 + 1; THREAD_BYTES / size_of::<u64>()])
        .collect();
    let pass = || {
        let start = Instant::now();
        std::thread::scope(|scope| {
            for buffer in &buffers {
                scope.spawn(|| {
                    black_box(
                        buffer
                            .iter()
                            .fold(0u64, |sum, word| sum.wrapping_add(*word)),
                    )
                });
            }
        });
        (n_threads * THREAD_BYTES) as f64 / start.elapsed().as_secs_f64()
    };
    (0..PASSES).map(|_| pass()).fold(0.0, f64::max)
}
