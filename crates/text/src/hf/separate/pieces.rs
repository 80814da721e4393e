//! The pieces of a `tokenizer.model`: SentencePiece's protobuf message `ModelProto` (`sentencepiece_model.proto`).

use crate::Error;

/// Kinds of pieces that are found in a text before the model sees it.
const CONTROL: u64 = 3;
const USER_DEFINED: u64 = 4;

/// A piece of a SentencePiece model. Its number is its place.
pub(super) struct SentencePiece {
    pub(super) text: String,
    /// Whether it is a control token or one that a user defined.
    pub(super) is_special: bool,
}

/// The pieces of a model, in order.
///
/// # Errors
/// [`Error::Pieces`] for bytes that are no such message, or one without pieces.
pub(super) fn pieces(model: &[u8]) -> Result<Vec<SentencePiece>, Error> {
    let mut pieces = Vec::new();
    let mut message = ProtoMessage { rest: model };
    while let Some((number, value)) = message.field()? {
        if let (1, ProtoValue::Bytes(piece)) = (number, value) {
            pieces.push(read_piece(piece, pieces.len())?);
        }
    }
    match pieces.is_empty() {
        true => Err(bad("there are no pieces")),
        false => Ok(pieces),
    }
}

fn read_piece(bytes: &[u8], id: usize) -> Result<SentencePiece, Error> {
    let (mut text, mut kind) = (None, 1);
    let mut message = ProtoMessage { rest: bytes };
    while let Some((number, value)) = message.field()? {
        match (number, value) {
            (1, ProtoValue::Bytes(bytes)) => text = Some(bytes),
            (3, ProtoValue::Number(found)) => kind = found,
            _ => {}
        }
    }
    let text = text.ok_or_else(|| bad(&format!("piece {id} has no text")))?;
    let text = String::from_utf8(text.to_vec());
    Ok(SentencePiece {
        text: text.map_err(|_| bad(&format!("piece {id} is not UTF-8")))?,
        is_special: [CONTROL, USER_DEFINED].contains(&kind),
    })
}

fn bad(reason: &str) -> Error {
    Error::Pieces {
        reason: reason.to_owned(),
    }
}

/// The value of a field.
enum ProtoValue<'a> {
    Number(u64),
    /// A text, bytes or a message.
    Bytes(&'a [u8]),
    /// A fixed number, which no field of interest is.
    Other,
}

/// The fields of a message that are still to be read.
struct ProtoMessage<'a> {
    rest: &'a [u8],
}

impl<'a> ProtoMessage<'a> {
    /// The next field's number and value; `None` at the end.
    fn field(&mut self) -> Result<Option<(u64, ProtoValue<'a>)>, Error> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let key = self.number()?;
        let value = match key & 7 {
            0 => ProtoValue::Number(self.number()?),
            1 => self.take(8).map(|_| ProtoValue::Other)?,
            2 => {
                let length = usize::try_from(self.number()?).unwrap_or(usize::MAX);
                ProtoValue::Bytes(self.take(length)?)
            }
            5 => self.take(4).map(|_| ProtoValue::Other)?,
            kind => return Err(bad(&format!("a field of the unknown kind {kind}"))),
        };
        Ok(Some((key >> 3, value)))
    }

    fn take(&mut self, n_bytes: usize) -> Result<&'a [u8], Error> {
        let (taken, rest) = self
            .rest
            .split_at_checked(n_bytes)
            .ok_or_else(|| bad("a field ends behind the file"))?;
        self.rest = rest;
        Ok(taken)
    }

    /// A number of up to ten groups of seven bits, the lowest first.
    fn number(&mut self) -> Result<u64, Error> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            number |= u64::from(byte & 127) << shift;
            if byte < 128 {
                return Ok(number);
            }
        }
        Err(bad("a number of more than ten bytes"))
    }
}
