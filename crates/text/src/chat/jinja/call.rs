//! Callable values: functions, macros, loops, methods.

use super::args::Args;
use super::ast::{ForLoop, MacroDef};
use super::dict::Dict;
use super::fault::{self, FaultKind, Res, TemplateFault};
use super::interp::Interp;
use super::scope::Scope;
use super::value::{Namespace, Object, Range, Value, depth_around};
use super::{compare, methods, repr};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Functions that every template has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BuiltinFunction {
    Range,
    Dict,
    DictFromKeys,
    Namespace,
    Cycler,
    Joiner,
    Lipsum,
    RaiseException,
    StrftimeNow,
}

/// The most items of a `range`: Jinja2's own bound.
const MAX_RANGE: usize = 100_000;

impl BuiltinFunction {
    pub(crate) fn named(name: &str) -> Option<BuiltinFunction> {
        Some(match name {
            "range" => BuiltinFunction::Range,
            "dict" => BuiltinFunction::Dict,
            "namespace" => BuiltinFunction::Namespace,
            "cycler" => BuiltinFunction::Cycler,
            "joiner" => BuiltinFunction::Joiner,
            "lipsum" => BuiltinFunction::Lipsum,
            "raise_exception" => BuiltinFunction::RaiseException,
            "strftime_now" => BuiltinFunction::StrftimeNow,
            _ => return None,
        })
    }

    pub(crate) fn attribute(self, name: &str) -> Option<Value> {
        (self == BuiltinFunction::Dict && name == "fromkeys")
            .then(|| Value::object(Object::Function(BuiltinFunction::DictFromKeys)))
    }

    fn call(self, interp: &Interp, mut args: Args) -> Res<Value> {
        match self {
            BuiltinFunction::Range => range(args),
            BuiltinFunction::Dict => Ok(Value::Dict(Rc::new(dict(args)?))),
            BuiltinFunction::DictFromKeys => {
                let bound = args.bind_unnamed("fromkeys", &["keys", "value"], 1)?;
                let keys = bound.get(0).map_or(Ok(Vec::new()), Value::iterate)?;
                let value = bound.get(1).cloned().unwrap_or(Value::None);
                let pairs = keys.into_iter().map(|key| (key, value.clone()));
                Ok(Value::Dict(Rc::new(Dict::new(pairs)?)))
            }
            BuiltinFunction::Namespace => {
                let namespace = Namespace::default();
                for (name, value) in dict(args)?.iter() {
                    let Value::Str(name) = name else {
                        return Err(TemplateFault::type_error(
                            "names in a namespace are strings",
                        ));
                    };
                    namespace.set(Rc::clone(&name.text), value.clone())?;
                }
                Ok(Value::object(Object::Namespace(namespace)))
            }
            BuiltinFunction::Cycler => {
                let items = std::mem::take(&mut args.positional);
                args.none("cycler")?;
                match items.is_empty() {
                    true => Err(TemplateFault::new(
                        FaultKind::Template,
                        "cycler needs at least one value",
                    )),
                    false => Ok(Value::object(Object::Cycler(items, Cell::new(0)))),
                }
            }
            BuiltinFunction::Joiner => {
                let mut bound = args.bind("joiner", &["sep"], 0, 0)?;
                let separator = bound.take(0).unwrap_or_else(|| Value::from(", "));
                Ok(Value::object(Object::Joiner(separator, Cell::new(false))))
            }
            BuiltinFunction::Lipsum => Err(TemplateFault::new(
                FaultKind::Template,
                "lipsum writes another text each time, which no prompt should",
            )),
            BuiltinFunction::RaiseException => {
                let bound = args.bind("raise_exception", &["message"], 1, 0)?;
                let message = bound.get(0).map_or(Ok(String::new()), repr::to_str)?;
                Err(TemplateFault::new(FaultKind::Refused, message))
            }
            BuiltinFunction::StrftimeNow => {
                let bound = args.bind("strftime_now", &["format"], 1, 0)?;
                let text = crate::chat::strftime::format(bound.str(0)?, interp.now);
                text.map(Value::from).map_err(TemplateFault::limit)
            }
        }
    }
}

fn range(args: Args) -> Res<Value> {
    let n = args.positional.len();
    let bound = args.bind_unnamed("range", &["start", "stop", "step"], 1)?;
    let (start, stop) = match n {
        1 => (0, bound.int(0, 0)?),
        _ => (bound.int(0, 0)?, bound.int(1, 0)?),
    };
    let step = bound.int(2, 1)?;
    // Nothing here comes near the bounds of 128 bits.
    let is_near = |n: i128| n.unsigned_abs() < 1 << 100;
    if step == 0 || ![start, stop, step].into_iter().all(is_near) {
        return Err(TemplateFault::value_error("range() arg 3 must not be zero"));
    }
    let range = Range { start, stop, step };
    if range.len() > MAX_RANGE {
        return Err(TemplateFault::new(
            FaultKind::Arithmetic,
            format!("range too big: more than {MAX_RANGE} numbers"),
        ));
    }
    Ok(Value::Range(range))
}

