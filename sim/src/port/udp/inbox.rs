//! Datagrams that have arrived, many of them in one system call.

#![allow(unsafe_code)]

use super::socket::Socket;
use nix::libc;
use std::fmt;
use std::io;
use std::mem::zeroed;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::ops::Range;

/// Arrivals taken in one system call.
const MOST: usize = 16;
/// Longest arrival taken whole; the longest packet at the largest path MTU is shorter by far.
const LONGEST: usize = 9216;
/// The same where the kernel joins datagrams of one sender.
const LONGEST_RUN: usize = 65_536;
/// Room for control messages: TOS, length of the pieces.
const CONTROL: usize = 96;

/// A datagram, by its place in the inbox.
#[derive(Clone, Debug)]
pub(super) struct Arrival {
    pub(super) bytes: Range<usize>,
    pub(super) from: SocketAddr,
    /// TOS or traffic class.
    pub(super) tos: u8,
    /// It was longer than there is room for.
    pub(super) cut: bool,
}

/// What the kernel writes into for one arrival, all in places that do not move.
struct Slots {
    bytes: Box<[u8]>,
    names: Box<[libc::sockaddr_storage; MOST]>,
    controls: Box<[Control; MOST]>,
    /// Points into `headers`' neighbours below.
    _pieces: Box<[libc::iovec; MOST]>,
    headers: Box<[libc::mmsghdr; MOST]>,
}

#[derive(Clone, Copy)]
#[repr(align(8))]
struct Control([u8; CONTROL]);

// SAFETY: the pointers in it are to its own boxes, which move along.
unsafe impl Send for Slots {}

/// The inbox of a socket.
pub(super) struct Inbox {
    slots: Slots,
    /// Room for each arrival.
    room: usize,
    /// Arrivals of the last call, and which is next.
    filled: usize,
    next: usize,
    /// What is left of an arrival that is many datagrams, and how long each is.
    run: Option<(Arrival, usize)>,
    /// The last call took all that there was, or all that it had been asked for, which was little.
    drained: bool,
    /// How many arrivals the next call asks for. To be told that there is no second one takes long, so that a
    /// first one is asked for alone; where many come, it doubles up to [`MOST`].
    ask: usize,
}

impl Inbox {
    pub(super) fn new(offload: bool) -> Inbox {
        let room = if offload { LONGEST_RUN } else { LONGEST };
        let mut bytes = vec![0; room * MOST].into_boxed_slice();
        // SAFETY: these are plain data of C, for which zero is a value.
        let (mut names, mut pieces, mut headers) = unsafe {
            (
                Box::new(zeroed::<[libc::sockaddr_storage; MOST]>()),
                Box::new(zeroed::<[libc::iovec; MOST]>()),
                Box::new(zeroed::<[libc::mmsghdr; MOST]>()),
            )
        };
        let mut controls = Box::new([Control([0; CONTROL]); MOST]);
        for (i, bytes) in bytes.chunks_exact_mut(room).enumerate() {
            pieces[i] = libc::iovec {
                iov_base: bytes.as_mut_ptr().cast(),
                iov_len: room,
            };
            let header = &mut headers[i].msg_hdr;
            header.msg_name = (&raw mut names[i]).cast();
            header.msg_iov = &mut pieces[i];
            header.msg_iovlen = 1;
            header.msg_control = controls[i].0.as_mut_ptr().cast();
        }
        let mut inbox = Inbox {
            slots: Slots {
                bytes,
                names,
                controls,
                _pieces: pieces,
                headers,
            },
            room,
            filled: MOST,
            next: 0,
            run: None,
            drained: false,
            ask: 1,
        };
        inbox.empty();
        inbox
    }

