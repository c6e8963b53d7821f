use super::*;
use crate::wire::{Encapsulation, Frame, Gid, Opcode};
use proptest::prelude::*;
use proptest::sample::Index;
use std::net::Ipv4Addr;

/// An IPv4 datagram of a real card: UC SEND Only.
const DATAGRAM: [u8; 64] = [
    0x45, 0x01, 0x00, 0x40, 0x04, 0x78, 0x40, 0x00, 0x40, 0x11, 0xb4, 0xd5, 0xc0, 0xa8, 0x00, 0x07,
    0xc0, 0xa8, 0x00, 0x07, 0xc0, 0x00, 0x12, 0xb7, 0x00, 0x2c, 0xac, 0xa2, 0x24, 0x60, 0xff, 0xff,
    0x00, 0x00, 0x00, 0xd3, 0x00, 0xcf, 0x17, 0x10, 0x46, 0x30, 0x81, 0x8b, 0xe2, 0x89, 0x35, 0xd9,
    0x0e, 0x9a, 0x95, 0x50, 0x54, 0x01, 0xbe, 0x88, 0x5e, 0x50, 0x00, 0x00, 0x78, 0xf3, 0x53, 0xf3,
];

/// Puts a file together word by word, in either byte order.
#[derive(Clone)]
struct Build {
    big: bool,
    bytes: Vec<u8>,
}

impl Build {
    fn new(big: bool) -> Build {
        Build {
            big,
            bytes: Vec::new(),
        }
    }

    fn u16(mut self, n: u16) -> Build {
        let b = if self.big {
            n.to_be_bytes()
        } else {
            n.to_le_bytes()
        };
        self.bytes.extend(b);
        self
    }

    fn u32(mut self, n: u32) -> Build {
        let b = if self.big {
            n.to_be_bytes()
        } else {
            n.to_le_bytes()
        };
        self.bytes.extend(b);
        self
    }

    fn raw(mut self, bytes: &[u8]) -> Build {
        self.bytes.extend(bytes);
        self
    }

    fn padded(mut self, bytes: &[u8]) -> Build {
        self.bytes.extend(bytes);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        self
    }

    fn option(self, code: u16, value: &[u8]) -> Build {
        self.u16(code).u16(value.len() as u16).padded(value)
    }

    fn block(self, kind: u32, content: impl FnOnce(Build) -> Build) -> Build {
        let inner = content(Build::new(self.big)).bytes;
        let len = inner.len() as u32 + 12;
        self.u32(kind).u32(len).raw(&inner).u32(len)
    }

    fn section(self) -> Build {
        self.block(0x0a0d_0d0a, |b| {
            b.u32(0x1a2b_3c4d).u16(1).u16(0).raw(&[0xff; 8])
        })
    }

    fn pcap(self, magic: u32, link: u32) -> Build {
        let b = self.u32(magic).u16(2).u16(4);
        b.u32(0).u32(0).u32(262_144).u32(link)
    }
}

fn read(bytes: &[u8]) -> (Vec<Record>, Vec<Interface>, Option<CaptureError>) {
    let mut reader = match Reader::new(bytes) {
        Ok(reader) => reader,
        Err(e) => return (Vec::new(), Vec::new(), Some(e)),
    };
    let mut records = Vec::new();
    let mut error = None;
    for record in &mut reader {
        match record {
            Ok(record) => records.push(record),
            Err(e) => error = Some(e),
        }
    }
    assert!(reader.next().is_none());
    (records, reader.interfaces().to_vec(), error)
}

fn message(bytes: &[u8]) -> String {
    read(bytes).2.expect("an error").to_string()
}

