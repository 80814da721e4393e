//! A first trial of a grammar, where it can do no harm.
//!
//! The grammar compiler counts its work, but not within a step, and a single step can take very long. The
//! intersection of twenty expressions has a million parts. A program that serves untrusted clients therefore has each
//! grammar tried first in another process, whose memory and time the system limits ([`try_grammars_with`]). There it
//! is compiled for a small vocabulary. Its lexer is explored in all directions up to a limit, and some texts of it
//! are written.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use llguidance::TokenParser;
use llguidance::earley::lexerspec::LexemeIdx;
use llguidance::toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory};
use serde::{Deserialize, Serialize};

use super::Grammar;
use super::compiler::{GrammarFault, STACK_BYTES, limits};

/// Stack of a trial: half of the stack that the same grammar gets afterwards.
const TRIAL_STACK_BYTES: usize = STACK_BYTES / 2;

/// Maximum number of lexer states explored, over all lexemes, and the cost limit for deriving them, in llguidance's
/// units of fuel: about a tenth of a second.
const MAX_STATES: usize = 4_000;
const MAX_COST: u64 = 600_000;

/// Number of texts written, and bytes of each.
const N_TEXTS: u64 = 3;
const TEXT_BYTES: usize = 160;

/// Time after which no more states are explored, and no more text is written. A grammar that is slow here is not fast
/// afterwards, so this only avoids the process limit.
const WALK_TIME: Duration = Duration::from_secs(1);

/// A grammar to be tried.
#[derive(Debug, Serialize, Deserialize)]
pub struct GrammarTrial {
    pub(super) grammar: Grammar,
}

/// Result of a [`GrammarTrial`].
#[derive(Debug, Serialize, Deserialize)]
pub enum TrialReply {
    /// No fault was found.
    Passed,
    /// The grammar does not compile.
    Bad(String),
    /// It exceeded a limit, and would do so again.
    TooHard(String),
    /// It could not be tried, or not in time, possibly due to the machine.
    Untried(String),
    /// No client waits for it any more.
    GivenUp,
}

impl GrammarTrial {
    #[cfg(test)]
    pub(crate) fn of(grammar: Grammar) -> GrammarTrial {
        GrammarTrial { grammar }
    }

    /// Tries the grammar in this process, on a separate thread. Time and memory are not limited.
    pub fn run(&self) -> TrialReply {
        let grammar = self.grammar.clone();
        let thread = std::thread::Builder::new()
            .name("grammar trial".to_owned())
            .stack_size(TRIAL_STACK_BYTES)
            .spawn(move || attempt(&grammar, WALK_TIME));
        match thread.map(std::thread::JoinHandle::join) {
            Ok(Ok(reply)) => reply,
            Ok(Err(_)) => TrialReply::Bad("the compiler of grammars gave up on it".to_owned()),
            Err(error) => TrialReply::Untried(format!("no thread for it: {error}")),
        }
    }
}

/// Tries a grammar on this thread; exploring its states and writing its texts take at most `walk_time` each.
pub(super) fn attempt(grammar: &Grammar, walk_time: Duration) -> TrialReply {
    let bad = |fault: GrammarFault| TrialReply::Bad(fault.to_string());
    let mut parsers = match ParserFactory::new_simple(&vocabulary()) {
        Ok(parsers) => parsers,
        Err(error) => return TrialReply::Untried(error.to_string()),
    };
    parsers.quiet();
    limits(&mut parsers);
    let parser = match parsers.create_parser(grammar.without_tokens().source()) {
        Ok(parser) => parser,
        Err(error) => return bad(GrammarFault::of(&error)),
    };
    let walked = walk_lexer(&parsers, &parser, walk_time);
    let mut matcher = Matcher::new(Ok(parser));
    if let Err(error) = matcher.compute_mask() {
        return bad(GrammarFault::of(&error));
    }
    let written = walked.and_then(|()| {
        let end = Instant::now() + walk_time;
        (0..N_TEXTS).try_for_each(|seed| write_text(matcher.clone(), seed, end))
    });
    match written {
        Ok(()) => TrialReply::Passed,
        // The contradiction follows other text, such as the name of a function.
        Err(fault @ GrammarFault::NoText) => bad(fault),
        Err(GrammarFault::Words(reason)) => TrialReply::TooHard(reason),
    }
}

