use std::sync::OnceLock;

use super::*;
use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::ApproximateTokEnv;
use llguidance::{Matcher, ParserFactory};

/// Whether a grammar accepts a text, byte by byte.
fn accepts(grammar: &str, text: &str) -> bool {
    let lark = to_lark(grammar).unwrap();
    static PARSERS: OnceLock<ParserFactory> = OnceLock::new();
    let parsers = PARSERS
        .get_or_init(|| ParserFactory::new_simple(&ApproximateTokEnv::single_byte_env()).unwrap());
    let parser = parsers.create_parser(TopLevelGrammar::from_lark(lark.clone()));
    let mut matcher = Matcher::new(parser);
    for byte in text.bytes() {
        let mask = matcher
            .compute_mask_or_eos()
            .unwrap_or_else(|error| panic!("{error}: {lark}"));
        if !mask.is_allowed(u32::from(byte)) || matcher.consume_token(u32::from(byte)).is_err() {
            return false;
        }
    }
    matcher.is_accepting().unwrap_or(false)
}

const JSON: &str = r#"
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws
array  ::=
  "[" ws (
            value
    ("," ws value)*
  )? "]" ws
string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
# Optional space
ws ::= | " " | "\n" [ \t]{0,20}
"#;

/// Grammars, with texts that they accept and texts that they reject.
const TEXTS: [(&str, &[&str], &[&str]); 11] = [
    (
        "root ::= \"yes\" | \"no\"",
        &["yes", "no"],
        &["", "ye", "yesno"],
    ),
    (
        "root ::= [a-c]+ \"-\"? [^a-z]",
        &["abc1", "a-1", "b-ß"],
        &["a", "a-b", "d1"],
    ),
    // A case in which a greedy lexer would read too far.
    (
        "root ::= (\"a\" | \"ab\") \"bc\"",
        &["abc", "abbc"],
        &["ab", "abb"],
    ),
    (
        "root ::= x x\nx ::= \"a\"{1,2}",
        &["aa", "aaa", "aaaa"],
        &["a", "aaaaa"],
    ),
    (
        "root ::= \"a\"{2} \"b\"{1,} \"c\"{,2}",
        &["aab", "aabbcc"],
        &["ab", "aac", "aabccc"],
    ),
    ("root ::= \"\" | \"x\"", &["", "x"], &["y"]),
    ("root ::= .", &["ä", "\n"], &["", "ab"]),
    (
        "root ::= \"\\x41\\u00e4\\U0001F600\\n\"",
        &["Aä😀\n"],
        &["A"],
    ),
    (
        "root ::= \"(\" root? \")\"",
        &["()", "((()))"],
        &["", "(", "())"],
    ),
    (
        "root ::= list\nlist ::= item (\",\" list)?\nitem ::= [0-9]* \"x\"",
        &["x", "1x,22x,x"],
        &["", "1", "x,"],
    ),
    (
        JSON,
        &[
            "{}",
            "{\"a\":[1,-2.5e3,true,{\"b\":\"\\u00ff\"}]}",
            "{ \"a\": null }",
        ],
        &["[]", "{\"a\":01}", "{\"a\":1,}", "{\"a\" 1}", "{\"\\x\":1}"],
    ),
];

#[test]
fn texts_are_those_of_the_grammar() {
    for (grammar, members, others) in TEXTS {
        for text in members {
            assert!(
                accepts(grammar, text),
                "{text:?} is of {grammar}: {}",
                to_lark(grammar).unwrap()
            );
        }
        for text in others {
            assert!(!accepts(grammar, text), "{text:?} is not of {grammar}");
        }
    }
}

#[test]
fn what_is_wrong_is_named_with_its_line() {
    for (grammar, expected) in [
        (
            "x ::= \"a\"",
            "line 1 of the grammar: there is no rule `root`",
        ),
        (
            "root ::= \"a\" |\n  y",
            "line 2 of the grammar: there is no rule `y`",
        ),
        ("root ::= \"a", "a text has no end"),
        ("root ::= [a", "a class of characters has no end"),
        ("root ::= [z-a]", "a range of characters ends before"),
        ("root ::= (\"a\"", "expected )"),
        ("root ::= \"a\"{3,2}", "expected {m}, {m,} or {m,n}"),
        ("root ::= \"a\"{99999}", "expected {m}, {m,} or {m,n}"),
        ("root ::= \"\\q\"", "there is no escape \\q"),
        ("root ::= <think>", "tokens (`<…>`) are not supported"),
        ("root = \"a\"", "expected ::= behind `root`"),
        ("root ::= \"a\" )", "`)` is not expected here"),
        ("root ::= \"\\uD800\"", "hexadecimal digits of a character"),
    ] {
        let error = to_lark(grammar).unwrap_err().to_string();
        assert!(error.contains(expected), "{grammar}: {error}");
    }
    let deep = format!("root ::= {}\"a\"{}", "(".repeat(100), ")".repeat(100));
    assert!(to_lark(&deep).unwrap_err().to_string().contains("nest"));
}

#[test]
fn gbnf_and_lark_are_told_apart() {
    assert!(is_gbnf(JSON));
    assert!(is_gbnf("root ::= x"));
    for lark in ["start: \"a::=b\"", "start: /x/", "# a ::= b\nstart: \"x\""] {
        assert!(!is_gbnf(lark), "{lark}");
    }
}