    /// Bytes of an arrival.
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.slots.bytes
    }

    /// The next datagram; `None` if what the socket was last asked for has all been given, unless it was as much
    /// as can be asked for. The one before may be overwritten.
    #[inline]
    pub(super) fn next(&mut self, socket: &Socket) -> io::Result<Option<Arrival>> {
        loop {
            if let Some(arrival) = self.piece() {
                return Ok(Some(arrival));
            }
            if self.next == self.filled {
                if std::mem::take(&mut self.drained) {
                    return Ok(None);
                }
                self.empty();
                let asked = std::mem::replace(&mut self.ask, 1);
                match socket.receive_many(&mut self.slots.headers[..asked]) {
                    Ok(0) => return Ok(None),
                    Ok(n) => {
                        self.filled = n;
                        self.drained = n < MOST;
                        self.ask = if n < asked {
                            n.next_power_of_two()
                        } else {
                            (2 * asked).min(MOST)
                        };
                    }
                    Err(e) => match e.kind() {
                        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => {
                            return Ok(None);
                        }
                        _ => return Err(e),
                    },
                }
            }
            self.open();
        }
    }

    /// True if the next datagram is to be asked for.
    #[inline]
    pub(super) fn is_done(&self) -> bool {
        self.run.is_none() && self.next == self.filled
    }

    /// Another socket is asked next, and what is left of the last one's is not taken.
    pub(super) fn turn(&mut self) {
        self.run = None;
        self.next = self.filled;
        self.drained = false;
    }

    /// The next of the datagrams that came as one.
    #[inline]
    fn piece(&mut self) -> Option<Arrival> {
        let (rest, len) = self.run.as_mut()?;
        let mut piece = rest.clone();
        if rest.bytes.len() <= *len {
            self.run = None;
        } else {
            piece.bytes.end = piece.bytes.start + *len;
            rest.bytes.start = piece.bytes.end;
        }
        Some(piece)
    }

    /// Makes the slots that were filled ready for the next call.
    fn empty(&mut self) {
        for header in &mut self.slots.headers[..self.filled] {
            header.msg_hdr.msg_namelen = size_of::<libc::sockaddr_storage>() as _;
            header.msg_hdr.msg_controllen = CONTROL as _;
            header.msg_hdr.msg_flags = 0;
        }
        (self.filled, self.next) = (0, 0);
    }

    /// Looks at the next arrival.
    fn open(&mut self) {
        let i = self.next;
        self.next += 1;
        let header = &self.slots.headers[i];
        let len = (header.msg_len as usize).min(self.room);
        let start = i * self.room;
        let mut arrival = Arrival {
            bytes: start..start + len,
            from: SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0)),
            tos: 0,
            cut: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
        };
        let mut each = len.max(1);
        let control = &self.slots.controls[i].0;
        let used = header.msg_hdr.msg_controllen.min(CONTROL);
        for (level, kind, data) in messages(&control[..used]) {
            let word = |data: &[u8]| data.first_chunk().map_or(0, |w| u32::from_ne_bytes(*w));
            match (level, kind) {
                (libc::IPPROTO_IP, libc::IP_TOS) => {
                    arrival.tos = data.first().copied().unwrap_or_default();
                }
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => arrival.tos = word(data) as u8,
                (libc::SOL_UDP, libc::UDP_GRO) => each = (word(data) as usize).max(1),
                _ => {}
            }
        }
        let name: *const libc::sockaddr_storage = &self.slots.names[i];
        // SAFETY: the kernel has written an address of the family that it names, and the storage is as long
        // as the longest of them and aligned for all.
        unsafe {
            match i32::from((*name).ss_family) {
                libc::AF_INET => {
                    let v4 = &*name.cast::<libc::sockaddr_in>();
                    let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
                    let port = u16::from_be(v4.sin_port);
                    arrival.from = SocketAddrV4::new(ip, port).into();
                }
                libc::AF_INET6 => {
                    let v6 = &*name.cast::<libc::sockaddr_in6>();
                    let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
                    let port = u16::from_be(v6.sin6_port);
                    arrival.from = SocketAddrV6::new(ip, port, 0, v6.sin6_scope_id).into();
                }
                // Nobody: it is counted as malformed.
                _ => arrival.cut = true,
            }
        }
        self.run = Some((arrival, each));
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Inbox({} of {})", self.next, self.filled)
    }
}

/// Level, type and data of the control messages in `bytes`.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = (i32, i32, &[u8])> {
    const HEADER: usize = size_of::<libc::cmsghdr>();
    let word = |b: &[u8], at: usize| {
        let b = b.get(at..)?.first_chunk()?;
        Some(i32::from_ne_bytes(*b))
    };
    std::iter::from_fn(move || {
        let len = usize::from_ne_bytes(*bytes.first_chunk()?);
        let level = word(bytes, size_of::<usize>())?;
        let kind = word(bytes, size_of::<usize>() + 4)?;
        let data = bytes.get(HEADER..len)?;
        // Each begins where a word does.
        let next = len.next_multiple_of(size_of::<usize>());
        bytes = bytes.get(next..).unwrap_or_default();
        Some((level, kind, data))
    })
}
