//! Statements.

use super::ast::{AssignTarget, BlockDef, Body, Expr, ForLoop, Stmt, StmtKind};
use super::call::{LoopState, Macro};
use super::fault::{self, FaultKind, Res, TemplateFault};
use super::markup::escaped;
use super::repr;
use super::scope::Scope;
use super::value::{Object, Value};
use crate::chat::strftime::Moment;
use std::collections::HashMap;
use std::rc::Rc;

/// Bound of nested calls, statements and expressions.
const LEVELS: u32 = 2000;

/// Flow of control behind a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatementFlow {
    Next,
    Break,
    Continue,
}

/// State of a rendering.
pub(crate) struct Interp {
    out: String,
    level: u32,
    pub(super) is_escaping: bool,
    /// The time of `strftime_now`.
    pub(super) now: Moment,
    blocks: HashMap<Rc<str>, Rc<BlockDef>>,
    /// Texts of filter blocks, which their filters have not taken yet.
    pub(super) operands: Vec<Value>,
}

impl Interp {
    pub(crate) fn new(now: Moment) -> Interp {
        Interp {
            out: String::new(),
            level: 0,
            is_escaping: false,
            now,
            blocks: HashMap::new(),
            operands: Vec::new(),
        }
    }

    /// Renders a template with some variables.
    pub(crate) fn render(&mut self, body: &Body, variables: &Rc<Scope>) -> Res<String> {
        self.find_blocks(body);
        self.run(body, variables)?;
        Ok(std::mem::take(&mut self.out))
    }

    fn find_blocks(&mut self, body: &Body) {
        for stmt in body {
            match &stmt.kind {
                StmtKind::Block(def) => {
                    self.blocks.insert(Rc::clone(&def.name), Rc::clone(def));
                    self.find_blocks(&def.body);
                }
                StmtKind::If(branches, otherwise) => {
                    branches.iter().for_each(|(_, body)| self.find_blocks(body));
                    self.find_blocks(otherwise);
                }
                StmtKind::For(def) => {
                    self.find_blocks(&def.body);
                    self.find_blocks(&def.otherwise);
                }
                StmtKind::With(_, body)
                | StmtKind::FilterBlock(_, body)
                | StmtKind::SetBlock(_, _, body)
                | StmtKind::AutoEscape(_, body) => self.find_blocks(body),
                StmtKind::Macro(def) | StmtKind::Generation(def) | StmtKind::CallBlock(def, _) => {
                    self.find_blocks(&def.body);
                }
                _ => {}
            }
        }
    }

    /// Enters a level: takes a step, and checks the bound.
    pub(super) fn enter(&mut self) -> Res<()> {
        fault::spend(1)?;
        if self.level == LEVELS {
            return Err(TemplateFault::limit(format!(
                "its recursion goes deeper than {LEVELS} levels"
            )));
        }
        self.level += 1;
        Ok(())
    }

    pub(super) fn leave(&mut self) {
        self.level -= 1;
    }

    fn write(&mut self, text: &str) -> Res<()> {
        if self.out.len() + text.len() > fault::TEXT_BYTES {
            return Err(TemplateFault::limit(format!(
                "it writes more than {} bytes",
                fault::TEXT_BYTES
            )));
        }
        fault::text(text.len())?;
        self.out.push_str(text);
        Ok(())
    }

    fn print(&mut self, value: &Value) -> Res<()> {
        match value {
            Value::Str(text) if !self.is_escaping || text.is_markup => self.write(&text.text),
            Value::Str(text) => self.write(&escaped(&text.text)),
            other => {
                let text = repr::to_str(other)?;
                match self.is_escaping {
                    true => self.write(&escaped(&text)),
                    false => self.write(&text),
                }
            }
        }
    }

    /// Prints the result of a filter or a call on a block: it must be a text, because Jinja2 does not
    /// convert other values here.
    fn print_text(&mut self, value: &Value) -> Res<()> {
        match value {
            Value::Str(text) => self.write(&text.text),
            other => Err(TemplateFault::type_error(format!(
                "the block makes a value of type {}, and needs a text",
                other.type_name()
            ))),
        }
    }

