//! Variables, by the block that they belong to.

use super::value::Value;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The variables of a block; those of the blocks around it are read through it.
#[derive(Default)]
pub(crate) struct Scope {
    values: RefCell<Vec<(Rc<str>, Value)>>,
    parent: Option<Rc<Scope>>,
    /// Levels of containers in the values.
    depth: Cell<u32>,
}

impl Scope {
    pub(crate) fn inside(parent: &Rc<Scope>) -> Rc<Scope> {
        Rc::new(Scope {
            values: RefCell::default(),
            parent: Some(Rc::clone(parent)),
            depth: Cell::new(0),
        })
    }

    /// Levels of containers in the values here and around: a macro holds all of them.
    pub(crate) fn depth(&self) -> u32 {
        let around = self.parent.as_ref().map_or(0, |parent| parent.depth());
        self.depth.get().max(around)
    }

    pub(crate) fn set(&self, name: &Rc<str>, value: Value) {
        self.depth.set(self.depth.get().max(value.depth()));
        let mut values = self.values.borrow_mut();
        match values.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => *old = value,
            None => values.push((Rc::clone(name), value)),
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<Value> {
        let own = self.values.borrow();
        let found = own.iter().find(|(known, _)| &**known == name);
        match (found, &self.parent) {
            (Some((_, value)), _) => Some(value.clone()),
            (None, Some(parent)) => parent.get(name),
            (None, None) => None,
        }
    }

    /// The outermost of the scopes around: that of the template.
    pub(crate) fn outermost(self: &Rc<Scope>) -> Rc<Scope> {
        let mut scope = self;
        while let Some(parent) = &scope.parent {
            scope = parent;
        }
        Rc::clone(scope)
    }
}
