use super::*;
use proptest::prelude::*;

fn axes() -> Axes {
    Axes::of(&[("A", 8), ("B", 512), ("V", 13), ("K", 48)]).unwrap()
}

fn layout(text: &str) -> DigitLayout {
    DigitLayout::of(&parse_mapping(text).unwrap(), &axes()).unwrap()
}

fn refused(text: &str) -> String {
    let mapping = parse_mapping(text).unwrap();
    DigitLayout::of(&mapping, &axes()).unwrap_err().to_string()
}

/// The index at a position as text.
fn at(text: &str, position: u64) -> String {
    let index = parse_mapping(text).unwrap().at(position, &axes()).unwrap();
    format!("{index:?}")
}

#[test]
fn the_vendors_examples_hold() {
    // From the book's page on mapping expressions.
    assert_eq!(at("m![A, B]", 519), r#"Some({"A": 1, "B": 7})"#);
    assert_eq!(at("m![B / 64, B % 64]", 130), r#"Some({"B": 130})"#);
    assert_eq!(
        at("m![B / 64, B % 32, B / 32 % 2]", 67),
        r#"Some({"B": 97})"#
    );
    assert_eq!(at("A, V # 16", 13), "None");
    assert_eq!(at("A, V # 16", 16), r#"Some({"A": 1})"#);
    assert_eq!(at("A, B = 2 # 4", 5), r#"Some({"A": 1, "B": 1})"#);
    assert_eq!(at("A, B = 2 # 4", 6), "None");
    assert_eq!(at("1 # 8", 1), "None");
    assert_eq!(at("m![A, 2]", 3), r#"Some({"A": 1})"#);
}

#[test]
fn text_comes_back() {
    for text in [
        "m![N / 8 % 256]",
        "m![A, [B, V] / 4, 1]",
        "m![[A, B] # 8192 / 2 % 16 = 3]",
        "m![1 # 256]",
    ] {
        assert_eq!(parse_mapping(text).unwrap().to_string(), text);
    }
    let error = |text: &str| parse_mapping(text).unwrap_err().to_string();
    assert_eq!(
        error("A /"),
        "`A /`: expected a number from 1 to 2^40 at byte 3"
    );
    assert_eq!(
        error("A / 0"),
        "`A / 0`: expected a number from 1 to 2^40 at byte 4"
    );
    assert_eq!(error("[A"), "`[A`: expected `]` at byte 2");
    assert_eq!(error("A B"), "`A B`: expected the end at byte 2");
    assert!(error(&"[".repeat(100)).contains("expected an axis"));
    assert!(error(&"A,".repeat(1000)).contains("at most 256 parts"));
    assert!(error("é").contains("expected an axis"));
}

#[test]
fn what_makes_no_sense_is_refused() {
    assert_eq!(refused("Q"), "`Q` is not an axis of this program");
    assert_eq!(
        refused("V / 4"),
        "`m![V / 4]`: 4 does not divide a factor of size 13; pad it first, as in `# 16`"
    );
    assert!(refused("A = 9").contains("9 is not within the 8 positions"));
    assert!(refused("A # 7").contains("7 does not hold the 8 positions"));
    assert!(refused("A % 16").contains("16 is more than the 8 positions"));
}

#[test]
fn covers_find_overlaps_and_holes() {
    let axes = axes();
    let shape = |texts: &[&str]| {
        let layouts: Vec<DigitLayout> = texts.iter().map(|text| layout(text)).collect();
        cover(&layouts.iter().collect::<Vec<_>>(), &axes)
    };
    assert_eq!(
        shape(&["B / 64", "A", "B % 64"]),
        Ok(vec![(0, 8), (1, 512)])
    );
    // Padded, then cut: the end of the axis ends it.
    assert_eq!(shape(&["V # 16 / 4", "V # 16 % 4"]), Ok(vec![(2, 13)]));
    assert_eq!(shape(&["B = 100"]), Ok(vec![(1, 100)]));
    let error = |texts: &[&str]| shape(texts).unwrap_err().to_string();
    assert_eq!(error(&["B / 64", "B"]), "axis `B`: a factor is used twice");
    assert_eq!(
        error(&["B % 64", "B % 64"]),
        "axis `B`: a factor is used twice"
    );
    assert!(error(&["B / 64"]).contains("no factor covers positions 1 apart"));
    assert!(error(&["B % 32", "B / 64"]).contains("32 apart, where 64 comes next"));
}

#[test]
fn axes_are_declared_once() {
    let mut axes = axes();
    assert_eq!(axes.add("A", 8), Ok(()));
    assert!(axes.add("A", 9).is_err());
    assert!(axes.add("Z", 0).is_err());
    assert_eq!(axes.to_string(), "axes![A = 8, B = 512, V = 13, K = 48]");
}

fn mapping() -> impl Strategy<Value = Mapping> {
    let leaf = prop_oneof![
        prop::sample::select(vec!["A", "B", "V", "K"]).prop_map(Mapping::axis),
        (1..4u64).prop_map(Mapping::Copies),
    ];
    let n = || prop::sample::select(vec![1u64, 2, 3, 4, 5, 8, 13, 16, 24, 32, 48, 64, 100, 512]);
    leaf.prop_recursive(4, 12, 2, move |inner| {
        let unary = |wrap: fn(Box<Mapping>, u64) -> Mapping| {
            (inner.clone(), n()).prop_map(move |(m, n)| wrap(Box::new(m), n))
        };
        prop_oneof![
            unary(Mapping::Stride),
            unary(Mapping::Modulo),
            unary(Mapping::Resize),
            unary(Mapping::Padding),
            (inner.clone(), inner.clone())
                .prop_map(|(a, b)| Mapping::Pair(Box::new(a), Box::new(b))),
        ]
    })
}

/// Where each mention of an axis ends, by name.
fn ends(mapping: &Mapping, all: &mut Vec<(String, u64)>) {
    match mapping {
        Mapping::Copies(_) => {}
        Mapping::Symbol(name) => all.push((name.clone(), u64::MAX)),
        Mapping::Resize(inner, n) => match &**inner {
            Mapping::Symbol(name) => all.push((name.clone(), *n)),
            inner => ends(inner, all),
        },
        Mapping::Stride(inner, _) | Mapping::Modulo(inner, _) | Mapping::Padding(inner, _) => {
            ends(inner, all);
        }
        Mapping::Pair(outer, inner) => {
            ends(outer, all);
            ends(inner, all);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Digits agree with the definition, position by position.
    #[test]
    fn digits_agree_with_the_definition(mapping in mapping()) {
        let axes = axes();
        let Ok(layout) = DigitLayout::of(&mapping, &axes) else { return Ok(()) };
        prop_assume!(layout.size() <= 1 << 16);
        // No tensor has an axis that ends in two places.
        let mut all = Vec::new();
        ends(&mapping, &mut all);
        let differs = |(name, end): &(String, u64)| all.iter().any(|(n, e)| n == name && e != end);
        prop_assume!(!all.iter().any(differs));
        for position in 0..layout.size() + 2 {
            let expected = match position < layout.size() {
                true => mapping.at(position, &axes).unwrap(),
                false => None,
            };
            let expected = expected.map(|mut index| {
                index.retain(|_, i| *i > 0);
                index
            });
            let found = layout.at(position, &axes).map(|index| {
                let names = index.into_iter().map(|(axis, i)| (axes.get(axis).0.to_owned(), i));
                names.collect::<Index>()
            });
            prop_assert_eq!(found, expected, "{} at {}", mapping, position);
        }
    }

    #[test]
    fn print_and_parse_are_inverse(mapping in mapping()) {
        prop_assert_eq!(parse_mapping(&mapping.to_string()).unwrap(), mapping);
    }

    #[test]
    fn any_text_is_parsed_or_refused(text in ".{0,60}") {
        let _ = parse_mapping(&text);
    }
}
