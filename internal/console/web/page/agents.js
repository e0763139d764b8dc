// Agents: who reads their requests, and how far.

import { html } from './html.js';
import { countText } from './format.js';
import { useAnswer } from './live.js';
import { Incomplete, Loading, State, Table, Trouble } from './parts.js';
import { route, tasksAddress, term } from './route.js';

const columns = [
  { head: 'Agent', kind: 'name', cell: (a) => html`<a data-open href=${tasksAddress(term('agent', a.agent))}>${a.agent}</a>` },
  { head: 'Members', kind: 'number', cell: (a) => (a.members === 0 ? html`<b class="error">0</b>` : countText(a.members)) },
  { head: 'In flight', kind: 'number', cell: (a) => countText(a.in_flight) },
  { head: 'Lag', kind: 'number', cell: (a) => countText(a.lag) },
  { head: 'Partitions', kind: 'number', cell: (a) => countText(a.partitions) },
  { head: 'Circuit', cell: (a) => html`<${State} name=${a.circuit} />` },
  { head: 'What to do', kind: 'text', cell: (a) => advice(a) },
];

function advice(a) {
  if (a.members === 0) return 'Nobody reads its requests: start the agent.';
  if (a.circuit === 'open') return 'Its calls fail, and it pauses them: look at the service that it calls.';
  if (a.circuit === 'half-open') return 'It tries a few calls after a pause.';
  return html`<span class="faint">nothing</span>`;
}

export function Agents() {
  const { data, problem } = useAnswer('/agents', {}, { every: 3000 });
  const marked = route.value.params.get('agent');
  return html`<${Trouble} text=${problem} /><${Incomplete} answer=${data} />${data ? html`<${Table} label="Agents" columns=${columns} rows=${data.agents} keyOf=${(a) => a.agent} rowClass=${(a) => (a.agent === marked ? 'chosen' : '')} none="No workflow definition names an agent." />` : !problem && html`<${Loading} what="agents" />`}`;
}
