//! The text of a scenario, and the places in it.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The largest scenario file that is read, in bytes.
pub const MAX_FILE: u64 = 16 << 20;

/// A text with a name to show it by.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Source {
    name: String,
    text: String,
    /// Where the file is, if it is one.
    folder: Option<PathBuf>,
}

/// Why a file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The operating system said no.
    #[error("{name}: {}", told(.error))]
    Io {
        /// The file.
        name: String,
        /// What the operating system said.
        error: io::Error,
    },
    /// A directory is no scenario.
    #[error("{name}: is a directory; {} is a file", .what.name())]
    Directory {
        /// The directory.
        name: String,
        /// What should be there.
        what: Content,
    },
    /// A pipe or a device may never have anything to read.
    #[error("{name}: is no regular file; {} is one", .what.name())]
    NotRegular {
        /// The file.
        name: String,
        /// What should be there.
        what: Content,
    },
    /// The file is larger than any scenario.
    #[error("{name}: is larger than the limit of 16 MiB for {}", .what.name())]
    TooLarge {
        /// The file.
        name: String,
        /// What should be there.
        what: Content,
    },
    /// Both are UTF-8.
    #[error("{name}:{line}:{column}: byte {byte:#04x} is not UTF-8, which {} must be", .what.name())]
    NotUtf8 {
        /// The file.
        name: String,
        /// Line of the byte, from 1.
        line: usize,
        /// Column of the byte in characters, from 1.
        column: usize,
        /// The byte.
        byte: u8,
        /// What should be there.
        what: Content,
    },
}

/// What a file holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content {
    /// A scenario, which is TOML.
    Scenario,
    /// The flows of a load, which are CSV.
    Flows,
    /// The faults of a port, which are TOML.
    Faults,
}

impl Content {
    fn name(self) -> &'static str {
        match self {
            Content::Scenario => "a scenario in TOML",
            Content::Flows => "a list of flows in CSV",
            Content::Faults => "a list of faults in TOML",
        }
    }
}

/// The common failures in words that are the same on every platform.
fn told(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file".into(),
        io::ErrorKind::PermissionDenied => "permission denied".into(),
        _ => error.to_string(),
    }
}

/// Standard input, or what a shell puts in for `<(command)`: somebody writes there.
fn is_open_already(path: &Path) -> bool {
    ["/dev/stdin", "/dev/fd", "/proc/self/fd"]
        .iter()
        .any(|open| path.starts_with(open))
}

/// Opens a file for reading, and does not wait for one who writes to a pipe.
fn open(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true);
    #[cfg(unix)]
    if !is_open_already(path) {
        use std::os::unix::fs::OpenOptionsExt;
        options.custom_flags(nix::libc::O_NONBLOCK);
    }
    options.open(path)
}

impl Source {
    /// A text that is in memory already, shown as `name`.
    pub fn new(name: impl Into<String>, text: impl Into<Vec<u8>>) -> Result<Source, SourceError> {
        Source::from_bytes(name.into(), text.into(), Content::Scenario)
    }

    fn from_bytes(name: String, bytes: Vec<u8>, what: Content) -> Result<Source, SourceError> {
        if bytes.len() as u64 > MAX_FILE {
            return Err(SourceError::TooLarge { name, what });
        }
        let text = match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => {
                let at = error.utf8_error().valid_up_to();
                let bytes = error.as_bytes();
                let before = String::from_utf8_lossy(&bytes[..at]);
                let (line, column) = locate(&before, before.len());
                return Err(SourceError::NotUtf8 {
                    line,
                    column,
                    byte: bytes[at],
                    name,
                    what,
                });
            }
        };
        Ok(Source {
            name,
            text,
            folder: None,
        })
    }

    /// Reads the file at `path`, which is shown as it is given and holds `what`.
    pub fn read(path: &Path, what: Content) -> Result<Source, SourceError> {
        let name = path.display().to_string();
        let io = |error| SourceError::Io {
            name: name.clone(),
            error,
        };
        let file = open(path).map_err(io)?;
        let kind = file.metadata().map_err(io)?.file_type();
        if kind.is_dir() {
            return Err(SourceError::Directory { name, what });
        }
        if !kind.is_file() && !is_open_already(path) {
            return Err(SourceError::NotRegular { name, what });
        }
        let mut bytes = Vec::new();
        // Standard input tells no length, so the limit is put on what is read.
        file.take(MAX_FILE + 1)
            .read_to_end(&mut bytes)
            .map_err(io)?;
        let folder = path.parent().map(Path::to_path_buf);
        Ok(Source {
            folder,
            ..Source::from_bytes(name, bytes, what)?
        })
    }

    /// The folder of the file; nothing if it was read from memory.
    pub fn folder(&self) -> Option<PathBuf> {
        self.folder.clone()
    }

    /// The name to show it by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Line and column, both from 1, of the byte at `offset`; columns count characters.
pub(crate) fn locate(text: &str, offset: usize) -> (usize, usize) {
    let start = line_start(text, offset);
    let line = 1 + text.as_bytes()[..start]
        .iter()
        .filter(|&&b| b == b'\n')
        .count();
    (line, 1 + text[start..offset].chars().count())
}

/// Where the line begins that holds the byte at `offset`.
pub(crate) fn line_start(text: &str, offset: usize) -> usize {
    text[..offset].rfind('\n').map_or(0, |n| n + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_characters() {
        let text = "a\n\u{e4}\u{f6} = 1\n";
        assert_eq!(locate(text, 0), (1, 1));
        assert_eq!(locate(text, text.find('=').unwrap()), (2, 4));
        assert_eq!(locate(text, text.len()), (3, 1));
    }

    #[test]
    fn bytes_that_are_no_text_are_pointed_at() {
        let e = Source::new("x.toml", b"a = 1\nb = \"\xff\"\n".as_slice()).unwrap_err();
        assert_eq!(
            e.to_string(),
            "x.toml:2:6: byte 0xff is not UTF-8, which a scenario in TOML must be"
        );
    }
}
