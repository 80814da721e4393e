//! Values of templates: Python's.

use super::call::{BuiltinFunction, LoopState, Macro};
use super::dict::Dict;
use super::fault::{self, Res, TemplateFault};
use super::scope::Scope;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;

#[derive(Clone)]
pub(crate) enum Value {
    /// A value that does not exist, with the reason.
    Undefined(Rc<Missing>),
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(Text),
    List(Rc<List>),
    Tuple(Rc<List>),
    Dict(Rc<Dict>),
    Range(Range),
    /// Keys, values or items of a dictionary.
    View(ViewKind, Rc<Dict>),
    /// Values that can be read once: the result of filters that return generators.
    Iter(Rc<RefCell<VecDeque<Value>>>),
    Object(Rc<Object>),
}

/// A text, and whether it is markup, whose characters need no escapes.
#[derive(Clone)]
pub(crate) struct Text {
    pub(crate) text: Rc<str>,
    pub(crate) is_markup: bool,
}

/// Why a value is undefined: the message of any operation on it.
#[derive(Debug)]
pub(crate) struct Missing {
    pub(crate) reason: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) start: i128,
    pub(crate) stop: i128,
    pub(crate) step: i128,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ViewKind {
    Keys,
    Values,
    Items,
}

/// The values of a list or tuple.
pub(crate) struct List {
    pub(crate) items: Vec<Value>,
    /// Levels of containers, this one included.
    depth: u32,
    /// A pair of `groupby`, whose parts have names.
    pub(crate) is_group: bool,
}

/// A value with an identity.
pub(crate) enum Object {
    Namespace(Namespace),
    Macro(Macro),
    Loop(LoopState),
    /// Values and the place of the current one.
    Cycler(Vec<Value>, Cell<usize>),
    /// A separator, and whether it was asked for.
    Joiner(Value, Cell<bool>),
    Function(BuiltinFunction),
    /// A method of a value.
    Method(Value, Rc<str>),
    /// The template itself: its blocks.
    Template(Rc<Scope>),
    /// A block, to be called.
    BlockRef(Rc<str>, Rc<Scope>),
}

#[derive(Default)]
pub(crate) struct Namespace {
    pub(crate) attrs: RefCell<Vec<(Rc<str>, Value)>>,
    depth: Cell<u32>,
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.type_name())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::from(text.as_str())
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Str(Text {
            text: text.into(),
            is_markup: false,
        })
    }
}

impl From<usize> for Value {
    fn from(n: usize) -> Value {
        Value::Int(n as i128)
    }
}

impl Range {
    pub(crate) fn len(&self) -> usize {
        let (from, to, step) = match self.step > 0 {
            true => (self.start, self.stop, self.step),
            false => (self.stop, self.start, -self.step),
        };
        match from < to {
            true => usize::try_from((to - from - 1) / step + 1).unwrap_or(usize::MAX),
            false => 0,
        }
    }

    pub(crate) fn get(&self, at: usize) -> Value {
        Value::Int(self.start + self.step * at as i128)
    }

    pub(crate) fn contains(&self, n: i128) -> bool {
        let is_between = match self.step > 0 {
            true => self.start <= n && n < self.stop,
            false => self.stop < n && n <= self.start,
        };
        is_between && (n - self.start) % self.step == 0
    }
}

impl Value {
    pub(crate) fn undefined(reason: impl Into<String>) -> Value {
        Value::Undefined(Rc::new(Missing {
            reason: reason.into(),
        }))
    }

    pub(crate) fn unsafe_attribute(object: &Value, name: &str) -> Value {
        Value::Undefined(Rc::new(Missing {
            reason: format!(
                "access to attribute '{name}' of '{}' object is unsafe",
                object.type_name()
            ),
        }))
    }

    pub(crate) fn markup(text: impl Into<Rc<str>>) -> Value {
        Value::Str(Text {
            text: text.into(),
            is_markup: true,
        })
    }

    pub(crate) fn text(text: impl Into<Rc<str>>, is_markup: bool) -> Value {
        Value::Str(Text {
            text: text.into(),
            is_markup,
        })
    }

    pub(crate) fn list(items: Vec<Value>) -> Res<Value> {
        Ok(Value::List(Rc::new(List::new(items)?)))
    }

    pub(crate) fn tuple(items: Vec<Value>) -> Res<Value> {
        Ok(Value::Tuple(Rc::new(List::new(items)?)))
    }

