//! Warnings say what then happens, and where in the file the cause is.

mod common;

use common::{file, run, softroce, text, with};
use serde_json::Value;

/// Two senders to h0 through one switch, with what `switch` and `card` say of them.
fn incast(switch: &str, card: &str) -> String {
    format!(
        "stop = \"2ms\"\n[topology]\nkind = \"star\"\nhosts = 3\n[switch]\n{switch}\n[card]\n{card}\n[[traffic]]\n\
         name = \"flow\"\nfrom = [\"h1\", \"h2\"]\nto = \"h0\"\noperation = \"write\"\nsize = \"256KiB\"\ndepth = 2\n\
         duration = \"1s\"\n"
    )
}

fn warnings(run: &Value) -> Vec<String> {
    let all = run["warnings"].as_array().unwrap().iter();
    all.map(|w| w.as_str().unwrap().to_string()).collect()
}

/// Pauses asked for, packets lost for want of headroom, and marks, over all links.
fn counts(run: &Value) -> [u64; 3] {
    let links = run["links"].as_array().unwrap();
    let sum = |key: &str| -> u64 {
        let queues = links
            .iter()
            .flat_map(|l| l["priorities"].as_array().unwrap());
        queues.map(|q| q[key].as_u64().unwrap()).sum()
    };
    let lost = links
        .iter()
        .map(|l| l["drops"]["headroom"].as_u64().unwrap());
    [sum("pauses_sent"), lost.sum(), sum("marks")]
}

