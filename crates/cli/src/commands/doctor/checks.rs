//! The checks that look at the machine and its settings.

use super::CheckResult;
use crate::machine::{self, Accelerator, Processor};
use crate::output::bytes;
use millrace_hub::{HubSettings, free_bytes};
use millrace_kernels::Level;
use millrace_runtime::HostMemory;
use std::io::IsTerminal;

const GIB: u64 = 1 << 30;

/// Runs all checks. `n_threads` is the user's setting, if there is one.
pub(super) fn all(n_threads: Option<usize>) -> Vec<CheckResult> {
    let processor = machine::processor();
    let threads = Threads {
        used: n_threads.unwrap_or_else(millrace_kernels::pool::default_threads),
        available: processor.threads,
        quota: machine::cpu_quota(),
        load: machine::load_average(),
    };
    let settings = HubSettings::from_env(false);
    vec![
        build(machine::IS_OPTIMISED),
        cpu(&processor, Level::preferred(), Level::Amx.refusal()),
        self::threads(&threads),
        memory(&HostMemory::read()),
        npu(&machine::accelerators()),
        cache(settings.as_ref().map_err(ToString::to_string)),
        token(settings.ok().and_then(|settings| settings.token).is_some()),
        terminal(),
    ]
}

fn build(is_optimised: bool) -> CheckResult {
    if !is_optimised {
        return CheckResult::warn("build", "not optimised, except for the CPU's kernels")
            .because(
                "simulated NPUs are about ten times slower, and so are large files and requests",
            )
            .fix("run `cargo install --locked --path crates/cli`");
    }
    CheckResult::ok("build", "optimised")
}

fn cpu(processor: &Processor, level: Level, refusal: Option<String>) -> CheckResult {
    let name = processor.name.as_deref().unwrap_or("unknown processor");
    let found = format!("{name}, level {level}");
    if level == Level::Scalar {
        return CheckResult::warn("cpu", found)
            .because("it has none of the vector instructions the fast kernels need (AVX2 and FMA)")
            .fix("in a virtual machine, pass the host's processor through (`-cpu host`)");
    }
    if let Some(refusal) = refusal {
        return CheckResult::warn("cpu", found).because(refusal).fix(
            "prompts are slower without: use Linux 5.16 or newer, and in a virtual machine pass AMX through",
        );
    }
    CheckResult::ok("cpu", found)
}

/// Facts that decide how many threads make sense.
struct Threads {
    used: usize,
    available: usize,
    quota: Option<f64>,
    load: Option<f64>,
}

fn threads(threads: &Threads) -> CheckResult {
    let Threads {
        used,
        available,
        quota,
        load,
    } = *threads;
    let found = format!("{used} used of {available}");
    if let Some(quota) = quota.filter(|quota| *quota < used as f64) {
        let n = (quota.floor() as usize).max(1);
        return CheckResult::warn(
            "threads",
            format!("{found}, limited to {quota:.1} processors"),
        )
        .because("more threads than the container's processor time wait for each other")
        .fix(format!(
            "use `--threads {n}` or MILLRACE_THREADS={n}, or raise the limit"
        ));
    }
    if used > available {
        return CheckResult::warn("threads", found)
            .because("more threads than processors wait for each other")
            .fix(format!("use `--threads {available}` or fewer"));
    }
    if let Some(load) = load.filter(|load| *load > available as f64 * 0.75) {
        return CheckResult::warn("threads", format!("{found}, load {load:.1}"))
            .because("other programs keep the processor busy: expect fewer tokens a second")
            .fix("wait until they are done, or use fewer --threads");
    }
    CheckResult::ok("threads", found)
}

fn memory(memory: &HostMemory) -> CheckResult {
    let Some(usable) = memory.usable_bytes() else {
        return CheckResult::ok("memory", "the system does not say how much is free");
    };
    let mut found = format!("{} free", bytes(usable));
    if let Some(limit) = memory.limit_bytes {
        found.push_str(&format!(", limited to {}", bytes(limit)));
    }
    if usable < GIB {
        return CheckResult::warn("memory", found)
            .because(
                "most models need more: weights that do not fit are read from disk for each token",
            )
            .fix("close other programs, raise the container's limit, or take a smaller model");
    }
    CheckResult::ok("memory", found)
}

