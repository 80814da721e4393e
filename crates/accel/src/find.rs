//! Finds the node that belongs to a driver.

use rustix::io::Errno;

const FOLDER: &str = "/dev/accel";

/// Version that a driver reports (`DRM_VERSION`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriverVersion {
    /// Name (`rocket`, `amdxdna_accel_driver`).
    pub name: String,
    /// Description.
    pub description: String,
    /// Major, minor and patch number; rocket says 0.0.0.
    pub numbers: (i32, i32, i32),
}

/// Why no node of a driver was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Absence {
    /// No node exists.
    NoNode,
    /// A node may not be opened.
    Permission {
        /// The node.
        path: String,
    },
    /// Only nodes of other drivers.
    OtherDriver {
        /// A node.
        path: String,
        /// Its driver.
        found: String,
    },
    /// Something else.
    Open {
        /// The node.
        path: String,
        /// Error of the kernel.
        errno: Errno,
    },
}

/// Paths of nodes that belong to a kernel module of that name (`rocket`, `amdxdna`), or to an unknown module. Sysfs is
/// open to all, the node may not be.
pub fn node_paths(module: &str) -> Vec<String> {
    let entries = std::fs::read_dir(FOLDER).into_iter().flatten().flatten();
    let mut paths: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with("accel") && may_be_of(name, module))
        .map(|name| format!("{FOLDER}/{name}"))
        .collect();
    paths.sort();
    paths
}

fn may_be_of(name: &str, module: &str) -> bool {
    let link = std::fs::read_link(format!("/sys/class/accel/{name}/device/driver"));
    let driver = link
        .ok()
        .and_then(|path| Some(path.file_name()?.to_owned()));
    driver.is_none_or(|driver| driver == module)
}

/// Release of the running kernel (`6.18.2`), where known.
pub fn kernel_release() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    Some(text.trim().to_owned())
}

/// Whether a release (`6.12.30-rc1`) is below a version; unknown forms are not.
pub fn is_older(release: &str, than: (u32, u32)) -> bool {
    let mut numbers = release.split(['.', '-']).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) < than,
        _ => false,
    }
}

/// The first node whose driver has one of those names.
///
/// # Errors
/// Why there is none: a missing permission before all else, then the first path's reason.
pub fn find_node<N>(
    paths: &[String],
    names: &[&str],
    open: impl Fn(&str) -> Result<N, Errno>,
    version: impl Fn(&N) -> Result<DriverVersion, Errno>,
) -> Result<(String, N, DriverVersion), Absence> {
    let mut reason = None;
    for path in paths {
        let path = path.clone();
        let opened = open(&path).and_then(|node| version(&node).map(|version| (node, version)));
        match opened {
            Ok((node, version)) if names.contains(&version.name.as_str()) => {
                return Ok((path, node, version));
            }
            Ok((_, version)) => {
                let found = version.name;
                reason = reason.or(Some(Absence::OtherDriver { path, found }));
            }
            Err(Errno::ACCESS | Errno::PERM) => reason = Some(Absence::Permission { path }),
            Err(errno) => reason = reason.or(Some(Absence::Open { path, errno })),
        }
    }
    Err(reason.unwrap_or(Absence::NoNode))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(nodes: &[(&str, Result<&str, Errno>)]) -> Result<String, Absence> {
        let paths: Vec<String> = nodes.iter().map(|node| node.0.to_owned()).collect();
        let open = |path: &str| {
            let node = nodes.iter().find(|node| node.0 == path);
            node.map_or(Err(Errno::NOENT), |node| node.1)
        };
        let version = |name: &&str| {
            Ok(DriverVersion {
                name: (*name).to_owned(),
                ..DriverVersion::default()
            })
        };
        find_node(&paths, &["npu", "npu_driver"], open, version).map(|found| found.0)
    }

    #[test]
    fn the_first_node_of_the_driver_is_taken_and_others_are_named() {
        assert_eq!(find(&[]), Err(Absence::NoNode));
        let nodes = [("a", Ok("vpu")), ("b", Ok("npu_driver")), ("c", Ok("npu"))];
        assert_eq!(find(&nodes), Ok("b".to_owned()));
        let other = Absence::OtherDriver {
            path: "a".to_owned(),
            found: "vpu".to_owned(),
        };
        assert_eq!(find(&[nodes[0], ("b", Err(Errno::NODEV))]), Err(other));
        let no_permission = Absence::Permission {
            path: "b".to_owned(),
        };
        assert_eq!(
            find(&[nodes[0], ("b", Err(Errno::ACCESS))]),
            Err(no_permission)
        );
        let broken = Absence::Open {
            path: "a".to_owned(),
            errno: Errno::NODEV,
        };
        assert_eq!(find(&[("a", Err(Errno::NODEV))]), Err(broken));
    }

    #[test]
    fn releases_are_compared_by_their_first_two_numbers() {
        for (release, old) in [
            ("6.12.30", true),
            ("6.17.9-rc1", true),
            ("6.18-rc3", false),
            ("7.0.1", false),
            ("unknown", false),
        ] {
            assert_eq!(is_older(release, (6, 18)), old, "{release}");
        }
    }
}
