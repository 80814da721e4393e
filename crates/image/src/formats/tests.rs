use super::*;

#[test]
fn sixteen_bits_become_the_nearest_of_eight() {
    let levels = [
        (0u16, 0),
        (128, 0),
        (129, 1),
        (0x8080, 0x80),
        (0xff7e, 0xfe),
        (0xffff, 0xff),
    ];
    let mut file = Vec::new();
    let mut encoder = ::png::Encoder::new(&mut file, levels.len() as u32, 1);
    encoder.set_color(::png::ColorType::Grayscale);
    encoder.set_depth(::png::BitDepth::Sixteen);
    let stored: Vec<u8> = levels.iter().flat_map(|(n, _)| n.to_be_bytes()).collect();
    let mut writer = encoder.write_header().expect("a header");
    writer.write_image_data(&stored).expect("a row");
    drop(writer);
    let read = |pixels| ImageFormat::Png.read(&file, Limits::of_pixels(pixels));
    let found = read(6).expect("an image of six pixels");
    let expected: Vec<u8> = levels.iter().flat_map(|(_, level)| [*level; 3]).collect();
    assert_eq!(found.rgb, expected);
    let refused = read(5).expect_err("one pixel more than five");
    assert!(matches!(
        refused,
        ImageFault::TooLarge {
            width: 6,
            height: 1
        }
    ));
}
