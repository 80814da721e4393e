//! Tables of a profile, as text.

use super::document::Document;
use super::measured::RunTimes;
use crate::exit::CommandResult;
use crate::output::{Align, Out, Paint, TextTable, bytes};
use millrace_plan::predict::cells::{self, FIGURES, count, lines, ms, title};
use millrace_plan::predict::{Memory, PassCost, Prediction, Totals, Variant};

const LEFT: Align = Align::Left;
const RIGHT: Align = Align::Right;

pub(super) fn print(document: &Document, out: &mut Out) -> CommandResult {
    let prediction = &document.prediction;
    heading(document, out)?;
    totals(document, out)?;
    for (number, pass) in prediction.prefill.iter().enumerate() {
        // Chunks after the second are like the second, at a later position.
        if number < 2 {
            let title = title(pass, number, prediction.prefill.len());
            print_pass(pass, prediction.peak_flops_per_s, &title, out)?;
        }
    }
    let at = count(prediction.context);
    let title = format!("A token, {at} cached");
    print_pass(&prediction.token, prediction.peak_flops_per_s, &title, out)?;
    if let Some(image) = &document.image {
        image.print(out)?;
    }
    launches(prediction, out)?;
    memory(&prediction.memory, out)?;
    if let Some(rows) = &document.without {
        without(rows, out)?;
    }
    if let Some(measured) = &document.measured {
        print_measured(measured, out)?;
    }
    Ok(())
}

fn heading(document: &Document, out: &mut Out) -> CommandResult {
    let name = Paint::Bold.stdout(&document.model);
    let machine = &document.machine;
    out.line(format!(
        "{name} on {} ({} columns of {} cores, {:.2} GHz)",
        machine.name,
        machine.cols,
        machine.rows,
        machine.clock_hz / 1e9
    ))?;
    out.line(format!("  mode       {}", document.mode))?;
    out.line(format!("  times      {}", document.times()))
}

/// One column, or two and their ratio.
fn totals(document: &Document, out: &mut Out) -> CommandResult {
    out.line("")?;
    let prediction = &document.prediction;
    let prompt = count(prediction.prompt_tokens);
    let Some(unchanged) = &document.unchanged else {
        let mut table = TextTable::new(&[("", LEFT), ("predicted", RIGHT)]);
        table.row(vec!["prompt, tokens".to_owned(), prompt]);
        for (name, of, show) in FIGURES {
            table.row(vec![name.to_owned(), show(of(prediction))]);
        }
        return table.print(out);
    };
    let mut table = TextTable::new(&[
        ("", LEFT),
        ("as it is", RIGHT),
        ("changed", RIGHT),
        ("", RIGHT),
    ]);
    for cells in cells::compared(&unchanged.prediction, prediction) {
        table.row(cells.to_vec());
    }
    table.print(out)
}

fn print_pass(pass: &PassCost, peak: f64, title: &str, out: &mut Out) -> CommandResult {
    out.line("")?;
    out.line(Paint::Bold.stdout(title))?;
    let mut table = TextTable::new(&[
        ("program", LEFT),
        ("calls", RIGHT),
        ("launches", RIGHT),
        ("ms a call", RIGHT),
        ("BO write", RIGHT),
        ("NPU run", RIGHT),
        ("BO read", RIGHT),
        ("call", RIGHT),
        ("total ms", RIGHT),
        ("%", RIGHT),
        ("written MB", RIGHT),
        ("read MB", RIGHT),
        ("GFLOP/s", RIGHT),
        ("% of peak", RIGHT),
    ]);
    let total_ms = pass.totals.total_ns / 1e6;
    for line in lines(pass) {
        let each = line.total / line.calls.max(1) as f64;
        let share = format!("{:.1}", 100.0 * line.total / total_ms);
        if line.is_host {
            let mut cells = vec![format!("host: {}", line.name), line.calls.to_string()];
            cells.extend([String::new(), ms(each)]);
            cells.extend(std::iter::repeat_n(String::new(), 4));
            cells.extend([ms(line.total), share]);
            cells.extend(std::iter::repeat_n(String::new(), 4));
            table.row(cells);
            continue;
        }
        let mut cells = vec![line.name, line.calls.to_string(), line.launches.to_string()];
        cells.push(ms(each));
        cells.extend(line.parts.map(|part| ms(part / line.calls.max(1) as f64)));
        cells.extend([ms(line.total), share]);
        cells.extend(line.bytes.map(|b| ms(b as f64 / 1e6)));
        cells.extend(cells::rate_cells(line.rate));
        table.row(cells);
    }
    table.print(out)?;
    let aligned = |(number, name)| (name, if number == 0 { LEFT } else { RIGHT });
    let headings = cells::PART_HEADINGS.into_iter().enumerate().map(aligned);
    let mut table = TextTable::new(&headings.collect::<Vec<_>>());
    for cells in cells::part_rows(pass) {
        table.row(cells);
    }
    table.print(out)?;
    out.line(format!("  {}", cells::work_text(&pass.totals, peak)))?;
    out.line(format!("  {}", where_it_goes(&pass.totals)))?;
    out.line(format!("  {}", ddr(&pass.totals)))?;
    match &pass.energy {
        Some(energy) => out.line(format!("  energy while the array runs: {energy}")),
        None => Ok(()),
    }
}