/// `dict(values, **named)`: of a dictionary, or of pairs.
fn dict(args: Args) -> Res<Dict> {
    if args.positional.len() > 1 {
        return Err(TemplateFault::type_error(
            "dict expected at most 1 argument",
        ));
    }
    let mut pairs = Vec::new();
    match args.positional.first() {
        Some(Value::Dict(dict)) => pairs.extend(dict.iter().map(|(k, v)| (k.clone(), v.clone()))),
        Some(other) => {
            for pair in other.iterate()? {
                match <[Value; 2]>::try_from(pair.iterate()?) {
                    Ok([key, value]) => pairs.push((key, value)),
                    Err(_) => return Err(TemplateFault::value_error("dict needs pairs")),
                }
            }
        }
        None => {}
    }
    let named = args.named.into_iter();
    pairs.extend(named.map(|(name, value)| (Value::from(&*name), value)));
    Dict::new(pairs)
}

/// A macro with the variables around its definition.
pub(crate) struct Macro {
    pub(crate) def: Rc<MacroDef>,
    pub(crate) scope: Rc<Scope>,
}

/// The variable `loop`.
pub(crate) struct LoopState {
    pub(crate) def: Rc<ForLoop>,
    pub(crate) items: Rc<Vec<Value>>,
    pub(crate) at: Cell<usize>,
    /// Loops of the same definition around this one.
    pub(crate) level: usize,
    /// The variables around the loop.
    pub(crate) scope: Rc<Scope>,
    /// The arguments of the last call of `changed`.
    pub(crate) seen: RefCell<Option<Vec<Value>>>,
    /// Levels of containers in the values.
    pub(crate) depth: u32,
}

impl LoopState {
    pub(crate) fn new(
        def: &Rc<ForLoop>,
        items: Vec<Value>,
        level: usize,
        scope: &Rc<Scope>,
    ) -> Res<LoopState> {
        Ok(LoopState {
            def: Rc::clone(def),
            depth: depth_around(items.iter())?.max(scope.depth()),
            items: Rc::new(items),
            at: Cell::new(0),
            level,
            scope: Rc::clone(scope),
            seen: RefCell::new(None),
        })
    }

    pub(crate) fn n_items(&self) -> usize {
        self.items.len()
    }

    /// The values that are still to come, in order.
    pub(crate) fn remaining(&self) -> Vec<Value> {
        self.items.iter().skip(self.at.get() + 1).cloned().collect()
    }

    pub(crate) fn attribute(&self, name: &str) -> Res<Option<Value>> {
        let (at, n) = (self.at.get(), self.items.len());
        Ok(Some(match name {
            "index" => Value::from(at + 1),
            "index0" => Value::from(at),
            "revindex" => Value::from(n - at),
            "revindex0" => Value::from(n - at - 1),
            "first" => Value::Bool(at == 0),
            "last" => Value::Bool(at + 1 == n),
            "length" => Value::from(n),
            "depth" => Value::from(self.level + 1),
            "depth0" => Value::from(self.level),
            "previtem" => match at.checked_sub(1) {
                Some(before) => self.items[before].clone(),
                None => Value::undefined("there is no previous item"),
            },
            "nextitem" => match self.items.get(at + 1) {
                Some(next) => next.clone(),
                None => Value::undefined("there is no next item"),
            },
            _ => return Ok(None),
        }))
    }

    fn changed(&self, values: Vec<Value>) -> bool {
        let mut seen = self.seen.borrow_mut();
        let same = |old: &Vec<Value>| {
            old.len() == values.len() && old.iter().zip(&values).all(|(a, b)| compare::equal(a, b))
        };
        let is_new = !seen.as_ref().is_some_and(same);
        if is_new {
            *seen = Some(values);
        }
        is_new
    }
}

