//! Expressions.

use super::args::Args;
use super::ast::{CallArgs, CompareOp, Expr, ExprKind};
use super::call::BuiltinFunction;
use super::dict::Dict;
use super::fault::{self, FaultKind, Res, TemplateFault};
use super::interp::Interp;
use super::markup::escaped;
use super::scope::Scope;
use super::value::{Object, Value};
use super::{access, compare, filters, ops, predicates, repr};
use std::cmp::Ordering;
use std::rc::Rc;

impl Interp {
    /// The value of an expression.
    pub(crate) fn eval(&mut self, expr: &Expr, scope: &Rc<Scope>) -> Res<Value> {
        self.enter()?;
        let value = self.eval_kind(expr, scope);
        self.leave();
        value.map_err(|fault| fault.at(expr.line))
    }

    fn eval_kind(&mut self, expr: &Expr, scope: &Rc<Scope>) -> Res<Value> {
        match &expr.kind {
            ExprKind::Const(value) => Ok(value.clone()),
            ExprKind::Name(name) => Ok(self.variable(name, scope)),
            ExprKind::Attr(object, name) => {
                let object = self.eval(object, scope)?;
                access::attribute(&object, name)
            }
            ExprKind::Item(pair) => self.eval_item(&pair[0], &pair[1], scope),
            ExprKind::Call(callee, args) => {
                let callee = self.eval(callee, scope)?;
                let args = self.eval_args(args, scope)?;
                self.call(&callee, args)
            }
            ExprKind::Filter(operand, name, args) => {
                let operand = match operand {
                    Some(operand) => self.eval(operand, scope)?,
                    None => self.operands.pop().unwrap_or(Value::None),
                };
                let args = self.eval_args(args, scope)?;
                filters::call(self, name, operand, args)
            }
            ExprKind::Test(operand, name, args) => {
                let operand = self.eval(operand, scope)?;
                let args = self.eval_args(args, scope)?;
                predicates::call(name, &operand, args).map(Value::Bool)
            }
            ExprKind::And(pair) => {
                let left = self.eval(&pair[0], scope)?;
                match left.is_true() {
                    true => self.eval(&pair[1], scope),
                    false => Ok(left),
                }
            }
            ExprKind::Or(pair) => {
                let left = self.eval(&pair[0], scope)?;
                match left.is_true() {
                    true => Ok(left),
                    false => self.eval(&pair[1], scope),
                }
            }
            ExprKind::Not(value) => Ok(Value::Bool(!self.eval(value, scope)?.is_true())),
            ExprKind::Cond(pair, otherwise) => {
                match (self.eval(&pair[0], scope)?.is_true(), otherwise) {
                    (true, _) => self.eval(&pair[1], scope),
                    (false, Some(otherwise)) => self.eval(otherwise, scope),
                    (false, None) => Ok(Value::undefined(
                        "the inline if-expression evaluated to false and no else section was defined",
                    )),
                }
            }
            _ => self.eval_operator(expr, scope),
        }
    }

    fn eval_operator(&mut self, expr: &Expr, scope: &Rc<Scope>) -> Res<Value> {
        match &expr.kind {
            ExprKind::Binary(op, pair) => {
                let left = self.eval(&pair[0], scope)?;
                let right = self.eval(&pair[1], scope)?;
                ops::binary(*op, &left, &right)
            }
            ExprKind::Neg(value) => ops::signed(&self.eval(value, scope)?, true),
            ExprKind::Pos(value) => ops::signed(&self.eval(value, scope)?, false),
            ExprKind::Concat(all) => self.eval_concat(all, scope),
            ExprKind::Compare(first, rest) => self.eval_compare(first, rest, scope),
            ExprKind::List(all) => Value::list(self.eval_all(all, scope)?),
            ExprKind::Tuple(all) => Value::tuple(self.eval_all(all, scope)?),
            ExprKind::Dict(pairs) => {
                let mut values = Vec::with_capacity(pairs.len());
                for (key, value) in pairs {
                    values.push((self.eval(key, scope)?, self.eval(value, scope)?));
                }
                Ok(Value::Dict(Rc::new(Dict::new(values)?)))
            }
            _ => Err(TemplateFault::new(
                FaultKind::Template,
                "a slice stands only in brackets",
            )),
        }
    }

    fn eval_all(&mut self, all: &[Expr], scope: &Rc<Scope>) -> Res<Vec<Value>> {
        all.iter().map(|expr| self.eval(expr, scope)).collect()
    }

