//! The reference in README.md says what the reader knows, no more and no less.

use softroce::format::schema;
use softroce::format::{File, Source};

fn between<'a>(text: &'a str, name: &str) -> (usize, usize, &'a str) {
    let begin = format!("<!-- {name}: begin -->\n");
    let start = text.find(&begin).expect("a begin mark") + begin.len();
    let end = text
        .find(&format!("<!-- {name}: end -->"))
        .expect("an end mark");
    (start, end, &text[start..end])
}

#[test]
fn the_reference_is_that_of_the_reader() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/README.md");
    let mut text = std::fs::read_to_string(path).unwrap();
    let update = std::env::var_os("UPDATE_REFERENCE").is_some();
    for (name, printed) in [
        ("metrics", schema::metrics()),
        ("reference", schema::reference()),
    ] {
        let (start, end, current) = between(&text, name);
        if update {
            text.replace_range(start..end, &printed);
        } else {
            assert!(
                current == printed,
                "the {name} in README.md are out of date: \
                 UPDATE_REFERENCE=1 cargo test -p softroce --test reference"
            );
        }
    }
    if update {
        std::fs::write(path, text).unwrap();
    }
}

/// A file for each condition under which keys mean something, so that together they use every key.
fn hosts() -> &'static [&'static str] {
    &[
        "[topology]\nkind = \"star\"\nhosts = 2\n[[traffic]]\nfrom = \"h0\"\nto = \"h1\"\n\
         operation = \"send\"\nsize = 1\n[[fault]]\nlink = \"h0-s0\"\nKIND\n[[capture]]\nlink = \"h0-s0\"\n\
         [[expect]]\nmetric = \"drops\"\nequals = 0\n",
        "[topology]\nkind = \"explicit\"\nhosts = 2\nswitches = 1\n[[topology.link]]\na = \"h0\"\nb = \"s0\"\n\
         [[topology.link]]\na = \"h1\"\nb = \"s0\"\n\
         [[traffic]]\nfrom = \"h0\"\nto = \"h1\"\noperation = \"send\"\nsize = 1\n",
        "[topology]\nkind = \"fat-tree\"\n[[traffic]]\nfrom = \"h0\"\nto = \"h1\"\n\
         operation = \"send\"\nsize = 1\n",
        "[topology]\nkind = \"dumbbell\"\n[[traffic]]\nfrom = \"l0\"\nto = \"r1\"\n\
         operation = \"send\"\nsize = 1\n",
        "[topology]\nkind = \"star\"\nhosts = 4\n[[traffic]]\npattern = \"shift\"\n\
         operation = \"send\"\nsize = 1\n",
        "[topology]\nkind = \"star\"\nhosts = 4\n[[traffic]]\npattern = \"poisson\"\n\
         operation = \"send\"\nsizes = [[1, 1]]\ncount = 5\n",
        "[topology]\nkind = \"star\"\nhosts = 4\n[[traffic]]\npattern = \"all-reduce\"\n\
         operation = \"write-imm\"\nsize = 1\n",
        "[topology]\nkind = \"star\"\nhosts = 4\n[[traffic]]\npattern = \"parameter-server\"\n\
         operation = \"read\"\nsize = 1\nto = \"h0\"\n",
        "[card]\ncongestion = \"fixed\"\nwindow = 4096\n[topology]\nkind = \"star\"\nhosts = 2\n\
         [[traffic]]\nfrom = \"h0\"\nto = \"h1\"\noperation = \"send\"\nsize = 1\n",
        "[card]\ncongestion = \"dcqcn\"\n[topology]\nkind = \"star\"\nhosts = 2\n\
         [[traffic]]\nfrom = \"h0\"\nto = \"h1\"\noperation = \"send\"\nsize = 1\n",
        "[topology]\nkind = \"leaf-spine\"\n[[traffic]]\nfrom = \"h0\"\nto = \"h1\"\n\
         operation = \"send\"\nsize = 1\n[[route]]\nswitch = \"leaf0\"\nto = \"h0\"\naction = \"flood\"\n\
         [[link-event]]\nlink = \"leaf0-spine0\"\nat = 0\n",
        "[topology]\nkind = \"star\"\nhosts = 2\n[[traffic]]\nfrom = \"h0\"\nto = \"h1\"\n\
         operation = \"send\"\nsize = 1\n[[route]]\nswitch = \"s0\"\nto = \"h0\"\nvia = \"h0-s0\"\n",
    ]
}

/// Every key of the schema is read: a value that no key takes is refused, by name, wherever it is put.
#[test]
fn every_key_of_the_reference_is_read() {
    let sections = [
        ("", ""),
        ("[topology]", "topology."),
        ("[[topology.link]]", "topology.link.0."),
        ("[link]", "link."),
        ("[switch]", "switch."),
        ("[card]", "card."),
        ("[receiver]", "receiver."),
        ("[[route]]", "route.0."),
        ("[[link-event]]", "link-event.0."),
        ("[[traffic]]", "traffic.0."),
        ("[[fault]]", "fault.0."),
        ("[[capture]]", "capture.0."),
        ("[[expect]]", "expect.0."),
    ];
    let kinds = [
        "kind = \"loss\"",
        "kind = \"burst\"",
        "kind = \"every\"",
        "kind = \"exact\"\ntraffic = \"traffic-0\"",
        "action = \"delay\"",
        "action = \"reorder\"",
    ];
    let mut files = Vec::new();
    for text in hosts() {
        for kind in kinds {
            files.push(text.replace("KIND", kind));
        }
    }
    let files: Vec<File> = files
        .into_iter()
        .map(|text| File::parse(Source::new("x.toml", text).unwrap()).unwrap())
        .collect();
    for file in &files {
        file.plan(&[]).unwrap();
    }
    let known = schema::sections();
    for (title, prefix) in sections {
        let section = known.iter().find(|s| s.title == title).unwrap();
        for key in section.keys {
            if matches!(key.kind, schema::Kind::Table(_) | schema::Kind::Tables(_)) {
                continue;
            }
            // A list of flows needs a file beside the scenario, which these are not.
            if (title, key.name) == ("[[traffic]]", "flows") {
                continue;
            }
            // No key takes a date.
            let setting = [format!("{prefix}{}=1979-05-27", key.name)];
            let refused = files.iter().any(|file| match file.plan(&setting) {
                Ok(_) => false,
                Err(e) => e.iter().any(|d| {
                    let names = d.message.starts_with(key.name) || d.message.contains("between");
                    names && d.place == "--set"
                }),
            });
            assert!(refused, "{title} {} is not read", key.name);
        }
    }
}
