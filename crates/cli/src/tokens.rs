//! Token ids on the command line.

use crate::exit::{CommandFailure, CommandResult};

/// Token ids as a user types them: `1,2,3`, optionally with spaces or brackets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TokenList(pub(crate) Vec<u32>);

impl std::str::FromStr for TokenList {
    type Err = String;

    fn from_str(text: &str) -> Result<TokenList, String> {
        let inner = text.trim().trim_start_matches('[').trim_end_matches(']');
        let parts = inner
            .split([',', ' ', '\n', '\t'])
            .filter(|part| !part.is_empty());
        let id = |part: &str| {
            part.parse()
                .map_err(|_| format!("`{part}` is not a token id"))
        };
        let ids = parts.map(id).collect::<Result<Vec<u32>, String>>()?;
        if ids.is_empty() {
            Err("no token ids".into())
        } else {
            Ok(TokenList(ids))
        }
    }
}

impl TokenList {
    /// Refuses an id that is not in the vocabulary, except `placeholder`. Nothing is looked up at an image's rows, and
    /// in some files the placeholder's id is the first beyond the embedding table.
    pub(crate) fn check(&self, vocab_size: usize, placeholder: Option<u32>) -> CommandResult {
        let is_beyond = |id: &u32| *id as usize >= vocab_size && Some(*id) != placeholder;
        match self.0.iter().find(|id| is_beyond(id)) {
            Some(id) => {
                let last = vocab_size - 1;
                Err(CommandFailure::usage(format!(
                    "token {id} is not in the vocabulary: ids go from 0 to {last}"
                )))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_a_list() {
        for text in ["1,2,30", "[1, 2, 30]", "1 2 30\n"] {
            assert_eq!(text.parse(), Ok(TokenList(vec![1, 2, 30])), "{text}");
        }
        for text in ["", "[]", "1,x", "-1", "4294967296"] {
            assert!(text.parse::<TokenList>().is_err(), "{text}");
        }
    }

    #[test]
    fn ids_beyond_the_vocabulary_are_refused() {
        assert!(TokenList(vec![0, 9]).check(10, None).is_ok());
        assert!(TokenList(vec![10]).check(10, None).is_err());
        assert!(TokenList(vec![9, 10]).check(10, Some(10)).is_ok());
        assert!(TokenList(vec![11]).check(10, Some(10)).is_err());
    }
}
