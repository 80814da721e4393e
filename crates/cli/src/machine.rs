//! Facts about this machine: processor, memory, limits, accelerators.
//!
//! Everything is read and nothing is guessed: facts that the system does not report are `None`.

use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};

/// Whether this program is optimised throughout. The profiles `quick` and `dev` optimise less.
pub(crate) const IS_OPTIMISED: bool = !matches!(env!("MILLRACE_OPT_LEVEL").as_bytes(), b"0");

/// The processor.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Processor {
    /// The processor's own name.
    pub(crate) name: Option<String>,
    /// Hardware threads this process may run on.
    pub(crate) threads: usize,
    /// Physical cores of these threads, where the system reports them.
    pub(crate) cores: Option<usize>,
    /// Instruction sets that the kernels use.
    pub(crate) features: Vec<&'static str>,
    /// Caches of the first core.
    pub(crate) caches: Vec<CacheLevel>,
}

/// A cache of the first core.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct CacheLevel {
    /// `L1d`, `L2`, `L3`.
    pub(crate) name: String,
    pub(crate) size_bytes: u64,
    /// Hardware threads that share it.
    pub(crate) shared_by: usize,
}

/// An accelerator's device node.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Accelerator {
    pub(crate) node: PathBuf,
    /// Its kernel driver, where the system reports it.
    pub(crate) driver: Option<String>,
    /// Whether this user may open it.
    pub(crate) accessible: bool,
}

/// Reads the processor's facts.
pub(crate) fn processor() -> Processor {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    Processor {
        name: field(&cpuinfo, "model name")
            .map(str::to_owned)
            .or_else(board),
        threads: std::thread::available_parallelism().map_or(1, |n| n.get()),
        cores: physical_cores(Path::new("/sys/devices/system/cpu")),
        features: features(),
        caches: caches(Path::new("/sys/devices/system/cpu/cpu0/cache")),
    }
}

/// Name of the board, where its firmware reports it: Arm processors do not report their names.
fn board() -> Option<String> {
    let name = fs::read_to_string("/sys/firmware/devicetree/base/model").ok()?;
    let name = name.trim_end_matches('\0').trim();
    (!name.is_empty()).then(|| name.to_owned())
}

/// Processor time that a container may use, in processors, if it is limited.
pub(crate) fn cpu_quota() -> Option<f64> {
    parse_cpu_max(&cgroup_file("cpu.max")?)
}

/// Average number of runnable processes over the last minute.
pub(crate) fn load_average() -> Option<f64> {
    fs::read_to_string("/proc/loadavg")
        .ok()?
        .split(' ')
        .next()?
        .parse()
        .ok()
}

/// Neural processors listed by the kernel's accelerator subsystem.
pub(crate) fn accelerators() -> Vec<Accelerator> {
    let nodes = fs::read_dir("/dev/accel").into_iter().flatten().flatten();
    let mut found: Vec<Accelerator> = nodes
        .map(|entry| {
            let node = entry.path();
            let link = Path::new("/sys/class/accel")
                .join(entry.file_name())
                .join("device/driver");
            let driver = fs::read_link(link).ok();
            let driver = driver.and_then(|path| Some(path.file_name()?.to_str()?.to_owned()));
            let accessible = fs::OpenOptions::new()
                .read(true)
                .write(true)
                .open(&node)
                .is_ok();
            Accelerator {
                node,
                driver,
                accessible,
            }
        })
        .collect();
    found.sort_by(|a, b| a.node.cmp(&b.node));
    found
}

/// The value of the first `name : value` line.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

/// Parses a quota: `max 100000` is no limit, `150000 100000` is one and a half processors.
fn parse_cpu_max(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    let (quota, period): (f64, f64) = (quota.parse().ok()?, period.parse().ok()?);
    (period > 0.0).then(|| quota / period)
}

