//! A page with screens in it.

use std::ops::Range;
use std::path::{Path, PathBuf};

/// How a screen begins: words may follow, the server of which it is (`mysql`, `mariadb-11.8.9`), and `unfit`.
const BEGIN: &str = "```console";
const END: &str = "```";

pub(crate) struct Document {
    path: PathBuf,
    lines: Vec<String>,
}

/// A screen: lines that were typed, which begin with `$ `, and what came.
pub(crate) struct Block {
    /// Where its lines are in the document.
    at: Range<usize>,
    pub(crate) text: String,
    /// The server of which it is; if none is named, of each.
    pub(crate) of: Option<String>,
    /// The server's settings are wrong.
    pub(crate) is_unfit: bool,
}

impl Block {
    /// What was typed.
    pub(crate) fn lines(&self) -> impl Iterator<Item = &str> {
        self.text.lines().filter_map(|line| line.strip_prefix("$ "))
    }
}

impl Document {
    pub(crate) fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).expect("a page");
        Self {
            path: path.to_owned(),
            lines: text.lines().map(str::to_owned).collect(),
        }
    }

    /// Its screens, the last one first, so that one that is replaced moves no other.
    pub(crate) fn blocks(&self) -> Vec<Block> {
        let mut blocks = Vec::new();
        let mut begun: Option<(usize, &str)> = None;
        for (number, line) in self.lines.iter().enumerate() {
            match begun {
                None => begun = line.strip_prefix(BEGIN).map(|words| (number + 1, words)),
                Some((first, words)) if line == END => {
                    let words: Vec<&str> = words.split_whitespace().collect();
                    let of = words.iter().find(|word| **word != "unfit");
                    blocks.push(Block {
                        at: first..number,
                        text: self.lines[first..number].join("\n"),
                        of: of.map(|word| (*word).to_owned()),
                        is_unfit: words.contains(&"unfit"),
                    });
                    begun = None;
                }
                Some(_) => {}
            }
        }
        blocks.reverse();
        blocks
    }

    pub(crate) fn replace(&mut self, block: &Block, screen: &str) {
        let lines = screen.lines().map(str::to_owned);
        self.lines.splice(block.at.clone(), lines);
    }

    pub(crate) fn write(&self) {
        std::fs::write(&self.path, self.lines.join("\n") + "\n").expect("writes the page");
    }
}
