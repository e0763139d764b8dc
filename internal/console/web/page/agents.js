// Agents: who reads their requests, how far, and how long they take to reply.

import { AgentCharts } from './agentcharts.js';
import { html } from './html.js';
import { countText } from './format.js';
import { useAnswer } from './live.js';
import { Incomplete, Loading, State, Table, Trouble } from './parts.js';
import { route, tasksAddress, term } from './route.js';

const columns = [
  { head: 'Agent', kind: 'name', cell: (a) => html`<a data-open href=${tasksAddress(term('agent', a.agent))}>${a.agent}</a>` },
  { head: 'Circuit', cell: (a) => html`<${State} name=${a.circuit} />` },
  { head: 'Members', kind: 'number', cell: (a) => (a.members === 0 ? html`<b class="error">0</b>` : countText(a.members)) },
  { head: 'In flight', kind: 'number', cell: (a) => countText(a.in_flight) },
  { head: 'Lag', kind: 'number', cell: (a) => countText(a.lag) },
  { head: 'Partitions', kind: 'number', cell: (a) => countText(a.partitions) },
];

/** What is wrong with an agent, and what to do. */
function advice(a) {
  if (a.members === 0) return 'no process reads its requests. Start the agent.';
  if (a.circuit === 'open') return 'its calls fail, so its circuit breaker is open. Check the service that it calls.';
  if (a.circuit === 'half-open') return 'its circuit breaker is half-open: it tries a few calls.';
  return '';
}

function Advice({ agents }) {
  const bad = agents.filter(advice);
  if (agents.length === 0) return null;
  if (bad.length === 0) return html`<p class="sentence"><span class="fine">No agent needs attention.</span></p>`;
  return bad.map((a) => html`<p key=${a.agent} class="sentence"><b class=${a.circuit === 'half-open' ? 'late' : 'error'}>${a.agent}</b>: ${advice(a)}</p>`);
}

export function Agents() {
  const { data, problem } = useAnswer('/agents', {}, { every: 3000, on: ['agents', 'tasks'] });
  const marked = route.value.params.get('agent');
  return html`<${Trouble} text=${problem} /><${Incomplete} answer=${data} />${data ? html`<${Advice} agents=${data.agents} /><${Table} label="Agents" columns=${columns} rows=${data.agents} keyOf=${(a) => a.agent} rowClass=${(a) => (a.agent === marked ? 'chosen' : '')} none="No workflow definition names an agent." />` : !problem && html`<${Loading} what="agents" />`}
    ${data?.agents.length > 0 && html`<${AgentCharts} marked=${marked} />`}`;
}
