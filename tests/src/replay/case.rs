//! A case of `tests/captures`, read from its files.

use softroce_sim::card::{Mtu, QpType};
use softroce_sim::memory::Access;
use softroce_sim::time::Time;
use softroce_sim::wire::capture::Reader;
use softroce_sim::wire::{Ext, Frame, Gid, Psn, QpNumber, RemoteKey};
use std::fs::{self, File};
use std::io::BufReader;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

/// One of the two ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The end whose program posts send requests (`client`).
    Requester,
    /// The end whose program posts receives and memory (`server`).
    Responder,
}

impl Side {
    /// Both.
    pub const BOTH: [Side; 2] = [Side::Requester, Side::Responder];

    /// The letter in front of what its program prints.
    pub fn letter(self) -> &'static str {
        match self {
            Side::Requester => "C",
            Side::Responder => "S",
        }
    }

    /// The last number of its addresses.
    pub fn host(self) -> u8 {
        match self {
            Side::Responder => 1,
            Side::Requester => 2,
        }
    }

    /// The other one.
    pub fn peer(self) -> Side {
        match self {
            Side::Requester => Side::Responder,
            Side::Responder => Side::Requester,
        }
    }
}

/// An operation: `OP[:LEN[:FLAGS]]`.
#[derive(Clone, Debug)]
pub struct Op {
    /// What: `send`, `sendimm`, `sendinv`, `write`, `writeimm`, `read`, `cas`, `faa`.
    pub name: String,
    /// Bytes.
    pub len: u32,
    flags: String,
}

impl Op {
    fn parse(text: &str) -> Op {
        let mut parts = text.split(':');
        Op {
            name: parts.next().unwrap_or_default().into(),
            len: parts.next().map_or(64, |n| n.parse().expect("a length")),
            flags: parts.next().unwrap_or_default().into(),
        }
    }

    /// The flags: `n` the receive is posted late, `x` never, `s` it is half as long; `b` a bad key, `m` a
    /// compare value that does not match; `k` the next one does not wait for this one; `e` solicited.
    pub fn has(&self, flag: char) -> bool {
        self.flags.contains(flag)
    }

    /// True if any of the flags is there.
    pub fn has_any(&self, flags: &str) -> bool {
        self.flags.contains(|c| flags.contains(c))
    }

    /// A SEND of any kind.
    pub fn is_send(&self) -> bool {
        self.name.starts_with("send")
    }

    /// An atomic.
    pub fn is_atomic(&self) -> bool {
        self.name == "cas" || self.name == "faa"
    }

    /// True if it takes a receive.
    pub fn takes_receive(&self) -> bool {
        self.is_send() || self.name == "writeimm"
    }
}

/// The options of both programs.
#[derive(Clone, Debug)]
pub struct Options {
    /// `-T`.
    pub service: QpType,
    /// `-M`.
    pub mtu: Mtu,
    /// `-G 2`.
    pub ipv6: bool,
    /// `-O`, local ACK timeout exponent.
    pub timeout: u8,
    /// `-r`.
    pub retry_cnt: u8,
    /// `-R`.
    pub rnr_retry: u8,
    /// `-N`.
    pub min_rnr_timer: u8,
    /// `-D`, both directions.
    pub rd_atomic: u8,
    /// `-A`, of the responder's region.
    pub access: Access,
    /// `-K`, what the requester puts into datagrams.
    pub sent_qkey: u32,
}

/// What an end tells the other.
#[derive(Clone, Copy, Debug)]
pub struct Identity {
    /// Queue pair.
    pub qp: QpNumber,
    /// First PSN it sends.
    pub psn: Psn,
    /// Key of its region; zero if it gives the peer no rights.
    pub rkey: RemoteKey,
    /// First byte of it.
    pub addr: u64,
}

/// A frame at one end.
#[derive(Clone, Debug)]
pub struct Event {
    /// Since the first frame there.
    pub at: Time,
    /// This end sent it.
    pub own: bool,
    /// The frame.
    pub frame: Frame,
}

