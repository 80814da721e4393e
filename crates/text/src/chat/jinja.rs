//! Jinja2, as transformers sets it up for chat templates, with the values of Python.
//!
//! A template has the meaning that Jinja2 3.1.6 gives it. That covers its syntax, its control of white
//! space, its scopes, its filters and tests. It covers the operators and methods of Python's `str`,
//! `int`, `float`, `list`, `tuple` and `dict`. Nothing can be loaded or changed, as in the sandbox
//! there. A source passes through `lexer` → `parser`, `expression` → `check` → `interp`, `eval`.
//! Everything that takes time or memory asks `fault` first.

mod access;
mod args;
mod ast;
mod call;
mod chars;
mod check;
mod compare;
mod dict;
mod digits;
mod eval;
mod expression;
mod fault;
mod filters;
mod interp;
mod json;
mod lexer;
mod markup;
mod methods;
mod ops;
mod parser;
mod predicates;
mod printf;
mod repr;
mod scope;
mod strformat;
mod suffix;
mod targets;
mod value;

pub(super) use fault::{FaultKind, STEPS, TemplateFault};

use super::strftime::Moment;
use serde_json::{Map, Value as Json};
use std::rc::Rc;

/// A parsed template.
pub(super) struct Template(ast::Body);

impl Template {
    /// Parses a source; for an invalid one, returns the line and the reason.
    pub(super) fn parse(source: &str) -> Result<Template, (usize, String)> {
        let body = parser::parse(source);
        body.map(Template)
            .map_err(|fault| (fault.line as usize, fault.message))
    }

    /// Renders with some variables, within a number of steps. `now` is the time of `strftime_now`.
    pub(super) fn render(
        &self,
        variables: &Map<String, Json>,
        now: Moment,
        steps: u64,
    ) -> Result<String, TemplateFault> {
        fault::start(steps);
        let scope = Rc::new(scope::Scope::default());
        for (name, value) in variables {
            scope.set(&Rc::from(name.as_str()), from_json(value)?);
        }
        // There may be many variables; the template's own steps start here.
        fault::start(steps);
        interp::Interp::new(now).render(&self.0, &scope)
    }
}

/// A JSON value as Python reads it.
fn from_json(json: &Json) -> fault::Res<value::Value> {
    use value::Value;
    Ok(match json {
        Json::Null => Value::None,
        Json::Bool(b) => Value::Bool(*b),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(n), _) => Value::Int(n.into()),
            (None, Some(n)) => Value::Int(n.into()),
            (None, None) => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(list) => Value::list(list.iter().map(from_json).collect::<fault::Res<_>>()?)?,
        Json::Object(map) => {
            let pairs = map
                .iter()
                .map(|(k, v)| Ok((Value::from(k.as_str()), from_json(v)?)));
            let pairs = pairs.collect::<fault::Res<Vec<_>>>()?;
            Value::Dict(Rc::new(dict::Dict::new(pairs)?))
        }
    })
}
