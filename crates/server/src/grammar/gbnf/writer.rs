//! Writes a grammar as Lark.

use super::Part;

/// Writes these rules as Lark.
pub(super) fn lark(rules: &[Part], root: usize) -> String {
    let recursive = recursive_rules(rules);
    let mut writer = LarkWriter {
        recursive: &recursive,
        nullable: nullable_rules(rules),
        lines: Vec::new(),
        n_parts: 0,
    };
    for (i, rule) in rules.iter().enumerate() {
        let line = match recursive[i] {
            true => format!("r{i}: {}", writer.recursive_part(rule)),
            false => format!("R{i}: {}", writer.regular(rule)),
        };
        writer.lines.push(line);
    }
    let start = writer.recursive_part(&Part::Rule(root));
    format!("start: {start}\n{}\n", writer.lines.join("\n"))
}

/// Collects the rules that a part names.
fn named(part: &Part, found: &mut Vec<usize>) {
    match part {
        Part::Text(_) | Part::Class(_) => {}
        Part::Rule(rule) => found.push(*rule),
        Part::Sequence(parts) | Part::Options(parts) => {
            parts.iter().for_each(|part| named(part, found));
        }
        Part::Repeat(part, ..) => named(part, found),
    }
}

/// Which rules are recursive, or lead to a recursive one.
fn recursive_rules(rules: &[Part]) -> Vec<bool> {
    let mut leads: Vec<Vec<usize>> = Vec::new();
    for rule in rules {
        let mut found = Vec::new();
        named(rule, &mut found);
        leads.push(found);
    }
    // A rule is regular once all rules that it names are.
    let mut is_regular = vec![false; rules.len()];
    loop {
        let more: Vec<usize> = (0..rules.len())
            .filter(|i| !is_regular[*i] && leads[*i].iter().all(|to| is_regular[*to]))
            .collect();
        if more.is_empty() {
            return is_regular.iter().map(|is| !is).collect();
        }
        more.into_iter().for_each(|i| is_regular[i] = true);
    }
}

/// Which rules match the empty text.
fn nullable_rules(rules: &[Part]) -> Vec<bool> {
    let mut nullable = vec![false; rules.len()];
    loop {
        let more = |i: &usize| !nullable[*i] && is_nullable(&rules[*i], &nullable);
        let more: Vec<usize> = (0..rules.len()).filter(more).collect();
        if more.is_empty() {
            return nullable;
        }
        more.into_iter().for_each(|i| nullable[i] = true);
    }
}

/// Whether a part matches the empty text, given which rules do.
fn is_nullable(part: &Part, rules: &[bool]) -> bool {
    match part {
        Part::Text(text) => text.is_empty(),
        Part::Class(_) => false,
        Part::Rule(rule) => rules[*rule],
        Part::Sequence(parts) => parts.iter().all(|part| is_nullable(part, rules)),
        Part::Options(parts) => parts.iter().any(|part| is_nullable(part, rules)),
        Part::Repeat(part, least, _) => *least == 0 || is_nullable(part, rules),
    }
}

/// Writer of Lark.
struct LarkWriter<'a> {
    recursive: &'a [bool],
    nullable: Vec<bool>,
    lines: Vec<String>,
    /// Number of terminals for parts of rules.
    n_parts: usize,
}

impl LarkWriter<'_> {
    fn is_regular(&self, part: &Part) -> bool {
        let mut found = Vec::new();
        named(part, &mut found);
        found.iter().all(|rule| !self.recursive[*rule])
    }

    /// The body of a terminal.
    fn regular(&self, part: &Part) -> String {
        match part {
            Part::Text(text) => quoted(text),
            Part::Class(class) => format!("/{class}/"),
            Part::Rule(rule) => format!("R{rule}"),
            Part::Sequence(parts) if parts.is_empty() => quoted(""),
            Part::Sequence(parts) => joined(parts, " ", |part| self.regular(part)),
            Part::Options(parts) => joined(parts, " | ", |part| self.regular(part)),
            Part::Repeat(part, least, most) => repeated(&self.regular(part), *least, *most),
        }
    }

    /// The body of a rule: its regular parts become separate terminals.
    fn recursive_part(&mut self, part: &Part) -> String {
        if self.is_regular(part) {
            return self.terminal(part);
        }
        match part {
            Part::Rule(rule) => format!("r{rule}"),
            Part::Sequence(parts) => {
                let runs = parts.chunk_by(|a, b| self.is_regular(a) && self.is_regular(b));
                let runs: Vec<Part> = runs
                    .map(|run| match run {
                        [one] => one.clone(),
                        more => Part::Sequence(more.to_vec()),
                    })
                    .collect();
                let written: Vec<String> =
                    runs.iter().map(|run| self.recursive_part(run)).collect();
                format!("({})", written.join(" "))
            }
            Part::Options(parts) => {
                let written: Vec<String> =
                    parts.iter().map(|part| self.recursive_part(part)).collect();
                format!("({})", written.join(" | "))
            }
            Part::Repeat(part, least, most) => {
                let body = self.recursive_part(part);
                repeated(&body, *least, *most)
            }
            Part::Text(_) | Part::Class(_) => self.terminal(part),
        }
    }

    /// A terminal for a part. No terminal may match the empty text: it becomes optional instead.
    fn terminal(&mut self, part: &Part) -> String {
        let (name, body) = (format!("P{}", self.n_parts), self.regular(part));
        self.n_parts += 1;
        match is_nullable(part, &self.nullable) {
            true => {
                self.lines.push(format!("{name}: /(?s:.+)/ & ({body})"));
                format!("{name}?")
            }
            false => {
                self.lines.push(format!("{name}: {body}"));
                name
            }
        }
    }
}

fn joined(parts: &[Part], by: &str, write: impl Fn(&Part) -> String) -> String {
    let written: Vec<String> = parts.iter().map(write).collect();
    format!("({})", written.join(by))
}

fn repeated(body: &str, least: u32, most: Option<u32>) -> String {
    match (least, most) {
        (0, None) => format!("({body})*"),
        (1, None) => format!("({body})+"),
        (0, Some(1)) => format!("({body})?"),
        (least, Some(most)) => format!("({body}){{{least},{most}}}"),
        (least, None) => format!("({body}){{{least},}}"),
    }
}

/// JSON strings are valid Lark strings.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
