//! Scenarios run by the built program: the library holds, what is refused is told, and (`files`) captures and reports
//! are where they are said to be, (`failures`) what fails says why.

#[path = "../common/mod.rs"]
mod common;
mod failures;
mod files;

use common::{file, results, softroce, text};
use serde_json::Value;
use std::process::{Command, Stdio};

/// What it prints, if it exits with `code`.
#[track_caller]
fn prints(args: &[&str], code: i32) -> String {
    let out = softroce(args);
    let err = text(&out.stderr);
    assert_eq!(out.status.code(), Some(code), "{args:?}: {err}");
    text(&out.stdout).to_string()
}

/// What it complains of, exiting with 2 and printing nothing.
#[track_caller]
fn complains(args: &[&str]) -> String {
    let out = softroce(args);
    assert_eq!(out.status.code(), Some(2), "{args:?}");
    assert_eq!(text(&out.stdout), "", "{args:?}");
    text(&out.stderr).to_string()
}

fn json(args: &[&str], code: i32) -> Value {
    serde_json::from_str(&prints(args, code)).unwrap()
}

/// One message of twenty packets, of which the rest of the file loses some.
const ONE: &str = "[topology]\nkind = \"back-to-back\"\n[[traffic]]\nname = \"flow\"\nfrom = \"h0\"\n\
                   to = \"h1\"\noperation = \"write\"\nsize = \"20KiB\"\n";

const EXACT: &str = "[[fault]]\nname = \"third\"\nlink = \"h0->h1\"\nkind = \"exact\"\n\
                     traffic = \"flow\"\npsn-offset = 2\ncopy = 1\n";

#[test]
fn go_back_0_lives_without_progress() {
    let args = ["run", "livelock", "--json", "--set", "link.delay=1us"];
    let report = json(&args, 0);
    let runs = &report["reports"][0]["runs"];
    assert_eq!(runs[0]["traffic"][0]["goodput_bps"], 0);
    assert!(runs[1]["traffic"][0]["goodput_bps"].as_u64().unwrap() > 30_000_000_000);
    for n in 0..2 {
        let link = &runs[n]["links"][0];
        assert!(link["utilisation"].as_f64().unwrap() > 0.95, "{link}");
    }
}

#[test]
fn the_loss_cliff_follows_the_law() {
    let args = ["run", "loss-cliff", "--set", "card.timeout=4"];
    let shown = prints(&args, 0);
    assert!(shown.ends_with("held: 37 of 37 expectations\n"), "{shown}");
    assert!(shown.lines().all(|l| l.chars().count() <= 100), "{shown}");
    // A table with the law beside the measured.
    let head = shown.lines().find(|l| l.contains("share")).unwrap();
    let columns: Vec<_> = head.split_whitespace().collect();
    let of = |name| columns.iter().position(|c| *c == name).unwrap();
    let mut rows = shown
        .lines()
        .map(|l| l.split_whitespace().collect::<Vec<_>>());
    let cells = rows.find(|c| c.starts_with(&["h0-h1", "0.01"])).unwrap();
    let number = |name| cells[of(name)].parse::<f64>().unwrap();
    assert!(
        (number("share") / number("law") - 1.0).abs() < 0.1,
        "{cells:?}"
    );
    assert!(number("share") < 0.4, "{cells:?}");
}

#[test]
fn the_reaction_time_is_what_makes_loss_expensive() {
    // Too short for its own expectations, but no doubt is left of what costs more.
    let out = softroce(&["run", "loss-reaction", "--json", "--set", "stop=60ms"]);
    let report: Value = serde_json::from_slice(&out.stdout).unwrap();
    let kept = |n: usize| {
        let load = &report["reports"][0]["runs"][n]["traffic"][0];
        let bps = |key: &str| load[key].as_f64().unwrap();
        bps("goodput_bps") / bps("clean_goodput_bps")
    };
    let shares: Vec<f64> = (0..5).map(kept).collect();
    assert!(shares[0] > 0.95 && shares[1] > 0.8, "{shares:?}");
    assert!(shares[2..].iter().all(|&s| s < 0.65), "{shares:?}");
}

#[test]
fn an_expectation_that_fails_is_told_and_exits_with_1() {
    let expect = "[[expect]]\nmetric = \"goodput\"\nof = \"flow\"\nat-least = \"100Gbps\"\n\
                  because = \"it is fast\"\n";
    let (_dir, path) = file(format!("{ONE}{expect}"));
    let path = path.to_str().unwrap();
    let shown = prints(&["run", path], 1);
    assert!(shown.contains("FAILED  goodput of flow is "), "{shown}");
    assert!(shown.contains("because it is fast"), "{shown}");
    assert!(shown.ends_with("FAILED: 1 of 1 expectations\n"), "{shown}");
    assert_eq!(
        json(&["run", path, "--json"], 1)["reports"][0]["held"],
        false
    );
    // One that fails among others that hold is the exit code of all.
    prints(&["run", path, "two-hosts"], 1);
    prints(&["run", "two-hosts", path], 1);
    prints(&["sweep", path, "--set", "link.rate=1Gbps,10Gbps"], 1);
}

