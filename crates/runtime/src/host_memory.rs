//! The memory of this machine, and a container's limit on it. All of it is read from the system; `None` is unknown.

use serde::Serialize;
use std::fs;
use std::path::Path;

/// Memory of the machine, and a container's limit on it.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct HostMemory {
    /// Memory of the machine.
    pub total_bytes: Option<u64>,
    /// Memory that new work can use without swapping.
    pub available_bytes: Option<u64>,
    /// A container's limit, if any.
    pub limit_bytes: Option<u64>,
}

impl HostMemory {
    /// Reads the present values from the system.
    pub fn read() -> HostMemory {
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let limit = limit_file(&groups, Path::new("/sys/fs/cgroup"));
        let total_bytes = field(&meminfo, "MemTotal");
        HostMemory {
            total_bytes,
            available_bytes: field(&meminfo, "MemAvailable"),
            limit_bytes: limit.and_then(|text| limit_of(&text, total_bytes)),
        }
    }

    /// Memory that this process may still use: the smaller of the free memory and the limit.
    pub fn usable_bytes(&self) -> Option<u64> {
        match (self.available_bytes, self.limit_bytes) {
            (Some(available), Some(limit)) => Some(available.min(limit)),
            (available, limit) => available.or(limit),
        }
    }
}

/// The value of a line `name:   16384 kB` in bytes.
fn field(meminfo: &str, name: &str) -> Option<u64> {
    let value = meminfo.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })?;
    let kib: u64 = value.strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The limit in a file. `max` means none, and so does a value beyond all memory: version 1 has such a number instead.
fn limit_of(text: &str, total_bytes: Option<u64>) -> Option<u64> {
    let limit: u64 = text.trim().parse().ok()?;
    (limit < total_bytes.unwrap_or(1 << 60)).then_some(limit)
}

/// The file with the limit of this process's control group, or of the root that containers see as theirs. `groups` is
/// `/proc/self/cgroup`: `0::/PATH` in version 2, `N:memory:/PATH` in version 1.
fn limit_file(groups: &str, root: &Path) -> Option<String> {
    let under = |folder: &Path, path: &str, name: &str| {
        let own = folder.join(path.trim_start_matches('/')).join(name);
        fs::read_to_string(own).or_else(|_| fs::read_to_string(folder.join(name)))
    };
    let unified = groups.lines().find_map(|line| line.strip_prefix("0::"));
    if let Ok(limit) = under(root, unified.unwrap_or_default(), "memory.max") {
        return Some(limit);
    }
    let of_memory = groups.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        controllers
            .split(',')
            .any(|c| c == "memory")
            .then_some(path)
    });
    under(&root.join("memory"), of_memory?, "memory.limit_in_bytes").ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_text_is_read() {
        let meminfo = "MemTotal:       24117248 kB\nMemAvailable:   100 kB\n";
        assert_eq!(field(meminfo, "MemTotal"), Some(24_117_248 * 1024));
        assert_eq!(field(meminfo, "Mem"), None);
    }

    #[test]
    fn limits_of_both_versions_of_control_groups_are_found() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let second = "12:cpu,cpuacct:/\n5:memory:/small\n0::/unified\n";
        assert_eq!(limit_file(second, root.path()), None);
        write("memory/memory.limit_in_bytes", "7");
        assert_eq!(limit_file(second, root.path()).as_deref(), Some("7"));
        write("memory/small/memory.limit_in_bytes", "5");
        assert_eq!(limit_file(second, root.path()).as_deref(), Some("5"));
        assert_eq!(limit_file("", root.path()), None);
        write("memory.max", "max");
        write("job/memory.max", "3");
        assert_eq!(limit_file("0::/job", root.path()).as_deref(), Some("3"));
        assert_eq!(limit_file("0::/other", root.path()).as_deref(), Some("max"));
    }

    #[test]
    fn what_no_memory_reaches_is_no_limit() {
        let total = Some(24 << 30);
        assert_eq!(limit_of("1073741824\n", total), Some(1 << 30));
        assert_eq!(limit_of("9223372036854771712\n", total), None);
        assert_eq!(limit_of("9223372036854771712\n", None), None);
        assert_eq!(limit_of("max\n", total), None);
    }

    #[test]
    fn the_tighter_bound_on_memory_counts() {
        let memory = |available_bytes, limit_bytes| {
            HostMemory {
                total_bytes: None,
                available_bytes,
                limit_bytes,
            }
            .usable_bytes()
        };
        assert_eq!(memory(Some(5), Some(3)), Some(3));
        assert_eq!(memory(Some(5), None), Some(5));
        assert_eq!(memory(None, None), None);
    }
}
