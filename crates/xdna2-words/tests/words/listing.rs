//! A stream of our own, with a register of every kind, and its listing.

use millrace_xdna2_words::listing::listing;
use millrace_xdna2_words::txn::{decode, words_of_file};

const WORDS: &str = include_str!("fixtures/every_kind.txt");
const LISTING: &str = include_str!("fixtures/every_kind.listing");

#[test]
fn every_kind_of_register_is_named_with_its_fields() {
    let stream = decode(&words_of_file(WORDS.as_bytes()).unwrap()).unwrap();
    let listing = listing(&stream);
    let mut text = format!("{}\n", listing.title);
    let mut at = 4;
    for line in &listing.lines {
        assert_eq!(line.word, at);
        at += line.words.len();
        text += &format!("{:5} {} {}\n", line.word, line.operation, line.text);
        for detail in &line.details {
            text += &format!("        {detail}\n");
        }
    }
    assert_eq!(at, words_of_file(WORDS.as_bytes()).unwrap().len());
    if std::env::var_os("PRINT_LISTING").is_some() {
        print!("{text}");
    }
    assert_eq!(text, LISTING);
}