#[test]
fn a_run_is_given_up_at_the_event_limit() {
    let (_dir, path) = file(ONE);
    let path = path.to_str().unwrap();
    let shown = prints(&["run", path, "--set", "event-limit=10"], 1);
    assert!(
        shown.contains("until the EVENT LIMIT: 10 events"),
        "{shown}"
    );
    assert!(shown.contains("FAILED: 1 of 1 runs given up at the event limit"));
    let shown = prints(&["run", path, "--set", "stop=1us"], 0);
    assert!(shown.contains("ran for 1us until its stop time"), "{shown}");
}

#[test]
fn a_sweep_prints_a_table_of_loss() {
    let args = [
        "sweep",
        "two-hosts",
        "--set",
        "link.loss=0,50%",
        "--set",
        "card.timeout=1",
    ];
    let shown = prints(&args, 1);
    let rows: Vec<_> = shown.lines().collect();
    assert_eq!(rows.len(), 3 + 2, "{shown}");
    assert!(rows[3].trim_start().starts_with("0 ") && rows[3].ends_with("held"));
    assert!(rows[4].trim_start().starts_with("50% ") && rows[4].ends_with("FAILED"));
    let csv = prints(&[&args[..], &["--csv"]].concat(), 1);
    assert!(
        csv.starts_with("link.loss,send.goodput (bits-per-second),"),
        "{csv}"
    );
    // The loss of a link is an injector for each direction, by name.
    let report = json(&[&args[..], &["--json"]].concat(), 1);
    let faults = report["reports"][0]["runs"][1]["faults"]
        .as_array()
        .unwrap();
    let names: Vec<_> = faults.iter().map(|f| f["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["loss:h0->h1", "loss:h1->h0"]);
    assert!(faults[0]["hits"].as_u64().unwrap() > 0 && faults[0]["seen"].as_u64().unwrap() > 4);
}

/// What is written twice would be run twice.
#[test]
fn a_sweep_has_each_value_once() {
    let told = |verb: &str, sweep: &str, settings: &[&str]| {
        let (_dir, path) = file(format!("{ONE}{EXACT}[sweep]\n{sweep}\n"));
        let path = path.to_str().unwrap();
        let mut args = vec![verb, path];
        args.extend(settings.iter().flat_map(|s| ["--set", s]));
        complains(&args).replace(path, "mine.toml")
    };
    let limit = "; a sweep runs each value once";
    for (sweep, place, what) in [
        ("seed = [1, 2, 1]", "17:15", "seed has the value 1 twice"),
        (
            "\"link.delay\" = [\"1us\", \"2us\",\n \"1000ns\"]",
            "18:2",
            "link.delay has the values \"1us\" and \"1000ns\", which are the same",
        ),
        (
            "traffic.flow.size = [\"4KiB\", 4096]",
            "17:30",
            "traffic.flow.size has the values \"4KiB\" and 4096, which are the same",
        ),
        (
            "\"link.loss\" = [0.01, \"1%\", \"1/100\"]",
            "17:22",
            "link.loss has the values 0.01 and \"1%\", which are the same",
        ),
        (
            "link.rate = [\"1Gbps\", \"1000Mbps\"]",
            "17:23",
            "link.rate has the values \"1Gbps\" and \"1000Mbps\", which are the same",
        ),
        (
            "traffic.flow.mr-access = [[\"read\", \"write\"], \"read\", [\"read\", \"write\"]]",
            "17:54",
            "traffic.flow.mr-access has the value [\"read\", \"write\"] twice",
        ),
    ] {
        let told = told("check", sweep, &[]);
        let expected = format!("mine.toml:{place}: {what}{limit}\n");
        assert!(told.starts_with(&expected), "{told}");
        assert_eq!(told.lines().count(), 3, "{told}");
    }
    let told = told("sweep", "", &["link.rate=1Gbps,2Gbps,1Gbps"]);
    let expected = format!("--set: link.rate has the value \"1Gbps\" twice{limit}\n");
    assert!(told.starts_with(&expected), "{told}");
    // Seeds that are no longer different as numbers with a fraction.
    let (_dir, path) = file(format!(
        "{ONE}[sweep]\nseed = [9007199254740992, 9007199254740993]\nlink.delay = [\"1us\", \"1ns\"]\n"
    ));
    prints(&["check", path.to_str().unwrap()], 0);
}

/// A row for several runs says which they are.
#[test]
fn figures_of_several_runs_beside_what_is_published_say_of_which() {
    let expect = |when: &str, bound: &str| {
        format!(
            "[[expect]]\nmetric = \"goodput\"\nof = \"flow\"\n{bound}\npublished = \"as fast as the link\"\n{when}\n"
        )
    };
    let sweep = "[sweep]\nlink.rate = [\"10Gbps\", \"25Gbps\", \"40Gbps\", \"50Gbps\"]\nlink.delay = [\"1us\", \"2us\"]\n";
    let slow = "when = { link.rate = \"10Gbps\" }";
    let one = "when = { link.rate = \"10Gbps\", link.delay = \"1us\" }";
    let content = [
        ONE,
        sweep,
        &expect("", "at-least = \"1Gbps\""),
        &expect(slow, "between = [\"5Gbps\", \"10Gbps\"]"),
        &expect(one, "at-most = \"10Gbps\""),
    ];
    let (_dir, path) = file(content.concat());
    let shown = prints(&["run", path.to_str().unwrap()], 0);
    let (_, table) = shown.split_once("beside what is published\n").unwrap();
    let (table, _) = table.split_once("\n\n").unwrap();
    let words: Vec<_> = table.split_whitespace().collect();
    let words = words.join(" ");
    for part in [
        "over 8 runs: link.rate = 10Gbps ... 50Gbps; link.delay = 1us, 2us; closest: ",
        "expected at least 1Gbps, at link.rate = 10Gbps, link.delay = 2us",
        "over 2 runs: link.rate = 10Gbps; link.delay = 1us, 2us; closest: ",
        "expected 5Gbps to 10Gbps, at link.rate = 10Gbps, link.delay = ",
    ] {
        assert!(words.contains(part), "{part}: {table}");
    }
    assert_eq!(words.matches("over ").count(), 2, "{table}");
    assert!(table.lines().all(|l| l.chars().count() <= 100), "{table}");
    // One that failed says in how many.
    let failed = [
        "run",
        path.to_str().unwrap(),
        "--set",
        "traffic.flow.size=1B",
    ];
    let shown = prints(&failed, 1);
    let words: Vec<_> = shown.split_whitespace().collect();
    let told = "link.delay = 1us, 2us; it failed in 8 of them";
    assert!(words.join(" ").contains(told), "{shown}");
}

#[test]
fn every_kind_of_address_carries_a_run() {
    for gid in ["ipv4", "ipv6", "rocev1"] {
        let set = format!("card.gid={gid}");
        prints(&["run", "two-hosts", "--set", &set], 0);
    }
    // A tree, with four ways between its far ends.
    let tree = "[topology]\nkind = \"fat-tree\"\n[[traffic]]\nname = \"flow\"\nfrom = [\"h0\", \"h1\"]\n\
                to = [\"h14\", \"h15\"]\noperation = \"send\"\nsize = \"10KiB\"\nqps = 2\ncount = 3\n\
                [[expect]]\nmetric = \"completions.success\"\nequals = 24\n\
                [[expect]]\nmetric = \"receives.success\"\nequals = 24\n";
    let (_dir, path) = file(tree);
    prints(&["run", path.to_str().unwrap()], 0);
}

/// As in `softroce run two-hosts | true`.
#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let out = Command::new(env!("CARGO_BIN_EXE_softroce"))
        .args(["run", "two-hosts"])
        .stdout(writer)
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(0));
    assert_eq!(text(&out.stderr), "");
}

