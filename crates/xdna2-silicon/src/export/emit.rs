//! Lines of a program with numbered values and constants.

use std::collections::BTreeSet;
use std::fmt::Write;

/// A program's text while it grows.
#[derive(Debug, Default)]
pub(super) struct ProgramLines {
    text: String,
    /// Memory that the program allocates: lines before all others, so that no loop allocates it again.
    memory: String,
    /// Scopes around the next line.
    depth: usize,
    n_values: usize,
    /// Constants that are used, with their types.
    constants: BTreeSet<(i64, &'static str)>,
}

impl ProgramLines {
    pub(super) fn line(&mut self, line: &str) {
        let width = 6 + self.depth * 2;
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "{:width$}{line}", "");
    }

    fn new_name(&mut self) -> String {
        self.n_values += 1;
        format!("%v{}", self.n_values - 1)
    }

    /// Writes a line that defines a value; returns the value's name.
    pub(super) fn value(&mut self, op: &str) -> String {
        let name = self.new_name();
        self.line(&format!("{name} = {op}"));
        name
    }

    /// Memory of the program's own, of a memref's type.
    pub(super) fn memory(&mut self, of: &str) -> String {
        let name = self.new_name();
        let alignment = "{alignment = 64 : i64}";
        let _ = writeln!(
            self.memory,
            "      {name} = memref.alloca() {alignment} : {of}"
        );
        name
    }

    /// A constant's name, of type `index` or `i32`.
    pub(super) fn constant(&mut self, value: i64, of: &'static str) -> String {
        self.constants.insert((value, of));
        constant_name(value, of)
    }

    /// Begins a loop from 0; its variable.
    pub(super) fn begin_loop(&mut self, count: &str, step: i64) -> String {
        let (zero, step) = (self.constant(0, "index"), self.constant(step, "index"));
        let name = self.new_name();
        self.open(&format!(
            "scf.for {name} = {zero} to {count} step {step} {{"
        ));
        name
    }

    /// A line that begins a scope.
    pub(super) fn open(&mut self, line: &str) {
        self.line(line);
        self.depth += 1;
    }

    /// A line that ends a scope.
    pub(super) fn close(&mut self, line: &str) {
        self.depth -= 1;
        self.line(line);
    }

    /// Goes from one branch of a condition to the other.
    pub(super) fn otherwise(&mut self) {
        self.close("} else {");
        self.depth += 1;
    }

    /// Constants and memory, then all lines.
    pub(super) fn finish(self) -> String {
        let mut text = String::new();
        for (value, of) in &self.constants {
            let name = constant_name(*value, of);
            let _ = writeln!(text, "      {name} = arith.constant {value} : {of}");
        }
        text + &self.memory + &self.text
    }
}

fn constant_name(value: i64, of: &str) -> String {
    let sign = if value < 0 { "m" } else { "" };
    let kind = if of == "i32" { "i" } else { "k" };
    format!("%{kind}{sign}{}", value.unsigned_abs())
}
