//! Congestion control of `[card]`: what it does to a run, and what is refused by name.

mod common;

use common::{run, text, with};

const TWO: &str = "payload = \"counted\"\nstop = \"20ms\"\n[topology]\nkind = \"star\"\nhosts = 3\n\
    [link]\nrate = \"10Gbps\"\n[[traffic]]\nname = \"load\"\nfrom = [\"h1\", \"h2\"]\nto = \"h0\"\n\
    pattern = \"incast\"\noperation = \"write\"\nsize = \"1MB\"\n";

#[test]
fn what_makes_no_sense_is_refused_by_name() {
    for (settings, message) in [
        (
            &["card.congestion=dctcp"][..],
            "congestion = \"dctcp\" in [card] must be one of \"none\", \"fixed\", \"dcqcn\"",
        ),
        (
            &["card.congestion=fixed"],
            "needs a \"rate-limit\", a \"window\", or both",
        ),
        (
            &["card.congestion=fixed", "card.rate-limit=11Gbps"],
            "rate-limit = \"11Gbps\" in [card] is more than 10Gbps, the rate of the link of host \"h0\"",
        ),
        (
            &[
                "card.congestion=fixed",
                "card.rate-limit=1Gbps",
                "card.h2.rate-limit=12Gbps",
            ],
            "rate-limit = \"12Gbps\" in [card.h2] is more than 10Gbps, the rate of the link of host \"h2\"",
        ),
        (
            &["card.rate-limit=1Gbps"],
            "means nothing with congestion = \"none\"; it is for \"fixed\"",
        ),
        (
            &["card.congestion=fixed", "card.window=0"],
            "window = 0 in [card] must be a size from 1B",
        ),
        (
            &["card.dcqcn-g=0.5"],
            "means nothing with congestion = \"none\"; it is for \"dcqcn\"",
        ),
        (
            &["card.congestion=dcqcn", "card.window-follows-rate=true"],
            "window-follows-rate = true in [card] means nothing without \"window\"",
        ),
        (
            &["card.congestion=dcqcn", "card.dcqcn-first-cnp-rate=20Gbps"],
            "dcqcn-first-cnp-rate = \"20Gbps\" in [card] is more than 10Gbps",
        ),
        (
            &["card.congestion=dcqcn", "card.dcqcn-ai-rate=20Gbps"],
            "dcqcn-ai-rate = \"20Gbps\" in [card] is more than 10Gbps",
        ),
        (
            &["card.congestion=dcqcn", "link.rate=100Mbps"],
            "congestion = \"dcqcn\" in [card] has a dcqcn-hai-rate of",
        ),
        (
            &["card.congestion=dcqcn", "card.dcqcn-g=2"],
            "must be from 0 to 1",
        ),
        (
            &["card.congestion=dcqcn", "card.dcqcn-fast-recovery=0"],
            "must be an integer from 1 to 1000",
        ),
        (
            &["card.congestion=dcqcn", "card.gid=rocev1"],
            "needs RoCEv2",
        ),
        (&["card.cnp=true", "card.gid=rocev1"], "needs RoCEv2"),
        (
            &["card.cnp-interval=4us"],
            "cnp-interval = \"4us\" in [card] means nothing without \"cnp\" = true",
        ),
        (
            &["card.cnp=true", "card.cnp-scope=host"],
            "must be one of \"qp\", \"address\", \"port\"",
        ),
        (&["card.cnp=true", "card.cnp-priority=8"], "from 0 to 7"),
    ] {
        let out = with("check", TWO, &[], settings);
        let (code, err) = (out.status.code(), text(&out.stderr));
        assert_eq!(code, Some(2), "{settings:?}");
        assert!(err.contains(message), "{settings:?}: {err}");
    }
}

