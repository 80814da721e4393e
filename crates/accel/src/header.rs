//! Structures compared with the kernel's headers by a C compiler, for tests of drivers.
//!
//! The headers of the building system may be older than the driver, so an environment variable names their folder:
//! [`VARIABLE`]. `tools/drm_headers.sh` fetches some.

use std::fmt::Write;
use std::process::Command;

/// Names the folder that has `drm/…` and `linux/…` in it.
pub const VARIABLE: &str = "MILLRACE_LINUX_HEADERS";

/// A structure as this workspace declares it, with the header's names.
#[derive(Clone, Debug)]
pub struct Structure {
    /// `struct NAME` of the header.
    pub name: &'static str,
    /// Its size.
    pub size_bytes: usize,
    /// Fields and their offsets.
    pub offsets: Vec<(&'static str, usize)>,
}

/// Offsets of fields of a `repr(C)` structure, each with the header's name where it is another.
#[macro_export]
macro_rules! offsets {
    ($kind:ident { $($field:ident $(: $own:ident)?),* $(,)? }) => {
        vec![$((stringify!($field), $crate::own_offset!($kind, $field $(, $own)?))),*]
    };
}

/// The offset of a field by its own name.
#[doc(hidden)]
#[macro_export]
macro_rules! own_offset {
    ($kind:ident, $field:ident) => {
        std::mem::offset_of!($kind, $field)
    };
    ($kind:ident, $field:ident, $own:ident) => {
        std::mem::offset_of!($kind, $own)
    };
}

pub use crate::offsets;

/// Panics where a header has another size, offset or number. Reports that it checked nothing where [`VARIABLE`] is not
/// set.
///
/// # Panics
/// Where anything differs; where the header or a C compiler cannot be had though the variable is set.
pub fn check(header: &str, structures: &[Structure], numbers: &[(&'static str, u64)]) {
    let Ok(folder) = std::env::var(VARIABLE) else {
        println!(
            "{header} was not looked at: {VARIABLE} is not set; tools/drm_headers.sh fetches headers"
        );
        return;
    };
    let source = source(header, structures, numbers);
    let place = std::env::temp_dir().join(format!("millrace-header-{}", std::process::id()));
    std::fs::create_dir_all(&place).expect("a folder for the C program");
    let file = place.join(format!("{}.c", header.replace('/', "-")));
    std::fs::write(&file, source).expect("the C program is written");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let ran = Command::new(&compiler)
        .arg(format!("-I{folder}"))
        .args(["-fsyntax-only", "-Wall", "-Werror"])
        .arg(&file)
        .output();
    let _ = std::fs::remove_file(&file);
    let _ = std::fs::remove_dir(&place);
    let ran = ran.unwrap_or_else(|error| panic!("{compiler}: {error}"));
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{header} of {folder}: {said}");
}

/// A C program that compiles if sizes, offsets and numbers agree.
fn source(header: &str, structures: &[Structure], numbers: &[(&'static str, u64)]) -> String {
    let mut text = format!("#include <stddef.h>\n#include <{header}>\n");
    let mut claim = |what: String, value: u64| {
        let _ = writeln!(
            text,
            "_Static_assert({what} == {value}ull, \"{what} is not {value}\");"
        );
    };
    for structure in structures {
        let name = structure.name;
        claim(
            format!("sizeof(struct {name})"),
            structure.size_bytes as u64,
        );
        for (field, offset) in &structure.offsets {
            claim(format!("offsetof(struct {name}, {field})"), *offset as u64);
        }
    }
    for (name, value) in numbers {
        claim((*name).to_owned(), *value);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_for_every_size_offset_and_number() {
        let structure = Structure {
            name: "pair",
            size_bytes: 8,
            offsets: vec![("second", 4)],
        };
        let text = source("drm/pair.h", &[structure], &[("PAIR", 7)]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "#include <stddef.h>",
                "#include <drm/pair.h>",
                "_Static_assert(sizeof(struct pair) == 8ull, \"sizeof(struct pair) is not 8\");",
                "_Static_assert(offsetof(struct pair, second) == 4ull, \"offsetof(struct pair, second) is not 4\");",
                "_Static_assert(PAIR == 7ull, \"PAIR is not 7\");",
            ]
        );
    }
}
