//! All states that can be reached, and what can be reached from each.

use std::collections::HashMap;

use super::model::{Kind, Rules, State, Steps};

/// All states, and the steps between them.
pub struct Graph {
    pub states: Vec<State>,
    /// From, how, to.
    pub edges: Vec<(u32, Kind, u32)>,
    /// By state, from where it was reached first.
    from: Vec<u32>,
}

fn index(state: usize) -> u32 {
    u32::try_from(state).expect("not so many states")
}

impl Graph {
    /// Breadth first, so that the first way to a state is a shortest one. It ends early at a state that `stops`.
    pub fn of(
        rules: &Rules,
        readers: usize,
        writers: usize,
        stops: impl Fn(&State) -> bool,
    ) -> (Self, Option<u32>) {
        let steps = Steps {
            rules,
            readers,
            writers,
        };
        let first = State::first();
        let mut graph = Self {
            states: vec![first],
            edges: Vec::new(),
            from: vec![0],
        };
        let mut known = HashMap::from([(first, 0_u32)]);
        let mut at = 0;
        while at < graph.states.len() {
            let state = graph.states[at];
            if stops(&state) {
                return (graph, Some(index(at)));
            }
            steps.each(&state, |kind, next| {
                let to = *known.entry(next).or_insert_with(|| {
                    graph.states.push(next);
                    graph.from.push(index(at));
                    index(graph.states.len() - 1)
                });
                graph.edges.push((index(at), kind, to));
            });
            at += 1;
        }
        (graph, None)
    }

    /// A shortest way to a state.
    pub fn way(&self, mut to: u32) -> Vec<State> {
        let mut way = vec![self.states[to as usize]];
        while to != 0 {
            to = self.from[to as usize];
            way.push(self.states[to as usize]);
        }
        way.reverse();
        way
    }

    /// A state from which no `goal` can be reached by steps that `may` be made.
    pub fn stuck(
        &self,
        goal: impl Fn(&State) -> bool,
        may: impl Fn(&State, Kind) -> bool,
    ) -> Option<u32> {
        let mut before: Vec<Vec<u32>> = vec![Vec::new(); self.states.len()];
        for (from, kind, to) in &self.edges {
            if may(&self.states[*from as usize], *kind) {
                before[*to as usize].push(*from);
            }
        }
        let mut reaches: Vec<bool> = self.states.iter().map(goal).collect();
        let all = 0..index(self.states.len());
        let mut open: Vec<u32> = all.clone().filter(|at| reaches[*at as usize]).collect();
        while let Some(at) = open.pop() {
            for from in &before[at as usize] {
                if !std::mem::replace(&mut reaches[*from as usize], true) {
                    open.push(*from);
                }
            }
        }
        all.into_iter().find(|at| !reaches[*at as usize])
    }
}
