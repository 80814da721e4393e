//! Prompts from Python: a text, tokens, messages, or several of a kind.

use crate::errors::bad_value;
use crate::options::of_type;
use millrace::{Message, Prompt, RgbImage};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyInt, PyIterator, PyList, PyString};

/// One prompt, or several to compute together.
#[derive(Debug)]
pub(crate) enum PromptArgument {
    One(Prompt),
    Many(Vec<Prompt>),
}

/// How a prompt that is one list is read, by its first element.
enum ListKind {
    Tokens,
    Messages,
    Prompts,
}

impl PromptArgument {
    /// Reads a prompt or a list of them: a text is a `str`, tokens are a list of `int`, messages a list of `dict`.
    pub(crate) fn of(value: &Bound<'_, PyAny>) -> PyResult<PromptArgument> {
        let value = &listed(value)?;
        if !is_text(value)
            && let ListKind::Prompts = kind(value)?
        {
            let prompts = value.try_iter()?.map(|prompt| one(&prompt?));
            return Ok(PromptArgument::Many(prompts.collect::<PyResult<_>>()?));
        }
        Ok(PromptArgument::One(one(value)?))
    }

    /// The prompt, if there is exactly one.
    pub(crate) fn single(self, py: Python<'_>) -> PyResult<Prompt> {
        match self {
            PromptArgument::One(prompt) => Ok(prompt),
            PromptArgument::Many(_) => {
                let advice = "call once for each prompt".to_owned();
                Err(bad_value(py, "this takes one prompt", Some(advice)))
            }
        }
    }

    /// Adds images, in their order.
    pub(crate) fn with_images(
        self,
        py: Python<'_>,
        images: Vec<RgbImage>,
    ) -> PyResult<PromptArgument> {
        match self {
            many @ PromptArgument::Many(_) if images.is_empty() => Ok(many),
            PromptArgument::Many(_) => Err(bad_value(py, "`images` go with one prompt", None)),
            PromptArgument::One(prompt) => {
                let prompt = images.into_iter().fold(prompt, Prompt::image);
                Ok(PromptArgument::One(prompt))
            }
        }
    }
}

/// The prompts of a list, each on its own: an invalid one has its error.
pub(crate) fn each(value: &Bound<'_, PyAny>) -> PyResult<Vec<PyResult<Prompt>>> {
    if is_text(value) {
        let advice = "give a list of prompts".to_owned();
        return Err(bad_value(
            value.py(),
            "this takes several prompts",
            Some(advice),
        ));
    }
    let prompts = value.try_iter()?.map(|prompt| Ok(one(&prompt?)));
    prompts.collect()
}

fn is_text(value: &Bound<'_, PyAny>) -> bool {
    value.is_instance_of::<PyString>()
}

/// The elements of an iterator as a list, because it gives each of them once; any other value as it is.
fn listed<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    if value.cast::<PyIterator>().is_err() {
        return Ok(value.clone());
    }
    let list = PyList::empty(value.py());
    for element in value.try_iter()? {
        list.append(element?)?;
    }
    Ok(list.into_any())
}

/// The kind of a list, by its first element.
fn kind(list: &Bound<'_, PyAny>) -> PyResult<ListKind> {
    // Python iterates over the numbers of bytes and the keys of a dict, and neither is a prompt.
    let is_list = !list.is_instance_of::<PyBytes>()
        && !list.is_instance_of::<PyByteArray>()
        && !list.is_instance_of::<PyDict>();
    let Some(mut elements) = list.try_iter().ok().filter(|_| is_list) else {
        let what = list.get_type().name()?;
        return Err(PyTypeError::new_err(format!(
            "a prompt is a str, a list of int (tokens), a list of dict (messages), or a list of prompts; found {what}"
        )));
    };
    let Some(first) = elements.next() else {
        return Err(bad_value(list.py(), "the prompt is an empty list", None));
    };
    let first = first?;
    Ok(if first.is_instance_of::<PyDict>() {
        ListKind::Messages
    } else if first.is_instance_of::<PyInt>()
        || (!is_text(&first) && first.extract::<u32>().is_ok())
    {
        ListKind::Tokens
    } else {
        ListKind::Prompts
    })
}

