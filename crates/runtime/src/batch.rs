//! Many turns at once, in ragged batches, for callers with a list of prompts.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::Error;
use crate::engine::{BatchItem, Engine, StepOutput};
use crate::generate::{Generation, GenerationEvent, tell_prefill, tell_text};
use crate::kv::PAGE_TOKENS;
use crate::sequences::SeqId;
use crate::turn::Turn;

/// Result of a turn.
type Outcome = Result<Generation, Error>;

/// A turn under way.
struct Member {
    /// Its place among the turns given.
    index: usize,
    seq: SeqId,
    turn: Turn,
    /// Why it cannot go on.
    failure: Option<Error>,
}

/// Completes all turns, as many at a time as the engine has sequences and room; the others wait. Each step computes a token of
/// every answer under way together with chunks of prompts. The generations come in the order of the turns, and each equals the
/// result of [`generate`](crate::generate) for that turn alone. `on_event` gets the index of an event's turn.
///
/// A prompt may begin like one that is still being read. It then waits until that beginning is read, and takes it from the
/// cache. The common part of prompts, in whole pages of [`PAGE_TOKENS`], is thus computed once if the engine keeps prefixes.
///
/// `cancel` is checked between steps: if set, every turn ends with its tokens so far.
///
/// # Errors
/// The first error of a step or a turn: then no turn has a result. [`Error::TooManySequences`] if the engine has no free
/// sequence; [`Error::CacheFull`] if the cache cannot hold one turn alone. All sequences made here are released.
pub fn generate_batch(
    engine: &mut dyn Engine,
    turns: Vec<Turn>,
    cancel: &AtomicBool,
    on_event: &mut dyn FnMut(usize, GenerationEvent<'_>),
) -> Result<Vec<Generation>, Error> {
    generate_each(engine, turns, cancel, on_event)?
        .into_iter()
        .collect()
}

/// As [`generate_batch`], but a turn that fails on its own (logits that are not finite) ends with its error, and the others go on.
///
/// # Errors
/// Errors that concern all turns: of a step, and of sequences. Then no turn has a result.
pub fn generate_each(
    engine: &mut dyn Engine,
    turns: Vec<Turn>,
    cancel: &AtomicBool,
    on_event: &mut dyn FnMut(usize, GenerationEvent<'_>),
) -> Result<Vec<Result<Generation, Error>>, Error> {
    let mut done: Vec<Option<Outcome>> = turns.iter().map(|_| None).collect();
    let mut waiting: Vec<(usize, Turn)> = turns.into_iter().enumerate().rev().collect();
    let mut members = Vec::new();
    let result = drive(
        engine,
        &mut waiting,
        &mut members,
        &mut done,
        cancel,
        on_event,
    );
    for member in members {
        // The sequence was created here, so the engine has it.
        let _ = engine.release(member.seq);
    }
    result?;
    Ok(done.into_iter().flatten().collect())
}

fn drive(
    engine: &mut dyn Engine,
    waiting: &mut Vec<(usize, Turn)>,
    members: &mut Vec<Member>,
    done: &mut [Option<Outcome>],
    cancel: &AtomicBool,
    on_event: &mut dyn FnMut(usize, GenerationEvent<'_>),
) -> Result<(), Error> {
    let mut output = StepOutput::default();
    // After a step is refused for lack of room, no turn is admitted until one leaves.
    let mut may_admit = true;
    loop {
        if may_admit {
            admit(engine, waiting, members)?;
        }
        if cancel.load(Ordering::Relaxed) {
            members.iter_mut().for_each(|member| member.turn.cancel());
            for (index, turn) in waiting.drain(..) {
                done[index] = Some(Ok(turn.into_generation()));
            }
        } else {
            match step(engine, members, &mut output, on_event) {
                Err(Error::CacheFull { .. }) if members.len() > 1 => {
                    // The last turn admitted is computed again later, to the same bits.
                    if let Some(member) = members.pop() {
                        engine.release(member.seq)?;
                        waiting.push((member.index, member.turn));
                    }
                    may_admit = false;
                    continue;
                }
                other => other?,
            }
        }
        let mut at = 0;
        while at < members.len() {
            if members[at].turn.finish().is_none() && members[at].failure.is_none() {
                at += 1;
                continue;
            }
            let mut member = members.remove(at);
            tell_text(&mut member.turn, &mut |event| on_event(member.index, event));
            engine.release(member.seq)?;
            done[member.index] = Some(match member.failure {
                Some(error) => Err(error),
                None => Ok(member.turn.into_generation()),
            });
            may_admit = true;
        }
        if members.is_empty() && waiting.is_empty() {
            return Ok(());
        }
    }
}

/// Begins turns while there are free sequences: next is the first that does not wait for another's prompt.
fn admit(
    engine: &mut dyn Engine,
    waiting: &mut Vec<(usize, Turn)>,
    members: &mut Vec<Member>,
) -> Result<(), Error> {
    let keeps_prefixes = engine.limits().keeps_prefixes;
    // They wait back to front.
    while let Some(at) = waiting
        .iter()
        .rposition(|(_, turn)| !keeps_prefixes || !is_being_read(turn, members))
    {
        let seq = match engine.create() {
            Ok(seq) => seq,
            Err(Error::TooManySequences { .. }) if !members.is_empty() => return Ok(()),
            Err(error) => return Err(error),
        };
        let (index, mut turn) = waiting.remove(at);
        let scope = turn.scope();
        let held = match engine.set_scope(seq, scope) {
            Ok(()) => engine.reuse_prefix(seq, turn.prompt()),
            Err(error) => Err(error),
        };
        match held {
            Ok(n_cached) => turn.resume(n_cached),
            Err(error) => {
                engine.release(seq)?;
                return Err(error);
            }
        }
        members.push(Member {
            index,
            seq,
            turn,
            failure: None,
        });
    }
    Ok(())
}

/// Whether another turn is still reading pages that this turn's prompt begins with too. Reading them at the same time would cost
/// both turns the time. The last token of a prompt is always computed, so its page is never reused.
fn is_being_read(turn: &Turn, members: &[Member]) -> bool {
    let prompt = turn.prompt();
    let most = prompt.len().saturating_sub(1) / PAGE_TOKENS * PAGE_TOKENS;
    members.iter().any(|member| {
        let of_other = member.turn.prompt();
        // Usually the first page not yet read is enough to see that nothing more is shared.
        let end = (member.turn.n_fed() / PAGE_TOKENS + 1) * PAGE_TOKENS;
        member.turn.scope() == turn.scope()
            && end <= most.min(of_other.len())
            && prompt[..end] == of_other[..end]
    })
}

/// One step of all turns: each answer advances by a token, and prompts share the rest of the pass.
fn step(
    engine: &mut dyn Engine,
    members: &mut [Member],
    output: &mut StepOutput,
    on_event: &mut dyn FnMut(usize, GenerationEvent<'_>),
) -> Result<(), Error> {
    let n_answers = members.iter().filter(|m| !m.turn.reads_prompt()).count();
    let mut room = engine.limits().max_chunk.saturating_sub(n_answers);
    let mut taken = Vec::with_capacity(members.len());
    let mut batch = Vec::with_capacity(members.len());
    for (at, member) in members.iter().enumerate() {
        let reads_prompt = member.turn.reads_prompt();
        // One prompt moves on however many answers there are.
        if reads_prompt && room == 0 && !batch.is_empty() {
            continue;
        }
        let most = if reads_prompt { room.max(1) } else { 1 };
        let Some(feed) = member.turn.feed(most) else {
            continue;
        };
        if reads_prompt {
            room = room.saturating_sub(feed.tokens.len());
        }
        let item = BatchItem::new(member.seq, feed.tokens, feed.logits);
        batch.push(item.with_images(member.turn.images()));
        taken.push((at, feed.tokens.len(), reads_prompt));
    }
    if batch.is_empty() {
        return Ok(());
    }
    engine.step(&batch, output)?;
    for (item, (at, n_tokens, reads_prompt)) in taken.into_iter().enumerate() {
        let Member {
            turn,
            index,
            failure,
            ..
        } = &mut members[at];
        turn.fed(n_tokens);
        let row = output.logits(item);
        if !row.is_empty() {
            *failure = turn.push_logits(row).err();
        }
        if reads_prompt {
            tell_prefill(turn, &mut |event| on_event(*index, event));
        }
        tell_text(turn, &mut |event| on_event(*index, event));
    }
    Ok(())
}
