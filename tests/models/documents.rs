//! README.md, CONTRIBUTING.md, torture/README.md, docs/*.md and docs/records/*.md: their links lead somewhere, what they name exists, and the README stays short. No server.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use pulldown_cmark::{BrokenLink, Event, Options, Parser, Tag, TagEnd};

const README_LINES: usize = 120;
const README_COLUMNS: usize = 100;

/// Where files of the repository are, as prose names them.
const FOLDERS: [&str; 9] = [
    "benches/",
    "cli/",
    "docs/",
    "examples/",
    "migrations/",
    "scripts/",
    "src/",
    "tests/",
    "torture/",
];

/// The options of `cargo` that name a file, with the folders in which it may be.
const TARGETS: [(&str, &[&str]); 3] = [
    ("--example", &["examples", "benches/race/examples"]),
    ("--test", &["tests", "cli/tests"]),
    ("--bench", &["benches"]),
];

/// The columns of tables whose words of code are files, with the folder in which they are.
const COLUMNS: [(&str, &str); 4] = [
    ("example", "examples"),
    ("test", "tests"),
    ("tests in tests/", "tests"),
    ("kept away by", "tests"),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// What a page says, as far as it can be checked.
#[derive(Default)]
struct Page {
    /// Where its links and pictures lead.
    links: Vec<String>,
    /// Links in brackets that no line defines.
    undefined: Vec<String>,
    /// What its headings are linked by.
    anchors: Vec<String>,
    /// Its words of code, and those of its blocks of code.
    code: Vec<String>,
    /// Words of code in tables, with the heading of their column.
    cells: Vec<(String, String)>,
}

impl Page {
    fn read(text: &str) -> Self {
        let mut page = Self::default();
        let undefined = &mut page.undefined;
        let note = |link: BrokenLink<'_>| {
            undefined.push(link.reference.to_string());
            None
        };
        let parser =
            Parser::new_with_broken_link_callback(text, Options::ENABLE_TABLES, Some(note));
        let events: Vec<Event<'_>> = parser.collect();
        let mut heading = None;
        let mut block = false;
        // The titles of a table's columns; the cell that is read, and its column.
        let mut titles: Vec<String> = Vec::new();
        let (mut cell, mut column) = (None, 0);
        let mut in_head = false;
        for event in events {
            match event {
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    page.links.push(dest_url.to_string());
                }
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => {
                    page.anchors.push(anchor(&heading.take().unwrap()));
                }
                Event::Start(Tag::CodeBlock(_)) => block = true,
                Event::End(TagEnd::CodeBlock) => block = false,
                Event::Start(Tag::TableHead) => in_head = true,
                Event::End(TagEnd::TableHead) => in_head = false,
                Event::Start(Tag::TableRow) => column = 0,
                Event::Start(Tag::TableCell) => cell = Some(String::new()),
                Event::End(TagEnd::TableCell) if in_head => titles.push(cell.take().unwrap()),
                Event::End(TagEnd::TableCell) => column += 1,
                Event::End(TagEnd::Table) => titles.clear(),
                Event::Text(text) if block => page.code.push(text.to_string()),
                Event::Text(text) => {
                    for into in [&mut heading, &mut cell].into_iter().flatten() {
                        into.push_str(&text);
                    }
                }
                Event::Code(code) => {
                    if let Some(title) = titles.get(column).filter(|_| !in_head) {
                        page.cells.push((title.clone(), code.to_string()));
                    }
                    for into in [&mut heading, &mut cell].into_iter().flatten() {
                        into.push_str(&code);
                    }
                    page.code.push(code.to_string());
                }
                _ => {}
            }
        }
        page
    }
}

/// What a heading is linked by.
fn anchor(heading: &str) -> String {
    let kept = heading
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c })
        .collect::<String>()
        .to_lowercase()
}

