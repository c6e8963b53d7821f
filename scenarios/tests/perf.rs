//! `softroce perf` in virtual time, and what it refuses.
#![cfg(target_os = "linux")]

mod common;

use common::{softroce, text};
use serde_json::Value;
use std::process::Output;

fn perf(args: &[&str]) -> Output {
    softroce(&[&["perf"], args].concat())
}

/// What it measures in virtual time, with these options.
#[track_caller]
fn sim(args: &[&str]) -> Value {
    let out = perf(&[args, &["-d", "sim:two-hosts", "--json"]].concat());
    let err = text(&out.stderr);
    assert_eq!(out.status.code(), Some(0), "{args:?}: {err}");
    serde_json::from_slice(&out.stdout).unwrap()
}

fn bandwidth(report: &Value) -> f64 {
    let b = &report["sizes"][0]["bandwidth"]["average_bytes_per_second"];
    b.as_f64().unwrap() * 8.0
}

/// A packet on the wire: preamble, Ethernet, IPv4, UDP, BTH, ICRC, FCS and gap are 8 + 14 + 20 + 8 + 12 + 4 +
/// 4 + 12 bytes.
const AROUND: f64 = 82.0;

#[test]
fn bandwidth_is_that_of_the_link() {
    // 64 packets of 1024 bytes, one of them with a RETH of 16 bytes.
    let write = 65536.0 / (65536.0 + 64.0 * AROUND + 16.0) * 100e9;
    let send = 65536.0 / (65536.0 + 64.0 * AROUND) * 100e9;
    // Of 64 READ responses the first and the last have an AETH of 4 bytes.
    let read = 65536.0 / (65536.0 + 64.0 * AROUND + 8.0) * 100e9;
    for (test, most) in [("write-bw", write), ("send-bw", send), ("read-bw", read)] {
        let report = sim(&[test, "-n", "400", "-m", "1024", "--verify"]);
        let found = bandwidth(&report);
        // From the first request to the last completion is a round trip and a poll, 1.2 us of 2.2 ms, more.
        assert!(
            found < most && found > 0.998 * most,
            "{test}: {found} of {most}"
        );
        let row = &report["sizes"][0];
        assert_eq!(
            (&row["bytes"], &row["iterations"]),
            (&65536.into(), &400.into())
        );
        assert!(row["verified"].as_u64().unwrap() >= 128, "{test}: {row}");
        for card in report["counters"].as_array().unwrap() {
            assert_eq!(card["retransmitted_packets"], 0, "{test}: {card}");
        }
        // Both directions at once carry twice as much, but for the acknowledgements.
        if test != "read-bw" {
            let report = sim(&[test, "-n", "400", "-m", "1024", "-b", "--verify"]);
            let both = bandwidth(&report);
            assert!(
                both > 1.95 * found && both < 2.0 * most,
                "{test}: {both} of {found}"
            );
        }
    }
}

#[test]
fn latency_is_that_of_the_link() {
    // A packet with `data` bytes beyond BTH takes its 82 bytes and those at 100 Gb/s, and 500 ns.
    let way = |data: f64| (AROUND + data) * 0.08 + 500.0;
    for (test, size, least) in [
        ("send-lat", "64", way(64.0)),
        ("write-lat", "64", way(16.0 + 64.0)),
        // There with a RETH or an AtomicETH of 28 bytes, back with an AETH and the data.
        ("read-lat", "64", way(16.0) + way(4.0 + 64.0)),
        ("atomic-lat", "8", way(28.0) + way(4.0 + 8.0)),
    ] {
        let report = sim(&[test, "-n", "200", "-s", size, "--verify"]);
        let latency = &report["sizes"][0]["latency_ns"];
        for which in ["min", "typical", "average", "p99"] {
            let found = latency[which].as_f64().unwrap();
            // It is looked for every 100 ns, and times are in whole nanoseconds.
            assert!(
                found > least - 2.0 && found < least + 102.0,
                "{test} {which}: {found}, not {least}"
            );
        }
        assert!(
            report["sizes"][0]["verified"].as_u64().unwrap() >= 200,
            "{report}"
        );
    }
}

/// A timeout is waited for in one step, and what is waited for in memory is seen as soon as it is there.
#[test]
fn losses_cost_latency_a_timeout() {
    for test in ["write-lat", "send-lat", "read-lat"] {
        let report = sim(&[
            test,
            "-n",
            "500",
            "-s",
            "8",
            "-u",
            "14",
            "--set",
            "link.loss=0.01",
            "--verify",
        ]);
        let retransmitted = report["counters"].as_array().unwrap().iter();
        let retransmitted: u64 = retransmitted
            .map(|c| c["retransmitted_packets"].as_u64().unwrap())
            .sum();
        assert!(retransmitted > 0, "{report}");
        let latency = &report["sizes"][0]["latency_ns"];
        let of = |which: &str| latency[which].as_f64().unwrap();
        // Most find nothing lost: two ways of 82 bytes and some headers, found within a poll each.
        assert!((500.0..1300.0).contains(&of("typical")), "{latency}");
        // 4.096 us times 2^14, once or twice, of half a round trip or a whole one.
        let timeout = 4096.0 * 16384.0;
        assert!(of("max") > timeout / 2.0, "{latency}");
    }
}

