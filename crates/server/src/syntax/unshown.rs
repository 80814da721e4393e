//! Call syntaxes that templates do not show.

use super::calls::{Arguments, CallSyntax};
use super::rows::NONE;

/// The syntaxes, by texts of the vocabulary or of the template.
pub(super) const BY_VOCABULARY: [(&str, CallSyntax); 3] = [
    (
        "<|tool_call_start|>",
        CallSyntax {
            name: "lfm 2",
            open: "<|tool_call_start|>[",
            middle: "(",
            after: ")",
            between: ", ",
            close: "]<|tool_call_end|>",
            arguments: Arguments::Python,
            ..NONE
        },
    ),
    (
        "<|python_start|>",
        CallSyntax {
            name: "llama, python",
            open: "[",
            middle: "(",
            after: ")",
            between: ", ",
            close: "]",
            arguments: Arguments::Python,
            is_bare: true,
            ..NONE
        },
    ),
    (
        "<|python_tag|>",
        CallSyntax {
            name: "llama, json",
            before: "{\"name\": \"",
            also_before: "{\"type\": \"function\", \"name\": \"",
            middle: "\", \"parameters\": ",
            after: "}",
            between: "; ",
            arguments: Arguments::Json(Some(("name", "parameters"))),
            is_bare: true,
            ..NONE
        },
    ),
];