#[test]
fn pcap_in_both_byte_orders_and_resolutions() {
    for big in [false, true] {
        for (magic, fraction, ns) in [(0xa1b2_c3d4, 999_999, 999_999_000), (0xa1b2_3c4d, 7, 7)] {
            let file = Build::new(big)
                .pcap(magic, 1)
                .u32(5)
                .u32(fraction)
                .u32(3)
                .u32(60)
                .raw(b"abc")
                .u32(6)
                .u32(0)
                .u32(0)
                .u32(0);
            let (records, interfaces, error) = read(&file.bytes);
            assert!(error.is_none());
            assert_eq!(interfaces.len(), 1);
            assert_eq!(interfaces[0].link, LinkType::ETHERNET);
            assert_eq!(interfaces[0].snap_len, 262_144);
            assert_eq!(records.len(), 2);
            assert_eq!(records[0].time, Some(Stamp::from_ns(5_000_000_000 + ns)));
            assert_eq!(records[0].data, b"abc");
            assert_eq!(records[0].original_len, 60);
            assert_eq!(records[1].time, Some(Stamp::from_ns(6_000_000_000)));
        }
    }
}

/// Every kind of block, in two sections of different byte orders.
fn pcapng(big: bool) -> Vec<u8> {
    let first = Build::new(big)
        .section()
        .block(1, |b| {
            b.u16(1)
                .u16(0)
                .u32(65_535)
                .option(2, b"eth0")
                .option(3, b"left\0")
                .option(9, &[9])
                .option(0, &[])
        })
        .block(0x0000_0bad, |b| b.padded(b"a custom block"))
        .block(1, |b| {
            let offset: i64 = -100;
            let offset = if big {
                offset.to_be_bytes()
            } else {
                offset.to_le_bytes()
            };
            b.u16(101)
                .u16(0)
                .u32(4)
                .option(9, &[0x80 | 10])
                .option(14, &offset)
        })
        .block(6, |b| {
            // 2^32 + 5 ns.
            b.u32(0)
                .u32(1)
                .u32(5)
                .u32(5)
                .u32(99)
                .padded(b"hello")
                .option(1, b"first")
                .option(2, &[0, 0, 0, 1])
                .option(1, b"second")
                .option(0, &[])
                // Behind the end mark.
                .option(1, b"no")
        })
        // 102401 ticks of 1/1024 s, less 100 s.
        .block(6, |b| {
            b.u32(1).u32(0).u32(102_401).u32(1).u32(1).padded(b"x")
        })
        .block(3, |b| b.u32(3).padded(b"abc"))
        .block(2, |b| {
            b.u16(1)
                .u16(0)
                .u32(0)
                .u32(102_400)
                .u32(2)
                .u32(2)
                .padded(b"yz")
        });
    let second = Build::new(!big)
        .section()
        .block(1, |b| b.u16(113).u16(0).u32(2))
        .block(6, |b| b.u32(0).u32(0).u32(3).u32(0).u32(0))
        .block(3, |b| b.u32(8).padded(b"ab"));
    let mut bytes = first.bytes;
    bytes.extend(second.bytes);
    bytes
}

#[test]
fn pcapng_in_both_byte_orders_with_every_kind_of_block() {
    for big in [false, true] {
        let (records, interfaces, error) = read(&pcapng(big));
        assert!(error.is_none(), "{error:?}");
        let names: Vec<_> = interfaces
            .iter()
            .map(|i| (i.link.0, i.name.as_deref(), i.description.as_deref()))
            .collect();
        assert_eq!(
            names,
            [
                (1, Some("eth0"), Some("left")),
                (101, None, None),
                (113, None, None)
            ]
        );
        let seen: Vec<_> = records
            .iter()
            .map(|r| {
                (
                    r.interface,
                    r.time.map(Stamp::as_ps),
                    &r.data[..],
                    r.original_len,
                )
            })
            .collect();
        assert_eq!(
            seen,
            [
                (0, Some(4_294_967_301_000), &b"hello"[..], 99),
                // 1/1024 s is 976562500 ps.
                (1, Some(976_562_500), b"x", 1),
                (0, None, b"abc", 3),
                (1, Some(0), b"yz", 2),
                // Microseconds without if_tsresol.
                (2, Some(3_000_000), b"", 0),
                // Cut at the interface's limit of 2.
                (2, None, b"ab", 8),
            ]
        );
        assert_eq!(records[0].comments, ["first", "second"]);
        assert_eq!(records[1].comments, Vec::<String>::new());
    }
}