    pub(crate) fn group(key: Value, items: Vec<Value>) -> Res<Value> {
        let mut list = List::new(vec![key, Value::list(items)?])?;
        list.is_group = true;
        Ok(Value::Tuple(Rc::new(list)))
    }

    pub(crate) fn iter(items: impl IntoIterator<Item = Value>) -> Value {
        Value::Iter(Rc::new(RefCell::new(items.into_iter().collect())))
    }

    pub(crate) fn object(object: Object) -> Value {
        Value::Object(Rc::new(object))
    }

    pub(crate) fn is_undefined(&self) -> bool {
        matches!(self, Value::Undefined(_))
    }

    pub(crate) fn is_none(&self) -> bool {
        matches!(self, Value::None)
    }

    pub(crate) fn as_str(&self) -> Option<&str> {
        match self {
            Value::Str(text) => Some(&text.text),
            _ => None,
        }
    }

    pub(crate) fn is_markup(&self) -> bool {
        matches!(self, Value::Str(text) if text.is_markup)
    }

    /// A whole number; `True` and `False` count as such.
    pub(crate) fn as_int(&self) -> Option<i128> {
        match self {
            Value::Int(n) => Some(*n),
            Value::Bool(b) => Some(i128::from(*b)),
            _ => None,
        }
    }

    pub(crate) fn as_float(&self) -> Option<f64> {
        match self {
            Value::Float(n) => Some(*n),
            other => other.as_int().map(|n| n as f64),
        }
    }

    /// The name of the type, as Python has it.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Value::Undefined(_) => "Undefined",
            Value::None => "NoneType",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::Float(_) => "float",
            Value::Str(text) if text.is_markup => "Markup",
            Value::Str(_) => "str",
            Value::List(_) => "list",
            Value::Tuple(list) if list.is_group => "_GroupTuple",
            Value::Tuple(_) => "tuple",
            Value::Dict(_) => "dict",
            Value::Range(_) => "range",
            Value::View(ViewKind::Keys, _) => "dict_keys",
            Value::View(ViewKind::Values, _) => "dict_values",
            Value::View(ViewKind::Items, _) => "dict_items",
            Value::Iter(_) => "generator",
            Value::Object(object) => match &**object {
                Object::Namespace(_) => "TemplateNamespace",
                Object::Macro(_) => "Macro",
                Object::Loop(_) => "LoopContext",
                Object::Cycler(..) => "Cycler",
                Object::Joiner(..) => "Joiner",
                Object::Function(_) => "function",
                Object::Method(..) => "builtin_function_or_method",
                Object::Template(_) => "TemplateReference",
                Object::BlockRef(..) => "BlockReference",
            },
        }
    }

    /// `bool(value)`
    pub(crate) fn is_true(&self) -> bool {
        match self {
            Value::Undefined(_) | Value::None => false,
            Value::Bool(b) => *b,
            Value::Int(n) => *n != 0,
            Value::Float(n) => *n != 0.0,
            Value::Str(text) => !text.text.is_empty(),
            Value::List(list) | Value::Tuple(list) => !list.items.is_empty(),
            Value::Dict(dict) | Value::View(_, dict) => dict.len() > 0,
            Value::Range(range) => range.len() > 0,
            Value::Iter(_) => true,
            Value::Object(object) => match &**object {
                Object::Loop(state) => state.n_items() > 0,
                _ => true,
            },
        }
    }

    /// `len(value)`
    pub(crate) fn length(&self) -> Res<usize> {
        Ok(match self {
            Value::Undefined(_) => 0,
            Value::Str(text) => {
                fault::spend(text.text.len() / 64)?;
                text.text.chars().count()
            }
            Value::List(list) | Value::Tuple(list) => list.items.len(),
            Value::Dict(dict) | Value::View(_, dict) => dict.len(),
            Value::Range(range) => range.len(),
            Value::Object(object) if matches!(&**object, Object::Loop(_)) => match &**object {
                Object::Loop(state) => state.n_items(),
                _ => 0,
            },
            other => {
                let name = other.type_name();
                return Err(TemplateFault::type_error(format!(
                    "object of type '{name}' has no len()"
                )));
            }
        })
    }

    /// The values of an iteration, in order; an iterator is then empty.
    pub(crate) fn iterate(&self) -> Res<Vec<Value>> {
        let items: Vec<Value> = match self {
            Value::Undefined(_) => Vec::new(),
            Value::Str(text) => {
                fault::items(text.text.len() / 4)?;
                let mut buffer = [0; 4];
                let one = |c: char| Value::from(&*c.encode_utf8(&mut buffer));
                text.text.chars().map(one).collect()
            }
            Value::List(list) | Value::Tuple(list) => list.items.clone(),
            Value::Dict(dict) => dict.keys().cloned().collect(),
            Value::View(ViewKind::Keys, dict) => dict.keys().cloned().collect(),
            Value::View(ViewKind::Values, dict) => dict.values().cloned().collect(),
            Value::View(ViewKind::Items, dict) => {
                let pairs = dict.iter();
                let pairs = pairs.map(|(k, v)| Value::tuple(vec![k.clone(), v.clone()]));
                pairs.collect::<Res<_>>()?
            }
            Value::Range(range) => {
                fault::items(range.len())?;
                (0..range.len()).map(|at| range.get(at)).collect()
            }
            Value::Iter(items) => items.borrow_mut().drain(..).collect(),
            Value::Object(object) => match &**object {
                Object::Loop(state) => state.remaining(),
                _ => return Err(self.not_iterable()),
            },
            _ => return Err(self.not_iterable()),
        };
        fault::items(items.len())?;
        Ok(items)
    }

    fn not_iterable(&self) -> TemplateFault {
        TemplateFault::type_error(format!("'{}' object is not iterable", self.type_name()))
    }

    /// The failure of an operation on an undefined value.
    pub(crate) fn undefined_fault(&self) -> TemplateFault {
        let reason = match self {
            Value::Undefined(missing) => missing.reason.clone(),
            other => format!("'{}' is not undefined", other.type_name()),
        };
        TemplateFault::new(fault::FaultKind::Undefined, reason)
    }

    /// Levels of containers in the value.
    pub(crate) fn depth(&self) -> u32 {
        match self {
            Value::List(list) | Value::Tuple(list) => list.depth,
            Value::Dict(dict) | Value::View(_, dict) => dict.depth(),
            Value::Iter(items) => 1 + deepest(items.borrow().iter()),
            Value::Object(object) => match &**object {
                Object::Namespace(namespace) => namespace.depth.get(),
                Object::Method(value, _) | Object::Joiner(value, _) => 1 + value.depth(),
                Object::Cycler(items, _) => 1 + deepest(items.iter()),
                Object::Macro(def) => 1 + def.scope.depth(),
                Object::Loop(state) => 1 + state.depth,
                Object::Template(scope) | Object::BlockRef(_, scope) => 1 + scope.depth(),
                Object::Function(_) => 1,
            },
            _ => 0,
        }
    }
}

