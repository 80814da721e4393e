//! The pages that people read: links lead somewhere, the README is short, reports name the program that made them.
#![allow(clippy::unwrap_used)] // A test may panic.

use std::fs;
use std::path::{Component, Path, PathBuf};

/// Limits of the README.
const MAX_LINES: usize = 90;
const MAX_CELL: usize = 120;
const MAX_WORDS_A_SENTENCE: f64 = 25.0;
/// Limits of a version's entry in the changelog: a page.
const MAX_CHANGELOG_LINES: usize = 60;
const MAX_CHANGELOG_WORDS: usize = 600;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every page below `docs`, by its path from the root.
fn docs() -> Vec<PathBuf> {
    let mut folders = vec![PathBuf::from("docs")];
    let mut pages = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).unwrap() {
            let path = folder.join(entry.unwrap().file_name());
            match root().join(&path).is_dir() {
                true => folders.push(path),
                false if path.extension().is_some_and(|e| e == "md") => pages.push(path),
                false => {}
            }
        }
    }
    pages.sort();
    pages
}

fn read(page: &Path) -> String {
    fs::read_to_string(root().join(page)).unwrap()
}

/// A page's lines outside of fenced blocks.
fn outside_of_code(page: &str) -> Vec<&str> {
    let mut in_code = false;
    let lines = page.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence
    });
    lines.collect()
}

/// A text without the parts between backticks.
fn without_code(text: &str) -> String {
    text.split('`').step_by(2).collect()
}

/// Targets of a page's links, `](target)`.
fn links(page: &str) -> Vec<String> {
    let text = without_code(&outside_of_code(page).join("\n"));
    let parts = text.split("](").skip(1);
    let targets = parts.filter_map(|part| part.split_once(')'));
    targets.map(|(target, _)| target.to_owned()).collect()
}

/// Names of a page's headings, as GitHub makes them.
fn anchors(page: &str) -> Vec<String> {
    let headings = outside_of_code(page).into_iter();
    let headings = headings.filter_map(|line| line.strip_prefix('#'));
    let mut names: Vec<String> = Vec::new();
    for heading in headings {
        let text = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = text.chars().filter_map(|c| match c {
            ' ' => Some('-'),
            '-' | '_' => Some(c),
            c => c.is_alphanumeric().then_some(c),
        });
        let name: String = kept.collect();
        let n_same = names.iter().filter(|known| **known == name).count();
        names.push(match n_same {
            0 => name,
            n => format!("{name}-{n}"),
        });
    }
    names
}

/// A path without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => _ = normal.pop(),
            Component::CurDir => {}
            other => normal.push(other),
        }
    }
    normal
}

/// The fault of a page's link, if it leads to a file of the repository.
fn problem(page: &Path, link: &str) -> Option<String> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
    let path = match file {
        "" => page.to_owned(),
        file => normal(&page.parent().unwrap().join(file)),
    };
    if !root().join(&path).exists() {
        return Some(format!(
            "{}: `{link}` leads to no file: {}",
            page.display(),
            path.display()
        ));
    }
    let is_page = path.extension().is_some_and(|e| e == "md");
    let found = anchor.is_empty() || !is_page || anchors(&read(&path)).contains(&anchor.to_owned());
    (!found).then(|| format!("{}: `{link}` leads to no heading", page.display()))
}

fn pages() -> Vec<PathBuf> {
    let named = [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
    ];
    let named = named.map(PathBuf::from);
    named.into_iter().chain(docs()).collect()
}

