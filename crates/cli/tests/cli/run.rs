//! Starting the binary in a clean environment.

use std::path::Path;
use std::process::{Command, Output};
use tempfile::{TempDir, tempdir};

/// Exit codes, as `millrace --help` documents them.
pub(crate) const OK: i32 = 0;
pub(crate) const FAILED: i32 = 1;
pub(crate) const USAGE: i32 = 2;
pub(crate) const BAD_INPUT: i32 = 3;
pub(crate) const IO: i32 = 4;
pub(crate) const NOT_FOUND: i32 = 5;
pub(crate) const INTERRUPTED: i32 = 130;

/// Variables that change the binary's behaviour; a test sets its own.
const CLEARED: [&str; 17] = [
    "HF_TOKEN",
    "HF_TOKEN_PATH",
    "HF_HOME",
    "HF_HUB_CACHE",
    "HUGGINGFACE_HUB_CACHE",
    "HF_ENDPOINT",
    "HF_HUB_OFFLINE",
    "XDG_CACHE_HOME",
    "MILLRACE_THREADS",
    "MILLRACE_CPU_LEVEL",
    "MILLRACE_NPU_CACHE",
    "MILLRACE_PYTHON",
    "MILLRACE_API_KEY",
    "NO_COLOR",
    "http_proxy",
    "https_proxy",
    "all_proxy",
];

/// The binary, with `home` as the user's home and no relevant variables inherited.
pub(crate) fn millrace(home: &Path) -> Command {
    clean(Command::new(env!("CARGO_BIN_EXE_millrace")), home)
}

/// A fresh home for a user.
pub(crate) fn home() -> TempDir {
    tempdir().expect("a temporary folder")
}

/// The binary with these arguments, and `home` as the user's home.
pub(crate) fn command(home: &TempDir, arguments: &[&str]) -> Command {
    let mut command = millrace(home.path());
    command.args(arguments);
    command
}

/// A path as an argument.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// A shell command in which `$MILLRACE` is the binary.
#[cfg(unix)]
pub(crate) fn shell(home: &Path, script: &str) -> Command {
    let mut command = clean(Command::new("sh"), home);
    command
        .arg("-c")
        .arg(script)
        .env("MILLRACE", env!("CARGO_BIN_EXE_millrace"));
    command
}

fn clean(mut command: Command, home: &Path) -> Command {
    for name in CLEARED {
        command.env_remove(name).env_remove(name.to_uppercase());
    }
    command.env("HOME", home).current_dir(home);
    command
}

/// Result of a finished run.
pub(crate) struct Finished {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs to the end.
pub(crate) fn finish(command: &mut Command) -> Finished {
    finished(command.output().expect("the binary starts"))
}

/// Parts of an output that tests check.
pub(crate) fn finished(output: Output) -> Finished {
    Finished {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

impl Finished {
    /// Asserts the exit code, showing everything printed if it differs.
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Finished {
        assert_eq!(
            self.code, code,
            "stdout:\n{}\nstderr:\n{}",
            self.stdout, self.stderr
        );
        self
    }

    /// Asserts the exit code and that the error mentions each text.
    #[track_caller]
    pub(crate) fn expect_error(self, code: i32, mentions: &[&str]) -> Finished {
        let finished = self.expect(code);
        assert!(finished.stderr.contains("error:"), "{}", finished.stderr);
        for text in mentions {
            assert!(
                finished.stderr.contains(text),
                "no `{text}` in: {}",
                finished.stderr
            );
        }
        finished
    }

    /// Standard output as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e} in {}", self.stdout))
    }
}
