//! Templates as trees.

use super::value::Value;
use std::rc::Rc;

#[derive(Debug)]
pub(crate) struct Expr {
    pub(crate) kind: ExprKind,
    pub(crate) line: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BinaryOp {
    Add,
    Sub,
    Mul,
    Div,
    FloorDiv,
    Mod,
    Pow,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CompareOp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    In,
    NotIn,
}

#[derive(Debug)]
pub(crate) enum ExprKind {
    Const(Value),
    Name(Rc<str>),
    List(Vec<Expr>),
    Tuple(Vec<Expr>),
    Dict(Vec<(Expr, Expr)>),
    Neg(Box<Expr>),
    Pos(Box<Expr>),
    Not(Box<Expr>),
    And(Box<[Expr; 2]>),
    Or(Box<[Expr; 2]>),
    Binary(BinaryOp, Box<[Expr; 2]>),
    Concat(Vec<Expr>),
    Compare(Box<Expr>, Vec<(CompareOp, Expr)>),
    /// Test, value, and the value otherwise.
    Cond(Box<[Expr; 2]>, Option<Box<Expr>>),
    Attr(Box<Expr>, Rc<str>),
    Item(Box<[Expr; 2]>),
    Slice(Box<[Option<Expr>; 3]>),
    Call(Box<Expr>, Box<CallArgs>),
    /// Without an operand it is the filter of a block, and takes the block's text.
    Filter(Option<Box<Expr>>, Rc<str>, Box<CallArgs>),
    Test(Box<Expr>, Rc<str>, Box<CallArgs>),
}

/// Arguments as written.
#[derive(Debug, Default)]
pub(crate) struct CallArgs {
    pub(crate) positional: Vec<Expr>,
    pub(crate) named: Vec<(Rc<str>, Expr)>,
    /// `*values`
    pub(crate) more: Option<Expr>,
    /// `**values`
    pub(crate) more_named: Option<Expr>,
}

/// The target of an assignment.
#[derive(Debug)]
pub(crate) enum AssignTarget {
    Name(Rc<str>),
    /// `namespace.attribute`
    Attr(Rc<str>, Rc<str>),
    Tuple(Vec<AssignTarget>),
}

#[derive(Debug)]
pub(crate) struct Stmt {
    pub(crate) kind: StmtKind,
    pub(crate) line: u32,
}

pub(crate) type Body = Vec<Stmt>;

#[derive(Debug)]
pub(crate) enum StmtKind {
    Data(Rc<str>),
    Print(Vec<Expr>),
    If(Vec<(Expr, Body)>, Body),
    For(Rc<ForLoop>),
    Set(AssignTarget, Expr),
    SetBlock(AssignTarget, Option<Expr>, Body),
    Macro(Rc<MacroDef>),
    /// A macro called with another one as its `caller`.
    CallBlock(Rc<MacroDef>, Expr),
    /// `generation`: a function of no arguments that is called at once.
    Generation(Rc<MacroDef>),
    FilterBlock(Expr, Body),
    With(Vec<(AssignTarget, Expr)>, Body),
    AutoEscape(Expr, Body),
    Block(Rc<BlockDef>),
    Break,
    Continue,
    /// `include`, `import`, `from`, `extends`: nothing can be loaded.
    Load(&'static str),
}

#[derive(Debug)]
pub(crate) struct ForLoop {
    pub(crate) target: AssignTarget,
    pub(crate) iter: Expr,
    pub(crate) test: Option<Expr>,
    pub(crate) is_recursive: bool,
    pub(crate) body: Body,
    pub(crate) otherwise: Body,
}

#[derive(Debug)]
pub(crate) struct MacroDef {
    pub(crate) name: Option<Rc<str>>,
    pub(crate) params: Vec<Rc<str>>,
    /// Defaults of the last parameters.
    pub(crate) defaults: Vec<Expr>,
    pub(crate) body: Body,
    pub(crate) takes_caller: bool,
    pub(crate) takes_named: bool,
    pub(crate) takes_more: bool,
}

#[derive(Debug)]
pub(crate) struct BlockDef {
    pub(crate) name: Rc<str>,
    pub(crate) is_scoped: bool,
    pub(crate) is_required: bool,
    pub(crate) body: Body,
}
