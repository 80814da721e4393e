//! Arguments of calls.

use super::fault::{Res, TemplateFault};
use super::value::Value;
use std::rc::Rc;

/// The values in a call.
#[derive(Default)]
pub(crate) struct Args {
    pub(crate) positional: Vec<Value>,
    pub(crate) named: Vec<(Rc<str>, Value)>,
}

/// Arguments by the place of their parameter.
pub(crate) struct BoundArgs {
    function: &'static str,
    values: Vec<Option<Value>>,
}

impl Args {
    /// Binds the arguments to parameters with the given names. A number of them is required, and a
    /// number of the first can only be given by position.
    pub(crate) fn bind(
        self,
        function: &'static str,
        names: &[&str],
        n_needed: usize,
        n_unnamed: usize,
    ) -> Res<BoundArgs> {
        let n = self.positional.len();
        if n > names.len() {
            return Err(TemplateFault::type_error(format!(
                "{function} takes at most {} arguments, and {n} were given",
                names.len()
            )));
        }
        let mut values: Vec<Option<Value>> = self.positional.into_iter().map(Some).collect();
        values.resize(names.len(), None);
        for (name, value) in self.named {
            let place = names.iter().position(|known| *known == &*name);
            match place.filter(|at| *at >= n_unnamed) {
                Some(at) if values[at].is_none() => values[at] = Some(value),
                Some(_) => {
                    return Err(TemplateFault::type_error(format!(
                        "{function} got two values for the argument '{name}'"
                    )));
                }
                None => {
                    return Err(TemplateFault::type_error(format!(
                        "{function} takes no argument called '{name}'"
                    )));
                }
            }
        }
        if let Some(at) = values[..n_needed].iter().position(Option::is_none) {
            return Err(TemplateFault::type_error(format!(
                "{function} needs the argument '{}'",
                names[at]
            )));
        }
        Ok(BoundArgs { function, values })
    }

    /// The arguments of a method that takes only positional ones.
    pub(crate) fn bind_unnamed(
        self,
        function: &'static str,
        names: &[&str],
        n_needed: usize,
    ) -> Res<BoundArgs> {
        self.bind(function, names, n_needed, names.len())
    }

    /// Refuses any argument.
    pub(crate) fn none(self, function: &'static str) -> Res<()> {
        self.bind(function, &[], 0, 0).map(|_| ())
    }
}

impl BoundArgs {
    pub(crate) fn get(&self, at: usize) -> Option<&Value> {
        self.values[at].as_ref()
    }

    /// The value, if it was given and is not `None`.
    pub(crate) fn given(&self, at: usize) -> Option<&Value> {
        self.get(at).filter(|value| !value.is_none())
    }

    pub(crate) fn take(&mut self, at: usize) -> Option<Value> {
        self.values[at].take()
    }

    fn wrong(&self, expected: &str, found: &Value) -> TemplateFault {
        if found.is_undefined() {
            return found.undefined_fault();
        }
        TemplateFault::type_error(format!(
            "{} expected {expected}, found {}",
            self.function,
            found.type_name()
        ))
    }

    pub(crate) fn is_true(&self, at: usize, default: bool) -> bool {
        self.get(at).map_or(default, Value::is_true)
    }

    pub(crate) fn int(&self, at: usize, default: i128) -> Res<i128> {
        match self.get(at) {
            None => Ok(default),
            Some(value) => value
                .as_int()
                .ok_or_else(|| self.wrong("an integer", value)),
        }
    }

    /// A whole number, if it was given and is not `None`.
    pub(crate) fn some_int(&self, at: usize) -> Res<Option<i128>> {
        match self.given(at) {
            None => Ok(None),
            Some(_) => self.int(at, 0).map(Some),
        }
    }

    pub(crate) fn str(&self, at: usize) -> Res<&str> {
        match self.get(at) {
            Some(Value::Str(text)) => Ok(&text.text),
            Some(value) => Err(self.wrong("a string", value)),
            None => Err(self.wrong("a string", &Value::None)),
        }
    }

    /// A text, if it was given and is not `None`.
    pub(crate) fn some_str(&self, at: usize) -> Res<Option<&str>> {
        match self.given(at) {
            None => Ok(None),
            Some(_) => self.str(at).map(Some),
        }
    }
}