/// All pages by their files.
fn pages() -> HashMap<PathBuf, Page> {
    let folders = ["docs", "docs/records"].map(|folder| std::fs::read_dir(root().join(folder)));
    folders
        .into_iter()
        .flat_map(Result::unwrap)
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension().is_some_and(|it| it == "md"))
        .chain(["README.md", "CONTRIBUTING.md", "torture/README.md"].map(|file| root().join(file)))
        .map(|path| {
            let text = std::fs::read_to_string(&path).unwrap();
            (path.canonicalize().unwrap(), Page::read(&text))
        })
        .collect()
}

/// Fails with all that is wrong, in the pages' order.
fn expect_none(mut wrong: Vec<String>) {
    wrong.sort();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn wrong(file: &Path, what: &str) -> String {
    let file = file.strip_prefix(root().canonicalize().unwrap()).unwrap();
    format!("{}: {what}", file.display())
}

#[test]
fn the_readme_is_short() {
    let text = std::fs::read_to_string(root().join("README.md")).unwrap();
    let lines = text.lines().count();
    assert!(lines <= README_LINES, "README.md has {lines} lines");
    for (number, line) in (1..).zip(text.lines()) {
        let columns = line.chars().count();
        assert!(
            columns <= README_COLUMNS,
            "README.md:{number} has {columns} columns"
        );
    }
}

#[test]
fn links_lead_to_what_exists() {
    let pages = pages();
    let mut faults = Vec::new();
    for (file, page) in &pages {
        for label in &page.undefined {
            faults.push(wrong(file, &format!("no line defines [{label}]")));
        }
        for link in &page.links {
            if link.starts_with("https://") {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() {
                Ok(file.clone())
            } else {
                file.parent().unwrap().join(path).canonicalize()
            };
            let there = target.is_ok_and(|target| {
                anchor.is_empty()
                    || pages
                        .get(&target)
                        .is_some_and(|page| page.anchors.iter().any(|one| one == anchor))
            });
            if !there {
                faults.push(wrong(file, &format!("{link} does not exist")));
            }
        }
    }
    expect_none(faults);
}

/// The crate's own pages, each with the text of all that it includes.
fn pages_of_the_crate() -> Vec<(PathBuf, String)> {
    let sources = ["src/lib.rs", "src/docs/mod.rs"].map(|source| root().join(source));
    let mut pages = Vec::new();
    for source in sources {
        let text = std::fs::read_to_string(&source).unwrap();
        // What stands before `pub mod cli` is about it; what stands before the first module of lib.rs is about the crate.
        for about in text.split("mod ") {
            let included = about.split("include_str!(\"").skip(1);
            let files: Vec<PathBuf> = included
                .map(|rest| source.with_file_name(rest.split('"').next().unwrap()))
                .collect();
            let texts = files.iter().map(std::fs::read_to_string);
            if let Some(page) = files.last() {
                let text: String = texts.map(Result::unwrap).collect();
                pages.push((page.canonicalize().unwrap(), text));
            }
        }
    }
    pages
}

/// In the crate's own pages there are no files to link to: `src/docs/links.md`, read first, says where a link leads there, and a
/// file for each picture has its bytes.
#[test]
fn links_and_pictures_work_in_the_crates_pages() {
    let of_the_crate = pages_of_the_crate();
    let mut faults = Vec::new();
    for file in pages().into_keys() {
        let is_page = of_the_crate.iter().any(|(page, _)| *page == file);
        let is_apart = ["CONTRIBUTING.md", "docs/releasing.md", "torture/README.md"]
            .iter()
            .any(|apart| file.ends_with(apart));
        if !is_page && !is_apart {
            faults.push(wrong(&file, "src/docs/mod.rs lacks it"));
        }
    }
    for (file, text) in &of_the_crate {
        for link in Page::read(text).links {
            let works = ["crate::", "https://", "data:", "#"];
            if !works.iter().any(|begin| link.starts_with(begin)) {
                faults.push(wrong(file, &format!("src/docs/ lacks [{link}]: …")));
            }
        }
    }
    expect_none(faults);
}

/// `name` is a file of Rust in `folder`, or a folder with a `main.rs`.
fn is_target(folder: &str, name: &str) -> bool {
    let folder = root().join(folder);
    folder.join(name).with_extension("rs").is_file() || folder.join(name).join("main.rs").is_file()
}

/// `name` is a module of a test program.
fn is_subject(name: &str) -> bool {
    let programs = std::fs::read_dir(root().join("tests")).unwrap();
    let programs = programs.map(|program| program.unwrap().path());
    programs
        .filter(|program| program.join("main.rs").is_file())
        .any(|program| {
            let module = program.join(name);
            module.with_extension("rs").is_file() || module.join("mod.rs").is_file()
        })
}

#[test]
fn files_that_are_named_exist() {
    let mut faults = Vec::new();
    for (file, page) in &pages() {
        for word in page.code.iter().flat_map(|code| code.split_whitespace()) {
            let is_path = FOLDERS.iter().any(|folder| word.starts_with(folder));
            if is_path && !root().join(word).exists() {
                faults.push(wrong(file, &format!("{word} does not exist")));
            }
        }
        for code in &page.code {
            let words: Vec<&str> = code.split_whitespace().collect();
            for pair in words.windows(2) {
                let named = TARGETS.iter().find(|(option, _)| *option == pair[0]);
                // In capitals stands what a reader puts in.
                let Some((option, folders)) = named else {
                    continue;
                };
                let exists = folders.iter().any(|folder| is_target(folder, pair[1]));
                if pair[1] != "NAME" && !exists {
                    faults.push(wrong(file, &format!("{option} {} does not exist", pair[1])));
                }
            }
        }
        for (title, name) in &page.cells {
            let named = COLUMNS.iter().find(|(column, _)| column == title);
            let is_name = name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
            if let Some((_, folder)) = named
                && is_name
                && !is_target(folder, name)
                && !(*folder == "tests" && is_subject(name))
            {
                faults.push(wrong(file, &format!("{folder}/{name} does not exist")));
            }
        }
    }
    expect_none(faults);
}

/// The crate's own pages hold pictures of docs/ themselves: rustdoc takes no files along.
#[test]
fn the_pictures_of_the_crates_pages_are_the_documents() {
    let pictures = [
        ("race-summary.svg", "race"),
        ("race.svg", "whole-race"),
        ("top.svg", "top"),
    ];
    for (picture, name) in pictures {
        let bytes = std::fs::read(root().join("docs").join(picture)).unwrap();
        let encoded = BASE64_STANDARD.encode(bytes);
        let definition = format!("[{name}]: data:image/svg+xml;base64,{encoded}\n");
        let path = root().join("src/docs").join(name).with_extension("md");
        if std::env::var("TAG_LOCK_GOLDEN").is_ok_and(|value| value == "write") {
            std::fs::write(&path, &definition).unwrap();
        }
        assert!(
            std::fs::read_to_string(&path).unwrap_or_default() == definition,
            "docs/{picture} has changed: run TAG_LOCK_GOLDEN=write cargo test --test models documents::"
        );
    }
}

#[test]
fn each_feature_is_documented() {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let (_, features) = manifest.split_once("[features]\n").unwrap();
    let features = features.lines().take_while(|line| !line.starts_with('['));
    let names: Vec<&str> = features
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(" = "))
        .map(|(name, _)| name)
        .filter(|name| *name != "default")
        .collect();
    assert!(names.contains(&"metrics"), "{names:?}");
    let page = Page::read(&std::fs::read_to_string(root().join("docs/operations.md")).unwrap());
    let documented = page.cells.iter().filter(|(title, _)| title == "feature");
    let documented: Vec<&str> = documented.map(|(_, name)| name.as_str()).collect();
    assert_eq!(documented, names);
}