/// A host may differ from the others, which its keys are then read with.
#[test]
fn a_host_may_have_its_own() {
    for settings in [
        &[
            "card.congestion=dcqcn",
            "card.dcqcn-g=0.5",
            "card.h1.congestion=none",
        ][..],
        &["card.congestion=dcqcn", "card.h1.dcqcn-g=0.5"],
        &[
            "card.congestion=dcqcn",
            "card.cnp-scope=port",
            "card.h1.cnp=false",
        ],
        &["card.h0.cnp=true", "card.h0.cnp-interval=4us"],
        // Given once for all, and used by one.
        &["card.cnp-interval=4us", "card.h0.cnp=true"],
        &["card.h1.congestion=dcqcn", "card.h0.cnp-interval=4us"],
        // Left unused where something else is chosen.
        &[
            "card.congestion=none",
            "card.dcqcn-g=0.5",
            "card.cnp-interval=4us",
        ],
        &[
            "card.congestion=none,fixed,dcqcn",
            "card.window=1MB",
            "card.rate-limit=1Gbps",
            "card.dcqcn-set=hpcc",
        ],
    ] {
        let out = with("check", TWO, &[], settings);
        let (code, err) = (out.status.code(), text(&out.stderr));
        assert_eq!(code, Some(0), "{settings:?}: {err}");
    }
}

/// 1 MB takes 8 ms of payload at 1 Gb/s; 82 bytes of headers, preamble and gap for each 1024 are paced too,
/// so two senders come to 2 * 1024 / 1106 = 1.85 Gb/s.
#[test]
fn a_fixed_rate_is_kept() {
    let run = run(TWO, &["card.congestion=fixed", "card.rate-limit=1Gbps"]);
    let goodput = run["traffic"][0]["goodput_bps"].as_u64().unwrap();
    assert!(
        (1_800_000_000..1_900_000_000).contains(&goodput),
        "{goodput}"
    );
}

/// A host that has no DCQCN itself answers marks for those that have.
#[test]
fn everybody_tells_of_marks_if_anybody_hears_of_them() {
    let marking = "[switch]\necn-kmin = 0\n[card.h1]\ncongestion = \"dcqcn\"\n";
    let text = format!("{TWO}{marking}");
    let sent = |settings: &[&str]| {
        let run = run(&text, settings);
        run["hosts"][0]["counts"]["cnps_sent"].as_u64().unwrap()
    };
    assert!(sent(&[]) > 0);
    assert_eq!(sent(&["card.h0.cnp=false"]), 0);
}

/// The simulations of HPCC have steps of 5 and 50 Mb/s for each 25 Gb/s.
#[test]
fn the_steps_of_hpcc_grow_with_the_link_of_each_host() {
    // At 10 Mb/s the least rate, 100 Mb/s, is more than the link has.
    let out = with(
        "check",
        TWO,
        &[],
        &[
            "card.congestion=dcqcn",
            "card.dcqcn-set=hpcc",
            "link.h1-s0.rate=50Mbps",
        ],
    );
    let err = text(&out.stderr);
    assert!(
        err.contains("host \"h1\"") && err.contains("dcqcn-min-rate"),
        "{err}"
    );
    let plan = |settings: &[&str]| {
        let source = softroce::format::Source::new("x.toml", TWO).unwrap();
        let file = softroce::format::File::parse(source).unwrap();
        let settings: Vec<String> = settings.iter().map(|s| s.to_string()).collect();
        file.plan(&settings).unwrap().points[0].scenario.clone()
    };
    let scenario = plan(&[
        "card.congestion=dcqcn",
        "card.dcqcn-set=hpcc",
        "link.h1-s0.rate=100Gbps",
        "card.h2.dcqcn-ai-rate=7Mbps",
    ]);
    use softroce_sim::card::CongestionControl;
    let steps = scenario.cards.iter().map(|card| match card.congestion {
        CongestionControl::Dcqcn(d) => (d.additive.bps() / 1_000_000, d.hyper.bps() / 1_000_000),
        _ => panic!("{card:?}"),
    });
    assert_eq!(steps.collect::<Vec<_>>(), [(2, 20), (20, 200), (7, 20)]);
}