fn deepest<'v>(items: impl Iterator<Item = &'v Value>) -> u32 {
    items.map(Value::depth).max().unwrap_or(0)
}

/// The levels of a container of some values, within the bound.
pub(crate) fn depth_around<'v>(items: impl Iterator<Item = &'v Value>) -> Res<u32> {
    let depth = 1 + deepest(items);
    if depth > fault::NESTING {
        return Err(TemplateFault::limit(format!(
            "the values it makes nest more than {} levels deep",
            fault::NESTING
        )));
    }
    Ok(depth)
}

impl List {
    fn new(items: Vec<Value>) -> Res<List> {
        fault::items(items.len())?;
        Ok(List {
            depth: depth_around(items.iter())?,
            items,
            is_group: false,
        })
    }
}

impl Namespace {
    pub(crate) fn get(&self, name: &str) -> Option<Value> {
        let attrs = self.attrs.borrow();
        let found = attrs.iter().find(|(known, _)| &**known == name);
        found.map(|(_, value)| value.clone())
    }

    /// Sets an attribute. Templates may not set those that begin with an underscore.
    pub(crate) fn set(&self, name: Rc<str>, value: Value) -> Res<()> {
        if name.starts_with('_') {
            return Err(TemplateFault::new(
                fault::FaultKind::Undefined,
                format!("a namespace takes no attribute that starts with an underscore ('{name}')"),
            ));
        }
        let depth = depth_around(std::iter::once(&value))?;
        self.depth.set(self.depth.get().max(depth));
        let mut attrs = self.attrs.borrow_mut();
        match attrs.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = value,
            None => {
                fault::items(attrs.len())?;
                attrs.push((name, value));
            }
        }
        Ok(())
    }
}