    fn variable(&self, name: &Rc<str>, scope: &Rc<Scope>) -> Value {
        if let Some(value) = scope.get(name) {
            return value;
        }
        if let Some(function) = BuiltinFunction::named(name) {
            return Value::object(Object::Function(function));
        }
        match &**name {
            "self" => Value::object(Object::Template(scope.outermost())),
            _ => Value::undefined(format!("'{name}' is undefined")),
        }
    }

    fn eval_item(&mut self, object: &Expr, key: &Expr, scope: &Rc<Scope>) -> Res<Value> {
        let object = self.eval(object, scope)?;
        let ExprKind::Slice(parts) = &key.kind else {
            let key = self.eval(key, scope)?;
            return access::item(&object, &key);
        };
        let mut values = [None, None, None];
        for (value, part) in values.iter_mut().zip(parts.iter()) {
            if let Some(part) = part {
                *value = Some(self.eval(part, scope)?);
            }
        }
        access::slice(&object, values)
    }

    fn eval_concat(&mut self, all: &[Expr], scope: &Rc<Scope>) -> Res<Value> {
        let values = self.eval_all(all, scope)?;
        let is_markup = self.is_escaping && values.iter().any(Value::is_markup);
        let mut out = String::new();
        for value in &values {
            match value {
                Value::Str(text) if !is_markup || text.is_markup => {
                    fault::text(out.len() + text.text.len())?;
                    out.push_str(&text.text);
                }
                other if is_markup => out.push_str(&escaped(&repr::to_str(other)?)),
                other => out.push_str(&repr::to_str(other)?),
            }
            fault::text(out.len())?;
        }
        Ok(Value::text(out, is_markup))
    }

    fn eval_compare(
        &mut self,
        first: &Expr,
        rest: &[(CompareOp, Expr)],
        scope: &Rc<Scope>,
    ) -> Res<Value> {
        let mut left = self.eval(first, scope)?;
        for (op, right) in rest {
            let right = self.eval(right, scope)?;
            if !compared(*op, &left, &right)? {
                return Ok(Value::Bool(false));
            }
            left = right;
        }
        Ok(Value::Bool(true))
    }

    pub(super) fn eval_args(&mut self, args: &CallArgs, scope: &Rc<Scope>) -> Res<Args> {
        let mut values = Args {
            positional: self.eval_all(&args.positional, scope)?,
            named: Vec::with_capacity(args.named.len()),
        };
        for (name, value) in &args.named {
            let value = self.eval(value, scope)?;
            values.named.push((Rc::clone(name), value));
        }
        if let Some(more) = &args.more {
            values.positional.extend(self.eval(more, scope)?.iterate()?);
        }
        if let Some(more) = &args.more_named {
            let Value::Dict(dict) = self.eval(more, scope)? else {
                return Err(TemplateFault::type_error(
                    "argument after ** must be a mapping",
                ));
            };
            for (name, value) in dict.iter() {
                let Value::Str(name) = name else {
                    return Err(TemplateFault::type_error("keywords must be strings"));
                };
                if values.named.iter().any(|(known, _)| *known == name.text) {
                    return Err(TemplateFault::type_error(format!(
                        "got multiple values for keyword argument '{}'",
                        name.text
                    )));
                }
                values.named.push((Rc::clone(&name.text), value.clone()));
            }
        }
        Ok(values)
    }

    /// A call with an additional argument: the block behind it.
    pub(super) fn eval_call_block(
        &mut self,
        call: &Expr,
        caller: Value,
        scope: &Rc<Scope>,
    ) -> Res<Value> {
        let ExprKind::Call(callee, args) = &call.kind else {
            return Err(TemplateFault::new(
                FaultKind::Template,
                "a call block needs a call",
            ));
        };
        let callee = self.eval(callee, scope)?;
        let mut args = self.eval_args(args, scope)?;
        args.named.push((Rc::from("caller"), caller));
        self.call(&callee, args)
    }
}

/// One comparison.
pub(crate) fn compared(op: CompareOp, a: &Value, b: &Value) -> Res<bool> {
    let ordered =
        |symbol, is: fn(Ordering) -> bool| Ok(compare::order(a, b, symbol)?.is_some_and(is));
    match op {
        CompareOp::Eq => Ok(compare::equal(a, b)),
        CompareOp::Ne => Ok(!compare::equal(a, b)),
        CompareOp::Lt => ordered("<", Ordering::is_lt),
        CompareOp::Le => ordered("<=", Ordering::is_le),
        CompareOp::Gt => ordered(">", Ordering::is_gt),
        CompareOp::Ge => ordered(">=", Ordering::is_ge),
        CompareOp::In => compare::contains(b, a),
        CompareOp::NotIn => compare::contains(b, a).map(|is| !is),
    }
}