/// Every key of DCQCN reaches the card.
#[test]
fn every_parameter_is_set_by_its_key() {
    use softroce_sim::card::congestion::{CongestionControl, Dcqcn, EarlyMark, Scope, Window};
    use softroce_sim::rate::Rate;
    use softroce_sim::time::Span;
    let settings = [
        "congestion=dcqcn",
        "window=9KB",
        "window-follows-rate=true",
        "dcqcn-g=0.25",
        "dcqcn-initial-alpha=0.5",
        "dcqcn-alpha-timer=1us",
        "dcqcn-rate-timer=2us",
        "dcqcn-byte-counter=3KB",
        "dcqcn-fast-recovery=4",
        "dcqcn-ai-rate=5Mbps",
        "dcqcn-hai-rate=6Mbps",
        "dcqcn-min-rate=7Mbps",
        "dcqcn-cut-exponent=8",
        "dcqcn-min-dec-fac=9",
        "dcqcn-clamp-target=false",
        "dcqcn-clamp-after-time=true",
        "dcqcn-monitor-period=10us",
        "dcqcn-first-cnp-rate=11Mbps",
        "cnp-interval=12us",
        "cnp-scope=address",
        "cnp-early-mark=forgotten",
        "cnp-delay=13us",
        "cnp-priority=1",
        "cnp-dscp=14",
    ];
    let settings: Vec<String> = settings.iter().map(|s| format!("card.{s}")).collect();
    let source = softroce::format::Source::new("x.toml", TWO).unwrap();
    let file = softroce::format::File::parse(source).unwrap();
    let card = file.plan(&settings).unwrap().points[0].scenario.cards[0].clone();
    let expected = Dcqcn {
        window: Some(Window {
            bytes: 9000,
            follows_rate: true,
        }),
        g: 0.25,
        initial_alpha: 0.5,
        alpha_timer: Span::from_us(1),
        rate_timer: Span::from_us(2),
        byte_counter: 3000,
        fast_recovery: 4,
        additive: Rate::from_mbps(5),
        hyper: Rate::from_mbps(6),
        min_rate: Rate::from_mbps(7),
        cut_exponent: 8,
        min_dec_fac: 9,
        clamp_target: false,
        clamp_target_after_time_inc: true,
        monitor_period: Span::from_us(10),
        first_cnp_rate: Some(Rate::from_mbps(11)),
        ..Dcqcn::PAPER
    };
    assert_eq!(card.congestion, CongestionControl::Dcqcn(expected));
    let n = card.notification.unwrap();
    assert_eq!((n.interval, n.scope), (Span::from_us(12), Scope::Address));
    assert_eq!((n.delay, n.priority, n.dscp), (Span::from_us(13), 1, 14));
    assert_eq!(n.early, EarlyMark::Forgotten);
    for (set, early) in [
        ("paper", EarlyMark::Kept),
        ("connectx", EarlyMark::Forgotten),
    ] {
        let settings = [
            "card.congestion=dcqcn".to_string(),
            format!("card.dcqcn-set={set}"),
        ];
        let card = file.plan(&settings).unwrap().points[0].scenario.cards[0].clone();
        assert_eq!(card.notification.unwrap().early, early);
    }
}

/// Two hosts with DCQCN to a third, whose switch marks at the first packet that waits.
const MARKED: &str = "[switch]\nlossless = 3\nbuffer = \"4MB\"\npfc-threshold = \"1MB\"\necn-kmin = 0\necn-kmax = 0\n\
    [card]\ncongestion = \"dcqcn\"\n";

