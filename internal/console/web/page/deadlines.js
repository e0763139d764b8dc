// Tasks that must end soon, the soonest first, with an estimate of whether they will.

import { html } from './html.js';
import { coarse, countText, durationText, numberOf } from './format.js';
import { useAnswer } from './live.js';
import { Incomplete, Instant, Loading, Table, TaskLink, Trouble } from './parts.js';
import { address, route } from './route.js';

const spans = ['10m', '1h', '24h'];

const columns = [
  { head: 'Task', kind: 'id', cell: (t) => html`<${TaskLink} id=${t.id} />` },
  { head: 'Workflow', kind: 'name', cell: (t) => html`<a href=${address(['workflows', t.workflow, String(t.version)])}>${t.workflow}/${t.version}</a>` },
  { head: 'Complete by', cell: (t) => html`<${Instant} at=${t.complete_by} />` },
  { head: 'Predicted end', cell: (t) => t.prediction && html`<${Instant} at=${t.prediction.ends_at} />` },
  { head: 'Margin', kind: 'number', cell: (t) => t.prediction && html`<${Margin} prediction=${t.prediction} by=${t.complete_by} />` },
  { head: 'Critical path', kind: 'text', cell: (t) => t.prediction?.critical_path.join(', ') },
  { head: 'Samples', kind: 'number', cell: (t) => t.prediction && countText(t.prediction.samples) },
];

/** The time between the predicted end and the deadline. */
function Margin({ prediction, by }) {
  const ms = Date.parse(by) - Date.parse(prediction.ends_at);
  return ms < 0 ? html`<span class=${prediction.misses ? 'error' : ''}>${coarse(-ms)} late</span>` : durationText(ms);
}

/** What a prediction says, as one sentence. */
export function Predicted({ prediction: p, by }) {
  if (!p) return null;
  const late = Date.parse(p.ends_at) - Date.parse(by);
  return html`<span class=${`predicted${p.misses ? ' error' : ''}`}>${p.misses ? `Will probably miss it by ${coarse(late)}: predicted end ` : 'Predicted end '}<${Instant} at=${p.ends_at} />
    <span class="quiet"> by ${p.critical_path.join(', ')}; ${countText(p.samples)} ${p.samples === 1 ? 'sample' : 'samples'}${p.without_samples ? `, none for ${p.without_samples.join(', ')}` : ''}</span></span>`;
}

export function Deadlines() {
  const { params } = route.value;
  const within = params.get('within') ?? '1h';
  const all = params.get('all') === 'true';
  const p = useAnswer('/predictions', { within, will_miss: !all || undefined }, { every: 5000, on: ['tasks'], aging: 10_000 });
  return html`<div class="title"><div class="views" role="group" aria-label="Span">${spans.map((s) => html`<a key=${s} class="chip" aria-current=${s === within ? 'true' : undefined} href=${address(['deadlines'], { within: s, all })}>within ${s}</a>`)}</div>
      <div class="views" role="group" aria-label="Tasks"><a class="chip" aria-current=${!all ? 'true' : undefined} href=${address(['deadlines'], { within })}>will miss</a><a class="chip" aria-current=${all ? 'true' : undefined} href=${address(['deadlines'], { within, all: true })}>all</a></div></div>
    <${Trouble} text=${p.problem} /><${Incomplete} answer=${p.data} />
    ${!p.data ? !p.problem && html`<${Loading} what="tasks" />` : html`
      ${p.data.looked_at > 0 && html`<p>${countText(p.data.will_miss)} of ${numberOf(p.data.looked_at, 'task')} ${p.data.looked_at_all ? '' : 'that must end first '}will probably miss their deadline.${p.data.unpredicted > 0 && ` No estimate for ${countText(p.data.unpredicted)}.`}
        <span class="quiet"> The estimate uses the 95th percentile of each remaining step's durations in the last 7 to 14 days.</span></p>`}
      <${Table} label="Tasks that must end soon" columns=${columns} rows=${p.data.tasks} keyOf=${(t) => t.id} none=${all ? 'No task that is being processed must end within this time.' : 'No task will miss its deadline, as far as that can be estimated.'} />`}`;
}