/// `where it goes: launches 941.6 ms (81 %), loads …`.
fn where_it_goes(t: &Totals) -> String {
    let part = |(name, ns): (&str, f64)| {
        let percent = 100.0 * ns / t.total_ns;
        (ns > 0.0).then(|| format!("{name} {} ms ({percent:.1} %)", ms(ns / 1e6)))
    };
    let parts = cells::parts(t)
        .into_iter()
        .filter_map(part)
        .collect::<Vec<_>>();
    format!("{} ms: {}", ms(t.total_ns / 1e6), parts.join(", "))
}

fn ddr(t: &Totals) -> String {
    format!(
        "DDR: {} read, {} written by the array, {:.0} % of the attainable rate while it runs; weights and \
         tables {}, U_mem^rd {:.1} %; cores busy {:.1} %",
        bytes(t.ddr_read_bytes as u64),
        bytes(t.ddr_write_bytes as u64),
        100.0 * t.ddr_utilization,
        bytes(t.static_bytes),
        100.0 * t.u_mem_rd,
        100.0 * t.core_utilization
    )
}

/// Every launch of every program, once.
fn launches(prediction: &Prediction, out: &mut Out) -> CommandResult {
    out.line("")?;
    out.line(Paint::Bold.stdout("Launches"))?;
    let mut table = TextTable::new(&[
        ("program", LEFT),
        ("launch", LEFT),
        ("mapping", LEFT),
        ("shape", LEFT),
        ("ms", RIGHT),
        ("load", RIGHT),
        ("cores", RIGHT),
        ("busy %", RIGHT),
        ("read GB/s", RIGHT),
        ("write GB/s", RIGHT),
        ("bound by", LEFT),
    ]);
    for cells in cells::launch_rows(prediction) {
        table.row(cells);
    }
    table.print(out)
}

fn memory(memory: &Memory, out: &mut Out) -> CommandResult {
    out.line("")?;
    out.line(Paint::Bold.stdout("Memory"))?;
    for (name, n) in cells::memory_rows(memory) {
        out.line(format!("  {name:<24} {:>10}", bytes(n)))?;
    }
    out.line(format!("  for {} tokens cached", count(memory.n_cached)))
}

fn without(rows: &[Variant], out: &mut Out) -> CommandResult {
    out.line("")?;
    out.line(Paint::Bold.stdout("What each improvement buys"))?;
    let mut table = TextTable::new(&[
        ("", LEFT),
        ("first token ms", RIGHT),
        ("", RIGHT),
        ("a token ms", RIGHT),
        ("", RIGHT),
        ("moved MB", RIGHT),
        ("dispatches", RIGHT),
        ("memory MB", RIGHT),
        ("what it is", LEFT),
    ]);
    for cells in cells::variant_cells(rows) {
        table.row(cells);
    }
    table.print(out)
}

fn print_measured(measured: &RunTimes, out: &mut Out) -> CommandResult {
    let at = |path: &str| measured.counters.as_ref()?.pointer(path)?.as_u64();
    let ms_of = |path: &str| ms(at(path).unwrap_or(0) as f64 / 1e6);
    out.line("")?;
    out.line(Paint::Bold.stdout(
        "Measured here: this computer simulates the NPU; of an NPU's times these say nothing",
    ))?;
    out.line(format!(
        "  loaded in {:.2} s, prompt {:.2} s, {} tokens {:.2} s",
        measured.load_s, measured.prompt_s, measured.n_tokens, measured.tokens_s
    ))?;
    for phase in ["prefill", "decode"] {
        out.line(format!(
            "  {phase:<8} {} dispatches, {} written, {} read; host steps {} ms, calls {} ms",
            at(&format!("/{phase}/n_dispatches")).unwrap_or(0),
            bytes(at(&format!("/{phase}/written_bytes")).unwrap_or(0)),
            bytes(at(&format!("/{phase}/read_bytes")).unwrap_or(0)),
            ms_of(&format!("/{phase}/host_ns")),
            ms_of(&format!("/{phase}/call_ns")),
        ))?;
    }
    Ok(())
}
