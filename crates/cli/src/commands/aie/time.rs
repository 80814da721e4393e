//! `millrace aie time`: the modelled time of a design and its bottleneck.

use super::{DataArgs, arguments, check, end, options, read, refused, report_json};
use crate::exit::{CommandFailure, CommandResult};
use crate::output::{Align, Out, TextTable, Ui, printable};
use crate::progress::ProgressDisplay;
use crate::prompt::read_file;
use millrace_aie::{Design, DesignTime, RunReport, TimeModel, Trace};
use millrace_format::output::AtomicFile;
use serde_json::json;
use std::path::Path;

/// Maximum number of actors to list.
const LISTED: usize = 8;

#[derive(clap::Args, Debug)]
pub(super) struct TimeArgs {
    #[command(flatten)]
    data: DataArgs,
    /// Profile with the constants: a name, or a TOML file
    #[arg(long, value_name = "NAME|FILE")]
    profile: Option<String>,
}

/// Runs a design once and prints its modelled time.
pub(super) fn time(args: &TimeArgs, ui: Ui) -> CommandResult {
    let design = read(&args.data.of)?;
    let (report, found) = timed(&args.data, &design, args.profile.as_deref(), ui)?;
    if let Some(folder) = &args.data.output {
        super::write_outputs(folder, &report)?;
    }
    let mut out = Out::new();
    if args.data.of.json {
        let mut all = report_json(&design, &report);
        all["time"] = found.as_ref().map_or(serde_json::Value::Null, time_json);
        out.json(&all)?;
    } else {
        out.line(printable(&design.summary()))?;
        for name in &report.unknown_kernels {
            out.line(format!("  @{name} is not known: its time is not counted"))?;
        }
        match &found {
            Some(found) => print_time(found, &mut out)?,
            None => super::print_verdict(&report, &mut out)?,
        }
    }
    out.flush()?;
    end(&report)
}

/// Runs a design and models its time; writes the trace if one is asked for.
pub(super) fn timed(
    args: &DataArgs,
    design: &Design,
    profile: Option<&str>,
    ui: Ui,
) -> CommandResult<(RunReport, Option<DesignTime>)> {
    let path = &args.of.design;
    let footprint = check(path, design)?;
    let bytes = arguments(args, design, &footprint)?;
    let model = model(profile)?;
    let (report, found) = {
        let _progress = ProgressDisplay::spinner(ui, "running");
        let timed = millrace_aie::time(design, &bytes, options(args), &model);
        timed.map_err(|error| refused(path, &error))?
    };
    if let (Some(path), Some(found)) = (&args.trace, &found) {
        write_trace(path, &found.trace)?;
    }
    Ok((report, found))
}

fn model(profile: Option<&str>) -> CommandResult<TimeModel> {
    match profile {
        Some(name) if Path::new(name).extension().is_some_and(|end| end == "toml") => {
            let text = read_file(Path::new(name))?;
            TimeModel::from_toml(&text, name).map_err(CommandFailure::bad_input)
        }
        name => TimeModel::named(name).map_err(CommandFailure::usage),
    }
}

fn write_trace(path: &Path, trace: &Trace) -> CommandResult {
    let failed = |error| CommandFailure::io(format!("cannot write {}", path.display()), &error);
    let mut file = AtomicFile::create(path).map_err(|error| CommandFailure::writing(&error))?;
    trace.write_chrome(&mut file).map_err(failed)?;
    file.commit()
        .map_err(|error| CommandFailure::writing(&error))
}

fn time_json(found: &DesignTime) -> serde_json::Value {
    let actors = found.actors.iter();
    let actors = actors.map(|actor| json!({ "name": actor.name, "busy_ns": actor.busy_ns }));
    json!({
        "total_ns": found.total_ns,
        "call_ns": found.call_ns,
        "profile": found.profile,
        "measured": false,
        "ddr_read_bytes": found.ddr_bytes[0],
        "ddr_written_bytes": found.ddr_bytes[1],
        "actors": actors.collect::<Vec<_>>(),
    })
}

fn print_time(found: &DesignTime, out: &mut Out) -> CommandResult {
    let us = |ns: f64| format!("{:.2}", ns / 1e3);
    out.line(format!(
        "{} us, modelled by {}, never measured on hardware; a call of the host adds {} us",
        us(found.total_ns),
        found.profile,
        us(found.call_ns)
    ))?;
    let [read, written] = found.ddr_bytes;
    out.line(format!("{read} bytes are read, {written} bytes written"))?;
    if let Some(first) = found.actors.first() {
        out.line(format!("what works longest: {}", first.name))?;
    }
    let mut table = TextTable::new(&[
        ("who", Align::Left),
        ("us at work", Align::Right),
        ("%", Align::Right),
    ]);
    let working = found.actors.iter().filter(|actor| actor.busy_ns > 0.0);
    for actor in working.take(LISTED) {
        let share = actor.busy_ns / found.total_ns.max(f64::MIN_POSITIVE) * 100.0;
        table.row(vec![
            actor.name.clone(),
            us(actor.busy_ns),
            format!("{share:.0}"),
        ]);
    }
    table.print(out)
}
