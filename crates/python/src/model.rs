//! A model on a device.

use crate::embed::embed;
use crate::errors::{bad_value, closed, exception};
use crate::generation::Completion;
use crate::logits::{LogitRows, TokenLogprob, logprob};
use crate::model_arguments::ModelArguments;
use crate::options::CallOptions;
use crate::process::Owner;
use crate::prompts::{self, PromptArgument, Texts};
use crate::stream::TextStream;
use crate::tokens;
use crate::watch::WorkWatch;
use millrace::engine::EncodeOptions;
use millrace::{Error, Generation, Prompt, Session};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// A model on a device: `demo`, a file, a folder, or `hf:OWNER/REPO[:QUANT]`. Any thread may use it.
#[pyclass(frozen, name = "Model", module = "millrace")]
#[derive(Debug)]
pub(crate) struct PythonModel {
    /// None after it was closed.
    session: Mutex<Option<Session>>,
    owner: Owner,
}

/// One result or several.
#[derive(IntoPyObject)]
pub(crate) enum Results<T> {
    One(T),
    Many(Vec<T>),
}

impl<T> Results<T> {
    fn map<U>(self, mut each: impl FnMut(T) -> U) -> Results<U> {
        match self {
            Results::One(value) => Results::One(each(value)),
            Results::Many(values) => Results::Many(values.into_iter().map(each).collect()),
        }
    }
}

impl PythonModel {
    fn session(&self, py: Python<'_>) -> PyResult<Session> {
        self.owner.check(py)?;
        let session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        let session = session.as_ref().cloned();
        session.ok_or_else(|| closed(py, "the model was closed"))
    }

    /// Texts after prompts, many of them in one run of the engine.
    fn run(
        &self,
        py: Python<'_>,
        prompt: &Bound<'_, PyAny>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Results<Generation>> {
        let session = self.session(py)?;
        let call = CallOptions::of(py, options)?;
        let (options, watch) = (call.options, call.watch);
        let prompt = PromptArgument::of(prompt)?.with_images(py, call.images)?;
        let done = watch.run(py, move || match prompt {
            PromptArgument::One(prompt) => {
                session.generate_with(prompt, &options).map(Results::One)
            }
            PromptArgument::Many(prompts) => session.batch(prompts, &options).map(Results::Many),
        });
        done?.map_err(|error| exception(py, &error))
    }

    /// Texts after prompts; a prompt that fails has its own exception in its place.
    fn run_each<'py>(
        &self,
        py: Python<'py>,
        prompts: &Bound<'py, PyAny>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let session = self.session(py)?;
        let call = CallOptions::of(py, options)?;
        if !call.images.is_empty() {
            return Err(bad_value(py, "`images` go with one prompt", None));
        }
        let (options, watch) = (call.options, call.watch);
        let (mut good, mut results) = (Vec::new(), Vec::new());
        for prompt in prompts::each(prompts)? {
            results.push(match prompt {
                Ok(prompt) => {
                    good.push(prompt);
                    None
                }
                Err(error) => Some(error.into_value(py).into_bound(py).into_any()),
            });
        }
        let done = watch.run(py, move || session.batch_each(good, &options))?;
        let mut done = done.map_err(|error| exception(py, &error))?.into_iter();
        let results = results.into_iter().map(|refused| match refused {
            Some(exception) => Ok(exception),
            None => match done.next() {
                Some(Ok(one)) => Ok(Bound::new(py, Completion(one))?.into_any()),
                Some(Err(error)) => Ok(exception(py, &error)
                    .into_value(py)
                    .into_bound(py)
                    .into_any()),
                None => Err(bad_value(py, "a prompt has no result", None)),
            },
        });
        results.collect()
    }

    fn start(
        &self,
        py: Python<'_>,
        prompt: &Bound<'_, PyAny>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<TextStream> {
        let session = self.session(py)?;
        let call = CallOptions::of(py, options)?;
        let (options, watch) = (call.options, call.watch);
        let prompt = PromptArgument::of(prompt)?.with_images(py, call.images)?;
        let prompt = prompt.single(py)?;
        // This call reads the images.
        let stream = watch.run(py, || session.stream(prompt, &options))?;
        let stream = stream.map_err(|error| exception(py, &error))?;
        Ok(TextStream::new(stream, watch))
    }

    /// The text of one call, or its stream.
    fn text<'py>(
        &self,
        py: Python<'py>,
        prompt: &Bound<'py, PyAny>,
        stream: bool,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if stream {
            return Ok(Bound::new(py, self.start(py, prompt, options)?)?.into_any());
        }
        let texts = self.run(py, prompt, options)?.map(|g| g.text);
        Ok(texts.into_pyobject(py)?.into_any())
    }
}

