//! The tree beside `serde_json`'s values as the model, its memory, and hostile texts and paths.

use super::*;

fn parsed(text: &str) -> Json {
    Json::parse(text.as_bytes()).expect(text)
}

fn text_of(json: &Json) -> String {
    String::from_utf8(json.to_text()).expect("JSON is UTF-8")
}

#[test]
fn numbers_keep_their_kind_and_their_text() {
    for text in [
        "0",
        "-0.0",
        "1",
        "-7",
        "1152921504606846975",
        "1152921504606846976",
        "9223372036854775807",
        "-9223372036854775808",
        "9223372036854775808",
        "18446744073709551615",
        "0.1",
        "1.0",
        "2.5",
        "1e300",
        "1e-7",
        "1.1e16",
        "5e-324",
    ] {
        assert_eq!(text_of(&parsed(text)), text);
    }
    assert_eq!(text_of(&parsed("1e3")), "1000.0");
    assert_eq!(
        text_of(&parsed("18446744073709551616")),
        "1.8446744073709552e19"
    );
    assert_eq!(text_of(&parsed("1e-400")), "0.0");
}
