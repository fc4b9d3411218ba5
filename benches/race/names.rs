//! Which names the tasks of a heat use.

use crate::dice::Dice;

/// How names are given to tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// Each task has one name of its own.
    Own,
    /// All tasks have the same name.
    One,
    /// Each task draws from its own part of the first so many names of a filled table.
    Filled(u64),
}

/// The names of one task.
pub struct NameSource {
    names: Names,
    fixed: String,
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
            Self::Filled(_) => String::new(),
        };
        NameSource {
            names: self,
            fixed,
            task: task as u64,
            tasks: tasks as u64,
            dice: Dice::new(),
        }
    }
}

impl NameSource {
    /// The name for the next operation.
    pub fn next(&mut self) -> &str {
        if let Names::Filled(count) = self.names {
            let draw = self.dice.below(count / self.tasks) * self.tasks + self.task;
            self.fixed = format!("grow-{draw}");
        }
        &self.fixed
    }
}
