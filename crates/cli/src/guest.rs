//! Chat templates of other people's files, rendered in a process of their own.
//!
//! A template is a program by a stranger: it can ask for all memory, or never end. The process that
//! renders it is this one's own binary, which limits its memory and processor time before it reads
//! a word of the template, and which is ended if it takes too long. Whatever happens in it costs
//! the user an error message.

use millrace_text::{TemplateJob, TemplateReply};
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// The argument that starts such a process. Not a command: it is no part of the interface.
const ARGUMENT: &str = "__render-chat-template";

/// Memory that the process may take, program and stack included.
const MEMORY_BYTES: u64 = 768 << 20;

/// Processor time it may take. Real templates take milliseconds.
const CPU_SECONDS: u64 = 5;

/// The longest it may take in all, on a machine that is busy with other things, or where the system
/// does not limit processor time.
const TIME: Duration = Duration::from_secs(20);

/// The longest reply that is read: a prompt within the engine's own bound, as JSON.
const REPLY_BYTES: u64 = 256 << 20;

/// Has templates rendered in processes of their own from now on.
pub(crate) fn install() {
    millrace_text::render_templates_with(render);
}

/// Whether this process was started to render a template; the code it ends with.
pub(crate) fn main() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let is_guest = arguments.next() == Some(OsString::from(ARGUMENT));
    is_guest.then(|| match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    })
}

/// Does the job on standard input.
fn serve() -> io::Result<()> {
    limit_this_process()?;
    let mut input = Vec::new();
    io::stdin().read_to_end(&mut input)?;
    let job: TemplateJob = serde_json::from_slice(&input)?;
    drop(input);
    let reply = serde_json::to_vec(&job.run())?;
    io::stdout().write_all(&reply)?;
    io::stdout().flush()
}

#[cfg(unix)]
fn limit_this_process() -> io::Result<()> {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let limit = |resource, value: u64| {
        let both = Rlimit {
            current: Some(value),
            maximum: Some(value),
        };
        setrlimit(resource, both)
    };
    limit(Resource::Core, 0)?;
    limit(Resource::Cpu, CPU_SECONDS)?;
    limit(Resource::As, MEMORY_BYTES)?;
    Ok(())
}

/// Elsewhere the time and the engine's own bounds must do.
#[cfg(not(unix))]
fn limit_this_process() -> io::Result<()> {
    Ok(())
}

/// Does a job in a process of its own.
fn render(job: &TemplateJob) -> TemplateReply {
    match in_process(job) {
        Ok(reply) => reply,
        Err(error) => TemplateReply::limit(format!(
            "the process that renders it could not be started: {error}"
        )),
    }
}

fn in_process(job: &TemplateJob) -> io::Result<TemplateReply> {
    let request = serde_json::to_vec(job)?;
    let mut command = Command::new(this_program()?);
    command
        .arg(ARGUMENT)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // Nothing of the user's is needed there: tokens for the hub, for one.
    #[cfg(unix)]
    command.env_clear();
    let mut child = command.spawn()?;
    let (sender, replies) = mpsc::channel();
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    std::thread::spawn(move || {
        if let Some(mut stdin) = stdin {
            // A process that has ended early says why by itself.
            let _ = stdin.write_all(&request);
        }
        let mut reply = Vec::new();
        if let Some(stdout) = stdout {
            let _ = stdout.take(REPLY_BYTES).read_to_end(&mut reply);
        }
        let _ = sender.send(reply);
    });
    let Ok(reply) = replies.recv_timeout(TIME) else {
        child.kill()?;
        child.wait()?;
        return Ok(TemplateReply::limit(format!(
            "it was stopped after {} s",
            TIME.as_secs()
        )));
    };
    if let Ok(reply) = serde_json::from_slice(&reply) {
        let _ = child.kill();
        child.wait()?;
        return Ok(reply);
    }
    Ok(TemplateReply::limit(why(child)?))
}

/// Whether the system ended a process for its processor time: first by a signal of that meaning,
/// and where the limit is a hard one by the one that cannot be refused.
#[cfg(unix)]
fn is_out_of_time(status: ExitStatus) -> bool {
    use signal_hook::consts::{SIGKILL, SIGXCPU};
    use std::os::unix::process::ExitStatusExt;
    matches!(status.signal(), Some(SIGXCPU | SIGKILL))
}

#[cfg(not(unix))]
fn is_out_of_time(_: ExitStatus) -> bool {
    false
}

/// The file of this program.
fn this_program() -> io::Result<PathBuf> {
    // Where there is this link, it holds even if a newer program has taken the file's name.
    let link = PathBuf::from("/proc/self/exe");
    match link.exists() {
        true => Ok(link),
        false => std::env::current_exe(),
    }
}

/// Why a process ended without a reply, by what the system or the program's last words say.
fn why(mut child: Child) -> io::Result<String> {
    let mut words = String::new();
    if let Some(stderr) = child.stderr.take() {
        let _ = stderr.take(4096).read_to_string(&mut words);
    }
    // It has closed its output, and is about to end if it has not.
    let status = child.wait()?;
    if words.contains("memory allocation") || words.contains("capacity overflow") {
        let mib = MEMORY_BYTES >> 20;
        return Ok(format!(
            "it asks for more than the {mib} MiB of memory that a template gets"
        ));
    }
    if words.contains("overflowed its stack") {
        return Ok("the values it makes nest too deeply".to_owned());
    }
    if is_out_of_time(status) {
        return Ok(format!(
            "it was stopped after {CPU_SECONDS} s of processor time"
        ));
    }
    let last = words.lines().last().unwrap_or_default();
    Ok(format!(
        "the process that renders it ended without a result ({status}) {last}"
    ))
}