/// A case.
#[derive(Clone, Debug)]
pub struct Case {
    /// Name of its files.
    pub name: String,
    /// Options of both programs.
    pub options: Options,
    /// Operations of both programs.
    pub ops: Vec<Op>,
    requester: Identity,
    responder: Identity,
    requester_said: Vec<String>,
    responder_said: Vec<String>,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("captures")
}

/// Names of all cases, in order.
///
/// # Panics
/// If the folder cannot be read.
pub fn names() -> Vec<String> {
    let entries = fs::read_dir(folder()).expect("the folder of captures");
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == "txt"))
        .map(|path| path.file_stem().expect("a name").display().to_string())
        .collect();
    names.sort();
    names
}

/// The frames of a capture that are RoCE, with their times; IGMP is left out.
///
/// # Panics
/// If the capture cannot be read or a frame is broken.
pub fn frames(name: &str) -> Vec<(Time, Frame)> {
    let path = folder().join(name).with_extension("pcap");
    let file = File::open(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let reader = Reader::new(BufReader::new(file)).unwrap_or_else(|e| panic!("{name}: {e}"));
    let mut first = None;
    let mut frames = Vec::new();
    for record in reader {
        let record = record.unwrap_or_else(|e| panic!("{name}: {e}"));
        let stamp = record.time.expect("a time");
        let start = *first.get_or_insert(stamp);
        match record.frame() {
            Ok(frame) => frames.push((Time::from_ps(stamp.since(start) as u64), frame)),
            Err(e) => assert!(e.is_foreign(), "{name}: {e}"),
        }
    }
    frames
}

impl Case {
    /// Reads the case `name`.
    ///
    /// # Panics
    /// If its text is not as the text of a case is.
    pub fn load(name: &str) -> Case {
        let path = folder().join(name).with_extension("txt");
        let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let command = text
            .lines()
            .find_map(|line| line.strip_prefix("client: rcx -c 10.66.0.1:PORT"))
            .unwrap_or_else(|| panic!("{name}: no line of the client"));
        let (options, ops) = parse_command(command);
        let banner = |letter| {
            let line = text
                .lines()
                .find(|line| line.starts_with(letter) && line.contains("<->"));
            let line = line.unwrap_or_else(|| panic!("{name}: {letter} does not say who it is"));
            parse_identity(line)
        };
        let said = |letter: &str| -> Vec<String> {
            let own = text.lines().filter(|line| {
                line.starts_with(letter) && line[1..].starts_with(' ') && !line.contains("<->")
            });
            own.map(without_times).collect()
        };
        Case {
            name: name.into(),
            options,
            ops,
            requester: banner("C"),
            responder: banner("S"),
            requester_said: said("C"),
            responder_said: said("S"),
        }
    }

    /// Who an end is.
    pub fn identity(&self, side: Side) -> Identity {
        match side {
            Side::Requester => self.requester,
            Side::Responder => self.responder,
        }
    }

    /// Address of an end.
    pub fn gid(&self, side: Side) -> Gid {
        if self.options.ipv6 {
            Ipv6Addr::new(0xfd66, 0, 0, 0, 0, 0, 0, side.host().into()).into()
        } else {
            Ipv4Addr::new(10, 66, 0, side.host()).into()
        }
    }

    /// What an end's program printed, without times and in the spelling of
    /// [`Program`](super::program::Program).
    pub fn said(&self, side: Side) -> &[String] {
        match side {
            Side::Requester => &self.requester_said,
            Side::Responder => &self.responder_said,
        }
    }

    /// The frames at an end.
    pub fn events(&self, side: Side) -> Vec<Event> {
        let own_view = format!("{}-responder", self.name);
        let there = folder().join(&own_view).with_extension("pcap").is_file();
        let name = if side == Side::Responder && there {
            &own_view
        } else {
            &self.name
        };
        let own = self.gid(side);
        let event = |(at, frame): (Time, Frame)| Event {
            at,
            own: frame.network.src() == own,
            frame,
        };
        frames(name).into_iter().map(event).collect()
    }

    /// The window's key, which the programs exchanged without printing it.
    pub fn invalidated_key(&self) -> RemoteKey {
        let frames = frames(&self.name);
        let key = frames.iter().find_map(|(_, frame)| match frame.ext {
            Ext::Ieth(key) => Some(key),
            _ => None,
        });
        key.unwrap_or(RemoteKey(0))
    }
}

fn number(text: &str) -> u64 {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// Options as `getopt` takes them, then the operations.
fn parse_command(command: &str) -> (Options, Vec<Op>) {
    let mut options = Options {
        service: QpType::Rc,
        mtu: Mtu::M1024,
        ipv6: false,
        timeout: 14,
        retry_cnt: 7,
        rnr_retry: 7,
        min_rnr_timer: 12,
        rd_atomic: 16,
        access: access(31),
        sent_qkey: 0x1111_1111,
    };
    let mut ops = Vec::new();
    let mut words = command.split_whitespace();
    while let Some(word) = words.next() {
        if !word.starts_with('-') {
            ops = word.split(',').map(Op::parse).collect();
            continue;
        }
        let value = words.next().expect("a value");
        match word {
            "-T" => {
                options.service = match value {
                    "rc" => QpType::Rc,
                    "uc" => QpType::Uc,
                    _ => QpType::Ud,
                }
            }
            "-M" => options.mtu = Mtu::from_bytes(number(value)).expect("an MTU"),
            "-G" => options.ipv6 = value == "2",
            "-O" => options.timeout = number(value) as u8,
            "-r" => options.retry_cnt = number(value) as u8,
            "-R" => options.rnr_retry = number(value) as u8,
            "-N" => options.min_rnr_timer = number(value) as u8,
            "-D" => options.rd_atomic = number(value) as u8,
            "-A" => options.access = access(number(value)),
            "-K" => options.sent_qkey = number(value) as u32,
            // First PSNs, which the programs print as well.
            "-P" | "-Q" => {}
            _ => panic!("option {word}"),
        }
    }
    (options, ops)
}

fn access(bits: u64) -> Access {
    [
        Access::LOCAL_WRITE,
        Access::REMOTE_WRITE,
        Access::REMOTE_READ,
        Access::REMOTE_ATOMIC,
        Access::MW_BIND,
    ]
    .into_iter()
    .filter(|right| bits & u64::from(right.bits()) != 0)
    .fold(Access::LOCAL_READ, |all, right| all | right)
}

/// `S RC mtu 1024 qpn 0x000011 psn 0x000200 rkey 0x000002fb addr 0x7f921ce32000 <-> ...`: the half that
/// the end says of itself.
fn parse_identity(line: &str) -> Identity {
    let own = line.split("<->").next().unwrap_or_default();
    let words: Vec<&str> = own.split_whitespace().collect();
    let value = |key: &str| {
        let at = words.iter().position(|&w| w == key);
        number(words[at.unwrap_or_else(|| panic!("{line}: no {key}")) + 1])
    };
    Identity {
        qp: QpNumber::new(value("qpn") as u32),
        psn: Psn::new(value("psn") as u32),
        rkey: RemoteKey(value("rkey") as u32),
        addr: value("addr"),
    }
}

/// A line without the time and the status in words.
fn without_times(line: &str) -> String {
    let (letter, mut rest) = line.split_at(1);
    for event in [" wc ", " posting late"] {
        if let Some(at) = rest.find(event) {
            rest = &rest[at..];
        }
    }
    match (rest.find('('), rest.find(')')) {
        (Some(from), Some(to)) => format!("{letter}{}{}", &rest[..from], &rest[to + 1..]),
        _ => without_identification(&format!("{letter}{rest}")),
    }
}

/// A dump of the header in front of a datagram without the IPv4 identification, which is the sender's to
/// choose, and the checksum over it.
pub fn without_identification(line: &str) -> String {
    let Some((before, dump)) = line.split_once(" GRH:") else {
        return line.into();
    };
    format!(
        "{before} GRH:{}....{}....{}",
        &dump[..48],
        &dump[52..60],
        &dump[64..]
    )
}