    /// The output of `work`, as a value.
    pub(super) fn captured(&mut self, work: impl FnOnce(&mut Interp) -> Res<()>) -> Res<Value> {
        let outer = std::mem::take(&mut self.out);
        let result = work(self);
        let text = std::mem::replace(&mut self.out, outer);
        result.map(|()| Value::text(text, self.is_escaping))
    }

    pub(crate) fn run(&mut self, body: &[Stmt], scope: &Rc<Scope>) -> Res<StatementFlow> {
        for stmt in body {
            self.enter()?;
            let flow = self.statement(stmt, scope);
            self.leave();
            match flow.map_err(|fault| fault.at(stmt.line))? {
                StatementFlow::Next => {}
                other => return Ok(other),
            }
        }
        Ok(StatementFlow::Next)
    }

    fn statement(&mut self, stmt: &Stmt, scope: &Rc<Scope>) -> Res<StatementFlow> {
        match &stmt.kind {
            StmtKind::Data(text) => self.write(text)?,
            StmtKind::Print(all) => {
                for expr in all {
                    let value = self.eval(expr, scope)?;
                    self.print(&value)?;
                }
            }
            StmtKind::If(branches, otherwise) => {
                for (test, body) in branches {
                    if self.eval(test, scope)?.is_true() {
                        return self.run(body, scope);
                    }
                }
                return self.run(otherwise, scope);
            }
            StmtKind::For(def) => {
                let items = self.eval(&def.iter, scope)?.iterate()?;
                self.run_loop(def, items, scope, 0)?;
            }
            StmtKind::Set(target, value) => {
                let value = self.eval(value, scope)?;
                assign(target, value, scope)?;
            }
            StmtKind::SetBlock(target, filter, body) => {
                let value = self.block_value(filter.as_ref(), body, scope)?;
                assign(target, value, scope)?;
            }
            StmtKind::Macro(def) => {
                if let Some(name) = &def.name {
                    let (def, around) = (Rc::clone(def), Rc::clone(scope));
                    let value = Object::Macro(Macro { def, scope: around });
                    scope.set(name, Value::object(value));
                }
            }
            StmtKind::FilterBlock(filter, body) => {
                let value = self.block_value(Some(filter), body, scope)?;
                self.print_text(&value)?;
            }
            StmtKind::Load(what) => {
                return Err(TemplateFault::new(
                    FaultKind::Template,
                    format!("{what}: there are no other templates to load"),
                ));
            }
            StmtKind::Break => return Ok(StatementFlow::Break),
            StmtKind::Continue => return Ok(StatementFlow::Continue),
            _ => return self.framed(stmt, scope),
        }
        Ok(StatementFlow::Next)
    }

    /// Statements whose bodies have separate variables.
    fn framed(&mut self, stmt: &Stmt, scope: &Rc<Scope>) -> Res<StatementFlow> {
        match &stmt.kind {
            StmtKind::With(values, body) => {
                let inner = Scope::inside(scope);
                for (target, value) in values {
                    let value = self.eval(value, scope)?;
                    assign(target, value, &inner)?;
                }
                self.run(body, &inner)
            }
            StmtKind::AutoEscape(on, body) => {
                let on = self.eval(on, scope)?.is_true();
                let before = std::mem::replace(&mut self.is_escaping, on);
                let flow = self.run(body, &Scope::inside(scope));
                self.is_escaping = before;
                flow
            }
            StmtKind::Generation(def) => {
                self.run(&def.body, &Scope::inside(scope))?;
                Ok(StatementFlow::Next)
            }
            StmtKind::CallBlock(def, call) => {
                let (def, around) = (Rc::clone(def), Rc::clone(scope));
                let caller = Value::object(Object::Macro(Macro { def, scope: around }));
                let value = self.eval_call_block(call, caller, scope)?;
                self.print_text(&value)?;
                Ok(StatementFlow::Next)
            }
            StmtKind::Block(def) => {
                if def.is_required {
                    let reason = format!("the block \"{}\" is required", def.name);
                    return Err(TemplateFault::new(FaultKind::Template, reason));
                }
                // A block sees the template's variables, and those around it only if it is marked `scoped`.
                let around = match def.is_scoped {
                    true => Rc::clone(scope),
                    false => scope.outermost(),
                };
                self.run(&def.body, &Scope::inside(&around))?;
                Ok(StatementFlow::Next)
            }
            _ => Ok(StatementFlow::Next),
        }
    }

