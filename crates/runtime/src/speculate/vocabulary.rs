//! Whether one model can draft for another.

use crate::Error;
use crate::load::LoadedModel;
use millrace_text::TokenKind;

/// Refuses a draft model whose tokens differ from the target's, or that is larger than the target.
///
/// Ids are compared, so every id must have the same spelling in both vocabularies. After the end of the
/// shorter one there may be ids without meaning.
///
/// # Errors
/// [`Error::OtherVocabulary`] with the first difference, [`Error::LargerDraft`], a model without tokenizer.
pub fn check_draft(target: &LoadedModel, draft: &LoadedModel) -> Result<(), Error> {
    let (of_target, of_draft) = (target.tokenizer()?, draft.tokenizer()?);
    let n = of_target.n_vocab().max(of_draft.n_vocab()) as u32;
    let spelled = |tokenizer: &millrace_text::Tokenizer, id: u32| {
        let known =
            (id as usize) < tokenizer.n_vocab() && tokenizer.token_kind(id) != TokenKind::Unused;
        known.then(|| tokenizer.token_text(id).to_owned())
    };
    for token in 0..n {
        let (in_target, in_draft) = (spelled(&of_target, token), spelled(&of_draft, token));
        if in_target != in_draft {
            return Err(Error::OtherVocabulary {
                target: target.name().to_owned(),
                draft: draft.name().to_owned(),
                token,
                in_target: quoted(in_target).into(),
                in_draft: quoted(in_draft).into(),
                n_target: of_target.n_vocab(),
                n_draft: of_draft.n_vocab(),
            });
        }
    }
    let size = |model: &LoadedModel| model.checkpoint().size_bytes();
    if size(draft) > size(target) {
        return Err(Error::LargerDraft {
            target: target.name().to_owned(),
            draft: draft.name().to_owned(),
            target_bytes: size(target),
            draft_bytes: size(draft),
        });
    }
    Ok(())
}

fn quoted(text: Option<String>) -> String {
    text.map_or_else(|| "nothing".to_owned(), |text| format!("{text:?}"))
}
