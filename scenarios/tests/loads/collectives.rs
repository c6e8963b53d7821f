//! All-reduces and parameter servers.

use super::{number, run};

/// All-reduces around a switch that loses nothing, with one ACK for each message.
pub(crate) const RING: &str = r#"
payload = "counted"
[topology]
kind = "star"
hosts = 8
[link]
rate = "100Gbps"
delay = "1us"
[switch]
queue = "1GiB"
[card]
ack-every = 65536
[[traffic]]
name = "ring"
pattern = "all-reduce"
operation = "write-imm"
size = "1MiB"
"#;

/// Picoseconds of a byte at 100 Gb/s.
const BYTE: u64 = 80;
/// Ethernet, IPv4, UDP, BTH, ICRC and FCS, and preamble and gap.
const FRAME: u64 = 14 + 20 + 8 + 12 + 4 + 4 + 20;

/// The time of one step: a chunk of so many whole packets over so many links, store and forward. The first
/// packet has a RETH, the last one immediate data.
fn step(packets: u64, links: u64) -> u64 {
    let chunk = packets * (FRAME + 1024) + 16 + 4;
    let first = FRAME + 1024 + 16 + if packets == 1 { 4 } else { 0 };
    (chunk + (links - 1) * first) * BYTE + links * 1_000_000
}

#[test]
fn a_ring_takes_what_its_formula_says_to_the_picosecond() {
    for (hosts, packets) in [(2, 1), (2, 64), (3, 7), (4, 256), (8, 1), (8, 128)] {
        for operation in ["write-imm", "send-imm"] {
            let bytes = hosts * packets * 1024;
            let run = run(
                RING,
                &[
                    &format!("traffic.ring.hosts={hosts}"),
                    &format!("traffic.ring.size={bytes}"),
                    &format!("traffic.ring.operation={operation}"),
                ],
            );
            let ring = &run["traffic"][0]["collective"];
            let steps = 2 * (hosts - 1);
            let mut each = step(packets, 2);
            if operation == "send-imm" {
                // There is no RETH, which the first packet had over both links.
                each -= 2 * 16 * BYTE;
                if packets > 1 {
                    // Now the longest packet is the last one, with its immediate data.
                    each += 4 * BYTE;
                }
            }
            // From the second step on each chunk follows the ACK of the one that it waited for: 66 bytes of
            // frame (BTH and AETH), 20 around it.
            let expected = steps * each + (steps - 1) * 86 * BYTE;
            let context = format!("{hosts} hosts, {packets} packets, {operation}");
            assert_eq!(number(&ring["iteration"]["max_ps"]), expected, "{context}");
            let algorithm = number(&ring["algorithm_bps"]);
            assert_eq!(algorithm, bytes * 8_000_000_000_000 / expected, "{context}");
            let bus = algorithm * 2 * (hosts - 1) / hosts;
            assert_eq!(number(&ring["bus_bps"]), bus, "{context}");
        }
    }
}

#[test]
fn iterations_of_a_ring_take_as_long_as_the_first() {
    let run = run(RING, &["traffic.ring.iterations=5"]);
    let ring = &run["traffic"][0]["collective"];
    assert_eq!(ring["iterations"], 5);
    // Every later iteration begins with an ACK too.
    let (min, max) = (
        number(&ring["iteration"]["min_ps"]),
        number(&ring["iteration"]["max_ps"]),
    );
    assert_eq!(max - min, 86 * BYTE);
    assert_eq!(run["traffic"][0]["unfinished"], 0);
}

#[test]
fn half_a_link_halves_the_bus_bandwidth_of_all() {
    // Large chunks and short links, so that it is the rate that counts.
    let common = ["traffic.ring.size=8MiB", "link.delay=10ns"];
    let bus = |settings: &[&str]| {
        let run = run(RING, settings);
        number(&run["traffic"][0]["collective"]["bus_bps"]) as f64
    };
    let whole = bus(&common);
    for host in ["h0", "h5"] {
        let half = bus(&[common[0], common[1], &format!("link.{host}-s0.rate=50Gbps")]);
        assert!((half / whole - 0.5).abs() < 0.01, "{half} of {whole}");
    }
}

#[test]
fn one_slow_host_sets_the_pace_of_every_iteration() {
    let settings = [
        "traffic.ring.iterations=4",
        "traffic.ring.compute=1ms",
        "traffic.ring.slow=h3",
        "traffic.ring.slowdown=1.5",
    ];
    let run = run(RING, &settings);
    let ring = &run["traffic"][0]["collective"];
    let mean = number(&ring["iteration"]["mean_ps"]);
    // The others have sent what they could meanwhile; what h3 has must still go to all of them.
    let (least, most) = (7 * step(128, 2), 14 * step(128, 2));
    assert!(mean >= 1_500_000_000 + least, "{mean}");
    assert!(mean <= 1_500_000_000 + most * 101 / 100, "{mean}");
}

#[test]
fn rings_side_by_side_share_the_bytes() {
    let run = run(RING, &["traffic.ring.rings=4"]);
    let load = &run["traffic"][0];
    assert_eq!(load["queue_pairs"], 32);
    assert_eq!(load["messages"], 4 * 8 * 14);
    assert_eq!(load["size"], (1 << 20) / 32);
    let time = number(&load["collective"]["iteration"]["max_ps"]);
    assert!(time < 14 * step(128, 2) * 102 / 100, "{time}");
}

pub(crate) const SERVER: &str = r#"
payload = "counted"
[topology]
kind = "star"
hosts = 5
[switch]
queue = "1GiB"
[[traffic]]
name = "ps"
pattern = "parameter-server"
to = "h0"
operation = "write-imm"
size = "1MiB"
reply = 0
iterations = 3
"#;

#[test]
fn a_server_waits_for_all_its_workers() {
    // Four messages of 1024 packets, one after the other at the port of the server, and back and forth.
    let port = 4 * (1024 * (FRAME + 1024) + 20) * BYTE;
    for (settings, messages) in [
        (&["traffic.ps.operation=write-imm"][..], 2 * 4 * 3),
        (&["traffic.ps.operation=send"], 2 * 4 * 3),
        (&["traffic.ps.operation=read"], 3 * 4 * 3),
        (
            &["traffic.ps.operation=read", "traffic.ps.parallel=1"],
            3 * 4 * 3,
        ),
    ] {
        let run = run(SERVER, settings);
        let load = &run["traffic"][0];
        assert_eq!(load["messages"], messages, "{settings:?}");
        assert_eq!(load["bytes"], 3 * 4 * (1u64 << 20), "{settings:?}");
        let ps = &load["collective"];
        assert_eq!((&ps["iterations"], &ps["members"]), (&3.into(), &4.into()));
        let mean = number(&ps["iteration"]["mean_ps"]);
        assert!(
            mean > port && mean < port + 30_000_000,
            "{settings:?}: {mean}"
        );
        assert!(ps["bus_bps"].is_null());
    }
}