/// What `check` writes, in one line.
fn checked(content: &str) -> String {
    let out = with("check", content, &[], &[]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let words: Vec<_> = text(&out.stdout).split_whitespace().collect();
    words.join(" ")
}

/// A lossless priority is used, or not, by the priority that the switch gives packets; and pauses hold back only who
/// sends in the priority that is paused.
#[test]
fn what_is_lossless_goes_by_what_the_switch_trusts() {
    for priority in [3, 5] {
        // The upper three bits are 3, 5 and 0.
        for (dscp, class) in [(26, 3), (46, 5), (0, 0)] {
            for trust in ["priority", "dscp"] {
                let switch = format!("lossless = 3\npfc-threshold = \"64KB\"\ntrust = \"{trust}\"");
                let card = format!("priority = {priority}\ndscp = {dscp}");
                let content = incast(&switch, &card);
                let here = if trust == "dscp" { class } else { priority };
                let run = run(&content, &[]);
                let [pauses, lost, _] = counts(&run);
                let told = format!("{content}: {:?}, {pauses} pauses", warnings(&run));
                let unused = "no load sends data in a lossless priority";
                let misread =
                    format!("is in priority 3 here but in priority {priority} at hosts h1, h2");
                let found = |what: &str| warnings(&run).iter().any(|w| w.contains(what));
                assert_eq!(found(unused), here != 3, "{told}");
                assert_eq!(pauses == 0, here != 3, "{told}");
                assert_eq!(found(&misread), here == 3 && priority != 3, "{told}");
                assert_eq!(lost > 0, here == 3 && priority != 3, "{told}");
                assert_eq!(
                    warnings(&run).is_empty(),
                    here == 3 && priority == 3,
                    "{told}"
                );
            }
        }
    }
}

#[test]
fn what_is_marked_goes_by_what_the_switch_trusts() {
    for (priority, dscp, trust, here) in [
        (3, 26, "priority", 3),
        (3, 26, "dscp", 3),
        (3, 46, "priority", 3),
        (3, 46, "dscp", 5),
        (5, 26, "priority", 5),
        (5, 26, "dscp", 3),
    ] {
        let switch = format!("ecn-kmin = \"20KB\"\necn-priorities = 3\ntrust = \"{trust}\"");
        let card = format!("priority = {priority}\ndscp = {dscp}\ncongestion = \"dcqcn\"");
        let run = run(&incast(&switch, &card), &[]);
        let [_, _, marks] = counts(&run);
        let nothing =
            format!("nothing is marked in priority {here}, in which cards with DCQCN send");
        let found = warnings(&run).iter().any(|w| w.contains(&nothing));
        assert_eq!(
            found,
            here != 3,
            "{priority} {dscp} {trust}: {:?}",
            warnings(&run)
        );
        assert_eq!(
            marks == 0,
            here != 3,
            "{priority} {dscp} {trust}: {marks} marks"
        );
    }
}

/// Two switches that give the same packets different priorities do not understand each other's pauses.
#[test]
fn switches_that_trust_different_things_are_warned_of() {
    let two = |a: &str, b: &str| {
        format!(
            "stop = \"1ms\"\n[topology]\nkind = \"dumbbell\"\nleft = 3\nright = 1\n[card]\npriority = 3\ndscp = 46\n\
             [switch]\nlossless = [3, 5]\npfc-threshold = \"64KB\"\n[switch.s0]\ntrust = \"{a}\"\n[switch.s1]\n\
             trust = \"{b}\"\n[[traffic]]\nfrom = [\"l0\", \"l1\", \"l2\"]\nto = \"r0\"\noperation = \"write\"\n\
             size = \"1MiB\"\n[link.s0-s1]\nrate = \"400Gbps\"\n"
        )
    };
    let none = checked(&two("priority", "priority"));
    assert!(!none.contains("WARNING"), "{none}");
    let told = checked(&two("priority", "dscp"));
    let expected = "WARNING: mine.toml:15: switch s1: what is sent with priority 3 with DSCP 46 is in priority 5 here but \
                    in priority 3 at switch s0";
    assert!(told.contains(expected), "{told}");
    // Nothing is sent from there to s0.
    assert_eq!(told.matches("WARNING").count(), 1, "{told}");
    let lossy = checked(&two("priority", "dscp").replace("[3, 5]", "3"));
    let expected = "mine.toml:10: what is sent with priority 3 with DSCP 46 is lossless at switch s0, as priority 3, but not \
                    at switch s1, as priority 5";
    assert!(lossy.contains(expected), "{lossy}");
}

/// A pause lasts its quanta of 512 bits at the rate of the link, and must be asked for again before.
#[test]
fn pauses_that_run_out_are_warned_of() {
    for (keys, rate, warned) in [
        ("", "100Gbps", None),
        // 335.5 us and half of them at 100 Gb/s.
        ("pfc-refresh = \"335us\"", "100Gbps", None),
        ("pfc-refresh = \"336us\"", "100Gbps", Some(":8: ")),
        ("pfc-refresh = \"336us\"", "10Gbps", None),
        // 512 ns.
        (
            "pfc-quanta = 100\npfc-refresh = \"10us\"",
            "100Gbps",
            Some(":9: "),
        ),
        ("pfc-quanta = 100\npfc-refresh = \"300ns\"", "100Gbps", None),
        // 512 ns, and a frame of 1110 bytes and 20 more takes 90.4 ns.
        ("pfc-quanta = 100\npfc-refresh = \"420ns\"", "100Gbps", None),
        (
            "pfc-quanta = 100\npfc-refresh = \"450ns\"",
            "100Gbps",
            Some(":9: "),
        ),
        ("pfc-quanta = 1", "100Gbps", Some(":8: ")),
    ] {
        let switch = format!("lossless = 3\npfc-threshold = \"64KB\"\n{keys}");
        let content = incast(&switch, "") + &format!("[link]\nrate = \"{rate}\"\n");
        let told = checked(&content);
        match warned {
            None => assert!(!told.contains("WARNING"), "{keys}: {told}"),
            Some(line) => assert!(
                told.contains(&format!("mine.toml{line}switch s0: a pause of")),
                "{keys}: {told}"
            ),
        }
    }
    // Between the pauses more comes than there is room for.
    let switch = "lossless = 3\npfc-threshold = \"64KB\"\npfc-quanta = 100\npfc-refresh = \"10us\"";
    let [pauses, lost, _] = counts(&run(&incast(switch, ""), &[]));
    assert!(pauses > 0 && lost > 0, "{pauses} {lost}");
}

/// A threshold that the pool does not reach: a full pool pauses as well, and nothing is lost where the headroom is
/// what the link needs.
#[test]
fn a_full_pool_pauses_and_is_warned_of_as_that() {
    let switch = "lossless = 3\npfc-threshold = \"1MB\"\nbuffer = \"260KB\"";
    let run = run(&incast(switch, ""), &[]);
    let [pauses, lost, _] = counts(&run);
    assert!(pauses > 0 && lost == 0, "{pauses} {lost}");
    let told = warnings(&run);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].starts_with("mine.toml:7: switch s0: a port is to be paused above 1MB, but headroom and reserves leave"),
        "{told:?}"
    );
    assert!(
        told[0].contains("once the pool is full every port is paused"),
        "{told:?}"
    );
}

