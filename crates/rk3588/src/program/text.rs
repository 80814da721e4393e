//! The text form of programs: a head, then jobs and tasks with the lines of
//! [`command::text`](crate::command::text).
//!
//! ```text
//! program ffn_up
//! matmul int8-int32 m=4 n=64 k=64
//! tiling rows=4 cols=64 depth=64 workers=1 order=columns job_tasks=8
//! job worker=0
//! task
//! cna.CONV_CON1
//! …
//! ```

use super::{CoreJob, Program};
use crate::command::text;
use crate::matmul::MatmulKind;
use crate::tiling::{Matmul, Order, Tiling};
use std::fmt::Write;

/// A line that is not part of a program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct ProgramTextError {
    /// Number of the line, from 1; one past the last where the text ends too early.
    pub line: usize,
    /// Description of the fault.
    pub problem: String,
}

impl Program {
    /// The text of the program.
    pub(crate) fn to_text(&self) -> String {
        let (shape, tiling) = (&self.shape, &self.tiling);
        let mut out = format!(
            "program {}\nmatmul {} m={} n={} k={}\ntiling rows={} cols={} depth={} workers={} \
             order={} job_tasks={}\n",
            self.name,
            shape.kind,
            shape.m,
            shape.n,
            shape.k,
            tiling.rows,
            tiling.cols,
            tiling.depth,
            tiling.workers,
            tiling.order.name(),
            tiling.job_tasks
        );
        for job in &self.jobs {
            // A String takes any text.
            let _ = writeln!(out, "job worker={}", job.worker);
            for task in &job.tasks {
                out.push_str("task\n");
                out.push_str(&text::print(task));
            }
        }
        out
    }

    /// The program of a text.
    ///
    /// # Errors
    /// [`ProgramTextError`]: the first line that does not belong, and why.
    pub(crate) fn from_text(source: &str) -> Result<Program, ProgramTextError> {
        let mut lines = Lines {
            lines: source.lines().enumerate(),
            line: 0,
        };
        let name = lines.head("program")?.to_owned();
        let shape = lines.head("matmul")?;
        let shape = matmul(shape).map_err(|problem| lines.error(problem))?;
        let tiling_text = lines.head("tiling")?;
        let tiling = tiling(tiling_text).map_err(|problem| lines.error(problem))?;
        let mut jobs: Vec<CoreJob> = Vec::new();
        while let Some(line) = lines.next() {
            let (first, rest) = line.split_once(' ').unwrap_or((line, ""));
            let result = match (first, jobs.last_mut()) {
                ("job", _) => keyed(rest, ["worker"]).map(|[worker]| {
                    jobs.push(CoreJob {
                        worker,
                        tasks: Vec::new(),
                    });
                }),
                ("task", Some(job)) if rest.is_empty() => {
                    job.tasks.push(Vec::new());
                    Ok(())
                }
                (_, Some(job)) => match job.tasks.last_mut() {
                    Some(task) => text::parse_line(line).map(|command| task.push(command)),
                    None => Err(format!("expected `task`, found `{line}`")),
                },
                _ => Err(format!("expected `job worker=…`, found `{line}`")),
            };
            result.map_err(|problem| lines.error(problem))?;
        }
        Ok(Program {
            name,
            shape,
            tiling,
            jobs,
        })
    }
}

struct Lines<'t> {
    lines: std::iter::Enumerate<std::str::Lines<'t>>,
    line: usize,
}

impl<'t> Lines<'t> {
    /// The next line with content.
    fn next(&mut self) -> Option<&'t str> {
        for (at, line) in self.lines.by_ref() {
            self.line = at + 1;
            let line = line.split('#').next().unwrap_or("").trim();
            if !line.is_empty() {
                return Some(line);
            }
        }
        self.line += 1;
        None
    }

    fn head(&mut self, word: &str) -> Result<&'t str, ProgramTextError> {
        let line = self.next().unwrap_or("");
        match line.split_once(' ') {
            Some((first, rest)) if first == word => Ok(rest.trim()),
            _ => Err(self.error(format!("expected `{word} …`, found `{line}`"))),
        }
    }

    fn error(&self, problem: String) -> ProgramTextError {
        ProgramTextError {
            line: self.line,
            problem,
        }
    }
}

/// Numbers `key=value` of exactly those keys in that order.
fn keyed<const N: usize>(text: &str, keys: [&str; N]) -> Result<[u32; N], String> {
    let mut words = text.split_whitespace();
    let mut values = [0; N];
    for (key, value) in keys.iter().zip(&mut values) {
        let word = words.next().unwrap_or("");
        let number = word.strip_prefix(key).and_then(|w| w.strip_prefix('='));
        *value = number
            .filter(|n| n.bytes().all(|b| b.is_ascii_digit()))
            .and_then(|n| n.parse().ok())
            .ok_or_else(|| format!("expected `{key}=` and a number, found `{word}`"))?;
    }
    match words.next() {
        Some(extra) => Err(format!("nothing follows, found `{extra}`")),
        None => Ok(values),
    }
}

fn matmul(text: &str) -> Result<Matmul, String> {
    let (kind, rest) = text.split_once(' ').unwrap_or((text, ""));
    let kind = MatmulKind::from_name(kind).ok_or_else(|| {
        let names = MatmulKind::ALL.map(MatmulKind::name).join(", ");
        format!("no kind is named `{kind}`; there are {names}")
    })?;
    let [m, n, k] = keyed(rest, ["m", "n", "k"])?;
    Ok(Matmul { kind, m, n, k })
}

fn tiling(text: &str) -> Result<Tiling, String> {
    let (sizes, rest) = (text.split_once(" order=")).ok_or("expected `order=`")?;
    let [rows, cols, depth, workers] = keyed(sizes, ["rows", "cols", "depth", "workers"])?;
    let (order, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    let order = Order::from_name(order)
        .ok_or_else(|| format!("order is `columns` or `rows`, found `{order}`"))?;
    let [job_tasks] = keyed(rest, ["job_tasks"])?;
    Ok(Tiling {
        rows,
        cols,
        depth,
        workers,
        order,
        job_tasks,
    })
}
