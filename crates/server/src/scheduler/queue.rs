//! Decides which task is next.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use super::task::AnswerTask;

/// Tasks that wait for a sequence.
#[derive(Default)]
pub(super) struct Queue {
    tasks: Vec<AnswerTask>,
    /// For each client, when one of its tasks was last admitted. Only clients with tasks here are kept.
    last_served: HashMap<Arc<str>, u64>,
    n_served: u64,
}

impl Queue {
    pub(super) fn push(&mut self, task: AnswerTask) {
        self.tasks.push(task);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    pub(super) fn tasks(&self) -> &[AnswerTask] {
        &self.tasks
    }

    /// The index of the task to admit next, among those that may be admitted. The lowest priority number comes first,
    /// then tasks that ran before and were preempted. Then comes the client with the fewest running tasks, among
    /// equals the one served longest ago. Its oldest task is chosen.
    pub(super) fn next(
        &self,
        running: &[AnswerTask],
        may_go: impl Fn(&AnswerTask) -> bool,
    ) -> Option<usize> {
        let mut n_running: HashMap<&str, usize> = HashMap::new();
        for task in running {
            *n_running.entry(&task.job.client).or_default() += 1;
        }
        let rank = |task: &AnswerTask| {
            let client: &str = &task.job.client;
            (
                task.job.priority,
                Reverse(task.was_admitted()),
                n_running.get(client).copied().unwrap_or(0),
                self.last_served.get(client).copied().unwrap_or(0),
                task.job.arrival,
                task.choice,
            )
        };
        (0..self.tasks.len())
            .filter(|i| may_go(&self.tasks[*i]))
            .min_by_key(|i| rank(&self.tasks[*i]))
    }

    /// Takes a task out to run it.
    pub(super) fn take(&mut self, index: usize) -> AnswerTask {
        let task = self.tasks.remove(index);
        self.n_served += 1;
        self.last_served
            .insert(Arc::clone(&task.job.client), self.n_served);
        let waiting = |client: &str| self.tasks.iter().any(|task| *task.job.client == *client);
        if self.last_served.len() > 2 * self.tasks.len() + 64 {
            self.last_served.retain(|client, _| waiting(client));
        }
        task
    }

    /// Removes all tasks for which `gone` holds.
    pub(super) fn drain_if(&mut self, gone: impl Fn(&AnswerTask) -> bool) -> Vec<AnswerTask> {
        self.tasks.extract_if(.., |task| gone(task)).collect()
    }
}
