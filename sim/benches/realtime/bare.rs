//! The same datagrams without cards: sockets, copies, sums, acknowledgements and a window, no more.

use crate::ends::LEN;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrIn, recvmsg, sendmsg, setsockopt,
    sockopt,
};
use std::io::{IoSlice, IoSliceMut};
use std::net::{SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Instant;

/// BTH, RETH, immediate data, 64 bytes, ICRC.
const MESSAGE: usize = 12 + 16 + 4 + 64 + 4;
/// BTH, AETH, ICRC.
const ACK: usize = 12 + 4 + 4;
/// Bytes in front of the payload of a packet, and behind it.
const HEAD: usize = 12;
const TAIL: usize = 4;
const MTU: usize = 4096;
/// Packets of a message.
const PACKETS: u32 = (LEN / MTU) as u32;
/// Packets that go to the kernel at once: as many as an IP packet carries.
const RUN: usize = 65_507 / (HEAD + MTU + TAIL);

fn sockets() -> [UdpSocket; 2] {
    [0; 2].map(|_| {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        setsockopt(&socket, sockopt::RcvBuf, &(4 << 20)).unwrap();
        socket
    })
}

fn address(socket: &UdpSocket) -> SocketAddrV4 {
    match socket.local_addr().unwrap() {
        SocketAddr::V4(v4) => v4,
        SocketAddr::V6(_) => unreachable!("bound to an IPv4 address"),
    }
}

pub(crate) struct Latency([UdpSocket; 2]);

impl Latency {
    pub(crate) fn new() -> Latency {
        Latency(sockets())
    }

    /// `rounds` messages to and fro, each acknowledged after it is answered; microseconds for each.
    pub(crate) fn volley(&mut self, rounds: u32) -> f64 {
        let [a, b] = &self.0;
        let (to_a, to_b) = (address(a), address(b));
        let hear = |socket: &UdpSocket| {
            let mut bytes = [0; 2048];
            while socket.recv_from(&mut bytes).map(|(n, _)| n).ok() != Some(MESSAGE) {}
        };
        let say = |socket: &UdpSocket, to, acknowledge: bool| {
            socket.send_to(&[1; MESSAGE], to).unwrap();
            if acknowledge {
                socket.send_to(&[2; ACK], to).unwrap();
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..rounds {
                    hear(b);
                    say(b, to_a, true);
                }
            });
            let start = Instant::now();
            for round in 0..rounds {
                say(a, to_b, round > 0);
                hear(a);
            }
            start.elapsed().as_secs_f64() * 1e6 / f64::from(rounds)
        })
    }
}

pub(crate) struct Bulk {
    sockets: [UdpSocket; 2],
    offload: bool,
    source: Vec<u8>,
    target: Vec<u8>,
}

impl Bulk {
    pub(crate) fn new(offload: bool) -> Bulk {
        let sockets = sockets();
        if offload {
            setsockopt(&sockets[1], sockopt::UdpGroSegment, &true).unwrap();
        }
        Bulk {
            sockets,
            offload,
            source: (0..LEN).map(|n| n as u8).collect(),
            target: vec![0; LEN],
        }
    }

    /// `count` messages of 1 MB, two at a time; Gb/s.
    pub(crate) fn writes(&mut self, count: u32) -> f64 {
        let [a, b] = &self.sockets;
        let (to_a, to_b) = (address(a), address(b));
        let (source, target, offload) = (&self.source, &mut self.target, self.offload);
        std::thread::scope(|scope| {
            scope.spawn(move || receive(b, to_a, target, count));
            let start = Instant::now();
            send(a, to_b, source, count, offload);
            f64::from(count) * LEN as f64 * 8.0 / start.elapsed().as_secs_f64() / 1e9
        })
    }
}

fn send(socket: &UdpSocket, to: SocketAddrV4, source: &[u8], count: u32, offload: bool) {
    let name = SockaddrIn::from(to);
    let mut staging = [0; MTU];
    let mut run = Vec::with_capacity(65_536);
    let (mut acknowledged, mut ack) = (0, [0; 64]);
    for message in 0..count {
        while message - acknowledged >= 2 {
            acknowledged += u32::from(socket.recv_from(&mut ack).is_ok());
        }
        let mut packets = source.chunks_exact(MTU).enumerate().peekable();
        while packets.peek().is_some() {
            run.clear();
            for (n, payload) in packets.by_ref().take(if offload { RUN } else { 1 }) {
                staging.copy_from_slice(payload);
                let mut head = [0; HEAD];
                head[8..].copy_from_slice(&(n as u32).to_be_bytes());
                let mut sum = crc32fast::Hasher::new();
                sum.update(&head);
                sum.update(&staging);
                run.extend_from_slice(&head);
                run.extend_from_slice(&staging);
                run.extend_from_slice(&sum.finalize().to_le_bytes());
            }
            let segment = (HEAD + MTU + TAIL) as u16;
            let cut = [ControlMessage::UdpGsoSegments(&segment)];
            let control = if offload { &cut[..] } else { &[] };
            let pieces = [IoSlice::new(&run)];
            while sendmsg(
                socket.as_raw_fd(),
                &pieces,
                control,
                MsgFlags::MSG_DONTWAIT,
                Some(&name),
            )
            .is_err()
            {}
        }
    }
    while acknowledged < count {
        acknowledged += u32::from(socket.recv_from(&mut ack).is_ok());
    }
}

fn receive(socket: &UdpSocket, to: SocketAddrV4, target: &mut [u8], count: u32) {
    let mut bytes = vec![0; 65_536];
    let mut control = nix::cmsg_space!(i32);
    for _ in 0..count {
        let mut left = PACKETS;
        while left > 0 {
            let mut pieces = [IoSliceMut::new(&mut bytes)];
            let flags = MsgFlags::MSG_DONTWAIT;
            let Ok(message) =
                recvmsg::<()>(socket.as_raw_fd(), &mut pieces, Some(&mut control), flags)
            else {
                continue;
            };
            let len = message.bytes;
            let mut each = len;
            for control in message.cmsgs().into_iter().flatten() {
                if let ControlMessageOwned::UdpGroSegments(n) = control {
                    each = n as usize;
                }
            }
            for packet in bytes[..len].chunks(each) {
                let (covered, sum) = packet.split_last_chunk::<TAIL>().unwrap();
                assert_eq!(crc32fast::hash(covered), u32::from_le_bytes(*sum));
                let (head, payload) = covered.split_at(HEAD);
                let n = u32::from_be_bytes(*head.last_chunk().unwrap()) as usize;
                target[n * MTU..][..MTU].copy_from_slice(payload);
                left -= 1;
            }
        }
        while socket.send_to(&[2; ACK], to).is_err() {}
    }
}
