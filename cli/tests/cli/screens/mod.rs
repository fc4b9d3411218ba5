//! The screens of docs/cli.md are real: each block of `console` is run, line by line, as a user types it, and what comes out is what
//! stands there. So is the picture of `top`. `TAG_LOCK_GOLDEN=write` writes what came out into the documents:
//!
//! ```sh
//! for server in mariadb-11.8 mysql; do
//!     TAG_LOCK_GOLDEN=write TAG_LOCK_SERVER=$server scripts/with-mysql cargo test --test cli screens
//! done
//! ```
//!
//! Some screens are of a server whose settings are wrong, so no other test has a database meanwhile.

mod changing;
mod document;
mod picture;
mod session;

use std::path::{Path, PathBuf};

use self::changing::same;
use self::document::{Block, Document};
use self::session::Session;
use crate::rig::until;
use crate::server::{Alone, TestDatabase};
use crate::support::{connect, is_mariadb, number, server_url};
use crate::terminal::Terminal;
use crate::unfit::Unfit;

const WRITE: &str = "TAG_LOCK_GOLDEN=write scripts/with-mysql cargo test --test cli screens";

/// The size of the terminal of the picture, in columns and lines.
const COLUMNS: u16 = 120;
const LINES: u16 = 10;

/// What is running when the picture is taken; the last one begins when `top` does.
const SCENE: [&str; 6] = [
    "tag-lock run backup:orders --description 'nightly snapshot' -- sleep 600 &",
    "tag-lock run invoices --description 'invoices of November' -- sleep 600 &",
    "tag-lock run invoices --wait 1h -- ./send-invoices &",
    "tag-lock run prices --shared -- ./import-prices &",
    "tag-lock run report:daily --hold-at-least 1h -- true",
    "tag-lock run search-index -- sleep 600 &",
];

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
}

fn is_to_write() -> bool {
    std::env::var("TAG_LOCK_GOLDEN").is_ok_and(|value| value == "write")
}

/// Whether a screen is of the server that is there: of `mysql` or `mariadb`, or of one of its versions, `mariadb-11.8.9`.
async fn is_of_this_server(of: &str) -> bool {
    let (kind, version) = of.split_once('-').unwrap_or((of, ""));
    let mut connection = connect(&server_url()).await;
    let sql = format!("SELECT VERSION() LIKE '{version}%'");
    (kind == "mariadb") == is_mariadb() && number(&mut connection, &sql).await == 1
}

/// Runs the lines of a block, and gives the screen.
async fn screen(block: &Block, alone: &Alone) -> String {
    let database = alone.database().await;
    let unfit = if block.is_unfit {
        Some(Unfit::make(alone).await)
    } else {
        None
    };
    let mut session = Session::begin(&database).await;
    for line in block.lines() {
        session.enter(line).await;
    }
    let screen = session.end();
    drop(unfit);
    database.remove().await;
    screen
}

/// One test: no screen is to show what another one has changed.
#[tokio::test(flavor = "multi_thread")]
async fn the_screens_are_what_the_command_prints() {
    let alone = Alone::on_the_server().await;
    let mut wrong = Vec::new();
    for page in ["cli.md"] {
        let mut document = Document::read(&docs().join(page));
        let blocks = document.blocks();
        assert!(!blocks.is_empty(), "{page} has no screens");
        for block in blocks {
            if let Some(of) = &block.of
                && !is_of_this_server(of).await
            {
                println!("not run, it is of {of}: {:?}", block.lines().next());
                continue;
            }
            let screen = screen(&block, &alone).await;
            if same(&screen, &block.text) {
                continue;
            }
            wrong.push(format!("{page} says\n{}\nbut it is\n{screen}", block.text));
            document.replace(&block, &screen);
        }
        if is_to_write() {
            document.write();
        }
    }
    let picture = picture_of_top(alone.database().await).await;
    let path = docs().join("top.svg");
    let shown = std::fs::read_to_string(&path).unwrap_or_default();
    if !same(&picture, &shown) {
        let differences = changing::differences(&picture, &shown);
        wrong.push(format!(
            "{} shows something else:\n{differences}",
            path.display()
        ));
        if is_to_write() {
            std::fs::write(&path, picture).unwrap();
        }
    }
    assert!(
        wrong.is_empty() || is_to_write(),
        "{}\nto write what is so: {WRITE}",
        wrong.join("\n")
    );
}

/// What a terminal shows while `top` runs.
async fn picture_of_top(database: TestDatabase) -> String {
    let mut session = Session::begin(&database).await;
    let (last, before) = SCENE.split_last().unwrap();
    for line in before {
        session.enter(line).await;
    }
    let line = format!("stty cols {COLUMNS} rows {LINES}; \"$T\" top --every 100ms");
    let mut terminal = Terminal::run(&database, &line);
    terminal.until_shown("report:daily");
    session.enter(last).await;
    // It is drawn when it has two times shown the same, all of it.
    let mut last = None;
    let shown = until("the screen", || {
        let shown = picture::Screen::of(&terminal.printed(), LINES, COLUMNS);
        let text = changing::steady(&shown.text());
        let is_whole = ["search-index", "5 taken, 1 wanted", "q leaves"]
            .iter()
            .all(|part| text.contains(part));
        let is_drawn = is_whole && last.as_ref() == Some(&text);
        last = Some(text);
        is_drawn.then_some(shown)
    });
    terminal.press("q");
    assert_eq!(terminal.exit_code(), 0);
    session.end();
    database.remove().await;
    shown.svg(&changing::anywhere)
}
