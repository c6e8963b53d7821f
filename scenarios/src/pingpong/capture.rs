//! Frames of a port into a pcapng file.

use super::PingpongError;
use softroce_sim::port::{Direction, Tap};
use softroce_sim::time::Time;
use softroce_sim::wire::capture::{InterfaceId, LinkType, Stamp, Writer};
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// A capture file that a port writes into.
#[derive(Clone, Debug)]
pub(super) struct Capture(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    writer: Writer<BufWriter<File>>,
    interface: InterfaceId,
    /// The start of the port's clock, in picoseconds since 1970.
    epoch: i128,
    error: Option<io::Error>,
}

impl Capture {
    /// A new file; the port's clock begins now.
    pub(super) fn create(path: &Path, name: &str) -> Result<Capture, PingpongError> {
        let failed = |source| PingpongError::Capture {
            path: path.into(),
            source,
        };
        let file = File::create(path).map_err(failed)?;
        let mut writer = Writer::new(BufWriter::new(file)).map_err(failed)?;
        let interface = writer
            .interface(
                name,
                "softroce on UDP, seen at the socket",
                LinkType::ETHERNET,
            )
            .map_err(failed)?;
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Ok(Capture(Arc::new(Mutex::new(Inner {
            path: path.into(),
            writer,
            interface,
            epoch: since.as_nanos() as i128 * 1000,
            error: None,
        }))))
    }

    /// Writes what is left, and says whether all of it could be written.
    pub(super) fn finish(&self) -> Result<(), PingpongError> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = match inner.error.take() {
            Some(e) => Err(e),
            None => inner.writer.flush(),
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
    }
}
