//! What watches a network while it runs: captures, and the packets that faults hit.

use super::RunError;
use super::build::{Injected, channel};
use crate::format::topology::WayId;
use crate::report::HITS_LISTED;
use softroce_sim::fabric::faults::FaultRecord;
use softroce_sim::fabric::{Capture, ChannelId, Observer, Sight, Topology};
use softroce_sim::time::Time;
use softroce_sim::wire::pfc::Pfc;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

/// Watches a network.
#[derive(Debug, Default)]
pub(super) struct Watch {
    taps: Vec<Tap>,
    /// By fault, the first packets it hit.
    hits: Vec<Vec<FaultRecord>>,
    /// By channel and position of the injector there: the fault.
    faults: Vec<Vec<usize>>,
    /// What they are called.
    names: Vec<String>,
}

/// A capture to be made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Recording {
    /// Name of the file in the folder.
    pub(super) file: String,
    /// Where the file is.
    pub(super) path: PathBuf,
    /// What is recorded.
    pub(super) ways: Vec<WayId>,
    /// The most packets it records.
    pub(super) packets: Option<u64>,
}

/// A capture being made.
#[derive(Debug)]
struct Tap {
    recording: Recording,
    channels: Vec<ChannelId>,
    /// Nothing once it has recorded all it may.
    capture: Option<Capture<BufWriter<File>>>,
    frames: u64,
    /// It has passed over packets because it had as many as it may have.
    full: bool,
    failure: Option<io::Error>,
}

impl Watch {
    /// Opens the files of `recordings`.
    pub(super) fn new(topology: &Topology, recordings: &[Recording]) -> Result<Watch, RunError> {
        let mut taps = Vec::new();
        let mut failed = Vec::new();
        for recording in recordings {
            let channels: Vec<_> = recording.ways.iter().map(|&w| channel(w)).collect();
            let capture = File::create(&recording.path)
                .and_then(|f| Capture::new(BufWriter::new(f), topology, channels.iter().copied()))
                .map_err(|source| RunError::Capture {
                    path: recording.path.clone(),
                    source,
                });
            let capture = match capture {
                Ok(capture) => capture,
                Err(error) => {
                    failed.push(error);
                    continue;
                }
            };
            taps.push(Tap {
                recording: recording.clone(),
                channels,
                capture: Some(capture),
                frames: 0,
                full: false,
                failure: None,
            });
        }
        let watch = Watch {
            taps,
            ..Watch::default()
        };
        if failed.is_empty() {
            return Ok(watch);
        }
        // What the other files hold is written too, or it is told that it is not.
        watch.finish(&mut failed);
        RunError::of(failed).map(|()| Watch::default())
    }

    /// Is told where each fault has its injectors.
    pub(super) fn know(&mut self, faults: &[Injected]) {
        self.hits = vec![Vec::new(); faults.len()];
        self.names = faults.iter().map(|fault| fault.name.clone()).collect();
        for (n, fault) in faults.iter().enumerate() {
            for &(channel, position) in &fault.places {
                let channel = channel.index();
                if self.faults.len() <= channel {
                    self.faults.resize(channel + 1, Vec::new());
                }
                // Injectors are told in the order in which each channel has them.
                debug_assert_eq!(self.faults[channel].len(), position);
                self.faults[channel].push(n);
            }
        }
    }

    /// The first packets that the `n`-th fault hit.
    pub(super) fn hits(&self, n: usize) -> &[FaultRecord] {
        self.hits.get(n).map_or(&[], Vec::as_slice)
    }

    /// Closes the captures, and gives each with how many frames it has, and whether its limit kept others out.
    /// Those that could not be written are added to `failed`.
    pub(super) fn finish(self, failed: &mut Vec<RunError>) -> Vec<(Recording, u64, bool)> {
        let mut all = Vec::new();
        for mut tap in self.taps {
            tap.close();
            if let Some(source) = tap.failure {
                failed.push(RunError::Capture {
                    path: tap.recording.path,
                    source,
                });
                continue;
            }
            all.push((tap.recording, tap.frames, tap.full));
        }
        all
    }
}

impl Tap {
    fn close(&mut self) {
        if let Some(capture) = self.capture.take() {
            self.frames = capture.frames();
            let result = capture.finish().and_then(|mut file| file.flush());
            self.failure = result.err();
        }
    }

    /// Has the capture note a frame on a channel, if there is room for one more.
    fn note(&mut self, channel: ChannelId, write: impl FnOnce(&mut Capture<BufWriter<File>>)) {
        let Some(capture) = &mut self.capture else {
            return;
        };
        if self
            .recording
            .packets
            .is_some_and(|most| capture.frames() >= most)
        {
            // Only now: a fault that hit the last frame was to be noted beside it.
            if self.channels.contains(&channel) {
                self.full = true;
                self.close();
            }
            return;
        }
        write(capture);
    }
}

impl Observer for Watch {
    #[inline]
    fn on_transmit(&mut self, now: Time, channel: ChannelId, sight: Sight<'_>) {
        for tap in &mut self.taps {
            tap.note(channel, |capture| capture.on_transmit(now, channel, sight));
        }
    }

    fn on_pfc(&mut self, now: Time, channel: ChannelId, frame: &Pfc) {
        for tap in &mut self.taps {
            tap.note(channel, |capture| capture.on_pfc(now, channel, frame));
        }
    }

    fn on_fault(&mut self, record: &FaultRecord) {
        let fault = self.faults.get(record.channel.index());
        let fault = fault.and_then(|f| f.get(record.fault)).copied();
        let name = fault.and_then(|f| self.names.get(f));
        for tap in &mut self.taps {
            if let Some(capture) = &mut tap.capture {
                match name {
                    Some(name) => capture.note_fault(record, name),
                    None => capture.on_fault(record),
                }
            }
        }
        if let Some(fault) = fault
            && let Some(hits) = self.hits.get_mut(fault)
            && hits.len() < HITS_LISTED
        {
            hits.push(*record);
        }
    }
}