/// One line for all hosts that are alike.
#[test]
fn receivers_that_are_alike_are_told_once() {
    let content = |hosts: usize| {
        format!(
            "[topology]\nkind = \"star\"\nhosts = {hosts}\n[switch]\nlossless = 3\npfc-threshold = \"64KB\"\n[receiver]\n\
             rate = \"10Gbps\"\nbuffer = \"32KiB\"\n[[traffic]]\nfrom = \"h1\"\nto = \"h0\"\noperation = \"write\"\n\
             size = \"1MiB\"\n"
        )
    };
    for (hosts, names) in [
        (2, "hosts h0, h1: "),
        (4, "hosts h0, h1, h2, h3: "),
        (64, "hosts h0, h1, h2 and 61 more: "),
    ] {
        let told = checked(&content(hosts));
        assert_eq!(told.matches("WARNING").count(), 1, "{told}");
        let expected = format!("WARNING: mine.toml:7: {names}the receiver has 16KiB above xoff");
        assert!(told.contains(&expected), "{told}");
    }
}

/// Where the value comes from: the file, the table of one switch, a setting, a point of the sweep.
#[test]
fn a_warning_names_where_its_value_stands() {
    let content = incast("lossless = 3\npfc-threshold = \"64KB\"", "");
    let place = |content: &str, settings: &[&str]| {
        let (_dir, path) = file(content);
        let mut args = vec!["check", path.to_str().unwrap()];
        args.extend(settings.iter().flat_map(|s| ["--set", s]));
        let out = softroce(&args);
        let told = text(&out.stdout).to_string();
        let place = told.split_once("WARNING").expect("a warning").1;
        place.split_once(" switch").unwrap().0.to_string()
    };
    assert_eq!(place(&content, &["switch.pfc-threshold=2MB"]), ": --set:");
    let swept = content.clone() + "[sweep]\nswitch.pfc-threshold = [\"64KB\",\n \"2MB\"]\n";
    assert_eq!(place(&swept, &[]), " in 1 of 2 runs: mine.toml:20:");
    let own = content + "[switch.s0]\npfc-threshold = \"2MB\"\n";
    assert_eq!(place(&own, &[]), ": mine.toml:19:");
}

/// What is told of a bound on what is outstanding holds for every run: nobody is paused where that is told.
#[test]
fn it_is_told_that_nobody_is_paused_only_where_that_holds() {
    let never = "it never is";
    let star = |switch: &str, rest: &str, load: &str| {
        format!(
            "[topology]\nkind = \"star\"\nhosts = 4\n[switch]\nlossless = 3\n{switch}\n{rest}\n[[traffic]]\n\
             name = \"in\"\nfrom = [\"h1\", \"h2\"]\nto = \"h0\"\n{load}\n"
        )
    };
    let rc = "operation = \"write\"\nsize = \"4KiB\"\ncount = 500";
    let fixed = "pfc-threshold = \"100KB\"";
    let shared =
        "pfc-threshold = \"200KB\"\nbuffer = \"500KB\"\nheadroom = \"60KB\"\nqueue = \"10MB\"";
    let share = "pfc-share = 0.5\nbuffer = \"500KB\"\nheadroom = \"60KB\"\nqueue = \"10MB\"";
    let lossy = "[card]\npriority = 0\n[card.h3]\npriority = 3\n[[traffic]]\nname = \"few\"\nfrom = \"h3\"\n\
                 to = \"h0\"\noperation = \"write\"\nsize = \"64KiB\"\ncount = 50";
    let big = "operation = \"write\"\nsize = \"1MB\"\ncount = 4";
    let flood = "[link.h3-s0]\nrate = \"1Gbps\"\n[[route]]\nswitch = \"s0\"\nto = \"h0\"\naction = \"flood\"";
    let double =
        "[[fault]]\nlink = \"h1->s0\"\nkind = \"every\"\nevery = 10\naction = \"duplicate\"";
    for (switch, rest, load, told, paused) in [
        (fixed, "", rc.to_string(), true, false),
        (fixed, "", format!("{rc}\ntransport = \"uc\""), false, true),
        (
            fixed,
            "",
            "operation = \"send\"\ntransport = \"ud\"\nsize = \"1KiB\"\ncount = 2000".to_string(),
            false,
            true,
        ),
        (fixed, flood, rc.to_string(), false, true),
        (fixed, double, rc.to_string(), false, false),
        (shared, "", rc.to_string(), true, false),
        (shared, lossy, big.to_string(), false, true),
        (share, lossy, big.to_string(), false, true),
    ] {
        let content = star(switch, rest, &load);
        let run = run(&content, &[]);
        let found = warnings(&run).iter().any(|w| w.contains(never));
        let [pauses, ..] = counts(&run);
        let shown = format!("{content}: {pauses} pauses, {:?}", warnings(&run));
        assert_eq!(found, told, "{shown}");
        assert_eq!(pauses > 0, paused, "{shown}");
    }
}

