//! Regular expressions of schemas.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use llguidance::derivre::{RegexAst, RegexBuilder};
use llguidance::regex_to_lark;
use serde_json::{Map, Value};

/// `\d` and `\w` are ASCII's in the expressions of schemas: llguidance's word for that.
const ECMASCRIPT: &str = "dw";

/// Bytes of an expression at most.
const MAX_BYTES: usize = 2048;

/// How long a request's expressions may take to be read. Classes of letters are long lists, so that a short text
/// can be a large expression; what comes after that time is left out.
const TIME: Duration = Duration::from_secs(1);

/// Steps of the engine of regular expressions for finding out whether two exclude each other.
const FUEL: u64 = 10_000;

/// Patterns of properties that are compared with each other at most.
const MAX_COMPARED: usize = 8;

/// What is known of a request's expressions.
#[derive(Debug, Default)]
pub(crate) struct Patterns {
    known: HashMap<String, bool>,
    spent: Duration,
}

impl Patterns {
    /// Whether llguidance's engine reads the expression: it has no lookaround, no references to groups, no boundaries of words.
    pub(super) fn is_regex(&mut self, text: &str) -> bool {
        if let Some(is_regex) = self.known.get(text) {
            return *is_regex;
        }
        if text.len() > MAX_BYTES || self.spent > TIME {
            return false;
        }
        let start = Instant::now();
        let lark = regex_to_lark(text, ECMASCRIPT);
        let is_regex = RegexBuilder::new().mk_regex_for_serach(&lark).is_ok();
        self.spent += start.elapsed();
        self.known.insert(text.to_owned(), is_regex);
        is_regex
    }

    /// Whether all are expressions, and none shares a name with another: only then is it clear which schema is whose.
    pub(super) fn are_apart(&mut self, map: &Map<String, Value>) -> bool {
        if map.len() > MAX_COMPARED || !map.keys().all(|text| self.is_regex(text)) {
            return false;
        }
        if map.len() < 2 {
            return true;
        }
        // No expression has a line break for a name of several.
        let name = map.keys().cloned().collect::<Vec<_>>().join("\n\n");
        if let Some(are_apart) = self.known.get(&name) {
            return *are_apart;
        }
        if self.spent > TIME {
            return false;
        }
        let start = Instant::now();
        let are_apart = exclude_each_other(map);
        self.spent += start.elapsed();
        self.known.insert(name, are_apart);
        are_apart
    }
}

fn exclude_each_other(map: &Map<String, Value>) -> bool {
    let mut builder = RegexBuilder::new();
    let regexes = map.keys().map(|text| {
        let lark = regex_to_lark(text, ECMASCRIPT);
        builder.mk_regex_for_serach(&lark)
    });
    let Ok(regexes) = regexes.collect::<Result<Vec<_>, _>>() else {
        return false;
    };
    for (i, a) in regexes.iter().enumerate() {
        for b in &regexes[i + 1..] {
            let both = RegexAst::And(vec![RegexAst::ExprRef(*a), RegexAst::ExprRef(*b)]);
            let both = builder
                .mk(&both)
                .and_then(|both| builder.to_regex_limited(both, FUEL));
            if !both.is_ok_and(|mut both| both.always_empty()) {
                return false;
            }
        }
    }
    true
}
