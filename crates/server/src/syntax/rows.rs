//! The known call syntaxes, one table row for each.

use super::calls::{Arguments, CallSyntax, Tags};
use super::functionary;

pub(super) const NONE: CallSyntax = CallSyntax {
    name: "",
    open: "",
    before: "",
    also_before: "",
    middle: "",
    after: "",
    between: "",
    close: "",
    arguments: Arguments::Json(None),
    is_bare: false,
    has_recipients: false,
    signs: &[],
    unlike: &[],
};

const fn tagged(
    key: &'static str,
    value: &'static str,
    json: &'static str,
    end: &'static str,
) -> Arguments {
    Arguments::Tagged(Tags {
        key,
        value,
        json,
        end,
        has_cdata: false,
    })
}

const HERMES: CallSyntax = CallSyntax {
    name: "hermes",
    before: "<tool_call>\n{\"name\": \"",
    middle: "\", \"arguments\": ",
    after: "}\n</tool_call>",
    between: "\n",
    arguments: Arguments::Json(Some(("name", "arguments"))),
    signs: &["<tool_call>"],
    ..NONE
};

/// The syntax explained to models whose template has none.
pub(crate) const GENERIC: CallSyntax = HERMES;

const fn objects(
    name: &'static str,
    open: &'static str,
    close: &'static str,
    signs: &'static [&'static str],
) -> CallSyntax {
    CallSyntax {
        name,
        open,
        before: "{\"name\": \"",
        middle: "\", \"arguments\": ",
        after: "}",
        between: ", ",
        close,
        arguments: Arguments::Json(Some(("name", "arguments"))),
        signs,
        ..NONE
    }
}

const fn dsml(
    name: &'static str,
    open: &'static str,
    close: &'static str,
    signs: &'static [&'static str],
) -> CallSyntax {
    CallSyntax {
        name,
        open,
        before: "<｜DSML｜invoke name=\"",
        middle: "\">\n",
        after: "</｜DSML｜invoke>\n",
        close,
        arguments: tagged(
            "<｜DSML｜parameter name=\"",
            "\" string=\"true\">",
            "\" string=\"false\">",
            "</｜DSML｜parameter>\n",
        ),
        signs,
        ..NONE
    }
}

const fn glm(
    name: &'static str,
    middle: &'static str,
    value: &'static str,
    end: &'static str,
    signs: &'static [&'static str],
) -> CallSyntax {
    CallSyntax {
        name,
        before: "<tool_call>",
        middle,
        after: "</tool_call>",
        between: "\n",
        arguments: tagged("<arg_key>", value, value, end),
        signs,
        ..NONE
    }
}

/// The prompt contains the mark of the first message.
pub(super) const FUNCTIONARY_3_2: CallSyntax = CallSyntax {
    name: "functionary 3.2",
    middle: "\n",
    between: functionary::MARK,
    arguments: Arguments::Functionary,
    signs: &functionary::SIGNS,
    ..NONE
};

pub(super) const N_ROWS: usize = 35;

