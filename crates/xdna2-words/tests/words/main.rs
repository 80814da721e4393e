//! Words written, read and listed.
#![allow(clippy::unwrap_used)] // A test may panic.

mod board;
mod fields;
mod goldens;
mod listing;
mod streams;

/// `docs/silicon.md` lists the assumptions of the board, each with its probe.
#[test]
fn assumptions_are_documented() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/silicon.md");
    let page = std::fs::read_to_string(page).unwrap();
    for assumption in millrace_xdna2_words::board::ASSUMPTIONS {
        let (name, what, probe) = (assumption.name, assumption.what, assumption.probe);
        let row = format!("| `{name}` | {what} | {probe} |");
        assert!(page.contains(&row), "{row}");
    }
}
