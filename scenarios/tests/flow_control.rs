//! Pauses, receivers, routes and links that fail, as scenarios ask for them and reports tell of them.

mod common;

use common::{softroce, with};
use serde_json::Value;
use softroce::format::{File, Source};
use softroce::library;

/// The report of a scenario file, and the exit code.
#[track_caller]
fn run(content: &str, args: &[&str]) -> (Value, i32) {
    let out = with("run", content, &[&["--json"], args].concat(), &[]);
    let code = out.status.code().unwrap();
    let err = String::from_utf8_lossy(&out.stderr).into_owned();
    let report = serde_json::from_slice(&out.stdout).unwrap_or_else(|_| panic!("{code}: {err}"));
    (report, code)
}

/// The only run of a scenario that holds.
#[track_caller]
fn one(content: &str) -> Value {
    let (report, code) = run(content, &[]);
    assert_eq!(code, 0, "{report}");
    report["reports"][0]["runs"][0].clone()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

/// What is wrong with a file: the message and where it is.
fn refused(content: &str) -> Vec<String> {
    let source = Source::new("x.toml", content).unwrap();
    let plan = File::parse(source).and_then(|f| f.plan(&[]));
    let errors = plan.expect_err("it is wrong");
    errors
        .iter()
        .map(|d| format!("{}: {}", d.place, d.message))
        .collect()
}

const STAR: &str = "[topology]\nkind = \"star\"\nhosts = 3\n";
const LOAD: &str = "[[traffic]]\nname = \"flow\"\nfrom = \"h1\"\nto = \"h0\"\noperation = \"write\"\n\
                    size = \"1MiB\"\n";

#[test]
fn what_is_wrong_is_said_with_its_place() {
    for (part, place, message) in [
        (
            "[receiver.h9]\nrate = \"1Gbps\"\n",
            "4:11",
            "there is no host \"h9\"",
        ),
        (
            "[receiver]\nxoff = 1\n",
            "5:8",
            "xoff = 1 in [receiver] means nothing without one of",
        ),
        (
            "[receiver]\nrate = \"1Gbps\"\nxoff = \"1MiB\"\n",
            "6:8",
            "is above \"buffer\", 512KiB",
        ),
        (
            "[receiver]\nrate = \"1Gbps\"\nxoff = \"64KiB\"\nxon = \"65KiB\"\n",
            "7:7",
            "is above \"xoff\", 64KiB",
        ),
        (
            "[receiver]\nrate = \"1Gbps\"\nmiss-time = \"1us\"\n",
            "6:13",
            "means nothing beside \"rate\"",
        ),
        (
            "[receiver]\npacket-time = 0\npage = 4096\n",
            "6:8",
            "means nothing without \"miss-time\"",
        ),
        (
            "[receiver]\nmiss-time = \"1us\"\nmisses = 0.5\npage = 4096\n",
            "7:8",
            "means nothing beside \"misses\"",
        ),
        (
            "[receiver]\nrate = \"1Gbps\"\nwatchdog = \"1ms\"\n",
            "6:12",
            "means nothing without \"dead-from\"",
        ),
        (
            "[switch]\npfc-watchdog = \"1ms\"\n",
            "5:16",
            "means nothing without \"lossless\"",
        ),
        (
            "[switch]\nlossless = 3\npfc-threshold = 1\npfc-restore = \"1ms\"\n",
            "7:15",
            "means nothing without \"pfc-watchdog\"",
        ),
        (
            "[[route]]\nswitch = \"s1\"\nto = \"h0\"\naction = \"drop\"\n",
            "5:10",
            "is no switch; did you mean \"s0\"?",
        ),
        (
            "[[route]]\nswitch = \"s0\"\nto = \"h7\"\naction = \"drop\"\n",
            "6:6",
            "has \"h7\", which is no host",
        ),
        (
            "[[route]]\nswitch = \"s0\"\nto = \"h0\"\n",
            "4:1",
            "has no \"via\", the links to go by",
        ),
        (
            "[[route]]\nswitch = \"s0\"\nto = \"h0\"\nvia = \"h1->s0\"\n",
            "7:7",
            "has \"h1->s0\", which does not lead away from switch \"s0\"; its links are h0-s0, h1-s0, h2-s0",
        ),
        (
            "[[route]]\nswitch = \"s0\"\nto = \"h0\"\naction = \"flood\"\nvia = \"h1-s0\"\n",
            "8:1",
            "\"via\" in [[route]] 0 means nothing with action = \"flood\"",
        ),
        (
            "[[link-event]]\nlink = \"h0-s9\"\nat = 0\n",
            "5:8",
            "names no link \"h0-s9\"",
        ),
        (
            "[[link-event]]\nlink = \"h0->s0\"\nat = 0\n",
            "5:8",
            "has one direction of \"h0-s0\"; a link goes down in both",
        ),
        ("[[link-event]]\nlink = \"h0-s0\"\n", "4:1", "has no \"at\""),
        (
            "[[link-event]]\nlink = \"h0-s0\"\nat = 0\ntimes = 2\n",
            "7:9",
            "means nothing without \"down-for\"",
        ),
        (
            "[[link-event]]\nlink = \"h0-s0\"\nat = 0\ndown-for = \"2us\"\ntimes = 2\nevery = \"2us\"\n",
            "9:9",
            "must be more than \"down-for\", 2us",
        ),
        (
            "[[expect]]\nmetric = \"paused\"\nof = \"h0->s0/8\"\nequals = 0\n",
            "6:6",
            "has no priority from 0 to 7 after its \"/\"",
        ),
        (
            "[[expect]]\nmetric = \"receiver.max\"\nof = \"flow\"\nequals = 0\n",
            "6:6",
            "is not a host, which \"receiver.max\" is of",
        ),
    ] {
        let found = refused(&format!("{STAR}{part}{LOAD}"));
        let first = &found[0];
        assert!(
            first.starts_with(&format!("x.toml:{place}: ")) && first.contains(message),
            "{part}: {found:?}"
        );
    }
}

#[test]
fn a_slow_receiver_pauses_as_long_as_it_must() {
    // 1082 bytes of frame at 10 Gb/s, on a link of 100 Gb/s: 1024 packets of the message take
    // 886 us, of which the link is busy for 1106 x 8 / 100e9.
    let run = one(&format!(
        "{STAR}[switch]\nlossless = 3\npfc-threshold = \"64KB\"\n[receiver.h0]\nrate = \"10Gbps\"\n{LOAD}\
         [[expect]]\nmetric = \"drops\"\nequals = 0\n\
         [[expect]]\nmetric = \"goodput\"\nof = \"flow\"\nequals = \"9.43Gbps\"\ntolerance = \"2%\"\n\
         [[expect]]\nmetric = \"paused\"\nof = \"s0->h0/3\"\nequals = {{ metric = \"paused\", of = \"s0->h0\" }}\n\
         [[expect]]\nmetric = \"paused\"\nof = \"s0->h0/4\"\nequals = 0\n\
         [[expect]]\nmetric = \"paused.directions\"\nequals = 2\nbecause = \"the host pauses the switch, that the other host\"\n\
         [[expect]]\nmetric = \"receiver.max\"\nof = \"h0\"\nbetween = [\"256KiB\", \"512KiB\"]\n\
         [[expect]]\nmetric = \"receiver.misses\"\nequals = 0\n\
         [[expect]]\nmetric = \"warnings\"\nequals = 0\n\
         [[expect]]\nmetric = \"victim-pauses\"\nequals = 0\n"
    ));
    let way = |name: &str| {
        let found = list(&run["links"]).iter().find(|w| w["name"] == name);
        found.unwrap().clone()
    };
    let (down, up) = (way("s0->h0"), way("h0->s0"));
    let queue = |way: &Value| list(&way["priorities"])[0].clone();
    assert_eq!(queue(&down)["priority"], 3);
    assert_eq!(queue(&down)["pauses_received"], queue(&up)["pauses_sent"]);
    let sent =
        queue(&up)["pauses_sent"].as_u64().unwrap() + queue(&up)["resumes_sent"].as_u64().unwrap();
    assert_eq!(up["pfc_frames"].as_u64().unwrap(), sent);
    let share = queue(&down)["paused_ps"].as_f64().unwrap() / run["time_ps"].as_f64().unwrap();
    assert_eq!(queue(&down)["paused_share"].as_f64().unwrap(), share);
    assert_eq!(run["hosts"][0]["receiver"]["left"], 0);
    assert!(run["hosts"][1].get("receiver").is_none());
}

#[test]
fn translation_misses_follow_from_pages_and_memory() {
    // 256 of 1024 pages: three packets of four miss, 1024 of them, give or take six deviations.
    let run = one(&format!(
        "{STAR}[receiver.h0]\nmiss-time = \"10ns\"\nentries = 256\npage = 4096\nmemory = \"4MiB\"\n{LOAD}"
    ));
    let misses = run["hosts"][0]["receiver"]["misses"].as_f64().unwrap();
    assert!((misses - 768.0).abs() < 6.0 * 13.9, "{misses}");
}

#[test]
fn a_receiver_whose_pauses_nobody_obeys_loses_packets_and_is_warned_of() {
    let run = one(&format!(
        "{STAR}[receiver.h0]\nrate = \"10Gbps\"\nbuffer = \"64KiB\"\n{LOAD}\
         [[expect]]\nmetric = \"drops.receiver\"\nof = \"s0->h0\"\nat-least = 1\n\
         [[expect]]\nmetric = \"warnings\"\nequals = 1\n"
    ));
    assert_eq!(
        run["warnings"][0],
        "mine.toml:4: host h0: switch s0 obeys none of the receiver's pauses, because the priorities are not \"lossless\" there"
    );
}

#[test]
fn links_that_go_down_lose_what_is_on_them_and_loops_end() {
    // Down from the start and for ever: all of the first try is lost, and the last one.
    one(&format!(
        "{STAR}[card]\ntimeout = 8\nretry-count = 1\n[[link-event]]\nlink = \"h0-s0\"\nat = 0\nreroute = \"1s\"\n{LOAD}\
         [[expect]]\nmetric = \"completions.retry-exceeded\"\nequals = 1\n\
         [[expect]]\nmetric = \"drops.link-down\"\nof = \"s0->h0\"\nequals = {{ metric = \"drops\" }}\n\
         [[expect]]\nmetric = \"drops.link-down\"\nat-least = 1024\n"
    ));
    // Once routes know, the host cannot be reached.
    one(&format!(
        "{STAR}[card]\ntimeout = 8\nretry-count = 1\n[[link-event]]\nlink = \"h0-s0\"\nat = 0\nreroute = 0\n{LOAD}\
         [[expect]]\nmetric = \"drops.no-route\"\nequals = {{ metric = \"drops\" }}\n\
         [[expect]]\nmetric = \"drops.no-route\"\nat-least = 1024\n"
    ));
    let ring = "[topology]\nkind = \"ring\"\nswitches = 3\nhosts-per-switch = 1\n[card]\ntimeout = 8\nretry-count = 0\n\
                [[route]]\nswitch = \"s0\"\nto = \"h0\"\nvia = \"s0->s1\"\n";
    let load = LOAD.replace("1MiB", "20KiB");
    one(&format!(
        "{ring}{load}[[expect]]\nmetric = \"drops.hop-limit\"\nequals = {{ metric = \"drops\" }}\n\
         [[expect]]\nmetric = \"drops\"\nequals = 20\n"
    ));
}

#[test]
fn a_goodput_share_is_that_of_links_that_stay_up() {
    one(&format!(
        "{STAR}[card]\ntimeout = 4\n[[link-event]]\nlink = \"h0-s0\"\nat = \"20us\"\ndown-for = \"40us\"\n\
         reroute = \"1s\"\n{LOAD}\
         [[expect]]\nmetric = \"goodput-share\"\nof = \"flow\"\nbetween = [0.3, 0.8]\n\
         because = \"85 us of packets and 40 us of silence, and the timer\"\n"
    ));
}

/// Two senders to h0 by a switch whose flow control is as `switch` says.
fn incast(switch: &str) -> String {
    format!(
        "stop = \"2ms\"\n{STAR}[switch]\nlossless = 3\n{switch}\n[[traffic]]\nname = \"flow\"\nfrom = [\"h1\", \"h2\"]\n\
         to = \"h0\"\noperation = \"write\"\nsize = \"256KiB\"\ndepth = 2\nduration = \"1s\"\n"
    )
}

#[test]
fn set_ups_that_cannot_do_what_they_say_are_warned_of() {
    let warnings = |text: &str| -> Vec<String> {
        let all = one(text)["warnings"].clone();
        list(&all)
            .iter()
            .map(|w| w.as_str().unwrap().to_string())
            .collect()
    };
    assert!(warnings(&incast("pfc-threshold = \"64KB\"")).is_empty());
    for (switch, expected) in [
        // Two times two messages of 256 packets: 1 MiB and 86 bytes for each, 1136640.
        (
            "pfc-threshold = \"2MB\"",
            "switch s0: all loads of lossless priorities together have at most 1110KiB outstanding, and a port is \
             paused above 2MB: it never is",
        ),
        // Three ports of 10 KB leave 70 KB.
        (
            "buffer = \"100KB\"\npfc-threshold = \"80KB\"\nheadroom = \"10KB\"",
            "switch s0: a port is to be paused above 80KB, but headroom and reserves leave a pool of 70KB for all of them: none \
             comes so far, and once the pool is full every port is paused",
        ),
        // 100 m of cable both ways, 394 quanta, two frames of at most 1024 + 64 + 22 + 20 bytes, and the pause.
        (
            "pfc-threshold = \"64KB\"\nheadroom = \"20KB\"",
            "the headroom of a lossless priority is 20KB, but 52560B may come in by a link of 100Gbps and 1us after",
        ),
    ] {
        let found = warnings(&incast(switch));
        assert!(
            found.iter().any(|w| w.contains(expected)),
            "{switch}: {found:?}"
        );
    }
    let other = incast("pfc-threshold = \"64KB\"").replace("lossless = 3", "lossless = 4");
    let found = warnings(&other);
    assert_eq!(
        found,
        [
            "mine.toml:6: switch s0: no load sends data in a lossless priority, so that it pauses nobody for any: to \
             this switch all is in priority 3"
        ]
    );
    let two = "[topology]\nkind = \"dumbbell\"\nleft = 1\nright = 1\n[switch.s0]\nlossless = 3\npfc-threshold = 1000\n";
    let load = LOAD.replace("h1", "l0").replace("h0", "r0");
    let found = warnings(&format!("{two}{load}"));
    assert!(
        found[0].contains("priority 3 is lossless at switch s0 but not at switch s1"),
        "{found:?}"
    );
    // The library has none, but where they are the point.
    for entry in library::ALL {
        let out = softroce(&["check", entry.name]);
        let shown = String::from_utf8(out.stdout).unwrap();
        let meant = ["ecn-misconfigured", "pfc-deadlock"].contains(&entry.name);
        assert_eq!(shown.contains("WARNING"), meant, "{}: {shown}", entry.name);
    }
}

#[test]
fn headroom_that_is_too_small_loses_packets_and_the_report_says_so_first() {
    let text = incast("pfc-threshold = \"64KB\"\nheadroom = \"20KB\"");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mine.toml");
    std::fs::write(&path, &text).unwrap();
    let out = softroce(&["run", path.to_str().unwrap()]);
    let shown = String::from_utf8(out.stdout).unwrap();
    let at = |what: &str| {
        shown
            .find(what)
            .unwrap_or_else(|| panic!("{what} in {shown}"))
    };
    assert!(at("WARNING: mine.toml:8: switch s0: the headroom") < at("\nload "));
    assert!(at("LOSSLESS PRIORITIES LOST") < at("\nload "));
    assert!(shown.lines().all(|l| l.chars().count() <= 100), "{shown}");
    // More headroom than there is buffer is no warning but an error.
    std::fs::write(
        &path,
        incast("buffer = \"100KB\"\npfc-threshold = 1000\nheadroom = \"40KB\""),
    )
    .unwrap();
    let out = softroce(&["run", path.to_str().unwrap()]);
    assert_eq!(out.status.code(), Some(2));
    let err = String::from_utf8(out.stderr).unwrap();
    assert!(
        err.contains(
            "mine.toml:7:10: buffer = \"100KB\" in [switch] is less than the 120KB that headroom and reserves of the 3 \
             ports of switch \"s0\" take"
        ),
        "{err}"
    );
}

#[test]
fn a_deadlock_is_found_where_it_is_and_nowhere_else_in_the_library() {
    for entry in library::ALL {
        let out = softroce(&["run", entry.name, "--json"]);
        assert_eq!(out.status.code(), Some(0), "{}", entry.name);
        let report: Value = serde_json::from_slice(&out.stdout).unwrap();
        for run in list(&report["reports"][0]["runs"]) {
            let mut cycle: Vec<&str> = list(&run["deadlock"])
                .iter()
                .map(|stuck| stuck["link"].as_str().unwrap())
                .collect();
            cycle.sort_unstable();
            let expected: &[&str] = match (entry.name, run["values"][0].as_str()) {
                ("pfc-deadlock", Some("flood")) => &["la->t1", "lb->t0", "t0->la", "t1->lb"],
                _ => &[],
            };
            assert_eq!(cycle, expected, "{} {}", entry.name, run["values"]);
        }
    }
}

#[test]
fn a_deadlock_that_nobody_asked_for_fails_the_run() {
    let deadlock = library::find("pfc-deadlock").unwrap().text;
    let (before, _) = deadlock.split_once("[[expect]]").unwrap();
    let (report, code) = run(before, &[]);
    assert_eq!(code, 1);
    let held = |n: usize| list(&report["reports"][0]["runs"][n]["deadlock"]).is_empty();
    assert!(!held(0) && held(1) && held(2));
}

#[test]
fn victims_are_named_with_the_queue_they_suffer_for() {
    let (report, _) = run(library::find("pfc-victim").unwrap().text, &[]);
    let runs = list(&report["reports"][0]["runs"]);
    // Without congestion control. Alone, nobody waits for anything but the uplink, which all use.
    assert_eq!(runs[0]["victims"], serde_json::json!([]));
    let victims = list(&runs[4]["victims"]);
    assert!(victims.iter().all(|v| v["load"] == "victim"), "{victims:?}");
    let first = &victims[0];
    assert_eq!(first["paused"], "t1->spine");
    assert_eq!(first["bottleneck"], "spine->t4");
    assert_eq!(first["receiver"], false);
    let second = &victims[1];
    assert_eq!(second["paused"], "v->t1");
    assert_eq!(second["chain"], serde_json::json!(["v->t1", "t1->spine"]));
}

#[test]
fn a_slow_receiver_is_what_its_victim_suffers_for() {
    let only = [
        "--set",
        "receiver.h0.page=4KiB",
        "--set",
        "receiver.h0.miss-time=1us",
    ];
    let (report, _) = run(library::find("slow-receiver").unwrap().text, &only);
    let victims = list(&report["reports"][0]["runs"][0]["victims"]);
    let [one] = victims else {
        panic!("{victims:?}");
    };
    assert_eq!(one["load"], "victim");
    assert_eq!(one["bottleneck"], "s0->h0");
    assert_eq!(one["receiver"], true);
    assert_eq!(one["chain"], serde_json::json!(["h1->s0", "s0->h0"]));
}

#[test]
fn a_sweep_says_in_which_runs_something_was_wrong() {
    let shown = softroce(&["run", "pfc-deadlock"]).stdout;
    let shown = String::from_utf8(shown).unwrap();
    let expected = "LOSSLESS PRIORITIES LOST packets in 1 of 3 runs\nDEADLOCK in 1 of 3 runs\n";
    assert!(shown.contains(expected), "{shown}");
    let csv = softroce(&["sweep", "pfc-deadlock", "--csv"]).stdout;
    let csv = String::from_utf8(csv).unwrap();
    let rows: Vec<Vec<&str>> = csv.lines().map(|l| l.split(',').collect()).collect();
    let column = |name: &str| rows[0].iter().position(|c| *c == name).unwrap();
    let of = |name: &str| -> Vec<f64> {
        let n = column(name);
        rows[1..].iter().map(|r| r[n].parse().unwrap()).collect()
    };
    assert_eq!(of("deadlock"), [1.0, 0.0, 0.0]);
    assert!(of("pauses").iter().all(|&n| n > 0.0));
    let lost = of("drops.lossless");
    assert!(lost[0] == 0.0 && lost[1] == 0.0 && lost[2] > 0.0);
    let text =
        incast("pfc-threshold = \"2MB\"") + "[sweep]\nlink.rate = [\"10Gbps\", \"100Gbps\"]\n";
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mine.toml");
    std::fs::write(&path, text).unwrap();
    let shown = softroce(&["run", path.to_str().unwrap()]).stdout;
    let shown = String::from_utf8(shown).unwrap();
    assert!(
        shown.contains("\nWARNING in all runs: mine.toml:7: switch s0: all loads"),
        "{shown}"
    );
    assert!(
        !shown.contains("paused\n") && !shown.contains("LOSSLESS"),
        "{shown}"
    );
}

#[test]
fn pause_times_are_spread_over_ports() {
    // Two that send alike are paused alike, each about half of the time.
    one(&format!(
        "{}[[expect]]\nmetric = \"paused.directions\"\nequals = 2\n\
         [[expect]]\nmetric = \"paused.spread\"\nbetween = [0.98, 1]\n\
         [[expect]]\nmetric = \"paused.share\"\nbetween = [0.35, 0.55]\n\
         [[expect]]\nmetric = \"paused.total\"\nequals = {{ metric = \"paused\", times = 2 }}\ntolerance = \"10%\"\n\
         [[expect]]\nmetric = \"paused.total\"\nof = \"h0-s0\"\nequals = 0\n\
         [[expect]]\nmetric = \"pauses\"\nof = \"s0->h1/3\"\nequals = {{ metric = \"pauses.received\", of = \"h1->s0/3\" }}\n\
         tolerance = \"2%\"\nbecause = \"one may be under way\"\n\
         [[expect]]\nmetric = \"queue.max\"\nof = \"s0->h0/3\"\nequals = {{ of = \"s0->h0\" }}\n\
         [[expect]]\nmetric = \"queue.max\"\nof = \"s0->h0/5\"\nequals = 0\n",
        incast("pfc-threshold = \"64KB\"")
    ));
}

#[test]
fn queues_and_pauses_are_sampled() {
    let text = incast("pfc-threshold = \"64KB\"");
    let results = common::results(&format!("sample = \"100us\"\n{text}"), &[], &[]);
    let table = results.read("mine-queues.csv");
    let mut lines = table.lines();
    assert_eq!(
        lines.next(),
        Some("time_ps,link,priority,waiting,paused_ps")
    );
    let rows: Vec<Vec<&str>> = lines.map(|l| l.split(',').collect()).collect();
    let number = |row: &Vec<&str>, n: usize| row[n].parse::<u64>().unwrap();
    // Something waits for h0 all the time, where two send and one can take.
    let down: Vec<_> = rows.iter().filter(|r| r[1] == "s0->h0").collect();
    let times: Vec<u64> = down.iter().map(|r| number(r, 0)).collect();
    assert_eq!(times, (1..=20).map(|n| n * 100_000_000).collect::<Vec<_>>());
    assert!(down.iter().all(|r| r[2] == "3" && r[4] == "0"));
    // What the samples have of a pause is all there is of it.
    let sampled: u64 = rows
        .iter()
        .filter(|r| r[1] == "h1->s0")
        .map(|r| number(r, 4))
        .sum();
    let links = list(&results.run["links"]);
    let way = links.iter().find(|w| w["name"] == "h1->s0").unwrap();
    assert_eq!(way["priorities"][0]["paused_ps"], sampled);
    assert!(sampled > 500_000_000);
}

/// The priority of each sender's own card says whether it suffers, in whatever order a load names them.
#[test]
fn victims_are_those_who_send_in_the_priority_that_is_paused() {
    let links = [
        ("z", "t1"),
        ("v", "t1"),
        ("h1", "t1"),
        ("t1", "spine"),
        ("x1", "spine"),
        ("h2", "spine"),
        ("spine", "r"),
        ("spine", "w"),
    ];
    let links = links.map(|(a, b)| format!("[[topology.link]]\na = \"{a}\"\nb = \"{b}\"\n"));
    let content = |senders: &str| {
        format!(
            "stop = \"2ms\"\npayload = \"counted\"\n[topology]\nkind = \"explicit\"\n\
             hosts = [\"z\", \"v\", \"h1\", \"h2\", \"x1\", \"r\", \"w\"]\nswitches = [\"t1\", \"spine\"]\n{}\
             [switch]\nbuffer = \"12MB\"\nlossless = 3\npfc-threshold = \"100KB\"\n[card.z]\npriority = 0\n\
             [[traffic]]\nname = \"incast\"\nfrom = [\"h1\", \"x1\", \"h2\"]\nto = \"r\"\noperation = \"write\"\n\
             size = \"64KiB\"\nduration = \"2ms\"\ndepth = 8\n[[traffic]]\nname = \"victim\"\nfrom = {senders}\n\
             to = \"w\"\noperation = \"write\"\nsize = \"64KiB\"\nduration = \"2ms\"\ndepth = 8\n",
            links.concat()
        )
    };
    let named = |senders: &str| {
        let run = one(&content(senders));
        let mut victims = list(&run["victims"]).iter();
        victims.any(|v| v["load"] == "victim" && v["paused"] == "t1->spine")
    };
    assert!(!named("[\"z\"]"));
    assert!(named("[\"v\"]"));
    assert!(named("[\"v\", \"z\"]"));
    assert!(named("[\"z\", \"v\"]"));
}

/// Link events that overlap take a link down until the last of them has ended.
#[test]
fn link_events_may_overlap() {
    let content = |events: &[(&str, &str)]| {
        let events = events.iter().map(|(at, down)| {
            let down = match *down {
                "" => String::new(),
                down => format!("down-for = \"{down}\"\n"),
            };
            format!("[[link-event]]\nlink = \"h1-s0\"\nat = \"{at}\"\n{down}")
        });
        format!(
            "stop = \"20ms\"\npayload = \"counted\"\n{STAR}{}[card]\ntimeout = 4\nretry-count = 7\n[[traffic]]\n\
             name = \"flow\"\nfrom = \"h1\"\nto = \"h0\"\noperation = \"write\"\nsize = \"1MB\"\nduration = \"10ms\"\n",
            events.collect::<String>()
        )
    };
    let ended = |events: &[(&str, &str)]| {
        let run = one(&content(events));
        run["traffic"][0]["completions"]["retry-exceeded"].clone()
    };
    // Eight attempts take 8 x 4 x 65.5 us at most: a span of 100 us is got over.
    assert_eq!(ended(&[("1.05ms", "100us")]), Value::Null);
    assert_eq!(ended(&[("1ms", "")]), 1);
    assert_eq!(ended(&[("1ms", ""), ("1.05ms", "100us")]), 1);
    assert_eq!(ended(&[("1.05ms", "100us"), ("1ms", "")]), 1);
    assert_eq!(ended(&[("1ms", "10ms"), ("1.05ms", "100us")]), 1);
}
