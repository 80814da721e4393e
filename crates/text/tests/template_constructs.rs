//! Single constructs of templates, against the results of Jinja2 as transformers sets it up.
//!
//! `tools/make_template_fixtures.py` renders them.

use millrace_text::{ChatTemplate, RenderOptions};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::path::Path;
use std::time::{Duration, SystemTime};

#[derive(Deserialize)]
struct Fixture {
    variables: Map<String, Value>,
    /// Source, and its output; `None` for an error.
    rows: Vec<(String, Option<String>)>,
}

/// Constructs whose results differ on purpose, with the reason.
const DIFFERENCES: [(&str, &str); 5] = [
    ("{{ -7 ** 2.5 }}", NO_COMPLEX),
    ("{{ -7 ** -0.5 }}", NO_COMPLEX),
    ("{{ -0.5 ** 2.5 }}", NO_COMPLEX),
    ("{{ -0.5 ** -0.5 }}", NO_COMPLEX),
    (
        "{% autoescape true %}{{ '<' ~ '<'|safe }}{% endautoescape %}",
        "Jinja2 folds constants without a look at autoescape; with variables it does as here",
    ),
];

const NO_COMPLEX: &str = "complex numbers are an error here";

fn is_different(source: &str) -> bool {
    DIFFERENCES.iter().any(|(known, _)| *known == source)
}

fn fixture() -> Fixture {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/template_constructs.json");
    let text = std::fs::read_to_string(path).expect("the fixture is there");
    serde_json::from_str(&text).expect("the fixture fits")
}

/// The output of a source with the variables; the error's text where it fails.
fn render(source: &str, variables: &Map<String, Value>) -> Result<String, String> {
    let options = RenderOptions {
        variables: variables.clone(),
        // 2024-12-30 15:04:05.000678
        now: Some(SystemTime::UNIX_EPOCH + Duration::from_micros(1_735_571_045_000_678)),
        ..RenderOptions::default()
    };
    ChatTemplate::new("test", source, None, None)
        .and_then(|template| template.render_json(&Value::Null, &options))
        .map_err(|error| error.to_string())
}

#[test]
fn every_construct_gives_what_jinja2_gives() {
    let fixture = fixture();
    assert!(fixture.rows.len() > 7000);
    let mut wrong = Vec::new();
    for (source, want) in &fixture.rows {
        let got = render(source, &fixture.variables);
        let is_same = got.as_ref().ok() == want.as_ref();
        if is_same == is_different(source) {
            wrong.push(format!("{source}\n  expected {want:?}\n  found    {got:?}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {} differ:\n{}",
        wrong.len(),
        fixture.rows.len(),
        wrong.join("\n")
    );
}
