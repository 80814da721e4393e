//! A self-contained page for a browser: tables made here, and a timeline drawn by the page's own
//! script from the JSON that `--json` prints.

use super::document::Document;
use crate::exit::{CommandFailure, CommandResult};
use crate::output::{bytes, rate};
use millrace_format::output;
use millrace_plan::predict::cells::{self, PassLine, count, ms};
use millrace_plan::predict::{PassCost, Prediction, Totals};
use std::fmt::Write;
use std::path::Path;

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

pub(super) fn write(path: &Path, document: &Document) -> CommandResult {
    output::write(path, page(document).as_bytes()).map_err(|error| CommandFailure::writing(&error))
}

/// The whole page.
pub(super) fn page(document: &Document) -> String {
    let data = serde_json::to_string(document)
        .expect("it has string keys and finite or null numbers")
        // This keeps text of a model from ending the element.
        .replace('<', "\\u003c");
    let title = format!("{} on {}", document.model, document.machine.name);
    let mut page = String::new();
    let mut rest = PAGE;
    while let Some((before, after)) = rest.split_once("{{") {
        page.push_str(before);
        let (name, after) = after.split_once("}}").unwrap_or((after, ""));
        match name {
            "title" => page.push_str(&escaped(&title)),
            "style" => page.push_str(STYLE.trim_end()),
            "header" => page.push_str(&header(document)),
            "tables" => page.push_str(&tables(document)),
            "data" => page.push_str(&data),
            _ => page.push_str(SCRIPT.trim_end()),
        }
        rest = after;
    }
    page.push_str(rest);
    page
}

/// Escapes text for use between tags and in attributes.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

fn header(document: &Document) -> String {
    let p = &document.prediction;
    let machine = &document.machine;
    let mut out = String::new();
    let _ = writeln!(out, "<h1>{}</h1>", escaped(&document.model));
    let _ = writeln!(
        out,
        "<p class=\"soft\">{}: {} columns of {} cores at {:.2} GHz · {}</p>",
        escaped(&machine.name),
        machine.cols,
        machine.rows,
        machine.clock_hz / 1e9,
        escaped(&document.mode)
    );
    let _ = writeln!(
        out,
        "<p class=\"note\">Times: {}.</p>",
        escaped(&document.times())
    );
    out.push_str("<div class=\"cards\">\n");
    for (value, unit, what) in cards(p) {
        let _ = writeln!(
            out,
            "<div class=\"card\"><b>{} <small>{unit}</small></b><span>{}</span></div>",
            escaped(&value),
            escaped(&what)
        );
    }
    out.push_str("</div>\n<h2>Where the time goes</h2>\n");
    for (title, pass) in passes(document) {
        bar(&mut out, &title, pass);
    }
    out
}