#[pymethods]
impl PythonModel {
    #[new]
    #[pyo3(signature = (model, **arguments))]
    fn new(
        py: Python<'_>,
        model: PathBuf,
        arguments: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PythonModel> {
        let session = ModelArguments::of(py, arguments)?.open(py, &model)?;
        Ok(PythonModel {
            session: Mutex::new(Some(session)),
            owner: Owner::new(),
        })
    }

    /// Text after a prompt: a str, or an iterator over its pieces with `stream=True`. A list of prompts gives a list.
    #[pyo3(signature = (prompt, *, stream = false, **options))]
    fn generate<'py>(
        &self,
        py: Python<'py>,
        prompt: &Bound<'py, PyAny>,
        stream: bool,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.text(py, prompt, stream, options)
    }

    /// The answer to messages in the model's chat template; else as `generate`.
    #[pyo3(signature = (messages, *, stream = false, **options))]
    fn chat<'py>(
        &self,
        py: Python<'py>,
        messages: &Bound<'py, PyAny>,
        stream: bool,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.text(py, &prompts::conversation(messages)?, stream, options)
    }

    /// As `generate` and `chat`, with tokens, times and the reason of the end. With `return_exceptions`, a prompt of
    /// a list that fails has its exception in the result, as in `asyncio.gather`.
    #[pyo3(signature = (prompt, *, return_exceptions = false, **options))]
    fn complete<'py>(
        &self,
        py: Python<'py>,
        prompt: &Bound<'py, PyAny>,
        return_exceptions: bool,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if return_exceptions {
            let each = self.run_each(py, prompt, options)?;
            return Ok(each.into_pyobject(py)?.into_any());
        }
        let generations = self.run(py, prompt, options)?.map(Completion);
        Ok(generations.into_pyobject(py)?.into_any())
    }

    /// Embeddings, `[d_model]`: one for a text, a list for a list. `pooling` is `mean`, `first` or `last`; by default
    /// the model's files decide. They have length 1, unless `normalize` is false. `truncate` cuts a text to the
    /// context, which is an error otherwise.
    #[pyo3(signature = (text, *, pooling = None, normalize = true, truncate = false))]
    fn embed<'py>(
        &self,
        py: Python<'py>,
        text: &Bound<'py, PyAny>,
        pooling: Option<&str>,
        normalize: bool,
        truncate: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let session = self.session(py)?;
        let embeddings = embed(
            py,
            &session,
            &Texts::of("text", text)?,
            pooling,
            normalize,
            truncate,
        )?;
        Ok(embeddings.into_pyobject(py)?.into_any())
    }

    /// Logits after every token of a prompt, f32 `[n_tokens, vocab_size]`.
    fn logits(&self, py: Python<'_>, prompt: &Bound<'_, PyAny>) -> PyResult<LogitRows> {
        let session = self.session(py)?;
        let prompt = PromptArgument::of(prompt)?.single(py)?;
        let logits = WorkWatch::new(None).run(py, || session.logits(prompt))?;
        Ok(LogitRows(logits.map_err(|error| exception(py, &error))?))
    }

    /// The tokens that a prompt is read as. Messages are put into the model's chat template.
    fn prompt_tokens(&self, py: Python<'_>, prompt: &Bound<'_, PyAny>) -> PyResult<Vec<u32>> {
        let session = self.session(py)?;
        let prompt = PromptArgument::of(prompt)?.single(py)?;
        let prepared = py.detach(|| session.model().prepare(prompt));
        let prepared = prepared.map_err(|error| exception(py, &error))?;
        Ok(prepared.tokens().to_vec())
    }

    /// For each token from `first` on (at least 1): its log probability after the tokens before it, and the `top`
    /// likeliest tokens there with theirs. All tokens are read once more for it, with the same bits as in a
    /// generation.
    #[pyo3(signature = (tokens, *, first = 1, top = 0))]
    fn logprobs(
        &self,
        py: Python<'_>,
        tokens: &Bound<'_, PyAny>,
        first: usize,
        top: usize,
    ) -> PyResult<Vec<TokenLogprob>> {
        if first == 0 {
            let advice = "begin at 1, or later".to_owned();
            let message = "`first` is 0, and nothing is before the first token";
            return Err(bad_value(py, message, Some(advice)));
        }
        let (session, tokens) = (self.session(py)?, prompts::tokens(tokens)?);
        // The last token's own logits are not used, so a text may fill the context.
        let read = tokens.len().saturating_sub(1);
        if first > read {
            return Ok(Vec::new());
        }
        let prompt = Prompt::tokens(tokens[..read].to_vec());
        let logprobs = WorkWatch::new(None).run(py, || {
            let logits = session.logits(prompt)?;
            let rows = logits.rows().zip(&tokens[1..]).skip(first - 1);
            Ok(rows.map(|(row, token)| logprob(row, *token, top)).collect())
        })?;
        logprobs.map_err(|error: Error| exception(py, &error))
    }

    /// The tokens of a text. `add_special` adds the tokens that the model puts around every text; `parse_special`
    /// reads spelled-out control tokens as control tokens.
    #[pyo3(signature = (text, *, add_special = true, parse_special = false))]
    fn tokenize(
        &self,
        py: Python<'_>,
        text: &str,
        add_special: bool,
        parse_special: bool,
    ) -> PyResult<Vec<u32>> {
        let session = self.session(py)?;
        let options = EncodeOptions {
            add_special,
            parse_special,
        };
        tokens::encode(py, &session, text, options)
    }

    /// The text of tokens; with `show_special`, control tokens are shown.
    #[pyo3(signature = (tokens, *, show_special = false))]
    fn detokenize(
        &self,
        py: Python<'_>,
        tokens: &Bound<'_, PyAny>,
        show_special: bool,
    ) -> PyResult<String> {
        let (session, tokens) = (self.session(py)?, prompts::tokens(tokens)?);
        tokens::decode(py, &session, &tokens, show_special)
    }

    /// The bytes of tokens, each as it continues a text: the first and the last may be a part of a character. With
    /// `show_special`, control tokens give the bytes of their texts.
    #[pyo3(signature = (tokens, *, show_special = false))]
    fn token_bytes<'py>(
        &self,
        py: Python<'py>,
        tokens: &Bound<'py, PyAny>,
        show_special: bool,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (session, tokens) = (self.session(py)?, prompts::tokens(tokens)?);
        let bytes = tokens::bytes(py, &session, &tokens, show_special)?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Frees the memory. Streams that are under way continue; every later call is refused.
    fn close(&self, py: Python<'_>) {
        if self.owner.is_lost() {
            return;
        }
        let lock = || self.session.lock().unwrap_or_else(PoisonError::into_inner);
        py.detach(|| drop(lock().take()));
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) {
        self.close(py);
    }

    /// The model's name for messages.
    #[getter]
    fn name(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.session(py)?.model().name().to_owned())
    }

    /// Where it runs: `cpu (avx512)`.
    #[getter]
    fn device(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.session(py)?.device_name().to_owned())
    }

    /// Tokens of a sequence, prompt and answer together.
    #[getter]
    fn n_ctx(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.session(py)?.n_ctx())
    }

    /// Sequences alive at a time.
    #[getter]
    fn max_sequences(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.session(py)?.max_sequences())
    }

    /// Tokens of the vocabulary.
    #[getter]
    fn vocab_size(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.session(py)?.model().vocab_size())
    }

    /// Elements of an embedding.
    #[getter]
    fn d_model(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.session(py)?.model().d_model())
    }

    /// Tokens of context that the model was trained for.
    #[getter]
    fn trained_context(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.session(py)?.model().trained_context())
    }

    /// Base of RoPE's frequencies; None where they are scaled, or differ by layer.
    #[getter]
    fn rope_base(&self, py: Python<'_>) -> PyResult<Option<f32>> {
        Ok(self.session(py)?.model().rope_base())
    }

    /// Parts of the model's files that are ignored or overruled, as sentences.
    #[getter]
    fn warnings(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        Ok(self.session(py)?.model().warnings())
    }

    /// The BOS token; None for a model without one.
    #[getter]
    fn bos_token(&self, py: Python<'_>) -> PyResult<Option<u32>> {
        let tokenizer = self.session(py)?.model().loaded().tokenizer();
        let tokenizer = tokenizer.map_err(|error| exception(py, &error.into()))?;
        Ok(tokenizer.bos())
    }

    /// The EOS token; None for a model without one.
    #[getter]
    fn eos_token(&self, py: Python<'_>) -> PyResult<Option<u32>> {
        let tokenizer = self.session(py)?.model().loaded().tokenizer();
        let tokenizer = tokenizer.map_err(|error| exception(py, &error.into()))?;
        Ok(tokenizer.eos())
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        match self.session(py) {
            Ok(session) => format!(
                "<millrace.Model '{}' on {}>",
                session.model().name(),
                session.device_name()
            ),
            Err(_) if self.owner.is_lost() => "<millrace.Model of another process>".to_owned(),
            Err(_) => "<millrace.Model, closed>".to_owned(),
        }
    }
}

impl Drop for PythonModel {
    /// In a fork the session is not freed, because that would wait for threads that the fork does not have.
    fn drop(&mut self) {
        if self.owner.is_lost() {
            let session = self
                .session
                .get_mut()
                .unwrap_or_else(PoisonError::into_inner);
            std::mem::forget(session.take());
        }
    }
}