    /// The text of a block of the template.
    pub(super) fn block_text(&mut self, name: &str, scope: &Rc<Scope>) -> Res<Value> {
        let Some(def) = self.blocks.get(name).cloned() else {
            return Err(TemplateFault::new(
                FaultKind::Undefined,
                format!("there is no block called \"{name}\""),
            ));
        };
        let inner = Scope::inside(&scope.outermost());
        self.enter()?;
        let text = self.captured(|interp| interp.run(&def.body, &inner).map(|_| ()));
        self.leave();
        text
    }

    fn block_value(&mut self, filter: Option<&Expr>, body: &Body, scope: &Rc<Scope>) -> Res<Value> {
        let inner = Scope::inside(scope);
        let text = self.captured(|interp| interp.run(body, &inner).map(|_| ()))?;
        let Some(filter) = filter else {
            return Ok(text);
        };
        self.operands.push(text);
        self.eval(filter, &inner)
    }

    /// A loop over some values, in the variables around it.
    pub(super) fn run_loop(
        &mut self,
        def: &Rc<ForLoop>,
        items: Vec<Value>,
        scope: &Rc<Scope>,
        level: usize,
    ) -> Res<()> {
        let items = match &def.test {
            None => items,
            Some(test) => {
                let mut kept = Vec::new();
                for item in items {
                    let inner = Scope::inside(scope);
                    assign(&def.target, item.clone(), &inner)?;
                    if self.eval(test, &inner)?.is_true() {
                        kept.push(item);
                    }
                }
                kept
            }
        };
        let n = items.len();
        let state = Value::object(Object::Loop(LoopState::new(def, items, level, scope)?));
        // A body that was left early does not count, as in Jinja2.
        let mut has_run = false;
        for at in 0..n {
            let inner = Scope::inside(scope);
            if let Value::Object(object) = &state
                && let Object::Loop(state) = &**object
            {
                state.at.set(at);
                assign(&def.target, state.items[at].clone(), &inner)?;
            }
            inner.set(&Rc::from("loop"), state.clone());
            match self.run(&def.body, &inner)? {
                StatementFlow::Next => has_run = true,
                StatementFlow::Continue => {}
                StatementFlow::Break => break,
            }
        }
        if !has_run {
            self.run(&def.otherwise, &Scope::inside(scope))?;
        }
        Ok(())
    }
}

/// Assigns to a name, to several, or to an attribute of a namespace.
fn assign(target: &AssignTarget, value: Value, scope: &Rc<Scope>) -> Res<()> {
    match target {
        AssignTarget::Name(name) => scope.set(name, value),
        AssignTarget::Attr(name, attr) => {
            let found = scope.get(name);
            let Some(Value::Object(object)) = found else {
                return Err(TemplateFault::new(
                    FaultKind::Template,
                    format!("cannot assign an attribute of '{name}': it is no namespace"),
                ));
            };
            let Object::Namespace(namespace) = &*object else {
                return Err(TemplateFault::new(
                    FaultKind::Template,
                    format!("cannot assign an attribute of '{name}': it is no namespace"),
                ));
            };
            namespace.set(Rc::clone(attr), value)?;
        }
        AssignTarget::Tuple(targets) => {
            let values = value.iterate()?;
            if values.len() != targets.len() {
                return Err(TemplateFault::value_error(format!(
                    "{} values for {} names",
                    values.len(),
                    targets.len()
                )));
            }
            for (target, value) in targets.iter().zip(values) {
                assign(target, value, scope)?;
            }
        }
    }
    Ok(())
}
