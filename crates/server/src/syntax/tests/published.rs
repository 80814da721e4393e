//! Calls as written by the templates of published models, and the recognition of their syntaxes.

use super::*;
use crate::syntax::by_template;

/// A call of `weather` with a city and days, by the syntax's name. Mistral and Cohere have several versions.
const CALLS: [(&str, &str); 44] = [
    (
        "hermes",
        "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\", \"days\": 3}}\n</tool_call>",
    ),
    (
        "hermes",
        "<tool_call>{\"arguments\":{\"city\":\"Rome\",\"days\":3},\"name\":\"weather\"}</tool_call>",
    ),
    (
        "harmony",
        "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{\"city\": \"Rome\", \"days\": 3}",
    ),
    (
        "harmony",
        " to=functions.weather<|channel|>commentary json<|message|>{\"city\":\"Rome\",\"days\":3}",
    ),
    (
        "gemma 4",
        "<|tool_call>call:weather{city:<|\"|>Rome<|\"|>,days:3}<tool_call|>",
    ),
    (
        "mistral, name and arguments with an id",
        "[TOOL_CALLS]weather[CALL_ID]call00001[ARGS]{\"city\": \"Rome\", \"days\": 3}",
    ),
    (
        "mistral, name and arguments",
        "[TOOL_CALLS]weather[ARGS]{\"city\": \"Rome\", \"days\": 3}",
    ),
    (
        "mistral, list",
        "[TOOL_CALLS][{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\", \"days\": 3}, \"id\": \"call00001\"}]",
    ),
    (
        "kimi k2",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>\
         {\"city\": \"Rome\", \"days\": 3}<|tool_call_end|><|tool_calls_section_end|>",
    ),
    (
        "kimi k3",
        "<|open|>tools<|sep|><|open|>call tool=\"weather\" index=\"1\"<|sep|><|open|>argument key=\"city\" type=\"string\"<|sep|>\
         Rome<|close|>argument<|sep|><|open|>argument key=\"days\" type=\"number\"<|sep|>3<|close|>argument<|sep|>\
         <|close|>call<|sep|><|close|>tools<|sep|>",
    ),
    (
        "deepseek v3.1",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{\"city\": \"Rome\", \"days\": 3}\
         <｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    ),
    (
        "deepseek v3 and r1",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{\"city\": \"Rome\", \"days\": 3}\n```\
         <｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    ),
    (
        "deepseek v3.2",
        "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"weather\">\n<｜DSML｜parameter name=\"city\" string=\"true\">Rome\
         </｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\" string=\"false\">3</｜DSML｜parameter>\n</｜DSML｜invoke>\n\
         </｜DSML｜function_calls>",
    ),
    (
        "deepseek v4",
        "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"weather\">\n<｜DSML｜parameter name=\"city\" string=\"true\">Rome\
         </｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\" string=\"false\">3</｜DSML｜parameter>\n</｜DSML｜invoke>\n\
         </｜DSML｜tool_calls>",
    ),
    (
        "minimax m2",
        "<minimax:tool_call>\n<invoke name=\"weather\">\n<parameter name=\"city\">Rome</parameter>\n\
         <parameter name=\"days\">3</parameter>\n</invoke>\n</minimax:tool_call>",
    ),
    (
        "minimax m1",
        "<tool_calls>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\", \"days\": 3}}\n</tool_calls>",
    ),
    (
        "apriel",
        "<tool_calls>[{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\", \"days\": 3}}]</tool_calls>",
    ),
    (
        "nemotron v2",
        "<TOOLCALL>[{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\", \"days\": 3}}]</TOOLCALL>",
    ),
    (
        "phi 4",
        "<|tool_call|>[{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\", \"days\": 3}}]<|/tool_call|>",
    ),
    (
        "granite 3",
        "<|tool_call|>[{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\", \"days\": 3}}]",
    ),
    (
        "command",
        "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"weather\", \"parameters\": {\"city\": \"Rome\", \"days\": 3}}\n]\
         <|END_ACTION|>",
    ),
    (
        "apertus",
        "<|tools_prefix|>[{\"weather\": {\"city\": \"Rome\", \"days\": 3}}]<|tools_suffix|>",
    ),
    (
        "seed",
        "<seed:tool_call>\n<function=weather>\n<parameter=city>Rome</parameter>\n<parameter=days>3</parameter>\n</function>\n\
         </seed:tool_call>",
    ),
    (
        "qwen coder",
        "<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n\
         </tool_call>",
    ),
    (
        "glm",
        "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n<arg_key>days</arg_key>\n\
         <arg_value>3</arg_value>\n</tool_call>",
    ),
    (
        "glm 4.7",
        "<tool_call>weather<arg_key>city</arg_key><arg_value>Rome</arg_value><arg_key>days</arg_key><arg_value>3</arg_value>\
         </tool_call>",
    ),
    (
        "minicpm 5",
        "<function name=\"weather\"><param name=\"city\">Rome</param><param name=\"days\">3</param></function>",
    ),
    (
        "functionary",
        "<function=weather>{\"city\": \"Rome\", \"days\": 3}</function>",
    ),
    (
        "functionary 3.2",
        "weather\n{\"city\": \"Rome\", \"days\": 3}",
    ),
    (
        "functionary 3.2",
        ">>>weather\n{\"city\": \"Rome\", \"days\": 3}",
    ),
    (
        "lfm 2",
        "<|tool_call_start|>[weather(city='Rome', days=3)]<|tool_call_end|>",
    ),
    (
        "llama, json",
        "{\"name\": \"weather\", \"parameters\": {\"city\": \"Rome\", \"days\": 3}}",
    ),
    (
        "llama, json",
        "{\"type\": \"function\", \"name\": \"weather\", \"parameters\": {\"city\": \"Rome\", \"days\": 3}}",
    ),
    ("llama, python", "[weather(city=\"Rome\", days=3)]"),
    (
        "command r",
        "Action:\n```json\n[\n    {\n        \"tool_name\": \"weather\",\n        \"parameters\": {\n            \"city\": \"Rome\",\n            \
         \"days\": 3\n        }\n    }\n]```",
    ),
    (
        "hunyuan 3",
        "<tool_calls:opensource>\n<tool_call:opensource>weather<tool_sep:opensource>\n<arg_key:opensource>city</arg_key:opensource>\n\
         <arg_value:opensource>Rome</arg_value:opensource>\n<arg_key:opensource>days</arg_key:opensource>\n\
         <arg_value:opensource>3</arg_value:opensource>\n</tool_call:opensource>\n</tool_calls:opensource>",
    ),
    (
        "solar",
        "<|tool_calls|><|tool_call:begin|>call00001<|tool_call:name|>weather<|tool_call:args|>{\"city\": \"Rome\", \"days\": 3}\
         <|tool_call:end|>",
    ),
    (
        "gigachat",
        "<|function_call|>{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\", \"days\": 3}}",
    ),
    (
        "firefunction",
        "functools[{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\", \"days\": 3}}]",
    ),
    (
        "gigachat 3",
        "<|message_sep|>\n\nfunction call<|role_sep|>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\", \"days\": 3}}",
    ),
    (
        "minimax m3",
        "]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name=\"weather\">]<]minimax[>[<city>Rome]<]minimax[>[</city>]<]minimax[>[<days>3\
         ]<]minimax[>[</days>]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>",
    ),
    (
        "minicpm 5",
        "<function name=\"weather\"><param name=\"city\"><![CDATA[Rome]]></param><param name=\"days\">3</param></function>",
    ),
    (
        "hermes",
        "<tool_call>\n{\"name\": \"weather\", \"arguments\": \"{\\\"city\\\": \\\"Rome\\\", \\\"days\\\": 3}\"}\n</tool_call>",
    ),
    (
        "muse",
        "<atem:function_calls>\n<atem:invoke name=\"weather\">\n<atem:parameter name=\"city\">Rome</atem:parameter>\n\
         <atem:parameter name=\"days\">3</atem:parameter>\n</atem:invoke>\n</atem:function_calls>",
    ),
];

#[test]
fn every_row_has_a_published_call() {
    for row in rows() {
        assert!(
            CALLS.iter().any(|(name, _)| *name == row.name),
            "{}",
            row.name
        );
    }
}

#[test]
fn published_calls_are_read() {
    let arguments = json!({"city": "Rome", "days": 3});
    for (name, text) in CALLS {
        let reader = AnswerReader::new(Some(row(name)), None, names());
        for cut in [text.len(), 1, 5] {
            let pieces = pieces(text, &[cut]);
            let found = read(&reader, pieces.iter().map(String::as_str));
            assert_eq!(found, [call("weather", &arguments)], "{name}: {text}");
        }
    }
}

#[test]
fn templates_show_whose_way_is_theirs() {
    for (template, token, name) in [
        (
            "<tool_call>\n{\"name\": <function-name>",
            "",
            Some("hermes"),
        ),
        (
            "'<tool_call>\\n<function=' ~ name ~ '>' '<parameter=' ~ key",
            "",
            Some("qwen coder"),
        ),
        (
            "<tool_call>{function-name}\n<arg_key>{k}</arg_key>\n<arg_value>",
            "",
            Some("glm"),
        ),
        (
            "<tool_call>{name}<arg_key>{k}</arg_key><arg_value>",
            "",
            Some("glm 4.7"),
        ),
        (
            "'[TOOL_CALLS]' ~ name ~ '[ARGS]'",
            "",
            Some("mistral, name and arguments"),
        ),
        ("'[TOOL_CALLS][' ~ calls", "", Some("mistral, list")),
        (
            "'<｜tool▁calls▁begin｜>' ~ '```json'",
            "",
            Some("deepseek v3 and r1"),
        ),
        ("'<｜tool▁calls▁begin｜>'", "", Some("deepseek v3.1")),
        (
            "<|start|>assistant<|channel|>final<|message|>",
            "",
            Some("harmony"),
        ),
        ("'<|tool_call>call:' ~ name", "", Some("gemma 4")),
        ("']<]minimax[>[' ~ '<tool_call>'", "", Some("minimax m3")),
        (
            "'<|message_sep|>' 'function call' ~ '<|role_sep|>'",
            "",
            Some("gigachat 3"),
        ),
        (
            "{{ tools | tojson }}",
            "<|python_tag|>",
            Some("llama, json"),
        ),
        ("{{ tools | tojson }}", "<|tool_call_start|>", Some("lfm 2")),
        ("{{ tools | tojson }}", "<tool_call>", Some("hermes")),
        ("{{ tools | tojson }}", "", None),
    ] {
        let found = by_template(template, |text| text == token);
        assert_eq!(found.map(|row| row.name), name, "{template}");
    }
}

#[test]
fn a_template_of_messages_shows_whose_way_is_theirs() {
    let template = "'>>>all\\n' ~ m.content ~ '\n>>>${recipient}\n${content}'";
    let found = by_template(template, str::is_empty);
    assert_eq!(found.map(|row| row.name), Some("functionary 3.2"));
}
