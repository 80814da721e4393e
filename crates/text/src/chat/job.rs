//! Work with templates as a value: a request to compile or render, and its result.
//!
//! A template from a file is a program by a stranger. Its source is of bounded length. It runs on a separate thread,
//! whose stack suffices for the deepest nesting that so much source can hold. Its steps and its output are bounded.
//! Each of its values is bounded, too, but their sum is not. A program that reads files of strangers therefore has
//! jobs done in another process, whose memory and time the system limits ([`render_templates_with`]).

use super::adapt::{Adapt, Habits};
use super::strftime::Moment;
use super::{render, tags};
use crate::Error;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::OnceLock;

/// Bytes of source that a template may have. The longest ones in use have about 20,000.
pub const MAX_TEMPLATE_BYTES: usize = 64 << 10;

/// Characters that one tag of a template may have, texts in quotes and blanks left out. An expression
/// nests by a level a character at most. Long ones in use have some hundreds.
const MAX_TAG_CHARS: usize = 4096;

/// Stack of a job: for the deepest recursion that the engine allows, and for the deepest tree that
/// [`MAX_TAG_CHARS`] can hold. Tests reach this depth.
const STACK_BYTES: usize = 192 << 20;

/// Templates to compile, and one of them to render.
#[derive(Debug, Serialize, Deserialize)]
pub struct TemplateJob {
    /// Name and source.
    pub(super) templates: Vec<(String, String)>,
    /// The template to render; none to check only whether all of them parse.
    pub(super) render: Option<String>,
    pub(super) variables: Map<String, Value>,
    /// The time of `strftime_now`, in seconds since 1970, in the user's time zone, which the process
    /// that renders need not know.
    pub(super) now_seconds: i64,
    #[serde(default)]
    pub(super) now_microseconds: u32,
    /// Offset of the user's time zone from UTC.
    #[serde(default)]
    pub(super) utc_offset_seconds: i32,
    /// Whether the messages are brought into the form that the template takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) adapt: Option<Adapt>,
}

/// Result of a [`TemplateJob`].
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
    /// The result for messages in the form that the template takes, and that form.
    Adapted { habits: Habits, reply: Box<Reply> },
}

impl TemplateReply {
    /// The job was given up: the bound that it met, as in "it took more than 10 s".
    pub fn limit(reason: impl Into<String>) -> TemplateReply {
        TemplateReply(Reply::Limit(reason.into()))
    }

    /// The reply itself, and the result of a probe.
    pub(super) fn without_habits(self) -> (TemplateReply, Option<Habits>) {
        match self.0 {
            Reply::Adapted { habits, reply } => (TemplateReply(*reply), Some(habits)),
            reply => (TemplateReply(reply), None),
        }
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
            Reply::Adapted { reply, .. } => TemplateReply(*reply).into_result(origin),
        }
    }
}

impl TemplateJob {
    /// A job that only parses templates.
    pub(super) fn reading(templates: Vec<(String, String)>) -> TemplateJob {
        TemplateJob {
            templates,
            render: None,
            variables: Map::new(),
            now_seconds: 0,
            now_microseconds: 0,
            utc_offset_seconds: 0,
            adapt: None,
        }
    }

    pub(super) fn moment(&self) -> Moment {
        Moment {
            local_seconds: self.now_seconds,
            microseconds: self.now_microseconds,
            utc_offset_seconds: self.utc_offset_seconds,
        }
    }

    /// Does the job in this process, on a separate thread. Length, nesting, steps and output are bounded; memory is not.
    pub fn run(&self) -> TemplateReply {
        TemplateReply(self.on_thread().unwrap_or_else(Reply::Limit))
    }

    fn on_thread(&self) -> Result<Reply, String> {
        for (_, source) in &self.templates {
            check(source)?;
        }
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new()
                .name("chat template".to_owned())
                .stack_size(STACK_BYTES)
                .spawn_scoped(scope, || render::run(self))
                .map_err(|error| {
                    format!("no thread with a stack of {STACK_BYTES} bytes: {error}")
                })?;
            thread
                .join()
                .map_err(|_| "the template engine gave up on it".to_owned())
        })
    }
}

/// Refuses a source that is too long, as a whole or in one tag.
pub(super) fn check(source: &str) -> Result<(), String> {
    let n = source.len();
    if n > MAX_TEMPLATE_BYTES {
        return Err(format!(
            "it is {n} bytes long, and at most {MAX_TEMPLATE_BYTES} are read"
        ));
    }
    let n = tags::longest_tag(source);
    if n > MAX_TAG_CHARS {
        return Err(format!(
            "one of its tags has {n} characters outside of texts, and at most {MAX_TAG_CHARS} are read"
        ));
    }
    Ok(())
}

static ELSEWHERE: OnceLock<fn(&TemplateJob) -> TemplateReply> = OnceLock::new();

/// Makes `render` do the jobs of all templates from files, from now on; only the first call counts.
/// It should run [`TemplateJob::run`] in a process whose memory and time are limited.
pub fn render_templates_with(render: fn(&TemplateJob) -> TemplateReply) {
    let _ = ELSEWHERE.set(render);
}

/// Does the job of a template from a file in the way that the program chose.
pub(super) fn run_guest(job: &TemplateJob) -> TemplateReply {
    match ELSEWHERE.get() {
        Some(elsewhere) => elsewhere(job),
        None => job.run(),
    }
}
