//! Checks of a tree before it runs: filters and tests that do not exist, and the special names that
//! the body of a macro uses.

use super::ast::{AssignTarget, Body, CallArgs, Expr, ExprKind, MacroDef, Stmt, StmtKind};
use super::lexer::SyntaxFault;
use super::{filters, predicates};
use std::rc::Rc;

impl CallArgs {
    fn each(&self, visit: &mut dyn FnMut(&Expr)) {
        self.positional.iter().for_each(&mut *visit);
        self.named.iter().for_each(|(_, value)| visit(value));
        self.more.iter().chain(&self.more_named).for_each(visit);
    }
}

impl Expr {
    /// The direct subexpressions of this one, in the order of the source.
    fn each_child(&self, visit: &mut dyn FnMut(&Expr)) {
        match &self.kind {
            ExprKind::Const(_) | ExprKind::Name(_) => {}
            ExprKind::List(all) | ExprKind::Tuple(all) | ExprKind::Concat(all) => {
                all.iter().for_each(visit);
            }
            ExprKind::Dict(pairs) => pairs.iter().for_each(|(key, value)| {
                visit(key);
                visit(value);
            }),
            ExprKind::Neg(one) | ExprKind::Pos(one) | ExprKind::Not(one) => visit(one),
            ExprKind::Attr(one, _) => visit(one),
            ExprKind::And(two) | ExprKind::Or(two) | ExprKind::Binary(_, two) => {
                two.iter().for_each(visit);
            }
            ExprKind::Item(two) => two.iter().for_each(visit),
            ExprKind::Compare(first, rest) => {
                visit(first);
                rest.iter().for_each(|(_, value)| visit(value));
            }
            ExprKind::Cond(two, otherwise) => {
                two.iter().for_each(&mut *visit);
                otherwise.iter().for_each(|value| visit(value));
            }
            ExprKind::Slice(parts) => parts.iter().flatten().for_each(visit),
            ExprKind::Call(callee, args) => {
                visit(callee);
                args.each(visit);
            }
            ExprKind::Filter(value, _, args) => {
                value.iter().for_each(|value| visit(value));
                args.each(visit);
            }
            ExprKind::Test(value, _, args) => {
                visit(value);
                args.each(visit);
            }
        }
    }
}

/// Refuses filters and tests that do not exist. Behind a condition they are an error only when they
/// are reached, so that a template may test for them first.
pub(super) fn names_are_known(body: &Body) -> Result<(), SyntaxFault> {
    body.iter().try_for_each(|stmt| known_in(stmt, false))
}

fn known_in(stmt: &Stmt, is_soft: bool) -> Result<(), SyntaxFault> {
    let expr = |expr: &Expr| known(expr, is_soft);
    let within = |body: &Body, is_soft| body.iter().try_for_each(|stmt| known_in(stmt, is_soft));
    match &stmt.kind {
        StmtKind::Data(_) | StmtKind::Break | StmtKind::Continue | StmtKind::Load(_) => Ok(()),
        StmtKind::Print(all) => all.iter().try_for_each(expr),
        StmtKind::If(branches, otherwise) => {
            for (test, body) in branches {
                known(test, true)?;
                within(body, true)?;
            }
            within(otherwise, true)
        }
        StmtKind::For(def) => {
            expr(&def.iter)?;
            def.test.iter().try_for_each(|test| known(test, false))?;
            within(&def.body, false)?;
            within(&def.otherwise, false)
        }
        StmtKind::Set(_, value) => expr(value),
        StmtKind::SetBlock(_, filter, body) => {
            filter.iter().try_for_each(|filter| known(filter, false))?;
            within(body, false)
        }
        StmtKind::Macro(def) | StmtKind::Generation(def) => known_in_macro(def),
        StmtKind::CallBlock(def, call) => {
            expr(call)?;
            known_in_macro(def)
        }
        StmtKind::FilterBlock(filter, body) => {
            known(filter, false)?;
            within(body, false)
        }
        StmtKind::With(values, body) => {
            values.iter().try_for_each(|(_, value)| expr(value))?;
            within(body, false)
        }
        StmtKind::AutoEscape(on, body) => {
            expr(on)?;
            within(body, false)
        }
        StmtKind::Block(def) => within(&def.body, false),
    }
}

fn known_in_macro(def: &MacroDef) -> Result<(), SyntaxFault> {
    def.defaults
        .iter()
        .try_for_each(|value| known(value, false))?;
    def.body.iter().try_for_each(|stmt| known_in(stmt, false))
}

