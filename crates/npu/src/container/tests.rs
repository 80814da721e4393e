use super::*;
use proptest::prelude::*;

fn slot(name: &str, shape: &[u64]) -> Slot {
    Slot {
        name: name.to_owned(),
        element: Element::Bf16,
        shape: shape.to_vec(),
        role: Role::Input,
    }
}

fn sample() -> Container {
    let slots = vec![slot("x", &[4, 8]), slot("y", &[])];
    Container::new("test", "sample", slots, b"payload".to_vec()).unwrap()
}

#[test]
fn golden() {
    let bytes = sample().encode();
    assert_eq!(
        bytes.len(),
        HEADER_BYTES + 6 + 8 + 2 + (3 + 3 + 16) + (3 + 3) + 8 + 7
    );
    assert_eq!(&bytes[..20], b"MILLNPU\0\x01\0\0\0\x3b\0\0\0\0\0\0\0");
    let hash = sample().content_hash();
    assert_eq!(bytes[20..52], hash.0);
    assert_eq!(
        hash.to_string(),
        "e00b6aa0b7c8f8f2f3df9dd87c34a8196eaa80290047e4ba9e7c7e01cc584507"
    );
    assert_eq!(ContentHash::from_hex(&hash.to_string()), Some(hash));
    assert_eq!(ContentHash::from_hex(&"A".repeat(64)), None);
    assert_eq!(ContentHash::from_hex("é"), None);
    assert_eq!(Container::decode(&bytes).unwrap(), sample());
}

#[test]
fn wrong_bytes_are_named() {
    let bytes = sample().encode();
    let message = |bytes: &[u8]| Container::decode(bytes).unwrap_err().to_string();
    assert_eq!(
        message(b"ELF"),
        "not a program container: it does not begin with `MILLNPU`"
    );
    assert_eq!(
        message(b""),
        "the container ends within the magic at byte 0: 8 bytes needed, 0 left"
    );
    let mut other = bytes.clone();
    other[8] = 2;
    assert_eq!(
        message(&other),
        "container version 2; this reader knows version 1"
    );
    assert_eq!(
        message(&bytes[..bytes.len() - 1]),
        "the container ends within the body at byte 52: 59 bytes needed, 58 left"
    );
    let mut other = bytes.clone();
    other.extend(b"ab");
    assert_eq!(
        message(&other),
        "2 bytes follow the container's end at byte 111"
    );
    let mut other = bytes.clone();
    *other.last_mut().unwrap() ^= 1;
    assert!(message(&other).starts_with("the content hash is "));
    // A length that the file cannot hold is refused before anything is allocated.
    let mut other = bytes.clone();
    other[12..20].fill(0xff);
    assert!(matches!(
        Container::decode(&other),
        Err(ContainerError::Truncated { field: "body", .. })
    ));
    let element = HEADER_BYTES + 6 + 8 + 2 + 3;
    for (at, field) in [(element, "element type"), (element + 1, "role")] {
        let mut other = bytes.clone();
        other[at] = 9;
        assert_eq!(
            Container::decode(&other),
            Err(ContainerError::Code {
                field,
                offset: at,
                found: 9
            })
        );
    }
    let mut other = bytes.clone();
    other[HEADER_BYTES + 2] = 0xff;
    assert_eq!(message(&other), "the target at byte 54 is not UTF-8");
}

#[test]
fn what_cannot_be_said_is_refused() {
    let new = |slots| Container::new("t", "n", slots, Vec::new());
    let error = new(vec![slot("x", &[1]), slot("x", &[2])]);
    assert_eq!(error, Err(ContainerError::SlotName("x".into())));
    let error = new(vec![slot("x", &[u64::MAX])]);
    assert_eq!(error, Err(ContainerError::SlotSize("x".into())));
    let error = new(vec![slot("x", &[1; 9])]).unwrap_err();
    assert_eq!(error.to_string(), "dimensions of a slot: 9; at most 8 fit");
    let long = "n".repeat(65_536);
    assert!(Container::new("t", &long, Vec::new(), Vec::new()).is_err());
}

#[test]
fn the_hash_depends_on_every_field() {
    let base = || (("t", "n"), vec![slot("x", &[4])], vec![1u8, 2]);
    let hash = |((target, name), slots, payload): ((&str, &str), Vec<Slot>, Vec<u8>)| {
        Container::new(target, name, slots, payload)
            .unwrap()
            .content_hash()
    };
    let mut hashes = vec![hash(base())];
    hashes.push(hash((("u", "n"), base().1, base().2)));
    hashes.push(hash((("t", "m"), base().1, base().2)));
    hashes.push(hash((base().0, Vec::new(), base().2)));
    hashes.push(hash((base().0, vec![slot("x", &[5])], base().2)));
    hashes.push(hash((base().0, base().1, vec![1])));
    let mut output = slot("x", &[4]);
    output.role = Role::Output;
    hashes.push(hash((base().0, vec![output], base().2)));
    let distinct: HashSet<_> = hashes.iter().collect();
    assert_eq!(distinct.len(), hashes.len());
    assert_ne!(
        ContentHash::of(&[b"ab", b"c"]),
        ContentHash::of(&[b"a", b"bc"])
    );
}

proptest! {
    #[test]
    fn what_is_encoded_decodes(
        target in "\\PC{0,8}", name in "\\PC{0,8}",
        shapes in prop::collection::vec((prop::collection::vec(0u64..70_000, 0..3), 0usize..4, 0usize..6), 0..5),
        payload in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let slots = shapes.into_iter().enumerate().map(|(number, (shape, role, element))| Slot {
            name: format!("s{number}"), element: Element::ALL[element], shape, role: ROLES[role],
        }).collect();
        let container = Container::new(&target, &name, slots, payload).unwrap();
        prop_assert_eq!(Container::decode(&container.encode()).unwrap(), container);
    }

    #[test]
    fn any_damage_is_noticed(at in any::<prop::sample::Index>(), flip in 1u8..) {
        let mut bytes = sample().encode();
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        prop_assert!(Container::decode(&bytes).is_err());
    }

    #[test]
    fn any_bytes_are_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..200), header in any::<bool>()) {
        if header && bytes.len() > 20 {
            let body = (bytes.len() - HEADER_BYTES.min(bytes.len())) as u64;
            bytes[..8].copy_from_slice(&MAGIC);
            bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
            bytes[12..20].copy_from_slice(&body.to_le_bytes());
        }
        prop_assert!(Container::decode(&bytes).is_err());
    }
}
