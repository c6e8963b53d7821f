//! The cable: frames of both directions, all of them kept, some of them lost on purpose.

use super::Side;
use softroce_sim::port::FrameDevice;
use softroce_sim::wire::cm::{Mad, Message};
use softroce_sim::wire::frame::FrameView;
use softroce_sim::wire::{Opcode, QpNumber};
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What is done to a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deed {
    /// It does not arrive.
    Lose,
    /// It arrives twice.
    Repeat,
    /// The lowest bit of its last byte before the ICRC is flipped.
    Damage,
    /// It arrives after the next frame of its direction.
    Delay,
}

/// What kind of packet.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// By its opcode.
    Packet(fn(Opcode) -> bool),
    /// A message between communication managers, by its name.
    Message(&'static str),
}

impl Kind {
    fn is(self, view: &FrameView<'_>) -> bool {
        match self {
            Kind::Packet(is) => is(view.transport.bth.opcode()),
            Kind::Message(name) => message(view).is_some_and(|m| m.name() == name),
        }
    }
}

/// The message between communication managers that a frame carries.
pub(super) fn message(view: &FrameView<'_>) -> Option<Message> {
    let to_manager = view.transport.bth.dest_qp() == QpNumber::GSI;
    let mad = to_manager.then(|| Mad::decode(view.transport.payload).ok())?;
    Some(mad?.message)
}

/// A fault: what happens to the n-th packet of a kind.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// Who sends it.
    pub from: Side,
    /// The kind.
    pub kind: Kind,
    /// Which one, from 0.
    pub nth: usize,
    /// What happens.
    pub deed: Deed,
}

struct Inner {
    start: Instant,
    /// Faults, and how many packets of their kind went by.
    faults: Vec<(Fault, usize)>,
    struck: usize,
    frames: Vec<Seen>,
    late: [Option<Vec<u8>>; 2],
}

impl Default for Inner {
    fn default() -> Inner {
        Inner {
            start: Instant::now(),
            faults: Vec::new(),
            struck: 0,
            frames: Vec::new(),
            late: [None, None],
        }
    }
}

/// A frame on the cable: when since it was laid, whose, and its bytes as they were sent.
pub type Seen = (Duration, Side, Vec<u8>);

/// What is between the two ends, shared by the port and the test.
#[derive(Clone, Default)]
pub struct Cable(Arc<Mutex<Inner>>);

impl Cable {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, fault: Fault) {
        self.lock().faults.push((fault, 0));
    }

    pub(super) fn struck(&self) -> usize {
        self.lock().struck
    }

    /// All frames since it was laid.
    pub(super) fn seen(&self) -> Vec<Seen> {
        self.lock().frames.clone()
    }

    /// A frame goes in; what comes out at the other end.
    fn pass(&self, from: Side, frame: &[u8]) -> VecDeque<Vec<u8>> {
        let mut inner = self.lock();
        let time = inner.start.elapsed();
        inner.frames.push((time, from, frame.to_vec()));
        let mut deed = None;
        if let Ok(view) = FrameView::decode(frame) {
            for (fault, seen) in &mut inner.faults {
                if fault.from == from && fault.kind.is(&view) {
                    if *seen == fault.nth {
                        deed = Some(fault.deed);
                    }
                    *seen += 1;
                }
            }
        }
        inner.struck += usize::from(deed.is_some());
        let mut out = VecDeque::new();
        let late = inner.late[from as usize].take();
        match deed {
            None => out.push_back(frame.to_vec()),
            Some(Deed::Lose) => {}
            Some(Deed::Repeat) => out.extend([frame.to_vec(), frame.to_vec()]),
            Some(Deed::Damage) => {
                let mut frame = frame.to_vec();
                let at = frame.len() - 5;
                frame[at] ^= 1;
                out.push_back(frame);
            }
            Some(Deed::Delay) => inner.late[from as usize] = Some(frame.to_vec()),
        }
        out.extend(late);
        out
    }
}

/// A device with the cable in front of it.
pub(super) struct Cabled<D> {
    pub(super) device: D,
    pub(super) cable: Cable,
    /// Frames that have arrived and are not taken yet.
    pub(super) arrived: VecDeque<Vec<u8>>,
}

impl<D: FrameDevice> FrameDevice for Cabled<D> {
    fn describe(&self) -> String {
        self.device.describe()
    }

    fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        for frame in self.cable.pass(Side::Card, frame) {
            self.device.send(&frame)?;
        }
        Ok(())
    }

    fn flush(&mut self) {
        self.device.flush();
    }

    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        while self.arrived.is_empty() {
            match self.device.receive(buffer)? {
                Some(len) => {
                    let frame = &buffer[..len.min(buffer.len())];
                    self.arrived = self.cable.pass(Side::Kernel, frame);
                }
                None => return Ok(None),
            }
        }
        let Some(frame) = self.arrived.pop_front() else {
            return Ok(None);
        };
        buffer[..frame.len()].copy_from_slice(&frame);
        Ok(Some(frame.len()))
    }

    fn wait(&mut self, to_send: bool, timeout: Duration) -> io::Result<()> {
        match self.arrived.is_empty() {
            true => self.device.wait(to_send, timeout),
            false => Ok(()),
        }
    }

    fn descriptor(&self) -> io::Result<OwnedFd> {
        self.device.descriptor()
    }

    fn arm(&mut self) -> bool {
        self.arrived.is_empty() && self.device.arm()
    }
}