fn known(expr: &Expr, is_soft: bool) -> Result<(), SyntaxFault> {
    let missing = match &expr.kind {
        ExprKind::Filter(_, name, _) if !is_soft && !filters::is_known(name) => {
            Some(("filter", name))
        }
        ExprKind::Test(_, name, _) if !is_soft && !predicates::is_known(name) => {
            Some(("test", name))
        }
        _ => None,
    };
    if let Some((what, name)) = missing {
        return Err(SyntaxFault {
            message: format!("no {what} is called \"{name}\""),
            line: expr.line,
        });
    }
    let is_soft = is_soft || matches!(expr.kind, ExprKind::Cond(..));
    let mut result = Ok(());
    expr.each_child(&mut |child| {
        if result.is_ok() {
            result = known(child, is_soft);
        }
    });
    result
}

/// A macro with the special names that its body reads.
pub(super) fn macro_def(
    name: Option<Rc<str>>,
    params: Vec<Rc<str>>,
    defaults: Vec<Expr>,
    body: Body,
) -> Result<MacroDef, &'static str> {
    let mut uses = SpecialNames {
        wanted: vec!["caller", "kwargs", "varargs"],
        read: Vec::new(),
    };
    uses.body(&body);
    let reads = |name: &str| uses.read.contains(&name);
    let n_required = params.len() - defaults.len();
    if reads("caller") && params[..n_required].iter().any(|name| &**name == "caller") {
        return Err("the parameter \"caller\" needs a default");
    }
    Ok(MacroDef {
        takes_caller: reads("caller") && !params.iter().any(|name| &**name == "caller"),
        takes_named: reads("kwargs"),
        takes_more: reads("varargs"),
        name,
        params,
        defaults,
        body,
    })
}

/// Special names that are read before anything is assigned to them.
struct SpecialNames {
    wanted: Vec<&'static str>,
    read: Vec<&'static str>,
}

impl SpecialNames {
    fn body(&mut self, body: &Body) {
        body.iter().for_each(|stmt| self.stmt(stmt));
    }

    fn expr(&mut self, expr: &Expr) {
        if let ExprKind::Name(name) = &expr.kind {
            let wanted = self.wanted.iter().find(|wanted| **wanted == &**name);
            self.read.extend(wanted);
        }
        expr.each_child(&mut |child| self.expr(child));
    }

    fn assign(&mut self, target: &AssignTarget) {
        match target {
            AssignTarget::Name(name) => self.wanted.retain(|wanted| *wanted != &**name),
            AssignTarget::Attr(..) => {}
            AssignTarget::Tuple(all) => all.iter().for_each(|target| self.assign(target)),
        }
    }

    fn stmt(&mut self, stmt: &Stmt) {
        match &stmt.kind {
            StmtKind::Data(_) | StmtKind::Break | StmtKind::Continue | StmtKind::Load(_) => {}
            StmtKind::Block(_) => {}
            StmtKind::Print(all) => all.iter().for_each(|expr| self.expr(expr)),
            StmtKind::If(branches, otherwise) => {
                for (test, body) in branches {
                    self.expr(test);
                    self.body(body);
                }
                self.body(otherwise);
            }
            StmtKind::For(def) => {
                self.assign(&def.target);
                self.expr(&def.iter);
                self.body(&def.body);
                self.body(&def.otherwise);
                def.test.iter().for_each(|test| self.expr(test));
            }
            StmtKind::Set(target, value) => {
                self.assign(target);
                self.expr(value);
            }
            StmtKind::SetBlock(target, filter, body) => {
                self.assign(target);
                filter.iter().for_each(|filter| self.expr(filter));
                self.body(body);
            }
            StmtKind::Macro(def) | StmtKind::Generation(def) => self.macro_def(def),
            StmtKind::CallBlock(def, call) => {
                self.expr(call);
                self.macro_def(def);
            }
            StmtKind::FilterBlock(filter, body) => {
                self.body(body);
                self.expr(filter);
            }
            StmtKind::With(values, body) => {
                values.iter().for_each(|(target, _)| self.assign(target));
                values.iter().for_each(|(_, value)| self.expr(value));
                self.body(body);
            }
            StmtKind::AutoEscape(on, body) => {
                self.expr(on);
                self.body(body);
            }
        }
    }

    fn macro_def(&mut self, def: &MacroDef) {
        let params = def.params.iter();
        params.for_each(|name| self.wanted.retain(|wanted| *wanted != &**name));
        def.defaults.iter().for_each(|value| self.expr(value));
        self.body(&def.body);
    }
}
