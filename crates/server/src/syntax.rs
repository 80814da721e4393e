//! The syntaxes in which models write thoughts, answers and function calls, one table row for each.
//!
//! Nothing here knows HTTP or the scheduler. A row says how text is parsed and which grammar the model must follow,
//! so both come from one description.

mod around;
mod bare;
mod calls;
mod derive;
mod elements;
mod fit;
mod functionary;
mod grammar;
mod harmony;
mod json;
mod json_text;
mod kinds;
mod lark;
mod messages;
mod preview;
mod python;
mod reader;
mod recipients;
mod rows;
mod shown;
mod tagged;
mod thoughts;
mod unshown;
mod values;
mod ways;
mod write;

#[cfg(test)]
mod tests;

pub(crate) use calls::CallSyntax;
#[cfg(test)]
pub(crate) use calls::by_template;
pub(crate) use grammar::{CallGrammar, Callable};
pub(crate) use kinds::resolved;
pub(crate) use lark::Marks;
pub(crate) use reader::{AnswerPart, AnswerReader, Names};
pub(crate) use rows::GENERIC;
pub(crate) use shown::{EarlierCalls, ShownCalls, shown_calls};
pub(crate) use thoughts::{ThoughtSyntax, thought_syntax};
pub use ways::template_ways;
