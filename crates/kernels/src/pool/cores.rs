//! How many cores there are for this process, and binding a thread to one.

/// Cores this process may run on: its affinity mask and, on Linux, its cgroup quota.
#[must_use]
pub fn available_cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// One thread for each physical core this process may use: two hardware threads of a core share the
/// multipliers that these kernels saturate.
#[must_use]
pub fn default_threads() -> usize {
    let cores = available_cores();
    physical_cores()
        .map_or(cores, |physical| cores.min(physical))
        .clamp(1, super::MAX_THREADS)
}

/// Distinct sets of hardware threads among the allowed CPUs; `None` when the system does not tell.
#[cfg(target_os = "linux")]
fn physical_cores() -> Option<usize> {
    let mut siblings: Vec<String> = Vec::new();
    for cpu in allowed_cpus() {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        let list = std::fs::read_to_string(path).ok()?;
        if !siblings.contains(&list) {
            siblings.push(list);
        }
    }
    (!siblings.is_empty()).then_some(siblings.len())
}

#[cfg(not(target_os = "linux"))]
fn physical_cores() -> Option<usize> {
    None
}

#[cfg(target_os = "linux")]
fn allowed_cpus() -> Vec<usize> {
    let allowed = rustix::thread::sched_getaffinity(None);
    allowed.map_or_else(
        |_| Vec::new(),
        |set| {
            (0..rustix::thread::CpuSet::MAX_CPU)
                .filter(|&cpu| set.is_set(cpu))
                .collect()
        },
    )
}

/// Binds the calling thread to the `index`-th CPU this process may use, wrapping around. Best
/// effort: a refusal leaves the thread where the scheduler puts it.
#[cfg(target_os = "linux")]
pub(super) fn pin_to(index: usize) {
    let cpus = allowed_cpus();
    if cpus.is_empty() {
        return;
    }
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpus[index % cpus.len()]);
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

#[cfg(not(target_os = "linux"))]
pub(super) fn pin_to(_index: usize) {}
