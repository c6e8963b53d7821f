//! Who sends to whom, and how long that takes.

use super::{complaint, file, number, results, run, softroce, text};

/// A flow of ten thousand packets, around one switch.
pub(crate) const STAR: &str = r#"
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

/// The columns of a table of flows, without its heading.
fn column(table: &str, n: usize) -> Vec<&str> {
    let lines = table.lines().skip(1);
    lines.map(|l| l.split(',').nth(n).unwrap()).collect()
}

pub(crate) const AMONG: &str = r#"
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
    let flows = dir.read("mine-flows.csv");
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
        assert_eq!(dir.read(name), again.read(name));
    }
    let other = results(AMONG, &["seed=2"], &[]);
    assert_ne!(column(&other.read("mine-flows.csv"), 3), column(&flows, 3));
    // One load more changes nothing of what another draws.
    let more = AMONG.to_string()
        + "[[traffic]]\nname = \"y\"\npattern = \"permutation\"\noperation = \"send\"\nsize = 1\n";
    let more = results(&more, &[], &[]);
    let more = more.read("mine-flows.csv");
    assert_eq!(column(&more, 3)[..16], column(&flows, 3));
}

/// Four senders in step, and a queue for a few packets: the first gets all, whatever the seed, and the others wait for
/// their timers. Where they begin at random the seed says who gets it.
#[test]
fn who_loses_among_senders_in_step_is_the_same_until_jitter_parts_them() {
    let content = "stop = \"1ms\"\npayload = \"counted\"\n[topology]\nkind = \"star\"\nhosts = 5\n[switch]\n\
                   queue = \"6KB\"\n[[traffic]]\nname = \"in\"\npattern = \"incast\"\nfrom = 4\nto = \"h0\"\n\
                   operation = \"write\"\nsize = \"64KiB\"\nduration = \"1s\"\n";
    let shares = |seed: u32, jitter: &str| -> Vec<u64> {
        let settings = [
            format!("seed={seed}"),
            format!("traffic.in.jitter={jitter}"),
        ];
        let dir = results(content, &settings.each_ref().map(String::as_str), &[]);
        let links = dir.run["links"].as_array().unwrap().iter();
        let lost: u64 = links.map(|l| number(&l["drops"]["queue"])).sum();
        assert!(lost > 50, "{lost}");
        let flows = dir.read("mine-flows.csv");
        let bytes = column(&flows, 5);
        bytes.iter().map(|b| b.parse().unwrap()).collect()
    };
    let locked = shares(1, "0");
    assert!(locked[0] > 0 && locked[1..] == [0; 3], "{locked:?}");
    assert_eq!(shares(2, "0"), locked);
    let first = |shares: Vec<u64>| (0..4).max_by_key(|&n| shares[n]).unwrap();
    let mut won: Vec<usize> = (1..=8).map(|seed| first(shares(seed, "10us"))).collect();
    assert_eq!(shares(1, "10us"), shares(1, "10us"));
    won.sort_unstable();
    won.dedup();
    assert!(won.len() > 1, "{won:?}");
}

#[test]
fn shifts_and_all_to_all_name_their_pairs() {
    let dir = results(AMONG, &["traffic.x.pattern=shift", "traffic.x.by=5"], &[]);
    let flows = dir.read("mine-flows.csv");
    assert_eq!(column(&flows, 3)[..3], ["h5", "h6", "h7"]);
    assert_eq!(column(&flows, 3)[15], "h4");
    let settings = [
        "traffic.x.pattern=all-to-all",
        "traffic.x.hosts=[\"h3\", \"h9\", \"h1\"]",
    ];
    let dir = results(AMONG, &settings, &[]);
    let flows = dir.read("mine-flows.csv");
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
    let flows = dir.read("mine-flows.csv");
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
    let csv = dir.path().join("flows.csv");
    let csv = csv.display();
    // One error each, with the line that it is about.
    assert_eq!(
        check("h0,h1,1KB,0\nh0, h9,1KB,0\n"),
        format!(
            "{csv}:2:5: to = \"h9\" names no host; did you mean \"h0\"?\n  2 | h0, h9,1KB,0\n    |     ^^\n"
        )
    );
    for (text, place, message) in [
        (
            "h0,h1,3GiB,0",
            ":1:7",
            "bytes = \"3GiB\" must be a size from 0B to 2GiB",
        ),
        (
            "h0,h1,1KB,2000s",
            ":1:11",
            "start = \"2000s\" must be a span of time from 0ps to 1000s",
        ),
        (
            "h0,h1,1KB",
            ":1:1",
            "has 3 columns, but must have from, to, bytes, start and perhaps operation",
        ),
        (
            "h0,\"h1\",1,0",
            ":1:4",
            "\"h1\" is in quotes; cells stand without them",
        ),
        ("\u{feff}from,to,start\r\n", ":1:2", "has 3 columns"),
        (
            "h0,h\u{0}1,1KB,0",
            ":1:4",
            "to = \"h\\u00001\" names no host",
        ),
        (
            "\r\n",
            "",
            "has no flows; a line of it is from, to, bytes, start and perhaps operation",
        ),
    ] {
        let told = check(text);
        assert!(
            told.starts_with(&format!("{csv}{place}: {message}")),
            "{told}"
        );
        assert_eq!(told.matches("flows.csv").count(), 1, "{told}");
    }
    // At all points of a sweep it is the same.
    let swept = format!("{LISTED}[sweep]\nseed = [1, 2, 3]\n");
    std::fs::write(&path, swept).unwrap();
    assert_eq!(
        check("h0,h0,1KB,0\nh1,h1,1KB,0\n")
            .matches("does not send to itself")
            .count(),
        2
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
    let series = dir.read("mine-series.csv");
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