#[test]
fn resolutions_to_their_ends() {
    let ps = |byte, ticks| Resolution::from_option(byte).stamp(ticks, 0).as_ps();
    assert_eq!(ps(0, 3), 3_000_000_000_000);
    assert_eq!(ps(12, 3), 3);
    assert_eq!(ps(14, 399), 3);
    assert_eq!(ps(127, u64::MAX), 0);
    assert_eq!(ps(0x80, 3), 3_000_000_000_000);
    assert_eq!(ps(0x80 | 32, 1 << 31), 500_000_000_000);
    assert_eq!(ps(0xff, u64::MAX), 0);
    assert_eq!(ps(0, u64::MAX), i128::from(u64::MAX) * 1_000_000_000_000);
    assert_eq!(
        Resolution::from_option(6).stamp(1, i64::MIN).as_ps(),
        i128::from(i64::MIN) * 1_000_000_000_000 + 1_000_000
    );
    assert_eq!(Stamp::from_ps(-1).as_ns(), 0);
    assert_eq!(Stamp::from_ps(1_500_000_000_000).to_string(), "1.500000000");
}

fn record(link: LinkType, data: Vec<u8>) -> Record {
    Record {
        interface: 0,
        link,
        time: None,
        original_len: data.len() as u32,
        data,
        comments: Vec::new(),
    }
}

#[test]
fn each_link_type_leads_to_the_frame() {
    let mut ethernet = vec![2; 12];
    ethernet.extend([8, 0]);
    let mut sll = vec![0; 14];
    sll.extend([8, 0]);
    let mut sll2 = vec![8, 0];
    sll2.extend([0; 18]);
    for (link, header) in [
        (LinkType::ETHERNET, ethernet),
        (LinkType::RAW, vec![]),
        (LinkType::IPV4, vec![]),
        (LinkType::LINUX_SLL, sll),
        (LinkType::LINUX_SLL2, sll2),
    ] {
        let data = [&header[..], &DATAGRAM].concat();
        let record = record(link, data);
        let frame = record.frame().unwrap();
        assert_eq!(frame.bth.opcode(), Opcode(0x24), "{link}");
        assert_eq!(frame.check(), [], "{link}");
        let route = frame.route();
        assert_eq!(route.encapsulation, Encapsulation::RoceV2);
        assert_eq!(route.src, Gid::from(Ipv4Addr::new(192, 168, 0, 7)));
        let whole = Frame::decode_ip(&DATAGRAM).unwrap();
        assert_eq!(
            Frame {
                link: None,
                ..frame
            },
            whole
        );
    }
    for (link, message) in [
        (
            LinkType::NULL,
            "link type BSD loopback (0) is not supported: use Ethernet, raw IP or Linux cooked",
        ),
        (
            LinkType::ERF,
            "link type ERF (197) is not supported: use Ethernet, raw IP or Linux cooked",
        ),
        (LinkType::IPV6, "IPv6: version 4, 6 needed"),
        (
            LinkType(147),
            "link type 147 is not supported: use Ethernet, raw IP or Linux cooked",
        ),
    ] {
        let record = record(link, DATAGRAM.to_vec());
        assert_eq!(record.view().unwrap_err().to_string(), message);
    }
    assert_eq!(
        record(LinkType::LINUX_SLL2, vec![0; 19])
            .view()
            .unwrap_err()
            .to_string(),
        "Linux cooked header: 19 bytes there, 20 needed"
    );
    // ARP.
    let arp = record(LinkType::LINUX_SLL2, [&[8, 6][..], &[0; 40]].concat());
    assert!(arp.view().unwrap_err().is_foreign());
}