/// A port is paused above its reserve and the threshold.
#[test]
fn a_reserve_counts_before_the_threshold() {
    for (kmin, warned) in [("149KB", false), ("150KB", true)] {
        let switch = format!(
            "lossless = 3\npfc-threshold = \"100KB\"\nreserved = \"50KB\"\nbuffer = \"10MB\"\necn-kmin = \"{kmin}\""
        );
        let told = checked(&incast(&switch, "congestion = \"dcqcn\""));
        let found = told.contains("a port is paused when 150KB that came in by it wait");
        assert_eq!(found, warned, "{kmin}: {told}");
    }
    // h1 has twice what h0's link takes, and less than 150 KB outstanding.
    let content = "[topology]\nkind = \"star\"\nhosts = 2\n[link.h1-s0]\nrate = \"200Gbps\"\n[switch]\n\
                   lossless = 3\npfc-threshold = \"100KB\"\nreserved = \"50KB\"\nbuffer = \"10MB\"\n[[traffic]]\n\
                   from = \"h1\"\nto = \"h0\"\noperation = \"write\"\nsize = \"64KB\"\ndepth = 2\ncount = 50\n";
    let run = run(content, &[]);
    assert_eq!(counts(&run)[0], 0);
    let told = warnings(&run);
    assert!(
        told.iter().any(|w| w.contains("above 150KB: it never is")),
        "{told:?}"
    );
}

