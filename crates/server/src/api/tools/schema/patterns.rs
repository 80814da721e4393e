//! Regular expressions of schemas.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use llguidance::derivre::{RegexAst, RegexBuilder};
use llguidance::regex_to_lark;
use serde_json::{Map, Value};

/// Makes `\d` and `\w` ASCII, as in the expressions of schemas: llguidance's flags for that.
const ECMASCRIPT: &str = "dw";

/// Maximum length of an expression, in bytes.
const MAX_BYTES: usize = 2048;

/// Time limit for parsing a request's expressions. Character classes are long lists, so a short text can be a large
/// expression. Expressions after that time are left out.
const TIME: Duration = Duration::from_secs(1);

/// Steps that the regex engine may take to find out whether two expressions exclude each other.
const FUEL: u64 = 10_000;

/// Maximum number of property patterns that are compared with each other.
const MAX_COMPARED: usize = 8;

/// State of a request's expressions.
#[derive(Debug, Default)]
pub(crate) struct Patterns {
    known: HashMap<String, bool>,
    spent: Duration,
}

impl Patterns {
    /// Whether llguidance's engine accepts the expression: it has no lookaround, no backreferences, no word
    /// boundaries.
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

    /// Whether all are valid expressions, and no two match a common name: only then is the schema of each name
    /// unique.
    pub(super) fn are_apart(&mut self, map: &Map<String, Value>) -> bool {
        if map.len() > MAX_COMPARED || !map.keys().all(|text| self.is_regex(text)) {
            return false;
        }
        if map.len() < 2 {
            return true;
        }
        // A cache key for several expressions: no single expression contains a line break.
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
