//! Whatever the bytes, a scenario is read or refused; nothing panics and nothing takes for ever.

use proptest::prelude::*;
use softroce::format::{Diagnostics, File, Plan, Source};
use softroce::library;

fn read(bytes: &[u8], settings: &[String]) -> Result<Plan, Diagnostics> {
    File::parse(Source::new("x.toml", bytes)?)?.sweep(settings)
}

/// A file that uses every section.
const BROAD: &str = r#"
schema = 1
title = "t"
seed = 7
stop = "5ms"
payload = "counted"
[topology]
kind = "explicit"
hosts = ["a", "b", "c"]
switches = ["s", "t"]
[[topology.link]]
a = "a"
b = "s"
rate = "40Gbps"
[[topology.link]]
a = "b"
b = "t"
name = "odd"
loss = "1/256"
[[topology.link]]
a = "c"
b = "t"
[[topology.link]]
a = "s"
b = "t"
[link]
delay = "4.096us"
[link."s->t"]
loss = 1e-3
[switch]
queue = "64KiB"
[switch.t]
queue = "1MB"
[card]
timeout = 4
recovery = "go-back-0"
profile = "rxe"
[card.b]
profile = "spec"
nak-delay = "1us"
[[traffic]]
name = "one"
from = ["a", "b"]
to = "c"
operation = "write-imm"
size = "1MiB"
duration = "1ms"
depth = 4
recv-delay = "2us"
qp-access = ["write", "read"]
mr-access = "write"
mistake = "rkey"
mistake-from = 5
[[traffic]]
name = "two"
from = "b"
to = "c"
operation = "send"
transport = "ud"
size = "1000B"
count = 9
recv-size = "2KB"
[[traffic]]
operation = "fetch-add"
from = "b"
to = "c"
[[fault]]
name = "f"
link = ["a->s", "odd"]
kind = "burst"
enter = 0.01
leave = 0.5
[[fault]]
link = "s-t"
kind = "exact"
traffic = "one"
qp = 1
psn-offset = 5
copy = 2
action = "delay"
by = "7us"
[[capture]]
link = "odd:b->t"
[sweep]
card.timeout = [4, 14]
[[sweep.point]]
name = "slow"
link.rate = "10Gbps"
[[sweep.point]]
name = "fast"
link.rate = "100Gbps"
[[expect]]
metric = "goodput"
of = "one"
at-most = { at = { point = "fast" }, times = "50%" }
when = { point = "slow" }
[[expect]]
metric = "queue.max"
of = "s->t"
between = [0, "64KiB"]
"#;

#[test]
fn the_broad_file_is_right() {
    let plan = read(BROAD.as_bytes(), &[]).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(plan.axes, ["point", "card.timeout"]);
    let values: Vec<_> = plan.points.iter().map(|p| p.values.join(" ")).collect();
    assert_eq!(values, ["slow 4", "slow 14", "fast 4", "fast 14"]);
    let counts: Vec<_> = plan
        .points
        .iter()
        .map(|p| p.scenario.expectations.len())
        .collect();
    assert_eq!(counts, [2, 2, 1, 1]);
}

#[derive(Clone, Debug)]
enum Change {
    Delete(usize, usize),
    Put(usize, Vec<u8>),
    SwapLines(usize, usize),
    RepeatLine(usize),
}

fn changes() -> impl Strategy<Value = Change> {
    let words = prop::sample::select(vec![
        "\"",
        "[",
        "]",
        "[[",
        "{",
        "}",
        "=",
        ".",
        ",",
        "-1",
        "0",
        "1e400",
        "nan",
        "inf",
        "-inf",
        "true",
        "99999999999999999999",
        "0x7fffffffffffffff",
        "1979-05-27",
        "\"\"",
        "\"h0\"",
        "\"ud\"",
        "\"bind\"",
        "\"atomic-write\"",
        "\"rxe\"",
        "[]",
        "\"0.01%\"",
        "\"1ps\"",
        "'''",
        "\"\"\"",
        "\n[card.h0]\n",
        "\n[sweep]\n\"link.loss\" = [0, 1]\n",
        "#",
        "\\u0000",
        "{ law = \"go-back-n\" }",
        "{ at = { point = \"x\" } }",
        "\u{fffd}",
        "[[[[[[[[",
        "a.b.c.d.e.f",
    ]);
    prop_oneof![
        (any::<usize>(), 0usize..40).prop_map(|(a, n)| Change::Delete(a, n)),
        (any::<usize>(), words).prop_map(|(a, w)| Change::Put(a, w.as_bytes().to_vec())),
        (any::<usize>(), prop::collection::vec(any::<u8>(), 1..4))
            .prop_map(|(a, b)| Change::Put(a, b)),
        (any::<usize>(), any::<usize>()).prop_map(|(a, b)| Change::SwapLines(a, b)),
        any::<usize>().prop_map(Change::RepeatLine),
    ]
}

fn apply(bytes: &mut Vec<u8>, change: Change) {
    let at = |n: usize, len: usize| n % (len + 1);
    match change {
        Change::Delete(a, n) => {
            let a = at(a, bytes.len());
            let end = (a + n).min(bytes.len());
            bytes.drain(a..end);
        }
        Change::Put(a, what) => {
            let a = at(a, bytes.len());
            bytes.splice(a..a, what);
        }
        Change::SwapLines(a, b) => {
            let mut lines: Vec<_> = bytes.split(|&b| b == b'\n').map(<[u8]>::to_vec).collect();
            let n = lines.len();
            lines.swap(a % n, b % n);
            *bytes = lines.join(&b'\n');
        }
        Change::RepeatLine(a) => {
            let mut lines: Vec<_> = bytes.split(|&b| b == b'\n').map(<[u8]>::to_vec).collect();
            let line = lines[a % lines.len()].clone();
            lines.insert(a % lines.len(), line);
            *bytes = lines.join(&b'\n');
        }
    }
}