/// Bytes, the end of an answer, and runs of one letter. They go as far into repetitions as a real vocabulary's
/// tokens.
fn vocabulary() -> TokEnv {
    let mut words: Vec<Vec<u8>> = (0..=u8::MAX).map(|byte| vec![byte]).collect();
    let end = words.len() as u32;
    words.push(Vec::new());
    for letter in b' '..=b'~' {
        words.extend([2, 4, 8, 16].map(|n| vec![letter; n]));
    }
    let info = TokRxInfo::new(words.len() as u32, end);
    Arc::new(ApproximateTokEnv::new(TokTrie::from(&info, &words)))
}

/// Explores the states of each lexeme, breadth first. This reaches problems that the compiler's first look misses
/// since they follow other text.
fn walk_lexer(
    parsers: &ParserFactory,
    parser: &TokenParser,
    walk_time: Duration,
) -> Result<(), GrammarFault> {
    let end = Instant::now() + walk_time;
    let mut left = MAX_STATES;
    let spec = parser.parser.grammar().lexer_spec();
    let mut lexer_limits = parsers.limits().clone();
    let Ok(mut lexer) = spec.to_regex_vec(&mut lexer_limits) else {
        // The parser has one already; exceeding the limit a second time is not a fault.
        return Ok(());
    };
    let first_cost = lexer.total_fuel_spent();
    for lexeme in 0..spec.lexemes.len() {
        let mut only = spec.alloc_lexeme_set();
        only.add(LexemeIdx::new(lexeme));
        let mut states = vec![lexer.initial_state(&only)];
        let mut seen: std::collections::HashSet<_> = states.iter().copied().collect();
        let mut next = 0;
        // A share for each, so that a large lexeme does not crowd out others.
        let share = left.div_ceil(spec.lexemes.len().min(16)).min(left);
        while next < states.len().min(share) {
            let state = states[next];
            next += 1;
            for byte in 0..=u8::MAX {
                lexer.set_fuel(parsers.limits().step_lexer_fuel);
                let target = lexer.transition(state, byte);
                if let Some(error) = lexer.get_error() {
                    return Err(GrammarFault::Words(error));
                }
                if !target.is_dead() && seen.insert(target) {
                    states.push(target);
                }
            }
            if lexer.total_fuel_spent() - first_cost > MAX_COST || Instant::now() > end {
                return Ok(());
            }
        }
        left -= next.min(left);
        if left == 0 {
            return Ok(());
        }
    }
    Ok(())
}

/// Writes a text of the grammar, choosing bytes by `seed`.
fn write_text(mut matcher: Matcher, seed: u64, end: Instant) -> Result<(), GrammarFault> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for _ in 0..TEXT_BYTES {
        if matcher.is_stopped() || Instant::now() > end {
            return Ok(());
        }
        let mask = matcher.compute_mask();
        let mask = mask.map_err(|error| GrammarFault::of(&error))?;
        let allowed: Vec<u32> = (0..256).filter(|id| mask.is_allowed(*id)).collect();
        if allowed.is_empty() {
            return Ok(());
        }
        // xorshift: any texts will do, as long as they differ.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let choice = match seed {
            // Always the first choice, for repetitions.
            0 => 0,
            _ => (state % allowed.len() as u64) as usize,
        };
        let taken = matcher.consume_token(allowed[choice]);
        taken.map_err(|error| GrammarFault::of(&error))?;
    }
    Ok(())
}

/// Runs a trial elsewhere. It should end the process as soon as the function reports that no client waits.
pub type TryElsewhere = fn(&GrammarTrial, &dyn Fn() -> bool) -> TrialReply;

static ELSEWHERE: OnceLock<TryElsewhere> = OnceLock::new();

/// Sets how every later grammar is tried before it is compiled; only the first call counts. `attempt` should run
/// [`GrammarTrial::run`] in a process with limited memory and time. Without it, grammars are compiled untried. Then
/// only their depth and llguidance's own limits bound them, and an endless one occupies a thread.
pub fn try_grammars_with(attempt: TryElsewhere) {
    let _ = ELSEWHERE.set(attempt);
}

/// Tries a grammar in the way that the program has set.
pub(super) fn try_elsewhere(grammar: &Grammar, is_given_up: &dyn Fn() -> bool) -> TrialReply {
    match ELSEWHERE.get() {
        Some(elsewhere) => {
            let grammar = grammar.clone();
            elsewhere(&GrammarTrial { grammar }, is_given_up)
        }
        None => TrialReply::Passed,
    }
}
