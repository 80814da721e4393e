//! `wordwrap`: Python's `textwrap.wrap` for each line.

use crate::chat::jinja::args::Args;
use crate::chat::jinja::chars::is_word;
use crate::chat::jinja::fault::{self, Res, TemplateFault};
use crate::chat::jinja::methods::lines;
use crate::chat::jinja::value::Value;

struct Wrap {
    width: usize,
    breaks_words: bool,
    breaks_on_hyphens: bool,
}

pub(super) fn filter(value: &Value, args: Args) -> Res<Value> {
    let names = [
        "width",
        "break_long_words",
        "wrapstring",
        "break_on_hyphens",
    ];
    let bound = args.bind("wordwrap", &names, 0, 0)?;
    let Value::Str(text) = value else {
        if value.is_undefined() {
            return Err(value.undefined_fault());
        }
        return Err(TemplateFault::type_error("wordwrap needs a string"));
    };
    let width = bound.int(0, 79)?;
    let between = bound.some_str(2)?.unwrap_or("\n");
    let wrap = Wrap {
        width: fault::width(width)?,
        breaks_words: bound.is_true(1, true),
        breaks_on_hyphens: bound.is_true(3, true),
    };
    let lines = lines(&text.text, false);
    if wrap.width == 0 && !lines.is_empty() {
        return Err(TemplateFault::value_error(format!(
            "invalid width {width} (must be > 0)"
        )));
    }
    fault::spend(text.text.len())?;
    let mut out = Vec::new();
    for line in lines {
        out.push(wrap.wrapped(line)?.join(between));
    }
    let n_between = out.len().saturating_mul(between.len());
    fault::text(text.text.len().saturating_add(n_between))?;
    Ok(Value::text(out.join(between), text.is_markup))
}

/// The spaces that separate words here.
fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c')
}

fn is_letter(c: char) -> bool {
    is_word(c) && !crate::chat::jinja::chars::is_decimal(c)
}

impl Wrap {
    fn wrapped(&self, line: &str) -> Res<Vec<String>> {
        let chars: Vec<char> = line.chars().collect();
        let mut chunks = self.chunks(&chars);
        chunks.reverse();
        let blank = |chunk: &[char]| chunk.iter().all(|c| c.is_whitespace());
        let mut out: Vec<String> = Vec::new();
        while let Some(next) = chunks.last() {
            fault::spend(1)?;
            if blank(next) && !out.is_empty() {
                chunks.pop();
            }
            let (mut line, mut n) = (Vec::new(), 0);
            while let Some(chunk) = chunks.last() {
                if n + chunk.len() > self.width {
                    break;
                }
                n += chunk.len();
                line.push(*chunk);
                chunks.pop();
            }
            if let Some(chunk) = chunks
                .last()
                .copied()
                .filter(|chunk| chunk.len() > self.width)
            {
                if self.breaks_words {
                    let end = self.break_at(chunk, self.width - n);
                    line.push(&chunk[..end]);
                    let last = chunks.len() - 1;
                    chunks[last] = &chunk[end..];
                } else if line.is_empty() {
                    line.push(chunk);
                    chunks.pop();
                }
            }
            if line.last().is_some_and(|last| blank(last)) {
                line.pop();
            }
            if !line.is_empty() {
                out.push(line.concat().into_iter().collect());
            }
        }
        Ok(out)
    }

    /// Where a word that fits no line is cut: after its last hyphen, else where the room ends.
    fn break_at(&self, word: &[char], room: usize) -> usize {
        let hyphen = word[..room].iter().rposition(|c| *c == '-');
        match hyphen.filter(|_| self.breaks_on_hyphens) {
            Some(at) if at > 0 && word[..at].iter().any(|c| *c != '-') => at + 1,
            _ => room,
        }
    }

    /// Words and the characters between them, in turn.
    fn chunks<'t>(&self, text: &'t [char]) -> Vec<&'t [char]> {
        let mut out = Vec::new();
        let mut start = 0;
        while start < text.len() {
            let is_space = is_blank(text[start]);
            let mut end = start + 1;
            while end < text.len() && is_blank(text[end]) == is_space {
                end += 1;
            }
            match is_space || !self.breaks_on_hyphens {
                true => out.push(&text[start..end]),
                false => self.parts_of_word(text, start, end, &mut out),
            }
            start = end;
        }
        out
    }

    /// A word cut behind hyphens between letters, and around dashes of several hyphens.
    fn parts_of_word<'t>(
        &self,
        text: &'t [char],
        start: usize,
        end: usize,
        out: &mut Vec<&'t [char]>,
    ) {
        let at = |i: usize| text.get(i).copied().filter(|_| i < end);
        let is_letter_at = |i: usize| at(i).is_some_and(is_letter);
        let before_dash = |i: usize| {
            i > 0
                && text
                    .get(i - 1)
                    .is_some_and(|c| is_word(*c) || "!\"'&.,?".contains(*c))
        };
        // The length of a dash with a word behind it.
        let dash = |i: usize| {
            let n = (i..end).take_while(|i| text[*i] == '-').count();
            (n >= 2 && at(i + n).is_some_and(is_word)).then_some(n)
        };
        let mut from = start;
        let mut i = start;
        while i < end {
            if let Some(n) = dash(i).filter(|_| before_dash(i)) {
                if i > from {
                    out.push(&text[from..i]);
                }
                out.push(&text[i..i + n]);
                (from, i) = (i + n, i + n);
                continue;
            }
            let is_after_letters = text[i] == '-'
                && i > from
                && i >= 2
                && is_letter(text[i - 1])
                && (is_letter(text[i - 2])
                    || (i >= 3 && text[i - 2] == '-' && is_letter(text[i - 3])));
            let is_before_letters = is_letter_at(i + 1)
                && (is_letter_at(i + 2) || (at(i + 2) == Some('-') && is_letter_at(i + 3)));
            if is_after_letters && is_before_letters {
                out.push(&text[from..=i]);
                from = i + 1;
            }
            i += 1;
        }
        if from < end {
            out.push(&text[from..end]);
        }
    }
}