#[test]
fn faults_name_offset_block_field_and_limit() {
    let le = || Build::new(false);
    let described = || le().section().block(1, |b| b.u16(1).u16(0).u32(0));
    for (file, expected) in [
        (
            le().raw(b"GET / HTTP"),
            "neither pcap nor pcapng: the file begins with [47, 45, 54, 20]",
        ),
        (
            le().raw(b"ab"),
            "offset 0: the file ends inside a file header: 2 of 4 bytes there",
        ),
        (
            le(),
            "offset 0: the file ends inside a file header: 0 of 4 bytes there",
        ),
        (
            le().u32(0xa1b2_c3d4).raw(&[0; 7]),
            "offset 4: the file ends inside a pcap file header: 7 of 20 bytes there",
        ),
        (
            le().u32(0xa1b2_c3d4).u16(3).raw(&[0; 18]),
            "offset 0: pcap file header: major version is 3, must be 2",
        ),
        (
            le().pcap(0xa1b2_c3d4, 1).raw(&[0; 15]),
            "offset 24: the file ends inside a pcap packet header: 15 of 16 bytes there",
        ),
        (
            le().pcap(0xa1b2_c3d4, 1)
                .u32(0)
                .u32(0)
                .u32(9)
                .u32(9)
                .raw(b"12345678"),
            "offset 40: the file ends inside a pcap packet: 8 of 9 bytes there",
        ),
        (
            le().pcap(0xa1b2_c3d4, 1).u32(0).u32(0).u32(u32::MAX).u32(9),
            "offset 24: pcap packet header: captured length is 4294967295, must be at most 16777216",
        ),
        (
            le().u32(0x0a0d_0d0a).u32(28).u32(0x1234_5678),
            "offset 0: section header block: byte-order magic is 2018915346, must be 439041101",
        ),
        (
            le().u32(0x0a0d_0d0a)
                .u32(24)
                .u32(0x1a2b_3c4d)
                .u16(1)
                .u16(0)
                .raw(&[0; 8]),
            "offset 0: section header block: block length is 24, must be at least 28",
        ),
        (
            le().u32(0x0a0d_0d0a)
                .u32(28)
                .u32(0x1a2b_3c4d)
                .u16(2)
                .u16(0)
                .raw(&[0; 12]),
            "offset 0: section header block: major version is 2, must be 1",
        ),
        (
            le().section().u32(77).u32(8),
            "offset 28: block: block length is 8, must be at least 12",
        ),
        (
            le().section().u32(77).u32(13),
            "offset 28: block: block length is 13, must be a multiple of 4",
        ),
        (
            le().section().u32(77).u32(0xffff_fff0),
            "offset 36: the file ends inside a block: 0 of 4294967268 bytes there",
        ),
        (
            described().u32(6).u32(32).u32(0),
            "offset 56: the file ends inside an enhanced packet block: 4 of 20 bytes there",
        ),
        (
            le().section().u32(6).u32(0xffff_fff0),
            "offset 28: enhanced packet block: block length is 4294967280, must be at most 16777216",
        ),
        (
            le().section().u32(77).u32(16).u32(0).u32(20),
            "offset 28: block: closing block length is 20, must be 16",
        ),
        (
            le().section().block(3, |b| b.u32(0)),
            "offset 28: simple packet block: interfaces described before it is 0, must be at least 1",
        ),
        (
            described().block(6, |b| b.u32(1).raw(&[0; 16])),
            "offset 48: enhanced packet block: interface is 1, must be at most 0",
        ),
        (
            described().block(6, |b| b.u32(0).raw(&[0; 12])),
            "offset 48: enhanced packet block: block length is 28, must be at least 32",
        ),
        (
            described().block(6, |b| b.u32(0).u32(0).u32(0).u32(5).u32(5).u32(0)),
            "offset 48: enhanced packet block: captured length is 5, must be at most 4",
        ),
        (
            described().block(6, |b| b.u32(0).raw(&[0; 16]).u16(1).u16(5).u32(0)),
            "offset 48: enhanced packet block: option length is 5, must be at most 4",
        ),
    ] {
        assert_eq!(message(&file.bytes), expected);
    }
}

