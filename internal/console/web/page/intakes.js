// Intakes: what each makes of the records of its topic, how many records it is behind, and commands to it.

import { useState } from 'preact/hooks';
import { countText } from './format.js';
import { html } from './html.js';
import { useAnswer } from './live.js';
import { Commands } from './named.js';
import { State, Table, Trouble } from './parts.js';

const pause = { command: 'pause', place: 'pause', does: 'It consumes nothing until it is resumed. Its position is kept.' };
const resume = { command: 'resume', place: 'pause', does: 'It continues after the last record that it consumed.' };

function commandsOf(x) {
  const fault = x.state === 'fault' && 'The intake can\'t be used. Apply it again, or delete it.';
  return [{ ...(x.state === 'paused' ? resume : pause), fault }];
}

const columns = (said, done) => [
  { head: 'Intake', kind: 'name', cell: (x) => x.name },
  { head: 'State', cell: (x) => html`<${State} name=${`intake ${x.state}`} />` },
  { head: 'Topic', kind: 'name', cell: (x) => x.topic },
  { head: 'Format', cell: (x) => x.format },
  { head: 'Becomes', kind: 'name', cell: (x) => x.to },
  { head: 'Lag', kind: 'number', cell: (x) => (x.lag == null ? html`<span class="faint">unknown</span>` : countText(x.lag)) },
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
