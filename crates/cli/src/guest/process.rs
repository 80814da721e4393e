//! Runs a piece of work in a separate process, and reports its outcome.

use super::limits::ProcessLimits;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Limit on the size of a reply: a prompt within the engine's own bound, as JSON.
const REPLY_BYTES: u64 = 256 << 20;

/// Interval between checks that the caller still waits.
const TICK: Duration = Duration::from_millis(20);

/// A kind of work that runs in separate processes.
pub(super) struct GuestWork {
    /// Argument that starts such a process. It is not a command, and no part of the interface.
    pub(super) argument: &'static str,
    pub(super) limits: ProcessLimits,
    /// Kind of work, for messages such as "a template gets".
    pub(super) what: &'static str,
    /// Structure that nests too deeply where the stack is exhausted, for messages.
    pub(super) deep: &'static str,
    /// Priority reduction relative to other processes, from 0 to 19.
    pub(super) niceness: i32,
}

/// Reason for a missing reply.
pub(super) enum NoReply {
    /// A limit was reached, in words; the same work would reach it again.
    Bound(String),
    /// It took too long by the clock, which may be the machine's fault.
    Slow(String),
    /// The caller no longer waits for it.
    GivenUp,
    /// The process did not start, or it ended by itself.
    Failed(String),
}

/// Runs `job` in a separate process, which is ended as soon as `is_given_up` returns true.
pub(super) fn ask<R: DeserializeOwned>(
    work: &GuestWork,
    job: &impl Serialize,
    is_given_up: &dyn Fn() -> bool,
) -> Result<R, NoReply> {
    let failed = |error: io::Error| {
        NoReply::Failed(format!("the process for it could not be started: {error}"))
    };
    let request = serde_json::to_vec(job).map_err(|error| failed(error.into()))?;
    let (child, replies) = start(work, request).map_err(failed)?;
    let mut child = ChildGuard(child);
    let end = Instant::now() + work.limits.time;
    let reply = loop {
        match replies.recv_timeout(TICK) {
            Ok(reply) => break reply,
            Err(RecvTimeoutError::Timeout) if is_given_up() => return Err(NoReply::GivenUp),
            Err(RecvTimeoutError::Timeout) if Instant::now() < end => {}
            Err(_) => {
                let seconds = work.limits.time.as_secs();
                return Err(NoReply::Slow(format!("it was stopped after {seconds} s")));
            }
        }
    };
    if let Ok(reply) = serde_json::from_slice(&reply) {
        return Ok(reply);
    }
    Err(why(work, &mut child.0).unwrap_or_else(failed))
}

/// A child process that is ended when this value is dropped.
struct ChildGuard(Child);

impl Drop for ChildGuard {
    fn drop(&mut self) {
        // A process that has ended need not be killed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(work: &GuestWork, request: Vec<u8>) -> io::Result<(Child, mpsc::Receiver<Vec<u8>>)> {
    let mut command = Command::new(this_program()?);
    command
        .arg(work.argument)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // The process needs nothing of the user's environment, such as tokens for the hub.
    #[cfg(unix)]
    command.env_clear();
    let mut child = command.spawn()?;
    let (sender, replies) = mpsc::channel();
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let talk = move || {
        if let Some(mut stdin) = stdin {
            // A process that has ended early reports the reason itself.
            let _ = stdin.write_all(&request);
        }
        let mut reply = Vec::new();
        if let Some(stdout) = stdout {
            let _ = stdout.take(REPLY_BYTES).read_to_end(&mut reply);
        }
        let _ = sender.send(reply);
    };
    let talking = std::thread::Builder::new().spawn(talk);
    if let Err(error) = talking {
        drop(ChildGuard(child));
        return Err(error);
    }
    Ok((child, replies))
}

/// Path of this program's file at startup, where the system has no link to it.
static OWN_FILE: OnceLock<Option<PathBuf>> = OnceLock::new();

/// Finds this program's file. Must be called before anything changes the current folder.
pub(super) fn find_own_file() {
    OWN_FILE.get_or_init(|| {
        let name = std::env::args_os().next()?;
        let here = std::env::current_dir().ok()?;
        own_file(&name, &here, std::env::var_os("PATH").as_deref())
    });
}

/// File that a shell in the folder `here` starts for `name`.
fn own_file(name: &OsString, here: &Path, path: Option<&std::ffi::OsStr>) -> Option<PathBuf> {
    let name = Path::new(name);
    if name.components().count() > 1 {
        return Some(here.join(name));
    }
    let folders = std::env::split_paths(path?);
    let files = folders.map(|folder| here.join(folder).join(name));
    files.into_iter().find(|file| file.is_file())
}

/// Path of this program's file.
fn this_program() -> io::Result<PathBuf> {
    // If this link exists, it is valid even if a newer program has replaced the file.
    let link = PathBuf::from("/proc/self/exe");
    if link.exists() {
        return Ok(link);
    }
    let by_name = OWN_FILE.get().cloned().flatten();
    std::env::current_exe().or_else(|error| by_name.ok_or(error))
}

/// Whether the system ended a process for its processor time: first with SIGXCPU, and at a hard limit with SIGKILL.
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

/// Reason that a process ended without a reply, from the system's status or the program's last output.
fn why(work: &GuestWork, child: &mut Child) -> io::Result<NoReply> {
    let mut words = String::new();
    if let Some(stderr) = child.stderr.take() {
        let _ = stderr.take(4096).read_to_string(&mut words);
    }
    // The process has closed its output, so it has ended or is about to.
    let status = child.wait()?;
    let limits = work.limits.within_callers();
    if words.contains("memory allocation") || words.contains("capacity overflow") {
        let (mib, what) = (limits.memory_bytes >> 20, work.what);
        return Ok(NoReply::Bound(format!(
            "it asks for more than the {mib} MiB of memory that {what} gets"
        )));
    }
    if words.contains("overflowed its stack") {
        return Ok(NoReply::Bound(work.deep.to_owned()));
    }
    if is_out_of_time(status) {
        let seconds = limits.cpu_seconds;
        return Ok(NoReply::Bound(format!(
            "it was stopped after {seconds} s of processor time"
        )));
    }
    let last = words.lines().last().unwrap_or_default();
    Ok(NoReply::Failed(format!(
        "the process for it ended without a result ({status}) {last}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_file_is_found_as_a_shell_finds_it() {
        let here = tempfile::tempdir().expect("a temporary folder");
        let folder = here.path();
        std::fs::create_dir(folder.join("bin")).expect("a folder");
        std::fs::write(folder.join("bin/millrace"), "").expect("a file");
        let path = std::ffi::OsStr::new("nowhere:bin");
        for (name, expected) in [
            (
                "/usr/bin/millrace",
                Some(PathBuf::from("/usr/bin/millrace")),
            ),
            ("./millrace", Some(folder.join("./millrace"))),
            ("bin/millrace", Some(folder.join("bin/millrace"))),
            ("millrace", Some(folder.join("bin/millrace"))),
            ("another", None),
        ] {
            assert_eq!(
                own_file(&name.into(), folder, Some(path)),
                expected,
                "{name}"
            );
        }
    }
}