/// A place is in the file and its caret on the line that is shown.
fn sound(error: &Diagnostics) {
    for d in error.iter() {
        assert!(!d.message.is_empty() && !d.message.contains('\n'), "{d:?}");
        if let Some(line) = &d.line {
            assert!(line.indent <= line.text.chars().count() + 1, "{d:?}");
        }
    }
    let _ = error.to_string();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn changed_files_do_not_panic(
        which in 0usize..8,
        changes in prop::collection::vec(changes(), 1..6),
    ) {
        let mut bytes = library::ALL
            .get(which)
            .map_or(BROAD, |e| e.text)
            .as_bytes()
            .to_vec();
        for change in changes {
            apply(&mut bytes, change);
        }
        if let Err(error) = read(&bytes, &[]) {
            sound(&error);
        }
    }

    #[test]
    fn settings_do_not_panic(
        path in "(link|card|traffic|fault|topology|sweep|seed|h0|loss|0|1|f|one|point|rate|kind|\\.|\"|=|>|\\PC){0,6}",
        value in "(1|0|-|e|\\.|,|\\[|\\]|\\{|\\}|\"|'|Gbps|us|%|true|\\PC){0,8}",
    ) {
        if let Err(error) = read(BROAD.as_bytes(), &[format!("{path}={value}"), path.clone()]) {
            sound(&error);
        }
    }
}

/// Tables, keys and list members up to the largest file: what a file costs grows with its length, and not with
/// the square of it.
#[test]
fn files_of_many_tables_are_read_in_reasonable_time() {
    const LARGEST: usize = 16 << 20;
    let hosts = |n: usize| {
        let names: Vec<_> = (0..n).map(|i| format!("\"h{i}\"")).collect();
        format!(
            "schema = 1\n[topology]\nkind = \"star\"\nhosts = [{}]\n",
            names.join(",")
        )
    };
    // Sections whose tables are called after hosts, switches and links, and ones that have none such.
    for section in [
        "card", "receiver", "switch", "link", "topology", "sweep", "nothing",
    ] {
        for (n, size) in [(20_000, LARGEST), (usize::MAX, LARGEST)] {
            let mut text = hosts(1000);
            for i in 0..n {
                let table = format!("[{section}.h{i}]\nmtu = 256\n");
                if text.len() + table.len() > size {
                    break;
                }
                text += &table;
            }
            in_time(&text, section);
        }
        for value in ["1", "{}"] {
            let mut text = format!("{}[{section}]\n", hosts(2));
            for i in 0.. {
                let line = format!("\"link.k{i}\" = {value}\n");
                if text.len() + line.len() > LARGEST / 4 {
                    break;
                }
                text += &line;
            }
            in_time(&text, &format!("{section} {value}"));
        }
    }
}

/// A file that is wrong is refused before long.
#[track_caller]
fn in_time(text: &str, what: &str) {
    let start = std::time::Instant::now();
    match read(text.as_bytes(), &[]) {
        Err(error) => sound(&error),
        Ok(_) => panic!("{what} is right"),
    }
    let took = start.elapsed();
    eprintln!("{what}: {} bytes in {took:?}", text.len());
    assert!(took.as_secs() < 60, "{took:?} for {what}");
}

#[test]
fn extreme_files_are_refused_in_reasonable_time() {
    let many = |line: &str, n: usize| line.repeat(n);
    let numbered = |n: usize| (0..n).map(|i| format!("k{i} = 1\n")).collect::<String>();
    for text in [
        format!("{}a = 1", "a.".repeat(1_000_000)),
        format!("a = {}", "[".repeat(1_000_000)),
        format!("a = {}", "{a=".repeat(100_000)),
        numbered(20_000),
        format!("{} = 1", "k".repeat(4_000_000)),
        many("[[traffic]]\n", 50_000),
        BROAD.replace("[4, 14]", &format!("[{}]", many("1,", 20_000))),
        BROAD.replace("[\"a\", \"b\"]", &format!("[{}]", many("\"a\",", 200_000))),
        BROAD
            .replace("depth = 4", "qps = 65536\ndepth = 32768")
            .replace("\"c\"\noper", "[\"c\", \"a\", \"b\"]\noper"),
        BROAD.replace(
            "name = \"one\"",
            &format!("name = \"one\"\nqps = {}", 1u64 << 40),
        ),
        BROAD.replace("counted", "data").replace("1MiB", "2GiB"),
        BROAD.replace("depth = 4", "qps = 60000"),
        "x".repeat(17 << 20),
    ] {
        let start = std::time::Instant::now();
        match read(text.as_bytes(), &[]) {
            Err(error) => sound(&error),
            Ok(_) => assert!(
                text.contains("qps = 60000"),
                "{}",
                &text[..60.min(text.len())]
            ),
        }
        let took = start.elapsed();
        assert!(
            took.as_secs() < 10,
            "{took:?} for {:?}",
            &text[..60.min(text.len())]
        );
    }
}
