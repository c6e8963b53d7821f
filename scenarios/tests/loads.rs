//! Loads by pattern, collectives and their metrics, run by the built program.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn softroce(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_softroce"))
        .args(args)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// A scenario in a folder of its own.
fn file(content: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mine.toml");
    std::fs::write(&path, content).unwrap();
    (dir, path)
}

/// The first run of a scenario with settings.
#[track_caller]
fn run(content: &str, settings: &[&str]) -> Value {
    let (_dir, path) = file(content);
    let mut args = vec!["run", path.to_str().unwrap(), "--json"];
    args.extend(settings.iter().flat_map(|s| ["--set", s]));
    let out = softroce(&args);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let report: Value = serde_json::from_slice(&out.stdout).unwrap();
    report["reports"][0]["runs"][0].clone()
}

/// What is wrong with a scenario with settings.
#[track_caller]
fn complaint(content: &str, settings: &[&str]) -> String {
    let (_dir, path) = file(content);
    let mut args = vec!["check", path.to_str().unwrap()];
    args.extend(settings.iter().flat_map(|s| ["--set", s]));
    let out = softroce(&args);
    assert_eq!(out.status.code(), Some(2), "{settings:?}");
    text(&out.stderr).to_string()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

/// All-reduces around a switch that loses nothing, with one ACK for each message.
const RING: &str = r#"
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

const SERVER: &str = r#"
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

/// A flow of ten thousand packets, around one switch.
const STAR: &str = r#"
payload = "counted"
[topology]
kind = "star"
hosts = 16
[switch]
queue = "1GiB"
[[traffic]]
name = "load"
pattern = "incast"
from = 1
to = "h0"
operation = "write"
size = "100000B"
"#;

#[test]
fn a_flow_alone_takes_the_ideal_time() {
    for operation in ["send", "send-imm", "write", "write-imm", "read"] {
        for size in [0, 1, 1024, 1025, 3000, 100_000] {
            for rates in [
                ["100Gbps", "100Gbps"],
                ["25Gbps", "100Gbps"],
                ["400Gbps", "40Gbps"],
            ] {
                let settings = [
                    format!("traffic.load.operation={operation}"),
                    format!("traffic.load.size={size}"),
                    format!("link.h0-s0.rate={}", rates[0]),
                    format!("link.h1-s0.rate={}", rates[1]),
                ];
                let settings: Vec<_> = settings.iter().map(String::as_str).collect();
                let run = run(STAR, &settings);
                let flows = &run["traffic"][0]["flows"];
                assert_eq!(flows["slowdown"]["max"], 1.0, "{settings:?}");
                assert_eq!(flows["finished"], 1);
            }
        }
    }
}

#[test]
fn senders_that_share_a_port_are_slowed_down_by_their_number() {
    for n in [2, 8, 15] {
        let run = run(
            STAR,
            &[
                &format!("traffic.load.from={n}"),
                "traffic.load.size=4MB",
                "link.delay=10ns",
            ],
        );
        let flows = &run["traffic"][0]["flows"];
        let (max, fairness) = (&flows["slowdown"]["max"], &flows["fairness"]);
        let max = max.as_f64().unwrap();
        assert!((max / f64::from(n) - 1.0).abs() < 0.01, "{n}: {max}");
        assert!(fairness.as_f64().unwrap() > 0.999, "{n}: {fairness}");
    }
}

/// A folder for results after a run.
#[track_caller]
fn results(content: &str, settings: &[&str], others: &[(&str, &str)]) -> tempfile::TempDir {
    let (dir, path) = file(content);
    for (name, content) in others {
        std::fs::write(dir.path().join(name), content).unwrap();
    }
    let out = dir.path().join("out");
    let mut args = vec![
        "run",
        path.to_str().unwrap(),
        "--out",
        out.to_str().unwrap(),
    ];
    args.extend(settings.iter().flat_map(|s| ["--set", s]));
    let done = softroce(&args);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    dir
}

fn table(dir: &Path, name: &str) -> String {
    let path = dir.join("out").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The columns of a table of flows, without its heading.
fn column(table: &str, n: usize) -> Vec<&str> {
    let lines = table.lines().skip(1);
    lines.map(|l| l.split(',').nth(n).unwrap()).collect()
}

const AMONG: &str = r#"
payload = "counted"
[topology]
kind = "leaf-spine"
leaves = 4
spines = 2
hosts-per-switch = 4
trunk-rate = "400Gbps"
[[traffic]]
name = "x"
pattern = "permutation"
operation = "send"
size = "10KB"
"#;

#[test]
fn a_permutation_gives_each_host_one_to_send_to() {
    let dir = results(AMONG, &["traffic.x.jitter=5us"], &[]);
    let flows = table(dir.path(), "mine-flows.csv");
    let (from, mut to) = (column(&flows, 2), column(&flows, 3));
    assert!(from.iter().zip(&to).all(|(a, b)| a != b));
    to.sort_unstable();
    to.dedup();
    assert_eq!((from.len(), to.len()), (16, 16));
    let starts: Vec<u64> = column(&flows, 6)
        .iter()
        .map(|s| s.parse().unwrap())
        .collect();
    assert!(starts.iter().all(|&s| s < 5_000_000));
    assert!(starts.iter().any(|&s| s != starts[0]));
    // The seed alone decides.
    let again = results(AMONG, &["traffic.x.jitter=5us"], &[]);
    for name in ["mine-flows.csv", "mine.json", "mine.txt"] {
        assert_eq!(table(dir.path(), name), table(again.path(), name));
    }
    let other = results(AMONG, &["seed=2"], &[]);
    assert_ne!(
        column(&table(other.path(), "mine-flows.csv"), 3),
        column(&flows, 3)
    );
    // One load more changes nothing of what another draws.
    let more = AMONG.to_string()
        + "[[traffic]]\nname = \"y\"\npattern = \"permutation\"\noperation = \"send\"\nsize = 1\n";
    let more = results(&more, &[], &[]);
    let more = table(more.path(), "mine-flows.csv");
    assert_eq!(column(&more, 3)[..16], column(&flows, 3));
}

#[test]
fn shifts_and_all_to_all_name_their_pairs() {
    let dir = results(AMONG, &["traffic.x.pattern=shift", "traffic.x.by=5"], &[]);
    let flows = table(dir.path(), "mine-flows.csv");
    assert_eq!(column(&flows, 3)[..3], ["h5", "h6", "h7"]);
    assert_eq!(column(&flows, 3)[15], "h4");
    let settings = [
        "traffic.x.pattern=all-to-all",
        "traffic.x.hosts=[\"h3\", \"h9\", \"h1\"]",
    ];
    let dir = results(AMONG, &settings, &[]);
    let flows = table(dir.path(), "mine-flows.csv");
    assert_eq!(column(&flows, 2), ["h3", "h3", "h9", "h9", "h1", "h1"]);
    assert_eq!(column(&flows, 3), ["h9", "h1", "h1", "h3", "h3", "h9"]);
}

#[test]
fn poisson_arrivals_bring_the_load_they_are_asked_for() {
    let content = AMONG
        .replace(
            "pattern = \"permutation\"",
            "pattern = \"poisson\"\nload = 0.2",
        )
        .replace(
            "size = \"10KB\"",
            "sizes = [[\"2KB\", 0.5], [\"10KB\", 1]]\nduration = \"2ms\"",
        );
    let run = run(&content, &[]);
    let load = &run["traffic"][0];
    // 16 links of 100 Gb/s, 20 % of them, for 2 ms: 80 MB; flows of 4000 bytes in the mean (half of 2000,
    // half of 6000 in the mean), 20,000 of them, give or take 141.
    let (bytes, flows) = (number(&load["bytes"]), number(&load["flows"]["count"]));
    assert!(flows.abs_diff(20_000) < 850, "{flows}");
    assert!(bytes.abs_diff(80_000_000) < 4_000_000, "{bytes}");
    assert_eq!(load["flows"]["finished"], flows);
    // Nobody sends before it begins, and nothing is faster than alone.
    assert!(load["flows"]["slowdown"]["min"].as_f64().unwrap() >= 1.0);
}

const LISTED: &str = "payload = \"counted\"\n[topology]\nkind = \"star\"\nhosts = 4\n[[traffic]]\n\
                      name = \"listed\"\npattern = \"file\"\nflows = \"flows.csv\"\n\
                      operation = \"write\"\nstart = \"1us\"\n";

#[test]
fn flows_of_a_file_start_when_it_says() {
    let csv = "from,to,bytes,start\nh0,h1,10KB,0\nh2,h1,500,20us,read\n";
    let dir = results(LISTED, &[], &[("flows.csv", csv)]);
    let flows = table(dir.path(), "mine-flows.csv");
    assert_eq!(column(&flows, 4), ["write", "read"]);
    assert_eq!(column(&flows, 5), ["10000", "500"]);
    assert_eq!(column(&flows, 6), ["1000000", "21000000"]);
    assert_eq!(column(&flows, 10), ["1", "1"]);
    assert_eq!(column(&flows, 11), ["finished", "finished"]);
}

#[test]
fn mistakes_in_a_file_of_flows_have_a_place_there() {
    let (dir, path) = file(LISTED);
    let check = |csv: &str| {
        std::fs::write(dir.path().join("flows.csv"), csv).unwrap();
        let out = softroce(&["check", path.to_str().unwrap()]);
        assert_eq!(out.status.code(), Some(2));
        text(&out.stderr).to_string()
    };
    let told = check("h0,h1,1KB,0\nh0, h9,1KB,0\n");
    assert!(
        told.contains("mine.toml:8:9: flows = \"flows.csv\""),
        "{told}"
    );
    assert!(
        told.contains("flows.csv:2:5: names no host \"h9\""),
        "{told}"
    );
    std::fs::remove_file(dir.path().join("flows.csv")).unwrap();
    let out = softroce(&["check", path.to_str().unwrap()]);
    assert!(
        text(&out.stderr).contains("flows.csv: no such file"),
        "{}",
        text(&out.stderr)
    );
}

#[test]
fn a_series_adds_up_to_what_was_delivered() {
    let settings = ["sample=3us", "traffic.load.from=3"];
    let dir = results(STAR, &settings, &[]);
    let series = table(dir.path(), "mine-series.csv");
    let (mut before, mut bytes) = (0u64, 0.0);
    for line in series.lines().skip(1) {
        let (time, rate) = line.split_once(',').unwrap();
        let (time, rate): (u64, f64) = (time.parse().unwrap(), rate.parse().unwrap());
        bytes += rate * (time - before) as f64 / 8e12;
        before = time;
    }
    assert!((bytes - 300_000.0).abs() < 1.0, "{bytes}");
    assert!(series.lines().count() > 5, "{series}");
}

#[test]
fn topologies_with_trunks_have_the_rates_they_are_given() {
    let dumbbell = "payload = \"counted\"\n[topology]\nkind = \"dumbbell\"\nleft = 2\nright = 3\n\
                    trunk-rate = \"10Gbps\"\n[[traffic]]\nname = \"x\"\nfrom = \"l1\"\nto = \"r2\"\n\
                    operation = \"write\"\nsize = \"1MB\"\n";
    let goodput = |settings: &[&str]| {
        let run = run(dumbbell, settings);
        (
            run["links"].as_array().unwrap().len(),
            number(&run["traffic"][0]["goodput_bps"]),
        )
    };
    let (ways, slow) = goodput(&[]);
    assert_eq!(ways, 2 * 6);
    assert!((9_000_000_000..9_300_000_000).contains(&slow), "{slow}");
    // The link itself goes before all trunks.
    let (_, fast) = goodput(&["link.s0-s1.rate=100Gbps"]);
    assert!(fast > 80_000_000_000, "{fast}");
    // What [link] says of all links does not.
    let (_, slow) = goodput(&["link.rate=200Gbps", "link.s0-s1.delay=2us"]);
    assert!((9_000_000_000..9_300_000_000).contains(&slow), "{slow}");
    let ring = "payload = \"counted\"\n[topology]\nkind = \"ring\"\nswitches = 5\nhosts-per-switch = 2\n\
                [[traffic]]\nfrom = \"h0\"\nto = \"h9\"\noperation = \"write\"\nsize = 1\n";
    let run = run(ring, &[]);
    assert_eq!(run["network"]["hosts"], 10);
    assert_eq!(run["network"]["links"], 15);
    // The short way round: from s0 to s4 over one trunk.
    let used = |name: &str| {
        let ways = run["links"].as_array().unwrap();
        number(&ways.iter().find(|w| w["name"] == name).unwrap()["frames"])
    };
    assert_eq!((used("s0->s4"), used("s0->s1"), used("s1->s2")), (1, 0, 0));
}

#[test]
fn a_thousand_hosts_are_cheap() {
    let content = "payload = \"counted\"\n[topology]\nkind = \"leaf-spine\"\nleaves = 32\nspines = 16\n\
                   hosts-per-switch = 32\n[switch]\nqueue = \"16MiB\"\n[[traffic]]\nname = \"x\"\n\
                   pattern = \"all-reduce\"\noperation = \"write-imm\"\nsize = \"128KiB\"\n";
    let begin = std::time::Instant::now();
    for settings in [
        &["traffic.x.hosts=64"][..],
        &["traffic.x.pattern=permutation"],
        &["traffic.x.pattern=shift", "traffic.x.by=512"],
        &[
            "traffic.x.pattern=incast",
            "traffic.x.to=h7",
            "traffic.x.size=100",
        ],
    ] {
        let run = run(content, settings);
        assert_eq!(run["traffic"][0]["unfinished"], 0, "{settings:?}");
    }
    let took = begin.elapsed();
    assert!(took.as_secs() < 60, "{took:?}");
    let told = complaint(content, &["traffic.x.pattern=all-to-all"]);
    assert!(
        told.contains("makes 1047552 queue pairs; the limit is 131072 in all"),
        "{told}"
    );
}

#[test]
fn what_makes_no_sense_is_refused_by_name() {
    let star = STAR
        .replace("from = 1\n", "")
        .replace("pattern = \"incast\"\n", "");
    for (content, settings, message) in [
        (
            STAR,
            &["topology.hosts=0"][..],
            "hosts = 0 in [topology] must be 2 to 1024",
        ),
        (STAR, &["traffic.load.from=0"], "from = 0 "),
        (
            STAR,
            &["traffic.load.from=16"],
            "is more than the 15 hosts there are",
        ),
        (
            STAR,
            &["traffic.load.to=[\"h0\", \"h1\"]"],
            "must be one host",
        ),
        (
            STAR,
            &["traffic.load.from=[\"h0\", \"h1\"]"],
            "has \"h0\", which is the one of \"to\"",
        ),
        (
            STAR,
            &["traffic.load.from=[\"h3\", \"h3\"]"],
            "has \"h3\" twice",
        ),
        (
            STAR,
            &["traffic.load.from=3", "traffic.load.qps=65536"],
            "makes 196608 queue pairs",
        ),
        (
            STAR,
            &["traffic.load.hosts=3"],
            "means nothing with pattern = \"incast\"",
        ),
        (
            STAR,
            &["traffic.load.pattern=incats"],
            "did you mean \"incast\"?",
        ),
        (
            STAR,
            &["traffic.load.flows=x.csv"],
            "means nothing with pattern = \"incast\"",
        ),
        (
            star.as_str(),
            &[],
            "has no \"from\", which pattern = \"pairs\" needs",
        ),
        (
            AMONG,
            &["traffic.x.pattern=shift", "traffic.x.by=16"],
            "less than the number of hosts, 16",
        ),
        (AMONG, &["traffic.x.hosts=1"], "hosts = 1 "),
        (AMONG, &["traffic.x.hosts=99999999999999999999"], "hosts = "),
        (AMONG, &["traffic.x.pattern=poisson"], "size"),
        (AMONG, &["topology.leaves=0"], "leaves = 0 "),
        (
            AMONG,
            &["topology.hosts-per-switch=1024"],
            "makes 4096 hosts in all; the limit is 1024",
        ),
        (
            AMONG,
            &["topology.kind=ring"],
            "means nothing with kind = \"ring\"",
        ),
        (
            RING,
            &["traffic.ring.operation=write"],
            "tells the next host nothing",
        ),
        (RING, &["traffic.ring.iterations=0"], "iterations = 0 "),
        (
            RING,
            &["topology.hosts=1024", "traffic.ring.iterations=65536"],
            "the limit is 4194304 in all",
        ),
        (RING, &["traffic.ring.slow=h9"], "names no host \"h9\""),
        (
            RING,
            &["traffic.ring.slow=h7", "traffic.ring.hosts=4"],
            "which has no part in it",
        ),
        (
            RING,
            &["traffic.ring.compute=1000s", "traffic.ring.slowdown=1e300"],
            "slowdown = ",
        ),
        (
            RING,
            &["traffic.ring.depth=4"],
            "means nothing with pattern = \"all-reduce\"",
        ),
        (RING, &["traffic.ring.rings=65"], "rings = 65 "),
        (
            SERVER,
            &["traffic.ps.operation=write"],
            "tells the server nothing",
        ),
        (
            SERVER,
            &["traffic.ps.parallel=2"],
            "is for a server that pulls",
        ),
    ] {
        let told = complaint(content, settings);
        assert!(told.contains(message), "{settings:?}: {told}");
    }
    let poisson = AMONG
        .replace("permutation", "poisson")
        .replace("size = \"10KB\"\n", "");
    for (keys, message) in [
        ("sizes = [[1, 1]]\n", "has no \"count\" and no \"duration\""),
        (
            "count = 1\n",
            "has no \"sizes\", which pattern = \"poisson\" needs",
        ),
        ("count = 1\nsizes = []\n", "has no points"),
        (
            "count = 1\nsizes = [[1, 0.5]]\n",
            "does not end with the probability 1",
        ),
        ("count = 1\nsizes = [[1, 2]]\n", "the probability 2"),
        ("count = 1\nsizes = [[\"3GiB\", 1]]\n", "the size \"3GiB\""),
        ("count = 1\nsizes = [[0, 1]]\n", "the gap between two flows"),
        (
            "count = 1\nload = 0\nsizes = [[9, 1]]\n",
            "the gap between two flows",
        ),
        (
            "count = 1\nload = 1e308\nsizes = [[9, 1]]\n",
            "the gap between two flows",
        ),
        ("count = 1000000\nsizes = [[9, 1]]\n", "the limit is 131072"),
        (
            "duration = \"1000s\"\nsizes = [[9, 1]]\n",
            "the limit is 131072",
        ),
    ] {
        let told = complaint(&format!("{poisson}{keys}"), &[]);
        assert!(told.contains(message), "{keys}: {told}");
    }
}

#[test]
fn the_scenarios_of_the_library_hold() {
    for name in ["allreduce-ring", "incast", "push-vs-pull"] {
        let out = softroce(&["run", name]);
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stdout));
        let shown = text(&out.stdout);
        assert!(shown.lines().all(|l| l.chars().count() <= 100), "{shown}");
    }
}