fn one(value: &Bound<'_, PyAny>) -> PyResult<Prompt> {
    if is_text(value) {
        return Ok(Prompt::text(value.extract::<String>()?));
    }
    let value = &listed(value)?;
    match kind(value)? {
        ListKind::Tokens => Ok(Prompt::tokens(tokens(value)?)),
        ListKind::Messages => Ok(Prompt::messages(messages(value)?)),
        ListKind::Prompts => Err(PyTypeError::new_err(
            "a list of prompts does not hold such lists",
        )),
    }
}

/// Tokens: a list or an iterator of `int`, each a number of 32 bits.
pub(crate) fn tokens(value: &Bound<'_, PyAny>) -> PyResult<Vec<u32>> {
    let tokens = value.try_iter()?.map(|token| of_type("token", &token?));
    tokens.collect()
}

/// One text, or several.
#[derive(Debug)]
pub(crate) enum Texts {
    One(String),
    Many(Vec<String>),
}

impl Texts {
    /// Reads the argument `name`: a `str`, or a list or an iterator of them.
    pub(crate) fn of(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Texts> {
        if is_text(value) {
            return Ok(Texts::One(value.extract()?));
        }
        let wrong = |what: &Bound<'_, PyAny>| -> PyErr {
            match what.get_type().name() {
                Ok(what) => PyTypeError::new_err(format!(
                    "`{name}` is a str or a list of str; found {what}"
                )),
                Err(error) => error,
            }
        };
        let mut texts = Vec::new();
        for text in value.try_iter().map_err(|_| wrong(value))? {
            let text = text?;
            if !is_text(&text) {
                return Err(wrong(&text));
            }
            texts.push(text.extract()?);
        }
        Ok(Texts::Many(texts))
    }
}

/// Accepts only the prompts of `chat`: messages, or a list of conversations.
pub(crate) fn conversation<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let value = listed(value)?;
    let is_conversation = match is_text(&value) {
        true => false,
        false => match kind(&value)? {
            ListKind::Messages => true,
            ListKind::Tokens => false,
            // The first decides; the others are read as the same kind.
            ListKind::Prompts => {
                let first = value.try_iter()?.next().transpose()?;
                first.is_some_and(|first| {
                    !is_text(&first) && matches!(kind(&first), Ok(ListKind::Messages))
                })
            }
        },
    };
    match is_conversation {
        true => Ok(value),
        false => Err(PyTypeError::new_err(
            "`chat` takes messages, a list of dict with `role` and `content`; a text to continue is for `generate`",
        )),
    }
}

/// Messages as a chat template expects them: `role`, `content`, and any other keys that the template reads.
fn messages(value: &Bound<'_, PyAny>) -> PyResult<Vec<Message>> {
    let json = value.py().import("json")?;
    let mut messages = Vec::new();
    for (index, message) in value.try_iter()?.enumerate() {
        let message = message?;
        let plain = with_plain_content(&message, index)?;
        let text: String = json.call_method1("dumps", (plain,))?.extract()?;
        let read = serde_json::from_str(&text)
            .map_err(|error| bad_value(value.py(), &format!("message {index}: {error}"), None));
        messages.push(read?);
    }
    Ok(messages)
}

/// A message whose content is one text: parts of type `text` are joined.
fn with_plain_content<'py>(
    message: &Bound<'py, PyAny>,
    index: usize,
) -> PyResult<Bound<'py, PyDict>> {
    let py = message.py();
    let wrong = |what: &str| PyTypeError::new_err(format!("message {index}: {what}"));
    let message = message.cast::<PyDict>();
    let message = message.map_err(|_| wrong("a message is a dict with `role` and `content`"))?;
    let copy = message.copy()?;
    let Some(content) = message.get_item("content")? else {
        return Ok(copy);
    };
    if content.is_none() || is_text(&content) {
        return Ok(copy);
    }
    let mut text = String::new();
    for part in content
        .try_iter()
        .map_err(|_| wrong("`content` is a str"))?
    {
        let part = part?;
        let part = part
            .cast::<PyDict>()
            .map_err(|_| wrong("a part is a dict"))?;
        match part.get_item("text")? {
            Some(piece) => text += &piece.extract::<String>()?,
            None => {
                let what = format!("message {index}: a part of `content` has no `text`");
                let advice = "give images as `images=[...]`".to_owned();
                return Err(bad_value(py, &what, Some(advice)));
            }
        }
    }
    copy.set_item("content", text)?;
    Ok(copy)
}
