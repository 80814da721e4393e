//! Derives an unknown call syntax from a template.
//!
//! A conversation with two calls is rendered, and the texts around their names and arguments are the syntax. That
//! works if the arguments are a JSON object, as in most syntaxes.

use serde_json::{Value, json};

use super::calls::CallSyntax;

/// Names that no template contains.
pub(super) const NAMES: [&str; 2] = ["zqfirstcall", "zqsecondcall"];

/// The calls in the rendered conversation.
pub(super) fn calls() -> Value {
    let call = |name: &&str| {
        json!({"id": "call00001", "type": "function",
               "function": {"name": name, "arguments": {"zqkey": "zqvalue"}}})
    };
    NAMES.iter().map(call).collect()
}

/// The functions of those calls.
pub(super) fn functions() -> Value {
    let function = |name: &&str| {
        json!({"type": "function", "function": {"name": name, "description": "d", "parameters": {
            "type": "object", "properties": {"zqkey": {"type": "string", "description": "d"}}, "required": ["zqkey"],
        }}})
    };
    NAMES.iter().map(function).collect()
}

/// The part of a rendering after its common beginning with another.
pub(super) fn behind<'t>(without: &str, with: &'t str) -> &'t str {
    &with[common_start(with, without).len()..]
}

/// The syntax in a rendering `with` that ends with an answer of [those calls](calls); `without` is the rendering
/// before the answer. `without` must not include the beginning of an answer: a thought's tag there could share its
/// first characters with a call's.
pub(super) fn derived(without: &str, with: &str) -> Option<CallSyntax> {
    let answer = behind(without, with);
    let (first, second) = (answer.find(NAMES[0])?, answer.rfind(NAMES[1])?);
    let middle_of = |at: usize, name: &str| {
        let rest = &answer[at + name.len()..];
        let object = rest
            .find(['{', '\n'].as_slice())
            .and_then(|_| rest.find("{"))?;
        let end = object + rest[object..].find('}')? + 1;
        let value: Value = serde_json::from_str(&rest[object..end]).ok()?;
        (value == json!({"zqkey": "zqvalue"})).then(|| (&rest[..object], at + name.len() + end))
    };
    let (middle, first_end) = middle_of(first, NAMES[0])?;
    let (other_middle, second_end) = middle_of(second, NAMES[1])?;
    let between = answer.get(first_end..second)?;
    // The text before the second call also precedes the first; the text after the second also follows the first.
    let before_first = &answer[..first];
    let after_second = &answer[second_end..];
    let before = common_end(before_first, between);
    // The end of another tag may be equal by chance.
    let before = before
        .find(['<', '[', '{'])
        .map_or(before, |at| &before[at..]);
    let rest = &between[..between.len() - before.len()];
    let after = common_start(rest, after_second);
    let gap = &rest[after.len()..];
    let is_plain = middle == other_middle && before.trim().len() > 1 && gap.trim().is_empty();
    is_plain.then(|| CallSyntax::of_json([before.trim_start(), middle, after, gap]))
}

fn common_start<'t>(a: &'t str, b: &str) -> &'t str {
    let same = a.chars().zip(b.chars()).take_while(|(a, b)| a == b);
    &a[..same.map(|(c, _)| c.len_utf8()).sum()]
}

fn common_end<'t>(a: &str, b: &'t str) -> &'t str {
    let same = a.chars().rev().zip(b.chars().rev());
    let same = same.take_while(|(a, b)| a == b);
    &b[b.len() - same.map(|(c, _)| c.len_utf8()).sum::<usize>()..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_around_two_calls_is_the_way() {
        let arguments = "{\"zqkey\": \"zqvalue\"}";
        let call = |name: &str| format!("<fn>{name} :: {arguments}</fn>\n");
        let with = format!("[user]hi[bot]{}{}[end]", call(NAMES[0]), call(NAMES[1]));
        let found = derived("[user]hi[bot]", &with).unwrap();
        let expected = CallSyntax::of_json(["<fn>", " :: ", "</fn>\n", ""]);
        assert_eq!(found, expected);
        let call = |name: &str| format!("<｜call｜>{name}<｜sep｜>{arguments}<｜end｜>");
        let with = format!(
            "[user]hi[bot]<｜calls｜>{}{}<｜ends｜>",
            call(NAMES[0]),
            call(NAMES[1])
        );
        let found = derived("[user]hi[bot]", &with).unwrap();
        assert_eq!(
            found,
            CallSyntax::of_json(["<｜call｜>", "<｜sep｜>", "<｜end｜>", ""])
        );
        for with in [
            "[user]hi[bot]nothing",
            "[user]hi[bot]<fn>zqfirstcall {\"zqkey\": \"zqvalue\"}</fn>",
            "[user]hi[bot]zqfirstcall(zqkey=zqvalue)zqsecondcall(zqkey=zqvalue)",
        ] {
            assert_eq!(derived("[user]hi[bot]", with), None, "{with}");
        }
    }
}
