//! A tap on chosen channels: every frame, as its sender puts it on the wire, into a pcapng file.
//!
//! A frame that a fault hits is in the file as well, with a comment that says what happened to it.

use super::faults::{Action, FaultRecord};
use super::link::ChannelId;
use super::observer::{Observer, Sight};
use super::topology::Topology;
use crate::time::Time;
use crate::wire::capture::{InterfaceId, LinkType, Stamp, Writer};
use crate::wire::frame::encode_packet;
use crate::wire::pfc::Pfc;
use std::io::{self, Write};

/// Bytes of the largest path MTU, for payloads that are only counted.
static ZEROS: [u8; 4096] = [0; 4096];

/// An observer that writes the frames of some channels to a pcapng file, an interface for each channel.
#[derive(Debug)]
pub struct Capture<W> {
    writer: Writer<W>,
    /// By channel.
    interfaces: Vec<Option<InterfaceId>>,
    frame: Vec<u8>,
    /// The frame whose fate is not known yet: it is in `frame`.
    waiting: Option<(ChannelId, InterfaceId, Stamp)>,
    comments: Vec<String>,
    frames: u64,
    failure: Option<io::Error>,
}

impl<W: Write> Capture<W> {
    /// Taps `channels` of `topology`, writing to `output`.
    ///
    /// # Errors
    ///
    /// If writing fails.
    pub fn new(
        output: W,
        topology: &Topology,
        channels: impl IntoIterator<Item = ChannelId>,
    ) -> io::Result<Capture<W>> {
        let mut writer = Writer::new(output)?;
        let mut interfaces = vec![None; topology.links().len() * 2];
        for channel in channels {
            let (from, to) = topology.channel_ends(channel);
            let (link, _) = topology.channel_name(channel);
            let id = writer.interface(
                &format!("{from}->{to}"),
                &format!("link {link}, frames that {from} sends"),
                LinkType::ETHERNET,
            )?;
            if let Some(slot) = interfaces.get_mut(channel.index()) {
                *slot = Some(id);
            }
        }
        Ok(Capture {
            writer,
            interfaces,
            frame: Vec::new(),
            waiting: None,
            comments: Vec::new(),
            frames: 0,
            failure: None,
        })
    }

    /// Frames taken so far.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Writes what is left and gives the output back.
    ///
    /// # Errors
    ///
    /// If writing fails now or failed before.
    pub fn finish(mut self) -> io::Result<W> {
        self.settle();
        match self.failure {
            Some(error) => Err(error),
            None => self.writer.into_inner(),
        }
    }

    /// Writes the frame that waits.
    fn settle(&mut self) {
        let Some((_, interface, stamp)) = self.waiting.take() else {
            return;
        };
        let comments: Vec<&str> = self.comments.iter().map(String::as_str).collect();
        let len = self.frame.len() as u32;
        if let Err(error) = self
            .writer
            .packet(interface, stamp, &self.frame, len, &comments)
        {
            self.failure.get_or_insert(error);
        }
        self.comments.clear();
    }
}

impl<W: Write> Observer for Capture<W> {
    fn on_transmit(&mut self, now: Time, channel: ChannelId, sight: Sight<'_>) {
        let Some(Some(interface)) = self.interfaces.get(channel.index()).copied() else {
            return;
        };
        self.settle();
        if self.failure.is_some() {
            return;
        }
        let packet = sight.packet();
        let payload = sight
            .payload()
            .unwrap_or(&ZEROS[..usize::from(packet.payload.len())]);
        self.frame.clear();
        match encode_packet(packet, sight.route(), payload, &mut self.frame) {
            Ok(_) => {
                self.waiting = Some((channel, interface, Stamp::from(now)));
                self.frames += 1;
            }
            Err(error) => self.failure = Some(io::Error::other(error)),
        }
    }

    fn on_pfc(&mut self, now: Time, channel: ChannelId, frame: &Pfc) {
        let Some(Some(interface)) = self.interfaces.get(channel.index()).copied() else {
            return;
        };
        self.settle();
        if self.failure.is_some() {
            return;
        }
        self.frame.clear();
        self.frame.extend_from_slice(&frame.encode());
        self.waiting = Some((channel, interface, Stamp::from(now)));
        self.frames += 1;
    }

    fn on_fault(&mut self, record: &FaultRecord) {
        self.note_fault(record, &record.fault.to_string());
    }
}

impl<W: Write> Capture<W> {
    /// Puts a comment beside the frame that a fault has hit, with a name for the fault.
    pub fn note_fault(&mut self, record: &FaultRecord, name: &str) {
        if matches!(self.waiting, Some((channel, ..)) if channel == record.channel) {
            let what = match record.action {
                Action::Drop => "dropped".to_owned(),
                Action::CorruptOnLink => "corrupted on the link".to_owned(),
                Action::CorruptInDevice => "corrupted in a device".to_owned(),
                Action::MarkEcn => "marked: congestion experienced".to_owned(),
                Action::Duplicate { .. } => "duplicated".to_owned(),
                Action::Delay { by } => format!("delayed by {by}"),
                Action::Reorder { packets, .. } => format!("let {packets} packets pass"),
            };
            self.comments.push(format!("fault {name}: {what}"));
        }
    }
}
