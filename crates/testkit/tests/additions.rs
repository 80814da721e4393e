//! The steps of adding a part: the patches of `testdata/dummies`, and the rows of CONTRIBUTING.md that follow from them.
//!
//! `.ci/dummies` applies the patches to a copy and runs the parts that they add. Here their lists of files are compared with the table,
//! and each is tried on the tree as it is. `MILLRACE_WRITE=1 cargo test -p millrace-testkit --test testkit additions` writes the rows
//! anew.
#![allow(clippy::unwrap_used)] // A test may panic.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const KINDS: [&str; 6] = ["family", "experts", "op", "format", "stage", "target"];

/// A file that a patch touches.
#[derive(Debug, PartialEq)]
struct TouchedFile {
    path: String,
    is_new: bool,
    n_added: usize,
    n_removed: usize,
}

/// A dummy: its patch's description, and the files that it touches.
struct Dummy {
    /// Words of the row, by the key before them.
    head: Vec<(String, String)>,
    files: Vec<TouchedFile>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn patch(kind: &str) -> PathBuf {
    root().join(format!("testdata/dummies/{kind}.patch"))
}

impl Dummy {
    /// Reads a patch: lines `key: words`, then the output of `git diff`.
    fn parse(text: &str) -> Dummy {
        let start = text.find("diff --git ").expect("a difference");
        let (head, diffs) = text.split_at(start);
        let head = head.lines().filter_map(|line| line.split_once(": "));
        Dummy {
            head: head
                .map(|(key, words)| (key.to_owned(), words.to_owned()))
                .collect(),
            files: diffs
                .split("diff --git ")
                .skip(1)
                .map(TouchedFile::parse)
                .collect(),
        }
    }

    fn word(&self, key: &str) -> &str {
        let found = self.head.iter().find(|(known, _)| known == key);
        found.map_or("", |(_, words)| words)
    }

    /// A path as the page spells it: with a placeholder for the dummy's name.
    fn spelled(&self, path: &str) -> String {
        match self.word("stands-for") {
            "" => path.to_owned(),
            placeholder => path.replace(self.word("name"), placeholder),
        }
    }

    /// New files, and folders of the dummy's name with how many they hold.
    fn new_files(&self) -> Vec<String> {
        let mut cells: Vec<(String, usize)> = Vec::new();
        for file in self.files.iter().filter(|file| file.is_new) {
            let path = self.spelled(&file.path);
            let placeholder = format!("{}/", self.word("stands-for"));
            let folder = path.find(&placeholder).filter(|_| placeholder.len() > 1);
            let cell = folder.map_or(path.clone(), |at| path[..at + placeholder.len()].to_owned());
            match cells.iter_mut().find(|(known, _)| *known == cell) {
                Some((_, n)) => *n += 1,
                None => cells.push((cell, 1)),
            }
        }
        let cell = |(path, n): (String, usize)| match n {
            1 => format!("`{path}`"),
            n => format!("`{path}` ({n} files)"),
        };
        cells.into_iter().map(cell).collect()
    }

    /// Files that were there, with how many lines each gets.
    fn rows(&self) -> Vec<String> {
        let old = self.files.iter().filter(|file| !file.is_new);
        old.map(|file| {
            let n = file.n_added;
            let lines = if n == 1 { "line" } else { "lines" };
            format!("`{}` ({n} {lines})", file.path)
        })
        .collect()
    }

