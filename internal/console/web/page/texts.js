// The words of the page, in one table each.

/** States of tasks, steps, attempts and circuits: the word, and the look, which names the colour and the icon. */
export const states = {
  pending: ['pending', 'pending'],
  processing: ['processing', 'busy'],
  processed: ['processed', 'good'],
  error: ['held', 'held'],
  'step error': ['in error', 'failed'], // of a task that isn't held
  undoing: ['undoing', 'undoing'],
  undone: ['undone', 'undone'],
  cancelled: ['cancelled', 'cancelled'],
  running: ['running', 'busy'],
  failed: ['failed', 'failed'],
  waiting: ['waiting', 'waiting'],
  checking: ['being checked', 'undoing'],
  completed: ['completed', 'good'],
  skipped: ['skipped', 'cancelled'],
  caught: ['caught', 'undone'],
  rejected: ['rejected', 'failed'],
  expired: ['expired', 'failed'],
  closed: ['closed', 'good'],
  'half-open': ['half-open', 'waiting'],
  open: ['open', 'held'],
  unknown: ['unknown', 'pending'],
  'batch running': ['running', 'busy'],
  'batch stopping': ['stopping', 'waiting'],
  'batch done': ['done', 'good'],
  'schedule active': ['active', 'good'],
  'schedule paused': ['paused', 'waiting'],
  'schedule unusable': ['unusable', 'held'],
  'intake running': ['running', 'good'],
  'intake paused': ['paused', 'waiting'],
  'intake stopped': ['no process runs it', 'held'],
  'intake fault': ['unusable', 'held'],
  'batch stopped': ['stopped', 'held'],
  'task waiting': ['waiting', 'pending'],
  'task sent': ['sent', 'busy'],
  'task unanswered': ['unanswered', 'waiting'],
  'task accepted': ['accepted', 'good'],
  'task refused': ['refused', 'cancelled'],
  'task passed': ['passed', 'good'],
  'task recurred': ['recurred', 'held'],
};

/** What became of an attempt, as a check found. */
export const becameTexts = { completed: 'it happened', none: 'nothing happened', unknown: 'the effect is unknown' };

export const taskStates = ['pending', 'processing', 'undoing', 'error', 'processed', 'undone', 'cancelled'];
export const openStates = ['pending', 'processing', 'undoing', 'error'];
export const endedStates = ['processed', 'undone', 'cancelled'];

/** Why a task doesn't advance, as a sentence. at is " at step X", or empty. */
export const reasons = {
  unreadable: (at) => `An event of the task is unreadable${at}.`,
  hold: (at) => `The task is held${at}: it waits for an operator.`,
  no_live_agent: (at) => `No process reads the agent's requests${at}.`,
  capacity: (at) => `The agent has reached its concurrency limit${at}: the step waits.`,
  queue: (at) => `The request is sent${at}; the agent may not have read it yet.`,
  at_work: (at) => `The agent has the request${at}.`,
  waiting_timer: (at) => `A step waits for its instant${at}.`,
  waiting_signal: (at) => `A step waits for a signal${at}.`,
  waiting_child: (at) => `A step waits for its child${at}.`,
  waiting_items: (at) => `A step waits for its items${at}.`,
  child_held: (at) => `A child is held${at}.`,
  waiting_repeat: (at) => `A step that polls waits for its next call${at}.`,
  waiting_retry: (at) => `The task waits for the next attempt${at}.`,
  cool_down: (at) => `The task waits for its cool-down before one more attempt${at}.`,
  upstream_step: (at) => `Another step must be done first${at}.`,
};

/** What a command does, before it is sent. */
export const commandTexts = {
  resubmit: 'Run the held step again, with a failure count of 0.',
  release: 'Record that a held step was completed or undone by hand.',
  undo: 'Undo the completed steps of the task.',
  undo_processed: 'Undo the completed steps of a task that has ended: refund it. The task ends as undone.',
  cancel: 'Start no further steps, undo the completed ones, and end the task.',
};

/** Why a state doesn't allow a command. */
export const refusals = {
  resubmit: 'Only a held task can be resubmitted.',
  release: 'Only a step of a held task can be released.',
  undo: 'A task that is undoing, undone or cancelled can\'t be undone.',
  cancel: 'The task has ended.',
};

export const lacks = {
  behind: (i) => `the console hasn't read partition ${i.partition} to its end`,
  no_leader: (i) => `partition ${i.partition} has no leader, or it does not answer`,
  restoring: (i, share) => `the index of partition ${i.partition} is being restored, ${share} done`,
};

export const keysHelp = [
  ['j', 'next row'],
  ['k', 'previous row'],
  ['x', 'select the row'],
  ['Enter', 'open the row'],
  ['/', 'go to the filter'],
  ['t', 'show times as local, relative, UTC'],
  ['g n', 'Now'],
  ['g t', 'Tasks'],
  ['g h', 'Held'],
  ['g b', 'Batches'],
  ['g w', 'Workflows'],
  ['g a', 'Agents'],
  ['g d', 'Dead letters'],
  ['g l', 'Log'],
  ['g s', 'Submit a task'],
  ['?', 'this help'],
  ['Esc', 'close, or leave the field'],
];
