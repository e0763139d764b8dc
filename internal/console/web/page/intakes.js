// Intakes: what each makes of the records of its topic, where it is in each partition, its dead letters, and commands to it.

import { useState } from 'preact/hooks';
import { countText } from './format.js';
import { html } from './html.js';
import { useAnswer } from './live.js';
import { Commands } from './named.js';
import { State, Table, Trouble } from './parts.js';
import { address } from './route.js';

const pause = { command: 'pause', place: 'pause', does: 'It consumes nothing until it is resumed. Its position is kept.' };
const resume = { command: 'resume', place: 'pause', does: 'It continues after the last record that it consumed.' };

function commandsOf(x) {
  const fault = x.state === 'fault' && 'The intake can\'t be used. Apply it again, or delete it.';
  return [{ ...(x.state === 'paused' ? resume : pause), fault }];
}

const unknown = html`<span class="faint">unknown</span>`;
const lagOf = (n) => (n == null ? unknown : countText(n));

/** The lag, with that of each partition. */
const Lag = ({ of: x }) => (x.partitions.length === 0 ? lagOf(x.lag) : html`<details><summary>${lagOf(x.lag)}</summary><ul>${x.partitions.map((p) => html`<li key=${p.partition}>
  partition ${p.partition}: ${p.position == null ? 'no position yet' : html`at ${p.position} of ${p.end ?? unknown}`}${p.worker ? '' : ', no worker'}</li>`)}</ul></details>`);

/** The dead letters of the last 24 hours. */
const Deadletters = ({ of: x }) => (x.deadletters ? html`<a data-open href=${address(['deadletters'], { intake: x.name })}>${countText(x.deadletters.count)}</a>` : unknown);

const columns = (said, done) => [
  { head: 'Intake', kind: 'name', cell: (x) => x.name },
  { head: 'State', cell: (x) => html`<${State} name=${`intake ${x.state}`} />` },
  { head: 'Topic', kind: 'name', cell: (x) => x.topic },
  { head: 'Format', cell: (x) => x.format },
  { head: 'Becomes', kind: 'name', cell: (x) => x.to },
  { head: 'Lag', kind: 'number', cell: (x) => html`<${Lag} of=${x} />` },
  { head: 'Dead letters', kind: 'number', cell: (x) => html`<${Deadletters} of=${x} />` },
  { head: 'Workers', kind: 'number', cell: (x) => countText(x.members) },
  { head: 'Why', kind: 'text', cell: (x) => (x.fault ? html`<span class="error">${x.fault}</span>` : x.why) },
  { name: 'Commands', head: '', cell: (x) => html`<${Commands} kind="intake" name=${x.name} commands=${commandsOf(x)} said=${said} done=${done} />` },
];

export function Intakes() {
  const { data, problem, refresh } = useAnswer('/intakes', {}, { every: 5000 });
  const [said, setSaid] = useState('');
  const done = (text) => { setSaid(text); refresh(); };
  return html`<${Trouble} text=${problem} />${data?.intakes.length > 0 && html`<section><h2>Intakes</h2><p role="status">${said}</p>
    <${Table} label="Intakes" columns=${columns(setSaid, done)} rows=${data.intakes} keyOf=${(x) => x.name} /></section>`}`;
}