#[test]
fn atomics_add_up_and_every_service_delivers() {
    for kind in ["FETCH_AND_ADD", "CMP_AND_SWAP"] {
        let report = sim(&[
            "atomic-bw",
            "-n",
            "300",
            "--atomic_type",
            kind,
            "-q",
            "3",
            "--verify",
        ]);
        // Each of 900 is looked at where it was asked for, and what is left of each queue pair.
        assert_eq!(report["sizes"][0]["iterations"], 900);
        assert!(report["sizes"][0]["verified"].as_u64().unwrap() >= 900);
    }
    for (test, service) in [
        ("send-bw", "UC"),
        ("send-bw", "UD"),
        ("write-bw", "UC"),
        ("send-lat", "UD"),
        ("send-lat", "UC"),
        ("write-lat", "UC"),
    ] {
        let args = [
            test, "-c", service, "-n", "300", "-s", "1000", "-r", "1000", "-m", "1024",
        ];
        let report = sim(&[&args[..], &["--verify"]].concat());
        let row = &report["sizes"][0];
        assert_eq!(row["lost"], 0, "{test} {service}: {row}");
        assert!(
            row["verified"].as_u64().unwrap() >= 128,
            "{test} {service}: {row}"
        );
    }
}

#[test]
fn lists_of_requests_carry_the_same_data() {
    for args in [
        &["write-bw", "-n", "400", "-l", "10"][..],
        &["write-bw", "-n", "400", "-l", "100", "-Q", "20", "-b"],
        &["send-bw", "-n", "400", "-l", "16", "-q", "3", "-s", "300"],
        &[
            "send-bw", "-n", "400", "-l", "8", "-s", "64", "-I", "64", "-c", "UD", "-r", "400",
        ],
        &["read-bw", "-n", "400", "-l", "40", "-s", "4096"],
        &["atomic-bw", "-n", "300", "-l", "30", "-q", "3"],
    ] {
        let report = sim(&[args, &["--verify"]].concat());
        let row = &report["sizes"][0];
        let each: u64 = args[2].parse().unwrap();
        let qps = if args.contains(&"-q") { 3 } else { 1 };
        assert_eq!(row["iterations"], each * qps, "{args:?}");
        assert_eq!(row["lost"], 0, "{args:?}");
        assert!(row["verified"].as_u64().unwrap() >= 128, "{args:?}: {row}");
    }
    // For a time: it ends behind a list.
    let report = sim(&[
        "send-bw",
        "-D",
        "1",
        "-l",
        "7",
        "-s",
        "4096",
        "--set",
        "link.rate=10Mbps",
        "-u",
        "20",
    ]);
    let sent = report["sizes"][0]["iterations"].as_u64().unwrap();
    assert!(sent > 0 && sent.is_multiple_of(7), "{sent}");
}

/// Of a list as long as the queue the last request completes, and only then is there room for the next.
#[test]
fn a_list_goes_when_there_is_room_for_all_of_it() {
    let report = sim(&[
        "write-bw", "-n", "256", "-s", "4096", "-m", "4096", "-t", "8", "-l", "8",
    ]);
    let packet = (4096.0 + 16.0 + AROUND) * 0.08;
    let answer = (4.0 + AROUND) * 0.08;
    // There and back it is 500 ns each; a completion is found at most one poll, 100 ns, late.
    let least = 8.0 * packet + 500.0 + answer + 500.0;
    let found = 8.0 * 4096.0 * 8.0 / bandwidth(&report) * 1e9;
    assert!(
        found > least - 2.0 && found < least + 102.0,
        "{found} ns for a list, not {least}"
    );
}

#[test]
fn virtual_time_gives_the_same_bytes_twice() {
    for args in [
        &["write-bw", "-n", "100", "--set", "link.loss=0.01"][..],
        &["send-bw", "-n", "50", "-s", "4096", "-q", "3", "-b"],
        &["send-lat", "-n", "100"],
    ] {
        let all = [args, &["-d", "sim:two-hosts", "-u", "4", "--json"]].concat();
        let (one, two) = (perf(&all), perf(&all));
        assert_eq!(one.status.code(), Some(0), "{}", text(&one.stderr));
        assert_eq!(text(&one.stdout), text(&two.stdout));
    }
}

