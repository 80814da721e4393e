use super::*;
use crate::program::{Flat, Op, Program, arbitrary};
use proptest::prelude::*;

/// The example of the module's documentation.
fn example() -> String {
    let source = include_str!("../text.rs");
    let body = source.split("//! ```text\n").nth(1).unwrap();
    let body = body.split("//! ```\n").next().unwrap();
    body.lines()
        .map(|line| {
            line.trim_start_matches("//!")
                .strip_prefix(' ')
                .unwrap_or("")
        })
        .fold(String::new(), |text, line| text + line + "\n")
}

#[test]
fn the_documented_example_is_the_printed_form() {
    let text = example();
    let program = parse(&text).unwrap();
    assert_eq!(program.launches[0].transfers.len(), 2);
    assert!(Flat::new(&program.launches[0]).is_ok());
    assert_eq!(print(&program), text);
    assert_eq!(text.parse::<Program>().unwrap(), program);
    assert_eq!(program.to_string(), text);
}

#[test]
fn what_may_be_left_out_and_how_it_may_be_written() {
    let text = r#"xdna2 1 // comment
        program p { slot "odd name": u8[] static launch l("odd name") { grid [] order sequential
        channel A: u8[4] from core(0..2, 3 - 2) to shim(i0 + 2*i0 - 3*i0) depth 1 link stream
        herd h at (0, 0) size (1, 1) { local b3: f32[1]
            call k[]("b3", b3, #0) constants [1, -0.5, 1e-5, 0x7fc00000]
            if -x + 4 < 0 { } else { b0 = new A put b0 } } } }"#;
    let program = parse(text).unwrap();
    let launch = &program.launches[0];
    assert_eq!(launch.channels[0].to, crate::program::expr::shim(0));
    let Op::Call { constants, .. } = &launch.herds[0].body[0] else {
        panic!("{program}")
    };
    let expected = [1.0f32, -0.5, 1e-5, f32::NAN].map(f32::to_bits);
    assert_eq!(constants[..], expected);
    assert_eq!(parse(&print(&program)).unwrap(), program);
}

#[test]
fn errors_say_where_and_what() {
    let head = "xdna2 1\nprogram p {\n  slot a: bf16[4] input\n";
    let cases = [
        (
            "",
            "line 1, column 1: expected `xdna2`, found the end of the text",
        ),
        (
            "xdna2 2",
            "line 1, column 7: version 2 of the text form; known is 1",
        ),
        (
            "xdna2 1 program p }",
            "line 1, column 19: expected `{`, found `}`",
        ),
        (
            "xdna2 1 program p {} x",
            "line 1, column 22: expected the end of the text, found `x`",
        ),
        (
            "xdna2 1 program \"p",
            "line 1, column 17: the string does not end on its line",
        ),
        (
            "xdna2 1 program \"\\q\"",
            "line 1, column 17: a backslash begins \\n, \\r, \\t, \\0, \\\\, \\\", \\' or \\u{…}",
        ),
        (
            "xdna2 1 é",
            "line 1, column 9: the character 'é' has no meaning here",
        ),
        (
            "@slot b: f64[1] input",
            "line 4, column 9: expected an element type (u8, i8, i16, bf16, i32, f32), found `f64`",
        ),
        (
            "@slot b: u8[99999999999999999999] input",
            "line 4, column 12: 99999999999999999999 is not a size, or too large for it",
        ),
        (
            "@slot b: u8[1] inout",
            "line 4, column 15: expected a role (static, input, intermediate, output), found `inout`",
        ),
        (
            "@launch l(b) {",
            "line 4, column 10: there is no slot \"b\" above",
        ),
        (
            "@slot a: u8[1] input launch l(a) {",
            "line 4, column 30: slot \"a\" is declared more than once: use #number",
        ),
        (
            "@launch l(a) { stage s at 0: u8[1] copies 1 { fill c walk 0 [1:1] }",
            "line 4, column 51: there is no channel \"c\" above",
        ),
        (
            "@launch l(a) { channel c: u8[4294967296]",
            "line 4, column 29: 4294967296 is not a size, or too large for it",
        ),
        (
            "@launch l(a) { channel c: u8[1] from shim(9223372036854775807 + 1)",
            "line 4, column 42: a number of this expression is too large",
        ),
        (
            "@launch l(a) { channel c: u8[1] from core(4..2, 0)",
            "line 4, column 42: a range is two numbers in order, such as 0..8",
        ),
        (
            "@launch l(a) { channel c: u8[1] from shim(0) to core(0, 0) depth 1\n  transfer a <- c walk 0 [1:1]",
            "line 5, column 14: `->` is for a channel that comes from a shim, `<-` for others",
        ),
        (
            "@launch l(a) { herd h at (0, 0) size (1, 1) { for l1 in 2 {",
            "line 4, column 50: expected `l0`, found `l1`",
        ),
        (
            "@launch l(a) { herd h at (0, 0) size (1, 1) { if x == 1 {",
            "line 4, column 54: expected `0`: values are compared with zero, found `1`",
        ),
        (
            "@launch l(a) { herd h at (0, 0) size (1, 1) { free b256",
            "line 4, column 51: expected a block (b0 … b255), found `b256`",
        ),
        (
            "@launch l(a) { herd h at (0, 0) size (1, 1) { call k[1]() constants [1e99]",
            "line 4, column 69: 1e99 is not an f32",
        ),
    ];
    let mut wrong = Vec::new();
    for (text, message) in cases {
        let error = parse(&text.replacen('@', head, 1)).unwrap_err().to_string();
        if error != message {
            wrong.push((error, message));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn depth_is_bounded() {
    let head = "xdna2 1 program p { launch l() { herd h at (0, 0) size (1, 1) {";
    let text = head.to_owned() + &"if x == 0 { ".repeat(1_000_000);
    let message = parse(&text).unwrap_err().message;
    assert_eq!(message, "more than 32 steps inside each other");
    let nested = |n: usize| head.to_owned() + &"if x == 0 {".repeat(n) + &"}".repeat(n + 3);
    let program = parse(&nested(crate::program::MAX_NESTING)).unwrap();
    assert!(program.flatten().is_ok());
    assert!(parse(&nested(crate::program::MAX_NESTING + 1)).is_err());
}

proptest! {
    #[test]
    fn what_is_printed_parses_back(program in arbitrary::program()) {
        let text = print(&program);
        match parse(&text) {
            Ok(back) => prop_assert_eq!(back, program),
            Err(error) => prop_assert!(false, "{}\n{}", error, text),
        }
    }

    #[test]
    fn nothing_panics(program in arbitrary::program(), edits in prop::collection::vec(
        (any::<prop::sample::Index>(), prop_oneof![
            Just(""), Just("{"), Just("}"), Just("["), Just("\""), Just("#9"), Just("-"),
            Just("9999999999999"), Just("i0"), Just("\\u{"), Just("é"), Just("b7"),
        ], 0usize..4), 1..6)) {
        let mut text: Vec<char> = print(&program).chars().collect();
        for (at, insert, delete) in edits {
            let at = at.index(text.len());
            let end = (at + delete).min(text.len());
            text.splice(at..end, insert.chars());
        }
        let text: String = text.into_iter().collect();
        if let Ok(program) = parse(&text) {
            // A text with another meaning still has one, and elaboration survives it.
            prop_assert_eq!(parse(&print(&program)).unwrap(), program.clone());
            let _ = program.flatten();
        }
    }

    #[test]
    fn elaboration_refuses_nonsense_without_panic(program in arbitrary::program()) {
        let _ = program.flatten();
    }

    #[test]
    fn any_text_is_refused_with_a_place(text in "\\PC{0,60}") {
        let error = parse(&text).unwrap_err();
        prop_assert!(error.line == 1 && error.column <= text.chars().count() + 1);
    }
}
