//! Waiting for complete answers.

use super::{AnswerPiece, FunctionCall, Generation, Reason};
use crate::api::error::ApiError;
use crate::scheduler::{PromptToken, Receipt, TokenLogprob};

/// All results of a job.
pub(crate) struct CompleteAnswers {
    pub(crate) answers: Vec<Answer>,
    /// Log-probabilities of the prompt; empty if they were not requested.
    pub(crate) prompt: Vec<PromptToken>,
    pub(crate) receipt: Receipt,
}

/// A complete answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    /// Text of the model's thoughts.
    pub(crate) thought: String,
    pub(crate) text: String,
    pub(crate) tokens: Vec<TokenLogprob>,
    pub(crate) calls: Vec<FunctionCall>,
    pub(crate) reason: Option<Reason>,
    pub(crate) stop_text: Option<String>,
}

impl Generation {
    /// Waits for all answers.
    pub(crate) async fn complete(self) -> Result<(Vec<Answer>, Receipt), ApiError> {
        let complete = self.complete_scored().await?;
        Ok((complete.answers, complete.receipt))
    }

    /// As [`Generation::complete`], with log-probabilities of the prompt.
    pub(crate) async fn complete_scored(mut self) -> Result<CompleteAnswers, ApiError> {
        let mut answers: Vec<Answer> = Vec::new();
        let mut prompt = Vec::new();
        let grow = |answers: &mut Vec<Answer>, choice: usize| {
            if answers.len() <= choice {
                answers.resize_with(choice + 1, Answer::default);
            }
        };
        while let Some(piece) = self.next().await? {
            match piece {
                AnswerPiece::Progress { .. }
                | AnswerPiece::CallBegin { .. }
                | AnswerPiece::CallDelta { .. } => {}
                AnswerPiece::PromptScores(tokens) => prompt = tokens,
                AnswerPiece::CallCut { choice, text } => {
                    grow(&mut answers, choice);
                    answers[choice].text += &text;
                }
                AnswerPiece::Delta {
                    choice,
                    text,
                    tokens,
                } => {
                    grow(&mut answers, choice);
                    answers[choice].text += &text;
                    answers[choice].tokens.extend(tokens);
                }
                AnswerPiece::Thought { choice, text } => {
                    grow(&mut answers, choice);
                    answers[choice].thought += &text;
                }
                AnswerPiece::Call { choice, call } => {
                    grow(&mut answers, choice);
                    answers[choice].calls.push(call);
                }
                AnswerPiece::Finish {
                    choice,
                    reason,
                    stop_text,
                } => {
                    grow(&mut answers, choice);
                    answers[choice].reason = Some(reason);
                    answers[choice].stop_text = stop_text;
                }
                AnswerPiece::End(receipt) => {
                    return Ok(CompleteAnswers {
                        answers,
                        prompt,
                        receipt: *receipt,
                    });
                }
            }
        }
        Err(crate::scheduler::JobFailure::Engine("the answer has no end".to_owned()).into())
    }
}