#[test]
fn loads_that_take_too_much_memory_are_refused() {
    let load = "[topology]\nkind = \"back-to-back\"\n[[traffic]]\nfrom = \"h0\"\nto = \"h1\"\n\
                operation = \"write\"\nsize = \"512MiB\"\n";
    let (_dir, path) = file(load);
    let path = path.to_str().unwrap();
    prints(&["check", path], 0);
    let told = complains(&["check", path, "--set", "traffic.0.size=2GiB"]);
    assert!(
        told.contains("the loads register 4GiB of memory, both ends together; the limit is 1GiB"),
        "{told}"
    );
    // A counted payload takes no memory, but queue pairs do.
    let (topology, load) = load.split_at(load.find("[[traffic]]").unwrap());
    let loads = format!("{load}qps = 65536\n").repeat(3);
    let (_dir, path) = file(format!("payload = \"counted\"\n{topology}{loads}"));
    let told = complains(&["check", path.to_str().unwrap()]);
    assert!(
        told.contains("makes 196608 queue pairs in all; the limit is 131072"),
        "{told}"
    );
}

#[test]
fn a_depth_that_cannot_be_read_is_told_once() {
    let (_dir, path) = file(
        "[topology]\nkind = \"back-to-back\"\n[[traffic]]\nfrom = \"h0\"\nto = \"h1\"\n\
         operation = \"write\"\nsize = 1\ndepth = \"many\"\n",
    );
    let told = complains(&["check", path.to_str().unwrap()]);
    assert!(
        told.contains("depth") && !told.contains("signalled-every"),
        "{told}"
    );
}