#[test]
fn links_lead_somewhere() {
    let mut problems = Vec::new();
    let mut n_links = 0;
    for page in pages() {
        for link in links(&read(&page)) {
            n_links += 1;
            problems.extend(problem(&page, &link));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(n_links > 100, "{n_links} links");
    let page = Path::new("docs/guide.md");
    for wrong in [
        "nothing.md",
        "../nothing.md",
        "files.md#nothing",
        "#nothing",
    ] {
        assert!(problem(page, wrong).is_some(), "{wrong}");
    }
    assert_eq!(problem(page, "../README.md#speed"), None);
    assert_eq!(
        links("[a](b.md#c) `[d](e)`\n```\n[f](g)\n```\n"),
        ["b.md#c"]
    );
}

#[test]
fn the_index_lists_every_page() {
    let index = Path::new("docs/README.md");
    let listed: Vec<PathBuf> = links(&read(index))
        .iter()
        .map(|link| normal(&Path::new("docs").join(link)))
        .collect();
    for page in docs() {
        let is_listed = page == index || listed.contains(&page);
        assert!(
            is_listed,
            "{} has no line in docs/README.md",
            page.display()
        );
    }
}

#[test]
fn reports_say_what_made_them() {
    let reports = docs()
        .into_iter()
        .filter(|page| page.starts_with("docs/reports"));
    let mut n_reports = 0;
    for page in reports {
        let text = read(&page);
        let top: Vec<&str> = text.lines().take(3).collect();
        let top = top.join("\n");
        let says = top.contains("\nGenerated by `") && top.contains("tools/make_reports`");
        assert!(says, "{}: {top}", page.display());
        let name = page.file_name().unwrap().to_str().unwrap();
        let script = read(Path::new("tools/make_reports"));
        assert!(script.contains(name), "tools/make_reports makes no {name}");
        n_reports += 1;
    }
    assert!(n_reports >= 5, "{n_reports} reports");
}

/// Cells of a page's tables.
fn cells(page: &str) -> Vec<&str> {
    let rows = outside_of_code(page).into_iter();
    let rows = rows.filter(|line| line.starts_with('|'));
    rows.flat_map(|row| row.trim_matches('|').split(" | "))
        .map(str::trim)
        .collect()
}

/// Words of each sentence of a page: of paragraphs and items of lists, not of headings, tables, comments and code.
fn sentences(page: &str) -> Vec<usize> {
    let mut blocks = vec![String::new()];
    for line in outside_of_code(page) {
        let line = line.trim();
        let is_prose = !["#", "|", "<!--"]
            .iter()
            .any(|begin| line.starts_with(begin));
        if line.is_empty() || line.starts_with("- ") || !is_prose {
            blocks.push(String::new());
        }
        if is_prose && let Some(block) = blocks.last_mut() {
            *block += " ";
            *block += line.trim_start_matches("- ");
        }
    }
    let mut counts = Vec::new();
    for block in blocks {
        let mut n_words = 0;
        for word in block.split_whitespace() {
            n_words += 1;
            let bare = word.trim_end_matches(['*', ')', ']', '`', '"']);
            if bare.ends_with(['.', '!', '?', ':']) {
                counts.push(n_words);
                n_words = 0;
            }
        }
        if n_words > 0 {
            counts.push(n_words);
        }
    }
    counts
}

fn words_a_sentence(page: &str) -> f64 {
    let counts = sentences(page);
    counts.iter().sum::<usize>() as f64 / counts.len().max(1) as f64
}

#[test]
fn the_readme_is_a_door() {
    let readme = read(Path::new("README.md"));
    let n_lines = readme.lines().count();
    assert!(n_lines <= MAX_LINES, "{n_lines} lines");
    for cell in cells(&readme) {
        let n = cell.chars().count();
        assert!(n <= MAX_CELL, "{n} characters in a cell: {cell}");
    }
    let words = words_a_sentence(&readme);
    assert!(words <= MAX_WORDS_A_SENTENCE, "{words:.1} words a sentence");
    for command in [
        "cargo run --profile quick -- run demo \"Once upon a time\"",
        "cargo test --release --workspace --locked",
    ] {
        assert!(readme.contains(command), "no `{command}`");
    }
    // The measures themselves.
    assert_eq!(
        sentences("# A b c\n\nOne two. Three\nfour five!\n\n| a |\n\n- six\n- seven [x](y).\n"),
        [2, 3, 1, 2]
    );
    assert_eq!(cells("| a | b c |\n```\n| d |\n```\n"), ["a", "b c"]);
}

/// Measured speeds are recorded once, in docs/cpu-speed.md: the README's rows are those.
#[test]
fn the_readmes_speeds_are_those_that_were_measured() {
    let readme = read(Path::new("README.md"));
    let measured = read(Path::new("docs/cpu-speed.md"));
    // `| file | test | ours, least | llama.cpp's, least | ratio, least | … |`, of the first table.
    let median = |file: &str, test: &str| -> [String; 3] {
        let begin = format!("| {file} | {test} | ");
        let row = measured.lines().find_map(|line| line.strip_prefix(&begin));
        let row = row.unwrap_or_else(|| panic!("no row {begin}"));
        let medians = row.split(" | ").take(3);
        let medians = medians.map(|cell| cell.split(',').next().unwrap().to_owned());
        let medians: Vec<String> = medians.collect();
        medians.try_into().unwrap()
    };
    let (_, table) = readme.split_once("| file | reading |").unwrap();
    let rows = table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    let mut n_rows = 0;
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let found = [&cells[1..4], &cells[4..7]];
        let expected = ["pp512", "tg64"].map(|test| median(cells[0], test));
        assert_eq!(found[0], expected[0], "{row}");
        assert_eq!(found[1], expected[1], "{row}");
        n_rows += 1;
    }
    assert_eq!(n_rows, 6);
}

/// Whether a line cites documents that nobody else has: `seed 0…`, or a folder's notes as a source.
fn cites_internal_documents(line: &str) -> bool {
    let line = line.to_lowercase();
    let mut rest = line.as_str();
    while let Some((before, after)) = rest.split_once("seed") {
        let begins = !before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let number = after.trim_start_matches([' ', '-', '_']);
        let digits = number.chars().take_while(char::is_ascii_digit).count();
        if begins && digits == 3 && number.starts_with("00") {
            return true;
        }
        rest = after;
    }
    // Golden files of generators that may not be copied are in a folder of this name, for those who have them.
    line.replace("shared/research/", "").contains("research")
}

/// Text files below a folder, but for test data.
fn text_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(root().join(folder)).unwrap() {
        let path = folder.join(entry.unwrap().file_name());
        let is_text = path.extension().is_some_and(|e| {
            ["rs", "md", "toml", "csv", "py", "json"]
                .map(Some)
                .contains(&e.to_str())
        });
        match root().join(&path).is_dir() {
            true if path.ends_with("testdata") => {}
            true => text_files(&path, found),
            false if is_text => found.push(path),
            false => {}
        }
    }
}

