//! Every example of every help must parse.

use super::Cli;
use clap::Parser;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;

/// Commands of the examples in a help text. A prefix up to a pipe is cut off, and so is the description, which follows
/// two spaces.
fn examples(help: &str) -> Vec<String> {
    let lines = help.lines().filter(|line| line.starts_with("  "));
    let examples = lines.filter_map(|line| {
        let item = line.trim_start().split("  ").next().unwrap_or(line);
        let (_, command) = item.split_once("millrace ")?;
        (!item.contains('`')).then(|| command.trim().to_owned())
    });
    examples.collect()
}

/// Words as a shell splits them, up to a pipe or a redirection.
fn words(command: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted, mut any) = (Vec::new(), String::new(), false, false);
    for c in command.chars().chain([' ']) {
        match c {
            '"' => (quoted, any) = (!quoted, true),
            ' ' if !quoted => {
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
    // Same rewrite as in `main`, for llama-bench's option.
    for word in words.iter_mut().filter(|word| *word == "-pg") {
        "--pg".clone_into(word);
    }
    let end = words.iter().position(|w| ["|", ">"].contains(&w.as_str()));
    words.truncate(end.unwrap_or(words.len()));
    words
}

#[test]
fn every_example_parses() {
    let cli = Cli::definition();
    let of = |command: &clap::Command| {
        let helps = [command.get_after_help(), command.get_after_long_help()];
        let helps = helps.into_iter().flatten();
        helps
            .flat_map(|help| examples(&help.to_string()))
            .collect::<Vec<_>>()
    };
    let all = std::iter::once(&cli).chain(cli.get_subcommands());
    let all: Vec<String> = all.flat_map(of).collect();
    for example in &all {
        let arguments = std::iter::once("millrace".to_owned()).chain(words(example));
        if let Err(error) = Cli::from_line(arguments.map(OsString::from)) {
            panic!("millrace {example}\n{error}");
        }
    }
    assert!(all.len() > 150, "{} examples", all.len());
}

/// Lists and examples in a help text fit its width, so nothing breaks them. An option of many commands has the same heading in all of them.
#[test]
fn helps_are_laid_out() {
    let cli = Cli::definition();
    let mut headings: BTreeMap<&str, BTreeSet<Option<&str>>> = BTreeMap::new();
    for command in cli.get_subcommands() {
        let text = command.get_after_help().map(ToString::to_string);
        let text = text.unwrap_or_default();
        let long =
            |line: &&str| line.starts_with("  ") && line.chars().count() > super::layout::WIDTH;
        let long: Vec<&str> = text.lines().filter(long).collect();
        assert!(long.is_empty(), "{}: {long:#?}", command.get_name());
        for argument in command.get_arguments() {
            let id = argument.get_id().as_str();
            headings
                .entry(id)
                .or_default()
                .insert(argument.get_help_heading());
        }
    }
    for option in [
        "json",
        "lora",
        "session",
        "system",
        "trace",
        "file",
        "prompt_tokens",
    ] {
        let found = headings.get(option).map(BTreeSet::len);
        assert_eq!(
            found,
            Some(1),
            "--{option} below {:?}",
            headings.get(option)
        );
    }
    assert_eq!(headings["json"], BTreeSet::from([None]));
}

#[test]
fn what_does_not_exist_does_not_parse() {
    for wrong in [
        "explain --geometry no-such-model",
        "profile demo --layers two",
        "compile demo every plan of a model",
    ] {
        let arguments = std::iter::once("millrace".to_owned()).chain(words(wrong));
        assert!(Cli::try_parse_from(arguments).is_err(), "{wrong}");
    }
    assert_eq!(
        words("run demo \"Once upon\" > out.txt"),
        ["run", "demo", "Once upon"]
    );
}
