//! Standard output that may be closed at any time, as by `| head`.

use std::io::{self, ErrorKind, Write};

/// Standard output. A reader that has gone away is no failure; what else goes wrong is told at the
/// end.
#[derive(Default, Debug)]
pub(super) struct Output {
    closed: bool,
    error: Option<io::Error>,
}

impl Output {
    /// Writes `text`, unless nobody reads any more.
    pub(super) fn write(&mut self, text: &str) {
        let _ = self.write_all(text.as_bytes());
    }

    /// Flushes, and tells what has gone wrong since the beginning.
    pub(super) fn finish(mut self) -> io::Result<()> {
        let _ = self.flush();
        match self.error {
            Some(error) => Err(error),
            None => Ok(()),
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
        if !self.closed
            && let Err(error) = io::stdout().lock().write_all(bytes)
        {
            self.note(error);
        }
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
