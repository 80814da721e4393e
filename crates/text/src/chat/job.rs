//! Work with templates as a value: what is to be compiled or rendered, and what came of it.
//!
//! A template from a file is a program by a stranger. Its source is of bounded length, it runs on
//! a thread of its own whose stack suffices for the deepest nesting that so much source can hold,
//! for a bounded number of steps and to a bounded output. What no engine inside the process can
//! bound is the memory that its values take: twenty lines double a text until the machine is full.
//! A program that reads files of strangers therefore has jobs done in another process, whose
//! memory and time the system limits ([`render_templates_with`]).

use super::{environment, generation};
use crate::Error;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::OnceLock;

/// Bytes of source that a template may have. The longest in use have about 20,000.
pub const MAX_TEMPLATE_BYTES: usize = 64 << 10;

/// Characters that one tag of a template may have, texts in quotes and blanks left out: the
/// compiler takes time that grows with the square of it. Long ones in use have some hundreds.
const MAX_TAG_CHARS: usize = 4096;

/// Stack a job gets beside what its source may need.
const STACK_BYTES: usize = 16 << 20;

/// Stack that a byte of source may need: nesting that grows by a level a byte, such as a row of
/// minus signs or of blocks, through all of the engine's passes. A test nests as deep as it goes.
const STACK_BYTES_PER_SOURCE_BYTE: usize = 3 << 10;

/// Templates to compile, and one of them to render.
#[derive(Debug, Serialize, Deserialize)]
pub struct TemplateJob {
    /// Name and source.
    pub(super) templates: Vec<(String, String)>,
    /// The one to render; none to see whether all of them parse.
    pub(super) render: Option<String>,
    pub(super) variables: Map<String, Value>,
    pub(super) now_seconds: i64,
}

/// What came of a [`TemplateJob`].
#[derive(Debug, Serialize, Deserialize)]
pub struct TemplateReply(pub(super) Reply);

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    /// The output; empty if nothing was to be rendered.
    Text(String),
    /// `raise_exception` was called.
    Refused(String),
    /// A template does not parse.
    Parse {
        name: String,
        line: usize,
        reason: String,
    },
    /// A template failed.
    Render {
        name: String,
        line: usize,
        reason: String,
    },
    /// A bound was met.
    Limit(String),
}

impl TemplateReply {
    /// The job was given up: what bound it met, as in "it took more than 10 s".
    pub fn limit(reason: impl Into<String>) -> TemplateReply {
        TemplateReply(Reply::Limit(reason.into()))
    }

    /// The output, or the error with `origin` (a file and the place in it) as the template's name.
    pub(super) fn into_result(self, origin: &str) -> Result<String, Error> {
        let named = |name: String| match name.as_str() {
            super::DEFAULT => origin.to_owned(),
            _ => format!("{origin}, \"{name}\""),
        };
        match self.0 {
            Reply::Text(text) => Ok(text),
            Reply::Refused(message) => Err(Error::Refused(message)),
            Reply::Parse { name, line, reason } => Err(Error::Template {
                name: named(name),
                line,
                reason,
            }),
            Reply::Render { name, line, reason } => Err(Error::Render {
                name: named(name),
                line,
                reason,
            }),
            Reply::Limit(reason) => Err(Error::TemplateLimit {
                name: origin.to_owned(),
                reason,
            }),
        }
    }
}

impl TemplateJob {
    /// Does the job in this process, on a thread of its own. Length, nesting, steps and output are
    /// bounded; memory is not.
    pub fn run(&self) -> TemplateReply {
        TemplateReply(self.on_thread().unwrap_or_else(Reply::Limit))
    }

    fn on_thread(&self) -> Result<Reply, String> {
        for (_, source) in &self.templates {
            check(source)?;
        }
        let longest = self.templates.iter().map(|(_, source)| source.len()).max();
        let stack_bytes = STACK_BYTES + longest.unwrap_or(0) * STACK_BYTES_PER_SOURCE_BYTE;
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new()
                .name("chat template".to_owned())
                .stack_size(stack_bytes)
                .spawn_scoped(scope, || environment::run(self))
                .map_err(|error| {
                    format!("no thread with a stack of {stack_bytes} bytes: {error}")
                })?;
            thread
                .join()
                .map_err(|_| "the template engine gave up on it".to_owned())
        })
    }
}

/// Refuses a source that is too long, in all or in one tag.
pub(super) fn check(source: &str) -> Result<(), String> {
    let n = source.len();
    if n > MAX_TEMPLATE_BYTES {
        return Err(format!(
            "it is {n} bytes long, and at most {MAX_TEMPLATE_BYTES} are read"
        ));
    }
    let n = generation::longest_tag(source);
    if n > MAX_TAG_CHARS {
        return Err(format!(
            "one of its tags has {n} characters outside of texts, and at most {MAX_TAG_CHARS} are read"
        ));
    }
    Ok(())
}

static ELSEWHERE: OnceLock<fn(&TemplateJob) -> TemplateReply> = OnceLock::new();

/// Has the jobs of all templates from files done by `render`, from now on; the first call counts.
/// It should let [`TemplateJob::run`] happen in a process whose memory and time are limited.
pub fn render_templates_with(render: fn(&TemplateJob) -> TemplateReply) {
    let _ = ELSEWHERE.set(render);
}

/// Does the job of a template from a file where the program wants it done.
pub(super) fn run_guest(job: &TemplateJob) -> TemplateReply {
    match ELSEWHERE.get() {
        Some(elsewhere) => elsewhere(job),
        None => job.run(),
    }
}