/// Where the pool can be full, the frame that crosses the threshold is in headroom, and so it is in the buffer of a
/// receiver. 100 Gb/s: 394 quanta, 2 x 1 us of cable, frames of 4156 (4152 and 20 more), a PFC frame of 84.
#[test]
fn headroom_is_for_the_frame_that_crosses_the_threshold_too() {
    let star = |keys: &str, more: &str| {
        format!(
            "stop = \"300us\"\npayload = \"counted\"\n[topology]\nkind = \"star\"\nhosts = 5\n[switch]\n\
             lossless = [3]\n{keys}\n[card]\nmtu = 4096\n[[traffic]]\nname = \"in\"\n\
             from = [\"h1\", \"h2\", \"h3\", \"h4\"]\nto = \"h0\"\noperation = \"write\"\nsize = \"300KB\"\n\
             depth = 4\nduration = \"300us\"\n{more}"
        )
    };
    let back = "[[traffic]]\nname = \"rev\"\nfrom = \"h0\"\nto = \"h1\"\noperation = \"write\"\n\
                size = \"300KB\"\ndepth = 4\nduration = \"300us\"\n";
    let said = |told: &str| told.contains("the headroom of a lossless priority is");
    let two = "headroom = \"58704B\"";
    let pool = |bytes: &str| format!("buffer = \"{bytes}\"\npfc-threshold = \"100KB\"\n{two}");
    // Lost with two frames, where the pool is full before.
    let tight = star(&pool("443520B"), back);
    let out = run(&tight, &[]);
    assert!(counts(&out)[1] > 0, "{out}");
    let told = checked(&tight);
    assert!(said(&told), "{told}");
    // What is told is enough.
    let (_, rest) = told.split_once(", but ").unwrap();
    let bytes: u64 = rest.split_once('B').unwrap().0.parse().unwrap();
    assert!(bytes > 58_704 && bytes < 58_704 + 4_300, "{told}");
    let enough = format!("headroom = \"{bytes}B\"");
    // The pool stays the same.
    let buffer = format!("{}B", 443_520 + 5 * (bytes - 58_704));
    let mended = star(&pool(&buffer).replace(two, &enough), back);
    assert!(!said(&checked(&mended)), "{}", checked(&mended));
    assert_eq!(counts(&run(&mended, &[]))[1], 0);
    // Whether it can be full.
    for (keys, warned) in [
        (pool("443520B"), true),
        (pool("100MB"), false),
        (format!("pfc-threshold = \"100KB\"\n{two}"), false),
        (format!("buffer = \"100MB\"\npfc-share = 1\n{two}"), true),
        (
            pool("100MB") + "\ntrust = \"dscp\"\n[card.h1]\ndscp = 0",
            true,
        ),
    ] {
        let told = checked(&star("KEYS", "").replace(
            "KEYS\n[card]\nmtu = 4096",
            &match keys.split_once("\n[card.h1]") {
                Some((keys, own)) => format!("{keys}\n[card]\nmtu = 4096\n[card.h1]{own}"),
                None => format!("{keys}\n[card]\nmtu = 4096"),
            },
        ));
        assert_eq!(said(&told), warned, "{keys}: {told}");
    }
}

/// The room that is told is what a receiver needs to lose nothing.
#[test]
fn a_receiver_has_room_for_the_frame_that_crosses_xoff() {
    let content = |buffer: u64| {
        format!(
            "stop = \"60us\"\n[topology]\nkind = \"star\"\nhosts = 2\n[switch]\nlossless = [3]\n\
             pfc-threshold = \"1MB\"\n[card]\nmtu = 4096\n[receiver.h1]\nrate = \"1Mbps\"\nbuffer = \"{buffer}B\"\n\
             xoff = \"65890B\"\n[[traffic]]\nname = \"a\"\nfrom = \"h0\"\nto = \"h1\"\noperation = \"write\"\n\
             size = \"300KB\"\n[[traffic]]\nname = \"b\"\nstart = \"324ns\"\nfrom = \"h1\"\nto = \"h0\"\n\
             operation = \"write\"\nsize = \"400KB\"\n"
        )
    };
    let lost = |run: &Value| -> u64 {
        let links = run["links"].as_array().unwrap().iter();
        links
            .map(|l| l["drops"]["receiver"].as_u64().unwrap())
            .sum()
    };
    let tight = content(124_593);
    let told = checked(&tight);
    assert!(told.contains("above xoff, but "), "{told}");
    assert!(lost(&run(&tight, &[])) > 0);
    let (_, rest) = told.split_once("above xoff, but ").unwrap();
    let bytes: u64 = rest.split_once('B').unwrap().0.parse().unwrap();
    let enough = content(65_890 + bytes);
    assert!(!checked(&enough).contains("above xoff"));
    assert_eq!(lost(&run(&enough, &[])), 0);
    assert!(checked(&content(65_890 + bytes - 1)).contains("above xoff"));
}

/// CNPs of other receivers are nothing to a sender.
#[test]
fn timers_are_held_against_the_cnps_that_come() {
    let content = |to: &str| {
        format!(
            "[topology]\nkind = \"star\"\nhosts = 4\n[switch]\necn-kmin = \"5KB\"\n[card]\ncongestion = \"dcqcn\"\n\
             [card.h2]\ndcqcn-set = \"connectx\"\n[card.h3]\ncnp-interval = \"100us\"\n[[traffic]]\nname = \"a\"\n\
             from = \"h1\"\nto = \"{to}\"\noperation = \"write\"\nsize = \"4KiB\"\n[[traffic]]\nname = \"b\"\n\
             from = \"h2\"\nto = \"h3\"\noperation = \"write\"\nsize = \"4KiB\"\n"
        )
    };
    let told = "host h1: \"dcqcn-alpha-timer\" is no longer than the 100us between CNPs";
    for (to, warned) in [("h0", false), ("h3", true)] {
        let shown = checked(&content(to));
        assert_eq!(shown.contains(told), warned, "{shown}");
    }
    let read = content("h3").replacen("\"write\"", "\"read\"", 1);
    let shown = checked(&read);
    assert!(!shown.contains("host h1"), "{shown}");
}