/// Counters of the network, of both ends and of the load tell of the same marks and CNPs.
#[test]
fn marks_and_cnps_are_counted_where_they_are_made_and_where_they_come() {
    let expect = "[[expect]]\nmetric = \"ecn-marks\"\nof = \"s0->h0/3\"\nat-least = 10\n\
        [[expect]]\nmetric = \"ecn-marks\"\nequals = { metric = \"ecn-marks\", of = \"s0->h0/3\" }\n\
        [[expect]]\nmetric = \"marked.received\"\nof = \"h0\"\nequals = { metric = \"ecn-marks\" }\n\
        [[expect]]\nmetric = \"cnps.sent\"\nof = \"h0\"\nat-least = 2\n\
        [[expect]]\nmetric = \"cnps.received\"\nof = \"load\"\nequals = { metric = \"cnps.sent\", of = \"h0\" }\n\
        [[expect]]\nmetric = \"rate.cuts\"\nof = \"load\"\nequals = { metric = \"cnps.received\" }\n\
        [[expect]]\nmetric = \"cnps.ignored\"\nequals = 0\n\
        [[expect]]\nmetric = \"ecn-marks.not-capable\"\nequals = 0\n\
        [[expect]]\nmetric = \"warnings\"\nequals = 0\n";
    let run = run(&format!("{TWO}{MARKED}{expect}"), &[]);
    let c = &run["traffic"][0]["congestion"];
    assert_eq!(
        (&c["control"], &c["queue_pairs"]),
        (&"dcqcn".into(), &2.into())
    );
    // The CNPs of a queue pair are 50 us apart, and all took a millisecond or two.
    assert!((2..100).contains(&c["cuts"].as_u64().unwrap()), "{c}");
    let out = with("run", &format!("{TWO}{MARKED}"), &[], &[]);
    let shown = common::text(&out.stdout);
    assert!(shown.lines().all(|l| l.chars().count() <= 100), "{shown}");
    let row = |head: &str| {
        let lines: Vec<_> = shown.lines().collect();
        let at = lines.iter().position(|l| {
            let words: Vec<_> = l.split_whitespace().collect();
            words.join(" ").starts_with(head)
        });
        lines[at.unwrap() + 1]
            .split_whitespace()
            .collect::<Vec<_>>()
    };
    assert_eq!(row("load control limited")[..2], ["load", "dcqcn"]);
    assert_eq!(row("link priority marked")[..2], ["s0->h0", "3"]);
    // Without ECN-capable packets the switch counts those it lets through.
    let expect = "[[expect]]\nmetric = \"ecn-marks.not-capable\"\nof = \"s0->h0\"\nat-least = 100\n\
        [[expect]]\nmetric = \"ecn-marks\"\nequals = 0\n[[expect]]\nmetric = \"warnings\"\nequals = 1\n";
    common::run(&format!("{TWO}{MARKED}{expect}"), &["card.congestion=none"]);
}

