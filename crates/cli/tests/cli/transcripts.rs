//! Documents and help texts match the program: transcripts are run and compared, examples are run, and
//! no output uses this repository's jargon.
//!
//! A test of the binary itself checks that every example parses (`cli/examples.rs`).

use crate::run::{Finished, OK, finish, millrace};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::tempdir;

/// Documents whose fenced blocks with lines `$ millrace …` are transcripts.
const DOCUMENTS: [&str; 4] = [
    "README.md",
    "docs/guide.md",
    "docs/llama-3.2-1b-notes.md",
    "docs/many-machines.md",
];

/// Commands that are not run, by their beginning, and why.
const NOT_RUN: [(&str, &str); 2] = [
    (
        "run demo \"Once upon a time\" --seed 7",
        "what is sampled depends on the last bits of the CPU level's kernels",
    ),
    ("run demo --chat", "the same, and no seed is given"),
];

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A command and its output.
#[derive(Debug, PartialEq)]
pub(crate) struct Transcript {
    pub(crate) command: String,
    pub(crate) shown: Vec<String>,
}

/// Transcripts in a document's fenced blocks. A command may continue on indented lines while a quotation is open.
pub(crate) fn transcripts(document: &str) -> Vec<Transcript> {
    let mut found: Vec<Transcript> = Vec::new();
    let (mut in_block, mut is_transcript) = (false, false);
    for line in document.lines() {
        if line.starts_with("```") {
            in_block = !in_block;
            is_transcript = false;
            continue;
        }
        if !in_block {
            continue;
        }
        let last = found.last_mut();
        match (line.strip_prefix("$ millrace "), last) {
            (Some(command), _) => {
                is_transcript = true;
                found.push(Transcript {
                    command: command.to_owned(),
                    shown: Vec::new(),
                });
            }
            (None, Some(last)) if is_transcript => {
                let open =
                    last.shown.is_empty() && !last.command.matches('"').count().is_multiple_of(2);
                match open {
                    true => last.command += &format!("\n{}", line.trim_start()),
                    false => last.shown.push(line.to_owned()),
                }
            }
            _ => {}
        }
    }
    found
}

/// Splits words like a shell: quotes hold spaces together. A comment, a pipe or a redirection ends the command.
pub(crate) fn words(command: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted, mut any) = (Vec::new(), String::new(), false, false);
    for c in command.chars() {
        match c {
            '"' => {
                quoted = !quoted;
                any = true;
            }
            c if c.is_whitespace() && !quoted => {
                if any {
                    words.push(std::mem::take(&mut word));
                }
                any = false;
            }
            c => {
                word.push(c);
                any = true;
            }
        }
    }
    if any {
        words.push(word);
    }
    let end = words
        .iter()
        .position(|w| ["#", "|", ">", "&&"].contains(&w.as_str()));
    words.truncate(end.unwrap_or(words.len()));
    words
}

/// Times of this computer, the only text that differs between runs: `in 2.71 s on this computer`.
const MASKED: [(&str, &str); 1] = [(" in ", " s on this computer")];

fn masked(line: &str) -> String {
    let mut line = line.trim_end().to_owned();
    for (before, after) in MASKED {
        let Some(end) = line.find(after) else {
            continue;
        };
        let Some(start) = line[..end].rfind(before) else {
            continue;
        };
        let start = start + before.len();
        if line[start..end]
            .chars()
            .all(|c| c.is_ascii_digit() || c == '.')
        {
            line.replace_range(start..end, "#");
        }
    }
    line
}

/// Whether the printed lines match the shown ones, where a line `…` stands for any number of lines.
pub(crate) fn matches(shown: &[String], printed: &[String]) -> Result<(), String> {
    let Some((first, rest)) = shown.split_first() else {
        return match printed.first() {
            None => Ok(()),
            Some(line) => Err(format!("more is printed: {line}")),
        };
    };
    if first.trim() == "…" {
        let fits = (0..=printed.len()).any(|n| matches(rest, &printed[n..]).is_ok());
        return match fits {
            true => Ok(()),
            false => Err(format!("nothing printed goes on as: {rest:?}")),
        };
    }
    match printed.split_first() {
        Some((line, after)) if masked(line) == masked(first) => matches(rest, after),
        Some((line, _)) => Err(format!("shown:   {first}\nprinted: {line}")),
        None => Err(format!("not printed: {first}")),
    }
}

