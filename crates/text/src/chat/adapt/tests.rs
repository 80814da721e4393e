use super::*;
use crate::chat::{ChatTemplate, Message, RenderOptions};

const PARTS: &str = "{% for m in messages %}<{{ m.role }}>{% for c in m.content %}{% if c.type == 'text' %}{{ c.text }}\
                     {% else %}[img]{% endif %}{% endfor %}{% endfor %}";
const STRINGS: &str = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}{% endfor %}";
const BOTH: &str = "{% for m in messages %}<{{ m.role }}>{% if m.content is string %}{{ m.content }}{% else %}{% for c in m.content %}\
                    {{ c.text if c.type == 'text' else '[img]' }}{% endfor %}{% endif %}{% endfor %}";
const STRICT: &str = "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must \
                      alternate') }}{% endif %}<{{ m.role }}>{{ m.content }}{% endfor %}";
const DROPS: &str =
    "{% for m in messages if m.role != 'system' %}<{{ m.role }}>{{ m.content }}{% endfor %}";
const PARTS_STRICT: &str = "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}<{{ m.role }}>\
                            {% for c in m.content %}{{ c.text }}{% endfor %}{% endfor %}";

fn rendered(source: &str, messages: &[Message]) -> Result<String, crate::Error> {
    let template = ChatTemplate::new("test", source, None, None)?;
    let first = template.render(messages, &RenderOptions::default());
    // The second time, the result of the probe is known.
    let second = template.render(messages, &RenderOptions::default());
    assert_eq!(first.as_ref().ok(), second.as_ref().ok(), "{source}");
    first
}

fn habits(source: &str) -> Habits {
    let template = Template::parse(source).expect("it parses");
    probe(&template, &Map::new(), Moment::default())
}

#[test]
fn probes_find_the_form_that_comes_out() {
    for (source, contents, takes_system) in [
        (PARTS, Contents::Parts, true),
        (STRINGS, Contents::Strings, true),
        (BOTH, Contents::AsGiven, true),
        (STRICT, Contents::Strings, false),
        (DROPS, Contents::Strings, false),
        (PARTS_STRICT, Contents::Parts, false),
        // A list as JSON is not text.
        ("{{ messages | tojson }}", Contents::Strings, true),
        // Nothing is known of a template that prints no content, or that does not end.
        ("fixed", Contents::AsGiven, true),
        ("{{ raise_exception('no') }}", Contents::AsGiven, true),
        (
            "{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}",
            Contents::AsGiven,
            true,
        ),
    ] {
        let want = Habits {
            contents,
            takes_system,
        };
        assert_eq!(habits(source), want, "{source}");
    }
}

#[test]
fn messages_come_out_of_every_template() {
    let plain = [Message::user("hi")];
    let with_system = [
        Message::system("Be brief."),
        Message::user("hi"),
        Message::assistant("yes"),
        Message::user("bye"),
    ];
    let only_system = [Message::system("Be brief.")];
    for (source, messages, want) in [
        (PARTS, &plain[..], "<user>hi"),
        (STRINGS, &plain, "<user>hi"),
        (BOTH, &plain, "<user>hi"),
        (
            PARTS,
            &with_system,
            "<system>Be brief.<user>hi<assistant>yes<user>bye",
        ),
        (
            STRICT,
            &with_system,
            "<user>Be brief.\n\nhi<assistant>yes<user>bye",
        ),
        (
            DROPS,
            &with_system,
            "<user>Be brief.\n\nhi<assistant>yes<user>bye",
        ),
        (
            PARTS_STRICT,
            &with_system,
            "<user>Be brief.\n\nhi<assistant>yes<user>bye",
        ),
        (STRICT, &only_system, "<user>Be brief."),
    ] {
        assert_eq!(rendered(source, messages).unwrap(), want, "{source}");
    }
    // A conversation that the template refuses for another reason is still refused.
    let two = [Message::user("a"), Message::user("b")];
    let refused = rendered(STRICT, &two);
    assert!(
        matches!(refused, Err(crate::Error::Refused(_))),
        "{refused:?}"
    );
}

#[test]
fn images_have_a_place_in_templates_that_take_strings() {
    let image = Message::user("what?").with_images(["a.png".to_owned()]);
    let with_system = [Message::system("Look."), image.clone()];
    for (source, messages, want) in [
        (PARTS, std::slice::from_ref(&image), "<user>[img]what?"),
        (BOTH, std::slice::from_ref(&image), "<user>[img]what?"),
        (
            STRINGS,
            std::slice::from_ref(&image),
            "<user><start_of_image>what?",
        ),
        (
            STRICT,
            &with_system[..],
            "<user><start_of_image>Look.\n\nwhat?",
        ),
        (PARTS_STRICT, &with_system[..], "<user>Look.\n\nwhat?"),
    ] {
        assert_eq!(rendered(source, messages).unwrap(), want, "{source}");
    }
}

#[test]
fn json_messages_are_given_as_they_are() {
    let template = ChatTemplate::new("test", STRICT, None, None).unwrap();
    let messages = json!([{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]);
    let result = template.render_json(&messages, &RenderOptions::default());
    assert!(
        matches!(result, Err(crate::Error::Refused(_))),
        "{result:?}"
    );
}