#[test]
fn nothing_cites_documents_of_ours() {
    let mut files = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"]
        .map(PathBuf::from)
        .to_vec();
    text_files(Path::new("crates"), &mut files);
    text_files(Path::new("docs"), &mut files);
    assert!(files.len() > 500, "{} files", files.len());
    // Tests that look for such words must contain them.
    let looks_for = [
        "crates/testkit/tests/pages.rs",
        "crates/cli/tests/cli/transcripts.rs",
    ];
    let mut found = Vec::new();
    for file in files {
        if looks_for.iter().any(|path| file == Path::new(path)) {
            continue;
        }
        let Ok(text) = fs::read_to_string(root().join(&file)) else {
            continue;
        };
        for (number, line) in text.lines().enumerate() {
            if cites_internal_documents(line) {
                found.push(format!("{}:{}: {line}", file.display(), number + 1));
            }
        }
    }
    assert!(
        found.is_empty(),
        "name what was published:\n{}",
        found.join("\n")
    );
    for (line, cites) in [
        ("as seed 000 B5 says", true),
        ("Seed 002, equation 5", true),
        ("seed000 (guide)", true),
        ("(research: AM027)", true),
        ("inputs without a file from seed 7", false),
        ("--seed 1001", false),
        ("\"/../../../shared/research/rk3588_golden\"", false),
    ] {
        assert_eq!(cites_internal_documents(line), cites, "{line}");
    }
}

/// The glossary has a line for each word, and each word once.
#[test]
fn the_glossary_is_a_line_a_word() {
    let map = read(Path::new("ARCHITECTURE.md"));
    let (_, glossary) = map.split_once("\n## Glossary\n").unwrap();
    let rows = glossary
        .lines()
        .filter(|line| line.starts_with("| "))
        .skip(1);
    let mut words: Vec<&str> = rows.map(|row| row.split(" | ").next().unwrap()).collect();
    let n_words = words.len();
    assert!(n_words >= 20, "{n_words} words");
    words.sort_unstable();
    words.dedup();
    assert_eq!(words.len(), n_words);
}

#[test]
fn the_changelog_has_a_page_for_each_version() {
    let changelog = read(Path::new("CHANGELOG.md"));
    let versions: Vec<&str> = changelog.split("\n## [").skip(1).collect();
    assert!(!versions.is_empty(), "no version");
    for version in versions {
        let name = version.split(']').next().unwrap();
        let n_lines = version.lines().count();
        let n_words = version.split_whitespace().count();
        assert!(
            n_lines <= MAX_CHANGELOG_LINES && n_words <= MAX_CHANGELOG_WORDS,
            "{name}: {n_lines} lines, {n_words} words; details belong in docs/changes-*.md"
        );
    }
    // The packaged version is the first one in the changelog.
    let version = format!("\n## [{}]", env!("CARGO_PKG_VERSION"));
    let first = changelog.find("\n## [");
    assert_eq!(changelog.find(&version), first, "{version} is not first");
}