#[test]
fn transcripts_are_what_is_printed() {
    let mut n_run = 0;
    for name in DOCUMENTS {
        let document = fs::read_to_string(root().join(name)).expect("a document");
        for transcript in transcripts(&document) {
            let command = &transcript.command;
            if NOT_RUN.iter().any(|(start, _)| command.starts_with(start)) {
                continue;
            }
            let home = tempdir().expect("a folder");
            let mut arguments = words(command);
            let mut shown = transcript.shown.clone();
            if command.starts_with("kernel ") {
                // Computing takes long without optimisation, and other tests compare it with references.
                arguments.push("--time-only".to_owned());
                shown.retain(|line| !line.starts_with("  computed "));
            }
            let found = finish(millrace(home.path()).args(arguments)).expect(OK);
            let mut lines: Vec<String> = found.stdout.lines().map(str::to_owned).collect();
            if command.starts_with("kernel ") {
                lines.retain(|line| !line.starts_with("  computed "));
            }
            if let Err(problem) = matches(&shown, &lines) {
                panic!("{name}: millrace {command}\n{problem}");
            }
            n_run += 1;
        }
    }
    assert!(n_run >= 2, "{n_run} transcripts");
}

/// The rules above, on transcripts that must and must not match.
#[test]
fn a_transcript_that_differs_is_found() {
    let text = |lines: &str| lines.lines().map(str::to_owned).collect::<Vec<_>>();
    for (shown, printed, fits) in [
        ("a\nb", "a\nb", true),
        ("a\nb", "a\nc", false),
        ("a", "a\nb", false),
        ("a\nb", "a", false),
        ("a\n…", "a\nb\nc", true),
        ("a\n…\nc", "a\nb\nc", true),
        ("a\n…\nd", "a\nb\nc", false),
        (
            "done in 2.71 s on this computer: equal",
            "done in 9 s on this computer: equal",
            true,
        ),
        (
            "done in 2.71 s on this computer: equal",
            "done in 2.71 s on this computer: unlike",
            false,
        ),
        ("predicted 13.2 ms", "predicted 13.3 ms", false),
    ] {
        let found = matches(&text(shown), &text(printed));
        assert_eq!(found.is_ok(), fits, "{shown:?} {printed:?}: {found:?}");
    }
    let document =
        "$ millrace no\n```\n$ millrace run \"a\n  b\" -n 1\nc\n$ millrace info demo\n```\nd";
    let found = transcripts(document);
    let commands: Vec<&str> = found.iter().map(|t| t.command.as_str()).collect();
    assert_eq!(commands, ["run \"a\nb\" -n 1", "info demo"]);
    assert_eq!(found[0].shown, ["c"]);
    assert_eq!(words(&found[0].command), ["run", "a\nb", "-n", "1"]);
}

/// Commands for virtual NPUs: their examples need no network and no files of the user.
const EXAMPLES_OF: [&str; 4] = ["kernel", "compile", "explain", "profile"];

/// Examples that are not run, by a part of them, and why.
const EXAMPLES_NOT_RUN: [(&str, &str); 7] = [
    (
        "profile --paper",
        "plans of prompts of 32,768 tokens; tests of the command take short rows",
    ),
    ("model.gguf", "a file of the user's"),
    ("--sweep", "hundreds of tilings"),
    (
        "gemm-fused-cast 2048x2048x8192",
        "the guide's transcript runs a larger one",
    ),
    (
        "profile demo",
        "runs the larger demo; demo-draft stands for it",
    ),
    (
        "profile --geometry llama-3.2-1b --features",
        "the test of the report in docs/reports leaves out every feature of that model",
    ),
    (
        "--with-image",
        "the test of prompts with an image takes that model with two layers",
    ),
];

/// Commands of the examples in a help text: a line's words up to two spaces, which precede the description.
fn examples(help: &str) -> Vec<String> {
    let examples = help
        .lines()
        .filter_map(|line| line.strip_prefix("  millrace "));
    examples
        .map(|line| line.split("  ").next().unwrap_or(line).trim().to_owned())
        .collect()
}

