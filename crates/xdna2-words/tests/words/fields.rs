//! Every field of every record: its bounds, and that nothing is lost on the way to words and back.

use millrace_xdna2_words::register::blocks;
use millrace_xdna2_words::{FieldError, Layout, Record, TileKind, WordField};
use proptest::prelude::*;

/// All layouts, each once.
fn layouts() -> Vec<&'static Layout> {
    let mut all: Vec<&'static Layout> = Vec::new();
    for kind in [TileKind::Shim, TileKind::Memory, TileKind::Core] {
        for layout in blocks(kind).iter().filter_map(|block| block.layout) {
            if !all.contains(&layout) {
                all.push(layout);
            }
        }
    }
    all
}

#[test]
fn each_field_holds_its_bounds_and_no_more() {
    let mut n_fields = 0;
    for layout in layouts() {
        let mut claimed = vec![0u32; layout.n_words];
        for &(field, parts) in layout.fields {
            n_fields += 1;
            let most = layout.most(field).unwrap();
            for value in [0, 1, most] {
                let record = Record::new(layout).with(&[(field, value)]).unwrap();
                let again = Record::read(layout, &record.words()).unwrap();
                assert_eq!(again, record, "{layout:?} {field:?}");
                assert_eq!(again.get(field), value);
            }
            let refused = Record::new(layout).with(&[(field, most + 1)]);
            assert!(
                matches!(refused, Err(FieldError::TooLarge { value, most: m, .. }) if value == most + 1 && m == most),
                "{layout:?} {field:?}"
            );
            // At its maximum a field sets its own bits and no other's.
            let words = Record::new(layout).with(&[(field, most)]).unwrap().words();
            for (word, claimed) in words.iter().zip(&mut claimed) {
                assert_eq!(word & *claimed, 0, "{layout:?} {field:?}");
                *claimed |= word;
            }
            let bits: u32 = parts.iter().map(|p| u32::from(p.1 - p.2) + 1).sum();
            assert_eq!(words.iter().map(|w| w.count_ones()).sum::<u32>(), bits);
        }
        for (word, claimed) in claimed.iter().enumerate() {
            for bit in (0..32).filter(|bit| claimed >> bit & 1 == 0) {
                let mut words = vec![0; layout.n_words];
                words[word] = 1 << bit;
                let read = Record::read(layout, &words);
                let is_refused = matches!(read, Err(FieldError::Reserved { word: w, bits, .. }) if w == word && bits == 1 << bit);
                assert!(is_refused, "{layout:?} word {word} bit {bit}");
            }
        }
    }
    assert!(n_fields > 110, "{n_fields}");
}

#[test]
fn what_a_record_lacks_is_refused() {
    let queue = &millrace_xdna2_words::register::QUEUE;
    let refused = Record::new(queue).with(&[(WordField::D0Step, 1)]);
    assert_eq!(
        refused.unwrap_err().to_string(),
        "a task has no field d0_step"
    );
    assert_eq!(Record::new(queue).get(WordField::D0Step), 0);
    let refused = Record::read(queue, &[0, 0]).unwrap_err();
    assert_eq!(refused.to_string(), "a task has 1 words, 2 were given");
}

proptest! {
    #[test]
    fn words_are_read_as_they_were_written(which in any::<prop::sample::Index>(), seeds in prop::collection::vec(any::<u64>(), 40)) {
        let all = layouts();
        let layout = all[which.index(all.len())];
        let mut record = Record::new(layout);
        for (&(field, _), seed) in layout.fields.iter().zip(&seeds) {
            record.set(field, seed % (layout.most(field).unwrap() + 1)).unwrap();
        }
        let words = record.words();
        let again = Record::read(layout, &words);
        prop_assert_eq!(again, Ok(record));
    }

    #[test]
    fn records_give_the_words_that_made_them(which in any::<prop::sample::Index>(), words in prop::collection::vec(any::<u32>(), 8)) {
        let all = layouts();
        let layout = all[which.index(all.len())];
        let words = &words[..layout.n_words];
        if let Ok(record) = Record::read(layout, words) {
            prop_assert_eq!(record.words(), words);
        }
    }
}
