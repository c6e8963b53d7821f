//! Packets as frames: what crosses the wire between the card's port and the peer's.

use super::{Bench, Say};
use softroce_sim::wire::frame::{Finding, encode_packet};
use softroce_sim::wire::{FrameView, Packet};

impl Bench {
    /// The Ethernet frame, without FCS, of a packet that the card said.
    pub fn frame(&self, packet: &Packet) -> Vec<u8> {
        let route = self.routes.get(packet.route).unwrap();
        let mut frame = Vec::new();
        encode_packet(packet, &route, &self.bytes(packet), &mut frame).unwrap();
        frame
    }

    /// The next packet the card sends, as a frame.
    pub fn pull_frame(&mut self) -> Option<Vec<u8>> {
        let packet = self.pull()?;
        Some(self.frame(&packet))
    }

    /// The frame of a packet that the peer says.
    pub fn frame_of(&mut self, say: Say) -> Vec<u8> {
        let packet = self.packet_of(say);
        let payload = self.bytes(&packet);
        let mut frame = Vec::new();
        encode_packet(&packet, &self.route, &payload, &mut frame).unwrap();
        frame
    }

    /// A frame of the peer arrives at the card's port. What is no frame, or has a sum that is wrong, ends
    /// there; false if so.
    pub fn hear_frame(&mut self, frame: &[u8]) -> bool {
        let Ok(view) = FrameView::decode(frame) else {
            return false;
        };
        let wrong_sum = |finding: &Finding| {
            matches!(
                finding,
                Finding::Icrc(_) | Finding::Ipv4Checksum { .. } | Finding::UdpChecksum { .. }
            )
        };
        if view.check().iter().any(wrong_sum) {
            return false;
        }
        let route = view.route();
        let payload = self.env.hold(view.transport.payload.to_vec());
        let Ok(packet) = view.to_packet(self.routes.intern(route), payload) else {
            return false;
        };
        self.card.receive(self.now, &packet, &route, &mut self.env);
        true
    }
}
