//! Text that others wrote, fit for a terminal.

use std::borrow::Cow;

/// True for characters that a terminal obeys instead of showing them, or that turn the direction of what it shows.
fn is_obeyed(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        _ => c.is_control(),
    }
}

/// `text` with control characters, but line ends and tabs, written as JSON writes them in strings: `\\u001b`. JSON, in
/// which they stand nowhere else, is still the same document then.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    if !text.contains(is_obeyed) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match is_obeyed(c) {
            true => shown.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_is_written_out() {
        for c in (0..=0x10_ffff).filter_map(char::from_u32) {
            let text = format!("a{c}b");
            let shown = plain(&text);
            let kept = c == '\n' || c == '\t' || !(c.is_control() || is_obeyed(c));
            match kept {
                true => assert_eq!(shown, text),
                false => assert_eq!(shown, format!("a\\u{:04x}b", u32::from(c))),
            }
            assert!(!shown.contains(is_obeyed));
        }
    }

    #[test]
    fn json_says_the_same_afterwards() {
        for text in [
            "\u{7f}",
            "\u{9b}31m",
            "\u{202e}",
            "a\u{1b}[2J",
            "\u{e4}\u{1f600}",
        ] {
            let json = serde_json::to_string_pretty(&[text]).unwrap();
            let back: Vec<String> = serde_json::from_str(&plain(&json)).unwrap();
            assert_eq!(back, [text]);
        }
    }
}
