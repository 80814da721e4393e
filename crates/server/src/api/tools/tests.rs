use super::*;
use crate::grammar::GrammarFactory;
use crate::syntax::{GENERIC, by_template};
use millrace_text::{Message, Tokenizer};
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// The call syntaxes of Hermes and of Llama 3.
fn syntaxes() -> (CallSyntax, CallSyntax) {
    let llama = by_template("", |token| token == "<|python_tag|>").unwrap();
    (GENERIC, *llama)
}

fn grammar(syntax: &CallSyntax, tools: &Tools, form: Option<&Value>) -> Grammar {
    tools.grammar(syntax, &Marks::default(), form, None)
}

fn tool(body: &Value) -> Result<Tool, ApiError> {
    Tool::new(
        &Fields::at(body, "tools[0]".to_owned()).unwrap(),
        "parameters",
    )
}

fn tools(choice: ToolChoice, parallel: bool) -> Tools {
    let parameters = json!({
        "type": "object",
        "properties": {"city": {"$ref": "#/$defs/city"}},
        "required": ["city"],
        "additionalProperties": false,
        "$defs": {"city": {"enum": ["Rome", "Paris"]}},
    });
    let tool = |name| {
        let body = json!({"name": name, "description": "It does.", "parameters": parameters});
        tool(&body).unwrap()
    };
    let mut tools = Tools {
        list: vec![tool("weather"), tool("time")],
        choice,
        parallel,
        ..Tools::default()
    };
    tools.prepare().unwrap();
    tools
}

/// The demo's vocabulary, with a grammar compiler for it.
pub(crate) fn demo() -> &'static (Arc<Tokenizer>, usize, GrammarFactory) {
    static MODEL: OnceLock<(Arc<Tokenizer>, usize, GrammarFactory)> = OnceLock::new();
    MODEL.get_or_init(|| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo/demo.gguf");
        let model = millrace_runtime::LoadedModel::open(&path).unwrap();
        let tokenizer = model.tokenizer().unwrap();
        let vocab_size = model.model().config.vocab_size;
        let factory = GrammarFactory::new(Arc::clone(&tokenizer), vocab_size);
        (tokenizer, vocab_size, factory)
    })
}

/// Whether an answer of these bytes can be complete, with the demo's vocabulary.
pub(crate) fn accepts(grammar: &Grammar, answer: &str) -> bool {
    let (tokenizer, vocab_size, factory) = demo();
    let vocab_size = *vocab_size;
    let mut constraint = factory.compile(grammar).unwrap();
    for token in tokenizer.encode(answer, Default::default()) {
        let mut logits = vec![0.0; vocab_size];
        if constraint.mask(&mut logits).is_err() || logits[token as usize] != 0.0 {
            return false;
        }
        if constraint.accept(token).is_err() {
            return false;
        }
    }
    let mut logits = vec![0.0; vocab_size];
    constraint.mask(&mut logits).unwrap();
    let end = tokenizer.end_of_generation()[0];
    logits[end as usize] == 0.0
}

/// A choice of tools, whether several calls are allowed, an answer, and whether it is accepted.
type ToolAnswer = (ToolChoice, bool, String, bool);

fn assert_held(syntax: &CallSyntax, answers: impl IntoIterator<Item = ToolAnswer>) {
    for (choice, parallel, answer, is_fine) in answers {
        let grammar = grammar(syntax, &tools(choice.clone(), parallel), None);
        let found = accepts(&grammar, &answer);
        let name = syntax.name;
        assert_eq!(found, is_fine, "{name} {choice:?} {parallel}: {answer}");
    }
}

#[test]
fn grammars_of_hermes_hold_answers_to_the_tools() {
    use ToolChoice::{Auto, Named, Required};
    let call = |name: &str, city: &str| {
        format!(
            "<tool_call>\n{{\"name\": \"{name}\", \"arguments\": {{\"city\": \"{city}\"}}}}\n</tool_call>"
        )
    };
    let time = || Named("time".into());
    let two = format!("{}\n{}", call("time", "Rome"), call("weather", "Paris"));
    let answers = [
        (Required, false, call("weather", "Rome"), true),
        (Required, false, two.clone(), false),
        (Required, true, two.clone(), true),
        (Required, true, "Hello".into(), false),
        (Required, true, call("weather", "Oslo"), false),
        (Required, true, call("other", "Rome"), false),
        (time(), false, call("weather", "Rome"), false),
        (time(), false, call("time", "Rome"), true),
        (Auto, true, "Hello < there".into(), true),
        (Auto, true, format!("Well.\n{two}"), true),
        (Auto, true, call("other", "Rome"), false),
    ];
    assert_held(&syntaxes().0, answers);
}

