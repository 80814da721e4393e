//! Rules for a descriptor's fields.

use super::super::fault::BoardProblem;
use crate::field::{Record, WordField};
use crate::tile::Direction;

/// Fields that have no meaning here, or none at all.
pub(super) fn check(
    record: &Record,
    direction: Direction,
    strict: bool,
) -> Result<(), BoardProblem> {
    if !record.is(WordField::Valid) {
        return Err(BoardProblem::Wrong(
            "the descriptor is not valid".to_owned(),
        ));
    }
    if record.get(WordField::Length) == 0 {
        return Err(BoardProblem::Undefined("a length of 0".to_owned()));
    }
    for field in [
        WordField::Compress,
        WordField::Secure,
        WordField::Smid,
        WordField::AxQos,
    ] {
        if record.is(field) {
            let problem = format!("{} of {}", field.name(), record.get(field));
            return Err(BoardProblem::Undefined(problem));
        }
    }
    // It goes into the header of a packet.
    if record.is(WordField::OutOfOrderId) && (strict || !record.is(WordField::PacketEnable)) {
        let problem = format!("out_of_order_id of {}", record.get(WordField::OutOfOrderId));
        return Err(BoardProblem::Undefined(problem));
    }
    if !matches!(record.get(WordField::AxCache), 0 | 2) {
        let problem = format!("axcache of {}", record.get(WordField::AxCache));
        return Err(BoardProblem::Undefined(problem));
    }
    if record.get(WordField::IterationCurrent) > record.get(WordField::IterationWrap) {
        let problem = "the iteration's current is beyond its size".to_owned();
        return Err(BoardProblem::Wrong(problem));
    }
    let is_padded = [
        WordField::D0PadBefore,
        WordField::D0PadAfter,
        WordField::D1PadBefore,
        WordField::D1PadAfter,
    ];
    let is_padded = is_padded
        .iter()
        .chain(&[WordField::D2PadBefore, WordField::D2PadAfter]);
    if direction == Direction::S2mm && is_padded.clone().any(|&field| record.is(field)) {
        return Err(BoardProblem::Undefined(
            "padding of what is received".to_owned(),
        ));
    }
    match strict {
        true => check_effects(record, direction),
        false => Ok(()),
    }
}

/// Refuses fields that are set and have no effect.
fn check_effects(record: &Record, direction: Direction) -> Result<(), BoardProblem> {
    let groups = [
        (
            record.is(WordField::AcquireEnable),
            &[WordField::AcquireId, WordField::AcquireValue][..],
        ),
        (record.is(WordField::ReleaseValue), &[WordField::ReleaseId]),
        (record.is(WordField::UseNext), &[WordField::Next]),
        (
            record.is(WordField::PacketEnable),
            &[
                WordField::PacketId,
                WordField::PacketType,
                WordField::TlastSuppress,
            ],
        ),
        (
            record.is(WordField::IterationWrap),
            &[WordField::IterationStep, WordField::IterationCurrent],
        ),
        (direction == Direction::Mm2s, &[WordField::PacketEnable]),
    ];
    for (is_used, fields) in groups {
        if let Some(field) = fields.iter().find(|&&field| !is_used && record.is(field)) {
            return Err(BoardProblem::NoEffect(format!(
                "{} is set and not used",
                field.name()
            )));
        }
    }
    Ok(())
}
