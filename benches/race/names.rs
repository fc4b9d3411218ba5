//! Which names the tasks of a heat use.

use crate::dice::Dice;

/// How names are given to tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// Each task has one name of its own.
    Own,
    /// Each use is of a name that was never used.
    Fresh,
    /// All tasks have the same name.
    One,
    /// Each task draws from its own part of the first so many names of a filled table.
    Filled(u64),
}

/// The names of one task.
pub struct NameSource {
    names: Names,
    fixed: String,
    /// Tells the names of this task from those of all other tasks and times.
    series: u64,
    used: u64,
    task: u64,
    tasks: u64,
    dice: Dice,
}

impl Names {
    /// Those of task `task` of `tasks`; `process` keeps the tasks of several processes apart.
    pub fn of(self, process: u32, task: usize, tasks: usize) -> NameSource {
        let fixed = match self {
            Self::Own => format!("own-{process}-{task}"),
            Self::One => "one".to_owned(),
            Self::Fresh | Self::Filled(_) => String::new(),
        };
        let mut dice = Dice::new();
        NameSource {
            names: self,
            fixed,
            series: dice.below(u64::MAX),
            used: 0,
            task: task as u64,
            tasks: tasks as u64,
            dice,
        }
    }
}

impl NameSource {
    /// The name for the next operation.
    pub fn next(&mut self) -> &str {
        match self.names {
            Names::Filled(count) => {
                let draw = self.dice.below(count / self.tasks) * self.tasks + self.task;
                self.fixed = format!("grow-{draw}");
            }
            Names::Fresh => {
                self.used += 1;
                self.fixed = format!("new-{:x}-{}", self.series, self.used);
            }
            Names::Own | Names::One => {}
        }
        &self.fixed
    }
}