/// The rows. The first one whose signs a template has is used.
pub(super) const ROWS: [CallSyntax; N_ROWS] = [
    CallSyntax {
        name: "harmony",
        arguments: Arguments::Harmony,
        signs: &["<|channel|>", "<|message|>", "<|start|>"],
        ..NONE
    },
    CallSyntax {
        name: "gemma 4",
        before: "<|tool_call>call:",
        middle: "{",
        after: "}<tool_call|>",
        arguments: Arguments::Gemma,
        signs: &["<|tool_call>call:"],
        ..NONE
    },
    CallSyntax {
        name: "mistral, name and arguments with an id",
        before: "[TOOL_CALLS]",
        middle: "[CALL_ID]⟨id⟩[ARGS]",
        signs: &["[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"],
        ..NONE
    },
    CallSyntax {
        name: "mistral, name and arguments",
        before: "[TOOL_CALLS]",
        middle: "[ARGS]",
        signs: &["[TOOL_CALLS]", "[ARGS]"],
        ..NONE
    },
    CallSyntax {
        after: ", \"id\": \"⟨id⟩\"}",
        ..objects("mistral, list", "[TOOL_CALLS][", "]", &["[TOOL_CALLS]"])
    },
    CallSyntax {
        name: "kimi k2",
        open: "<|tool_calls_section_begin|>",
        before: "<|tool_call_begin|>functions.",
        middle: ":⟨n⟩<|tool_call_argument_begin|>",
        after: "<|tool_call_end|>",
        close: "<|tool_calls_section_end|>",
        signs: &["<|tool_calls_section_begin|>"],
        ..NONE
    },
    CallSyntax {
        name: "kimi k3",
        open: "<|open|>tools<|sep|>",
        before: "<|open|>call tool=\"",
        middle: "\" index=\"⟨n⟩\"<|sep|>",
        after: "<|close|>call<|sep|>",
        close: "<|close|>tools<|sep|>",
        arguments: tagged(
            "<|open|>argument key=\"",
            "\" type=\"string\"<|sep|>",
            "\" type=\"⟨w⟩\"<|sep|>",
            "<|close|>argument<|sep|>",
        ),
        signs: &["<|open|>", "<|close|>", "<|sep|>"],
        ..NONE
    },
    CallSyntax {
        name: "deepseek v3.1",
        open: "<｜tool▁calls▁begin｜>",
        before: "<｜tool▁call▁begin｜>",
        middle: "<｜tool▁sep｜>",
        after: "<｜tool▁call▁end｜>",
        close: "<｜tool▁calls▁end｜>",
        signs: &["<｜tool▁calls▁begin｜>"],
        unlike: &["```json"],
        ..NONE
    },
    CallSyntax {
        name: "deepseek v3 and r1",
        open: "<｜tool▁calls▁begin｜>",
        before: "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
        middle: "\n```json\n",
        after: "\n```<｜tool▁call▁end｜>",
        between: "\n",
        close: "<｜tool▁calls▁end｜>",
        signs: &["<｜tool▁calls▁begin｜>"],
        ..NONE
    },
    dsml(
        "deepseek v3.2",
        "<｜DSML｜function_calls>\n",
        "</｜DSML｜function_calls>",
        &["｜DSML｜", "function_calls"],
    ),
    dsml(
        "deepseek v4",
        "<｜DSML｜tool_calls>\n",
        "</｜DSML｜tool_calls>",
        &["｜DSML｜", "tool_calls"],
    ),
    CallSyntax {
        name: "minimax m2",
        open: "<minimax:tool_call>\n",
        before: "<invoke name=\"",
        middle: "\">\n",
        after: "</invoke>\n",
        close: "</minimax:tool_call>",
        arguments: tagged("<parameter name=\"", "\">", "\">", "</parameter>\n"),
        signs: &["minimax:tool_call", "<invoke name="],
        ..NONE
    },
    CallSyntax {
        name: "minimax m3",
        open: "]<]minimax[>[<tool_call>\n",
        before: "]<]minimax[>[<invoke name=\"",
        middle: "\">",
        after: "]<]minimax[>[</invoke>\n",
        close: "]<]minimax[>[</tool_call>",
        arguments: Arguments::Elements("]<]minimax[>["),
        signs: &["]<]minimax[>[", "<tool_call>"],
        ..NONE
    },
    CallSyntax {
        name: "muse",
        open: "<atem:function_calls>\n",
        before: "<atem:invoke name=\"",
        middle: "\">\n",
        after: "</atem:invoke>\n",
        close: "</atem:function_calls>",
        arguments: tagged(
            "<atem:parameter name=\"",
            "\">",
            "\">",
            "</atem:parameter>\n",
        ),
        has_recipients: true,
        signs: &["<atem:function_calls>"],
        ..NONE
    },
    CallSyntax {
        between: "\n",
        ..objects(
            "minimax m1",
            "<tool_calls>\n",
            "\n</tool_calls>",
            &["<tool_calls>", "beginning_of_sentence"],
        )
    },
    objects(
        "apriel",
        "<tool_calls>[",
        "]</tool_calls>",
        &["<tool_calls>", "</tool_calls>"],
    ),
    objects(
        "nemotron v2",
        "<TOOLCALL>[",
        "]</TOOLCALL>",
        &["<TOOLCALL>"],
    ),
    objects(
        "phi 4",
        "<|tool_call|>[",
        "]<|/tool_call|>",
        &["<|tool|>", "<|/tool|>"],
    ),
    objects("granite 3", "<|tool_call|>[", "]", &["<|tool_call|>"]),
    CallSyntax {
        before: "<|function_call|>{\"name\": \"",
        between: "",
        ..objects("gigachat", "", "", &["<|function_call|>"])
    },
    CallSyntax {
        before: "<|message_sep|>\n\nfunction call<|role_sep|>\n{\"name\": \"",
        between: "",
        ..objects(
            "gigachat 3",
            "",
            "",
            &["<|message_sep|>", "<|role_sep|>", "function call"],
        )
    },
    objects("firefunction", "functools[", "]", &["functools["]),
    CallSyntax {
        before: "{\"tool_call_id\": \"⟨n⟩\", \"tool_name\": \"",
        middle: "\", \"parameters\": ",
        between: ",\n    ",
        arguments: Arguments::Json(Some(("tool_name", "parameters"))),
        ..objects(
            "command",
            "<|START_ACTION|>[\n    ",
            "\n]<|END_ACTION|>",
            &["<|START_ACTION|>"],
        )
    },
    CallSyntax {
        before: "{\n        \"tool_name\": \"",
        middle: "\",\n        \"parameters\": ",
        after: "\n    }",
        between: ",\n    ",
        arguments: Arguments::Json(Some(("tool_name", "parameters"))),
        ..objects(
            "command r",
            "Action: ```json\n[\n    ",
            "\n]```",
            &["Action:", "```json", "tool_name"],
        )
    },
    CallSyntax {
        name: "apertus",
        open: "<|tools_prefix|>[",
        before: "{\"",
        middle: "\": ",
        after: "}",
        between: ", ",
        close: "]<|tools_suffix|>",
        signs: &["<|tools_prefix|>"],
        ..NONE
    },
    CallSyntax {
        name: "solar",
        open: "<|tool_calls|>",
        before: "<|tool_call:begin|>⟨id⟩<|tool_call:name|>",
        middle: "<|tool_call:args|>",
        after: "<|tool_call:end|>",
        signs: &["<|tool_call:begin|>"],
        ..NONE
    },
    CallSyntax {
        name: "seed",
        before: "<seed:tool_call>\n<function=",
        middle: ">\n",
        after: "</function>\n</seed:tool_call>",
        between: "\n",
        arguments: tagged("<parameter=", ">", ">", "</parameter>\n"),
        signs: &["seed:tool_call"],
        ..NONE
    },
    CallSyntax {
        name: "qwen coder",
        before: "<tool_call>\n<function=",
        middle: ">\n",
        after: "</function>\n</tool_call>",
        between: "\n",
        arguments: tagged("<parameter=", ">\n", ">\n", "\n</parameter>\n"),
        signs: &["<tool_call>", "<function=", "<parameter="],
        ..NONE
    },
    CallSyntax {
        before: "<tool_call:opensource>",
        middle: "<tool_sep:opensource>\n",
        after: "</tool_call:opensource>\n",
        between: "",
        open: "<tool_calls:opensource>\n",
        close: "</tool_calls:opensource>",
        arguments: tagged(
            "<arg_key:opensource>",
            "</arg_key:opensource>\n<arg_value:opensource>",
            "</arg_key:opensource>\n<arg_value:opensource>",
            "</arg_value:opensource>\n",
        ),
        ..glm("hunyuan 3", "", "", "", &["<tool_sep{}>", ":opensource"])
    },
    CallSyntax {
        between: "",
        ..glm(
            "glm 4.7",
            "",
            "</arg_key><arg_value>",
            "</arg_value>",
            &["<tool_call>", "<arg_key>", "</arg_key><arg_value>"],
        )
    },
    glm(
        "glm",
        "\n",
        "</arg_key>\n<arg_value>",
        "</arg_value>\n",
        &["<tool_call>", "<arg_key>"],
    ),
    CallSyntax {
        name: "minicpm 5",
        before: "<function name=\"",
        middle: "\">",
        after: "</function>",
        between: "\n",
        arguments: Arguments::Tagged(Tags {
            key: "<param name=\"",
            value: "\">",
            json: "\">",
            end: "</param>",
            has_cdata: true,
        }),
        signs: &["<function name=\"", "<param name=\""],
        ..NONE
    },
    CallSyntax {
        name: "functionary",
        before: "<function=",
        middle: ">",
        after: "</function>",
        signs: &["<function=", "</function>"],
        ..NONE
    },
    FUNCTIONARY_3_2,
    HERMES,
];