/// Only switches that a load crosses are held against each other.
#[test]
fn switches_off_the_ways_of_all_loads_are_not_warned_of() {
    let line = |to: &str| {
        format!(
            "[topology]\nkind = \"explicit\"\nhosts = [\"a\", \"b\", \"c\"]\nswitches = [\"s0\", \"s1\", \"s2\", \"s3\"]\n\
             [[topology.link]]\na = \"a\"\nb = \"s0\"\n[[topology.link]]\na = \"b\"\nb = \"s1\"\n[[topology.link]]\n\
             a = \"c\"\nb = \"s3\"\n[[topology.link]]\na = \"s0\"\nb = \"s1\"\n[[topology.link]]\na = \"s1\"\n\
             b = \"s2\"\n[[topology.link]]\na = \"s2\"\nb = \"s3\"\n[switch.s0]\nlossless = 3\n\
             pfc-threshold = \"64KB\"\n[switch.s1]\nlossless = 3\npfc-threshold = \"64KB\"\n[switch.s3]\nlossless = 3\n\
             pfc-threshold = \"64KB\"\n[[traffic]]\nfrom = \"a\"\nto = \"{to}\"\noperation = \"write\"\nsize = \"1MB\"\n"
        )
    };
    let told = "priority 3 is lossless at switch s0 but not at switch s2";
    for (to, warned) in [("b", false), ("c", true)] {
        let shown = checked(&line(to));
        assert_eq!(shown.contains(told), warned, "{shown}");
    }
    // What the file sends astray may come anywhere.
    let astray = line("b") + "[[route]]\nswitch = \"s0\"\nto = \"b\"\nvia = \"s0-s1\"\n";
    assert!(checked(&astray).contains(told));
}

/// Three switches in a ring with a host each, and routes.
fn routed(loads: &str, routes: &[(&str, &str, &str)]) -> String {
    let mut text = String::from(
        "[topology]\nkind = \"ring\"\nswitches = 3\nhosts-per-switch = 1\n[card]\ntimeout = 8\nretry-count = 0\n",
    );
    for (switch, to, going) in routes {
        text += &format!("[[route]]\nswitch = \"{switch}\"\nto = {to}\n{going}\n");
    }
    for (n, pair) in loads.split(' ').enumerate() {
        let (from, to) = pair.split_once('>').unwrap();
        text += &format!(
            "[[traffic]]\nname = \"t{n}\"\nfrom = \"{from}\"\nto = \"{to}\"\noperation = \"write\"\nsize = \"20KiB\"\n"
        );
    }
    text
}