impl Interp {
    /// `callee(args)`
    pub(crate) fn call(&mut self, callee: &Value, args: Args) -> Res<Value> {
        fault::spend(1)?;
        let Value::Object(object) = callee else {
            if callee.is_undefined() {
                return Err(callee.undefined_fault());
            }
            let name = callee.type_name();
            return Err(TemplateFault::type_error(format!(
                "'{name}' object is not callable"
            )));
        };
        match &**object {
            Object::Function(function) => function.call(self, args),
            Object::Macro(def) => self.call_macro(def, args),
            Object::Method(value, name) => self.call_method(value, name, args),
            Object::Joiner(separator, used) => {
                args.none("joiner")?;
                Ok(match used.replace(true) {
                    true => separator.clone(),
                    false => Value::from(""),
                })
            }
            Object::Loop(state) => {
                let bound = args.bind("loop", &["iterable"], 1, 0)?;
                if !state.def.is_recursive {
                    return Err(TemplateFault::type_error(
                        "the loop must have the 'recursive' marker to be called recursively",
                    ));
                }
                let items = bound.get(0).map_or(Ok(Vec::new()), Value::iterate)?;
                let (def, scope) = (Rc::clone(&state.def), Rc::clone(&state.scope));
                let level = state.level + 1;
                self.captured(|interp| interp.run_loop(&def, items, &scope, level).map(|_| ()))
            }
            Object::BlockRef(name, scope) => {
                args.none("a block")?;
                self.block_text(name, scope)
            }
            Object::Namespace(_) | Object::Cycler(..) | Object::Template(_) => {
                let name = callee.type_name();
                Err(TemplateFault::type_error(format!(
                    "'{name}' object is not callable"
                )))
            }
        }
    }

    fn call_method(&mut self, value: &Value, name: &str, mut args: Args) -> Res<Value> {
        let Value::Object(object) = value else {
            return methods::call(value, name, args);
        };
        match (&**object, name) {
            (Object::Loop(state), "cycle") => {
                let values = std::mem::take(&mut args.positional);
                args.none("cycle")?;
                match values.len() {
                    0 => Err(TemplateFault::type_error("no items for cycling given")),
                    n => Ok(values[state.at.get() % n].clone()),
                }
            }
            (Object::Loop(state), "changed") => {
                let values = std::mem::take(&mut args.positional);
                args.none("changed")?;
                Ok(Value::Bool(state.changed(values)))
            }
            (Object::Cycler(items, at), "next") => {
                args.none("next")?;
                let current = items[at.get()].clone();
                at.set((at.get() + 1) % items.len());
                Ok(current)
            }
            (Object::Cycler(_, at), "reset") => {
                args.none("reset")?;
                at.set(0);
                Ok(Value::None)
            }
            _ => Err(TemplateFault::type_error(format!(
                "it has no method '{name}'"
            ))),
        }
    }

    /// Binds a macro's parameters, and renders its body.
    fn call_macro(&mut self, called: &Macro, args: Args) -> Res<Value> {
        let def = Rc::clone(&called.def);
        let scope = Scope::inside(&called.scope);
        let title = def.name.as_deref().unwrap_or("caller");
        let mut named = args.named;
        let mut positional = args.positional.into_iter();
        let first_default = def.params.len() - def.defaults.len();
        let mut absent = Vec::new();
        let mut has_caller = false;
        for (at, name) in def.params.iter().enumerate() {
            let given = positional.next().or_else(|| take(&mut named, name));
            has_caller |= &**name == "caller";
            match given {
                Some(value) => scope.set(name, value),
                None => absent.push((at, name)),
            }
        }
        // After all others, because a default may read them.
        for (at, name) in absent {
            let value = match at.checked_sub(first_default) {
                Some(at) => self.eval(&def.defaults[at], &scope)?,
                None => Value::undefined(format!("parameter '{name}' was not provided")),
            };
            scope.set(name, value);
        }
        if def.takes_caller && !has_caller {
            let caller = take(&mut named, "caller");
            let caller = caller.unwrap_or_else(|| Value::undefined("no caller defined"));
            scope.set(&Rc::from("caller"), caller);
        }
        if def.takes_named {
            let pairs = named.drain(..);
            let pairs = pairs.map(|(name, value)| (Value::from(&*name), value));
            let kwargs = Value::Dict(Rc::new(Dict::new(pairs)?));
            scope.set(&Rc::from("kwargs"), kwargs);
        } else if let Some((name, _)) = named.first() {
            return Err(TemplateFault::type_error(format!(
                "macro '{title}' takes no keyword argument '{name}'"
            )));
        }
        let more: Vec<Value> = positional.collect();
        if def.takes_more {
            scope.set(&Rc::from("varargs"), Value::tuple(more)?);
        } else if !more.is_empty() {
            return Err(TemplateFault::type_error(format!(
                "macro '{title}' takes not more than {} argument(s)",
                def.params.len()
            )));
        }
        self.captured(|interp| interp.run(&def.body, &scope).map(|_| ()))
    }
}

fn take(named: &mut Vec<(Rc<str>, Value)>, name: &str) -> Option<Value> {
    let at = named.iter().position(|(known, _)| &**known == name)?;
    Some(named.remove(at).1)
}
