//! Standard output that may be closed at any time, as by `| head`, and that may be a terminal.

use crate::plain::plain;
use std::io::{self, ErrorKind, Write};

/// Standard output. A reader that has gone away is no failure; what else goes wrong is told at the
/// end.
#[derive(Default, Debug)]
pub(super) struct Output {
    closed: bool,
    /// The beginning of a character whose other bytes are still to come.
    begun: Vec<u8>,
    error: Option<io::Error>,
}

impl Output {
    /// Writes `text`, unless nobody reads any more.
    pub(super) fn write(&mut self, text: &str) {
        let _ = self.write_all(text.as_bytes());
    }

    /// Flushes, and tells what has gone wrong since the beginning.
    pub(super) fn finish(mut self) -> io::Result<()> {
        if !self.begun.is_empty() {
            self.put("\u{fffd}");
        }
        let _ = self.flush();
        match self.error {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    fn put(&mut self, text: &str) {
        if !self.closed
            && let Err(error) = io::stdout().lock().write_all(text.as_bytes())
        {
            self.note(error);
        }
    }

    fn note(&mut self, error: io::Error) {
        self.closed = true;
        if error.kind() != ErrorKind::BrokenPipe && self.error.is_none() {
            self.error = Some(error);
        }
    }
}

impl Write for Output {
    /// Claims success once the reader has gone: there is nobody to write for, and no work to undo.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let shown = shown(&mut self.begun, bytes);
        self.put(&shown);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.closed
            && let Err(error) = io::stdout().lock().flush()
        {
            self.note(error);
        }
        Ok(())
    }
}

/// What of `bytes`, which follow those that have `begun` a character, can be shown.
fn shown(begun: &mut Vec<u8>, bytes: &[u8]) -> String {
    let mut all = std::mem::take(begun);
    all.extend_from_slice(bytes);
    let mut text = String::with_capacity(all.len());
    let mut rest = all.as_slice();
    loop {
        let error = match std::str::from_utf8(rest) {
            Ok(valid) => {
                text.push_str(&plain(valid));
                return text;
            }
            Err(error) => error,
        };
        let (valid, wrong) = rest.split_at(error.valid_up_to());
        text.push_str(&plain(&String::from_utf8_lossy(valid)));
        match error.error_len() {
            Some(len) => {
                text.push('\u{fffd}');
                rest = &wrong[len..];
            }
            None => {
                *begun = wrong.to_vec();
                return text;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_may_come_in_pieces() {
        let text = "a\u{1b}[31m \u{e4}\u{9b}\u{1f600}\u{202e}\n";
        for size in 1..text.len() {
            let (mut begun, mut all) = (Vec::new(), String::new());
            for piece in text.as_bytes().chunks(size) {
                all.push_str(&shown(&mut begun, piece));
            }
            assert_eq!(all, plain(text));
            assert!(begun.is_empty());
        }
        assert_eq!(shown(&mut Vec::new(), b"a\xffb\xc3"), "a\u{fffd}b");
    }
}
