//! Layout of the text after a help page, so that its author need not count columns.

/// Width of a help page in columns; a narrower terminal wraps it once more.
pub(super) const WIDTH: usize = 100;
/// A longer example has its description on the line below.
const MAX_COLUMN: usize = 60;
/// Descriptions wrap beside a column up to this width, and below a wider one.
const MAX_HANGING: usize = 30;
/// Indent of a description on its own line.
const BELOW: usize = 6;

/// Returns the text with each paragraph on one line, for clap to wrap, and with its lists in two columns. A list item
/// begins with two spaces; two or more spaces separate it from its description. A line with a deeper indent continues
/// the line before.
pub(super) fn laid_out(text: &str) -> String {
    let blocks = text.split("\n\n").map(block);
    blocks.collect::<Vec<_>>().join("\n\n")
}

/// Lays out consecutive lines without a blank line between them.
fn block(text: &str) -> String {
    let lines = items(text);
    let column = lines
        .iter()
        .filter(|(item, about)| is_item(item) && !about.is_empty())
        .map(|(item, _)| width(item))
        .filter(|width| *width <= MAX_COLUMN)
        .max();
    let column = column.unwrap_or(0) + 2;
    let lines = lines
        .iter()
        .map(|(item, about)| in_columns(item, about, column));
    lines.collect::<Vec<_>>().join("\n")
}

/// Headings, paragraphs and list items, each with its description.
fn items(text: &str) -> Vec<(String, String)> {
    let mut items: Vec<(String, String)> = Vec::new();
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        match (indent, items.last_mut()) {
            (0, Some((last, about)))
                if about.is_empty() && !is_item(last) && !last.ends_with(':') =>
            {
                last.push(' ');
                last.push_str(line);
            }
            (3.., Some((last, about))) if is_item(last) => {
                if !about.is_empty() {
                    about.push(' ');
                }
                about.push_str(line.trim_start());
            }
            (1.., _) => {
                let (item, about) = line.trim().split_once("  ").unwrap_or((line.trim(), ""));
                items.push((format!("  {item}"), about.trim_start().to_owned()));
            }
            _ => items.push((line.to_owned(), String::new())),
        }
    }
    items
}

fn is_item(line: &str) -> bool {
    line.starts_with("  ")
}

fn in_columns(item: &str, about: &str, column: usize) -> String {
    if about.is_empty() {
        return item.to_owned();
    }
    let (first, indent) = match width(item) + 2 <= column {
        true if column <= MAX_HANGING || column + width(about) <= WIDTH => {
            let blanks = column - width(item);
            (format!("{item}{:blanks$}", ""), column)
        }
        _ => (format!("{item}\n{:BELOW$}", ""), BELOW),
    };
    let lines = wrapped(about, WIDTH - indent);
    let between = format!("\n{:indent$}", "");
    format!("{first}{}", lines.join(&between))
}

/// Wraps a text into lines of at most `columns` columns, unless a word is longer. There is at least one line.
pub(crate) fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.last_mut().expect("there is a line");
        if !last.is_empty() && width(last) + 1 + width(word) > columns {
            lines.push(word.to_owned());
            continue;
        }
        if !last.is_empty() {
            last.push(' ');
        }
        last.push_str(word);
    }
    lines
}

fn width(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_two_columns_and_paragraphs_one_line() {
        let text = "Examples:\n  millrace a    does a\n  millrace bcd 1  does b\n\nA paragraph\nof two lines.";
        let expected = "Examples:\n  millrace a      does a\n  millrace bcd 1  does b\n\nA paragraph of two lines.";
        assert_eq!(laid_out(text), expected);
    }

    #[test]
    fn what_is_too_long_goes_below_or_hangs() {
        let long = "word ".repeat(19) + "end";
        let beside = laid_out(&format!("Codes:\n  2  {long}"));
        assert_eq!(
            beside,
            format!("Codes:\n  2  {}\n     end", "word ".repeat(19).trim())
        );
        let command = "c".repeat(50);
        let below = laid_out(&format!("  {command}  {long}\n  short  a"));
        let expected = format!(
            "  {command}\n      {}\n      end\n  short{:47}a",
            "word ".repeat(19).trim(),
            ""
        );
        assert_eq!(below, expected);
    }

    #[test]
    fn a_line_goes_on_with_the_one_before() {
        let text = "  curl a\n    b c\n  d    is\n       long";
        assert_eq!(laid_out(text), "  curl a  b c\n  d       is long");
    }
}