#[test]
fn records_before_a_fault_are_given() {
    let whole = pcapng(false);
    let (all, ..) = read(&whole);
    for n in 0..whole.len() {
        let (records, _, _) = read(&whole[..n]);
        assert_eq!(records[..], all[..records.len()], "{n}");
    }
    let (records, _, error) = read(&whole[..whole.len() - 1]);
    assert_eq!(records.len(), all.len() - 1);
    assert!(matches!(error, Some(CaptureError::Truncated { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn mutated_files_do_not_panic(
        big: bool,
        ng: bool,
        changes in prop::collection::vec((any::<Index>(), any::<u8>()), 0..8),
    ) {
        let mut bytes = if ng {
            pcapng(big)
        } else {
            let file = Build::new(big).pcap(0xa1b2_3c4d, 1).u32(1).u32(2).u32(64).u32(64);
            file.raw(&DATAGRAM).bytes
        };
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        for record in read(&bytes).0 {
            let _ = record.view();
        }
    }

    #[test]
    fn garbage_does_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), ng: bool) {
        let start = if ng {
            Build::new(false).section().block(1, |b| b.u16(1).u16(0).u32(0))
        } else {
            Build::new(false).pcap(0xa1b2_c3d4, 276)
        };
        read(&bytes);
        read(&start.raw(&bytes).bytes);
    }
}

#[test]
fn the_writer_writes_the_blocks_of_the_specification() {
    let mut writer = Writer::new(Vec::new()).unwrap();
    let a = writer
        .interface("h0", "host 0", LinkType::ETHERNET)
        .unwrap();
    let b = writer.interface("h1", "", LinkType::RAW).unwrap();
    let time = Time::from_ps((1 << 32) * 1000 + 5_999);
    writer
        .packet(b, time, b"abcde", 60, &["dropped", "why"])
        .unwrap();
    writer.packet(a, Stamp::from_ps(-1), b"", 0, &[]).unwrap();
    assert_eq!((a.index(), b.index()), (0, 1));
    let bytes = writer.into_inner().unwrap();

    let expected = Build::new(false)
        .block(0x0a0d_0d0a, |b| {
            b.u32(0x1a2b_3c4d)
                .u16(1)
                .u16(0)
                .raw(&[0xff; 8])
                .option(4, b"softroce")
                .option(0, &[])
        })
        .block(1, |b| {
            b.u16(1)
                .u16(0)
                .u32(0)
                .option(2, b"h0")
                .option(3, b"host 0")
                .option(9, &[9])
                .option(0, &[])
        })
        .block(1, |b| {
            b.u16(101)
                .u16(0)
                .u32(0)
                .option(2, b"h1")
                .option(9, &[9])
                .option(0, &[])
        })
        .block(6, |b| {
            b.u32(1)
                .u32(1)
                .u32(5)
                .u32(5)
                .u32(60)
                .padded(b"abcde")
                .option(1, b"dropped")
                .option(1, b"why")
                .option(0, &[])
        })
        .block(6, |b| b.raw(&[0; 20]));
    assert_eq!(bytes, expected.bytes);

    let mut empty = Writer::new(Vec::new()).unwrap();
    assert_eq!(
        empty.packet(b, time, b"", 0, &[]).unwrap_err().to_string(),
        "packet of interface 1, but the file has 0 interfaces"
    );
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        names in prop::collection::vec("[a-z]{1,9}", 1..4),
        packets in prop::collection::vec(
            (
                any::<Index>(),
                0..u64::MAX,
                prop::collection::vec(any::<u8>(), 0..40),
                prop::collection::vec("\\PC{0,20}", 0..3),
            ),
            0..10,
        ),
    ) {
        let mut writer = Writer::new(Vec::new()).unwrap();
        let ids: Vec<_> = names
            .iter()
            .map(|name| writer.interface(name, "", LinkType::ETHERNET).unwrap())
            .collect();
        for (which, ns, data, comments) in &packets {
            let comments: Vec<&str> = comments.iter().map(String::as_str).collect();
            let id = ids[which.index(ids.len())];
            writer.packet(id, Stamp::from_ns(*ns), data, 77, &comments).unwrap();
        }
        let (records, interfaces, error) = read(&writer.into_inner().unwrap());
        prop_assert!(error.is_none());
        prop_assert_eq!(interfaces.len(), names.len());
        prop_assert_eq!(records.len(), packets.len());
        for (record, (which, ns, data, comments)) in records.iter().zip(&packets) {
            prop_assert_eq!(record.interface, which.index(names.len()));
            prop_assert_eq!(interfaces[record.interface].name.as_ref(), Some(&names[record.interface]));
            prop_assert_eq!(record.time, Some(Stamp::from_ns(*ns)));
            prop_assert_eq!(&record.data, data);
            prop_assert_eq!(&record.comments, comments);
            prop_assert_eq!(record.original_len, 77);
        }
    }
}
