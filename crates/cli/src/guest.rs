//! Untrusted work in separate processes: chat templates from downloaded files, and trial compilations of grammars
//! from requests.
//!
//! A template is an untrusted program: it can ask for all memory, or never end. A grammar in a request can do the same
//! to the grammar compiler. The process that runs one is this program's own binary. It limits its memory and processor
//! time before it reads its input. It is ended if it takes too long, or if nobody waits for it any more. Whatever
//! happens in it costs the user only an error message.

mod limits;
mod process;

use limits::ProcessLimits;
use millrace_server::grammar::{GrammarTrial, TrialReply, try_grammars_with};
use millrace_text::{TemplateJob, TemplateReply};
use process::{GuestWork, NoReply};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::process::ExitCode;
use std::time::Duration;

/// Real templates take milliseconds.
const TEMPLATE: GuestWork = GuestWork {
    argument: "__render-chat-template",
    limits: ProcessLimits {
        memory_bytes: 768 << 20,
        cpu_seconds: 5,
        time: Duration::from_secs(20),
    },
    what: "a template",
    deep: "the values it makes nest too deeply",
    niceness: 0,
};

/// The schemas of an agent's tools take some tens of milliseconds.
const GRAMMAR: GuestWork = GuestWork {
    argument: "__try-grammar",
    limits: ProcessLimits {
        memory_bytes: 512 << 20,
        cpu_seconds: 4,
        time: Duration::from_secs(20),
    },
    what: "a grammar",
    deep: "it nests too deeply",
    // A few of these at once take at most a quarter of the processor time that answers get.
    niceness: 5,
};

/// Makes templates render, and grammars compile on trial, in separate processes from now on.
pub(crate) fn install() {
    process::find_own_file();
    millrace_text::render_templates_with(render);
    try_grammars_with(try_grammar);
}

/// Runs such work if this process was started for it; returns the exit code.
pub(crate) fn main() -> Option<ExitCode> {
    let argument = std::env::args_os().nth(1)?;
    let is = |work: &GuestWork| argument == OsStr::new(work.argument);
    let served = if is(&TEMPLATE) {
        serve(&TEMPLATE, TemplateJob::run)
    } else if is(&GRAMMAR) {
        serve(&GRAMMAR, GrammarTrial::run)
    } else {
        return None;
    };
    Some(match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    })
}

/// Runs the job that standard input contains.
fn serve<J: DeserializeOwned, R: Serialize>(
    work: &GuestWork,
    run: impl Fn(&J) -> R,
) -> io::Result<()> {
    limits::end_with_parent();
    limits::step_back(work.niceness);
    work.limits.impose()?;
    let mut input = Vec::new();
    io::stdin().read_to_end(&mut input)?;
    let job: J = serde_json::from_slice(&input)?;
    drop(input);
    let reply = serde_json::to_vec(&run(&job))?;
    io::stdout().write_all(&reply)?;
    io::stdout().flush()
}

/// Renders in a separate process.
fn render(job: &TemplateJob) -> TemplateReply {
    let reply = process::ask(&TEMPLATE, job, &|| false);
    reply.unwrap_or_else(|none| match none {
        NoReply::Bound(reason) | NoReply::Slow(reason) | NoReply::Failed(reason) => {
            TemplateReply::limit(reason)
        }
        NoReply::GivenUp => TemplateReply::limit("nobody waits for it"),
    })
}

/// Tries a grammar in a separate process.
fn try_grammar(trial: &GrammarTrial, is_given_up: &dyn Fn() -> bool) -> TrialReply {
    let reply = process::ask(&GRAMMAR, trial, is_given_up);
    reply.unwrap_or_else(|none| match none {
        NoReply::Bound(reason) => TrialReply::TooHard(reason),
        NoReply::Slow(reason) | NoReply::Failed(reason) => TrialReply::Untried(reason),
        NoReply::GivenUp => TrialReply::GivenUp,
    })
}