/// Reads a file of this process's control group, or of the root group that a container sees.
fn cgroup_file(name: &str) -> Option<String> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = groups
        .lines()
        .find_map(|line| line.strip_prefix("0::/"))
        .unwrap_or_default();
    let root = Path::new("/sys/fs/cgroup");
    fs::read_to_string(root.join(own).join(name))
        .or_else(|_| fs::read_to_string(root.join(name)))
        .ok()
}

/// Counts distinct (package, core) pairs.
fn physical_cores(cpus: &Path) -> Option<usize> {
    let mut cores = std::collections::BTreeSet::new();
    for entry in fs::read_dir(cpus).ok()?.flatten() {
        let topology = entry.path().join("topology");
        let read = |name| fs::read_to_string(topology.join(name)).ok();
        if let (Some(package), Some(core)) = (read("physical_package_id"), read("core_id")) {
            cores.insert((package, core));
        }
    }
    (!cores.is_empty()).then_some(cores.len())
}

fn caches(folder: &Path) -> Vec<CacheLevel> {
    let mut caches = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let read = |name| fs::read_to_string(entry.path().join(name)).unwrap_or_default();
        let (level, kind, size) = (read("level"), read("type"), read("size"));
        let suffix = match kind.trim() {
            "Data" => "d",
            "Instruction" => continue,
            _ => "",
        };
        let Some(size_kib) = size
            .trim()
            .strip_suffix('K')
            .and_then(|kib| kib.parse::<u64>().ok())
        else {
            continue;
        };
        caches.push(CacheLevel {
            name: format!("L{}{suffix}", level.trim()),
            size_bytes: size_kib * 1024,
            shared_by: count_list(read("shared_cpu_list").trim()),
        });
    }
    caches.sort_by(|a, b| a.name.cmp(&b.name));
    caches
}

/// Counts the numbers in a kernel list such as `0-3,8`.
fn count_list(list: &str) -> usize {
    let count = |part: &str| match part.split_once('-') {
        Some((first, last)) => {
            let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
            Some(last.checked_sub(first)? + 1)
        }
        None => part.parse::<usize>().ok().map(|_| 1),
    };
    list.split(',').filter_map(count).sum()
}

#[cfg(target_arch = "x86_64")]
fn features() -> Vec<&'static str> {
    macro_rules! detected {
        ($($name:tt),* $(,)?) => {
            [$(($name, is_x86_feature_detected!($name))),*]
        };
    }
    let all = detected!(
        "sse4.2",
        "avx",
        "avx2",
        "fma",
        "f16c",
        "avxvnni",
        "avx512f",
        "avx512bw",
        "avx512dq",
        "avx512vl",
        "avx512vbmi",
        "avx512vnni",
        "avx512bf16",
        "avx512fp16",
    );
    all.into_iter()
        .filter(|(_, has)| *has)
        .map(|(name, _)| name)
        .collect()
}

#[cfg(target_arch = "aarch64")]
fn features() -> Vec<&'static str> {
    macro_rules! detected {
        ($($name:tt),* $(,)?) => {
            [$(($name, std::arch::is_aarch64_feature_detected!($name))),*]
        };
    }
    let all = detected!(
        "neon", "fp16", "dotprod", "fhm", "bf16", "i8mm", "sve", "sve2"
    );
    all.into_iter()
        .filter(|(_, has)| *has)
        .map(|(name, _)| name)
        .collect()
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn features() -> Vec<&'static str> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_text_is_read() {
        let cpuinfo = "processor\t: 0\nmodel name\t: A processor\n";
        assert_eq!(field(cpuinfo, "model name"), Some("A processor"));
        assert_eq!(field(cpuinfo, "model"), None);
        assert_eq!(parse_cpu_max("150000 100000\n"), Some(1.5));
        assert_eq!(parse_cpu_max("max 100000"), None);
        for (list, n) in [("0", 1), ("0-3", 4), ("0-3,8", 5), ("", 0), ("3-1", 0)] {
            assert_eq!(count_list(list), n, "{list}");
        }
    }

    #[test]
    fn this_machine_has_a_processor() {
        let processor = processor();
        assert!(processor.threads >= 1);
        assert!(processor.cores.is_none_or(|cores| cores >= 1));
    }
}