fn npu(accelerators: &[Accelerator]) -> CheckResult {
    match accelerators
        .iter()
        .find(|accelerator| !accelerator.accessible)
    {
        Some(accelerator) => {
            let node = accelerator.node.display();
            CheckResult::warn("npu", format!("{node}: no permission"))
                .because("it belongs to a group this user is not in (often `render`)")
                .fix(
                    "`sudo usermod -aG render $USER`, then log in again; the CPU is used meanwhile",
                )
        }
        None if accelerators.is_empty() => CheckResult::ok("npu", "none: the CPU is used"),
        None => CheckResult::ok(
            "npu",
            format!("{} found: this version uses the CPU", accelerators.len()),
        ),
    }
}

fn cache(settings: Result<&HubSettings, String>) -> CheckResult {
    let settings = match settings {
        Ok(settings) => settings,
        Err(why) => {
            return CheckResult::fail("cache", why)
                .fix("set HF_HOME to a folder with space for models");
        }
    };
    let dir = &settings.cache_dir;
    if let Err(error) = try_write(dir) {
        return CheckResult::fail("cache", format!("{}: {error}", dir.display()))
            .because("downloaded models cannot be stored")
            .fix("set HF_HOME to a folder you may write to, or correct its permissions");
    }
    let free = free_bytes(dir);
    let found = format!("{}, {} free", dir.display(), free.map_or("?".into(), bytes));
    if free.is_some_and(|free| free < 2 * GIB) {
        return CheckResult::warn("cache", found)
            .because("a model of a billion parameters takes about a gigabyte")
            .fix("free some space, or set HF_HOME to a folder on another disk");
    }
    CheckResult::ok("cache", found)
}

/// Writes and removes a file in `dir`, or in the nearest parent that exists, so that a check leaves no trace.
fn try_write(dir: &std::path::Path) -> std::io::Result<()> {
    let existing = dir
        .ancestors()
        .find(|folder| folder.is_dir())
        .unwrap_or(dir);
    tempfile::tempfile_in(existing).map(|_| ())
}

fn token(has_token: bool) -> CheckResult {
    CheckResult::ok(
        "token",
        if has_token {
            "set"
        } else {
            "none: public models only (HF_TOKEN)"
        },
    )
}

fn terminal() -> CheckResult {
    let is_terminal = std::io::stdout().is_terminal();
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()));
    let utf8 = locale.as_ref().is_none_or(|locale| {
        let locale = locale.to_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    });
    if is_terminal && !utf8 {
        return CheckResult::warn("terminal", format!("locale {}", locale.unwrap_or_default()))
            .because("letters beyond ASCII may show as garbage")
            .fix("set LANG to a UTF-8 locale, such as C.UTF-8");
    }
    CheckResult::ok(
        "terminal",
        if is_terminal {
            "a terminal, UTF-8"
        } else {
            "output goes to a file or pipe"
        },
    )
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::*;

    fn status(used: usize, quota: Option<f64>, load: Option<f64>) -> Status {
        threads(&Threads {
            used,
            available: 4,
            quota,
            load,
        })
        .status
    }

    #[test]
    fn thread_counts_are_judged_against_what_there_is() {
        assert_eq!(status(4, None, Some(0.5)), Status::Ok);
        assert_eq!(status(4, Some(4.0), None), Status::Ok);
        assert_eq!(status(4, Some(1.5), None), Status::Warn);
        assert_eq!(status(5, None, None), Status::Warn);
        assert_eq!(status(4, None, Some(3.5)), Status::Warn);
        let limited = threads(&Threads {
            used: 4,
            available: 4,
            quota: Some(1.5),
            load: None,
        });
        assert!(limited.fix.is_some_and(|fix| fix.contains("--threads 1")));
    }

    #[test]
    fn every_problem_names_a_fix() {
        let processor = Processor {
            name: None,
            threads: 1,
            cores: None,
            features: vec![],
            caches: vec![],
        };
        let low = HostMemory {
            available_bytes: Some(GIB / 2),
            ..HostMemory::default()
        };
        let node = "/dev/accel/accel0".into();
        let locked = Accelerator {
            node,
            driver: None,
            accessible: false,
        };
        for finding in [
            build(false),
            cpu(&processor, Level::Scalar, None),
            cpu(&processor, Level::Avx512, Some("refused".into())),
            memory(&low),
            npu(&[locked]),
            cache(Err("no folder".into())),
        ] {
            assert_ne!(finding.status, Status::Ok, "{finding:?}");
            assert!(finding.fix.is_some(), "{finding:?}");
        }
    }
}