/// A part of a run: what was added in it, and means over it. At a fixed rate of 2 Gb/s on the wire payload is
/// 1024 of each 1106 bytes, and the least queue is none.
#[test]
fn a_part_of_a_run_has_values_of_its_own() {
    let text = format!(
        "{}duration = \"1s\"\ndepth = 4\n\
         [card]\ncongestion = \"fixed\"\nrate-limit = \"2Gbps\"\n\
         [[expect]]\nmetric = \"goodput\"\nof = \"load\"\nduring = [\"5ms\", \"15ms\"]\nequals = \"3.7Gbps\"\ntolerance = \"2%\"\n\
         [[expect]]\nmetric = \"bytes\"\nduring = [\"5ms\", \"15ms\"]\nequals = {{ times = 0.5, during = [\"0ms\", \"20ms\"] }}\ntolerance = \"5%\"\n\
         [[expect]]\nmetric = \"utilisation\"\nof = \"s0->h0\"\nduring = [\"5ms\", \"15ms\"]\nequals = 0.4\ntolerance = \"1%\"\n\
         [[expect]]\nmetric = \"fairness\"\nduring = [\"5ms\", \"15ms\"]\nat-least = 0.99\n\
         [[expect]]\nmetric = \"rate.mean\"\nduring = [\"5ms\", \"15ms\"]\nequals = \"2Gbps\"\n\
         [[expect]]\nmetric = \"rate.fairness\"\nduring = [\"5ms\", \"15ms\"]\nequals = 1\n\
         [[expect]]\nmetric = \"queue.mean\"\nof = \"s0->h0\"\nduring = [\"5ms\", \"15ms\"]\nat-most = \"2KB\"\n",
        TWO.replace("size = \"1MB\"", "size = \"16KB\"")
    );
    run(&text, &[]);
    for (settings, message) in [
        (
            &["expect.0.during=[\"1ms\"]"][..],
            "has 1 values, but must have two",
        ),
        (&["stop=14ms"], "is not in the run, which stops at 14ms"),
        (
            &["expect.0.during=[\"2ms\",\"1ms\"]"],
            "ends before it begins",
        ),
        (
            &["expect.0.metric=duration", "expect.0.equals=1ms"],
            "cannot be: \"duration\" is of the whole run",
        ),
    ] {
        let out = with("check", &text, &[], settings);
        let err = common::text(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{settings:?}");
        assert!(err.contains(message), "{settings:?}: {err}");
    }
    let mean = format!("{TWO}[[expect]]\nmetric = \"queue.mean\"\nat-most = 1\n");
    let out = with("check", &mean, &[], &[]);
    assert!(common::text(&out.stderr).contains("say which by \"during\""));
}

#[test]
fn looking_changes_nothing() {
    // The loads are done after some 2 ms; a timer of theirs that finds nothing to do runs until 67 ms.
    let long = TWO.replace("stop = \"20ms\"", "stop = \"200ms\"");
    let plain = run(&format!("{long}{MARKED}"), &[]);
    assert!(plain["traffic"][0]["congestion"]["cuts"].as_u64() > Some(1));
    for every in ["10us", "100us", "30ms"] {
        let looked = run(&format!("sample = \"{every}\"\n{long}{MARKED}"), &[]);
        assert_eq!(looked, plain, "{every}");
    }
    let expect = "[[expect]]\nmetric = \"rate.mean\"\nof = \"load\"\nduring = [\"100us\", \"90ms\"]\nat-least = \"1bps\"\n";
    let asked = run(&format!("{long}{MARKED}{expect}"), &[]);
    assert_eq!(asked["traffic"], plain["traffic"]);
    assert_eq!(asked["time_ps"], plain["time_ps"]);
}

#[test]
fn rates_over_time_have_a_file_of_their_own() {
    let results = common::results(&format!("sample = \"100us\"\n{TWO}{MARKED}"), &[], &[]);
    let read = |name: &str| results.read(&format!("mine-{name}.csv"));
    let rates = read("rates");
    let mut lines = rates.lines().map(|l| l.split(',').collect::<Vec<_>>());
    assert_eq!(
        lines.next().unwrap().join(","),
        "time_ps,load,flow,rate_bps,target_bps,alpha,cuts"
    );
    let rows: Vec<_> = lines.collect();
    // Two queue pairs at each time, the first at 100 us.
    assert_eq!(rows[0][..3], ["100000000", "load", "0"]);
    assert_eq!(rows[1][..3], ["100000000", "load", "1"]);
    assert!(
        rows.iter()
            .any(|r| r[3].parse::<u64>().unwrap() < 6_000_000_000)
    );
    let flows = read("flows");
    assert!(
        flows
            .lines()
            .next()
            .unwrap()
            .ends_with(",status,rate_bps,alpha")
    );
    assert_eq!(flows.lines().nth(1).unwrap().split(',').count(), 14);
}

#[test]
fn congestion_control_that_cannot_act_is_warned_of() {
    let base = format!("{TWO}{MARKED}");
    for (settings, message) in [
        (
            &["card.h0.cnp=false"][..],
            "host h0: marks are not answered (cnp = false), so that whoever sends there with DCQCN is never told",
        ),
        (
            &["card.congestion=none"],
            "switch s0: packets are to be marked above 0B, but no card that sends has congestion = \"dcqcn\"",
        ),
        (
            &["switch.ecn-kmin=2MB", "switch.ecn-kmax=2MB"],
            "switch s0: packets are marked above 2MB, but a port is paused when 1MB that came in by it wait",
        ),
        (
            &[
                "card.priority=2",
                "switch.ecn-kmin=2MB",
                "switch.ecn-kmax=2MB",
            ],
            "switch s0: packets are marked above 2MB, but a queue holds 1MiB: it drops before it marks",
        ),
        (
            &["switch.ecn-priorities=2"],
            "switch s0: nothing is marked in priority 3, in which cards with DCQCN send",
        ),
        (
            &["card.dcqcn-alpha-timer=50us"],
            "hosts h1, h2: \"dcqcn-alpha-timer\" is no longer than the 50us between CNPs",
        ),
    ] {
        let out = with("check", &base, &[], settings);
        assert_eq!(out.status.code(), Some(0), "{settings:?}");
        let shown: Vec<_> = common::text(&out.stdout).split_whitespace().collect();
        let shown = shown.join(" ");
        assert!(shown.contains("WARNING"), "{settings:?}: {shown}");
        assert!(shown.contains(message), "{settings:?}: {shown}");
    }
    let out = with("check", &base, &[], &[]);
    assert!(!common::text(&out.stdout).contains("WARNING"));
    let nowhere = format!("{TWO}[card]\ncongestion = \"dcqcn\"\n");
    let out = with("check", &nowhere, &[], &[]);
    assert!(common::text(&out.stdout).contains("no switch marks packets"));
    // What only a run shows: one sender at a time fills no queue.
    let alone = run(
        &base,
        &[
            "traffic.load.from=h1",
            "switch.ecn-kmin=1KB",
            "switch.ecn-kmax=1MB",
        ],
    );
    let warning = alone["warnings"][0].as_str().unwrap();
    assert!(
        warning.starts_with("DCQCN never came into action: no packet was marked"),
        "{warning}"
    );
}

/// A card asks for an ACK with the packet that closes its window, whatever `ack-every` is: nobody waits for the timer.
#[test]
fn a_window_never_waits_for_an_ack_that_nobody_asked_for() {
    for settings in [
        &["card.congestion=fixed", "card.window=1"][..],
        &["card.congestion=fixed", "card.window=20KB"],
        &[
            "card.congestion=fixed",
            "card.window=100KB",
            "card.ack-every=1000",
        ],
        &["card.window=20KB"],
        &["card.window=100KB", "card.window-follows-rate=true"],
        &["card.window=2KB", "card.window-follows-rate=true"],
    ] {
        let run = run(&format!("{TWO}{MARKED}"), settings);
        let load = &run["traffic"][0];
        assert_eq!(load["counts"]["timeouts"], 0, "{settings:?}");
        assert_eq!(load["messages"], 2, "{settings:?}");
        // The least window is a packet in a round trip of some 6 us, 977 of them.
        assert!(
            load["duration_ps"].as_u64().unwrap() < 15_000_000_000,
            "{settings:?}"
        );
    }
}

/// Of flows of a file each has its own end that sends its data, whatever the load says of others: its congestion
/// control is what slows down, and its link what it is held against.
#[test]
fn each_flow_of_a_file_is_held_to_its_own_operation() {
    for (whole, own) in [
        ("write", "read"),
        ("read", "write"),
        ("write", "write"),
        ("read", "read"),
    ] {
        let (dir, path) = common::file(format!(
            "payload = \"counted\"\n[topology]\nkind = \"star\"\nhosts = 6\n[switch]\necn-kmin = \"20KB\"\n\
             queue = \"10MB\"\n[card]\ncongestion = \"none\"\n[card.h1]\ncongestion = \"dcqcn\"\n[card.h2]\n\
             congestion = \"dcqcn\"\n[[traffic]]\nname = \"f\"\npattern = \"file\"\nflows = \"f.csv\"\n\
             operation = \"{whole}\"\n"
        ));
        // Data from h1 and from h2 to h0, asked for by who the operation says.
        let flow = |from: &str| match own {
            "read" => format!("h0,{from},4MB,0,{own}\n"),
            _ => format!("{from},h0,4MB,0,{own}\n"),
        };
        std::fs::write(dir.path().join("f.csv"), flow("h1") + &flow("h2")).unwrap();
        let out = common::softroce(&["run", path.to_str().unwrap(), "--json"]);
        let run = common::first_run(&out.stdout);
        let control = &run["traffic"][0]["congestion"];
        assert_eq!(control["queue_pairs"], 2, "{whole} {own}: {control}");
        assert_eq!(control["limited"], 2, "{whole} {own}: {control}");
        assert!(
            control["cuts"].as_u64() > Some(0),
            "{whole} {own}: {control}"
        );
    }
}