    /// The row of CONTRIBUTING.md.
    fn row(&self) -> String {
        let cell = |files: Vec<String>, words: &str| match files.is_empty() {
            true => words.to_owned(),
            false => format!("{}: {words}", files.join(", ")),
        };
        format!(
            "| **{}** | {} | {} | {} |",
            self.word("kind"),
            cell(self.new_files(), self.word("file")),
            cell(self.rows(), self.word("row")),
            self.word("done"),
        )
    }
}

impl TouchedFile {
    /// Reads one file's part of a patch, behind `diff --git `.
    fn parse(text: &str) -> TouchedFile {
        let mut lines = text.lines();
        let names = lines.next().unwrap();
        let (_, path) = names.rsplit_once(" b/").expect("a/NAME b/NAME");
        let mut file = TouchedFile {
            path: path.to_owned(),
            is_new: false,
            n_added: 0,
            n_removed: 0,
        };
        let mut in_hunk = false;
        for line in lines {
            in_hunk |= line.starts_with("@@ ");
            match in_hunk {
                true => {
                    file.n_added += usize::from(line.starts_with('+'));
                    file.n_removed += usize::from(line.starts_with('-'));
                }
                false => {
                    file.is_new |= line.starts_with("new file ") || line.starts_with("copy to ");
                }
            }
        }
        file
    }
}

fn dummy(kind: &str) -> Dummy {
    let path = patch(kind);
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    Dummy::parse(&text)
}

/// The page with a row in place of the one of its kind.
fn with_row(page: &str, dummy: &Dummy) -> String {
    let start = format!("| **{}** |", dummy.word("kind"));
    let mut found = false;
    let lines = page.lines().map(|line| {
        let is_it = line.starts_with(&start);
        found |= is_it;
        if is_it { dummy.row() } else { line.to_owned() }
    });
    let page = lines.collect::<Vec<_>>().join("\n") + "\n";
    assert!(found, "CONTRIBUTING.md has no row {start}");
    page
}

#[test]
fn the_rows_are_those_of_the_patches() {
    let path = root().join("CONTRIBUTING.md");
    let found = fs::read_to_string(&path).unwrap();
    let dummies = KINDS.map(dummy);
    let expected = dummies
        .iter()
        .fold(found.clone(), |page, dummy| with_row(&page, dummy));
    if std::env::var_os("MILLRACE_WRITE").is_some() {
        fs::write(&path, &expected).unwrap();
        return;
    }
    let different = expected.lines().zip(found.lines()).filter(|(a, b)| a != b);
    let different: Vec<&str> = different.map(|(expected, _)| expected).collect();
    assert!(
        different.is_empty(),
        "by the patches of testdata/dummies CONTRIBUTING.md has these rows (MILLRACE_WRITE=1 writes them):\n{}",
        different.join("\n")
    );
}

/// Patches add only: a row that a patch changes shows a missing seam. A target is named by the row of the registry's room.
#[test]
fn patches_remove_nothing() {
    for kind in KINDS {
        let changed = dummy(kind).files;
        let changed = changed
            .iter()
            .filter(|file| !file.is_new && file.n_removed > 0);
        let changed: Vec<&str> = changed.map(|file| file.path.as_str()).collect();
        let allowed: &[&str] = match kind {
            "target" => &["ARCHITECTURE.md"],
            _ => &[],
        };
        assert_eq!(changed, allowed, "{kind}");
    }
}

#[test]
fn patches_apply() {
    let try_all = |patches: &[&str]| {
        let mut git = Command::new("git");
        git.current_dir(root()).args(["apply", "--check"]);
        git.args(patches.iter().map(|kind| patch(kind)));
        let output = git.output().expect("git is installed");
        let problem = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{}: {problem}", patches.join(", "));
    };
    KINDS.iter().for_each(|kind| try_all(&[kind]));
    // One copy receives all of them.
    try_all(&KINDS);
}

#[test]
fn one_more_file_is_another_row() {
    let text = fs::read_to_string(patch("family")).unwrap();
    let row = Dummy::parse(&text).row();
    let more = "diff --git a/docs/models.md b/docs/models.md\n--- a/docs/models.md\n+++ b/docs/models.md\n@@ -1,1 +1,2 @@\n a\n+b\n";
    let other = Dummy::parse(&format!("{text}{more}")).row();
    assert_ne!(row, other);
    assert!(other.contains("`docs/models.md` (1 line)"), "{other}");
    let new = "diff --git a/crates/x.rs b/crates/x.rs\nnew file mode 100644\n--- /dev/null\n+++ b/crates/x.rs\n@@ -0,0 +1 @@\n+a\n";
    let other = Dummy::parse(&format!("{text}{new}")).row();
    assert!(other.contains("`crates/x.rs`"), "{other}");
}