/// Figures at the top: value, unit and description.
fn cards(p: &Prediction) -> [(String, &'static str, String); 8] {
    let prompt: f64 = p
        .prefill
        .iter()
        .map(|pass| pass.totals.n_calls as f64)
        .sum();
    let moved = p
        .prefill
        .iter()
        .map(|pass| moved(&pass.totals))
        .sum::<u64>();
    let token = &p.token.totals;
    let flops: u64 = p.prefill.iter().map(|pass| pass.totals.rate.flops).sum();
    [
        (
            ms(p.ttft_ns / 1e6),
            "ms",
            format!("to the first token of {}", count(p.prompt_tokens)),
        ),
        (
            rate(p.tokens_per_s),
            "tok/s",
            format!("with {} cached", count(p.context)),
        ),
        (
            rate(p.prompt_tokens_per_s),
            "tok/s",
            "of the prompt".to_owned(),
        ),
        (
            ms(flops as f64 / p.ttft_ns / 1e3),
            "TFLOP/s",
            format!(
                "over the prompt, {:.1} % of the array's peak",
                1e11 * flops as f64 / p.ttft_ns / p.peak_flops_per_s
            ),
        ),
        (
            format!("{prompt} + {}", token.n_calls),
            "",
            "dispatches, prompt and token".to_owned(),
        ),
        (
            ms(moved as f64 / 1e6),
            "MB",
            "the prompt moves between host and buffers".to_owned(),
        ),
        (
            format!("{:.1}", 100.0 * token.u_mem_rd),
            "%",
            "U_mem^rd of a token".to_owned(),
        ),
        (
            bytes(p.memory.total_bytes),
            "",
            "buffers and cache".to_owned(),
        ),
    ]
}

fn moved(totals: &Totals) -> u64 {
    totals.crossing.written_bytes + totals.crossing.read_bytes
}

/// Passes with their titles; of many chunks only the first and the last.
fn passes(document: &Document) -> Vec<(String, &PassCost)> {
    let p = &document.prediction;
    let n = p.prefill.len();
    let shown = |number: &usize| *number == 0 || number + 1 == n;
    let mut passes: Vec<(String, &PassCost)> = (p.prefill.iter().enumerate())
        .filter(|(number, _)| shown(number))
        .map(|(number, pass)| (cells::title(pass, number, n), pass))
        .collect();
    passes.push((format!("A token, {} cached", count(p.context)), &p.token));
    passes
}

const CLASSES: [&str; 7] = ["work", "load", "dispatch", "call", "write", "read", "host"];

/// A pass as one bar of its parts.
fn bar(out: &mut String, title: &str, pass: &PassCost) {
    let t = &pass.totals;
    let _ = writeln!(
        out,
        "<p>{} <span class=\"soft\">{} ms</span></p>\n<div class=\"bar\">",
        escaped(title),
        ms(t.total_ns / 1e6)
    );
    let parts = || cells::parts(t).into_iter().zip(CLASSES);
    for ((name, ns), class) in parts().filter(|((_, ns), _)| *ns > 0.0) {
        let percent = 100.0 * ns / t.total_ns;
        let _ = writeln!(
            out,
            "<i class=\"{class}\" style=\"width:{percent:.3}%\" title=\"{name}: {} ms\"></i>",
            ms(ns / 1e6)
        );
    }
    out.push_str("</div>\n<div class=\"legend\">\n");
    for ((name, ns), class) in parts().filter(|((_, ns), _)| *ns > 0.0) {
        let _ = writeln!(
            out,
            "<span><i class=\"{class}\"></i>{name} {} ms, {:.1} %</span>",
            ms(ns / 1e6),
            100.0 * ns / t.total_ns
        );
    }
    out.push_str("</div>\n");
}

/// A table; the first `n_left` columns are text.
struct HtmlTable {
    out: String,
    n_left: usize,
}

impl HtmlTable {
    fn new(title: &str, headings: &[&str], n_left: usize) -> HtmlTable {
        let mut out = format!(
            "<h2>{}</h2>\n<div class=\"scroll\"><table>\n<tr>",
            escaped(title)
        );
        for (i, heading) in headings.iter().enumerate() {
            let class = if i < n_left { " class=\"l\"" } else { "" };
            let _ = write!(out, "<th{class}>{}</th>", escaped(heading));
        }
        out.push_str("</tr>\n");
        HtmlTable { out, n_left }
    }

    fn row(&mut self, class: &str, cells: &[String]) {
        match class {
            "" => self.out.push_str("<tr>"),
            class => {
                let _ = write!(self.out, "<tr class=\"{class}\">");
            }
        }
        for (i, cell) in cells.iter().enumerate() {
            // Text at the end of a row is left-aligned too.
            let is_text = i < self.n_left || cell.chars().next().is_some_and(char::is_alphabetic);
            let class = if is_text { " class=\"l\"" } else { "" };
            let _ = write!(self.out, "<td{class}>{}</td>", escaped(cell));
        }
        self.out.push_str("</tr>\n");
    }

    fn end(mut self, out: &mut String) {
        self.out.push_str("</table></div>\n");
        out.push_str(&self.out);
    }
}

fn tables(document: &Document) -> String {
    let mut out = String::new();
    if let Some(unchanged) = &document.unchanged {
        let mut grid = HtmlTable::new(
            "What the change does",
            &["", "as it is", "changed", "ratio"],
            1,
        );
        for [name, before, after, ratio] in
            cells::compared(&unchanged.prediction, &document.prediction)
        {
            grid.row("", &[name, before, after, ratio]);
        }
        grid.end(&mut out);
    }
    for (title, pass) in passes(document) {
        programs(&mut out, &title, pass);
        parts(&mut out, pass, document.prediction.peak_flops_per_s);
    }
    launches(&mut out, document);
    if let Some(rows) = &document.without {
        let headings = [
            "",
            "first token ms",
            "",
            "a token ms",
            "",
            "moved MB",
            "dispatches",
            "memory MB",
            "what it is",
        ];
        let mut grid = HtmlTable::new("What each improvement buys", &headings, 1);
        cells::variant_cells(rows)
            .iter()
            .for_each(|cells| grid.row("", cells));
        grid.end(&mut out);
    }
    let memory = &document.prediction.memory;
    let title = format!("Memory, {} tokens cached", count(memory.n_cached));
    let mut grid = HtmlTable::new(&title, &["", "bytes"], 1);
    for (name, n) in cells::memory_rows(memory) {
        grid.row("", &[name.to_owned(), bytes(n)]);
    }
    grid.end(&mut out);
    if let Some(measured) = &document.measured {
        let title = "Measured on this computer, which simulates the NPU";
        let mut grid = HtmlTable::new(title, &["", "seconds"], 1);
        for (name, s) in [
            ("loading: plans, buffers, weights", measured.load_s),
            ("the prompt", measured.prompt_s),
            ("all tokens", measured.tokens_s),
        ] {
            grid.row("", &[name.to_owned(), format!("{s:.3}")]);
        }
        grid.end(&mut out);
    }
    out
}

fn programs(out: &mut String, title: &str, pass: &PassCost) {
    let headings = [
        "program",
        "calls",
        "launches",
        "ms a call",
        "BO write",
        "NPU run",
        "BO read",
        "call",
        "total ms",
        "%",
        "written MB",
        "read MB",
        "GFLOP/s",
        "% of peak",
    ];
    let mut grid = HtmlTable::new(title, &headings, 1);
    let total = pass.totals.total_ns / 1e6;
    for line in cells::lines(pass) {
        grid.row("", &program_cells(&line, total));
    }
    let t = &pass.totals;
    let mut sum = vec![
        "together".to_owned(),
        t.n_calls.to_string(),
        t.n_launches.to_string(),
    ];
    sum.extend([String::new()]);
    sum.extend([t.write_ns, t.run_ns, t.read_ns, t.call_ns, t.total_ns].map(|x| ms(x / 1e6)));
    sum.push("100".to_owned());
    sum.extend([t.crossing.written_bytes, t.crossing.read_bytes].map(|b| ms(b as f64 / 1e6)));
    let rate = [t.rate.flops_per_s / 1e9, 100.0 * t.rate.peak_share];
    sum.extend(cells::rate_cells(Some(rate)));
    grid.row("sum", &sum);
    grid.end(out);
    if let Some(energy) = &pass.energy {
        let energy = escaped(&energy.to_string());
        let _ = writeln!(
            out,
            "<p class=\"note\">Energy while the array runs: {energy}.</p>"
        );
    }
    out.push_str("<p class=\"note\">BO write, NPU run, BO read and call are milliseconds of one call; in the last line, of all. Rates of programs are over their NPU runs, of the last line over the pass.</p>\n");
}

/// Adds a table of the model's parts and their costs.
fn parts(out: &mut String, pass: &PassCost, peak: f64) {
    let mut grid = HtmlTable::new("By part of the model", &cells::PART_HEADINGS, 1);
    for cells in cells::part_rows(pass) {
        grid.row("", &cells);
    }
    grid.end(out);
    let work = escaped(&cells::work_text(&pass.totals, peak));
    let _ = writeln!(out, "<p class=\"note\">{work}.</p>");
}

fn program_cells(line: &PassLine, total_ms: f64) -> Vec<String> {
    let n = line.calls.max(1) as f64;
    let share = format!("{:.1}", 100.0 * line.total / total_ms);
    let name = match line.is_host {
        true => format!("host: {}", line.name),
        false => line.name.clone(),
    };
    let mut cells = vec![name, line.calls.to_string()];
    if line.is_host {
        cells.extend([String::new(), ms(line.total / n)]);
        cells.extend(std::iter::repeat_n(String::new(), 4));
        cells.extend([ms(line.total), share]);
        cells.extend(std::iter::repeat_n(String::new(), 4));
        return cells;
    }
    cells.extend([line.launches.to_string(), ms(line.total / n)]);
    cells.extend(line.parts.map(|part| ms(part / n)));
    cells.extend([ms(line.total), share]);
    cells.extend(line.bytes.map(|b| ms(b as f64 / 1e6)));
    cells.extend(cells::rate_cells(line.rate));
    cells
}

fn launches(out: &mut String, document: &Document) {
    let headings = [
        "program",
        "launch",
        "kernel",
        "shape",
        "ms",
        "load",
        "cores",
        "busy %",
        "read GB/s",
        "write GB/s",
        "bound by",
    ];
    let mut grid = HtmlTable::new("Launches", &headings, 4);
    for cells in cells::launch_rows(&document.prediction) {
        let class = if cells[0].is_empty() { "" } else { "first" };
        grid.row(class, &cells);
    }
    grid.end(out);
}
