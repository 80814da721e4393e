//! Grammars tried in a separate process, as in the program: one that meets a bound there is refused, which is no fault.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use millrace_server::grammar::{GrammarTrial, TrialReply, try_grammars_with};
use rustix::process::{Resource, Rlimit, setrlimit};

/// The argument that starts a trial process.
const ARGUMENT: &str = "__try-grammar";

/// Limits of a trial in the program.
const MEMORY_BYTES: u64 = 512 << 20;
const CPU_SECONDS: u64 = 4;
const TIME: Duration = Duration::from_secs(20);

/// Does the trial if this process was started for one, and has trials done so from now on.
pub fn install() {
    if std::env::args().nth(1).as_deref() == Some(ARGUMENT) {
        serve();
        std::process::exit(0);
    }
    try_grammars_with(attempt);
}

fn serve() {
    for (resource, value) in [
        (Resource::Cpu, CPU_SECONDS),
        (Resource::As, MEMORY_BYTES),
        (Resource::Core, 0),
    ] {
        let limit = Rlimit {
            current: Some(value),
            maximum: Some(value),
        };
        setrlimit(resource, limit).expect("a limit");
    }
    let mut job = Vec::new();
    std::io::stdin().read_to_end(&mut job).expect("a job");
    let job: GrammarTrial = serde_json::from_slice(&job).expect("a trial");
    let reply = serde_json::to_vec(&job.run()).expect("a reply");
    std::io::stdout().write_all(&reply).expect("an output");
}

fn attempt(trial: &GrammarTrial, is_given_up: &dyn Fn() -> bool) -> TrialReply {
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new(program);
    command
        .arg(ARGUMENT)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command.spawn().expect("a process");
    let job = serde_json::to_vec(trial).expect("a job");
    // A process that has ended early reports that by its status.
    let _ = child.stdin.take().expect("an input").write_all(&job);
    let end = Instant::now() + TIME;
    loop {
        if child.try_wait().expect("a child").is_some() {
            break;
        }
        if is_given_up() || Instant::now() > end {
            let _ = child.kill();
            let _ = child.wait();
            return match is_given_up() {
                true => TrialReply::GivenUp,
                false => TrialReply::Untried("it took too long".to_owned()),
            };
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let mut reply = Vec::new();
    // A reply is short, so that it is whole in the pipe when the process ends.
    let _ = child
        .stdout
        .take()
        .expect("an output")
        .read_to_end(&mut reply);
    serde_json::from_slice(&reply)
        .unwrap_or_else(|_| TrialReply::TooHard("it meets a limit".to_owned()))
}