#[test]
fn all_sizes_are_powers_of_two() {
    let report = sim(&["write-lat", "-a", "-n", "2"]);
    let sizes = report["sizes"].as_array().unwrap().iter();
    let sizes: Vec<u64> = sizes.map(|r| r["bytes"].as_u64().unwrap()).collect();
    assert_eq!(sizes, (1..=23).map(|n| 1 << n).collect::<Vec<u64>>());
    let report = sim(&["send-bw", "-a", "-c", "UD", "-n", "20", "-m", "2048"]);
    assert_eq!(
        report["sizes"].as_array().unwrap().last().unwrap()["bytes"],
        2048
    );
}

#[test]
fn what_is_not_supported_is_refused() {
    for (args, named) in [
        (&["write-bw", "-c", "UD"][..], "RDMA_Write"),
        (&["read-lat", "-c", "UC"], "RDMA_Read"),
        (&["atomic-bw", "-s", "16"], "8 bytes"),
        (&["atomic-bw", "-a"], "8 bytes"),
        (&["send-lat", "-q", "2"], "--qp 2"),
        (&["send-lat", "-b"], "--bidirectional"),
        (&["read-bw", "-I", "8"], "--inline_size 8"),
        (&["write-bw", "-m", "1500"], "1500"),
        (&["write-bw", "-t", "4", "-Q", "5"], "--cq-mod 5"),
        (&["send-lat", "-l", "2"], "--post-list 2 is for bandwidth"),
        (&["write-bw", "-l", "200"], "--tx-depth 128"),
        (&["write-bw", "-l", "10", "-Q", "4"], "--cq-mod 4"),
        (&["write-bw", "-l", "16", "-n", "100"], "--iters 100"),
        (&["write-bw", "-l", "0"], "--post-list"),
        (
            &["write-bw", "-d", "sim:two-hosts@h1,h1"],
            "client and server are both on h1",
        ),
        (&["write-bw", "-p", "0", "127.0.0.1"], "--port 0"),
        (&["write-bw", "-x", "1"], "--gid-index 1"),
        (&["write-bw", "-R"], "-R"),
        (&["write-bw", "-s", "0"], "0"),
        (&["write-bw", "--loss", "2"], "--loss"),
        (
            &["write-bw", "--loss", "1%", "-d", "sim:two-hosts"],
            "link.loss",
        ),
        (&["send-bw", "-c", "UD", "-s", "4", "--verify"], "8 bytes"),
        (&["write-bw", "--set", "link.loss=1"], "softroce0 is none"),
        (&["write-bw", "--faults", "no-such.toml"], "no-such.toml"),
        (&["write-bw", "--rate", "0"], "0"),
        (
            &["write-bw", "--rate", "1Gbps", "-d", "sim:two-hosts"],
            "link.rate",
        ),
        (
            &["write-bw", "--faults", "f.toml", "-d", "sim:two-hosts"],
            "[[fault]]",
        ),
        (&["write-bw", "-d", "nothing0"], "nothing0"),
        (&["fly-bw"], "fly-bw"),
    ] {
        let out = perf(args);
        assert_eq!(out.status.code(), Some(2), "{args:?}");
        assert!(
            text(&out.stderr).contains(named),
            "{args:?}: {}",
            text(&out.stderr)
        );
    }
    // Seven messages of 8 MiB and their margins are what fits into 64 MiB.
    let large = [
        "write-bw", "-s", "8388608", "-l", "8", "-n", "8", "--verify",
    ];
    for (args, told) in [
        (&["send-bw", "-c", "UD", "-s", "5000"][..], "--size 5000"),
        (
            &large,
            "--post-list 8: with --verify a queue pair has at most 7 requests",
        ),
    ] {
        let out = perf(&[args, &["-d", "sim:two-hosts"]].concat());
        let err = text(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{args:?}");
        assert!(err.contains(told), "{args:?}: {err}");
    }
}

/// What the device cannot do is told at once, without a table, and without waiting for anybody.
#[test]
fn what_the_device_cannot_do_is_told_before_anything() {
    for device in ["sim:two-hosts", "softroce0"] {
        for outs in ["129", "200", "255"] {
            // A server, whom nobody visits.
            let out = perf(&["read-bw", "-o", outs, "-d", device]);
            let err = text(&out.stderr);
            let told = format!("--outs {outs}: the device takes at most 128");
            assert_eq!(out.status.code(), Some(1), "{device} {outs}: {err}");
            assert_eq!(text(&out.stdout), "", "{device} {outs}");
            assert!(err.contains(&told), "{device} {outs}: {err}");
        }
    }
    let most = sim(&[
        "read-bw", "-o", "128", "-n", "300", "-s", "64", "-t", "200", "--verify",
    ]);
    assert_eq!(most["sizes"][0]["iterations"], 300);
}