#[test]
#[ignore = "takes long; .ci/full runs it"]
fn examples_of_help_run() {
    let home = tempdir().expect("a folder");
    let home = home.path();
    let mut n_run = 0;
    for command in EXAMPLES_OF {
        let help = finish(millrace(home).args([command, "--help"]))
            .expect(OK)
            .stdout;
        let examples = examples(&help);
        // Input of the example that adds two vectors.
        fs::write(home.join("a.bin"), vec![0; 2 * 65_536]).expect("written");
        assert!(examples.len() >= 4, "{command}: {examples:?}");
        for example in examples {
            let why = EXAMPLES_NOT_RUN
                .iter()
                .find(|(part, _)| example.contains(part));
            if why.is_some() {
                continue;
            }
            // The next example may read the output of this one.
            let printed = finish(millrace(home).args(words(&example)));
            assert_eq!(printed.code, OK, "millrace {example}\n{}", printed.stderr);
            if let Some((_, file)) = example.split_once(" > ") {
                fs::write(home.join(file.trim()), &printed.stdout).expect("written");
            }
            n_run += 1;
        }
    }
    assert!(n_run >= 12, "{n_run} examples");
    finish(millrace(home).args(["profile", "demo-draft", "-n", "1"])).expect(OK);
}

/// A name of a document or a part of one that only this repository knows: `seed 000`, `B5`, `D2`.
fn jargon(text: &str) -> Option<String> {
    let mut before = "";
    for word in text.split(|c: char| !(c.is_alphanumeric() || c == '_')) {
        let mut letters = word.chars();
        let is_part = matches!(letters.next(), Some('A' | 'B' | 'D' | 'E'))
            && (2..=3).contains(&word.len())
            && letters.clone().all(|c| c.is_ascii_digit())
            // B0 and B1 are operands of a product.
            && !["B0", "B1"].contains(&word);
        let is_seed =
            before.eq_ignore_ascii_case("seed") && word.len() == 3 && word.starts_with("00");
        if is_part || is_seed {
            return Some(format!("{before} {word}"));
        }
        if !word.is_empty() {
            before = word;
        }
    }
    None
}

/// What a command printed, which must have no word of ours.
pub(crate) fn plain_words(found: Finished) -> String {
    for text in [&found.stdout, &found.stderr] {
        assert_eq!(jargon(text), None, "{text}");
    }
    found.stdout
}

/// Beside these outputs, the tests of `profile` look at those of a report and of a paper's tables.
#[test]
fn nothing_printed_needs_documents_of_ours() {
    assert_eq!(jargon("see seed 000 for it").as_deref(), Some("seed 000"));
    assert_eq!(jargon("(B5)").as_deref(), Some(" B5"));
    assert_eq!(jargon("BF16, Q4_0, --seed 7, C1 = A B1, 0xD2F"), None);
    let home = tempdir().expect("a folder");
    let help = finish(millrace(home.path()).arg("--help"))
        .expect(OK)
        .stdout;
    let commands = help
        .lines()
        .skip_while(|line| !line.starts_with("Commands:"));
    let commands = commands.skip(1).take_while(|line| line.starts_with("  "));
    // The description of a command may continue on further lines.
    let commands = commands.filter(|line| !line.starts_with("   "));
    let names: Vec<String> = commands
        .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
        .filter(|name| name != "help")
        .collect();
    assert!(names.len() > 20, "{names:?}");
    let mut runs: Vec<Vec<String>> = names
        .into_iter()
        .map(|n| vec![n, "--help".to_owned()])
        .collect();
    for command in [
        "explain demo-draft",
        "explain demo-draft --mode mlir-air",
        "explain demo-draft --op attn",
        "explain demo-draft --mode mlir-air --without single-row-head",
        "explain --geometry gemma-tiny",
        "explain --geometry qwen-tiny",
        "profile demo-draft --timing-only --features",
        "profile demo-draft --timing-only --mode mlir-air",
        "compile demo-draft --list --prompt-tokens 30",
        "compile demo-draft --list --prompt-tokens 30 --mode mlir-air",
        "kernel",
    ] {
        runs.push(words(command));
    }
    for arguments in runs {
        let found = finish(millrace(home.path()).args(&arguments)).expect(OK);
        plain_words(found);
    }
}
