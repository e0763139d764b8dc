// Charts of how long each agent takes to reply, and how often it fails.

import { useRef, useState } from 'preact/hooks';
import { Chart } from './chart.js';
import { countText, durationText, numberOf } from './format.js';
import { html } from './html.js';
import { useAnswer } from './live.js';
import { Empty, Loading, Trouble } from './parts.js';
import { Spans, span } from './spans.js';

const few = 12; // charts that are shown at first

export function AgentCharts({ marked }) {
  const [all, setAll] = useState(false);
  const moves = useRef(false); // time moves what the charts show
  const { data, problem, absent } = useAnswer('/stats', { by: 'agent', from: span.value }, { every: 5000, optional: true, on: ['tasks'], aging: moves.current ? 60_000 : undefined });
  moves.current = data?.agents?.length > 0;
  if (absent) return null;
  const agents = data?.agents ?? [];
  const first = (a, b) => (b.agent === marked) - (a.agent === marked);
  const worst = [...agents].sort((a, b) => first(a, b) || b.total.failures - a.total.failures).slice(0, all ? undefined : few);
  const shown = worst.sort((a, b) => first(a, b) || a.agent.localeCompare(b.agent)); // they keep their places
  return html`<section><div class="title"><h2>Replies over time</h2><${Spans} /></div><${Trouble} text=${problem} />
    ${!data ? !problem && html`<${Loading} what="the charts" />` : agents.length === 0 ? html`<${Empty}>No request to an agent ended in this time.<//>` : html`
    <div class="charts">${shown.map((a) => html`<${AgentChart} key=${a.agent} of=${a} />`)}</div>
    ${agents.length > shown.length && html`<p><button type="button" onClick=${() => setAll(true)}>Show all ${countText(agents.length)} agents</button></p>`}
    ${data.left_off > 0 && html`<p class="quiet">${numberOf(data.left_off, 'agent')} with fewer requests left out.</p>`}`}</section>`;
}

function AgentChart({ of }) {
  const { agent, points, total } = of;
  const x = points.map((p) => Date.parse(p.at) / 1000);
  const latency = (name) => points.map((p) => p.latency?.[name] ?? null);
  const note = `${countText(total.attempts)} ${total.attempts === 1 ? 'request' : 'requests'}, ${countText(total.failures)} failed`;
  return html`<${Chart} title=${agent} note=${note} x=${x} value=${durationText} series=${[['failures', points.map((p) => p.failures), 'failed', countText], ['p50', latency('p50_ms'), 'good'], ['p95', latency('p95_ms'), 'waiting']]} />`;
}
