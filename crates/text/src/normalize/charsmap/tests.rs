//! Small maps, laid out as SentencePiece lays out its own.

use super::*;
use proptest::prelude::*;

/// The bytes of a map. Each node of the trie gets 256 separate units, which wastes space and needs no search.
pub(crate) fn charsmap(entries: &[(&str, &str)]) -> Vec<u8> {
    struct TrieNode {
        children: Vec<(u8, usize)>,
        value: Option<u32>,
    }
    let node = || TrieNode {
        children: Vec::new(),
        value: None,
    };
    let (mut nodes, mut replacements) = (vec![node()], Vec::new());
    for (from, to) in entries {
        let mut at = 0;
        for byte in from.bytes() {
            let known = nodes[at].children.iter().find(|(known, _)| *known == byte);
            at = match known {
                Some((_, child)) => *child,
                None => {
                    let child = nodes.len();
                    nodes[at].children.push((byte, child));
                    nodes.push(node());
                    child
                }
            };
        }
        nodes[at].value = Some(replacements.len() as u32);
        replacements.extend_from_slice(to.as_bytes());
        replacements.push(0);
    }
    let base = |index: usize| (256 * (index + 1)) as u32;
    let mut units = vec![0u32; 256 * (nodes.len() + 1)];
    units[0] = base(0) << 10;
    for (index, node) in nodes.iter().enumerate() {
        if let Some(value) = node.value {
            units[base(index) as usize] = value | 1 << 31;
        }
        for (byte, child) in &node.children {
            let place = base(index) ^ u32::from(*byte);
            let has_leaf = u32::from(nodes[*child].value.is_some());
            units[place as usize] = (place ^ base(*child)) << 10 | has_leaf << 8 | u32::from(*byte);
        }
    }
    let mut bytes = (units.len() as u32 * 4).to_le_bytes().to_vec();
    bytes.extend(units.iter().flat_map(|unit| unit.to_le_bytes()));
    bytes.extend(replacements);
    bytes
}

fn map() -> Charsmap {
    let entries = [
        ("a", "x"),
        ("ab", "yz"),
        ("é", "e"),
        ("e\u{301}", "E"),
        ("\r", " "),
        ("q", ""),
    ];
    Charsmap::new(&charsmap(&entries)).unwrap()
}

#[test]
fn the_longest_match_counts_at_each_place() {
    let map = map();
    for (text, want) in [
        ("abc", Some((2, "yz"))),
        ("ac", Some((1, "x"))),
        ("éa", Some((2, "e"))),
        ("e\u{301}", Some((3, "E"))),
        ("e", None),
        ("q", Some((1, ""))),
        ("b", None),
        ("", None),
    ] {
        assert_eq!(map.longest(text), want, "{text:?}");
    }
    assert_eq!(map.longest_bytes(), 2);
}

#[test]
fn clusters_are_mapped_by_their_shortest_match() {
    let map = map();
    for (text, want) in [
        // Not a cluster of two characters, so `ab` does not match.
        ("abc", "xbc"),
        ("e\u{301}q.", "E."),
        // The whole cluster becomes the replacement of its first character.
        ("\r\na", " x"),
        ("éa\u{301}", "ex"),
        // Six bytes and more: character by character.
        ("a\u{301}\u{301}\u{301}", "x\u{301}\u{301}\u{301}"),
    ] {
        assert_eq!(map.map_clusters(text), want, "{text:?}");
    }
}

#[test]
fn maps_of_another_shape_are_refused() {
    let whole = charsmap(&[("a", "x")]);
    for (bytes, word) in [
        (&whole[..3], "expected at least 4"),
        (&whole[..40], "is said to take 3072 bytes of 36"),
        (&[2, 0, 0, 0, 1, 1], "multiple of 4"),
        (&[0, 0, 0, 0, 0xFF], "no UTF-8"),
    ] {
        let error = Charsmap::new(bytes).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
    // Nothing is replaced where the array or the replacements are cut off.
    let empty = Charsmap::new(&[0; 4]).unwrap();
    assert_eq!(empty.map_clusters("abc"), "abc");
    let cut = Charsmap::new(&whole[..whole.len() - 2]).unwrap();
    assert_eq!(cut.longest("a"), None);
}

#[test]
fn no_map_makes_it_panic() {
    let bytes = charsmap(&[("a", "x"), ("ab", "é"), ("é", "")]);
    let edits = prop::collection::vec((0..bytes.len(), any::<u8>()), 0..40);
    let text = prop::collection::vec(
        prop::sample::select(vec!["a", "b", "é", "\u{301}", "\0"]),
        0..12,
    );
    proptest!(|((edits, text) in (edits, text))| {
        let mut bytes = bytes.clone();
        edits.into_iter().for_each(|(at, byte)| bytes[at] = byte);
        if let Ok(map) = Charsmap::new(&bytes) {
            let text = text.concat();
            let _ = map.map_clusters(&text);
            let longest = map.longest(&text);
            prop_assert!(longest.is_none_or(|(length, _)| text.is_char_boundary(length) && length > 0));
        }
    });
}