#[test]
fn a_list_of_flows_that_is_none_is_called_that() {
    let (dir, path) = file(
        "[topology]\nkind = \"star\"\nhosts = 2\n[[traffic]]\nname = \"listed\"\npattern = \"file\"\n\
         operation = \"write\"\nflows = \"folder\"\n",
    );
    std::fs::create_dir(dir.path().join("folder")).unwrap();
    std::fs::write(dir.path().join("binary"), b"h0,h1,\xff").unwrap();
    let path = path.to_str().unwrap();
    let told = complains(&["check", path]);
    assert!(
        told.contains("is a directory; a list of flows in CSV is a file"),
        "{told}"
    );
    let told = complains(&["check", path, "--set", "traffic.listed.flows=binary"]);
    assert!(
        told.contains("byte 0xff is not UTF-8, which a list of flows in CSV must be"),
        "{told}"
    );
}

/// Over services without acknowledgements what was delivered is what came whole, not what was sent.
#[test]
fn goodput_of_unreliable_services_is_what_came() {
    for (keys, lost) in [
        ("transport = \"uc\"\noperation = \"write\"", true),
        ("transport = \"uc\"\noperation = \"write-imm\"", true),
        ("transport = \"uc\"\noperation = \"send\"", true),
        ("transport = \"ud\"\noperation = \"send\"", true),
        ("transport = \"rc\"\noperation = \"send\"", false),
    ] {
        // Two send what one link takes, and a queue holds next to nothing of the rest.
        let content = |queue: &str| {
            format!(
                "sample = \"20us\"\npayload = \"counted\"\n[topology]\nkind = \"star\"\nhosts = 3\n[switch]\n\
                 queue = \"{queue}\"\n[[traffic]]\nname = \"a\"\nfrom = [\"h1\", \"h2\"]\nto = \"h0\"\n\
                 size = \"1KiB\"\ncount = 2000\nrecv-depth = 4000\n{keys}\n"
            )
            .replace("recv-depth = 4000\n", if keys.ends_with("\"write\"") { "" } else { "recv-depth = 4000\n" })
        };
        let results = results(&content("20KB"), &[], &[]);
        let run = &results.run;
        let load = &run["traffic"][0];
        let links = run["links"].as_array().unwrap().iter();
        let drops: u64 = links.map(|l| l["drops"]["queue"].as_u64().unwrap()).sum();
        let bytes = load["bytes"].as_u64().unwrap();
        assert_eq!(drops > 0, lost, "{keys}");
        if lost {
            assert_eq!(bytes, (4000 - drops) * 1024, "{keys}");
        } else {
            assert_eq!(bytes, 4000 * 1024, "{keys}");
        }
        assert_eq!(load["messages"], 4000, "{keys}");
        // One link is what there is, whether what came waited or not.
        for queue in ["20KB", "10MB"] {
            let run = common::run(&content(queue), &[]);
            let goodput = run["traffic"][0]["goodput_bps"].as_u64().unwrap();
            assert!(goodput < 100_000_000_000, "{keys} {queue}: {goodput}");
            assert!(
                !lost || goodput > 80_000_000_000,
                "{keys} {queue}: {goodput}"
            );
        }
        // The files tell the same.
        let read = |name: &str| results.read(&format!("mine-{name}.csv"));
        let column = |table: &str, name: &str| -> Vec<u64> {
            let mut lines = table.lines().map(|l| l.split(',').collect::<Vec<_>>());
            let at = lines
                .next()
                .unwrap()
                .iter()
                .position(|c| *c == name)
                .unwrap();
            lines.map(|cells| cells[at].parse().unwrap()).collect()
        };
        let (times, rates) = (
            column(&read("series"), "time_ps"),
            column(&read("series"), "a"),
        );
        let mut before = 0;
        let sum: u128 = times
            .iter()
            .zip(rates)
            .map(|(&t, rate)| {
                let span = t - before;
                before = t;
                u128::from(rate) * u128::from(span)
            })
            .sum();
        let sum = (sum as f64 / 8e12).round();
        assert!((sum - bytes as f64).abs() < 100.0, "{keys}: {sum} {bytes}");
    }
}
