//! Names of models on the hub: `OWNER/REPO[@REVISION][:PICK]`, or a pasted web address.

use super::Error;
use std::fmt;

/// A model on the hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// `owner/name`, or a bare `name` for the few oldest models.
    pub repo: String,
    /// A branch, tag or commit.
    pub revision: String,
    /// Selects one of several files: a quantisation (`Q4_K_M`), a file name, or `safetensors`.
    pub pick: Option<String>,
}

/// The default revision of a reference.
const DEFAULT_REVISION: &str = "main";

impl Reference {
    /// Reads `[hf:[//]]OWNER/REPO[@REVISION][:PICK]` or a web address of a repository or file.
    ///
    /// # Errors
    /// [`Error::BadReference`], with the reason.
    pub fn parse(text: &str) -> Result<Reference, Error> {
        let bad = |why| Error::BadReference {
            text: text.to_owned(),
            why,
        };
        let rest = text.strip_prefix("hf:").unwrap_or(text);
        if let Some((_, path)) = rest
            .split_once("://")
            .filter(|(scheme, _)| scheme.starts_with("http"))
        {
            return Reference::from_web_path(path)
                .ok_or_else(|| bad("no repository in the address"));
        }
        let rest = rest.strip_prefix("//").unwrap_or(rest);
        let (rest, pick) = match rest.split_once(':') {
            Some((rest, pick)) => (rest, Some(pick)),
            None => (rest, None),
        };
        let (repo, revision) = rest.split_once('@').unwrap_or((rest, DEFAULT_REVISION));
        if pick.is_some_and(str::is_empty) {
            return Err(bad("nothing follows the colon"));
        }
        if !is_repo(repo) {
            return Err(bad(
                "a repository is OWNER/REPO: letters, digits, `-`, `_` and `.`",
            ));
        }
        if !is_revision(revision) {
            return Err(bad("the revision has characters no branch or commit has"));
        }
        let (repo, revision) = (repo.to_owned(), revision.to_owned());
        Ok(Reference {
            repo,
            revision,
            pick: pick.map(str::to_owned),
        })
    }

    /// The same model at another revision.
    ///
    /// # Errors
    /// [`Error::BadReference`] for a revision with characters that no branch or commit has.
    pub fn at(self, revision: &str) -> Result<Reference, Error> {
        if !is_revision(revision) {
            let why = "a branch, tag or commit has no such characters";
            return Err(Error::BadReference {
                text: revision.to_owned(),
                why,
            });
        }
        Ok(Reference {
            revision: revision.to_owned(),
            ..self
        })
    }

    /// From `host/OWNER/REPO[/(tree|blob|resolve)/REVISION[/FILE]]`.
    fn from_web_path(path: &str) -> Option<Reference> {
        let path = path.split(['?', '#']).next()?;
        let parts: Vec<&str> = path
            .split('/')
            .skip(1)
            .filter(|part| !part.is_empty())
            .collect();
        let repo = format!("{}/{}", parts.first()?, parts.get(1)?);
        let revision = parts.get(3).copied().unwrap_or(DEFAULT_REVISION).to_owned();
        let pick = parts
            .get(4..)
            .filter(|file| !file.is_empty())
            .map(|file| file.join("/"));
        (is_repo(&repo) && is_revision(&revision)).then_some(Reference {
            repo,
            revision,
            pick,
        })
    }
}

/// Whether `text` can be a repository's name: at most one slash, and nothing that could be misused as a path.
pub(crate) fn is_repo(text: &str) -> bool {
    let part = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && !part.contains("--")
            && part
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    };
    text.split('/').count() <= 2 && text.split('/').all(part)
}

fn is_revision(text: &str) -> bool {
    let part = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && part
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "-_.+".contains(c))
    };
    text.split('/').all(part)
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.repo)?;
        if self.revision != DEFAULT_REVISION {
            write!(f, "@{}", self.revision)?;
        }
        match &self.pick {
            Some(pick) => write!(f, ":{pick}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_model() {
        for (text, repo, revision, pick) in [
            ("a/b", "a/b", "main", None),
            ("hf:a/b", "a/b", "main", None),
            ("hf://a/b:Q4_K_M", "a/b", "main", Some("Q4_K_M")),
            ("a/b@refs/pr/1:Q8_0", "a/b", "refs/pr/1", Some("Q8_0")),
            ("hf:gpt2", "gpt2", "main", None),
            ("https://huggingface.co/a/b", "a/b", "main", None),
            ("https://huggingface.co/a/b/tree/v2", "a/b", "v2", None),
            (
                "https://huggingface.co/a/b/blob/main/x/y.gguf?download=1",
                "a/b",
                "main",
                Some("x/y.gguf"),
            ),
        ] {
            let reference = Reference::parse(text).expect(text);
            assert_eq!(reference.repo, repo, "{text}");
            assert_eq!(reference.revision, revision, "{text}");
            assert_eq!(reference.pick.as_deref(), pick, "{text}");
        }
    }

    #[test]
    fn display_parses_back() {
        for text in ["a/b", "a/b:Q4_0", "a/b@v1", "a/b@refs/pr/1:x.gguf"] {
            assert_eq!(Reference::parse(text).expect(text).to_string(), text);
        }
    }

    #[test]
    fn names_that_could_leave_the_cache_are_refused() {
        for text in [
            "",
            "a/../b",
            "../x",
            "a/b/c",
            "a//b",
            "a/b:",
            "a/b@..",
            "a/b@x/../y",
            "a b/c",
            "a--b/c",
        ] {
            assert!(Reference::parse(text).is_err(), "{text:?}");
        }
    }
}
