// The filter of tasks as text, and its terms. The server parses filters; this only splits and joins terms.

/** The terms of a filter as they were written, with their quotes. */
export function splitTerms(text) {
  return text.match(/(?:"(?:[^"\\]|\\.)*"|[^\s"])+/g) ?? [];
}

/** The name of a term. */
export const nameOf = (term) => term.replace(/^"/, '').split(':', 1)[0];

/** The value of a term that has no spaces. */
export const valueOf = (term) => term.replaceAll('"', '').slice(nameOf(term).length + 1);

/** The filter without terms of a name, and with another one instead if it isn't empty. */
export function withTerm(text, name, term) {
  const rest = splitTerms(text).filter((t) => nameOf(t) !== name);
  return (term ? [...rest, term] : rest).join(' ');
}

/** The filter without one term. */
export const without = (text, term) => splitTerms(text).filter((t) => t !== term).join(' ');

/** What the last word of a filter can become: terms, and values that the system has. */
export function completions(text, { workflows = [], agents = [], states, labels = [] }) {
  const word = /[^\s]*$/.exec(text)[0];
  const names = [...new Set(workflows.map((w) => w.workflow))];
  const all = [
    ...states.map((s) => `state:${s}`),
    ...names.map((w) => `workflow:${w}`),
    ...workflows.map((w) => `workflow:${w.workflow}/${w.version}`),
    ...[...new Set(workflows.flatMap((w) => w.steps))].map((s) => `step_in_error:${s}`),
    ...agents.map((a) => `agent:${a}`),
    ...labels.map(([k, v]) => `label:${k}=${v}`),
    'since:10m', 'since:1h', 'since:24h', 'until:10m', 'due_within:5m', 'due_within:1h',
  ];
  if (word === '') return ['id:', 'state:', 'workflow:', 'label:', 'step_in_error:', 'agent:', 'since:', 'until:', 'due_within:'];
  return all.filter((c) => c.startsWith(word) && c !== word).slice(0, 12);
}
