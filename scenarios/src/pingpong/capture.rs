//! Frames of a port into a pcapng file.

use super::PingpongError;
use softroce_sim::port::{Direction, Tap};
use softroce_sim::time::Time;
use softroce_sim::wire::capture::{InterfaceId, LinkType, Stamp, Writer};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How old what is not in the file yet may become.
const MAX_AGE: Duration = Duration::from_secs(1);
/// How much of it there may be.
const MAX_PENDING: usize = 64 << 10;

/// A capture file that a port writes into.
#[derive(Clone, Debug)]
pub(super) struct Capture(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    writer: Writer<Blocks>,
    packets: Pending,
    interface: InterfaceId,
    /// The start of the port's clock, in picoseconds since 1970.
    epoch: i128,
    error: Option<io::Error>,
}

/// Keeps what is written until it is flushed, so that the file gets whole blocks only and can be read
/// even if the process is killed.
#[derive(Debug)]
struct Blocks {
    file: File,
    bytes: Vec<u8>,
}

impl Write for Blocks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let outcome = self.file.write_all(&self.bytes);
        self.bytes.clear();
        outcome
    }
}

/// Packets that are not in the file yet.
#[derive(Debug)]
struct Pending {
    bytes: usize,
    flushed: Instant,
}

impl Inner {
    /// Puts what is pending into the file.
    fn flush(&mut self) {
        if self.packets.bytes > 0 && self.error.is_none() {
            self.error = self.writer.flush().err();
        }
        self.packets.bytes = 0;
        self.packets.flushed = Instant::now();
    }
}

impl Capture {
    /// A new file; the port's clock begins now.
    pub(super) fn create(path: &Path, name: &str) -> Result<Capture, PingpongError> {
        let failed = |source| PingpongError::Capture {
            path: path.into(),
            source,
        };
        let file = File::create(path).map_err(failed)?;
        let mut writer = Writer::new(Blocks {
            file,
            bytes: Vec::new(),
        })
        .map_err(failed)?;
        let interface = writer
            .interface(
                name,
                "softroce on UDP, seen at the socket",
                LinkType::ETHERNET,
            )
            .map_err(failed)?;
        writer.flush().map_err(failed)?;
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Ok(Capture(Arc::new(Mutex::new(Inner {
            path: path.into(),
            writer,
            packets: Pending {
                bytes: 0,
                flushed: Instant::now(),
            },
            interface,
            epoch: since.as_nanos() as i128 * 1000,
            error: None,
        }))))
    }

    /// Writes what there is, when nothing else is to be done.
    pub(super) fn idle(&self) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .flush();
    }

    /// Writes what is left, and says whether all of it could be written.
    pub(super) fn finish(&self) -> Result<(), PingpongError> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.flush();
        let outcome = match inner.error.take() {
            Some(e) => Err(e),
            None => Ok(()),
        };
        outcome.map_err(|source| PingpongError::Capture {
            path: inner.path.clone(),
            source,
        })
    }
}

impl Tap for Capture {
    fn frame(&mut self, time: Time, direction: Direction, frame: &[u8]) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let inner = &mut *inner;
        if inner.error.is_some() {
            return;
        }
        let comment = match direction {
            Direction::Sent => "sent",
            Direction::Received => "received",
        };
        let stamp = Stamp::from_ps(inner.epoch + i128::from(time.as_ps()));
        inner.error = inner
            .writer
            .packet(
                inner.interface,
                stamp,
                frame,
                frame.len() as u32,
                &[comment],
            )
            .err();
        inner.packets.bytes += frame.len();
        if inner.packets.bytes >= MAX_PENDING || inner.packets.flushed.elapsed() >= MAX_AGE {
            inner.flush();
        }
    }
}