#[test]
fn grammars_of_llama_hold_answers_to_the_tools() {
    use ToolChoice::{Auto, Named, Required};
    let call = |name: &str, city: &str| {
        format!("{{\"name\": \"{name}\", \"parameters\": {{\"city\": \"{city}\"}}}}")
    };
    let answers = [
        (Auto, false, "Hello {you}".into(), true),
        (Auto, false, call("time", "Rome"), true),
        (Auto, false, call("time", "Oslo"), false),
        (Required, false, "Hello".into(), false),
        (Named("time".into()), false, call("time", "Paris"), true),
    ];
    assert_held(&syntaxes().1, answers);
}

#[test]
fn templates_without_tools_are_told_in_words() {
    let mut assistant = Message::assistant("");
    let call = json!([{"function": {"name": "time", "arguments": {"city": "Rome"}}}]);
    assistant.fields.insert("tool_calls".into(), call);
    let messages = [
        Message::system("Be brief."),
        Message::user("What time is it?"),
        assistant,
        Message::new("tool", "12:00"),
        Message::new("tool", "13:00"),
        Message::user("").with_images(["x".to_owned()]),
        Message::user("And now?"),
    ];
    let plain = as_plain_messages(&messages, &tools(ToolChoice::Auto, true));
    let roles: Vec<&str> = plain.iter().map(|message| message.role.as_str()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "user"]);
    assert!(plain[0].content.starts_with("Be brief.\n\nYou may call"));
    assert!(plain[0].content.contains("\"name\":\"weather\""));
    assert!(plain[2].content.contains("<tool_call>\n{\"name\":\"time\""));
    assert_eq!(
        plain[3].content,
        "<tool_response>\n12:00\n</tool_response>\n<tool_response>\n13:00\n</tool_response>\nAnd now?"
    );
    assert_eq!(plain[3].images.len(), 1);
}

#[test]
fn names_that_could_break_a_grammar_are_refused() {
    for name in ["", "a b", "x\"", "ü", &"x".repeat(129)] {
        assert!(tool(&json!({"name": name})).is_err(), "{name}");
    }
    for name in ["mcp__srv.tool-1", &"x".repeat(128)] {
        assert!(tool(&json!({"name": name})).is_ok(), "{name}");
    }
}

#[test]
fn an_answer_is_calls_or_of_the_form() {
    let (hermes_syntax, llama_syntax) = syntaxes();
    let form = json!({"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"],
                      "additionalProperties": false});
    let hermes =
        "<tool_call>\n{\"name\": \"time\", \"arguments\": {\"city\": \"Rome\"}}\n</tool_call>";
    let llama = "{\"name\": \"time\", \"parameters\": {\"city\": \"Rome\"}}";
    let two = format!("{hermes}\n{hermes}");
    let json = "{\"sum\": 12}";
    for (syntax, choice, answer, is_fine) in [
        (hermes_syntax, ToolChoice::Auto, hermes, true),
        (hermes_syntax, ToolChoice::Auto, &two, true),
        (hermes_syntax, ToolChoice::Auto, json, true),
        (hermes_syntax, ToolChoice::Auto, "Hello", false),
        (hermes_syntax, ToolChoice::Auto, "{\"sum\": \"x\"}", false),
        (hermes_syntax, ToolChoice::Required, json, false),
        (hermes_syntax, ToolChoice::Required, hermes, true),
        (llama_syntax, ToolChoice::Auto, llama, true),
        (llama_syntax, ToolChoice::Auto, json, true),
        (llama_syntax, ToolChoice::Auto, "{\"name\": \"Ben\"}", false),
        (llama_syntax, ToolChoice::Auto, "Hello", false),
        (llama_syntax, ToolChoice::Required, json, false),
    ] {
        let grammar = grammar(&syntax, &tools(choice.clone(), true), Some(&form));
        assert_eq!(
            accepts(&grammar, answer),
            is_fine,
            "{} {choice:?}: {answer}",
            syntax.name
        );
    }
}

#[test]
fn a_form_may_look_like_a_call() {
    let (_, llama_syntax) = syntaxes();
    let form = json!({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"],
                      "additionalProperties": false});
    let llama = "{\"name\": \"time\", \"parameters\": {\"city\": \"Rome\"}}";
    for (answer, is_fine) in [
        ("{\"name\": \"Ben\"}", true),
        ("{\"name\": \"time\"}", true),
        ("{\"name\": \"timely\"}", true),
        (llama, true),
        ("{\"name\": \"Ben\", \"parameters\": {}}", false),
    ] {
        let grammar = grammar(&llama_syntax, &tools(ToolChoice::Auto, true), Some(&form));
        assert_eq!(accepts(&grammar, answer), is_fine, "{answer}");
    }
}

#[test]
fn only_what_is_allowed_can_be_called() {
    let mut some = tools(ToolChoice::Auto, false);
    some.allowed = Some(vec!["time".to_owned()]);
    let call = |name: &str| {
        format!(
            "<tool_call>\n{{\"name\": \"{name}\", \"arguments\": {{\"city\": \"Rome\"}}}}\n</tool_call>"
        )
    };
    let grammar = grammar(&GENERIC, &some, None);
    assert!(accepts(&grammar, &call("time")));
    assert!(!accepts(&grammar, &call("weather")));
}