/// What packets run into by the routes of a file, told where it is so, and only there.
#[test]
fn routes_in_a_circle_or_to_nowhere_are_warned_of() {
    let (by01, by12) = ("via = \"s0->s1\"", "via = \"s1->s2\"");
    let (by20, by02) = ("via = \"s2->s0\"", "via = \"s0->s2\"");
    let (flood, drop) = ("action = \"flood\"", "action = \"drop\"");
    let (h0, h1, h2) = ("\"h0\"", "\"h1\"", "\"h2\"");
    // The loads, the routes, and what is told of each with its line; the cause of drops if it is so.
    type Case<'a> = (
        &'a str,
        Vec<(&'a str, &'a str, &'a str)>,
        Vec<&'a str>,
        Option<&'a str>,
    );
    let cases: Vec<Case<'_>> = vec![
        // A host's own switch sends away what is for it, and its neighbour sends it back.
        (
            "h1>h0",
            vec![("s0", h0, by01)],
            vec![
                "mine.toml:11: route route-0: what comes for host h0 to switch s0 goes in a circle, s0 -> s1 -> s0, until the \
                 hop limit runs out",
            ],
            Some("hop_limit"),
        ),
        // All the way around, from the first route of the file on.
        (
            "h1>h0",
            vec![("s1", h0, by12), ("s2", h0, by20), ("s0", h0, by01)],
            vec![
                "mine.toml:11: route route-0: what comes for host h0 to switch s1 goes in a circle, s1 -> s2 -> s0 -> s1, until",
            ],
            Some("hop_limit"),
        ),
        // Two hosts alike, once.
        (
            "h2>h0 h2>h1",
            vec![
                ("s2", "[\"h0\", \"h1\"]", by20),
                ("s0", "[\"h0\", \"h1\"]", by02),
            ],
            vec![
                "what comes for hosts h0, h1 to switch s2 goes in a circle, s2 -> s0 -> s2, until",
            ],
            Some("hop_limit"),
        ),
        // Acknowledgements go in a circle as well.
        (
            "h0>h1",
            vec![("s0", h0, by01)],
            vec!["what comes for host h0 to switch s0 goes in a circle"],
            Some("hop_limit"),
        ),
        // Nobody sends to h2.
        ("h1>h0", vec![("s2", h2, by20)], vec![], None),
        // A detour is no circle, and one that nothing comes by tells nothing.
        ("h1>h0", vec![("s1", h0, by12)], vec![], None),
        ("h1>h0", vec![("s2", h0, "via = \"s2-s1\"")], vec![], None),
        // To another host, to a switch that drops or floods.
        (
            "h1>h0",
            vec![("s0", h0, by02), ("s2", h0, "via = \"h2-s2\"")],
            vec![
                "mine.toml:15: route route-1: what comes for host h0 to switch s2 comes from there to host h2, which drops what \
                 is not for it",
            ],
            Some("no_route"),
        ),
        (
            "h1>h0",
            vec![("s1", h0, by12), ("s2", h0, drop)],
            vec![
                "mine.toml:11: route route-0: what comes for host h0 to switch s1 comes from there to switch s2, which drops it \
                 (route route-1)",
            ],
            Some("no_route"),
        ),
        (
            "h1>h0",
            vec![("s1", h0, by12), ("s2", h0, flood)],
            vec![
                "route route-0: what comes for host h0 to switch s1 comes from there to switch s2, which floods it",
            ],
            None,
        ),
        // What drops or floods says so itself.
        ("h1>h0", vec![("s1", h0, drop)], vec![], Some("no_route")),
        ("h1>h0", vec![("s1", h0, flood)], vec![], None),
        // Two that flood in a ring send copies around, until they come back.
        (
            "h1>h0",
            vec![("s0", h0, flood), ("s1", h0, flood), ("s2", h0, flood)],
            vec!["copies of what comes for host h0 to switch s0 go in a circle, s0 -> "],
            Some("hop_limit"),
        ),
        // Some by the one link and some by the other: with this seed, by that in the circle.
        (
            "h1>h0",
            vec![("s0", h0, "via = [\"h0-s0\", \"s0->s1\"]")],
            vec!["what comes for host h0 to switch s0 may go in a circle, s0 -> s1 -> s0, until"],
            Some("hop_limit"),
        ),
        // The last of two for the same is the one that counts.
        (
            "h1>h0",
            vec![("s0", h0, by01), ("s0", h0, "via = \"h0-s0\"")],
            vec![],
            None,
        ),
        ("h1>h0", vec![("s0", h1, by01)], vec![], None),
    ];
    for (loads, routes, expected, cause) in cases {
        let content = routed(loads, &routes);
        let told = checked(&content);
        let shown = format!("{content}\n{told}");
        assert_eq!(told.matches("WARNING").count(), expected.len(), "{shown}");
        for part in expected {
            assert!(told.contains(part), "{part}: {shown}");
        }
        // It is as it is told.
        let run = run(&content, &[]);
        let links = run["links"].as_array().unwrap();
        let lost = |cause: &str| -> u64 {
            let all = links.iter().map(|l| l["drops"][cause].as_u64().unwrap());
            all.sum()
        };
        match cause {
            Some(cause) => assert!(lost(cause) > 0, "{cause}: {shown}"),
            None => assert_eq!(lost("hop_limit"), 0, "{shown}"),
        }
    }
}
